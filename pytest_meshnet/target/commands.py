"""The commands `plan` and `artifact`: exit 0 yes, 1 no, 2 refused, with the same facts as JSON."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import click

from pytest_meshnet.target import tables
from pytest_meshnet.target.artifact.inventory import read_inventory
from pytest_meshnet.target.artifact.ownership import Nextn
from pytest_meshnet.target.artifact.parts import find_artifacts
from pytest_meshnet.target.artifact.pins import locate, pins_of_manifest, pins_of_sums
from pytest_meshnet.target.artifact.resume import ResumeLog
from pytest_meshnet.target.artifact.verification import verify_files
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.plan.fit import ArtifactPlan, plan_artifact
from pytest_meshnet.target.plan.nodes import Node
from pytest_meshnet.target.plan.placement import DoesNotFit
from pytest_meshnet.target.plan.planner import Planner
from pytest_meshnet.target.refresh import refresh

YES, NO, REFUSED = 0, 1, 2

P = ParamSpec("P")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
_paths = click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))


def refusing(command: Callable[P, int]) -> Callable[P, NoReturn]:
    """Turn a command's result into its exit code, and a refusal into one line and exit 2."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> NoReturn:
        try:
            code = command(*args, **kwargs)
        except TargetRefused as refused:
            if kwargs.get("as_json"):
                _print_json({"refused": {"code": refused.code, "message": refused.message}})
            click.echo(f"refused ({refused.code}): {refused.message}", err=True)
            code = REFUSED
        raise SystemExit(code)

    return run


@click.command()
@click.option(
    "--node",
    "nodes",
    multiple=True,
    required=True,
    metavar="[NAME=]RAM[+GPU][:unified]",
    help="One machine in GiB, as in rig=64+24 or mac=128:unified. Repeat for each machine.",
)
@click.option("--context", type=int, help="Tokens of context. Default: the contract's.")
@click.option("--link", type=float, help="Link rate in Gbit/s. Default: the contract's minimum.")
@click.option(
    "--artifact",
    "artifact_path",
    type=click.Path(path_type=Path),
    help="A GGUF file or folder: place its tensors exactly, layer by layer.",
)
@click.option(
    "--nextn",
    type=click.Choice([str(choice) for choice in Nextn]),
    help="With --artifact: who loads NextN tensors, if there are any.",
)
@click.option(
    "--in-order", is_flag=True, help="With --artifact: keep the route in the order of --node."
)
@_as_json
@refusing
def plan(
    *,
    nodes: tuple[str, ...],
    context: int | None,
    link: float | None,
    artifact_path: Path | None,
    nextn: str | None,
    in_order: bool,
    as_json: bool,
) -> int:
    """Say whether a set of machines can hold the locked target.

    Exit 0: it fits. Exit 1: it does not. Exit 2: refused. A fit is arithmetic over memory that
    was named, not a measured placement.
    """
    target = LockedTarget.load()
    planner = Planner.of(target, context_tokens=context)
    machines = [Node.parse(text, number) for number, text in enumerate(nodes, start=1)]
    route = planner.route(machines)
    placed: ArtifactPlan | None = None
    reasons = list(route.reasons)
    if artifact_path is not None:
        try:
            placed = _place(planner, machines, artifact_path, nextn, in_order)
            planner = replace(planner, boundary=placed.boundary)
            # Another artifact than the target's has no floor and no published sum to meet.
            reasons = [*(reasons if placed.is_target else ()), *placed.reasons]
        except DoesNotFit as refused:
            reasons = [refused.message]
    seams = planner.seams(len(machines), planner.minimum_gbps if link is None else link)
    fits = not reasons
    if as_json:
        _print_json(
            {
                "fits": fits,
                "reasons": reasons,
                "context_tokens": planner.workload.context_tokens,
                "kv_type": planner.workload.kv_type,
                "target": {
                    "quantization": target.manifest.quantization,
                    "gguf_revision": target.manifest.artifact.revision,
                },
                "nodes": tables.node_rows(route),
                "route": route.to_dict() if placed is None else None,
                "seams": seams.to_dict(),
                "placement": None if placed is None else placed.to_dict(),
            }
        )
    else:
        tables.print_plan(planner, route, seams, placed, reasons)
    return YES if fits else NO


@click.group()
def artifact() -> None:
    """Read and verify GGUF artifacts; inputs are never opened for writing."""


@artifact.command()
@_paths
@_as_json
@refusing
def inventory(paths: tuple[Path, ...], as_json: bool) -> int:
    """List the tensors and layers of each artifact below PATHS, multi-part files as one.

    Exit 0, or 2 when a part is missing, foreign, empty or damaged.
    """
    found = [read_inventory(parts) for parts in find_artifacts(paths)]
    if as_json:
        _print_json({"artifacts": [item.to_dict() for item in found]})
    else:
        for item in found:
            tables.print_inventory(item)
    return YES


@artifact.command()
@_paths
@click.option(
    "--sums",
    type=click.Path(path_type=Path),
    help="Verify against a sha256sum list instead of the target's manifest.",
)
@click.option("--jobs", type=int, help="Files hashed at once. Default: one for each core.")
@click.option(
    "--resume",
    "resume_path",
    type=click.Path(path_type=Path),
    help="Remember finished files here and skip those that have not changed since.",
)
@_as_json
@refusing
def verify(
    paths: tuple[Path, ...],
    sums: Path | None,
    jobs: int | None,
    resume_path: Path | None,
    as_json: bool,
) -> int:
    """Verify files below PATHS against their pinned size and SHA-256.

    Exit 0: all of them are the pinned ones. Exit 1: one is missing, forbidden, damaged or another
    file. Exit 2: refused.
    """
    manifest = LockedTarget.load().manifest
    pins = pins_of_manifest(manifest) if sums is None else pins_of_sums(sums)
    files = locate(pins, paths)
    with ExitStack() as stack:
        log = None if resume_path is None else stack.enter_context(_open_log(resume_path))
        progress = stack.enter_context(tables.verification_progress(files))
        result = verify_files(
            files,
            forbidden_prefixes=manifest.storage.forbidden_path_prefixes,
            workers=jobs,
            resume=log,
            progress=progress,
        )
    if as_json:
        _print_json(
            {
                "verified": result.verified,
                "content_sha256": result.content_digest(),
                "files": [verdict.to_dict() for verdict in result.verdicts],
            }
        )
    else:
        tables.print_verification(result)
    return YES if result.verified else NO


@artifact.command("refresh")
@_as_json
@refusing
def refresh_command(as_json: bool) -> int:
    """Ask the hub whether it still serves the pinned revisions. Needs a network; changes nothing.

    Exit 0: it confirms every pin. Exit 1: it contradicts one. Exit 2: it cannot be asked.
    """
    findings = refresh(LockedTarget.load())
    if as_json:
        _print_json({"findings": [{"code": f.code, "message": f.message} for f in findings]})
    for finding in findings:
        click.echo(f"{finding.code}: {finding.message}", err=as_json)
    if not findings and not as_json:
        click.echo("the hub confirms every pinned revision, size and file digest it publishes")
    return NO if findings else YES


def _place(
    planner: Planner, machines: list[Node], path: Path, nextn: str | None, in_order: bool
) -> ArtifactPlan:
    artifacts = find_artifacts([path])
    if len(artifacts) != 1:
        raise TargetRefused(
            "several-artifacts", f"{path} holds {len(artifacts)} artifacts: name one of their files"
        )
    return plan_artifact(
        read_inventory(artifacts[0]),
        machines,
        planner.reserve,
        planner.target.snapshot.architecture,
        context_tokens=planner.workload.context_tokens,
        kv_type=planner.workload.kv_type,
        concurrency=planner.workload.concurrency,
        nextn=None if nextn is None else Nextn(nextn),
        order=[machine.name for machine in machines] if in_order else None,
    )


def _open_log(path: Path) -> ResumeLog:
    try:
        return ResumeLog(path)
    except OSError as error:
        raise TargetRefused(
            "resume-log", f"{path} cannot be used ({error.strerror}): name a writable file"
        ) from error


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2))
