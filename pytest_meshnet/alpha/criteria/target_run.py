"""`target_run`: the run that the release is about, and whether it was that run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_meshnet.alpha.criteria import criterion
from pytest_meshnet.alpha.reading import Reading

SECTION = "target_run"
AGAIN = "run again with exactly the locked settings"
WIRING = "wire all machines to one switch and measure the links"
NATURAL = "stop"
"""The finish reason of an answer that ended by itself."""

_SETTINGS = {
    "context_tokens": "context_tokens",
    "kv_dtype": "kv_dtype",
    "concurrency": "concurrency",
    "prompt_lane_tokens": "prompt_tokens",
}


@criterion(SECTION, *_SETTINGS, action=AGAIN)
def setting_is_the_locked_one(at: Reading) -> None:
    """The run had this setting, read back from what ran, and no machine held KV in another way."""
    found = at.claim(at.part(SECTION), _SETTINGS[at.key], SECTION, told=True)
    if found is not None:
        at.show(found)
        at.equal(found, at.threshold, f"{SECTION}.{_SETTINGS[at.key]}")
    if at.key == "kv_dtype":
        for where, node in at.nodes():
            recipe = at.text(node, "kv_recipe", where, told=True)
            if recipe is not None and str(at.threshold) not in re.split(r"[^\w.]+", recipe):
                at.fail("other-recipe", f"{where}.kv_recipe is {recipe!r}, without {at.threshold}")


def _output(at: Reading) -> tuple[int, str] | None:
    part = at.part(SECTION)
    tokens = at.count(part, "output_tokens", SECTION, told=True)
    reason = at.text(part, "finish_reason", SECTION, told=True)
    if tokens is None or reason is None:
        return None
    at.show(tokens, "tokens")
    return tokens, reason


@criterion(SECTION, "min_output_tokens", action=AGAIN)
def output_is_long_enough(at: Reading) -> None:
    """The locked number of tokens, unless the answer ended by itself."""
    found = _output(at)
    if found is not None and found[1] != NATURAL:
        at.at_least(found[0], at.limit, "output_tokens")


@criterion(SECTION, "min_output_tokens_with_natural_eos", action=AGAIN)
def an_early_end_is_natural_and_not_too_early(at: Reading) -> None:
    """An answer that ended by itself has at least this many tokens."""
    found = _output(at)
    if found is None:
        return
    at.at_least(found[0], at.limit, "output_tokens")
    if found[1] not in (NATURAL, "length"):
        at.fail("unnatural-end", f"the answer ended with {found[1]!r}")


def _links(at: Reading) -> list[tuple[str, Mapping[str, Any]]]:
    return [(f"links[{n}]", one) for n, one in enumerate(at.parts(SECTION, "links"))]


@criterion(SECTION, "require_same_switch_wired_network", action=WIRING)
def machines_share_one_switch(at: Reading) -> None:
    """Every machine has a wired link to the same switch."""
    links = _links(at)
    switches = set()
    for where, link in links:
        if at.flag(link, "wired", where, told=True) is False:
            at.fail("not-wired", f"{where} is not wired")
        switches.add(at.text(link, "switch", where, told=True))
    hosts = {at.text(link, "host", where) for where, link in links}
    for where, node in at.nodes():
        host = at.text(node, "host", where)
        if host is not None and host not in hosts:
            at.fail("unlinked-host", f"the link of {host} is not in the record")
    at.show(len(switches), "switches")
    if len(switches) > 1:
        at.fail("several-switches", f"the links go to {len(switches)} switches")


def _slowest(at: Reading) -> int | float | None:
    rates = [at.number(link, "rate_gbps", where) for where, link in _links(at)]
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates):
        return None
    at.show(min(known), "Gbit/s")
    return min(known)


@criterion(SECTION, "min_link_rate_gbps", action=WIRING)
def links_are_fast_enough(at: Reading) -> None:
    """The slowest link."""
    slowest = _slowest(at)
    if slowest is not None:
        at.at_least(slowest, at.limit, "the slowest link in Gbit/s")


@criterion(SECTION, "recommended_link_rate_gbps", action=WIRING)
def link_rate_is_known(at: Reading) -> None:
    """A slower link than recommended is noted and no fault; an unknown one is."""
    slowest = _slowest(at)
    if slowest is not None and slowest < at.limit:
        at.note = f"below the recommended {at.limit:g} Gbit/s"


@criterion(
    SECTION, "require_sentinels", action="run the sentinel that is named and keep its output"
)
def sentinels_were_answered(at: Reading) -> None:
    """Each sentinel has a raw prompt and output of its own among the attachments, and parsed."""
    attached = {
        one.get("sha256"): one.get("size")
        for one in at.record.get("attachments", ())
        if isinstance(one, Mapping)
    }
    names = at.threshold if isinstance(at.threshold, tuple) else ()
    seen: set[str] = set()
    answered = 0
    for name in names:
        known = len(at.problems)
        sentinel, where = at.part(SECTION, "sentinels", name), f"sentinels.{name}"
        if at.flag(sentinel, "parsed", where) is False:
            at.fail("unparsed", f"the output of {name} did not parse")
        for kind in ("prompt_sha256", "output_sha256"):
            digest = at.text(sentinel, kind, where)
            if digest is None:
                continue
            if digest not in attached:
                at.fail("not-attached", f"{where}.{kind} names no attachment of the record")
            elif not attached[digest]:
                at.fail("empty", f"{where}.{kind} names an empty attachment")
            if digest in seen:
                at.fail("shared", f"{where}.{kind} is a text that another claim names too")
            seen.add(digest)
        answered += len(at.problems) == known
    at.show(answered, "sentinels")


@criterion(
    SECTION,
    "require_openai_compatible_response_fields",
    action="keep the whole response and check its fields",
)
def response_has_its_fields(at: Reading) -> None:
    """The fields are there, and usage agrees with what was counted."""
    response = at.part(SECTION, "response")
    fields = at.threshold if isinstance(at.threshold, tuple) else ()
    found = {name: at.claim(response, name, "response", told=True) for name in fields}
    at.show(len([one for one in found.values() if one is not None]), "fields")
    for name, value in found.items():
        if value is not None and not value:
            at.fail("empty", f"response.{name} is empty")
        elif name != "usage" and value is not None and not isinstance(value, str):
            at.fail("wrong-type", f"response.{name} is {value!r}, expected a text")
    usage = found.get("usage")
    if usage is not None:
        _check_usage(at, usage)
    reason = at.text(at.part(SECTION), "finish_reason", SECTION, told=True)
    if found.get("finish_reason") is not None and reason is not None:
        at.equal(found["finish_reason"], reason, "response.finish_reason")


def _check_usage(at: Reading, usage: Any) -> None:
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    counts = [usage.get(name) if isinstance(usage, Mapping) else None for name in names]
    numbers = [at.as_count(one, f"usage.{name}") for name, one in zip(names, counts, strict=True)]
    if any(one is None for one in numbers):
        return
    prompt, completion, total = (one for one in numbers if one is not None)
    if prompt + completion != total:
        at.fail("contradictory", f"usage: {prompt} + {completion} tokens are not {total}")
    for name, counted in (("prompt_tokens", prompt), ("output_tokens", completion)):
        told = at.count(at.part(SECTION), name, SECTION, told=True)
        if told is not None and told != counted:
            at.fail("contradictory", f"usage counts {counted} tokens, {SECTION}.{name} is {told}")
    context = at.locked_number(SECTION, "context_tokens")
    if total > context:
        at.fail("beyond-context", f"usage: {total} tokens do not fit a context of {context}")
