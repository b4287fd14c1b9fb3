"""Attacks on journals, the plan and the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.tests.evidence.attacks.base import (
    Attack,
    about,
    body,
    insert,
    insider,
    judged_insider,
    only,
    sealer,
)
from pytest_meshnet.tests.evidence.making import RUNTIME_TEST, Forger


def drop_line(forger: Forger) -> None:
    """Take one record out and leave the others as they are."""
    journal = forger.path / "journal" / "main.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:9] + lines[10:]))


def unplan(forger: Forger) -> None:
    """Drop a failing test from the plan, together with all its records."""

    def drop(plan: dict[str, Any]) -> None:
        tests = plan["collection"]["tests"]
        plan["collection"]["tests"] = [one for one in tests if one["test"] != RUNTIME_TEST]

    forger.document("plan", drop)
    forger.journal(only(about(RUNTIME_TEST)))


def unplan_everywhere(forger: Forger) -> None:
    """Drop a test from what was collected, too: then nothing says it ever was there."""
    unplan(forger)

    def drop(records: list[dict[str, Any]]) -> None:
        for one in records:
            if one["type"] == "collected":
                tests = one["body"]["tests"]
                one["body"]["tests"] = [t for t in tests if t["test"] != RUNTIME_TEST]

    forger.journal(drop)


def deselect_unclaimed(forger: Forger) -> None:
    """A certificate run that left out a test, though one that nobody claimed."""
    other = next(one for one in Ledger.load().requirements if one.profile != "core")
    test = "conformance/test_x.py::test_x"
    left_out = [{"test": test, "requirements": [other.id], "testee": False}]
    forger.document("plan", lambda plan: plan["collection"].update(deselected=left_out))
    forger.journal(body("collected", deselected=left_out))


def second_attempt(forger: Forger) -> None:
    """Leave out the first attempt of a test, keep the second."""

    def act(records: list[dict[str, Any]]) -> None:
        for one in records:
            if one["body"].get("test") == RUNTIME_TEST and "attempt" in one["body"]:
                one["body"]["attempt"] = 2

    forger.journal(act)


def extra_journal(path: Path, key: SigningKey) -> None:
    (path / "journal" / "gw0.jsonl").write_bytes(b"")
    forger = Forger(path, key)
    forger.reseal(lambda seal: seal["journals"].pop("gw0"))


def passing(forger: Forger) -> None:
    """Say in the run statement that a failed test passed."""
    forger.document("run", lambda run: run["tests"][0].update(status="failed"))


ON_RECORDS = (
    # journals
    Attack(
        "drop a record",
        insider(drop_line),
        2,
        "journal-chain",
    ),
    Attack(
        "cut the tail",
        lambda path, key: Forger(path, key).journal(lambda records: records[:-1]),
        2,
        "chain-count",
    ),
    Attack(
        "renumber and chain again",
        lambda path, key: Forger(path, key).journal(body("phase", message="edited")),
        2,
        "chain-head",
    ),
    Attack(
        "a wrong head in the seal",
        sealer(lambda seal: seal["journals"]["main"].update(head="ab" * 32)),
        2,
        "chain-head",
        "chains",
    ),
    Attack(
        "a wrong count in the seal",
        sealer(lambda seal: seal["journals"]["main"].update(records=3)),
        2,
        "chain-count",
        "chains",
    ),
    Attack(
        "a torn journal that is whole",
        sealer(lambda seal: seal["journals"]["main"].update(torn=True)),
        2,
        "chain-count",
        "chains",
    ),
    Attack(
        "a journal that is not there",
        sealer(lambda seal: seal["journals"].update(gw3=seal["journals"]["main"])),
        2,
        "chain-missing",
        "chains",
    ),
    Attack("a journal that nobody sealed", extra_journal, 2, "chain-unsealed", "chains"),
    Attack(
        "a torn journal",
        insider(
            lambda f: (f.path / "journal/gw0.jsonl").write_bytes(b'{"seq"'),
        ),
        3,
        "journal-torn",
        "chains",
    ),
    Attack(
        "a record of an unknown type",
        insider(lambda f: f.journal(insert("rumour", {}))),
        2,
        "journal-type",
    ),
    Attack(
        "a fact that no need knows",
        insider(
            lambda f: f.journal(
                insert("facts", {"facts": {"x": {"value": 1, "source": "observed"}}})
            )
        ),
        2,
        "fact-unknown",
    ),
    # plan against journal
    Attack("drop a failing test from the plan", judged_insider(unplan), 2, "plan-differs", "plan"),
    Attack(
        "drop a failing test from plan and collection",
        judged_insider(unplan_everywhere),
        3,
        "verdict-incomplete",
        "verdict",
    ),
    Attack(
        "drop the records of a failing test",
        judged_insider(lambda f: f.journal(only(about(RUNTIME_TEST)))),
        3,
        "verdict-incomplete",
        "verdict",
    ),
    Attack("drop a failing attempt", judged_insider(second_attempt), 2, "attempt-gap", "plan"),
    Attack(
        "drop a phase",
        judged_insider(
            lambda f: f.journal(
                only(lambda r: about(RUNTIME_TEST)(r) or r["body"].get("when") != "setup")
            )
        ),
        2,
        "phase-order",
        "plan",
    ),
    Attack(
        "an unplanned test",
        judged_insider(lambda f: f.journal(insert("attempt", {"test": "x::y", "attempt": 1}))),
        2,
        "unplanned-test",
        "plan",
    ),
    Attack(
        "drop what was collected",
        judged_insider(lambda f: f.journal(only(lambda r: r["type"] != "collected"))),
        2,
        "collected-missing",
        "plan",
    ),
    Attack(
        "a certificate run with a test left out",
        judged_insider(deselect_unclaimed),
        2,
        "certificate-deselected",
        "certificate",
    ),
    # results
    Attack(
        "a statement that disagrees with the journal",
        insider(lambda f: f.document("statement", lambda s: s.update(result="WARNED"))),
        2,
        "statement-differs",
        "results",
    ),
    Attack("a run that disagrees with the journal", insider(passing), 2, "run-differs", "results"),
    Attack(
        "true written as one",
        insider(lambda f: f.document("run", lambda run: run.update(certificate=1))),
        2,
        "run-differs",
        "results",
    ),
    Attack(
        "a count in the seal",
        sealer(lambda seal: seal["counts"].update(passed=1)),
        2,
        "counts-differ",
        "results",
    ),
    Attack(
        "a word in the seal",
        sealer(lambda seal: seal.update(verdict="NOT CERTIFIED")),
        2,
        "verdict-differs",
        "results",
    ),
    Attack(
        "an exit status in the seal",
        sealer(lambda seal: seal.update(exit_status=7)),
        2,
        "exit-status-differs",
        "results",
    ),
    Attack(
        "a failure edited to passed",
        insider(lambda f: f.journal(body("phase", 1, outcome="failed", kind="nonconformance"))),
        2,
        "run-differs",
    ),
)
