"""The commands of this room; what they do is in the modules of their names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

from pytest_meshnet.options import DEFAULT_SEED, REFERENCE

_PATH = click.Path(dir_okay=False, path_type=Path)
_REFUSED = 2


@click.command()
@click.argument("endpoint", metavar="ENDPOINT")
@click.option(
    "--out", type=_PATH, default="target.toml", show_default=True, metavar="FILE", help="Where to."
)
def init(*, endpoint: str, out: Path) -> NoReturn:
    """Write a descriptor of the runtime at ENDPOINT (HOST:PORT) from its GetCapability.

    Its comments say what the wire did not tell. Exit code 0, or 2 when nothing answers or the file
    exists.
    """
    from pytest_meshnet.authoring import descriptor_file
    from pytest_meshnet.runtime.errors import Refusal

    try:
        _answer(descriptor_file.init(endpoint, out), 0)
    except Refusal as refusal:
        _refuse(refusal.message)


@click.command()
@click.option("--target", required=True, metavar="FILE", help="A target descriptor.")
@click.option("--shard", metavar="NAME", help="The Shard to examine, when there are several.")
def doctor(*, target: str, shard: str | None) -> NoReturn:
    """Ten checks from the descriptor to the first result, each with what to fix.

    Stops at the first that fails. Exit code 0: all pass; 1: the runtime answers wrongly; 2: there
    is no runtime to ask; 3: what could be checked passes, and a check was skipped.
    """
    from pytest_meshnet.authoring.doctor import examine

    sys.exit(examine(target, shard, click.echo))


@click.command()
@click.argument("requirement", metavar="ID")
def explain(*, requirement: str) -> NoReturn:
    """Say what a requirement wants: statement, exchange of frames, tests and mutants.

    Exit code 0, 2 for an unknown id, 3 when the suites cannot be collected.
    """
    from pytest_meshnet.authoring import explain as page
    from pytest_meshnet.ledger.requirements import UnknownRequirement
    from pytest_meshnet.ledger.verdict import INCOMPLETE
    from pytest_meshnet.suite.certify import CollectionFailed

    try:
        _answer(page.explain(requirement), 0)
    except UnknownRequirement as error:
        _refuse(str(error))
    except CollectionFailed as error:
        _answer(f"{error}\n", INCOMPLETE)


@click.command()
@click.option("--out", type=_PATH, metavar="FILE", help="Where to, instead of to the terminal.")
def proto(*, out: Path | None) -> NoReturn:
    """Print the .proto of the protocol. With --out, 2 when the file exists."""
    from importlib import resources

    text = (resources.files("pytest_meshnet.protocol") / "shard_runtime.proto").read_text("utf-8")
    if out is None:
        _answer(text, 0)
    try:
        with out.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        _refuse(f"{out} exists and is never overwritten: name another file with --out")
    _answer(f"wrote {out}\n", 0)


@click.command()
@click.argument("what", metavar="FILE|ID")
@click.option(
    "--target",
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
def replay(*, what: str, target: str, shard: str | None, transport: str, seed: int) -> NoReturn:
    """Play the JSON script in FILE, or the exchange of requirement ID, and print each answer.

    Exit code 0: every answer is one that the protocol allows; 1: a finding; 2: refused; 3: not
    played, because the Shard's limits leave no room for it or not one of its steps has a meaning.
    """
    from pytest_meshnet.authoring import replay as playing

    sys.exit(playing.replay(what, playing.Place(target, shard, transport, seed)))


def _answer(text: str, code: int) -> NoReturn:
    click.echo(text, nl=not text.endswith("\n"))
    sys.exit(code)


def _refuse(message: str) -> NoReturn:
    click.echo(f"refused: {message}", err=True)
    sys.exit(_REFUSED)
