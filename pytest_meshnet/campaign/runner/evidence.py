"""The signed bundle of a campaign: a test for each block, and one for the campaign's validity.

A bundle is judged by the requirements beside the acceptance tests of the campaign. A developer
run claims only that it ran whole with nothing against it; that it is canonical is never its claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pytest_meshnet import layout
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging import coverage
from pytest_meshnet.campaign.judging.facts import ArmFacts, CampaignRecord, Intent
from pytest_meshnet.campaign.judging.judge import Judgement
from pytest_meshnet.campaign.plan.refusals import Preparation
from pytest_meshnet.campaign.report.section import MEDIA_TYPE
from pytest_meshnet.campaign.runner.folder import RUN, RunFolder
from pytest_meshnet.evidence.bundle import About, BundleError, BundleWriter
from pytest_meshnet.evidence.documents import Named
from pytest_meshnet.evidence.journal import Collection
from pytest_meshnet.evidence.signing.keys import KeyRefused, SigningKey
from pytest_meshnet.hardware.placement.gpu import Placement
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.ledger.status import Kind, PhaseRecord, PlannedTest

WHOLE, CLEAN, CANONICAL = "CAMPAIGN-01", "CAMPAIGN-02", "CAMPAIGN-03"
PROFILE, CANONICAL_PROFILE = "campaign", "campaign-canonical"
VALIDITY = "campaign::validity"

_PLAIN = "text/plain; charset=utf-8"


def ledger_file() -> Path:
    """Return the requirements that bundles of campaigns are judged by."""
    return layout.folder("acceptance") / "campaign" / "requirements.toml"


def signing_key(path: Path | None) -> SigningKey:
    """Return the key that signs, made for this run alone when none is kept.

    Raises CampaignRefused.
    """
    try:
        return SigningKey.load(path) if path else SigningKey.make_ephemeral()
    except KeyRefused as error:
        raise CampaignRefused(str(error)) from None


def block_test(arm_id: str, class_id: str) -> str:
    """Return the id of the test that a block is."""
    return f"campaign::block[{arm_id}-{class_id}]"


@dataclass(slots=True)
class Evidence:
    """The bundle while the campaign runs; unsealed until `seal`, and so incomplete."""

    _bundle: BundleWriter
    _claims_canonical: bool
    _begun: set[str] = field(default_factory=set)

    @classmethod
    def open(
        cls, preparation: Preparation, intent: Intent, folder: RunFolder, key: SigningKey
    ) -> Evidence:
        """Sign the start and the plan. Raises CampaignRefused for an unusable folder."""
        orders = preparation.orders
        claims = not intent.developer
        profiles = (PROFILE, CANONICAL_PROFILE) if claims else (PROFILE,)
        manifest = preparation.provenance.manifest_sha256 or ""
        try:
            bundle = BundleWriter.create(
                folder.evidence,
                About(
                    target=Named(orders.repository or "unnamed model", manifest),
                    profiles=profiles,
                    ledger=Ledger.load(ledger_file()),
                    certificate=False,
                    options=_options(preparation),
                    gpu_inventory="asked for the campaign",
                    gpus=preparation.machine.facts(),
                ),
                key,
                ledger_file=ledger_file(),
            )
        except BundleError as error:
            raise CampaignRefused(str(error)) from None
        evidence = cls(bundle, claims)
        evidence._plan(preparation)
        return evidence

    @property
    def path(self) -> str:
        """Where the bundle lies."""
        return str(self._bundle.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bundle.recorder.close()

    def begin(self, arm_id: str, class_id: str) -> None:
        """Note that the first request of a block was made; later ones change nothing."""
        test = block_test(arm_id, class_id)
        if test not in self._begun:
            self._begun.add(test)
            self._bundle.recorder.attempt(test)
            self._phase(test, "setup")

    def placed(self, seen: Placement | None, facts: ArmFacts) -> None:
        """Record the device that a server was proven to be on.

        An invented one proves nothing, and neither does a process that told no GPU of itself: what
        it served, if anything, is not known to have been computed there.
        """
        if not facts.ready or not facts.gpu_uuids:
            return
        if seen is not None and seen.verdict == "proven" and not seen.simulated:
            for requested, observed in seen.records():
                self._bundle.recorder.device(None, requested, observed)

    def end(self, record: CampaignRecord, arm_id: str) -> None:
        """Record what became of every block of an arm."""
        short = {(one.arm_id, one.class_id): one.message for one in coverage.gaps(record)}
        for one in record.observations:
            if one.failed:
                short.setdefault((one.arm_id, one.class_id), one.error or "a request failed")
        for class_id in record.protocol.classes:
            self.begin(arm_id, class_id)
            test, message = block_test(arm_id, class_id), short.get((arm_id, class_id), "")
            self._phase(test, "call", message, "not-run" if message else "")
            self._phase(test, "teardown")

    def seal(self, record: CampaignRecord, judgement: Judgement, folder: RunFolder) -> None:
        """Attach every file of the run, record the judgement and sign the seal."""
        for path in folder.files():
            text = path.read_text(encoding="utf-8", errors="replace")
            name = path.relative_to(folder.root).as_posix()
            kind = MEDIA_TYPE if name == RUN else _PLAIN
            self._bundle.recorder.attach_text(None, name, text, kind)
        self._bundle.recorder.claims(_claims(record, judgement))
        self._bundle.recorder.attempt(VALIDITY)
        self._phase(VALIDITY, "setup")
        message = "; ".join(f"{code} x {count}" for code, count in judgement.codes.items())
        self._phase(VALIDITY, "call", *_against(judgement, message, self._claims_canonical))
        self._phase(VALIDITY, "teardown")
        self._bundle.seal(judgement.exit_code)

    def _plan(self, preparation: Preparation) -> None:
        arms, classes = preparation.orders.traversal
        blocks = [
            PlannedTest(block_test(arm.arm_id, name), (WHOLE,)) for arm in arms for name in classes
        ]
        validity = (CLEAN, CANONICAL) if self._claims_canonical else (CLEAN,)
        collection = Collection(tests=(*blocks, PlannedTest(VALIDITY, validity)))
        self._bundle.recorder.collected(collection)
        self._bundle.plan(collection)

    def _phase(self, test: str, when: Any, message: str = "", kind: Kind = "") -> None:
        outcome: Any = "failed" if message else "passed"
        reason = message.partition("\n")[0]
        self._bundle.recorder.phase(
            PhaseRecord(test, 1, when, outcome, kind, reason, message, None, 0)
        )


def _against(judgement: Judgement, codes: str, canonical: bool) -> tuple[str, Kind]:
    """Return what stands against the validity, and of which kind it is; nothing is ("", "")."""
    if judgement.execution_status == "INCOMPLETE":
        return f"the campaign is incomplete: {codes}", "not-run"
    if codes:
        return codes, "nonconformance"
    if canonical and judgement.validity != "VALID":
        return "; ".join(judgement.blockers), "nonconformance"
    return "", ""


def _claims(record: CampaignRecord, judgement: Judgement) -> Mapping[str, Fact]:
    """What a reader is shown first; the GPU is the runtime's own word, and so is its version."""
    told = record.provenance
    return {
        "campaign.headline": Fact(judgement.headline, "observed"),
        "campaign.execution_status": Fact(judgement.execution_status, "observed"),
        "campaign.validity": Fact(judgement.validity, "observed"),
        "campaign.synthetic": Fact(record.intent.synthetic, "observed"),
        "campaign.gpu_uuid": Fact(told.gpu_uuid or "unknown", "capability"),
        "campaign.placement": Fact(_placements(record), "observed"),
        "campaign.runtime": Fact(told.runtime_version or "unknown", "capability"),
    }


def _placements(record: CampaignRecord) -> str:
    told = {one.arm_id: one.placement for one in record.arms}
    words = [f"{arm} {seen.verdict if seen else 'not looked at'}" for arm, seen in told.items()]
    return ", ".join(words) or "no server ran"


def _options(preparation: Preparation) -> dict[str, str]:
    orders = preparation.orders
    arms, classes = orders.traversal
    return {
        "session": orders.session_id,
        "arms": " ".join(one.arm_id for one in arms),
        "classes": " ".join(classes),
        "protocol": f"{orders.warmups} + {orders.repetitions}",
        "dev_smoke": str(orders.dev_smoke),
        "allow_missing_provenance": str(orders.allow_missing_provenance),
        "synthetic": str(preparation.synthetic),
    }
