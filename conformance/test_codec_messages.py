"""CODEC-09 and 10: bounds of a bundle, and of the message that carries it."""

from __future__ import annotations

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.layout import folder
from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_inputs import MAX_CHUNK, MIB, accepted, patterned, refused, written


def _bundle(tensors: list[pb.NamedTensor]) -> pb.TensorBundle:
    return pb.TensorBundle(bundle_version=1, tensors=tensors)


def _small(count: int) -> list[Tensor]:
    return [Tensor(f"t{index}", DType.UINT8, (1,), bytes([index % 256])) for index in range(count)]


# CODEC-09: the bundle ---------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-09")
@pytest.mark.parametrize("count", [65, 66, 1000])
def test_more_than_64_tensors_are_refused(count: int) -> None:
    """Each is small and right; only their number is wrong."""
    bundle = _bundle([written(b"x", name=f"t{index}") for index in range(count)])
    refused(f"{count} tensors", lambda: codec.decode_bundle(bundle))
    refused(f"encoding {count} tensors", lambda: codec.encode_bundle(_small(count)))


@pytest.mark.requirement("CODEC-09")
@pytest.mark.parametrize("count", [0, 1, 2, 64])
def test_up_to_64_tensors_round_trip_in_order(count: int) -> None:
    """The bound itself is legal, and order is kept."""
    sent = _small(count)
    bundle = accepted(f"{count} tensors", lambda: codec.encode_bundle(sent))
    parsed = pb.TensorBundle.FromString(bundle.SerializeToString())
    found = accepted(f"{count} tensors", lambda: codec.decode_bundle(parsed))
    if list(found) != sent:
        raise Nonconformance(f"{[one.name for one in sent]}", f"{[one.name for one in found]}")


@pytest.mark.requirement("CODEC-09")
@pytest.mark.parametrize("place", [0, 1])
def test_an_unnamed_tensor_is_refused(place: int) -> None:
    """First or last in the bundle, and alone."""
    messages = [written(b"x", name="a"), written(b"x", name="b")]
    messages[place].name = ""
    refused("an unnamed tensor", lambda: codec.decode_bundle(_bundle(messages)))
    refused("an unnamed tensor alone", lambda: codec.decode_tensor(messages[place]))
    tensors = [Tensor("" if index == place else "a", DType.UINT8, (1,), b"x") for index in (0, 1)]
    refused("encoding an unnamed tensor", lambda: codec.encode_bundle(tensors))


@pytest.mark.requirement("CODEC-09")
@pytest.mark.parametrize("places", [(0, 1), (0, 2), (1, 2)], ids=str)
def test_a_duplicate_name_is_refused(places: tuple[int, int]) -> None:
    """Side by side or apart, with equal or other contents: the reader could take either."""
    for content in (b"x", b"y"):
        messages = [written(b"x", name=name) for name in "abc"]
        messages[places[1]] = written(content, name="abc"[places[0]])
        bundle = _bundle(messages)
        refused("two tensors of one name", lambda bundle=bundle: codec.decode_bundle(bundle))
        tensors = [
            Tensor(one.name, DType.UINT8, (1,), one.fragments[0].payload) for one in messages
        ]
        refused("encoding them", lambda tensors=tensors: codec.encode_bundle(tensors))


@pytest.mark.requirement("CODEC-09")
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    bound=st.integers(1, 200),
    packed=st.booleans(),
)
@settings(max_examples=80)
def test_a_bundle_above_the_negotiated_size_is_refused(
    sizes: list[int], bound: int, packed: bool
) -> None:
    """Tensors that fit one by one and not together, whatever compression makes of them."""
    bundle = codec.encode_bundle(
        [Tensor(f"t{i}", DType.UINT8, (n,), bytes(n)) for i, n in enumerate(sizes)],
        compression=pb.COMPRESSION_ZSTD if packed else pb.COMPRESSION_NONE,
    )
    body = sum(len(one.payload) for message in bundle.tensors for one in message.fragments)
    if max(sum(sizes), body) > bound:
        what = f"{sizes} at a bound of {bound}"
        refused(what, lambda: codec.decode_bundle(bundle, max_bytes=bound))
    else:
        accepted(f"{sizes} at {bound}", lambda: codec.decode_bundle(bundle, max_bytes=bound))


@pytest.mark.requirement("CODEC-09")
@pytest.mark.parametrize(("first", "fits"), [(3 * MIB, True), (3 * MIB + 1, False)])
def test_a_bundle_is_bounded_by_4_mib_where_nothing_was_negotiated(first: int, fits: bool) -> None:
    """Four megabytes in two tensors, and one byte more."""
    tensors = [
        Tensor("hidden_states", DType.UINT8, (first,), bytes(first)),
        Tensor("topk_indices", DType.UINT8, (MIB,), bytes(MIB)),
    ]
    messages = [codec.encode_tensor(tensor) for tensor in tensors]
    if fits:
        accepted("a bundle of 4 MiB", lambda: codec.decode_bundle(_bundle(messages)))
        accepted("encoding it", lambda: codec.encode_bundle(tensors))
    else:
        refused("a bundle of 4 MiB + 1", lambda: codec.decode_bundle(_bundle(messages)))
        refused("encoding it", lambda: codec.encode_bundle(tensors))


@pytest.mark.requirement("CODEC-09")
def test_wire_bodies_that_are_larger_than_what_they_hold_are_counted() -> None:
    """Empty zstd blocks cost three bytes and hold nothing: eight tensors of such padding."""
    frame = _padded_frame(b"x", 8000)
    messages = [written(b"x", name=f"t{index}", body=frame) for index in range(8)]
    fitting = _bundle(messages[:4])
    accepted("four of them", lambda: codec.decode_bundle(fitting, max_bytes=32000))
    bundle = _bundle(messages)
    refused(
        "64,000 bytes on the wire for 8 bytes of payload",
        lambda: codec.decode_bundle(bundle, max_bytes=32000),
    )


def _padded_frame(data: bytes, size: int) -> bytes:
    """A zstd frame of about `size` bytes: empty raw blocks, then one with the data."""
    header = bytes.fromhex("28b52ffd") + bytes([0x00, 0x58])  # no content size, 2 MiB window
    last = (len(data) << 3 | 1).to_bytes(3, "little") + data
    frame = header + bytes(3) * ((size - len(header) - len(last)) // 3) + last
    if zstandard.ZstdDecompressor().decompressobj().decompress(frame) != data:
        raise Nonconformance("a legal frame", "zstd does not read it", "correct this test")
    return frame


# CODEC-10: the message --------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-10")
def test_the_golden_message_needs_all_of_its_2587_bytes() -> None:
    """Its tensor has 2,048: a bound between the two refuses, one at the whole size does not."""
    message = pb.SessionRequest.FromString(
        (folder("goldens") / "session_request.binpb").read_bytes()
    )
    size = message.ByteSize()
    accepted("2587 bytes at 2587", lambda: codec.check_message_size(size, 2587))
    for bound in (2586, 2300, 2048, 1):
        refused(f"2587 bytes at {bound}", lambda bound=bound: codec.check_message_size(size, bound))


@pytest.mark.requirement("CODEC-10")
@given(
    tokens=st.integers(1, 64),
    session=st.text("abc", max_size=2000),
    step=st.integers(0, 2**63),
    short=st.integers(1, 400),
)
@settings(max_examples=60)
def test_the_bound_holds_for_the_whole_serialized_message(
    tokens: int, session: str, step: int, short: int
) -> None:
    """Any envelope counts, byte for byte: exactly at the bound is legal, below it is not."""
    tensor = Tensor("hidden_states", DType.BFLOAT16, (1, tokens, 8), patterned(16 * tokens))
    envelope = pb.Envelope(work_id="w", route_session_id=session, idempotency_step=step)
    chunk = pb.ActivationChunk(envelope=envelope, bundle=codec.encode_bundle([tensor]))
    size = len(pb.SessionRequest(chunk=chunk).SerializeToString())
    accepted(f"{size} at {size}", lambda: codec.check_message_size(size, size))
    accepted(f"{size} at {size + short}", lambda: codec.check_message_size(size, size + short))
    bound = max(1, size - short)
    refused(f"{size} at {bound}", lambda: codec.check_message_size(size, bound))


@pytest.mark.requirement("CODEC-10")
@pytest.mark.parametrize("bound", [MAX_CHUNK, 64 * 1024, 1024])
def test_a_bundle_that_fills_the_bound_leaves_no_room_for_its_envelope(bound: int) -> None:
    """The bundle alone passes the codec; the message around it must not pass."""
    tensor = Tensor("hidden_states", DType.UINT8, (1, 1, bound), bytes(bound))
    bundle = codec.encode_bundle([tensor])
    accepted("the bundle", lambda: codec.decode_bundle(bundle, max_bytes=bound))
    message = pb.SessionRequest(chunk=pb.ActivationChunk(bundle=bundle))
    refused("its message", lambda: codec.check_message_size(message.ByteSize(), bound))
