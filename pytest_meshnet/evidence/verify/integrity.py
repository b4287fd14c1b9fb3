"""Checks of the bundle as a thing: its files, signatures, chains, and that all are of one run."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator

from pytest_meshnet.evidence import documents
from pytest_meshnet.evidence.documents import ANCHORS, FILE_NAME, HEX_DIGEST, document_name
from pytest_meshnet.evidence.signing.dsse import PAYLOAD_TYPE
from pytest_meshnet.evidence.verify.finding import Finding, Severity, incomplete, invalid
from pytest_meshnet.evidence.verify.material import Material

_COPY_AGAIN = "copy the bundle again from where it was made; never edit one"

SET_BACK_TOLERANCE_NS = 5 * 10**9
JUMP_TOLERANCE_NS = 60 * 10**9
"""How far the wall clock may fall behind, or run ahead of, the monotonic one in a run."""


def layout(material: Material) -> Iterator[Finding]:
    """Only regular files, no links, known names, sizes within the limits."""
    for one in material.oddities:
        if one.code == "partial-file" and not material.sealed:
            continue
        yield invalid(one.code, f"{one.name!r} {one.message}", _COPY_AGAIN)


def documents_read(material: Material) -> Iterator[Finding]:
    """Every signed document is present and is strictly what it must be."""
    for kind, fault in material.faults.items():
        yield invalid(fault.code, f"{document_name(kind)}: {fault}")
    for kind in documents.PREDICATES:
        name = document_name(kind)
        if material.sealed and name not in material.files:
            yield invalid("document-missing", f"{name} is missing from a sealed bundle")
    if material.start is not None and material.start.format != documents.FORMAT:
        yield invalid(
            "format-unknown",
            f"bundle format {material.start.format}, this suite reads {documents.FORMAT}",
            "verify with the version of pytest-meshnet that wrote the bundle",
        )


def signatures(material: Material) -> Iterator[Finding]:
    """Every document is signed, as stored, by the one key that the start names."""
    if material.key_fault:
        yield invalid("signer-malformed", material.key_fault)
    if material.key is None:
        return
    for kind, envelope in material.envelopes.items():
        name = document_name(kind)
        if envelope.keyid != material.key.keyid:
            yield invalid("signer-differs", f"{name} is signed by another key than the start")
        elif envelope.payload_type != PAYLOAD_TYPE:
            yield invalid("payload-type", f"{name} has the payload type {envelope.payload_type!r}")
        elif not envelope.signed_by(material.key):
            yield invalid("signature-bad", f"the signature of {name} does not fit its content")


def binding(material: Material) -> Iterator[Finding]:
    """Every file says that it belongs to this run, and to this target."""
    start = material.start
    if start is None:
        return
    journals = material.recorded.journals.items()
    runs = {f"journal/{name}": one.run_id for name, one in journals if one.records}
    for kind, document in (("plan", material.plan), ("seal", material.seal)):
        if document is not None:
            runs[document_name(kind)] = document.run_id
    for name, run_id in runs.items():
        if run_id != start.run_id:
            yield invalid("run-differs", f"{name} is of run {run_id!r}, not {start.run_id!r}")
    for kind, subject in material.subjects.items():
        if subject != start.target:
            yield invalid("target-differs", f"{document_name(kind)} is about {subject.name!r}")
    for name, one in journals:
        if one.process not in ("", name):
            yield invalid("journal-renamed", f"the journal {name} was written by {one.process!r}")
    begun = material.digest(document_name("start"))
    if material.plan is not None and material.plan.start_sha256 != begun:
        yield invalid("plan-unbound", "the plan was signed after another start")
    if material.seal is not None and material.seal.counter != start.counter:
        yield invalid("counter-differs", "start and seal disagree about the run's number")


def files(material: Material) -> Iterator[Finding]:
    """Every file is listed in the seal with its digest, and every listed file is there."""
    if material.seal is None:
        return
    listed = material.seal.files
    for name in sorted(listed):
        if not FILE_NAME.fullmatch(name) or name.startswith(ANCHORS):
            yield invalid("path-escape", f"the seal lists {name!r}, which no bundle can hold")
        elif name not in material.files:
            yield invalid("file-missing", f"{name} is listed in the seal and not there")
        elif material.digest(name) != listed[name]:
            yield invalid("digest-differs", f"{name} is not the file that was sealed", _COPY_AGAIN)
    for name in sorted(material.files.keys() - listed.keys() - {document_name("seal")}):
        if not name.startswith(ANCHORS):
            yield invalid("file-unlisted", f"{name} is not listed in the seal")


def anchors(material: Material) -> Iterator[Finding]:
    """What others countersigned or timestamped names this seal; its worth is for them to tell."""
    seal = document_name("seal")
    digest = material.digest(seal)
    for name in sorted(one for one in material.files if one.startswith(ANCHORS)):
        if digest and names_digest(name, material.read(name), digest):
            message = f"{name} names the seal {digest}; whose word it is, is not judged here"
            hint = "check it with the tool of its maker, against seal.dsse.json"
            yield Finding("anchor-bound", Severity.NOTE, message, hint)
        else:
            message = f"{name} does not name this bundle's {seal}: it says nothing about the run"
            hint = "ask for one made from seal.dsse.json, or whose name begins with its SHA-256"
            yield Finding("anchor-unbound", Severity.NOTE, message, hint)


def names_digest(name: str, data: bytes, digest: str) -> bool:
    """Say whether an anchor is about the file with this SHA-256 hex.

    Its name begins with the digest, as that of a bare signature must, or its bytes hold it: raw
    (RFC 3161, OpenTimestamps), in hex, in base64, or in hex inside a base64 payload (DSSE).
    """
    raw = bytes.fromhex(digest)
    forms = (raw, digest.encode(), b64encode(raw))
    if name.removeprefix(ANCHORS).startswith(digest) or any(one in data for one in forms):
        return True
    payloads = re.findall(
        rb"(?:[A-Za-z0-9+/]{4}){16,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", data
    )
    return any(digest.encode() in b64decode(one) for one in payloads)


def chains(material: Material) -> Iterator[Finding]:
    """Every journal replays from its first record to the sealed count and head."""
    found = material.recorded.journals
    for name, one in found.items():
        if one.fault is not None:
            yield invalid(one.fault.code, f"journal/{name}.jsonl, {one.fault}")
        if one.torn:
            yield incomplete(
                "journal-torn",
                f"journal/{name}.jsonl ends in the middle of a record",
                "its process died or the disk was full: run again",
            )
    if material.seal is None:
        return
    for name, sealed in material.seal.journals.items():
        journal = found.get(name)
        if journal is None:
            yield invalid("chain-missing", f"the sealed journal {name} is not there")
        elif journal.records != sealed.records or journal.torn != sealed.torn:
            yield invalid(
                "chain-count",
                f"journal {name} has {journal.records} records, {sealed.records} were sealed",
            )
        elif journal.head != sealed.head:
            yield invalid("chain-head", f"journal {name} does not end as it was sealed")
    for name in sorted(found.keys() - material.seal.journals.keys()):
        yield invalid("chain-unsealed", f"the journal {name} is not in the seal")


def attachments(material: Material) -> Iterator[Finding]:
    """Every attachment that a journal says is stored is there, whole and under its own digest."""
    for one in material.recorded.attachments:
        name = f"artifacts/sha256/{one['sha256']}"
        label = f"attachment {one['name']!r} of {one['test']}"
        if not HEX_DIGEST.fullmatch(one["sha256"]):
            yield invalid("path-escape", f"{label} has the digest {one['sha256']!r}")
        elif one["stored"] and name not in material.files:
            yield invalid("attachment-missing", f"{label} is not in the bundle")
        elif one["stored"] and material.files[name] != one["size"]:
            yield invalid("attachment-size", f"{label} has {material.files[name]} bytes")
    for name in material.files:
        if name.startswith("artifacts/") and material.digest(name) != name.rpartition("/")[2]:
            yield invalid("attachment-differs", f"{name} does not hold what its name says")


def clock(material: Material) -> Iterator[Finding]:
    """Time only goes forward, from start through plan and records to the seal."""
    start, plan, seal = material.start, material.plan, material.seal
    if start is None:
        return
    begin = int(start.t_mono)
    end = int(seal.t_mono) if seal is not None else None
    offset = int(start.t_wall) - begin
    offsets = [offset]
    for name, one in material.recorded.journals.items():
        if one.backwards is not None:
            yield invalid("clock-order", f"journal {name} goes back in time, line {one.backwards}")
        if one.first is None:
            continue
        offsets += [one.slowest, one.fastest]
        if one.first < begin or (end is not None and one.last > end):
            yield invalid("clock-order", f"journal {name} reaches outside the run")
    for later in (plan, seal):
        if later is not None:
            offsets.append(int(later.t_wall) - int(later.t_mono))
            if int(later.t_mono) < begin:
                yield invalid("clock-order", "a document was signed before the start")
    first = material.recorded.first_attempt
    if plan is not None and first is not None and first < int(plan.t_mono):
        yield invalid("clock-plan", "tests ran before the plan was signed")
    if min(offsets) < offset - SET_BACK_TOLERANCE_NS:
        yield invalid("clock-set-back", "the wall clock was set back during the run", "run again")
    if max(offsets) > offset + JUMP_TOLERANCE_NS:
        message = "the wall clock was set forward during the run"
        yield Finding("clock-jumped", Severity.NOTE, message)


def history(material: Material) -> Iterator[Finding]:
    """The number of the run by this key in its output folder, and the seal before it."""
    start = material.start
    if start is None:
        return
    previous = start.previous_seal
    first = start.counter == 1 and previous == ""
    later = start.counter > 1 and (previous == "" or HEX_DIGEST.fullmatch(previous))
    if not first and not later:
        yield invalid("counter-malformed", f"run {start.counter} after the seal {previous!r}")
    if start.counter > 1:
        message = f"run {start.counter} by this key in its folder: {start.counter - 1} came before"
        yield Finding("not-first-run", Severity.NOTE, message, "ask to see those runs too")
