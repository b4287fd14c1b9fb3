"""Attacks on the form and the order of journals, by somebody who can seal them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_meshnet.evidence.journal import GENESIS
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.tests.evidence.attacks.base import (
    Act,
    Attack,
    body,
    insert,
    insider,
    judged_insider,
)
from pytest_meshnet.tests.evidence.making import RUNTIME_TEST, Forger, planned

Records = list[dict[str, Any]]


def lines(change: Callable[[list[bytes]], Any], name: str = "main") -> Act:
    """Change the lines of a journal as they are, and seal it again."""

    def act(path: Path, key: SigningKey) -> None:
        file = path / "journal" / f"{name}.jsonl"
        found = file.read_bytes().splitlines()
        found = change(found) or found
        file.write_bytes(b"".join(line + b"\n" for line in found))
        Forger(path, key).reseal()

    return act


def chained(change: Callable[[Records], Any]) -> Act:
    """Change records and chain them again, with the numbers that they then have."""

    def act(found: list[bytes]) -> list[bytes]:
        records = [json.loads(line) for line in found]
        records = change(records) or records
        head, made = GENESIS, []
        for one in records:
            line = json.dumps(one | {"prev": head}, separators=(",", ":")).encode()
            head = hashlib.sha256(line).hexdigest()
            made.append(line)
        return made

    return lines(act)


def record(number: int = -1, **change: Any) -> Act:
    """Change the fields of one record itself."""
    return chained(lambda records: records[number].update(change))


def forged(change: Callable[[Records], Any], name: str = "main") -> Act:
    """Change records, and write both statements as they then follow."""
    return judged_insider(lambda forger: forger.journal(change, name))


def duplicate(found: list[bytes]) -> None:
    found[-1] = found[-1].replace(b'"body":', b'"body":{},"body":')


def after_the_end(records: Records) -> Records:
    extra = {"type": "warning", "body": {"test": None, "message": "late"}}
    return [*records, records[-1] | extra]


def plan_twice(which: str) -> Act:
    """Name a test twice: in the plan, or in the plan and among the deselected."""

    def change(forger: Forger) -> None:
        changed: dict[str, Any] = {}

        def double(plan: dict[str, Any]) -> None:
            found = plan["collection"]
            found[which] = [*found[which], found["tests"][0]]
            changed.update(found)

        forger.document("plan", double)
        forger.journal(body("collected", **changed))

    return judged_insider(change)


def uncollected(forger: Forger) -> None:
    """A module could not be collected, and what it holds is in no plan."""
    broken = [{"id": "conformance/test_gone.py", "message": "SyntaxError"}]
    forger.document("plan", lambda plan: plan["collection"].update(errors=broken))
    forger.journal(body("collected", errors=broken))


def phase(**change: Any) -> Act:
    """Change the phase `call` of the test about the runtime."""

    def act(records: Records) -> None:
        for one in records:
            told = one["body"]
            if told.get("test") == RUNTIME_TEST and told.get("when") == "call":
                told.update(change)

    return forged(act)


def second_attempt(records: Records) -> Records:
    """Run the failed test again, and let it pass."""
    again: Records = []
    for one in records:
        told = dict(one["body"])
        if one["type"] in ("attempt", "phase") and told["test"] == RUNTIME_TEST:
            passed = {"outcome": "passed", "kind": "", "reason": "", "message": ""}
            told |= {"attempt": 2} | (passed if one["type"] == "phase" else {})
            again.append(records[-1] | {"type": one["type"], "body": told})
    return [*records[:-1], *again, records[-1]]


def within_another(records: Records) -> Records:
    """Begin the next attempt of a test before the first one ended."""
    place = next(n for n, one in enumerate(records) if one["body"].get("when") == "teardown")
    told = records[place]["body"]
    begun = {"type": "attempt", "body": {"test": told["test"], "attempt": 2}}
    again = [
        {"type": "phase", "body": told | {"attempt": 2, "when": when}}
        for when in ("setup", "call", "teardown")
    ]
    rest = [records[place] | one for one in (begun, *again)]
    return [*records[:place], *rest, *records[place + 1 :]]


def in_both(path: Path, key: SigningKey) -> None:
    """Let a test of one worker run in the other one too."""
    forger = Forger(path, key)
    test = planned()[0].test
    taken: Records = []

    def take(records: Records) -> None:
        taken.extend(one for one in records if one["body"].get("test") == test)

    forger.journal(take, "gw0")

    def put(records: Records) -> Records:
        late = [one | {"t_mono": records[-1]["t_mono"]} for one in taken]
        return [*records[:-1], *late, records[-1]]

    forger.journal(put, "gw1")
    forger.reseal()
    forger.rejudge()
    forger.reseal()


def facts(value: Any, name: str = "launch") -> dict[str, Any]:
    return {"facts": {name: {"value": value, "source": "observed"}}}


TWO_WAYS = forged(insert("facts", facts(False)))

ON_JOURNALS = (
    # lines
    Attack("a duplicate key in a journal", lines(duplicate), 2, "json-duplicate-key"),
    Attack("a line longer than any record", lambda path, key: None, 2, "journal-line",
           limits={"journal.LINE_LIMIT": 200}),
    Attack("a line with more", record(more=1), 2, "journal-record"),
    Attack("a line that is a list", lines(lambda found: [*found[:-1], b"[]"]), 2, "journal-record"),
    Attack("a wrong number", record(seq=7), 2, "journal-seq"),
    Attack("a number that is a yes", record(0, seq=False), 2, "journal-seq"),
    Attack("a record whose type is no text", record(type=7), 2, "journal-type"),
    Attack("a time that is no number", record(t_mono="now"), 2, "journal-record"),
    Attack("a wall time that is no number", record(t_wall=5), 2, "journal-record"),
    Attack("a body with more", record(body={"exit_status": 0, "more": 1}), 2, "journal-record"),
    Attack("a body that is a list", record(body=[]), 2, "journal-record"),
    Attack("a body with a text for a number", record(body={"exit_status": "0"}), 2,
           "journal-record"),
    Attack("an outcome that is none", phase(outcome="fine"), 2, "journal-record"),
    Attack("a duration that is none", phase(duration_ns="short"), 2, "journal-record"),
    Attack("a fact from hearsay", insider(lambda f: f.journal(
        insert("facts", {"facts": {"launch": {"value": True, "source": "rumour"}}}))),
        2, "field-type"),
    Attack("a device of a test that is a number", insider(lambda f: f.journal(
        insert("device", {"test": 5, "requested": {}, "observed": {}}))), 2, "field-type"),
    Attack("a fact of the wrong kind", insider(lambda f: f.journal(
        insert("facts", facts("yes", "max_concurrent_sessions")))), 2, "fact-unknown"),
    # order
    Attack("a journal that opens twice", insider(lambda f: f.journal(
        insert("open", {"process": "main", "run_id": "x", "pid": 1}))), 2, "journal-order"),
    Attack("a journal that does not open", chained(lambda r: [
        one | {"seq": number} for number, one in enumerate(r[1:])]), 2, "journal-order"),
    Attack("a record after the end", insider(lambda f: f.journal(after_the_end)), 2,
           "journal-order"),
    Attack("a collection after a collection", forged(lambda r: [*r[:2], *r[1:]]), 2,
           "collected-twice"),
    Attack("phases of an attempt that never began", forged(lambda r: [
        one for one in r
        if (one["type"], one["body"].get("test")) != ("attempt", RUNTIME_TEST)]), 2, "attempt-gap"),
    Attack("a phase of another attempt", phase(attempt=2), 2, "attempt-gap"),
    Attack("an attempt inside another", forged(within_another), 2, "phase-order"),
    Attack("a test that ran in two workers", in_both, 2, "ran-twice", on="workers"),
    Attack("a test twice in the plan", plan_twice("tests"), 2, "plan-duplicate"),
    Attack("a test in the plan and left out", plan_twice("deselected"), 2, "plan-duplicate"),
    Attack("a fact told in two ways", TWO_WAYS, 2, "facts-differ"),
    Attack("a record that contradicts itself is no pass", TWO_WAYS, 2, "verdict-incomplete"),
    # outcomes
    Attack("a module that was not collected", judged_insider(uncollected), 3, "verdict-incomplete",
           "verdict"),
    Attack("an xfail", phase(outcome="skipped", wasxfail="later"), 3, "verdict-incomplete",
           "verdict"),
    Attack("an xpass", phase(wasxfail=""), 3, "verdict-incomplete", "verdict"),
    Attack("a strict xpass", phase(outcome="failed", wasxfail="[XPASS(strict)]"), 3,
           "verdict-incomplete", "verdict"),
    Attack("a skip", phase(outcome="skipped"), 3, "verdict-incomplete", "verdict"),
    Attack("a failure in a passing phase", phase(kind="nonconformance"), 3, "verdict-incomplete",
           "verdict"),
    Attack("rerun until it passes", forged(second_attempt), 1, "not-conformant", "",
           on="failing"),
    Attack("a refusal", forged(insert("refusal", {"message": "no answer"})), 3,
           "verdict-incomplete", "verdict"),
    Attack("a target that was lost", forged(insert("target-lost", {"reason": "killed"})), 3,
           "verdict-incomplete", "verdict"),
    Attack("a worker that was lost", forged(insert(
        "worker-lost", {"process": "gw0", "test": None, "message": "gone"})), 3,
        "verdict-incomplete", "verdict"),
    Attack("a run that executed nothing", lambda path, key: None, 3, "verdict-incomplete",
           "verdict", on="empty"),
    Attack("a run that was cut short", lambda path, key: None, 3, "unsealed", "",
           on="cut short"),
)  # fmt: skip
