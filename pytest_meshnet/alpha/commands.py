"""`pytest-meshnet alpha judge RECORD`, `alpha merge RECORD PART...` and `alpha template`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from pytest_meshnet.alpha.judge import Verdict

ALPHA, STOP, REFUSED = 0, 1, 2
_PATH = click.Path(path_type=Path)


@click.group()
def alpha() -> None:
    """Answer the release question of the locked target from a record."""


@alpha.command()
@click.argument("record", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict for programs.")
@click.option("--html", type=_PATH, metavar="FILE", help="Write the whole matrix as a page.")
@click.option(
    "--sign",
    type=_PATH,
    metavar="FILE",
    help="Write the verdict as a signed statement over the record's SHA-256.",
)
@click.option("--key", type=_PATH, metavar="PEM", help="The key that signs; see keygen.")
def judge(
    *, record: Path, as_json: bool, html: Path | None, sign: Path | None, key: Path | None
) -> NoReturn:
    """Judge RECORD against the sealed contract.

    Exit code 0: alpha; 1: stop; 2: refused, because the record or the contract is not whole.
    """
    from pytest_meshnet.alpha import text
    from pytest_meshnet.alpha.judge import NoCriterion
    from pytest_meshnet.alpha.judge import judge as decide
    from pytest_meshnet.alpha.page import page
    from pytest_meshnet.alpha.record import RecordRefused, load
    from pytest_meshnet.evidence.signing.keys import KeyRefused
    from pytest_meshnet.target.documents import LockedTarget
    from pytest_meshnet.target.fields import TargetRefused

    try:
        if key is not None and sign is None:
            raise click.UsageError("--key signs what --sign writes: give both")
        locked = LockedTarget.load()
        document = load(record)
        verdict = decide(locked, document)
        if sign is not None:
            _sign(verdict, record, sign, key)
        if html is not None:
            html.write_bytes(page(verdict, document))
    except NoCriterion as error:
        _refuse(f"(no-criterion): {error}", as_json=as_json, code="no-criterion")
    except OSError as error:
        why = f"{error.filename}: {error.strerror}: check its place; a signature is never replaced"
        _refuse(f"(file): {why}", as_json=as_json, code="file")
    except (TargetRefused, RecordRefused) as error:
        _refuse(f"({error.code}): {error.message}", as_json=as_json, code=error.code)
    except KeyRefused as error:
        _refuse(f"(key): {error}", as_json=as_json, code="key")
    click.echo(
        json.dumps(verdict.to_dict(), indent=1) if as_json else text.render(verdict).rstrip()
    )
    sys.exit(ALPHA if verdict.word == "alpha" else STOP)


def _refuse(why: str, *, as_json: bool, code: str) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"refused": {"code": code, "message": why}}))
    click.echo(f"refused {why}", err=True)
    sys.exit(REFUSED)


def _sign(verdict: Verdict, record: Path, path: Path, pem: Path | None) -> None:
    from pytest_meshnet.alpha.statement import statement
    from pytest_meshnet.evidence.signing.dsse import sign
    from pytest_meshnet.evidence.signing.keys import SigningKey

    key = SigningKey.load(pem) if pem is not None else SigningKey.make_ephemeral()
    with path.open("xb") as file:
        file.write(sign(statement(verdict, record.read_bytes()), key).to_bytes())


@alpha.command()
@click.argument("record", type=_PATH)
@click.argument("parts", type=_PATH, nargs=-1, required=True)
def merge(*, record: Path, parts: tuple[Path, ...]) -> NoReturn:
    """Put the PARTS that machines collected into RECORD, and print the whole.

    Exit code 2: a part cannot be used.
    """
    from pytest_meshnet.alpha.collectors.host import merge as together
    from pytest_meshnet.alpha.record import RecordRefused, read

    try:
        merged = together(read(record), [read(part) for part in parts])
    except RecordRefused as error:
        _refuse(f"({error.code}): {error.message}", as_json=False, code=error.code)
    click.echo(json.dumps(merged, indent=1))
    sys.exit(0)


@alpha.command()
def template() -> None:
    """Print a record in which every claim is still open, to fill by hand."""
    from pytest_meshnet.alpha.record import template as blank

    click.echo(json.dumps(blank(), indent=1))
