"""An invented rig around a simulated FreeToken: a GPU, a model snapshot, a clean checkout."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pytest_meshnet import layout
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging.canonical import MODEL
from pytest_meshnet.campaign.judging.codes import Code
from pytest_meshnet.campaign.plan.orders import Orders
from pytest_meshnet.campaign.simulated import checkout
from pytest_meshnet.campaign.simulated.switches import OF_THE_RIG, words

REVISION = "5ad85de24bbd28a0d5c1d5c1a7b5d9a3c5e6f708"
"""An invented commit of the model's repository."""

RUNTIME = (sys.executable, "-m", "pytest_meshnet.campaign.simulated.ft")


def check(switches: Iterable[str]) -> tuple[str, ...]:
    """Return the switches when each is one. Raises CampaignRefused."""
    found = tuple(switches)
    known = [str(code) for code in Code]
    for one in found:
        if one not in known:
            raise CampaignRefused(f"{one!r} is no switch: choose from {', '.join(known)}")
    return found


def smoke_manifest() -> Path:
    """Return the only manifest that is shipped; a canonical run refuses it."""
    return layout.folder("fixtures") / "campaign" / "smoke-manifest.json"


def simulate(orders: Orders, folder: Path, switches: tuple[str, ...]) -> Orders:
    """Put an invented rig into `folder` and return the orders for a run on it.

    What the orders already say stays as it is.
    """
    of_the_runtime = words((one for one in switches if one not in OF_THE_RIG), folder)
    owner = "nobody" if "provenance.model_repository_mismatch" in switches else "nvidia"
    held = "0" * 40 if "provenance.model_revision_mismatch" in switches else REVISION
    name = MODEL.partition("/")[2]
    model = folder / f"models--{owner}--{name}" / "snapshots" / held
    model.mkdir(parents=True, exist_ok=True)
    inventory = layout.folder("fixtures") / "inventories" / "rtx3060.json"
    missing = "provenance.missing_required" in switches
    return replace(
        orders,
        runtime=(*RUNTIME, *of_the_runtime),
        inventory=orders.inventory or inventory,
        gpu=orders.gpu or "0",
        model=orders.model or str(model),
        repository=orders.repository or MODEL,
        revision=None if missing else orders.revision or REVISION,
        manifest=orders.manifest or smoke_manifest(),
        checkout=checkout.make(folder, dirty="provenance.dirty_working_tree" in switches),
        bench_bw=orders.bench_bw and "bench_bw.skipped" not in switches,
        simulated=switches,
    )
