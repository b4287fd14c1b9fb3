"""CODEC-12 and 13: limits that both sides can keep, and a prefill that is cut to them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.codec import decode_bundle
from pytest_meshnet.protocol.flow import FlowLimits, Span, plan_prefill, settle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_inputs import MAX_CHUNK, MIB, accepted, refused

# CODEC-12: settlement ---------------------------------------------------------------------------

# Each limit by its wire name, with the default that the protocol gives it.
DEFAULTS = {
    "credits_granted": 8,
    "max_inflight_chunks": 8,
    "max_chunk_bytes": MAX_CHUNK,
    "max_prefill_chunk_tokens": 128,
}
BOUNDS = [name for name in DEFAULTS if name != "credits_granted"]


def _settled(mine: dict[str, int], theirs: dict[str, int]) -> dict[str, int]:
    """Settle two FlowControl messages and read the result as the wire carries it."""
    limits = settle(
        FlowLimits.from_proto(pb.FlowControl(**mine)),
        FlowLimits.from_proto(pb.FlowControl(**theirs)),
    )
    message = pb.FlowControl.FromString(limits.to_proto().SerializeToString())
    return {name: getattr(message, name) for name in DEFAULTS}


def _check_settled(name: str, expected: int, mine: dict[str, int], theirs: dict[str, int]) -> None:
    for one, other in ((mine, theirs), (theirs, mine)):
        found = _settled(one, other)[name]
        if found != expected:
            raise Nonconformance(f"{name} {expected} of {one} and {other}", f"{found}")


@pytest.mark.requirement("CODEC-12")
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize(("mine", "theirs", "strictest"), [(4, 7, 4), (7, 7, 7), (1, 9000, 1)])
def test_the_strictest_bound_wins(name: str, mine: int, theirs: int, strictest: int) -> None:
    """Whichever side has it: settling gives the same from both."""
    _check_settled(name, strictest, {name: mine}, {name: theirs})


@pytest.mark.requirement("CODEC-12")
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("bound", [1, 5, 2**31])
def test_a_zero_is_no_bound(name: str, bound: int) -> None:
    """A side without a preference takes that of the other, above the default as well as below."""
    _check_settled(name, bound, {name: bound}, {})


@pytest.mark.requirement("CODEC-12")
@pytest.mark.parametrize("name", DEFAULTS)
def test_two_zeros_settle_to_the_default(name: str) -> None:
    """8 credits, 8 in flight, 4 MiB, 128 tokens."""
    _check_settled(name, DEFAULTS[name], {}, {})


@pytest.mark.requirement("CODEC-12")
@pytest.mark.parametrize(
    ("mine", "theirs", "credits"),
    [
        ({"credits_granted": 3}, {"credits_granted": 5}, 3),
        ({"credits_granted": 3}, {}, 3),
        ({"credits_granted": 6, "max_inflight_chunks": 2}, {}, 2),
        ({"credits_granted": 6}, {"max_inflight_chunks": 2}, 2),
        ({"credits_granted": 20}, {"credits_granted": 30}, 8),
        ({"max_inflight_chunks": 3}, {}, 3),
        ({"max_inflight_chunks": 20}, {"max_inflight_chunks": 30}, 8),
        ({"credits_granted": 2**32 - 1, "max_inflight_chunks": 100}, {}, 100),
    ],
)
def test_initial_credits_stay_within_the_in_flight_limit(
    mine: dict[str, int], theirs: dict[str, int], credits: int
) -> None:
    """A credit that may not be used is an invitation to break the other bound."""
    _check_settled("credits_granted", credits, mine, theirs)


limit_values = st.fixed_dictionaries(
    {
        "credits_granted": st.integers(0, 12) | st.integers(0, 2**32 - 1),
        "max_inflight_chunks": st.integers(0, 12) | st.integers(0, 2**32 - 1),
        "max_chunk_bytes": st.integers(0, 9) | st.integers(0, 2**63),
        "max_prefill_chunk_tokens": st.integers(0, 200) | st.integers(0, 2**32 - 1),
    }
)


@pytest.mark.requirement("CODEC-12")
@given(mine=limit_values, theirs=limit_values)
@settings(max_examples=200)
def test_any_two_peers_settle_on_what_both_can_keep(
    mine: dict[str, int], theirs: dict[str, int]
) -> None:
    """Non-zero, never above a bound of either, and no stricter than it must be."""
    found = _settled(mine, theirs)
    if found != _settled(theirs, mine):
        raise Nonconformance(f"{found} from both sides", f"{_settled(theirs, mine)}")
    for name, value in found.items():
        stated = [bound for bound in (mine[name], theirs[name]) if bound]
        allowed = [*stated] or [DEFAULTS[name]]
        if name == "credits_granted":
            allowed.append(found["max_inflight_chunks"])
        if value == 0 or value != sorted(allowed)[0]:
            raise Nonconformance(f"{name}: the least of {allowed}", f"{value}")


# CODEC-13: planning -----------------------------------------------------------------------------


def _check_plan(tokens: int, spans: tuple[Span, ...], max_tokens: int) -> None:
    """Contiguous from 0 to the end, non-empty, within the bound, final on the last only."""
    position = 0
    for index, span in enumerate(spans):
        if span.first != position or span.count < 1:
            raise Nonconformance(f"chunk {index} begins at {position}", f"{span}")
        if span.count > max_tokens:
            raise Nonconformance(f"at most {max_tokens} tokens a chunk", f"{span}")
        if span.final != (index == len(spans) - 1):
            raise Nonconformance("only the last chunk is final", f"{spans}")
        position += span.count
    if position != tokens:
        raise Nonconformance(f"{tokens} tokens in all", f"{position}")


# faults.md 179
@pytest.mark.requirement("CODEC-13")
@pytest.mark.parametrize(
    ("tokens", "max_tokens", "counts"),
    [
        (300, 128, [128, 128, 44]),
        (256, 128, [128, 128]),
        (128, 128, [128]),
        (129, 128, [128, 1]),
        (1, 128, [1]),
        (5, 1, [1, 1, 1, 1, 1]),
    ],
)
def test_a_prefill_is_split_on_token_boundaries(
    tokens: int, max_tokens: int, counts: list[int]
) -> None:
    """300 tokens at 128 are 128, 128 and 44, the last of which is final."""
    spans = plan_prefill(tokens, max_tokens=max_tokens)
    _check_plan(tokens, spans, max_tokens)
    found = [span.count for span in spans]
    if found != counts:
        raise Nonconformance(f"{counts}", f"{found}")


@pytest.mark.requirement("CODEC-13")
def test_the_default_token_bound_is_128() -> None:
    """Where nobody says otherwise, as in the published capability report."""
    found = [span.count for span in plan_prefill(300)]
    if found != [128, 128, 44]:
        raise Nonconformance("[128, 128, 44]", f"{found}")


@pytest.mark.requirement("CODEC-13")
@pytest.mark.parametrize("tokens", [0, -1])
def test_an_empty_prefill_is_refused(tokens: int) -> None:
    """By the planner, and by the client for tensors without a row."""
    refused(f"a prefill of {tokens}", lambda: plan_prefill(tokens))
    client = _client(MAX_CHUNK, 128)
    empty = Tensor("hidden_states", DType.BFLOAT16, (1, 0, 8), b"")
    refused("a prefill without a row", lambda: client.plan([empty]))


def _client(max_chunk_bytes: int, max_tokens: int, session: str = "rs-2b91") -> SeamClient:
    """The suite's client, on a stream that was accepted with these limits."""
    seam = Seam(
        session,
        7,
        pb.Fingerprint(
            model_artifact_digest="sha256:" + "1f" * 32,
            runtime_recipe_digest="sha256:" + "ab" * 32,
            recipe_id="llama-gguf-q4km-rocm",
            recipe_version="3",
            catalogue_version="2026.07.1",
        ),
        pb.ShardRange(start_layer=12, end_layer=24, effective_start_layer=16),
    )
    client = SeamClient(seam)
    flow = pb.FlowControl(
        credits_granted=8,
        max_inflight_chunks=8,
        max_chunk_bytes=max_chunk_bytes,
        max_prefill_chunk_tokens=max_tokens,
    )
    client.receive(pb.SessionResponse(accepted=pb.SessionAccepted(flow_control=flow)))
    return client


def _activations(tokens: int, hidden: int, dtype: DType, sideband: int) -> list[Tensor]:
    """Hidden states [1, tokens, hidden] and, when there is one, the sideband of that width."""
    size = tokens * hidden * dtype.item_size
    tensors = [Tensor("hidden_states", dtype, (1, tokens, hidden), bytes(size))]
    if sideband:
        data = bytes(4 * tokens * sideband)
        tensors.append(Tensor("topk_indices", DType.INT32, (1, tokens, sideband), data))
    return tensors


def _framed_sizes(client: SeamClient, tensors: list[Tensor], spans: tuple[Span, ...]) -> list[int]:
    """Bytes of every planned message as the client would put it on the wire."""
    sizes = []
    for index, span in enumerate(spans):
        rows = [tensor.rows(span.first, span.first + span.count) for tensor in tensors]
        message = accepted(
            f"the planned {span}",
            lambda rows=rows, span=span, index=index: client.chunk(
                rows,
                final=span.final,
                first=span.first,
                expected=span.first,
                step=2**63 + index,
                deadline=2**62,
                place=(index, len(spans)),
            ),
        )
        carried = accepted(
            f"the planned {span}", lambda message=message: decode_bundle(message.chunk.bundle)
        )
        if [one.shape[1] for one in carried] != [span.count] * len(tensors):
            raise Nonconformance(f"{span.count} rows", f"{[one.shape for one in carried]}")
        sizes.append(len(message.SerializeToString()))
    return sizes


def _check_framed(client: SeamClient, tensors: list[Tensor]) -> tuple[Span, ...]:
    """Plan, frame and measure. Returns the plan."""
    tokens, bound = tensors[0].shape[1], client.limits.chunk_bytes
    spans = accepted(f"{tokens} tokens at {bound} bytes", lambda: client.plan(tensors))
    _check_plan(tokens, spans, client.limits.prefill_tokens)
    sizes = _framed_sizes(client, tensors, spans)
    if max(sizes) > min(bound, MAX_CHUNK):
        raise Nonconformance(f"messages of at most {min(bound, MAX_CHUNK)} bytes", f"{sizes}")
    return spans


@pytest.mark.requirement("CODEC-13")
@pytest.mark.parametrize(
    ("tokens", "hidden", "dtype", "sideband"),
    [
        (128, 6144, DType.FLOAT32, 2048),  # 4 MiB to the byte, before any framing
        (128, 8192, DType.FLOAT32, 0),
        (128, 6144, DType.FLOAT32, 0),
        (300, 8192, DType.FLOAT16, 0),  # 4.9 MB: once failed every time on a hop between servers
        (129, 16384, DType.BFLOAT16, 64),
        (2, 512 * 1024, DType.FLOAT32, 0),
        (3, MAX_CHUNK // 2 - 1024, DType.BFLOAT16, 0),
    ],
)
def test_a_framed_chunk_fits_4_mib(tokens: int, hidden: int, dtype: DType, sideband: int) -> None:
    """128 tokens may be too many before the first byte of envelope is counted."""
    _check_framed(_client(MAX_CHUNK, 128), _activations(tokens, hidden, dtype, sideband))


@pytest.mark.requirement("CODEC-13")
@given(
    tokens=st.integers(1, 200),
    hidden=st.integers(1, 400),
    dtype=st.sampled_from([DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32]),
    sideband=st.integers(0, 64),
    max_tokens=st.integers(1, 256),
    spare=st.integers(0, 2000) | st.integers(0, 100_000),
    session=st.text("rs-0123456789", min_size=1, max_size=300),
)
@settings(max_examples=100)
def test_any_planned_chunk_fits_once_it_is_framed(
    *, tokens, hidden, dtype, sideband, max_tokens, spare, session
) -> None:
    """Any width, dtype, sideband and limits: measured on the messages of the suite's client."""
    per_token = hidden * dtype.item_size + 4 * sideband
    # Room for one token and its framing, so that a plan exists, and for `spare` bytes more.
    client = _client(per_token + 2048 + len(session) + spare, max_tokens, session)
    _check_framed(client, _activations(tokens, hidden, dtype, sideband))


@pytest.mark.requirement("CODEC-13")
@pytest.mark.parametrize(("max_bytes", "hidden"), [(100, 64), (4096, 4096), (MIB, 512 * 1024)])
def test_a_token_that_does_not_fit_is_refused(max_bytes: int, hidden: int) -> None:
    """A token cannot be split; sending it anyway would break the bound."""
    client = _client(max_bytes, 128)
    tensors = _activations(2, hidden, DType.BFLOAT16, 0)
    refused(f"2 bytes x {hidden} at {max_bytes}", lambda: client.plan(tensors))


@pytest.mark.requirement("CODEC-13")
@pytest.mark.parametrize("max_bytes", [MAX_CHUNK + 1, 16 * MIB, 2**40])
def test_a_larger_bound_of_a_peer_does_not_lift_that_of_the_codec(max_bytes: int) -> None:
    """Whatever was settled, no receiver takes a message above 4 MiB."""
    _check_framed(_client(max_bytes, 128), _activations(128, 16384, DType.FLOAT32, 0))


@pytest.mark.requirement("CODEC-13")
@given(
    tokens=st.integers(1, 5000),
    max_tokens=st.integers(1, 300),
    max_bytes=st.integers(1, MAX_CHUNK),
    per_token=st.integers(0, 70_000),
    framing=st.integers(0, 8192),
)
@settings(max_examples=200)
def test_any_plan_is_contiguous_and_within_both_bounds(
    tokens, max_tokens, max_bytes, per_token, framing
) -> None:
    """The arithmetic by itself, for more tokens than a test would send."""
    arguments = {
        "max_tokens": max_tokens,
        "max_bytes": max_bytes,
        "bytes_per_token": per_token,
        "framing_bytes": framing,
    }
    if per_token and per_token + framing > max_bytes:
        refused(f"{arguments}", lambda: plan_prefill(tokens, **arguments))
        return
    spans = accepted(f"{arguments}", lambda: plan_prefill(tokens, **arguments))
    _check_plan(tokens, spans, max_tokens)
    most = max(span.count for span in spans)
    if per_token and most * per_token + framing > max_bytes:
        raise Nonconformance(f"at most {max_bytes} bytes", f"{most} tokens of {per_token}")
