"""The options that `campaign run` and `campaign dry-run` share, and the orders they make."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from pytest_meshnet.campaign.judging.canonical import REPETITIONS, WARMUPS
from pytest_meshnet.campaign.plan.arms import ARMS, ServeSettings
from pytest_meshnet.campaign.plan.orders import REQUEST_S, START_S, Orders
from pytest_meshnet.campaign.workloads.classes import CLASSES

F = TypeVar("F", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)

_OPTIONS = (
    click.option("--manifest", type=_PATH, metavar="FILE", help="The frozen workloads."),
    click.option("--model", metavar="PATH", help="The snapshot folder that servers load."),
    click.option("--repository", metavar="NAME", help="Where the model comes from, OWNER/NAME."),
    click.option("--revision", metavar="HEX", help="The commit of the repository, 40 hex digits."),
    click.option("--gpu", metavar="SELECTOR", help="One GPU: an index, a UUID or a PCI bus id."),
    click.option(
        "--inventory", type=_PATH, metavar="FILE", help="An invented inventory; makes it synthetic."
    ),
    click.option(
        "--ft", default="ft", show_default=True, metavar="COMMAND", help="The runtime's command."
    ),
    click.option(
        "--memory-ratio", type=float, default=0.9, show_default=True, help="For every server."
    ),
    click.option("--kv-reserve-tokens", type=int, help="For every server."),
    click.option("--max-seq-len-override", type=int, help="For every server."),
    click.option(
        "--checkout",
        type=_PATH,
        default=Path(),
        metavar="DIR",
        help="The checkout that must be clean.  [default: here]",
    ),
    click.option(
        "--out",
        type=_PATH,
        default=Path("campaign-runs"),
        show_default=True,
        metavar="DIR",
        help="Where runs go, a folder for each session.",
    ),
    click.option(
        "--session",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="The number of the session.",
    ),
    click.option("--reverse", is_flag=True, help="Run arms and classes in the reversed order."),
    click.option(
        "--arm", "arms", multiple=True, type=click.Choice(list(ARMS)), help="Only this arm."
    ),
    click.option(
        "--class", "classes", multiple=True, type=click.Choice(list(CLASSES)), help="Only this one."
    ),
    click.option(
        "--warmups", type=click.IntRange(0), default=WARMUPS, show_default=True, help="A block."
    ),
    click.option(
        "--repetitions",
        type=click.IntRange(1),
        default=REPETITIONS,
        show_default=True,
        help="Measured, a block.",
    ),
    click.option("--no-bench-bw", is_flag=True, help="Leave the bandwidth prerequisite out."),
    click.option("--dev-smoke", is_flag=True, help="A developer's run; never canonical."),
    click.option(
        "--allow-missing-provenance", is_flag=True, help="Run without it; never canonical."
    ),
    click.option("--key", type=_PATH, metavar="PEM", help="The key that signs; see keygen."),
    click.option(
        "--start-timeout", type=float, default=START_S, show_default=True, help="Seconds to load."
    ),
    click.option(
        "--request-timeout",
        type=float,
        default=REQUEST_S,
        show_default=True,
        help="Seconds of silence in a stream.",
    ),
    click.option(
        "--simulated", is_flag=True, help="On an invented rig; its evidence is synthetic."
    ),
    click.option(
        "--simulate",
        "switches",
        multiple=True,
        metavar="CODE",
        help="With --simulated: provoke this invalidation.",
    ),
)


def order_options(command: F) -> F:
    """Give a command every option that `orders` reads."""
    return reduce(lambda inner, option: option(inner), reversed(_OPTIONS), command)


def orders(given: dict[str, Any]) -> Orders:
    """Make orders of the options of a command; an empty choice of arms or classes means all."""
    return Orders(
        manifest=given["manifest"],
        model=given["model"],
        repository=given["repository"],
        revision=given["revision"],
        gpu=given["gpu"],
        inventory=given["inventory"],
        runtime=tuple(shlex.split(given["ft"])),
        settings=ServeSettings(
            given["memory_ratio"], given["kv_reserve_tokens"], given["max_seq_len_override"]
        ),
        checkout=given["checkout"],
        out=given["out"],
        session=given["session"],
        reverse=given["reverse"],
        arms=given["arms"] or tuple(ARMS),
        classes=given["classes"] or tuple(CLASSES),
        warmups=given["warmups"],
        repetitions=given["repetitions"],
        bench_bw=not given["no_bench_bw"],
        dev_smoke=given["dev_smoke"],
        allow_missing_provenance=given["allow_missing_provenance"],
        key=given["key"],
        start_s=given["start_timeout"],
        request_s=given["request_timeout"],
    )
