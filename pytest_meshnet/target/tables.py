"""What people see of a plan, an inventory and a verification. Colour only where a terminal is."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from pytest_meshnet.target.artifact.inventory import Inventory
from pytest_meshnet.target.artifact.verification import Code, Expected, Verification
from pytest_meshnet.target.manifest import GIB
from pytest_meshnet.target.plan.fit import ArtifactPlan
from pytest_meshnet.target.plan.planner import Planner, RoutePlan, gib
from pytest_meshnet.target.plan.seams import SeamPlan


def node_rows(route: RoutePlan) -> list[dict[str, Any]]:
    """Return each machine of a route with its memory, reserve and budget in GiB."""
    return [
        {
            "name": node.name,
            "unified": node.unified,
            "usable_gib": gib(node.usable_bytes),
            "reserve_gib": gib(node.usable_bytes - budget),
            "placement_budget_gib": gib(budget),
        }
        for node, budget in zip(route.nodes, route.budgets, strict=True)
    ]


def print_plan(
    planner: Planner,
    route: RoutePlan,
    seams: SeamPlan,
    placed: ArtifactPlan | None,
    reasons: Sequence[str],
) -> None:
    """Print the verdict first, then machines, what has to be held, seams and the placement."""
    console = _console()
    console.print("[red]DOES NOT FIT[/]" if reasons else "[green]FITS[/] (arithmetic)")
    for reason in reasons:
        console.print(f"  {escape(reason)}")
    table = _table("machine", "usable GiB", "reserve GiB", "budget GiB")
    for row in node_rows(route):
        name = f"{row['name']} (unified)" if row["unified"] else row["name"]
        figures = (row["usable_gib"], row["reserve_gib"], row["placement_budget_gib"])
        table.add_row(escape(name), *(f"{figure:.3f}" for figure in figures))
    console.print(table)
    work, manifest = planner.workload, planner.target.manifest
    if placed is None:
        console.print(
            f"target {manifest.quantization}: weights {planner.weight_bytes / GIB:.3f} GiB + KV "
            f"{planner.kv_bytes() / GIB:.3f} GiB at {work.context_tokens} tokens {work.kv_type}, "
            f"headroom {route.headroom_bytes / GIB:+.3f} GiB"
        )
    else:
        console.print(_placement_table(placed))
        console.print(f"this placement holds up to {placed.largest_context} tokens of context")
    count = f"{seams.seam_count} seam" + ("s" if seams.seam_count > 1 else "")
    console.print(
        f"{count} at {seams.link_rate_gbps:g} Gbit/s: "
        f"{seams.bytes_per_token_per_seam} bytes a token each; per token "
        f"{seams.decode_latency_ms_per_token:.2f} ms latency and "
        f"{seams.decode_serialization_ms_per_token:.4f} ms on the wire; prefill "
        f"{seams.prefill_serialization_ms:.0f} ms on the wire"
    )
    if not seams.meets_alpha_minimum:
        console.print(f"the link is below the contract's {planner.minimum_gbps:g} Gbit/s minimum")


def _placement_table(placed: ArtifactPlan) -> Table:
    table = _table("machine", "layers", "load GiB", "headroom GiB", "seam before it")
    for share in placed.placement.shares:
        seam = "whole group" if placed.is_target else "-"
        if share.start_layer in placed.placement.broken_cuts:
            seam = f"cuts a group: {placed.boundary.sideband_bytes} bytes a query"
        table.add_row(
            escape(share.node),
            f"{share.start_layer}..{share.end_layer - 1}",
            f"{share.load_bytes / GIB:.3f}",
            f"{share.headroom_bytes / GIB:.3f}",
            seam if share.start_layer else "-",
        )
    return table


def print_inventory(inventory: Inventory) -> None:
    """Print one artifact: its totals, then bytes by tensor type, then bytes by layer."""
    console = _console()
    layers = "unknown" if inventory.block_count is None else str(inventory.backbone_layers)
    nextn = f" + {inventory.nextn_layers} NextN" if inventory.nextn_layers else ""
    console.print(
        f"[bold]{escape(inventory.stem)}[/]  {len(inventory.tensors)} tensors, {layers} layers"
        f"{nextn}, {len(inventory.parts)} file(s), {inventory.total_bytes} bytes, architecture "
        f"{escape(inventory.architecture or 'unknown')}"
    )
    types: dict[str, list[int]] = defaultdict(list)
    blocks: dict[str, list[int]] = defaultdict(list)
    for tensor in inventory.tensors:
        types[tensor.dtype].append(tensor.size_bytes)
        blocks["-" if tensor.layer is None else str(tensor.layer)].append(tensor.size_bytes)
    for title, groups in (("type", types), ("layer", blocks)):
        table = _table(title, "tensors", "bytes")
        for name, sizes in sorted(groups.items(), key=lambda item: (len(item[0]), item[0])):
            table.add_row(name, str(len(sizes)), str(sum(sizes)))
        console.print(table)


def print_verification(result: Verification) -> None:
    """Print each file's outcome, bad ones with what to do, and the verdict last."""
    console = _console()
    for verdict in result.verdicts:
        good = verdict.code is Code.VERIFIED
        known = " (known from an earlier run)" if verdict.resumed else ""
        colour = "green" if good else "red"
        console.print(f"[{colour}]{verdict.code}[/]{known}  {escape(verdict.message)}")
    bad = sum(verdict.code is not Code.VERIFIED for verdict in result.verdicts)
    total = len(result.verdicts)
    console.print(
        f"{total} files verified" if result.verified else f"{bad} of {total} files are not good"
    )


@contextmanager
def verification_progress(files: Sequence[Expected]) -> Iterator[Callable[[str, int], None]]:
    """Show bytes verified, speed and time left on stderr; silent when that is no terminal."""
    console = Console(stderr=True)  # standard output stays for the result
    columns = (
        TextColumn("verifying"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    total = sum(_size_of(expected.path) for expected in files)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("verifying", total=total)
        yield lambda _path, count: progress.advance(task, count)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # told by the verification itself; only the length of the bar depends on it


def _console() -> Console:
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        console.width = 200  # a file or a pipe has no width: names must not be cut
    return console


def _table(first: str, *rest: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for title in rest:
        table.add_column(title, justify="right")
    return table
