"""The messages that a seam's client makes: legal by default, and false only where a test asks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.tests.protocol.answers import FINGERPRINT, RANGE, opened, rows, sent


def test_by_default_units_follow_each_other() -> None:
    client = opened()
    sent(client, client.chunk([rows(3)], final=False, place=(0, 2)))
    message = client.chunk([rows(2)], place=(1, 2), deadline=7)
    envelope = message.chunk.envelope
    assert envelope.position == pb.PositionSpan(first_position=3, token_count=2)
    assert envelope.cache_expectation.expected_past_len == 3
    assert envelope.chunk == pb.ChunkInfo(chunk_index=1, chunk_count=2, final_chunk=True)
    assert (envelope.phase, envelope.cache_expectation.mode) == (
        pb.PHASE_PREFILL,
        pb.CACHE_MODE_PREFILL,
    )
    assert (envelope.route_session_id, envelope.route_epoch) == ("rs", 3)
    assert (envelope.fingerprint, envelope.shard_range) == (FINGERPRINT, RANGE)
    assert (envelope.work_id, envelope.idempotency_step) == ("w2", 2)
    assert (envelope.schema_version, envelope.deadline_unix_nanos) == (pb.SCHEMA_VERSION_1, 7)


@pytest.mark.parametrize("kwargs", [{"fresh": True}, {"mode": pb.CACHE_MODE_STATELESS}])
def test_a_fresh_prefill_and_stateless_work_begin_at_zero(kwargs: dict[str, int]) -> None:
    client = opened()
    sent(client, client.chunk([rows(3)]))
    envelope = client.chunk([rows(1)], **kwargs).chunk.envelope
    assert envelope.position.first_position == envelope.cache_expectation.expected_past_len == 0


def test_both_forms_of_a_decode_step_say_the_same() -> None:
    client = opened()
    sent(client, client.chunk([rows(3)]))
    small = client.decode(rows(1), step=7, work_id="d", deadline=9).decode
    full = client.decode(rows(1), full=True, step=7, work_id="d", deadline=9).chunk
    envelope = full.envelope
    assert (small.work_id, small.idempotency_step, small.deadline_unix_nanos) == ("d", 7, 9)
    assert (envelope.work_id, envelope.idempotency_step) == ("d", 7)
    assert envelope.deadline_unix_nanos == 9
    assert small.expected_past_len == small.position == 3
    assert envelope.cache_expectation.expected_past_len == envelope.position.first_position == 3
    assert envelope.phase == pb.PHASE_DECODE
    assert envelope.cache_expectation.mode == pb.CACHE_MODE_DECODE
    assert full.bundle.tensors[0] == small.tensor
    wrong = {"expected": 5, "position": 4}
    small = client.decode(rows(1), **wrong).decode
    envelope = client.decode(rows(1), full=True, **wrong).chunk.envelope
    assert (small.expected_past_len, small.position) == (5, 4)
    assert envelope.cache_expectation.expected_past_len == 5
    assert envelope.position.first_position == 4


@given(
    tokens=st.integers(1, 40),
    width=st.integers(1, 512),
    bound=st.integers(1, 12),
    most=st.none() | st.integers(1, 20),
)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_every_planned_chunk_fits_the_settled_limits(
    tokens: int, width: int, bound: int, most: int | None
) -> None:
    client = opened(prefill_tokens=bound)
    states = np.zeros((1, tokens, width), dtype=np.float32)
    tensor = Tensor.from_float32("hidden_states", states, DType.FLOAT32)
    spans = client.plan([tensor], most)
    for span in spans:
        message = client.chunk([tensor.rows(span.first, span.first + span.count)])
        assert message.ByteSize() <= 4096
        assert span.count <= min(bound, most or bound)
    assert sum(span.count for span in spans) == tokens


def test_an_empty_prefill_is_not_planned() -> None:
    with pytest.raises(ProtocolError, match="at least one"):
        opened().plan([rows(0)])
