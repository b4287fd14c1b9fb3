"""`pytest-meshnet replay`: a sequence that failed once, or a requirement's exchange, played."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_meshnet.options import REFERENCE

if TYPE_CHECKING:
    from pytest_meshnet.authoring.exchange.notation import Line
    from pytest_meshnet.authoring.exchange.notation import Script as Exchange
    from pytest_meshnet.ledger.requirements import Requirement
    from pytest_meshnet.runtime.errors import Nonconformance
    from pytest_meshnet.runtime.scripts.script import Script, Step
    from pytest_meshnet.runtime.shard import ShardUnderTest
    from pytest_meshnet.runtime.target import InProcess, Target

CONFORMANT, FINDING, REFUSED, NOT_PLAYED = 0, 1, 2, 3

Play = Callable[["ShardUnderTest"], int]


@dataclass(frozen=True, slots=True)
class Place:
    """What to play on: a descriptor or reference[:NAME], its Shard, the way to it, the inputs."""

    target: str
    shard: str | None
    transport: str
    seed: int


def replay(what: str, place: Place) -> int:
    """Play a file or a requirement's exchange and print each step with its answer.

    Returns 0 when every answer is allowed, 1 for a finding, 2 when refused, 3 when nothing was sent
    because the Shard is not one that it can be played on.
    """
    from pytest_meshnet.runtime.errors import Refusal, TargetLost
    from pytest_meshnet.runtime.shard import ShardUnderTest

    try:
        play = _chosen(what)
        target = make_target(place)
    except Refusal as refusal:
        return _refused(refusal.message)
    try:
        target.connect()
        return play(ShardUnderTest(target, f"replay-{secrets.token_hex(4)}", place.seed))
    except Refusal as refusal:
        return _refused(refusal.message)
    except TargetLost as lost:
        return _refused(lost.reason)
    finally:
        target.close()


def _refused(message: str) -> int:
    click.echo(f"refused: {message}", err=True)
    return REFUSED


def _chosen(what: str) -> Play:
    """What a word means: a file, or the id of a requirement. Raises Refusal."""
    from pytest_meshnet.runtime.errors import Refusal
    from pytest_meshnet.runtime.scripts.script import BadScript, from_json

    path = Path(what)
    if not path.is_file():
        return _exchange_of(what)
    try:
        script = from_json(path.read_text(encoding="utf-8"))
    except (BadScript, UnicodeDecodeError) as error:
        raise Refusal(f"{what} holds no script: {error}") from None
    return lambda shard: _play_script(script, shard)


def _exchange_of(name: str) -> Play:
    from pytest_meshnet.authoring.exchange.canonical import exchanges
    from pytest_meshnet.ledger.requirements import Ledger, UnknownRequirement
    from pytest_meshnet.runtime.errors import Refusal

    try:
        requirement = Ledger.load().get(name)
    except UnknownRequirement as error:
        raise Refusal(f"there is no file {name!r}, and no such requirement: {error}") from None
    script = exchanges().get(name)
    if script is None:
        raise Refusal(
            f"no single exchange shows {name}: run its tests; "
            f"`pytest-meshnet explain {name}` lists them"
        )
    return lambda shard: _play_exchange(requirement, script, shard)


def make_target(place: Place) -> Target:
    """The target, not yet connected. Raises Refusal."""
    from pytest_meshnet.runtime.descriptor import load
    from pytest_meshnet.runtime.errors import Refusal
    from pytest_meshnet.runtime.target import Target, choose_shard

    kind, _, mutant = place.target.partition(":")
    in_process = place.transport == "in-process"
    if in_process and kind != REFERENCE:
        raise Refusal(
            f"{place.target} cannot run in process: leave --transport out, or use {REFERENCE}"
        )
    if kind == REFERENCE and mutant:
        _check_known(mutant)
    descriptor = load(place.target, small=in_process)
    shard = choose_shard(descriptor, place.shard)
    make: InProcess | None = None
    if in_process:
        from pytest_meshnet.reference.catalogue import build_small
        from pytest_meshnet.runtime.in_process import InProcessTransport

        def make() -> InProcessTransport:
            return InProcessTransport(*build_small(mutant, descriptor, shard))

    return Target(descriptor, shard, in_process=make)


def _check_known(mutant: str) -> None:
    from pytest_meshnet.reference.catalogue import UnknownName, entry
    from pytest_meshnet.runtime.errors import Refusal

    try:
        entry(mutant)
    except UnknownName:
        raise Refusal(
            f"no mutant or variant {mutant!r}: `pytest-meshnet mutants --list` names them"
        ) from None


# A sequence from a file ------------------------------------------------------------------------


def _play_script(script: Script, shard: ShardUnderTest) -> int:
    from pytest_meshnet.runtime.errors import Nonconformance
    from pytest_meshnet.runtime.scripts.playing import play

    try:
        played = play(script, shard, told=_tell_step)
    except Nonconformance as finding:
        click.echo(f"finding\nexpected: {finding.expected}\nactual:   {finding.actual}")
        click.echo(f"frames:\n{shard.trace.text(broken=finding.broken)}")
        return FINDING
    if not played:
        click.echo(f"not-run: none of {len(script)} steps has a meaning on this Shard")
        return NOT_PLAYED
    click.echo(f"conformant: {played} of {len(script)} steps played, every answer is allowed")
    return CONFORMANT


def _tell_step(number: int, step: Step, answer: str) -> None:
    click.echo(f"{number:3}. {step}  <- {answer}")


# A requirement's exchange ----------------------------------------------------------------------


def _play_exchange(one: Requirement, script: Exchange, shard: ShardUnderTest) -> int:
    from pytest_meshnet.authoring.exchange.playing import DoesNotFit, play
    from pytest_meshnet.ledger.applicability import unmet
    from pytest_meshnet.runtime.errors import Nonconformance

    click.echo(f"{one.id} {one.title}: {one.statement}")
    need = unmet(one.needs, shard.target.facts())
    if need is not None:
        click.echo(f"not-applicable: the Shard lacks what it needs: {need}")
        return NOT_PLAYED
    try:
        play(script, shard, told=_tell_line)
    except DoesNotFit as limit:
        click.echo(f"not-run: {limit}; the tests of {one.id} fit every Shard")
        return NOT_PLAYED
    except Nonconformance as finding:
        _tell_finding(one, shard, finding)
        return FINDING
    click.echo(
        f"as written: every answer of this exchange is right. The tests of {one.id} ask more:\n"
        f"pytest-meshnet explain {one.id} lists them"
    )
    return CONFORMANT


def _tell_line(line: Line, said: str) -> None:
    click.echo(f"  {line}" + (f"\n      {said}" if line.direction == "<-" else ""))


def _tell_finding(one: Requirement, shard: ShardUnderTest, finding: Nonconformance) -> None:
    frames = shard.trace.text(broken=finding.broken)
    click.echo(f"finding: {one.id} is broken\n{finding}\nframes:\n{frames}")
