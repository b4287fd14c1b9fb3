"""The commands that read finished bundles for people: `report` and `compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=_PATH, metavar="BUNDLE...")
@click.option("--html", type=_PATH, metavar="FILE", help="Write one self-contained page.")
@click.option("--md", type=_PATH, metavar="FILE", help="Write Markdown for a CI job summary.")
@click.option("--junit", type=_PATH, metavar="FILE", help="Write JUnit XML of one bundle.")
@click.option("--trust", type=_PATH, metavar="FILE", help="Whose signatures count.")
def report(
    *,
    bundles: tuple[Path, ...],
    html: Path | None,
    md: Path | None,
    junit: Path | None,
    trust: Path | None,
) -> NoReturn:
    """Show what a bundle says, verified anew; several bundles give a compatibility matrix.

    Without --html, --md or --junit the Markdown is printed. Exit code 0: written, whatever the
    bundle is worth, which the report says first; 2: something cannot be read or written.
    """
    from pytest_meshnet.evidence.report import run_report
    from pytest_meshnet.suite.sections import providers

    text, code = run_report(
        bundles, html=html, md=md, junit=junit, trust=trust, providers=providers()
    )
    click.echo(text, nl=False)
    sys.exit(code)


@click.command()
@click.argument("before", type=_PATH, metavar="A")
@click.argument("after", type=_PATH, metavar="B")
@click.option(
    "--allow",
    multiple=True,
    metavar="KIND",
    help="Compare although this differs; may be repeated. KIND: device, driver, artifact, "
    "recipe, policy, suite, ledger, profiles.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def compare(*, before: Path, after: Path, allow: tuple[str, ...], as_json: bool) -> NoReturn:
    """Compare two runs: changed statuses, and ratios B/A of durations and metrics.

    Exit code 0: nothing got worse; 1: the run, a test or a requirement passed in A and does not
    in B; 2: refused, since the runs are not known to be alike, cannot be read or are invalid.
    """
    from pytest_meshnet.evidence.compare import run_compare

    text, code = run_compare(before, after, allow=allow, as_json=as_json)
    click.echo(text, nl=False)
    sys.exit(code)
