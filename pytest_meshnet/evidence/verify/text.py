"""How a verification reads: for a person, verdict first; for a program, every check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pytest_meshnet.evidence.shown import printable
from pytest_meshnet.evidence.verify.claims import claims
from pytest_meshnet.evidence.verify.conduct import so_far
from pytest_meshnet.evidence.verify.finding import Finding, Result, Severity

if TYPE_CHECKING:
    from pytest_meshnet.evidence.verify import Report

SHOWN = 20
"""Most findings of one check, and most tests of one list, that the text shows."""

LIMITS = (
    "Whoever holds the key can sign a run that never took place. A signature shows who says this"
    " and that nothing was changed since; only a countersignature or a timestamp by somebody"
    " else, kept in anchors/, shows more.",
    "What the runtime told and what was configured is not measured; see the table.",
    "All times are those of the signer's own clock.",
)
"""What no signature can show; part of every answer."""

MEANING = {
    Result.VALID_PASS: "sound, from a trusted signer, and passed",
    Result.VALID_FAIL: "sound, and does not pass",
    Result.INVALID: "contradicts itself or the question: believe nothing in it",
    Result.INCOMPLETE: "not enough to say yes or no",
    Result.UNTRUSTED: "sound and passed, but nobody you trust says so",
}


def as_json(report: Report) -> str:
    """Return the whole answer as JSON: every check with its findings and their reason codes."""
    material, start = report.material, report.material.start
    found = material.summary
    document: dict[str, Any] = {
        "schema": 1,
        "result": report.result,
        "exit_code": report.result.exit_code,
        "run_id": start.run_id if start else None,
        "target": {"name": start.target.name, "sha256": start.target.digest} if start else None,
        "profiles": list(start.profiles) if start else [],
        "certificate": start.certificate if start else None,
        "sealed": material.sealed,
        "signer": _signer(report),
        "verdict": {
            "word": found.verdict.word,
            "exit_code": found.verdict.exit_code,
            "counts": {str(status): count for status, count in found.verdict.counts.items()},
            "blocking": list(found.verdict.blocking),
        }
        if found and material.sealed
        else None,
        "facts": [
            {"name": one.name, "value": one.value, "standing": one.standing}
            for one in claims(material.start, material.recorded)
        ],
        "checks": [
            {
                "name": check.name,
                "title": check.title,
                "ok": check.ok,
                "findings": [_finding(one) for one in check.findings],
            }
            for check in report.checks
        ],
        "limits": LIMITS,
    }
    if not material.sealed:
        counts, flying, waiting = so_far(material)
        document["so_far"] = {"counts": counts, "in_flight": flying, "not_begun": waiting}
    return json.dumps(document, indent=2)


def _finding(one: Finding) -> dict[str, str]:
    return {
        "code": one.code,
        "severity": str(one.severity),
        "message": one.message,
        "hint": one.hint,
    }


def _signer(report: Report) -> dict[str, Any] | None:
    start, key = report.material.start, report.material.key
    if start is None or key is None:
        return None
    return {
        "name": report.signer_name,
        "keyid": key.keyid,
        "raw_sha256": key.raw_sha256,
        "ephemeral": start.signer.ephemeral,
    }


def refused(message: str, as_json: bool) -> str:
    """Return the answer when there was nothing to verify."""
    if as_json:
        return json.dumps({"schema": 1, "result": "INVALID", "exit_code": 2, "message": message})
    return printable(f"INVALID  (exit 2): nothing was verified: {message}") + "\n"


def as_text(report: Report) -> str:
    """Return the answer for a person, free of control characters from the bundle.

    The verdict comes first, then who signed, what was claimed and what is proven, and each finding
    with what to do. Of an invalid bundle no result and no claim is repeated.
    """
    lines = [f"{report.result}  (exit {report.result.exit_code}): {MEANING[report.result]}", ""]
    believed = () if report.result is Result.INVALID else (_tests, _proven)
    for section in (_signed, _run, *believed, _findings):
        lines += section(report)
    lines += ["", "What a signature cannot show", *(f"  - {one}" for one in LIMITS)]
    return "\n".join(map(printable, lines)) + "\n"


def _run(report: Report) -> Iterator[str]:
    start = report.material.start
    if start is None:
        return
    kind = "certificate run" if start.certificate else "ordinary run, no certificate"
    if report.endpoint_only:
        kind += ", endpoint only"
    yield f"run        {start.run_id} ({kind}), number {start.counter} by this key in its folder"
    yield f"runtime    {start.target.name} (descriptor {start.target.digest[:16]})"
    yield f"profiles   {', '.join(start.profiles) or 'none'}"
    yield f"suite      {start.suite.version}, ledger {start.ledger.version}"
    gpus = [str(one.get("name") or one.get("uuid") or "unnamed") for one in start.gpus]
    yield f"GPUs       {', '.join(gpus) or start.gpu_inventory}"


def _signed(report: Report) -> Iterator[str]:
    signer = _signer(report)
    if signer is None:
        yield "signer     unknown: no usable start"
        return
    name = signer["name"] or ("an ephemeral key" if signer["ephemeral"] else "not in a trust file")
    yield f"signer     {name}"
    yield f"           keyid {signer['keyid']}"
    yield f"           SHA-256 of the raw key {signer['raw_sha256']}"


def _tests(report: Report) -> Iterator[str]:
    found = report.material.summary
    if not report.material.sealed:
        counts, flying, waiting = so_far(report.material)
        yield f"recorded   {_counts(counts)}; in flight {len(flying)}; not begun {waiting}"
        yield from (f"           in flight: {name}" for name in flying[:SHOWN])
    elif found is not None:
        counts = {str(status): count for status, count in found.verdict.counts.items()}
        yield f"tests      {_counts(counts)}"
        yield f"verdict    {found.verdict.word}, recomputed from the journals"
        yield from (f"           {line}" for line in _some(found.verdict.blocking))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing"


def _some(lines: tuple[str, ...]) -> list[str]:
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return [*lines[:SHOWN], *more]


def _proven(report: Report) -> Iterator[str]:
    rows = claims(report.material.start, report.material.recorded)
    width = max((len(one.name) for one in rows), default=0)
    for title, proven in (("Proven", True), ("Claimed, not proven", False)):
        chosen = [one for one in rows if one.proven is proven]
        yield from ("", title) if chosen else ()
        yield from (f"  {one.name:{width}}  {one.value}  ({one.standing})" for one in chosen)


_NOTHING_TO_DO = "nothing; it changes no result"


def _findings(report: Report) -> Iterator[str]:
    good = sum(1 for check in report.checks if check.ok)
    yield from ("", f"Checks: {good} of {len(report.checks)} found nothing against the bundle")
    for severity in Severity:
        for check in report.checks:
            chosen = [one for one in check.findings if one.severity is severity]
            for one in chosen[:SHOWN]:
                yield f"  {severity}: {one.message}"
                yield f"      do: {one.hint or _NOTHING_TO_DO}"
                yield f"      check: {check.name}, reason code {one.code}"
            if len(chosen) > SHOWN:
                yield f"  {severity}: {len(chosen) - SHOWN} more like these [{check.name}]"
