"""Checks of the run: what was planned, what happened, and what it came to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_meshnet.evidence import strict, summary
from pytest_meshnet.evidence.documents import (
    CERTIFICATE_PLUGINS,
    SET_FOR_CERTIFICATE,
    UNSET_FOR_CERTIFICATE,
)
from pytest_meshnet.evidence.journal import Collection
from pytest_meshnet.evidence.verify.finding import Finding, fail, incomplete, invalid
from pytest_meshnet.evidence.verify.material import Material
from pytest_meshnet.ledger.status import Status

_RUN_AGAIN = "run again, to the end"
SIMULATED = "file"
"""The provider of GPU inventories from a file: what it shows proves no device."""


def plan(material: Material) -> Iterator[Finding]:
    """What ran is what was planned: nothing unplanned, nothing twice, no attempt left out."""
    for one in summary.breaches(material.collection, material.recorded):
        yield invalid(one.code, one.message)


def certificate(material: Material) -> Iterator[Finding]:
    """A certificate run left out nothing, and no stranger was let into it."""
    start = material.start
    if start is None or not start.certificate:
        return
    for test in material.collection.deselected:
        yield invalid("certificate-deselected", f"a certificate run deselected {test.test}")
    for name in sorted(plugins(material) - CERTIFICATE_PLUGINS):
        yield invalid("certificate-plugin", f"the plugin {name} was active in a certificate run")
    for name in UNSET_FOR_CERTIFICATE:
        if start.environment.get(name):
            yield invalid("certificate-environment", f"{name} was set in a certificate run")
    if not start.environment.get(SET_FOR_CERTIFICATE):
        message = f"a certificate run without {SET_FOR_CERTIFICATE}"
        yield invalid("certificate-environment", message)


def plugins(material: Material) -> set[str]:
    """Return the names of all pytest plugins: those of the start, and those recorded later."""
    begun = material.start.plugins if material.start is not None else ()
    return {one.name for one in (*begun, *material.recorded.plugins)}


def ledger(material: Material) -> Iterator[Finding]:
    """The run was made by a ledger that this suite can judge with."""
    start = material.start
    if start is not None and material.ledger is None:
        yield incomplete(
            "ledger-unknown",
            f"made by ledger {start.ledger.version} ({start.ledger.digest[:12]}), not this suite's",
            f"verify with pytest-meshnet {start.suite.version}, or list it in a policy's `ledgers`",
        )
    if material.summary_fault is not None:
        yield invalid(material.summary_fault.code, str(material.summary_fault))


def results(material: Material) -> Iterator[Finding]:
    """Statuses, counts and verdict follow from the journals, in both statements and the seal."""
    start, seal, found = material.start, material.seal, material.summary
    if start is None or seal is None or found is None or material.ledger is None:
        return
    standard = summary.standard_document(start, found, material.ledger)
    own = summary.run_document(start, material.collection, material.recorded, found)
    hint = "the journals say something else: do not use this bundle"
    for kind, rebuilt in (("statement", standard), ("run", own)):
        stored = material.predicates.get(kind)
        if stored is not None and not strict.same(stored, rebuilt["predicate"]):
            where = _first_difference(stored, rebuilt["predicate"])
            yield invalid(f"{kind}-differs", f"{kind}.dsse.json, {where}", hint)
    counts = {str(status): count for status, count in found.verdict.counts.items()}
    if dict(seal.counts) != counts:
        yield invalid("counts-differ", "the seal counts other statuses than the journals", hint)
    if seal.verdict != found.verdict.word:
        yield invalid("verdict-differs", f"sealed {seal.verdict}, is {found.verdict.word}", hint)
    main = material.recorded.journals.get("main")
    if main is None or main.exit_status != seal.exit_status:
        yield invalid("exit-status-differs", "seal and journal end with other exit codes", hint)


def devices(material: Material) -> Iterator[Finding]:
    """Every hardware test that passed ran on the device it asked for, seen in process."""
    if material.start is None or material.summary is None:
        return
    inventory = {one.get("uuid") for one in material.start.gpus}
    passed = {one.test for one in material.summary.judgements if one.status is Status.PASSED}
    proven = set()
    for one in material.recorded.devices:
        observed, label = one["observed"], one["test"] or "the run"
        proven.add(one["test"])
        if observed.get("provider") == SIMULATED:
            hint = "run on the real device"
            yield fail("device-simulated", f"{label} ran on a simulated device", hint)
            continue
        if observed.get("uuid") is None or observed["uuid"] not in inventory:
            yield invalid("device-unlisted", f"{label} ran on {observed.get('uuid')!r}, not listed")
        for name, wanted in one["requested"].items():
            if observed.get(name) != wanted:
                message = f"{label} asked for {name} {wanted!r}, ran on {observed.get(name)!r}"
                yield invalid("device-differs", message)
    for test in sorted(material.collection.hardware.keys() & passed - proven):
        yield incomplete(
            "device-unproven", f"{test} passed with no proof of its device", _RUN_AGAIN
        )


def completeness(material: Material) -> Iterator[Finding]:
    """The run reached its end and was sealed; the suite stayed as it was meanwhile."""
    if material.start is None and not material.sealed and "start" not in material.faults:
        yield incomplete("start-missing", "the run ended before it began", _RUN_AGAIN)
    elif not material.sealed:
        yield incomplete("unsealed", "the run was cut short and never sealed", _RUN_AGAIN)
    start, seal = material.start, material.seal
    if start is not None and seal is not None and start.suite.digest != seal.suite_digest:
        yield incomplete("suite-changed", "files of the suite changed during the run", _RUN_AGAIN)


def verdict(material: Material) -> Iterator[Finding]:
    """The verdict, as recomputed from the journals."""
    found = material.summary
    if found is None or not material.sealed:
        return
    lines = found.verdict.blocking
    text = f"{found.verdict.word}: {lines[0] if lines else 'nothing was proven'}"
    if len(lines) > 1:
        text += f", and {len(lines) - 1} more"
    if found.verdict.exit_code == 1:
        yield fail("not-conformant", text, "see the failed tests with `pytest-meshnet report`")
    elif found.verdict.exit_code != 0:
        yield incomplete("verdict-incomplete", text, "mend what is named and run again")


def _first_difference(stored: Any, rebuilt: Any, where: str = "") -> str:
    rebuilt = strict.encode(rebuilt)
    if type(stored) is dict and type(rebuilt) is dict:
        for key in (*rebuilt, *stored):
            if stored.get(key) != rebuilt.get(key) or (key in stored) != (key in rebuilt):
                return _first_difference(stored.get(key), rebuilt.get(key), f"{where}.{key}")
    if type(stored) is list and type(rebuilt) is list:
        for index, pair in enumerate(zip(stored, rebuilt, strict=False)):
            if pair[0] != pair[1]:
                return _first_difference(*pair, f"{where}[{index}]")
        if len(stored) != len(rebuilt):
            return f"{where[1:]}: {len(stored)} entries, the journals give {len(rebuilt)}"
    return f"{where[1:]}: says {stored!r:.80}, the journals give {rebuilt!r:.80}"


def so_far(material: Material) -> tuple[dict[str, int], tuple[str, ...], int]:
    """Return (counts per status of ended tests, tests in flight, tests never begun)."""
    flying = set(material.recorded.in_flight)
    counts: dict[str, int] = {}
    begun = material.recorded.processes.keys()
    found = material.summary
    for one in found.judgements if found is not None else ():
        if one.test in begun and one.test not in flying:
            counts[str(one.status)] = counts.get(str(one.status), 0) + 1
    planned: Collection = material.collection
    waiting = sum(1 for one in planned.tests if one.test not in begun)
    return counts, tuple(sorted(flying)), waiting
