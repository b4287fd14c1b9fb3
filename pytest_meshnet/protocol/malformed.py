"""The corpus of malformed bundles: each breaks one rule of a correct bundle.

On the wire a case spoils a bundle that fits the Shard under test; for codecs the same cases are
stored as files, spoilt from the golden tensor (`python -m pytest_meshnet.protocol.malformed`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_meshnet.layout import folder
from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.compression import compress
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.goldens import golden_payload
from pytest_meshnet.protocol.tensors import DType, Tensor

INDEX = "index.json"

Spoil = Callable[[pb.TensorBundle], None]

# A codec ProtocolError is PAYLOAD_CORRUPT on the wire; what exceeds a limit may be called so.
CORRUPT = (pb.ERROR_CODE_PAYLOAD_CORRUPT,)
OVER_A_LIMIT = (
    pb.ERROR_CODE_PAYLOAD_CORRUPT,
    pb.ERROR_CODE_FLOW_CONTROL_VIOLATION,
    pb.ERROR_CODE_RESOURCE_EXHAUSTED,
)


@dataclass(frozen=True, slots=True)
class Malformed:
    """A case: `rule` as the codec names what is broken, `codes` that a worker may answer with."""

    name: str
    rule: str
    codes: tuple[int, ...]
    spoil: Spoil


_CASES: list[Malformed] = []


def _case(rule: str, codes: tuple[int, ...] = CORRUPT) -> Callable[[Spoil], Spoil]:
    def enter(spoil: Spoil) -> Spoil:
        name = spoil.__name__.strip("_").replace("_", "-")
        _CASES.append(Malformed(name, rule, codes, spoil))
        return spoil

    return enter


def cases() -> tuple[Malformed, ...]:
    """Every case, in the order of the codec's rules."""
    return tuple(_CASES)


def _first(bundle: pb.TensorBundle) -> pb.NamedTensor:
    return bundle.tensors[0]


def _body(bundle: pb.TensorBundle) -> bytes:
    return b"".join(fragment.payload for fragment in _first(bundle).fragments)


def _set_fragments(bundle: pb.TensorBundle, pieces: list[tuple[int, int, bytes]]) -> None:
    """Replace the fragments by (index, offset, payload)."""
    tensor = _first(bundle)
    del tensor.fragments[:]
    for index, offset, payload in pieces:
        tensor.fragments.add(
            fragment_index=index, fragment_count=len(pieces), byte_offset=offset, payload=payload
        )


def _compress(bundle: pb.TensorBundle, body: bytes) -> None:
    _first(bundle).compression = pb.COMPRESSION_ZSTD
    _set_fragments(bundle, [(0, 0, body)])


@_case("bundle-version")
def _no_bundle_version(bundle: pb.TensorBundle) -> None:
    bundle.bundle_version = 0


@_case("bundle-version")
def _unknown_bundle_version(bundle: pb.TensorBundle) -> None:
    bundle.bundle_version = 77


@_case("duplicate-name")
def _same_tensor_twice(bundle: pb.TensorBundle) -> None:
    bundle.tensors.add().CopyFrom(_first(bundle))


@_case("tensor-count", OVER_A_LIMIT)
def _sixty_five_tensors(bundle: pb.TensorBundle) -> None:
    for number in range(64):
        extra = encode_bundle([Tensor(f"extra-{number}", DType.UINT8, (0,), b"")])
        bundle.tensors.add().CopyFrom(extra.tensors[0])


@_case("tensor-name")
def _no_tensor_name(bundle: pb.TensorBundle) -> None:
    _first(bundle).name = ""


@_case("dtype")
def _no_dtype(bundle: pb.TensorBundle) -> None:
    _first(bundle).dtype = pb.DTYPE_UNSPECIFIED


@_case("dtype")
def _unknown_dtype(bundle: pb.TensorBundle) -> None:
    _first(bundle).dtype = 0xFFFF  # type: ignore[assignment]  # faults.md 1


@_case("byte-order")
def _no_byte_order(bundle: pb.TensorBundle) -> None:
    _first(bundle).byte_order = pb.BYTE_ORDER_UNSPECIFIED


@_case("byte-order")
def _big_endian(bundle: pb.TensorBundle) -> None:
    _first(bundle).byte_order = pb.BYTE_ORDER_BIG_ENDIAN


@_case("compression")
def _no_compression(bundle: pb.TensorBundle) -> None:
    _first(bundle).compression = pb.COMPRESSION_UNSPECIFIED


@_case("compression")
def _unknown_compression(bundle: pb.TensorBundle) -> None:
    _first(bundle).compression = 77  # type: ignore[assignment]


@_case("checksum-algorithm")
def _no_checksum_algorithm(bundle: pb.TensorBundle) -> None:
    _first(bundle).checksum.algorithm = pb.CHECKSUM_ALGORITHM_UNSPECIFIED


@_case("checksum-algorithm")
def _unknown_checksum_algorithm(bundle: pb.TensorBundle) -> None:
    _first(bundle).checksum.algorithm = 77  # type: ignore[assignment]


@_case("checksum")
def _no_checksum_value(bundle: pb.TensorBundle) -> None:
    _first(bundle).checksum.value = b""


@_case("checksum")
def _wrong_checksum(bundle: pb.TensorBundle) -> None:
    value = bytearray(_first(bundle).checksum.value)
    value[0] ^= 1
    _first(bundle).checksum.value = bytes(value)


@_case("checksum")
def _little_endian_checksum(bundle: pb.TensorBundle) -> None:
    _first(bundle).checksum.value = _first(bundle).checksum.value[::-1]


@_case("checksum")
def _one_flipped_bit(bundle: pb.TensorBundle) -> None:
    body = bytearray(_body(bundle))
    body[len(body) // 2] ^= 0x10
    _set_fragments(bundle, [(0, 0, bytes(body))])


@_case("rank")
def _rank_nine(bundle: pb.TensorBundle) -> None:
    shape = list(_first(bundle).shape)
    _first(bundle).shape[:] = [1] * (9 - len(shape)) + shape


@_case("rank")
def _rank_of_thousands(bundle: pb.TensorBundle) -> None:
    _first(bundle).shape[:] = [1] * 5000


@_case("dimension")
def _negative_dimension(bundle: pb.TensorBundle) -> None:
    _first(bundle).shape[1] = -1


@_case("dimension")
def _dimension_above_two_to_the_31(bundle: pb.TensorBundle) -> None:
    _first(bundle).shape[1] = 2**31


@_case("dimension")
def _overflowing_shape(bundle: pb.TensorBundle) -> None:
    _first(bundle).shape[:] = [2**31 - 1] * 3


@_case("total-bytes")
def _shape_of_another_size(bundle: pb.TensorBundle) -> None:
    _first(bundle).shape[1] += 1


@_case("total-bytes")
def _total_bytes_of_another_size(bundle: pb.TensorBundle) -> None:
    _first(bundle).total_bytes += 1


@_case("total-bytes")
def _payload_too_short(bundle: pb.TensorBundle) -> None:
    _set_fragments(bundle, [(0, 0, _body(bundle)[:-1])])


@_case("total-bytes")
def _payload_too_long(bundle: pb.TensorBundle) -> None:
    _set_fragments(bundle, [(0, 0, _body(bundle) + b"\0")])


@_case("fragment-tiling")
def _no_fragment(bundle: pb.TensorBundle) -> None:
    _set_fragments(bundle, [])


@_case("fragment-tiling")
def _hole_between_fragments(bundle: pb.TensorBundle) -> None:
    body = _body(bundle)
    _set_fragments(bundle, [(0, 0, body[:1]), (1, 2, body[2:])])


@_case("fragment-tiling")
def _overlapping_fragments(bundle: pb.TensorBundle) -> None:
    body = _body(bundle)
    _set_fragments(bundle, [(0, 0, body[:2]), (1, 1, body[1:])])


@_case("fragment-tiling")
def _fragment_twice(bundle: pb.TensorBundle) -> None:
    body = _body(bundle)
    _set_fragments(bundle, [(0, 0, body[:2]), (0, 0, body[:2]), (2, 2, body[2:])])


@_case("fragment-tiling")
def _fragments_shifted(bundle: pb.TensorBundle) -> None:
    body = _body(bundle)
    _set_fragments(bundle, [(0, 1, body[:2]), (1, 3, body[2:])])


@_case("fragment-tiling")
def _fragment_missing(bundle: pb.TensorBundle) -> None:
    body = _body(bundle)
    _set_fragments(bundle, [(0, 0, body[:2]), (1, 2, body[2:])])
    del _first(bundle).fragments[1]


@_case("fragment-count", OVER_A_LIMIT)
def _sixty_five_fragments(bundle: pb.TensorBundle) -> None:
    body = _body(bundle)
    step = max(1, len(body) // 64)
    cuts = [min(step * number, len(body)) for number in range(65)] + [len(body)]
    pieces = [(n, cuts[n], body[cuts[n] : cuts[n + 1]]) for n in range(65)]
    _set_fragments(bundle, pieces)


@_case("zstd-frame")
def _body_that_is_no_zstd_frame(bundle: pb.TensorBundle) -> None:
    _compress(bundle, b"this is not a zstd frame")


@_case("zstd-truncated")
def _zstd_frame_cut_short(bundle: pb.TensorBundle) -> None:
    _compress(bundle, compress(_body(bundle))[:-1])


@_case("zstd-trailing")
def _zstd_frame_with_something_behind_it(bundle: pb.TensorBundle) -> None:
    _compress(bundle, compress(_body(bundle)) + b"\0")


@_case("zstd-size")
def _zstd_frame_of_more_than_promised(bundle: pb.TensorBundle) -> None:
    _compress(bundle, compress(_body(bundle) * 100))


@_case("zstd-size")
def _zstd_frame_of_less_than_promised(bundle: pb.TensorBundle) -> None:
    _compress(bundle, compress(_body(bundle)[:-1]))


def golden_bundle() -> pb.TensorBundle:
    """The correct bundle that the stored cases are spoilt from."""
    return encode_bundle([Tensor("hidden_states", DType.BFLOAT16, (1, 128, 8), golden_payload())])


def built() -> dict[str, bytes]:
    """The stored corpus: a serialized bundle a case, one correct bundle, and the index."""
    files = {"correct.binpb": golden_bundle().SerializeToString(deterministic=True)}
    index = {}
    for case in cases():
        bundle = golden_bundle()
        case.spoil(bundle)
        files[f"{case.name}.binpb"] = bundle.SerializeToString(deterministic=True)
        codes = [pb.ErrorCode.Name(code).removeprefix("ERROR_CODE_") for code in case.codes]
        index[case.name] = {"rule": case.rule, "codes": codes}
    files[INDEX] = (json.dumps(index, indent=1) + "\n").encode()
    return files


def differences() -> list[str]:
    """Name the stored files that are not what this module makes, and those nobody made."""
    root, expected = corpus_folder(), built()
    found = [
        name
        for name, data in expected.items()
        if not (root / name).is_file() or (root / name).read_bytes() != data
    ]
    return found + sorted({path.name for path in root.iterdir()} - expected.keys())


def corpus_folder() -> Path:
    """Where the stored corpus lies."""
    return folder("fixtures") / "malformed"


def main() -> int:
    """Write the stored corpus anew. Returns the exit code."""
    root = corpus_folder()
    root.mkdir(exist_ok=True)
    for name, data in built().items():
        (root / name).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
