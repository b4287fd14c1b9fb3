"""`performance`: rates that follow from what was counted, and telemetry of every stage."""

from __future__ import annotations

from statistics import median

from pytest_meshnet.alpha.criteria import criterion
from pytest_meshnet.alpha.reading import MISSING, NOT_MEASURED, Reading

SECTION = "performance"
SPEED = (
    "min_median_decode_tokens_per_second",
    "max_ttft_seconds_at_4096_prompt",
    "max_unexplained_stall_seconds",
)
_ROUNDING = 0.01
"""A rate written with a few digits may be off by this share from its tokens and seconds."""


def _rates(at: Reading) -> list[float] | None:
    """Every decode rate in tokens a second, each checked against its own tokens and time."""
    found = []
    runs = at.parts(SECTION, "decode")
    for number, run in enumerate(runs):
        where = f"decode[{number}]"
        rate = at.number(run, "tokens_per_second", where)
        tokens, seconds = at.count(run, "tokens", where), at.number(run, "seconds", where)
        if rate is None or tokens is None or seconds is None:
            continue
        # The first token may be counted to prefill or to decode.
        low, high = (tokens - 1) * (1 - _ROUNDING), tokens * (1 + _ROUNDING)
        if not tokens or not seconds or not low <= rate * seconds <= high:
            text = f"{rate} tokens/s for {tokens} tokens in {seconds} s"
            at.fail("contradictory", f"{where}: {text}")
            continue
        found.append(float(rate))
    return found if found and len(found) == len(runs) else None


@criterion(SECTION, SPEED[0], action="shorten the stage that takes most of a decode step")
def decode_is_fast_enough(at: Reading) -> None:
    """The median of every decode rate that was measured."""
    rates = _rates(at)
    if rates is not None:
        at.show(round(median(rates), 4), "tokens/s")
        at.at_least(median(rates), at.limit, "the median decode rate in tokens/s")


@criterion(SECTION, SPEED[1], action="look at the stage with the longest prefill")
def first_token_comes_in_time(at: Reading) -> None:
    """Time to the first token, for a prompt of the locked length."""
    part = at.part(SECTION)
    ttft = at.number(part, "ttft_seconds", SECTION)
    tokens = at.count(part, "ttft_prompt_tokens", SECTION)
    if tokens is not None:
        at.equal(tokens, at.locked_number("target_run", "prompt_lane_tokens"), "ttft_prompt_tokens")
    if ttft is not None:
        at.show(ttft, "s")
        at.at_most(ttft, at.limit, "ttft_seconds")


@criterion(SECTION, SPEED[2], action="find what the named stage waited for")
def nothing_stood_still(at: Reading) -> None:
    """The longest gap without any telemetry of progress; an empty list says there was none."""
    gaps = at.items(at.part(SECTION), "unexplained_gaps_seconds", SECTION)
    if gaps is None:
        return
    known = [at.as_number(gap, f"{SECTION}.unexplained_gaps_seconds") for gap in gaps]
    longest = max((gap for gap in known if gap is not None), default=0)
    at.show(longest, "s")
    at.at_most(longest, at.limit, "the longest unexplained gap in seconds")


@criterion(SECTION, "warmups", action="run again with exactly the locked warm-ups")
def warmups_are_as_locked(at: Reading) -> None:
    """How many runs were thrown away before the measured ones."""
    found = at.count(at.part(SECTION), "warmups", SECTION)
    if found is not None:
        at.show(found, "runs")
        at.equal(found, at.threshold, f"{SECTION}.warmups")


@criterion(
    SECTION, "require_per_stage_telemetry", action="switch the telemetry of the named stage on"
)
def every_stage_tells(at: Reading) -> None:
    """One stage for every machine, and each kind of telemetry measured on it."""
    stages = {str(one.get("host")): one for one in at.parts(SECTION, "stages")}
    names = at.threshold if isinstance(at.threshold, tuple) else ()
    for where, node in at.nodes():
        host = at.text(node, "host", where)
        if host is not None and host not in stages:
            at.fail("silent-stage", f"no telemetry of {host}")
    for host, stage in stages.items():
        for name in names:
            at.number(stage, name, f"stages.{host}", told=True)
    at.show(len(stages), "stages")


@criterion(
    SECTION,
    "quality_pass_with_speed_fail_verdict",
    action="mend the speed: quality alone does not carry the release",
)
def speed_fails_the_whole(at: Reading) -> None:
    """A run that is right and too slow is what the contract says it is."""
    from pytest_meshnet.alpha.criteria import criteria

    slow = []
    for key in SPEED:
        inner = Reading(at.record, at.locked, SECTION, key)
        criteria()[SECTION, key].judge(inner)
        at.sources |= inner.sources
        unknown = [one for one in inner.problems if one.code in (MISSING, NOT_MEASURED)]
        at.problems += unknown
        slow += [key] if len(unknown) < len(inner.problems) else []
    at.show(not slow)
    if slow:
        at.fail("speed-failed", f"{', '.join(slow)} not met, so the verdict is {at.threshold}")


@criterion(
    SECTION,
    "forbid_generalising_results_to_other_hardware",
    action="label the result with the machines it was measured on",
)
def result_is_labelled(at: Reading) -> None:
    """The labels name exactly the hardware of the machines, and the topology."""
    labels = at.part("labels")
    named = at.items(labels, "hardware", "labels")
    topology = at.text(labels, "topology", "labels")
    used = {at.text(node, "hardware", where) for where, node in at.nodes()}
    if topology is not None:
        at.show(topology)
    machines = {one for one in used if one is not None}
    if named is not None and {str(one) for one in named} != machines:
        at.fail("other-hardware", f"labelled {list(named)}, measured on {sorted(machines)}")
