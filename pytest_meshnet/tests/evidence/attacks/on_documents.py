"""Attacks on signed documents, signatures and what binds them to one run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_meshnet.evidence.documents import document_name
from pytest_meshnet.evidence.signing import dsse
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.tests.evidence.attacks.base import (
    Act,
    Attack,
    body,
    insider,
    outside,
    sealer,
)
from pytest_meshnet.tests.evidence.making import Forger


def other_key(kind: str) -> Act:
    """Sign one document again with another key, under the name of the right one."""

    def act(path: Path, key: SigningKey) -> None:
        other = SigningKey.make_ephemeral()
        payload = dsse.Envelope.from_bytes((path / document_name(kind)).read_bytes()).payload
        signature = other.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
        forged = dsse.Envelope(dsse.PAYLOAD_TYPE, payload, key.public.keyid, signature)
        (path / document_name(kind)).write_bytes(forged.to_bytes())

    return act


def resign_all(path: Path, key: SigningKey) -> None:
    forger = Forger(path, SigningKey.make_ephemeral())
    forger.take_over()
    for kind in ("statement", "run"):
        forger.document(kind, lambda _: None)
    forger.reseal()


def resign_some(path: Path, key: SigningKey) -> None:
    Forger(path, SigningKey.make_ephemeral()).document("statement", lambda _: None)
    Forger(path, key).reseal()


def retype(path: Path, key: SigningKey) -> None:
    envelope = dsse.Envelope.from_bytes((path / "run.dsse.json").read_bytes())
    signature = key.sign(dsse.pae("text/json", envelope.payload))
    changed = dsse.Envelope("text/json", envelope.payload, envelope.keyid, signature)
    (path / "run.dsse.json").write_bytes(changed.to_bytes())
    Forger(path, key).reseal()


def duplicate_key(path: Path, key: SigningKey) -> None:
    payload = dsse.Envelope.from_bytes((path / "run.dsse.json").read_bytes()).payload
    doubled = payload.replace(b'"certificate":true', b'"certificate":true,"certificate":true')
    assert doubled != payload
    Forger(path, key).sign_bytes("run", doubled)
    Forger(path, key).reseal()


def swap_statements(path: Path, key: SigningKey) -> None:
    one, other = path / "run.dsse.json", path / "statement.dsse.json"
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)
    Forger(path, key).reseal()


def unbind_plan(path: Path, key: SigningKey) -> None:
    forger = Forger(path, key)
    forger.document("plan", lambda plan: plan.update(start_sha256="ab" * 32))
    digest = hashlib.sha256((path / "plan.dsse.json").read_bytes()).hexdigest()
    forger.document("seal", lambda seal: seal["files"].update({"plan.dsse.json": digest}))


def unknown_requirement(forger: Forger) -> None:
    """Let a test speak for a requirement that no ledger has."""

    changed: list[Any] = []

    def change(plan: dict[str, Any]) -> None:
        plan["collection"]["tests"][0]["requirements"] = ["X-01"]
        changed.extend(plan["collection"]["tests"])

    forger.document("plan", change)
    forger.journal(body("collected", tests=changed))


def ledger_of(digest: str) -> Callable[[dict[str, Any]], None]:
    return lambda start: start["ledger"].update(digest=digest)


def later_run(forger: Forger) -> None:
    """Say that this was the second run, after something that is no seal."""
    forger.document("start", lambda start: start.update(counter=2, previous_seal="none"))
    forger.document("seal", lambda seal: seal.update(counter=2))


def renumber(forger: Forger) -> None:
    """Say that this was the run before the first."""
    for kind in ("start", "seal"):
        forger.document(kind, lambda document: document.update(counter=0))


ON_DOCUMENTS = (
    # signed documents
    *(
        Attack(
            f"drop {kind}",
            outside(lambda p, kind=kind: (p / document_name(kind)).unlink()),
            2,
            "document-missing",
        )
        for kind in ("start", "plan", "statement", "run")
    ),
    Attack("drop the seal", outside(lambda p: (p / "seal.dsse.json").unlink()), 3, "unsealed"),
    Attack("a duplicate JSON key", duplicate_key, 2, "json-duplicate-key", "documents"),
    Attack(
        "an unknown critical field",
        insider(lambda f: f.document("plan", lambda plan: plan.update(critical=1))),
        2,
        "field-unknown",
    ),
    Attack(
        "a missing field",
        insider(lambda f: f.document("start", lambda start: start.pop("gpus"))),
        2,
        "field-missing",
    ),
    Attack(
        "a time that is none",
        insider(lambda f: f.document("start", lambda start: start.update(t_wall="soon"))),
        2,
        "journal-record",
    ),
    Attack(
        "a field beside the predicate",
        insider(lambda f: f.payload("run", lambda statement: statement.update(x=1))),
        2,
        "statement-form",
        "documents",
    ),
    Attack(
        "two subjects",
        insider(lambda f: f.payload("run", lambda s: s["subject"].append(s["subject"][0]))),
        2,
        "statement-form",
        "documents",
    ),
    Attack("swap both statements", swap_statements, 2, "statement-type", "documents"),
    Attack(
        "an unknown format",
        insider(lambda f: f.document("start", lambda start: start.update(format=2))),
        2,
        "format-unknown",
        "documents",
    ),
    # signatures
    Attack("sign everything with another key", resign_all, 4, "signer-unknown", "signer"),
    Attack("sign one document with another key", resign_some, 2, "signer-differs", "signatures"),
    Attack("forge one signature", other_key("seal"), 2, "signature-bad", "signatures"),
    Attack("another payload type", retype, 2, "payload-type", "signatures"),
    Attack(
        "another name for the key",
        insider(lambda f: f.document("start", lambda s: s["signer"].update(raw_sha256="ab" * 32))),
        2,
        "signer-malformed",
        "signatures",
    ),
    Attack(
        "no key at all",
        insider(lambda f: f.document("start", lambda s: s["signer"].update(public_key="AAAA"))),
        2,
        "signer-malformed",
        "signatures",
    ),
    # one run
    Attack(
        "a plan of another run",
        insider(lambda f: f.document("plan", lambda plan: plan.update(run_id="other"))),
        2,
        "run-differs",
        "binding",
    ),
    Attack(
        "a journal of another run",
        insider(lambda f: f.journal(body("open", run_id="other"))),
        2,
        "run-differs",
        "binding",
    ),
    Attack(
        "a journal of another process",
        insider(lambda f: f.journal(body("open", process="gw7"))),
        2,
        "journal-renamed",
        "binding",
    ),
    Attack(
        "a statement about another target",
        insider(lambda f: f.payload("run", lambda s: s["subject"][0].update(name="other"))),
        2,
        "target-differs",
        "binding",
    ),
    Attack(
        "a plan signed after another start",
        unbind_plan,
        2,
        "plan-unbound",
        "binding",
    ),
    Attack(
        "another number in the seal",
        sealer(lambda seal: seal.update(counter=2)),
        2,
        "counter-differs",
        "binding",
    ),
    # ledger
    Attack(
        "a ledger of their own",
        insider(lambda f: f.document("start", ledger_of("ab" * 32))),
        3,
        "ledger-unknown",
    ),
    Attack(
        "an unknown profile",
        insider(lambda f: f.document("start", lambda s: s.update(profiles=["easy"]))),
        2,
        "start-unknown-profile",
        "ledger",
    ),
    Attack(
        "an unknown requirement",
        insider(unknown_requirement),
        2,
        "plan-unknown-requirement",
        "ledger",
    ),
    Attack(
        "a malformed list of expected failures",
        insider(lambda f: f.document("start", lambda s: s.update(expected_failures="["))),
        2,
        "start-expected-failures",
        "ledger",
    ),
    # history
    Attack(
        "a later run after a seal that is none",
        insider(later_run),
        2,
        "counter-malformed",
        "history",
    ),
    Attack(
        "a first run after a seal",
        insider(lambda f: f.document("start", lambda s: s.update(previous_seal="ab" * 32))),
        2,
        "counter-malformed",
        "history",
    ),
    Attack(
        "a run before the first",
        insider(renumber),
        2,
        "counter-malformed",
        "history",
    ),
)
