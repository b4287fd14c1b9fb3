"""`pytest-meshnet campaign`: plan, run, judge and analyse the phase-0 campaign."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.options import order_options, orders
from pytest_meshnet.campaign.workloads.classes import CLASSES

REFUSED = 2

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(path_type=Path)


@click.group()
def campaign() -> None:
    """The phase-0 campaign: five arms, four workload classes, one RTX 3060."""


@campaign.command("dry-run")
@order_options
def dry_run(**given: Any) -> None:
    """Print the plan of a run and everything that would refuse it.

    Exit code 0: nothing refuses it; 2: something does.
    """
    _plan(given)


@campaign.command()
@order_options
@click.option("--dry-run", "only_plan", is_flag=True, help="Print the plan and run nothing.")
def run(*, only_plan: bool, **given: Any) -> None:
    """Run a campaign and leave run.json, SUMMARY.md, its blocks and a signed bundle.

    Exit code 0: complete and valid; 1: complete, but something invalidates it; 2: refused;
    3: incomplete; 4: a complete developer or simulated run, with nothing against it.
    """
    from pytest_meshnet.campaign.plan.prepare import prepared
    from pytest_meshnet.campaign.runner.progress import on_terminal
    from pytest_meshnet.campaign.runner.session import run as run_session

    if only_plan:
        _plan(given)
    try:
        with prepared(orders(given), _switches(given)) as found, _ending_softly():
            if found.refusals:
                _refuse(*found.refusals)
            outcome = run_session(found, on_terminal)
    except CampaignRefused as refused:
        _refuse(str(refused))
    judged = outcome.judgement
    click.echo(judged.headline)
    click.echo(f"{judged.observed} of {judged.expected} requests, {judged.validity}")
    for code, count in judged.codes.items():
        click.echo(f"  {code} x {count}")
    click.echo(f"run     {outcome.folder.root}\nbundle  {outcome.bundle}")
    sys.exit(judged.exit_code)


@campaign.command()
@click.argument("folder", type=_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def judge(*, folder: Path, as_json: bool) -> None:
    """Judge the records of a run again; exit codes are those of `run`.

    A run.json that says something else than its records, or blocks that are not those it names,
    are refused.
    """
    from pytest_meshnet.campaign.report.documents import summary
    from pytest_meshnet.campaign.report.reading import read_run

    try:
        record, judged = read_run(folder)
    except CampaignRefused as refused:
        _refuse(str(refused))
    told = judged.document() | {"expected": judged.expected, "observed": judged.observed}
    click.echo(json.dumps(told, indent=2) if as_json else summary(record, judged))
    sys.exit(judged.exit_code)


@campaign.command()
@order_options
@click.option("--slots", required=True, metavar="N", help="Expert slots; `auto` is refused.")
@click.option("--nvfp4", required=True, metavar="BACKEND", help="NVFP4 backend; no `auto`.")
def reference(*, slots: str, nvfp4: str, **given: Any) -> None:
    """Run CORRECTNESS_REFERENCE: every workload once, greedily, with its whole output.

    Exit code 0: run; 1: the server resolved to something else, or a request failed; 2: refused;
    3: the server did not serve.
    """
    from pytest_meshnet.campaign.plan.prepare import prepared
    from pytest_meshnet.campaign.reference.running import Wish, run_reference, where
    from pytest_meshnet.campaign.runner.server import ServerFailed

    wish = Wish(int(slots) if slots.isdecimal() else slots, nvfp4)
    try:
        with prepared(where(orders(given)), _switches(given)) as found:
            if found.refusals:
                _refuse(*found.refusals)
            folder, against = run_reference(found, wish)
    except CampaignRefused as refused:
        _refuse(str(refused))
    except ServerFailed as failed:
        click.echo(f"{failed}", err=True)
        sys.exit(3)
    for line in against:
        click.echo(line)
    click.echo(f"reference  {folder.root}")
    sys.exit(1 if against else 0)


@campaign.command("compare-references")
@click.argument("one", type=_FOLDER)
@click.argument("other", type=_FOLDER)
def compare_references(*, one: Path, other: Path) -> None:
    """Compare two runs of the reference by the digests of their outputs.

    Exit code 0: self-consistent; 1: an output differs; 2: the two cannot show it.
    """
    from pytest_meshnet.campaign.reference.agreeing import differences

    try:
        found = differences(one, other)
    except CampaignRefused as refused:
        _refuse(str(refused))
    click.echo(f"outputs differ: {', '.join(found)}" if found else "self-consistent")
    sys.exit(1 if found else 0)


@campaign.command()
@click.argument("out", type=_FILE)
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    required=True,
    metavar="CLASS=FILE",
    help="The prompt of a class, a file beside or below OUT.",
)
@click.option("--id", "manifest_id", required=True, metavar="NAME", help="The manifest's name.")
@click.option("--canonical", is_flag=True, help="Meant for canonical runs; needs all classes.")
@click.option("--temperature", type=float, required=True, help="Of every request.")
@click.option("--top-p", type=float, required=True, help="Of every request.")
@click.option("--top-k", type=int, required=True, help="Of every request.")
@click.option("--template", metavar="JSON", default="{}", help="chat_template_kwargs.")
def freeze(
    *,
    out: Path,
    prompts: tuple[str, ...],
    manifest_id: str,
    canonical: bool,
    temperature: float,
    top_p: float,
    top_k: int,
    template: str,
) -> None:
    """Freeze prompts into the manifest OUT, each with its SHA-256, and print the manifest's own.

    Exit code 0: written; 2: refused.
    """
    from pytest_meshnet.campaign.documents import loads
    from pytest_meshnet.campaign.workloads.freeze import freeze as write

    try:
        pairs = {name: Path(path) for name, _, path in (one.partition("=") for one in prompts)}
        if unknown := sorted(pairs.keys() - CLASSES.keys()):
            raise CampaignRefused(f"{unknown[0]!r} is no class: choose from {', '.join(CLASSES)}")
        if canonical and pairs.keys() != CLASSES.keys():
            raise CampaignRefused(f"a canonical manifest has all of {', '.join(CLASSES)}")
        manifest = write(
            out,
            pairs,
            manifest_id=manifest_id,
            canonical=canonical,
            sampling={"temperature": temperature, "top_p": top_p, "top_k": top_k},
            chat_template_kwargs=loads(template),
        )
    except (CampaignRefused, ValueError) as refused:
        _refuse(str(refused))
    click.echo(f"{manifest.sha256}  {out}")


@campaign.command()
@click.option(
    "--baseline",
    type=_FOLDER,
    required=True,
    multiple=True,
    metavar="DIR",
    help="Blocks of one arm; repeat it for further sessions.",
)
@click.option(
    "--candidate",
    type=_FOLDER,
    required=True,
    multiple=True,
    metavar="DIR",
    help="Blocks of the other arm, of the same sessions.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--html", type=_FILE, metavar="FILE", help="Write a page with plots, too.")
def analyse(
    *, baseline: tuple[Path, ...], candidate: tuple[Path, ...], as_json: bool, html: Path | None
) -> None:
    """Compare two arms of one or more sessions; DIR holds W1.jsonl to W4.jsonl.

    Advisories name what the records deserve to have said about them and change no number.
    Exit code 0: compared; 2: the records cannot be compared.
    """
    from pytest_meshnet.campaign.analysis.advisories import advise
    from pytest_meshnet.campaign.analysis.comparison import analyse as compare
    from pytest_meshnet.campaign.analysis.text import as_text
    from pytest_meshnet.campaign.records import read_blocks
    from pytest_meshnet.campaign.report.page import analysis_page

    try:
        arms = read_blocks(*baseline), read_blocks(*candidate)
        found = compare(*arms)
    except CampaignRefused as refused:
        _refuse(str(refused))
    remarks = [remark for arm in arms for remark in advise(arm)]
    if html is not None:
        html.write_bytes(analysis_page(found, arms, remarks))
    if as_json:
        document = found.document() | {"advisories": [one.document() for one in remarks]}
        click.echo(json.dumps(document, indent=1, sort_keys=True, allow_nan=False))
    else:
        click.echo("\n".join(as_text(found, remarks)))


def _plan(given: dict[str, Any]) -> NoReturn:
    from pytest_meshnet.campaign.plan.prepare import prepared
    from pytest_meshnet.campaign.plan.text import as_text

    try:
        with prepared(orders(given), _switches(given)) as found:
            click.echo("\n".join(as_text(found)))
    except CampaignRefused as refused:
        _refuse(str(refused))
    sys.exit(REFUSED if found.refusals else 0)


@contextmanager
def _ending_softly() -> Iterator[None]:
    """Let SIGTERM end a run as ^C does: judged and sealed, as incomplete."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _switches(given: dict[str, Any]) -> tuple[str, ...] | None:
    if given["simulated"]:
        return tuple(given["switches"])
    if given["switches"]:
        raise CampaignRefused("--simulate provokes a simulated runtime: add --simulated")
    return None


def _refuse(*reasons: str) -> NoReturn:
    for reason in reasons:
        click.echo(f"refused: {reason}", err=True)
    sys.exit(REFUSED)
