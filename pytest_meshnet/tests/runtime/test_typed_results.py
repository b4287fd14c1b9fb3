"""Sessions that agreed on features of 1.1, as the driver of the suites shows them."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailWant
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.trace import describe
from pytest_meshnet.tests.runtime.test_shard import shard_of

EVERY = tuple(Feature)


def test_a_tail_result_is_returned_and_its_logits_are_rows() -> None:
    shard = shard_of((2, 4))
    plain = shard.undisturbed(shard.tokens(3))
    with shard.session(features=EVERY, sampling=SamplingContract(want=TailWant.BOTH)) as session:
        exchange = session.send_unit(session.client.chunk([shard.tokens(3)]))
        result = session.tail(exchange)
        assert result.position == 2
        assert result.token is not None
        assert session.result(exchange).tolist() == plain.tolist()
        assert int(plain.argmax()) == result.token.token_id


def test_a_token_alone_has_no_rows() -> None:
    shard = shard_of((2, 4))
    with shard.session(features=EVERY, sampling=SamplingContract()) as session:
        assert session.prefill(shard.tokens(3)).shape == (0, 0)
        assert session.client.past_len == 3


def test_a_unit_without_a_typed_result_is_a_finding() -> None:
    shard = shard_of((1, 3))
    with shard.session(features=EVERY) as session:
        assert session.client.features == {Feature.DECODE_BUNDLE, Feature.BOUNDARY_SPEC}
        exchange = session.send_unit(session.client.chunk([shard.tokens(2)]))
        with pytest.raises(Nonconformance, match="0 tail results"):
            session.tail(exchange)


def test_a_sequence_of_tensors_is_decoded_as_a_bundle() -> None:
    shard = shard_of((1, 3))
    tokens = shard.tokens(4)
    expected = shard.undisturbed(tokens.rows(0, 3), tokens.rows(3, 4))
    with shard.session(features=EVERY) as session:
        session.prefill(tokens.rows(0, 3))
        row = session.decode([tokens.rows(3, 4)])
    assert row.tolist() == expected[3:].tolist()


def test_the_trace_shows_what_1_1_adds() -> None:
    opened = pb.SessionRequest(open=pb.SessionOpen(features=[1, 2, 77]))
    assert "features=[DECODE_BUNDLE, TAIL_RESULT, unknown(77)]" in describe(opened)
    assert "features" not in describe(pb.SessionRequest(open=pb.SessionOpen()))
    step = pb.DecodeStep(work_id="w")
    assert "neither tensor nor bundle" in describe(pb.SessionRequest(decode=step))
    step.bundle.tensors.add(name="hidden_states", dtype=pb.DTYPE_BFLOAT16, shape=[1, 1, 8])
    assert "[hidden_states:bfloat16[1, 1, 8]]" in describe(pb.SessionRequest(decode=step))
    step.tensor.name = "x"
    assert " and [" in describe(pb.SessionRequest(decode=step))
    result = pb.TailResult(work_id="w", position=4, token=pb.SampledToken(token_id=9))
    assert "position=4 token=9" in describe(pb.SessionResponse(tail=result))
