"""`pytest-meshnet replay`: a sequence that failed once, played again step by step."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from pytest_meshnet.options import DEFAULT_SEED, REFERENCE

if TYPE_CHECKING:
    from pytest_meshnet.runtime.scripts.script import Script, Step
    from pytest_meshnet.runtime.target import InProcess, Target

FINDING, REFUSED = 1, 2


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--target",
    "name",
    default=REFERENCE,
    show_default=True,
    metavar="FILE",
    help="A target descriptor, or reference[:MUTANT-OR-VARIANT].",
)
@click.option("--shard", metavar="NAME", help="The Shard to examine, when there are several.")
@click.option(
    "--transport",
    type=click.Choice(["grpc", "in-process"]),
    default="grpc",
    show_default=True,
    help="How to reach it; in process only the reference.",
)
@click.option(
    "--seed", type=int, default=DEFAULT_SEED, show_default=True, help="The seed of the inputs."
)
def replay(*, file: Path, name: str, shard: str | None, transport: str, seed: int) -> NoReturn:
    """Play the JSON script in FILE on a target and print each step with its answer.

    Exit code 0: every answer is one that the protocol allows; 1: a finding; 2: refused.
    """
    from pytest_meshnet.runtime.errors import Refusal, TargetLost
    from pytest_meshnet.runtime.scripts.script import BadScript, from_json

    try:
        script = from_json(file.read_text(encoding="utf-8"))
        target = _target(name, shard, transport)
    except (BadScript, UnicodeDecodeError) as error:
        _refuse(f"{file} holds no script: {error}")
    except Refusal as refusal:
        _refuse(refusal.message)
    try:
        target.connect()
        sys.exit(_play(script, target, seed))
    except Refusal as refusal:
        _refuse(refusal.message)
    except TargetLost as lost:
        _refuse(lost.reason)
    finally:
        target.close()


def _refuse(message: str) -> NoReturn:
    click.echo(f"refused: {message}", err=True)
    sys.exit(REFUSED)


def _target(name: str, shard: str | None, transport: str) -> Target:
    """The target, not yet connected. Raises Refusal."""
    from pytest_meshnet.runtime.descriptor import load
    from pytest_meshnet.runtime.errors import Refusal
    from pytest_meshnet.runtime.target import Target, choose_shard

    kind, _, mutant = name.partition(":")
    in_process = transport == "in-process"
    if in_process and kind != REFERENCE:
        raise Refusal(f"{name} cannot run in process: leave --transport out, or use {REFERENCE}")
    if kind == REFERENCE and mutant:
        _check_known(mutant)
    descriptor = load(name, small=in_process)
    make: InProcess | None = None
    if in_process:
        from pytest_meshnet.reference.catalogue import build_small
        from pytest_meshnet.runtime.in_process import InProcessTransport

        def make() -> InProcessTransport:
            return InProcessTransport(*build_small(mutant, descriptor))

    return Target(descriptor, choose_shard(descriptor, shard), in_process=make)


def _check_known(mutant: str) -> None:
    from pytest_meshnet.reference.catalogue import UnknownName, entry
    from pytest_meshnet.runtime.errors import Refusal

    try:
        entry(mutant)
    except UnknownName:
        raise Refusal(
            f"no mutant or variant {mutant!r}: `pytest-meshnet mutants --list` names them"
        ) from None


def _play(script: Script, target: Target, seed: int) -> int:
    from pytest_meshnet.runtime.errors import Nonconformance
    from pytest_meshnet.runtime.scripts.playing import play
    from pytest_meshnet.runtime.shard import ShardUnderTest

    shard = ShardUnderTest(target, f"replay-{secrets.token_hex(4)}", seed)
    try:
        played = play(script, shard, told=_tell)
    except Nonconformance as finding:
        click.echo(f"finding\nexpected: {finding.expected}\nactual:   {finding.actual}")
        return FINDING
    click.echo(f"conformant: {played} of {len(script)} steps played, every answer is allowed")
    return 0


def _tell(number: int, step: Step, answer: str) -> None:
    click.echo(f"{number:3}. {step}  <- {answer}")
