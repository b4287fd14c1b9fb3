"""A test whose situation never arose says so, and passes nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance import test_cancel, test_cancel_ends, test_prefill_envelope, test_side
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import NotProvoked
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.runtime.transport import Transport
from pytest_meshnet.tests.runtime.workers import small_shard


def quick(inner: Transport) -> Transport:
    """Let every unit be finished before a unary cancel is read."""
    assert isinstance(inner, InProcessTransport)
    right = inner.cancel

    def cancel(request: pb.CancelRequest, timeout: float) -> pb.CancelResponse:
        while inner.compute_one():
            continue
        return right(request, timeout)

    inner.cancel = cancel  # type: ignore[method-assign]
    return inner


def test_a_final_chunk_that_finishes_before_every_cancel_was_not_cancelled() -> None:
    check = test_cancel_ends.test_a_prefill_whose_final_chunk_was_cancelled_is_not_complete
    check(small_shard())
    with pytest.raises(NotProvoked, match="5 times"):
        check(small_shard(behind=quick))


@pytest.mark.parametrize("index", [0, 2], ids=["running", "queued"])
def test_a_unit_that_finishes_before_every_cancel_was_met_nowhere(index: int) -> None:
    shard = small_shard()
    with shard.session() as session:
        test_cancel._check_one_cancelled(shard, session, index)
    shard = small_shard(behind=quick)
    with shard.session() as session, pytest.raises(NotProvoked, match="before its cancel"):
        test_cancel._check_one_cancelled(shard, session, index)


def test_indices_are_passed_on_only_where_a_session_begins_behind_their_layer() -> None:
    check = test_side.test_a_range_of_shared_layers_passes_on_the_indices_it_was_given
    shard = small_shard(name="splitting")
    check(shard)
    shard.target.spec = replace(shard.target.spec, later_start=False)
    with pytest.raises(NotProvoked, match="no session can begin in the index group"):
        check(shard)


def test_one_start_alone_differs_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    check = test_prefill_envelope.test_every_effective_start_gives_another_result
    shard = small_shard(name="tail")
    monkeypatch.setattr(test_prefill_envelope, "starts_with_hidden_states", lambda shard: [3])
    with pytest.raises(NotProvoked, match="none to differ from"):
        check(shard)
