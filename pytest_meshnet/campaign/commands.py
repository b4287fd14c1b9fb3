"""`pytest-meshnet campaign`: plan, run, judge and analyse the phase-0 campaign."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn

import click

from pytest_meshnet.campaign.errors import CampaignRefused

REFUSED = 2

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group()
def campaign() -> None:
    """The phase-0 campaign: five arms, four workload classes, one RTX 3060."""


@campaign.command()
@click.option("--baseline", type=_FOLDER, required=True, metavar="DIR", help="Blocks of one arm.")
@click.option("--candidate", type=_FOLDER, required=True, metavar="DIR", help="Of the other.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def analyse(*, baseline: Path, candidate: Path, as_json: bool) -> None:
    """Compare two arms of one or more sessions; DIR holds W1.jsonl to W4.jsonl.

    Advisories name what the records deserve to have said about them and change no number.
    Exit code 0: compared; 2: the records cannot be compared.
    """
    from pytest_meshnet.campaign.analysis.advisories import advise
    from pytest_meshnet.campaign.analysis.comparison import analyse as compare
    from pytest_meshnet.campaign.analysis.text import as_text
    from pytest_meshnet.campaign.records import read_blocks

    try:
        arms = read_blocks(baseline), read_blocks(candidate)
        found = compare(*arms)
    except CampaignRefused as refused:
        _refuse(refused)
    remarks = [remark for arm in arms for remark in advise(arm)]
    if as_json:
        document = found.document() | {"advisories": [one.document() for one in remarks]}
        click.echo(json.dumps(document, indent=1, sort_keys=True, allow_nan=False))
    else:
        click.echo("\n".join(as_text(found, remarks)))


def _refuse(refused: CampaignRefused) -> NoReturn:
    click.echo(f"refused: {refused}", err=True)
    sys.exit(REFUSED)
