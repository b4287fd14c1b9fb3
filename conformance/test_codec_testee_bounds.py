"""CODEC-08 to 10 on the runtime's own codec: fragments, bundles and whole messages are bounded."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.codec_testee import CodecTestee
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_inputs import MAX_CHUNK, MIB, patterned, written, zeros_in
from .testee_asking import (
    bundled,
    check_refused,
    decoded,
    encode_request,
    result_of,
    tensors_request,
)
from .wire_inputs import REQUEST, published

# CODEC-08 ---------------------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-08")
@pytest.mark.parametrize(
    ("sizes", "legal"),
    [
        ([1] * 64, True),
        ([1] * 65, False),
        ([1] * 1000, False),
        ([MIB], True),
        ([MIB, MIB - 1, 1], True),
        ([MIB + 1], False),
        ([1, 1, MIB + 1], False),
        ([3 * MIB], False),
    ],
    ids=["64", "65", "1000", "1-MiB", "mix", "1-MiB+1", "last-too-long", "3-MiB"],
)
def test_fragments_are_bounded_in_number_and_size(
    codec_testee: CodecTestee, sizes: list[int], legal: bool
) -> None:
    """64 of them, and 1 MiB each; everything else about the tensor is right."""
    what, data = f"{len(sizes)} fragments of up to {max(sizes)} bytes", bundled(zeros_in(sizes))
    if not legal:
        check_refused(codec_testee, what, tensors_request(data), "fragment-count")
        return
    (found,) = decoded(codec_testee, what, data)
    if found.data != bytes(sum(sizes)):
        raise Nonconformance(f"{sum(sizes)} zeros", f"{len(found.data)} other bytes")


@pytest.mark.requirement("CODEC-08")
@pytest.mark.parametrize(
    ("size", "fragment_bytes"), [(4, 0), (4, MIB + 1), (65, 1), (640, 9), (64 * 1024 + 1, 1024)]
)
def test_the_encoder_refuses_fragments_out_of_bounds(
    codec_testee: CodecTestee, size: int, fragment_bytes: int
) -> None:
    """A size no fragment may have, or one that needs more than 64 of them."""
    tensor = Tensor("hidden_states", DType.UINT8, (size,), patterned(size))
    what = f"{size} bytes in fragments of {fragment_bytes}"
    request = encode_request([tensor], fragment_bytes=fragment_bytes)
    check_refused(codec_testee, what, request, "fragment-count")


# CODEC-09 ---------------------------------------------------------------------------------------


def _named(*names: str) -> list[Tensor]:
    return [Tensor(name, DType.UINT8, (1,), b"x") for name in names]


@pytest.mark.requirement("CODEC-09")
@pytest.mark.parametrize(
    ("names", "rule"),
    [
        ([], ""),
        ([f"t{index}" for index in range(64)], ""),
        ([f"t{index}" for index in range(65)], "tensor-count"),
        ([f"t{index}" for index in range(1000)], "tensor-count"),
        (["", "b"], "tensor-name"),
        (["a", ""], "tensor-name"),
        (["a", "a"], "duplicate-name"),
        (["a", "b", "a"], "duplicate-name"),
        (["a", "A", "ä"], ""),
    ],
    ids=["0", "64", "65", "1000", "first-unnamed", "last-unnamed", "twice", "apart", "look-alikes"],
)
def test_tensors_of_a_bundle_are_bounded_and_named(
    codec_testee: CodecTestee, names: list[str], rule: str
) -> None:
    """At most 64, each with a name of its own, at decode and at encode."""
    what = f"{len(names)} tensors named {names[:3]}"
    data = bundled(*(written(b"x", name=name) for name in names))
    requests = tensors_request(data), encode_request(_named(*names))
    if rule:
        for request in requests:
            check_refused(codec_testee, what, request, rule)
        return
    found = [one.name for one in decoded(codec_testee, what, data)]
    if found != names:
        raise Nonconformance(f"the tensors {names[:5]}... in order", f"{found[:5]}...")
    result_of(codec_testee, what, requests[1])


@pytest.mark.requirement("CODEC-09")
@pytest.mark.parametrize("sizes", [[1001], [500, 501], [0, 1, 1000], [250] * 5], ids=str)
def test_a_bundle_above_the_negotiated_size_is_refused(
    codec_testee: CodecTestee, sizes: list[int]
) -> None:
    """Tensors that fit 1,000 bytes one by one and not together; at their sum and 1 KiB they do."""
    data = bundled(*(written(bytes(size), name=f"t{at}") for at, size in enumerate(sizes)))
    what = f"{sizes} bytes at a bound of"
    roomy = sum(sizes) + 1024  # Whether the framing of a lone bundle counts is left open.
    decoded(codec_testee, f"{what} {roomy}", data, bound=roomy)
    request = tensors_request(data, bound=1000)
    check_refused(codec_testee, f"{what} 1000", request, "bundle-bytes")


# CODEC-10 ---------------------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-10")
@pytest.mark.parametrize("message", ["SessionRequest", "SessionResponse"])
@pytest.mark.parametrize("below", [1, 300, 539])
def test_the_bound_holds_for_the_whole_serialized_message(
    codec_testee: CodecTestee, message: str, below: int
) -> None:
    """The golden chunk: 2,587 bytes around 2,048 of payload, at its size and below it."""
    data = published(REQUEST)  # A chunk has number 2 in both directions.
    size = len(data)
    decoded(codec_testee, f"{size} bytes at {size}", data, message, size)
    request = tensors_request(data, message, size - below)
    check_refused(codec_testee, f"{size} bytes at {size - below}", request, "message-bytes")


@pytest.mark.requirement("CODEC-10")
def test_a_decode_step_is_bounded_as_a_whole(codec_testee: CodecTestee) -> None:
    """A step with a long work id and sixteen bytes of payload."""
    step = pb.DecodeStep(work_id="w" * 500, tensor=written(bytes(16)))
    data = pb.SessionRequest(decode=step).SerializeToString()
    decoded(codec_testee, "a step at its size", data, "SessionRequest", len(data))
    request = tensors_request(data, "SessionRequest", len(data) - 1)
    check_refused(codec_testee, "a step one byte above the bound", request, "message-bytes")


@pytest.mark.requirement("CODEC-10")
def test_a_bundle_that_fills_4_mib_leaves_no_room_for_its_envelope(
    codec_testee: CodecTestee,
) -> None:
    """Four fragments of 1 MiB are a legal bundle, and too long for any stream message."""
    bundle = pb.TensorBundle(bundle_version=1, tensors=[zeros_in([MIB] * 4)])
    data = pb.SessionRequest(chunk=pb.ActivationChunk(bundle=bundle)).SerializeToString()
    request = tensors_request(data, "SessionRequest", MAX_CHUNK)
    check_refused(codec_testee, "a message above 4 MiB", request, "message-bytes")
