"""`pytest-meshnet parity`: calibrating the bound on the logit error, and keeping an oracle."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from pytest_meshnet.parity.calibration import Calibration

REFUSED = 2


@click.group()
def parity() -> None:
    """What parity runs need to be prepared once for each model."""


@parity.command()
@click.option(
    "--target",
    default="reference",
    show_default=True,
    metavar="FILE",
    help="A descriptor with a route and an oracle.",
)
@click.option("--small", is_flag=True, help="The small model of the reference, in this process.")
@click.option("--bound", type=float, metavar="LOGITS", help="Check this bound instead of choosing.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the figures go.  [default: the descriptor's oracle.calibration]",
)
def calibrate(*, target: str, small: bool, bound: float | None, out: Path | None) -> NoReturn:
    """Measure honest routes and negative controls, and keep the bound between them.

    Exit code 1: no bound separates them; 2: refused.
    """
    from pytest_meshnet.parity.calibration import NoSeparation
    from pytest_meshnet.runtime.errors import Refusal

    with _told_in_one_line():
        try:
            found, place = _calibrated(target, small, bound)
        except NoSeparation as error:
            click.echo(f"no bound: {error}", err=True)
            sys.exit(1)
        path = out or place
        if path is None:
            raise Refusal("the descriptor names no oracle.calibration: pass --out FILE")
        found.write(path)
    click.echo(_text(found))
    sys.exit(0)


@parity.command()
@click.option("--target", required=True, metavar="FILE", help="A descriptor with oracle.binding.")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the record goes.",
)
def store(*, target: str, out: Path) -> NoReturn:
    """Ask the oracle for the whole corpus once and keep its answers, bound to oracle.binding.

    Exit code 2: refused.
    """
    with _told_in_one_line():
        _store(target, out)
    click.echo(f"the oracle's answers are in {out}")
    sys.exit(0)


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    """End with REFUSED and one line for whatever keeps a route or an oracle from being measured."""
    from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked, Refusal, TargetLost
    from pytest_meshnet.runtime.route_session import RouteLost

    try:
        yield
    except Refusal as refusal:
        _refuse(refusal.message)
    except NotProvoked as error:
        _refuse(f"there is nothing to measure: {error.reason}")
    except (TargetLost, RouteLost) as lost:
        _refuse(f"the target was lost: {lost}")
    except Nonconformance as finding:
        _refuse(f"the target gave no numbers: expected {finding.expected}, got {finding.actual}")
    except OSError as error:
        _refuse(f"{error}: pass another --out FILE")


def _refuse(why: str) -> NoReturn:
    click.echo(f"refused: {why}", err=True)
    sys.exit(REFUSED)


def _store(target: str, out: Path) -> None:
    from pytest_meshnet.options import DEFAULT_SEED
    from pytest_meshnet.parity.lanes import EXACT_TOKENS
    from pytest_meshnet.parity.oracles.stored import Binding
    from pytest_meshnet.parity.oracles.stored import store as keep
    from pytest_meshnet.runtime.descriptor import load
    from pytest_meshnet.runtime.errors import Refusal
    from pytest_meshnet.suite.parity import open_bench

    descriptor = load(target)
    if descriptor.oracle is None or descriptor.oracle.binding is None:
        raise Refusal(f"{descriptor.name} does not say what its oracle is bound to: oracle.binding")
    bench = open_bench(descriptor, DEFAULT_SEED)
    try:
        binding = Binding.read(descriptor.oracle.binding)
        keep(out, binding, bench.oracle, bench.corpus, EXACT_TOKENS)
    finally:
        bench.close()


def _calibrated(target: str, small: bool, bound: float | None) -> tuple[Calibration, Path | None]:
    from pytest_meshnet.options import DEFAULT_SEED
    from pytest_meshnet.parity.calibrating import measure
    from pytest_meshnet.runtime.descriptor import load
    from pytest_meshnet.runtime.errors import Refusal
    from pytest_meshnet.suite.parity import in_process_shards, open_bench, subject_of
    from pytest_meshnet.suite.parity_progress import on_terminal

    descriptor = load(target, small=small)
    if descriptor.oracle is None:
        raise Refusal(f"{descriptor.name} describes no route with an oracle: add both")
    # Old figures may be missing or wrong: they are about to be made anew.
    fresh = replace(descriptor.oracle, calibration=None)
    bench = open_bench(
        replace(descriptor, oracle=fresh),
        DEFAULT_SEED,
        in_process=in_process_shards(descriptor, "") if small else None,
    )
    try:
        bench.report = on_terminal()
        found = measure(bench, subject_of(descriptor, bench.corpus), bound)
    finally:
        bench.close()
    return found, descriptor.oracle.calibration


def _text(found: Calibration) -> str:
    lines = [f"{found.about.model} in {found.about.dtype}: bound {found.bound:.4g}"]
    lines += [f"  honest   {error:<10.4g} {name}" for name, error in found.honest.items()]
    lines += [f"  control  {error:<10.4g} {name}" for name, error in found.controls.items()]
    return "\n".join(lines)
