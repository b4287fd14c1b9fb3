"""Everything that refuses a run before it starts, all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging.canonical import departures
from pytest_meshnet.campaign.judging.facts import Provenance
from pytest_meshnet.campaign.judging.rules import (
    missing_provenance,
    repository_problem,
    revision_problem,
)
from pytest_meshnet.campaign.plan.orders import Orders
from pytest_meshnet.campaign.plan.surroundings import Machine
from pytest_meshnet.campaign.workloads.manifest import Manifest, load

SIMULATED = "simulated"
"""What a simulated runtime says where a real one tells its version."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What was found out before a run; `refusals` of any kind keep it from starting."""

    orders: Orders
    machine: Machine
    provenance: Provenance
    manifest: Manifest | None
    refusals: tuple[str, ...]

    @property
    def synthetic(self) -> bool:
        """Whether the machine is invented, or the runtime says of itself that it is."""
        version = self.provenance.runtime_version or ""
        return self.machine.simulated or SIMULATED in version


def prepare(orders: Orders, machine: Machine, provenance: Provenance) -> Preparation:
    """Read the manifest and collect every refusal; nothing is started or written."""
    manifest, problem = None, "no --manifest was given"
    if orders.manifest is not None:
        try:
            manifest = load(orders.manifest)
        except CampaignRefused as refused:
            problem = str(refused)
    found = list(_always(orders, machine, provenance, manifest, problem))
    if not orders.developer:
        found += _canonical(orders, provenance, manifest)
    return Preparation(orders, machine, provenance, manifest, tuple(found))


def _always(
    orders: Orders,
    machine: Machine,
    provenance: Provenance,
    manifest: Manifest | None,
    problem: str,
) -> Iterator[str]:
    if machine.device is None:
        yield f"the GPU cannot be resolved: {machine.problem}"
    if manifest is None:
        yield problem
    elif missing := [name for name in orders.classes if name not in manifest.workloads]:
        yield f"the manifest has no workload of {', '.join(missing)}: freeze one with all classes"
    if orders.model is None:
        yield "no --model was given: name the snapshot folder of the model"
    if orders.folder.exists():
        yield f"{orders.folder} exists: there is no resume, use another --out or --session"
    if orders.key is not None and SIMULATED in (provenance.runtime_version or ""):
        yield "--key with a simulated runtime: synthetic evidence is signed by no kept key"


def _canonical(orders: Orders, provenance: Provenance, manifest: Manifest | None) -> Iterator[str]:
    if not orders.bench_bw:
        yield "--no-bench-bw: a canonical run measures the bandwidth first"
    baseline = manifest is None or manifest.declares_canonical
    yield from departures(orders.protocol(baseline_prompts=baseline), provenance)
    if provenance.dirty_paths:
        yield f"the checkout is dirty: {', '.join(provenance.dirty_paths)}; commit or remove them"
    for problem in (
        revision_problem(provenance.model_revision, provenance.model_path),
        repository_problem(provenance.model_repository, provenance.model_path),
    ):
        if problem is not None:
            yield problem
    if missing := missing_provenance(provenance):
        yield f"required provenance is unknown: {', '.join(missing)}"
