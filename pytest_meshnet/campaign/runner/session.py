"""One whole campaign, from the prerequisite to the seal, or to wherever it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging.facts import (
    ArmFacts,
    Bandwidth,
    CampaignRecord,
    Intent,
    Observation,
    Placed,
)
from pytest_meshnet.campaign.judging.judge import Judgement, judge
from pytest_meshnet.campaign.plan.arms import SERVER_ENVIRONMENT, Arm, Runtime
from pytest_meshnet.campaign.plan.orders import Orders
from pytest_meshnet.campaign.plan.refusals import Preparation
from pytest_meshnet.campaign.plan.surroundings import Checkout, checkout, ended
from pytest_meshnet.campaign.report.documents import RunDocument, summary
from pytest_meshnet.campaign.report.page import page
from pytest_meshnet.campaign.runner import bandwidth
from pytest_meshnet.campaign.runner.arm import Record, Task, not_started, run_arm
from pytest_meshnet.campaign.runner.evidence import Evidence, signing_key
from pytest_meshnet.campaign.runner.folder import BANDWIDTH_LOG, PAGE, RUN, SUMMARY, RunFolder
from pytest_meshnet.campaign.runner.observing import observation, observations
from pytest_meshnet.campaign.runner.placing import place
from pytest_meshnet.campaign.runner.server import Server, ServerFailed
from pytest_meshnet.campaign.workloads.manifest import Manifest
from pytest_meshnet.hardware.placement.gpu import Placement
from pytest_meshnet.runtime.ports import free_port

Step = Callable[[str], None]
Watch = Callable[[int], AbstractContextManager[Step]]
"""Opens a display of progress over so many requests; a step is one of them, with its place."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to, and where its bundle lies."""

    judgement: Judgement
    folder: RunFolder
    bundle: str


@dataclass(slots=True)
class _Session:
    """What is known so far; the record is made of it whenever something is written."""

    orders: Orders
    intent: Intent
    manifest: Manifest
    runtime: Runtime
    gpu_uuid: str
    preparation: Preparation
    folder: RunFolder
    evidence: Evidence
    bandwidth: Bandwidth = field(default_factory=bandwidth.skipped)
    arms: list[ArmFacts] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    tree: Checkout | None = None

    def record(self) -> CampaignRecord:
        """Put everything together that is known by now."""
        told = self.preparation.provenance
        if self.tree is not None:
            told = ended(told, self.tree)
        return CampaignRecord(
            self.intent,
            self.orders.protocol(baseline_prompts=self.manifest.declares_canonical),
            self.bandwidth,
            told,
            tuple(self.arms),
            tuple(self.observations),
        )

    def on_disk(self) -> list[Observation]:
        """Read back every request that was kept."""
        arms, classes = self.orders.traversal
        paths = [self.folder.block(arm.arm_id, name) for arm in arms for name in classes]
        return [
            one
            for path in paths
            if path.exists()
            for one in observations(path.read_bytes(), path.name)
        ]

    def save(self) -> Judgement:
        """Judge what is there and write run.json and SUMMARY.md; a killed run leaves the last."""
        record = self.record()
        judgement = judge(record)
        document = RunDocument(record, judgement, self.manifest, self.runtime.settings)
        self.folder.write(RUN, document.text(self.folder).encode())
        self.folder.write(SUMMARY, summary(record, judgement).encode())
        return judgement


def run(preparation: Preparation, watch: Watch) -> Outcome:
    """Run a campaign that nothing refuses. Raises CampaignRefused for one that something does.

    KeyboardInterrupt ends it early; it is judged and sealed all the same, as incomplete.
    """
    session = _session(preparation)
    with session.evidence:
        try:
            _execute(session, watch)
        except KeyboardInterrupt:
            # It may have come between a line on the disk and what is known of it here.
            session.observations[:] = session.on_disk()
        session.tree = checkout(session.orders.checkout)
        judgement = session.save()
        session.folder.write(PAGE, page(session.folder, session.record(), judgement))
        session.evidence.seal(session.record(), judgement, session.folder)
    return Outcome(judgement, session.folder, session.evidence.path)


def _session(preparation: Preparation) -> _Session:
    orders, device = preparation.orders, preparation.machine.device
    if preparation.refusals or preparation.manifest is None or device is None:
        raise CampaignRefused("; ".join(preparation.refusals) or "nothing is prepared")
    intent = Intent(
        session_id=orders.session_id,
        session_number=orders.session,
        reversed_order=orders.reverse,
        dev_smoke=orders.dev_smoke,
        allow_missing_provenance=orders.allow_missing_provenance,
        synthetic=preparation.synthetic,
    )
    key = signing_key(orders.key)
    folder = RunFolder(orders.folder)
    try:
        folder.make()
    except OSError as error:
        raise CampaignRefused(f"{folder.root}: {error.strerror}; choose another --out") from None
    return _Session(
        orders=orders,
        intent=intent,
        manifest=preparation.manifest,
        runtime=Runtime(orders.runtime, orders.model or "", orders.settings),
        gpu_uuid=device.uuid or "",
        preparation=preparation,
        folder=folder,
        evidence=Evidence.open(preparation, intent, folder, key),
    )


def _execute(session: _Session, watch: Watch) -> None:
    orders = session.orders
    session.save()
    if orders.bench_bw:
        command = session.runtime.bandwidth(session.gpu_uuid)
        log = session.folder.logs / BANDWIDTH_LOG
        session.bandwidth = bandwidth.measure(command, session.gpu_uuid, log)
    judgement = session.save()
    broken = any(code.startswith("bench_bw.") for code in judgement.codes)
    if broken and not orders.developer:
        # Hours of figures could not repair a prerequisite that failed.
        return
    arms, _ = orders.traversal
    with watch(session.record().protocol.expected) as step:
        for number, arm in enumerate(arms):
            _serve(session, arm, number, step)
            session.save()


def _serve(session: _Session, arm: Arm, number: int, step: Step) -> None:
    task = _task(session, arm, number)
    port = free_port()
    command = session.runtime.serve(arm, session.gpu_uuid, port)
    log = session.folder.logs / f"{arm.arm_id}.log"
    facts = not_started(task, command, str(log.relative_to(session.folder.root)))
    session.arms.append(facts)

    def keep(record: Record) -> None:
        session.evidence.begin(arm.arm_id, record["class_id"])
        session.folder.append(arm.arm_id, record["class_id"], record)
        session.observations.append(observation(record, "a repetition"))
        step(f"{arm.arm_id} {record['class_id']}")

    try:
        with Server(command, SERVER_ENVIRONMENT, port, log) as server:
            facts = run_arm(task, facts, server, keep)
            seen = place(session.preparation.machine, server.pid, facts.gpu_uuids)
            session.evidence.placed(seen, facts)
            session.arms[-1] = replace(facts, placement=_placed(seen))
    except ServerFailed as failed:
        session.arms[-1] = replace(facts, failure=str(failed))
    finally:
        session.evidence.end(session.record(), arm.arm_id)


def _placed(seen: Placement | None) -> Placed | None:
    if seen is None:
        return None
    foreign = tuple(f"process {one.pid} on {one.device}" for one in seen.foreign)
    return Placed(seen.verdict, seen.observed, seen.reasons, foreign)


def _task(session: _Session, arm: Arm, number: int) -> Task:
    orders = session.orders
    _, classes = orders.traversal
    per_arm = len(classes) * (orders.warmups + orders.repetitions)
    return Task(
        arm=arm,
        workloads=tuple(session.manifest.workloads[name] for name in classes),
        model=orders.repository or orders.model or "",
        warmups=orders.warmups,
        repetitions=orders.repetitions,
        first_index=number * per_arm,
        stamp={"session_id": orders.session_id, "session_number": orders.session},
        start_s=orders.start_s,
        request_s=orders.request_s,
    )
