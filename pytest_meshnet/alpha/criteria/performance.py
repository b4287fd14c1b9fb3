"""`performance`: rates that follow from what was counted, and telemetry of every stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pytest_meshnet.alpha.criteria import criterion
from pytest_meshnet.alpha.reading import UNKNOWN, Reading

SECTION = "performance"
SPEED = (
    "min_median_decode_tokens_per_second",
    "max_ttft_seconds_at_4096_prompt",
    "max_unexplained_stall_seconds",
)
_MAY_BE_ZERO = frozenset({"queue", "vram"})
"""Nothing else that a stage tells can be zero while it serves."""
_ROUNDING = 0.01
"""A rate written with a few digits may be off by this share from its tokens and seconds."""


def _rates(at: Reading) -> list[float] | None:
    """Every decode rate in tokens a second, each checked against its own tokens and time.

    A rate is never better than tokens by seconds, and a run shorter than the least output of an
    answer is none. One of the runs is the target run.
    """
    found, lengths = [], set()
    least = at.locked_number("target_run", "min_output_tokens_with_natural_eos") - 1
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
        if tokens < least:
            at.fail("too-short", f"{where}: {tokens} tokens are no answer, {least} at least are")
        lengths |= {tokens, tokens + 1}
        found.append(min(float(rate), tokens / seconds))
    output = at.count(at.part("target_run"), "output_tokens", "target_run", told=True)
    if found and output is not None and output not in lengths:
        at.fail("not-the-run", f"no decode run has the {output} tokens of the target run")
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
        at.above_zero(ttft, "ttft_seconds")
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
    listed = at.parts(SECTION, "stages")
    stages = {str(one.get("host")): one for one in listed}
    if len(stages) < len(listed):
        at.fail("listed-twice", "a machine has two stages")
    names = at.threshold if isinstance(at.threshold, tuple) else ()
    for where, node in at.nodes():
        host = at.text(node, "host", where)
        if host is not None and host not in stages:
            at.fail("silent-stage", f"no telemetry of {host}")
    for host, stage in stages.items():
        where = f"stages.{host}"
        found = {name: at.number(stage, name, where, told=True) for name in names}
        for name, value in found.items():
            if value is not None and name not in _MAY_BE_ZERO:
                at.above_zero(value, f"{where}.{name}")
        _check_stage(at, stage, where, found)
    _check_memory(at, stages)
    _check_steps(at, list(stages.values()))
    at.show(len(stages), "stages")


def _check_stage(
    at: Reading, stage: Mapping[str, Any], where: str, found: Mapping[str, float | None]
) -> None:
    """What is told of a stage beside the locked kinds: pressure on KV, the slow steps, errors."""
    pressure = at.number(stage, "kv_pressure", where, told=True)
    slow = at.number(stage, "seam_latency_p95", where, told=True)
    errors = at.count(stage, "errors", where, told=True)
    if pressure is not None and pressure > 1:
        at.fail("contradictory", f"{where}.kv_pressure is {pressure:g}, a share of at most 1")
    if stage.get("energy_joules") is not None:
        at.number(stage, "energy_joules", where, told=True)
    median_latency = found.get("seam_latency")
    if slow is not None and median_latency is not None and slow < median_latency:
        at.fail("contradictory", f"{where}: the 95th percentile of the seam is below its median")
    if errors:
        at.fail("errors", f"{where} counted {errors} errors")


_PEAKS = {"rss": "peak_rss_bytes", "vram": "peak_vram_bytes", "kv": "kv_bytes"}
"""What a stage tells of its memory is no more than what its machine measured."""


def _check_memory(at: Reading, stages: Mapping[str, Mapping[str, Any]]) -> None:
    for where, node in at.nodes():
        stage = stages.get(str(at.text(node, "host", where)), {})
        for name, peak in _PEAKS.items():
            most = at.count(node, peak, where)
            found = at.number(stage, name, f"stage of {where}", told=True) if stage else None
            if most is not None and found is not None and found > most:
                at.fail("contradictory", f"{where}: its stage tells more {name} than {peak}")


def _check_steps(at: Reading, stages: Sequence[Mapping[str, Any]]) -> None:
    """One after the other, stages and seams take no longer than the mean decode step took."""
    times = [
        (at.number(run, "tokens", "decode"), at.number(run, "seconds", "decode"))
        for run in at.parts(SECTION, "decode")
    ]
    steps = [seconds / tokens for tokens, seconds in times if tokens and seconds is not None]
    longest = max(steps, default=0.0) * (1 + _ROUNDING)
    found = {
        name: [at.number(one, name, "stages", told=True) or 0 for one in stages]
        for name in ("compute", "seam_latency", "queue", "backend_timing")
    }
    spent = sum(found["compute"]) + sum(found["seam_latency"])
    # A stage waits while the others compute, and its backend counts a part of its compute.
    alone = max(found["queue"] + found["backend_timing"], default=0)
    if steps and max(spent, alone) > longest:
        text = f"the stages tell of {max(spent, alone):g} s a step, and a step took {max(steps):g}"
        at.fail("contradictory", text)


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
        unknown = [one for one in inner.problems if one.code in UNKNOWN]
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
    if named is not None and (
        not all(isinstance(one, str) for one in named) or set(named) != machines
    ):
        at.fail("other-hardware", f"labelled {list(named)}, measured on {sorted(machines)}")
