"""What a process writes while tests run: typed records and attachments, redacted on the way in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pytest_meshnet.evidence import strict
from pytest_meshnet.evidence.documents import FILE_NAME, PARTIAL
from pytest_meshnet.evidence.host import Redactor
from pytest_meshnet.evidence.journal import (
    Clock,
    Collection,
    CollectionError,
    Journal,
    Plugin,
    system_clock,
)
from pytest_meshnet.evidence.strict import Scalar
from pytest_meshnet.ledger.applicability import Fact, check_facts
from pytest_meshnet.ledger.status import PhaseRecord

MAIN = "main"


class Recorder:
    """The journal of one process of a run, and the attachments that it stores.

    Texts pass through a `Redactor`; ids of tests, which the plan must match, do not. Every method
    that writes raises JournalError when the record did not reach the kernel.
    """

    def __init__(
        self,
        root: Path,
        process: str,
        run_id: str,
        *,
        environment: Mapping[str, str] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """Open `journal/PROCESS.jsonl` in the bundle folder; it must not exist yet.

        Raises ValueError for a process that is neither `main` nor `gw` and a number.
        """
        if not FILE_NAME.fullmatch(f"journal/{process}.jsonl"):
            raise ValueError(f"the process is called {process!r}: expected main, gw0, gw1, ...")
        self._root = root
        self._redact = Redactor(os.environ if environment is None else environment)
        self._attempts: dict[str, int] = {}
        self._journal = Journal(root / "journal" / f"{process}.jsonl", clock)
        body = {"process": process, "run_id": run_id, "pid": os.getpid()}
        self._journal.append("open", body)

    @classmethod
    def join(cls, ticket: Mapping[str, str], process: str) -> Recorder:
        """Open the journal of an xdist worker from the ticket of the controller's bundle."""
        return cls(Path(ticket["root"]), process, ticket["run_id"])

    def facts(self, facts: Mapping[str, Fact]) -> None:
        """Record facts that needs are judged by. Raises FactError for an unknown one.

        The first record of a fact counts; another value later makes the run an engine error.
        """
        check_facts(facts)
        self._journal.append("facts", {"facts": self._encoded(facts)})

    def claims(self, claims: Mapping[str, Fact]) -> None:
        """Record what is shown beside the facts (backend, version, device); any name goes."""
        self._journal.append("claims", {"claims": self._encoded(claims)})

    def collected(self, collection: Collection) -> None:
        """Record what this process collected, and sync."""
        self._journal.append("collected", strict.encode(without_secrets(collection, self._redact)))
        self._journal.sync()

    def plugins(self, plugins: Iterable[Plugin]) -> None:
        """Record every pytest plugin of this process, once all its conftests are loaded."""
        told = [{"name": self._redact(one.name), "version": one.version} for one in plugins]
        self._journal.append("plugins", {"plugins": told})

    def attempt(self, test: str) -> int:
        """Record that an attempt of a test begins; return its number in this process, from 1."""
        number = self._attempts.get(test, 0) + 1
        self._attempts[test] = number
        self._journal.append("attempt", {"test": test, "attempt": number})
        return number

    def phase(self, record: PhaseRecord) -> None:
        """Record one phase as the process that ran it saw it."""
        xfail = record.wasxfail
        body = {
            "test": record.test,
            "attempt": record.attempt,
            "when": record.when,
            "outcome": record.outcome,
            "kind": record.kind,
            "reason": self._redact(record.reason),
            "message": self._redact(record.message),
            "wasxfail": None if xfail is None else self._redact(xfail),
            "duration_ns": str(record.duration_ns),
        }
        self._journal.append("phase", body)

    def attach(
        self, test: str | None, name: str, data: bytes, media_type: str, *, store: bool = True
    ) -> str:
        """Attach bytes to a test, or to the run, and return their SHA-256 hex.

        With `store=False` only digest and size are kept: for prompts that the target's descriptor
        does not permit to publish. Bytes are stored as they are; see `attach_text`.
        """
        digest = hashlib.sha256(data).hexdigest()
        if store:
            store_artifact(self._root, digest, data)
        body = {
            "test": test,
            "name": self._redact(name),
            "sha256": digest,
            "size": len(data),
            "media_type": media_type,
            "stored": store,
        }
        self._journal.append("attachment", body)
        return digest

    def attach_text(
        self,
        test: str | None,
        name: str,
        text: str,
        media_type: str = "text/plain; charset=utf-8",
    ) -> str:
        """Attach a whole redacted text, such as a worker's log, and return its SHA-256 hex."""
        data = self._redact.clean(text).encode("utf-8", "backslashreplace")
        return self.attach(test, name, data, media_type)

    def device(
        self, test: str | None, requested: Mapping[str, Scalar], observed: Mapping[str, Scalar]
    ) -> None:
        """Record which device a hardware test asked for and which one it measured in process.

        `observed["uuid"]` joins it to the inventory of the start. Unknown values are None.
        """
        body = {"test": test, "requested": dict(requested), "observed": dict(observed)}
        self._journal.append("device", body)

    def worker_lost(self, process: str, test: str | None, message: str) -> None:
        """Record that an xdist worker crashed, and in which test if that is known."""
        body = {"process": process, "test": test, "message": self._redact(message)}
        self._journal.append("worker-lost", body)

    def target_lost(self, reason: str) -> None:
        """Record that the target of this process went away."""
        self._journal.append("target-lost", {"reason": self._redact(reason)})

    def refusal(self, message: str) -> None:
        """Record that the run cannot go on: the target cannot be reached or started."""
        self._journal.append("refusal", {"message": self._redact(message)})

    def warning(self, test: str | None, message: str) -> None:
        """Record something a reader should know that changes no verdict."""
        self._journal.append("warning", {"test": test, "message": self._redact(message)})

    def finish(self, exit_status: int) -> None:
        """Write the last record of this process and close its journal."""
        self._journal.append("finish", {"exit_status": exit_status})
        self._journal.close()

    def sync(self) -> None:
        """Return when every record so far is on the disk."""
        self._journal.sync()

    def close(self) -> None:
        """Close the journal without a last record; a second call does nothing."""
        self._journal.close()

    def _encoded(self, facts: Mapping[str, Fact]) -> dict[str, dict[str, Scalar]]:
        return {
            name: {
                "value": self._redact(fact.value) if isinstance(fact.value, str) else fact.value,
                "source": fact.source,
            }
            for name, fact in facts.items()
        }


def without_secrets(collection: Collection, redact: Redactor) -> Collection:
    """Return the collection with its error messages redacted."""
    errors = (CollectionError(one.id, redact(one.message)) for one in collection.errors)
    return replace(collection, errors=tuple(errors))


def store_artifact(root: Path, digest: str, data: bytes) -> None:
    """Store bytes under their SHA-256 hex; the same content twice is one file."""
    path = root / "artifacts" / "sha256" / digest
    if not path.exists():
        replace_with(path, data, f".{digest}.{os.getpid()}{PARTIAL}")


def replace_with(path: Path, data: bytes, partial: str) -> None:
    """Write a whole file under a partial name, sync it, and rename it into place.

    A reader sees the file whole or not at all, whenever the writer dies.
    """
    beside = path.with_name(partial)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
        os.rename(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
