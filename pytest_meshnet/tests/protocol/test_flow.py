"""Laws of settlement and planning that hold for all numbers."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.flow import DEFAULT_LIMITS, FlowLimits, plan_prefill, settle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.tests.protocol.laws import law

numbers = st.integers(0, 10) | st.integers(0, 2**32 - 1)
limits = st.builds(FlowLimits, numbers, numbers, numbers, numbers)
FIELDS = ("credits", "inflight", "chunk_bytes", "prefill_tokens")


@law(mine=limits, theirs=limits)
def test_both_sides_settle_on_the_same(mine, theirs):
    assert settle(mine, theirs) == settle(theirs, mine)


@law(mine=limits, theirs=limits)
def test_what_was_settled_stays_settled(mine, theirs):
    settled = settle(mine, theirs)
    assert settle(settled, settled) == settled
    assert settle(mine, settled) == settled
    assert settle(settled, FlowLimits()) == settled


@law(mine=limits, theirs=limits)
def test_nobody_is_asked_for_more_than_it_offered(mine, theirs):
    settled = settle(mine, theirs)
    for name in FIELDS:
        assert getattr(settled, name) > 0
        for side in (mine, theirs):
            assert getattr(side, name) == 0 or getattr(settled, name) <= getattr(side, name)
    assert settled.credits <= settled.inflight


@law(one=limits, two=limits, three=limits)
def test_a_third_side_could_join_in_any_order(one, two, three):
    # Defaults come in where two of three are silent, so only stated limits can be associative.
    stated = [
        FlowLimits(*(getattr(side, name) or 1 for name in FIELDS)) for side in (one, two, three)
    ]
    first = settle(settle(stated[0], stated[1]), stated[2])
    assert first == settle(stated[0], settle(stated[1], stated[2]))


def test_two_silent_sides_settle_on_the_defaults():
    assert settle(FlowLimits(), FlowLimits()) == DEFAULT_LIMITS
    assert FlowLimits(8, 8, 4 * 1024 * 1024, 128) == DEFAULT_LIMITS


@law(given=limits)
def test_limits_survive_the_wire(given):
    message = pb.FlowControl.FromString(given.to_proto().SerializeToString())
    assert FlowLimits.from_proto(message) == given


def test_each_limit_has_its_own_field_on_the_wire():
    expected = pb.FlowControl(
        credits_granted=1, max_inflight_chunks=2, max_chunk_bytes=3, max_prefill_chunk_tokens=4
    )
    assert FlowLimits(1, 2, 3, 4).to_proto() == expected
    assert FlowLimits.from_proto(pb.FlowControl()) == FlowLimits()


plans = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(1, 300),
        "max_bytes": st.integers(1, 2**23),
        "bytes_per_token": st.integers(0, 100_000),
        "framing_bytes": st.integers(0, 8192),
    }
)


def _room(bounds):
    """Bytes for payload in a chunk; the codec takes no message above 4 MiB."""
    return min(bounds["max_bytes"], 4 * 1024 * 1024) - bounds["framing_bytes"]


def _fits(bounds):
    """Whether at least one token can be sent."""
    return bounds["bytes_per_token"] == 0 or bounds["bytes_per_token"] <= _room(bounds)


fitting_plans = plans.filter(_fits)


@law(tokens=st.integers(1, 4000), bounds=plans.filter(lambda bounds: not _fits(bounds)))
def test_a_token_that_does_not_fit_is_refused(tokens, bounds):
    with pytest.raises(ProtocolError, match="do not fit") as found:
        plan_prefill(tokens, **bounds)
    assert found.value.rule == "chunk-bytes"


@law(tokens=st.integers(1, 4000), bounds=fitting_plans)
def test_all_chunks_but_the_last_are_equal_and_as_large_as_they_may_be(tokens, bounds):
    spans = plan_prefill(tokens, **bounds)
    largest = spans[0].count
    assert {span.count for span in spans[:-1]} <= {largest}
    assert 0 < spans[-1].count <= largest
    assert largest <= bounds["max_tokens"]
    one_more_fits = (largest + 1) * bounds["bytes_per_token"] <= _room(bounds)
    if bounds["bytes_per_token"] == 0 or one_more_fits:
        assert largest in (tokens, bounds["max_tokens"])


@law(tokens=st.integers(1, 4000), bounds=fitting_plans)
def test_every_token_is_in_exactly_one_chunk_and_the_last_is_final(tokens, bounds):
    spans = plan_prefill(tokens, **bounds)
    positions = [at for span in spans for at in range(span.first, span.first + span.count)]
    assert positions == list(range(tokens))
    assert [span.final for span in spans] == [False] * (len(spans) - 1) + [True]


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_a_token_bound_of_nothing_is_refused(max_tokens):
    with pytest.raises(ProtocolError, match=f"max_tokens is {max_tokens}") as found:
        plan_prefill(5, max_tokens=max_tokens)
    assert found.value.rule == "chunk-bytes"


@pytest.mark.parametrize("tokens", [0, -3])
def test_an_empty_prefill_is_refused_whatever_its_bounds(tokens):
    with pytest.raises(ProtocolError, match="at least one is needed") as found:
        plan_prefill(tokens, max_tokens=0, bytes_per_token=10**9)
    assert found.value.rule == "empty-prefill"
