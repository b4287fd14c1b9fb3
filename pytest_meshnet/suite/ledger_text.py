"""How the ledger reads: as a table, as Markdown, as JSON; each with tests and mutants."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_meshnet.ledger.coverage import Coverage, cover
from pytest_meshnet.ledger.requirements import Ledger, UnknownProfile
from pytest_meshnet.ledger.verdict import INCOMPLETE, REFUSED


def run_ledger(*, check: bool, form: str, profiles: Sequence[str]) -> tuple[str, int]:
    """Return the ledger as text, and the exit code.

    With `check` a MUST without a test or without a mutant ends with 1. 2 is an unknown profile,
    3 a suite that cannot be collected.
    """
    from pytest_meshnet.suite.certify import CollectionFailed, planned_tests

    ledger = Ledger.load()
    try:
        chosen = {one.id for one in ledger.claims(profiles or ledger.profiles)}
        rows = cover(ledger, planned_tests(), mutants_by_requirement())
    except UnknownProfile as error:
        return f"{error}\n", REFUSED
    except CollectionFailed as error:
        return f"{error}\n", INCOMPLETE
    rows = tuple(one for one in rows if one.requirement.id in chosen)
    text = _FORMS[form](ledger, rows)
    gaps = [one for one in rows if one.gaps]
    if check and form != "json":
        text += "".join(f"{one.requirement.id}: {', '.join(one.gaps)}\n" for one in gaps)
        text += f"{len(gaps)} of {len(rows)} requirements lack something\n"
    return text, 1 if check and gaps else 0


def mutants_by_requirement() -> dict[str, list[str]]:
    """Return the requirement that each mutant breaks, by the mutant's name."""
    from pytest_meshnet.reference.catalogue import entries

    return {one.name: [one.requirement] for one in entries() if one.requirement}


def _table(ledger: Ledger, rows: Iterable[Coverage]) -> str:
    lines = [
        f"{'id':<12}{'level':<8}{'profile':<11}{'subject':<9}{'tests':>5}{'mutants':>9}  title"
    ]
    lines += [
        f"{one.requirement.id:<12}{one.requirement.level:<8}{one.requirement.profile:<11}"
        f"{one.requirement.subject:<9}{len(one.tests):>5}{len(one.mutants):>9}"
        f"  {one.requirement.title}"
        for one in rows
    ]
    return "\n".join([f"ledger {ledger.version} (sha256 {ledger.digest})", *lines, ""])


def _markdown(ledger: Ledger, rows: Iterable[Coverage]) -> str:
    head = "| id | level | profile | requirement | tests | mutants |\n|---|---|---|---|--:|--:|"
    lines = [
        f"| {one.requirement.id} | {one.requirement.level} | {one.requirement.profile} "
        f"| **{one.requirement.title}.** {_escaped(one.requirement.statement)} "
        f"| {len(one.tests)} | {len(one.mutants)} |"
        for one in rows
    ]
    return "\n".join([f"# Requirements, ledger {ledger.version}", "", head, *lines, ""])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def _json(ledger: Ledger, rows: Iterable[Coverage]) -> str:
    def described(one: Coverage) -> dict[str, Any]:
        requirement = one.requirement
        return {
            "id": requirement.id,
            "level": requirement.level,
            "profile": requirement.profile,
            "subject": requirement.subject,
            "title": requirement.title,
            "statement": requirement.statement,
            "needs": list(requirement.needs),
            "tests": list(one.tests),
            "mutants": list(one.mutants),
            "gaps": list(one.gaps),
        }

    document = {
        "schema": 1,
        "version": ledger.version,
        "sha256": ledger.digest,
        "requirements": [described(one) for one in rows],
    }
    return json.dumps(document, indent=2) + "\n"


_FORMS = {"table": _table, "md": _markdown, "json": _json}
