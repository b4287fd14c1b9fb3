"""The honest runs that are attacked, each for what only such a run has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_meshnet.evidence.bundle import BundleWriter
from pytest_meshnet.evidence.documents import DERIVED, Named
from pytest_meshnet.evidence.journal import Collection, Plugin
from pytest_meshnet.evidence.recorder import Recorder
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.ledger.status import PlannedTest
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.making import RUNTIME_TEST

CHALLENGE = "c-1"
STRANGER = Plugin("outcome-rewriter", "1")
ARTIFACT = "ab" * 32
GPU = {"uuid": "GPU-1", "name": "RTX", "driver": "560", "provider": "nvml"}


def good(out: Path, key: SigningKey) -> Path:
    """A run that passes, with reports, in answer to a challenge."""

    def extra(writer: BundleWriter) -> None:
        for name in sorted(DERIVED):
            writer.add_derived(name, b"<derived>")
        writer.recorder.attach(RUNTIME_TEST, "prompt", b"private", "text/plain", store=False)

    return making.make(
        out,
        key,
        extra=extra,
        challenge=CHALLENGE,
        policy_digest="cd" * 32,
        plugins=(Plugin("pytest-timeout", "2"),),
        artifacts=(Named("model", ARTIFACT),),
    )


def ordinary(out: Path, key: SigningKey) -> Path:
    """A run of plain pytest, with a plugin of a stranger and a test left out."""
    return making.make(
        out,
        key,
        certificate=False,
        collection=Collection(making.planned(), (unclaimed(),)),
        extra=lambda writer: writer.recorder.plugins([STRANGER]),
    )


def unclaimed() -> PlannedTest:
    """A test that speaks only for what the run does not claim."""
    other = next(one for one in making.LEDGER.requirements if one.profile != "core")
    return PlannedTest("conformance/test_other.py::test_x", (other.id,))


def optional() -> str:
    """A test of a requirement that is no MUST."""
    found = making.LEDGER.profile(making.PROFILE)
    return making.test_id(next(one.id for one in found if one.level != "MUST"))


def known(test: str) -> Callable[[Path, SigningKey], Path]:
    """Return a maker of runs in which a test fails as it was expected to."""
    listed = f'[[failure]]\ntest = "{test}"\nreason = "known"\nmessage = "expected: 1"\n'
    failing = {test: making.FAILING}
    return lambda out, key: making.make(out, key, expected_failures=listed, calls=failing)


def skipping(out: Path, key: SigningKey) -> Path:
    """A run that left out a test of no MUST."""
    return making.make(out, key, skipped=[optional()])


def ephemeral(out: Path, key: SigningKey) -> Path:
    """A run that was signed by a key made for it."""
    return making.make(out)


def failing(out: Path, key: SigningKey) -> Path:
    """A run in which one test fails."""
    return making.make(out, key, calls={RUNTIME_TEST: making.FAILING}, exit_status=1)


def second(out: Path, key: SigningKey) -> Path:
    """A run after another one by the same key."""
    making.make(out, key)
    return making.make(out, key)


def on_hardware(out: Path, key: SigningKey) -> Path:
    """A run with a hardware test, whose device was seen."""

    def extra(writer: BundleWriter) -> None:
        writer.recorder.device(RUNTIME_TEST, {"uuid": "GPU-1"}, GPU)

    lanes = Collection(making.planned(), hardware={RUNTIME_TEST: "rtx3060"})
    return making.make(out, key, collection=lanes, extra=extra, gpus=(GPU,))


def over_workers(out: Path, key: SigningKey) -> Path:
    """A run whose tests two workers of xdist shared."""
    clock = making.ticking()
    writer = making.begin(out, key, clock)
    workers = [
        Recorder(writer.path, f"gw{n}", writer.run_id, environment={}, clock=clock) for n in (0, 1)
    ]
    for worker in workers:
        worker.collected(Collection(making.planned()))
    writer.plan_from("gw0")
    for number, one in enumerate(making.planned()):
        making.record(workers[number % 2], one.test)
    for worker in workers:
        worker.finish(0)
    writer.seal(0)
    return writer.path


def empty(out: Path, key: SigningKey) -> Path:
    """A run that executed nothing."""
    writer = making.begin(out, key)
    writer.seal(0)
    return writer.path


HONEST: Mapping[str, Callable[[Path, SigningKey], Path]] = {
    "good": good,
    "failing": failing,
    "second": second,
    "hardware": on_hardware,
    "workers": over_workers,
    "empty": empty,
    "cut short": making.cut_short,
    "ordinary": ordinary,
    "known": known(RUNTIME_TEST),
    "known should": known(optional()),
    "skipping": skipping,
    "ephemeral": ephemeral,
}
