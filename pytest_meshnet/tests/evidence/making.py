"""Bundles for tests: an honest run, and the hands of somebody who forges one."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pytest_meshnet.evidence.bundle import About, BundleWriter, Derive, Surroundings
from pytest_meshnet.evidence.documents import Named, document_name
from pytest_meshnet.evidence.journal import GENESIS, Clock, Collection
from pytest_meshnet.evidence.recorder import Recorder
from pytest_meshnet.evidence.signing import dsse
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.signing.trust import Trust, TrustedKey
from pytest_meshnet.evidence.summary import run_document, standard_document
from pytest_meshnet.evidence.verify import Question, Report, verify
from pytest_meshnet.evidence.verify.finding import Result
from pytest_meshnet.evidence.verify.material import read_material
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.ledger.status import PhaseRecord, PlannedTest

LEDGER = Ledger.load()
PROFILE = "core-wire"
SUITE = hashlib.sha256(b"suite").hexdigest()
TARGET = Named("reference", hashlib.sha256(b"descriptor").hexdigest())
ENVIRONMENT = {"HOME": "/home/ada", "LANG": "C", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
RUNTIME_TEST = "conformance/test_decode.py::test_decode_01"
"""A test about the runtime; failing it is not conformant."""


def ticking(start: int = 1_000_000_000, step: int = 1000) -> Clock:
    """Return a clock that moves by `step` nanoseconds with every look."""
    now = start

    def look() -> tuple[int, int]:
        nonlocal now
        now += step
        return now, now + 1_800_000_000 * 10**9

    return look


def test_id(requirement: str) -> str:
    group, _, number = requirement.lower().partition("-")
    return f"conformance/test_{group}.py::test_{group}_{number}"


test_id.__test__ = False  # only its name looks like one


def planned() -> tuple[PlannedTest, ...]:
    """Return one test for every requirement of the profile."""
    return tuple(PlannedTest(test_id(r.id), (r.id,)) for r in LEDGER.profile(PROFILE))


def phases(test: str, attempt: int = 1, **changes: Any) -> Iterator[PhaseRecord]:
    """Yield three passing phases; `changes` go to the call."""
    for when in ("setup", "call", "teardown"):
        passing: dict[str, Any] = {
            "outcome": "passed",
            "kind": "",
            "reason": "",
            "message": "",
            "wasxfail": None,
            "duration_ns": 1000,
        }
        if when == "call":
            passing |= changes
        yield PhaseRecord(test=test, attempt=attempt, when=when, **passing)  # type: ignore[arg-type]


def record(recorder: Recorder, test: str, **changes: Any) -> None:
    """Record one whole attempt."""
    attempt = recorder.attempt(test)
    for phase in phases(test, attempt, **changes):
        recorder.phase(phase)


FAILING = {"outcome": "failed", "kind": "nonconformance", "message": "expected: 1\nactual: 2"}


def begin(
    out: Path, key: SigningKey | None = None, clock: Clock | None = None, **about: Any
) -> BundleWriter:
    """Begin an honest run; nothing is planned yet."""
    said: dict[str, Any] = {
        "target": TARGET,
        "profiles": (PROFILE,),
        "ledger": LEDGER,
        "certificate": True,
    } | about
    ledger_file = said.pop("ledger_file", None)
    return BundleWriter.create(
        out,
        About(**said),
        key or SigningKey.make_ephemeral(),
        ledger_file=ledger_file,
        around=Surroundings(ENVIRONMENT, clock or ticking(), lambda: SUITE),
    )


def make(
    out: Path,
    key: SigningKey | None = None,
    *,
    calls: dict[str, dict[str, Any]] | None = None,
    extra: Callable[[BundleWriter], None] = lambda _: None,
    collection: Collection | None = None,
    skipped: Iterable[str] = (),
    exit_status: int = 0,
    seal: bool = True,
    launch: bool = True,
    derive: Derive | None = None,
    **about: Any,
) -> Path:
    """Make a whole bundle; `calls` changes the call phase of single tests."""
    writer = begin(out, key, **about)
    collection = collection or Collection(planned())
    recorder = writer.recorder
    recorder.collected(collection)
    writer.plan(collection)
    recorder.facts({"launch": Fact(launch, "descriptor")})
    left_out = set(skipped)
    for one in collection.tests:
        if one.test not in left_out:
            record(recorder, one.test, **(calls or {}).get(one.test, {}))
    recorder.attach(None, "frames", b"\x00wire", "application/octet-stream")
    extra(writer)
    if seal:
        writer.seal(exit_status, derive)
    else:
        recorder.close()
    return writer.path


def cut_short(tmp_path: Path, key: SigningKey) -> Path:
    """A run that was cut short inside its third test."""
    writer = begin(tmp_path, key)
    writer.recorder.collected(Collection(planned()))
    writer.plan(Collection(planned()))
    first, second, third = (one.test for one in planned()[:3])
    record(writer.recorder, first)
    record(writer.recorder, second)
    writer.recorder.attempt(third)
    writer.recorder.close()
    return writer.path


def trusting(key: SigningKey, **entry: Any) -> Trust:
    keyid = key.public.keyid
    return Trust({keyid: TrustedKey(keyid, "tester", **entry)})


def trusting_report(path: Path, key: SigningKey, **question: Any) -> Report:
    """Verify a bundle as somebody who trusts the key."""
    return verify(path, Question(trusting(key), **question))


def outcome(report: Report) -> tuple[Result, set[str]]:
    return report.result, set(report.codes)


class Forger:
    """Edits a bundle with a key: journals, signed documents, the seal."""

    def __init__(self, path: Path, key: SigningKey) -> None:
        self.path = path
        self.key = key

    def journal(self, change: Callable[[list[dict[str, Any]]], Any], name: str = "main") -> None:
        """Change the records of a journal, renumber them and chain them again."""
        file = self.path / "journal" / f"{name}.jsonl"
        records = [json.loads(line) for line in file.read_bytes().splitlines()]
        records = change(records) or records
        head, lines = GENESIS, []
        for number, one in enumerate(records):
            line = json.dumps(one | {"seq": number, "prev": head}, separators=(",", ":")).encode()
            head = hashlib.sha256(line).hexdigest()
            lines.append(line)
        file.write_bytes(b"".join(line + b"\n" for line in lines))

    def document(self, kind: str, change: Callable[[dict[str, Any]], Any]) -> None:
        """Change the predicate of a signed document and sign it again."""
        self.payload(kind, lambda statement: change(statement["predicate"]))

    def payload(self, kind: str, change: Callable[[dict[str, Any]], Any]) -> None:
        """Change the whole statement of a signed document and sign it again."""
        file = self.path / document_name(kind)
        statement = json.loads(dsse.Envelope.from_bytes(file.read_bytes()).payload)
        change(statement)
        self.sign(kind, statement)

    def sign(self, kind: str, statement: dict[str, Any]) -> None:
        self.sign_bytes(kind, json.dumps(statement).encode())

    def sign_bytes(self, kind: str, payload: bytes) -> None:
        signature = self.key.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
        envelope = dsse.Envelope(dsse.PAYLOAD_TYPE, payload, self.key.public.keyid, signature)
        (self.path / document_name(kind)).write_bytes(envelope.to_bytes())

    def take_over(self) -> None:
        """Name the forger's own key in the start."""
        public = self.key.public
        signer = {
            "public_key": b64encode(public.spki).decode(),
            "keyid": public.keyid,
            "raw_sha256": public.raw_sha256,
        }
        self.document("start", lambda start: start["signer"].update(signer))

    def rejudge(self) -> None:
        """Write both statements as the journals now give them, and sign them."""
        claimed = predicate(self.path, "start")["ledger"]["digest"]
        material = read_material(self.path, (claimed,))
        start, summary, ledger = material.start, material.summary, material.ledger
        assert start is not None
        assert summary is not None
        assert ledger is not None
        self.sign("statement", standard_document(start, summary, ledger))
        self.sign("run", run_document(start, material.collection, material.recorded, summary))
        counts = {str(status): count for status, count in summary.verdict.counts.items()}
        verdict = summary.verdict.word
        self.document("seal", lambda seal: seal.update(counts=counts, verdict=verdict))

    def reseal(self, change: Callable[[dict[str, Any]], Any] = lambda _: None) -> None:
        """Make plan and seal fit the files again, then change the seal, and sign both."""
        start = hashlib.sha256((self.path / document_name("start")).read_bytes()).hexdigest()
        self.document("plan", lambda plan: plan.update(start_sha256=start))

        def fit(seal: dict[str, Any]) -> None:
            for file in sorted(self.path.rglob("*")):
                name = file.relative_to(self.path).as_posix()
                if file.is_file() and name != document_name("seal"):
                    seal["files"][name] = hashlib.sha256(file.read_bytes()).hexdigest()
            for file in (self.path / "journal").iterdir():
                lines = file.read_bytes().split(b"\n")
                seal["journals"][file.stem] = {
                    "records": len(lines) - 1,
                    "head": hashlib.sha256(lines[-2]).hexdigest() if lines[1:] else GENESIS,
                    "torn": lines[-1] != b"",
                }
            change(seal)

        self.document("seal", fit)


def statement(path: Path, kind: str) -> dict[str, Any]:
    envelope = dsse.Envelope.from_bytes((path / document_name(kind)).read_bytes())
    found: dict[str, Any] = json.loads(envelope.payload)
    return found


def predicate(path: Path, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = statement(path, kind)["predicate"]
    return found
