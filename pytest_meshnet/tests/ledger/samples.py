"""A small ledger and short ways to write phases, for the tests of this folder."""

from pytest_meshnet.ledger.requirements import Ledger, Requirement
from pytest_meshnet.ledger.status import PhaseRecord

NEEDS = {"sessions>=2": "two sessions", "launch": "a start command"}


def requirement(id, level="MUST", profile="core", subject="runtime", needs=()):
    return Requirement(id, level, profile, subject, f"title {id}", f"statement {id}", needs)


LEDGER = Ledger(
    "9.0.0",
    "00" * 32,
    (
        requirement("CODEC-01", subject="suite"),
        requirement("DECODE-01"),
        requirement("DECODE-02"),
        requirement("DECODE-03", level="SHOULD"),
        requirement("IDEM-01"),
        requirement("KV-01", profile="kv", needs=("sessions>=2",)),
        requirement("KV-02", profile="kv"),
    ),
    NEEDS,
)


def phase(when, outcome="passed", kind="", *, attempt=1, reason="", message="", wasxfail=None):
    return PhaseRecord("conformance/test_a.py::test", attempt, when, outcome, kind, reason,
                       message, wasxfail, 1_000)  # fmt: skip


def run(call_outcome="passed", kind="", *, attempt=1, reason="", message=""):
    """The three phases of one attempt whose call ended as told."""
    return [
        phase("setup", attempt=attempt),
        phase("call", call_outcome, kind, attempt=attempt, reason=reason, message=message),
        phase("teardown", attempt=attempt),
    ]
