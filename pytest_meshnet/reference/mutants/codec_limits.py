"""Suite mutants of CODEC-12 and 13: limits that one side cannot keep, and plans that break them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

from pytest_meshnet.protocol import flow
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.flow import FlowLimits, Span
from pytest_meshnet.reference.catalogue import suite_mutant
from pytest_meshnet.reference.mutants.patching import replace

# CODEC-12 ----------------------------------------------------------------------------------------


@suite_mutant("CODEC-12")
def limits_of_the_looser_side() -> None:
    """The larger bound wins."""
    replace(flow, "_strictest", lambda mine, theirs, default: max(mine, theirs) or default)


@suite_mutant("CODEC-12")
def limits_of_our_side() -> None:
    """The peer's bound counts only where we have none."""
    replace(flow, "_strictest", lambda mine, theirs, default: mine or theirs or default)


@suite_mutant("CODEC-12")
def limits_where_zero_is_strictest() -> None:
    """A side without a preference forbids everything."""
    replace(flow, "_strictest", lambda mine, theirs, _: min(mine, theirs))


@suite_mutant("CODEC-12")
def limits_without_defaults() -> None:
    """Two zeros settle to zero."""
    right = flow._strictest
    replace(flow, "_strictest", lambda mine, theirs, _: right(mine, theirs, 0))


@suite_mutant("CODEC-12")
def limits_that_never_exceed_the_defaults() -> None:
    """The default is a bound of its own."""
    right = flow._strictest
    replace(
        flow,
        "_strictest",
        lambda mine, theirs, default: min(default, right(mine, theirs, default)),
    )


@suite_mutant("CODEC-12")
def limits_with_credits_to_spare() -> None:
    """Initial credits may exceed what may be in flight."""
    right = flow.settle

    def settle(mine: FlowLimits, theirs: FlowLimits) -> FlowLimits:
        credit = flow._strictest(mine.credits, theirs.credits, flow.DEFAULT_CREDITS)
        return changed(right(mine, theirs), credits=credit)

    replace(flow, "settle", settle)


# CODEC-13 ----------------------------------------------------------------------------------------

Plan = tuple[Span, ...]


def _planning(bend: Callable[[Plan], Plan]) -> None:
    """Let the planner return what `bend` makes of its plan."""
    right = flow.plan_prefill
    replace(flow, "plan_prefill", lambda *given, **bounds: bend(right(*given, **bounds)))


def _planning_with(**forced: Any) -> None:
    """Let the planner see other bounds than it was given."""
    right = flow.plan_prefill
    replace(flow, "plan_prefill", lambda *given, **bounds: right(*given, **(bounds | forced)))


@suite_mutant("CODEC-13")
def plan_without_bytes() -> None:
    """Only tokens are counted."""
    _planning_with(bytes_per_token=0)


@suite_mutant("CODEC-13")
def plan_without_framing() -> None:
    """Payload may fill the message to its last byte."""
    _planning_with(framing_bytes=0)


@suite_mutant("CODEC-13")
def plan_without_a_token_bound() -> None:
    """Only bytes are counted."""
    _planning_with(max_tokens=10**6)


@suite_mutant("CODEC-13")
def plan_that_trusts_a_peer_with_more_than_4_mib() -> None:
    """The settled bound is taken, even above that of the codec."""
    replace(flow, "MAX_CHUNK_BYTES", 2**62)


@suite_mutant("CODEC-13")
def plan_of_final_chunks() -> None:
    """Every chunk is the last."""
    _planning(lambda plan: tuple(changed(span, final=True) for span in plan))


@suite_mutant("CODEC-13")
def plan_without_an_end() -> None:
    """No chunk is the last."""
    _planning(lambda plan: tuple(changed(span, final=False) for span in plan))


@suite_mutant("CODEC-13")
def plan_that_repeats_a_token() -> None:
    """Each chunk after the first begins with the last token of the one before."""
    _planning(
        lambda plan: tuple(
            changed(span, first=span.first - 1, count=span.count + 1) if span.first else span
            for span in plan
        )
    )


@suite_mutant("CODEC-13")
def plan_that_loses_the_rest() -> None:
    """Only whole chunks are sent; what is left over is not."""

    def whole(plan: Plan) -> Plan:
        kept = [span for span in plan if span.count == plan[0].count]
        return (*kept[:-1], changed(kept[-1], final=True))

    _planning(whole)


@suite_mutant("CODEC-13")
def plan_of_nothing() -> None:
    """A prefill without tokens is a plan without chunks."""
    right = flow.plan_prefill

    def plan(tokens: int, **bounds: Any) -> Plan:
        return right(tokens, **bounds) if tokens > 0 else ()

    replace(flow, "plan_prefill", plan)


@suite_mutant("CODEC-13")
def plan_that_sends_what_does_not_fit() -> None:
    """A token that is larger than the bound is sent by itself."""
    right = flow.plan_prefill

    def plan(tokens: int, **bounds: Any) -> Plan:
        try:
            return right(tokens, **bounds)
        except ProtocolError as error:
            if error.rule != "chunk-bytes":
                raise
            return tuple(Span(first, 1, first == tokens - 1) for first in range(tokens))

    replace(flow, "plan_prefill", plan)
