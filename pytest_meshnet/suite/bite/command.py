"""`pytest-meshnet mutants`: wrong workers, each of which is caught, and honest ones, which pass."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from pytest_meshnet.ledger.verdict import INCOMPLETE

if TYPE_CHECKING:
    from pytest_meshnet.reference.catalogue import Entry
    from pytest_meshnet.suite.bite.fate import Bite


@click.command()
@click.option("--list", "listing", is_flag=True, help="Print every mutant and variant.")
@click.option(
    "--run",
    "running",
    is_flag=True,
    help="Run each mutant against its whole profile, each variant against every test.",
)
@click.option(
    "--designated",
    is_flag=True,
    help="With --run: only the tests of a mutant's own requirement, in a third of the time.",
)
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the results there.")
@click.option(
    "-n",
    "processes",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="one a core",
    help="Processes at a time.",
)
@click.argument("ids", nargs=-1, metavar="[ID]...")
def mutants(
    *,
    listing: bool,
    running: bool,
    designated: bool,
    file: Path | None,
    processes: int,
    ids: tuple[str, ...],
) -> NoReturn:
    """List the mutants and variants, or run those named by ID (a name or a requirement).

    Exit code 1: a mutant survives, or is caught by nothing but a crash or the tests of other
    requirements, or a variant fails or cannot be examined; 3: the suite is broken.
    """
    if listing == running:
        raise click.UsageError("say --list or --run")
    chosen = _chosen(ids)
    if listing:
        for one in chosen:
            click.echo(f"{one.kind:<15}{one.requirement:<12}{one.name}: {one.text}")
        sys.exit(0)
    sys.exit(_run(chosen, processes, file, whole=not designated))


def _chosen(ids: Sequence[str]) -> list[Entry]:
    from pytest_meshnet.reference.catalogue import entries

    # A control is made only by the parity tests of a model that has what it breaks.
    known = [one for one in entries() if one.kind != "control"]
    for name in ids:
        if not any(name in (one.name, one.requirement) for one in known):
            raise click.UsageError(f"no mutant, variant or requirement {name!r}: see --list")
    return [one for one in known if not ids or one.name in ids or one.requirement in ids]


def _run(chosen: Sequence[Entry], processes: int, file: Path | None, *, whole: bool) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from pytest_meshnet.suite.bite.fate import GOOD
    from pytest_meshnet.suite.bite.matrix import bite
    from pytest_meshnet.suite.certify import CollectionFailed, planned_tests

    try:
        tests = planned_tests()
    except CollectionFailed as error:
        click.echo(f"the suite cannot be collected:\n{error}", err=True)
        return INCOMPLETE
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    bites = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("mutants", total=len(chosen))
        for one in bite(chosen, tests, processes, whole):
            bites.append(one)
            click.echo(_line(one))
            progress.advance(task)
    bites.sort(key=lambda one: (one.requirement, one.mutant))
    if file is not None:
        file.write_text(json.dumps([asdict(one) for one in bites], indent=2) + "\n")
    click.echo(_count(bites))
    return 0 if bites and all(one.fate in GOOD for one in bites) else 1


def _count(bites: Sequence[Bite]) -> str:
    from pytest_meshnet.suite.bite.fate import GOOD

    groups = [
        (word, [one.fate in GOOD for one in bites if bool(one.requirement) is broken])
        for word, broken in (("mutants killed", True), ("variants passed", False))
    ]
    return ", ".join(f"{sum(good)} of {len(good)} {word}" for word, good in groups if good)


def _line(one: Bite) -> str:
    by = f" by {one.killers[0]}" if one.killers else ""
    too = f", {len(one.others)} others fail" if one.others else ""
    return (
        f"{one.fate:<15}{one.requirement:<12}{one.mutant}{by}{too} "
        f"({one.ran} tests, {one.seconds:.1f} s)"
    )
