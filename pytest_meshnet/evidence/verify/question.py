"""What the reader asks: by whom, in answer to which challenge, and under which policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_meshnet.evidence.signing.trust import Trust
from pytest_meshnet.evidence.verify.conduct import plugins
from pytest_meshnet.evidence.verify.finding import Finding, Severity, fail, invalid
from pytest_meshnet.evidence.verify.material import Material
from pytest_meshnet.evidence.verify.policy import Policy
from pytest_meshnet.ledger.requirements import UnknownProfile, UnknownRequirement
from pytest_meshnet.ledger.status import Status


@dataclass(frozen=True, slots=True)
class Question:
    """What the reader brings: trusted keys, a policy, the challenge they gave out, the time."""

    trust: Trust = field(default_factory=lambda: Trust({}))
    policy: Policy = field(default_factory=Policy)
    challenge: str | None = None
    now_ns: int = 0


def signer(material: Material, question: Question) -> Iterator[Finding]:
    """The signer is in the trust file, for this target and this time."""
    start, key = material.start, material.key
    if start is None or key is None:
        return
    entry = question.trust.keys.get(key.keyid)
    if entry is None:
        if start.signer.ephemeral:
            code, who = "signer-ephemeral", "an ephemeral key that nobody keeps"
            hint = "make a key with `pytest-meshnet keygen` and sign the run with --key"
        else:
            code, who = "signer-unknown", "a key that is not in the trust file"
            hint = f"if you know the signer, add keyid {key.keyid} to the trust file"
        yield Finding(code, Severity.UNTRUSTED, f"signed by {who}", hint)
        return
    times = [int(one.t_wall) for one in (start, material.seal) if one is not None]
    objection = entry.objection(start.target.name, times)
    if objection is not None:
        code, message = objection
        yield Finding(code, Severity.UNTRUSTED, message, "ask for a run signed by a current key")


def challenge(material: Material, question: Question) -> Iterator[Finding]:
    """The run answers the challenge that was given out, so that it is no older run."""
    start = material.start
    if start is None or question.challenge is None:
        return
    if start.challenge != question.challenge:
        yield invalid(
            "challenge-differs",
            f"the run answers {start.challenge!r}, the challenge is {question.challenge!r}",
            "ask for a run that was made with your challenge",
        )


def policy(material: Material, question: Question) -> Iterator[Finding]:
    """What the reader asks for beyond a sound pass."""
    start, found, asked = material.start, material.summary, question.policy
    if start is None or found is None:
        return
    hint = "ask for a run that meets the policy"
    for code, message in _objections(material, asked, question.now_ns):
        yield fail(code, message, hint)
    if asked.digest and start.policy_digest not in ("", asked.digest):
        message = "the run was made under another policy than the one given"
        yield Finding("policy-differs", Severity.NOTE, message)


def _objections(material: Material, asked: Policy, now_ns: int) -> Iterator[tuple[str, str]]:
    start, found = material.start, material.summary
    if start is None or found is None:
        return
    if asked.certificate and not start.certificate:
        yield "policy-certificate", "the run is no certificate run"
    yield from _required(material, asked)
    must = _must(material)
    for one in found.judgements:
        known = one.status is Status.KNOWN_FAILURE and not must.isdisjoint(one.requirements)
        if known and one.test not in asked.expected_failures:
            yield "policy-known-failure", f"{one.test} is a known failure: {one.reason}"
        if one.status is Status.NOT_RUN and not asked.skips:
            yield "policy-skip", f"{one.test} did not run: {one.reason}"
        if material.recorded.attempts(one.test) > 1 and not asked.reruns:
            yield "policy-rerun", f"{one.test} had {material.recorded.attempts(one.test)} attempts"
    if material.collection.deselected and not asked.deselection:
        yield "policy-deselected", f"{len(material.collection.deselected)} tests were deselected"
    for digest in sorted(set(asked.artifacts) - {one.digest for one in start.artifacts}):
        yield "policy-artifact", f"the run was not configured with artifact {digest}"
    if asked.plugins is not None:
        for name in sorted(plugins(material) - set(asked.plugins)):
            yield "policy-plugin", f"the pytest plugin {name} was active"
    yield from _gpu(material.recorded.devices, asked.gpu)
    if asked.max_age_hours is not None and material.seal is not None:
        age = now_ns - int(material.seal.t_wall)
        if not 0 <= age <= asked.max_age_hours * 3600 * 10**9:
            yield "policy-age", f"the seal is {age // (3600 * 10**9)} hours old"


def _must(material: Material) -> set[str]:
    if material.start is None or material.ledger is None:
        return set()
    claims = material.ledger.claims(material.start.profiles)
    return {one.id for one in claims if one.level == "MUST"}


def _required(material: Material, asked: Policy) -> Iterator[tuple[str, str]]:
    found, known = material.summary, material.ledger
    if found is None or known is None:
        return
    wanted = dict.fromkeys(asked.requirements)
    for name in asked.profiles:
        try:
            wanted.update(dict.fromkeys(r.id for r in known.profile(name) if r.level == "MUST"))
        except UnknownProfile as error:
            yield "policy-requirement", str(error)
    for name in wanted:
        try:
            known.get(name)
        except UnknownRequirement as error:
            yield "policy-requirement", str(error)
            continue
        status = found.verdict.by_requirement.get(name)
        if status is not Status.PASSED:
            yield "policy-requirement", f"{name} is {status or 'not-claimed'}, passed is required"


def _gpu(devices: list[Mapping[str, Any]], wanted: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if wanted and not devices:
        yield "policy-gpu", "the run proves no device"
    for one in devices:
        for name, value in wanted.items():
            seen = one["observed"].get("name" if name == "model" else name)
            if seen != value:
                yield "policy-gpu", f"{one['test'] or 'the run'}: {name} is {seen!r}, not {value!r}"
