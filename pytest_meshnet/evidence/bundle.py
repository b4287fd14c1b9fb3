"""Writing a bundle: signed before collection, after collection, and at the end."""

from __future__ import annotations

import fcntl
import hashlib
import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_meshnet import layout
from pytest_meshnet.evidence import documents, host, outputs
from pytest_meshnet.evidence.documents import Named, Plan, Seal, Signer, Start, Versioned
from pytest_meshnet.evidence.journal import Clock, Collection, Plugin, Replay, system_clock
from pytest_meshnet.evidence.judged import Judged
from pytest_meshnet.evidence.recorded import Recorded, fold
from pytest_meshnet.evidence.recorder import (
    MAIN,
    Recorder,
    replace_with,
    store_artifact,
    without_secrets,
)
from pytest_meshnet.evidence.signing import dsse
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.strict import Scalar, StrictError
from pytest_meshnet.evidence.summary import (
    Summary,
    run_document,
    standard_document,
    summarize,
)
from pytest_meshnet.ledger.requirements import Ledger

Derive = Callable[[Judged], Mapping[str, bytes]]
"""Makes derived files of a judged run, by name."""


class BundleError(RuntimeError):
    """The bundle cannot be made or sealed; what was recorded so far stays as it is."""


@dataclass(frozen=True, slots=True)
class About:
    """What the start of a run says; the rest is found out here.

    `target.digest` is the SHA-256 of the descriptor's bytes; `expected_failures` the TOML text of
    the list, verbatim, so that a verifier can judge with it; `gpu_inventory` how `gpus` came about.
    """

    target: Named
    profiles: tuple[str, ...]
    ledger: Ledger
    certificate: bool
    plugins: tuple[Plugin, ...] = ()
    challenge: str = ""
    policy_digest: str = ""
    expected_failures: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    gpu_inventory: str = "not collected"
    gpus: tuple[Mapping[str, Scalar], ...] = ()
    artifacts: tuple[Named, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run takes from the machine that it is on; tests bring their own."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    clock: Clock = system_clock
    suite_digest: Callable[[], str] = host.suite_digest


class BundleWriter:
    """The bundle of one run, held by the process that controls it."""

    def __init__(
        self, path: Path, start: Start, key: SigningKey, ledger: Ledger, around: Surroundings
    ) -> None:
        """Sign the start and open the main journal; `create` makes the folder first."""
        self.path = path
        self.start = start
        self._key = key
        self._ledger = ledger
        self._around = around
        self._plan: Collection | None = None
        self._start_sha256 = self._sign("start", start)
        self.recorder = Recorder(
            path, MAIN, start.run_id, environment=around.environment, clock=around.clock
        )

    @classmethod
    def create(
        cls,
        out: Path,
        about: About,
        key: SigningKey,
        *,
        ledger_file: Path | None = None,
        around: Surroundings | None = None,
    ) -> BundleWriter:
        """Make `OUT/<run_id>/` with a signed start and an open main journal.

        Two runs into one output folder get a folder and a counter each. `ledger_file` is where
        `about.ledger` came from; a copy goes into the bundle. Raises BundleError.
        """
        around = around or Surroundings()
        ledger_file = ledger_file or layout.folder("conformance") / "requirements.toml"
        try:
            ledger_bytes = ledger_file.read_bytes()
            if hashlib.sha256(ledger_bytes).hexdigest() != about.ledger.digest:
                raise BundleError(f"{ledger_file} changed since it was loaded: run again")
            out.mkdir(parents=True, exist_ok=True)
            with outputs.locked(out):
                now = around.clock()
                path = outputs.make_folder(out, now[1])
                store_artifact(path, about.ledger.digest, ledger_bytes)
                start = _start(about, key, path, around, now)
                return cls(path, start, key, about.ledger, around)
        except OSError as error:
            raise BundleError(f"no bundle in {out}: {error}; choose a writable --out") from error

    @property
    def run_id(self) -> str:
        """The name of the run and of its folder."""
        return self.start.run_id

    def ticket(self) -> dict[str, str]:
        """Return what an xdist worker needs to join: plain text for `workerinput`."""
        return {"root": str(self.path.absolute()), "run_id": self.run_id}

    @property
    def planned(self) -> bool:
        """Whether the plan is signed."""
        return self._plan is not None

    def plan(self, collection: Collection) -> None:
        """Sign what was collected, with the main journal on the disk. Only once."""
        if self._plan is not None:
            raise BundleError("the plan is signed already: a run has one plan")
        self.recorder.sync()
        collection = without_secrets(collection, host.Redactor(self._around.environment))
        mono, wall = self._around.clock()
        plan = Plan(self.run_id, self._start_sha256, collection, str(mono), str(wall))
        self._sign("plan", plan)
        self._plan = collection

    def plan_from(self, process: str) -> None:
        """Sign as plan what an xdist worker recorded as collected. Raises BundleError."""
        collections = self._recorded().collections
        if process not in collections:
            raise BundleError(f"{process} did not record what it collected")
        self.plan(collections[process])

    def summary(self) -> Summary:
        """Judge what the journals say up to now. Raises BundleError when they are broken."""
        return self._summarize(self._recorded())

    def recorded(self) -> Recorded:
        """Return what the journals say up to now. Raises BundleError when they are broken."""
        return self._recorded()

    def add_derived(self, name: str, data: bytes) -> None:
        """Add a report, one of `documents.DERIVED`; the seal lists it, no verifier reads it."""
        if name not in documents.DERIVED:
            raise BundleError(f"{name} is no report: expected {sorted(documents.DERIVED)}")
        self._write(name, data)

    def seal(self, exit_status: int, derive: Derive | None = None) -> Summary:
        """Finish the main journal, judge the run from the disk, sign both statements and the seal.

        `derive` makes reports of the judged run; the seal lists them too. Raises BundleError, and
        leaves the run unsealed, when a journal is broken or another process still writes one.
        """
        try:
            return self._judge_and_sign(exit_status, derive)
        except OSError as error:
            raise BundleError(f"the run stays unsealed: {error}") from error

    def _judge_and_sign(self, exit_status: int, derive: Derive | None) -> Summary:
        if self._plan is None:
            self.plan(Collection())
        self.recorder.finish(exit_status)
        with ExitStack() as held:
            self._hold_journals(held)
            recorded = self._recorded()
            summary = self._summarize(recorded)
            plan = self._plan or Collection()
            standard = standard_document(self.start, summary, self._ledger)
            self._sign_statement("statement", standard)
            self._sign_statement("run", run_document(self.start, plan, recorded, summary))
            run = Judged(self.path, self.start, plan, recorded, summary, self._ledger)
            for name, data in (derive(run) if derive else {}).items():
                self.add_derived(name, data)
            self._sign("seal", self._seal(exit_status, recorded, summary))
        return summary

    def _seal(self, exit_status: int, recorded: Recorded, summary: Summary) -> Seal:
        files = dict(self._digests())
        mono, wall = self._around.clock()
        journals = {
            name: documents.SealedJournal(one.records, one.head, one.torn)
            for name, one in recorded.journals.items()
        }
        return Seal(
            run_id=self.run_id,
            counter=self.start.counter,
            files=files,
            journals=journals,
            counts={str(status): count for status, count in summary.verdict.counts.items()},
            verdict=summary.verdict.word,
            exit_status=exit_status,
            suite_digest=self._around.suite_digest(),
            t_mono=str(mono),
            t_wall=str(wall),
        )

    def _summarize(self, recorded: Recorded) -> Summary:
        try:
            return summarize(self.start, self._plan or Collection(), recorded, self._ledger)
        except StrictError as error:
            raise BundleError(f"the run cannot be judged: {error}") from error

    def _recorded(self) -> Recorded:
        with ExitStack() as opened:
            journals = [
                (path.stem, Replay(opened.enter_context(path.open("rb"))))
                for path in self._journals()
            ]
            recorded = fold(journals)
        for name, facts in recorded.journals.items():
            if facts.fault is not None:
                raise BundleError(f"the journal {name} is broken: {facts.fault}")
        return recorded

    def _journals(self) -> list[Path]:
        return sorted((self.path / "journal").glob("*.jsonl"))

    def _hold_journals(self, held: ExitStack) -> None:
        """Take the lock of every journal, so that none grows under the seal, and sync it."""
        for path in self._journals():
            stream = held.enter_context(path.open("rb"))
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BundleError(
                    f"another process still writes {path.name}: the run stays unsealed"
                ) from error
            os.fsync(stream.fileno())

    def _digests(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self.path.rglob("*")):
            if path.name.endswith(documents.PARTIAL):
                path.unlink()  # left by a worker that died while it stored an attachment
            elif path.is_file():
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                    os.fsync(stream.fileno())
                yield path.relative_to(self.path).as_posix(), digest

    def _sign(self, kind: str, document: Any) -> str:
        return self._sign_statement(kind, documents.wrap(kind, self.start.target, document))

    def _sign_statement(self, kind: str, statement: Mapping[str, Any]) -> str:
        data = dsse.sign(statement, self._key).to_bytes()
        self._write(documents.document_name(kind), data)
        return hashlib.sha256(data).hexdigest()

    def _write(self, name: str, data: bytes) -> None:
        path = self.path / name
        if path.exists():
            raise BundleError(f"{path} exists and is never overwritten")
        replace_with(path, data, f".{name}{documents.PARTIAL}")
        outputs.sync_folder(self.path)


def _start(
    about: About, key: SigningKey, path: Path, around: Surroundings, now: tuple[int, int]
) -> Start:
    redact = host.Redactor(around.environment)
    counter, previous = (1, "") if key.ephemeral else outputs.history(path, key)
    public = key.public
    return Start(
        format=documents.FORMAT,
        run_id=path.name,
        challenge=about.challenge,
        counter=counter,
        previous_seal=previous,
        signer=Signer(
            b64encode(public.spki).decode("ascii"), public.keyid, public.raw_sha256, key.ephemeral
        ),
        suite=Versioned(host.suite_version(), around.suite_digest()),
        ledger=Versioned(about.ledger.version, about.ledger.digest),
        target=about.target,
        profiles=tuple(sorted(about.profiles)),
        policy_digest=about.policy_digest,
        expected_failures=about.expected_failures,
        plugins=tuple(Plugin(redact(one.name), one.version) for one in about.plugins),
        certificate=about.certificate,
        options={name: redact(value) for name, value in about.options.items()},
        host=host.host_facts(),
        environment=redact.environment(around.environment),
        gpu_inventory=about.gpu_inventory,
        gpus=about.gpus,
        artifacts=about.artifacts,
        boot_id=host.boot_id(),
        t_mono=str(now[0]),
        t_wall=str(now[1]),
    )
