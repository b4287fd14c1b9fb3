"""Tensors to wire messages and back. Decoding is validation: what comes back is whole and bounded.

Every bound is checked on the numbers of a message before anything is sorted, joined or expanded.
protobuf copies a payload each time it is read, so each is read exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import google_crc32c

from pytest_meshnet.protocol.compression import compress, decompress
from pytest_meshnet.protocol.errors import PayloadCorrupt, ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Buffer, DType, Tensor

MAX_CHUNK_BYTES = 4 * 1024 * 1024
MAX_FRAGMENT_BYTES = 1024 * 1024
MAX_FRAGMENTS = 64
MAX_TENSORS = 64
MAX_RANK = 8
MAX_DIMENSION = 2**31 - 1
BUNDLE_VERSION = 1

_DTYPES = {int(dtype): dtype for dtype in DType}
# Names come from strangers and have no bound of their own; messages about them do.
_SHOWN_NAME = 64


def crc32c(data: Buffer) -> bytes:
    """CRC32C (Castagnoli) of `data` as the wire carries it: four bytes, big-endian."""
    return int(google_crc32c.value(bytes(data) if not isinstance(data, bytes) else data)).to_bytes(
        4, "big"
    )


def encode_tensor(
    tensor: Tensor,
    *,
    compression: int = pb.COMPRESSION_NONE,
    checksum: int = pb.CHECKSUM_ALGORITHM_CRC32C,
    fragment_bytes: int = MAX_FRAGMENT_BYTES,
) -> pb.NamedTensor:
    """Encode one tensor into fragments of at most `fragment_bytes`.

    Raises PayloadCorrupt when shape, dtype and data disagree, and ProtocolError for a tensor that
    no receiver may accept: rank, dimension, size or fragment count out of bounds, an empty name.
    """
    message, _ = _encode(
        pb.NamedTensor,
        tensor,
        MAX_CHUNK_BYTES,
        compression=compression,
        checksum=checksum,
        fragment_bytes=fragment_bytes,
    )
    return message


def _encode(
    make: Callable[..., pb.NamedTensor],
    tensor: Tensor,
    room: int,
    *,
    compression: int,
    checksum: int,
    fragment_bytes: int,
) -> tuple[pb.NamedTensor, int]:
    """Return the message, made by `make` where it is wanted, and the size of its wire body.

    `room` bounds the payload and the wire body, each on its own.
    """
    if not tensor.name:
        raise ProtocolError("tensor-name", "a tensor needs a name")
    _check_rank(tensor.name, len(tensor.shape))
    total = _checked_size(tensor.name, tensor.shape, tensor.dtype)
    _check_bound("tensor-bytes", "total_bytes", total, room)
    # A memoryview counts in its own items, and neither zstd nor CRC32C takes every kind of one.
    data = tensor.data if isinstance(tensor.data, bytes) else bytes(tensor.data)
    if total != len(data):
        raise PayloadCorrupt(
            "total-bytes", f"shape and dtype promise {total} bytes, data has {len(data)}"
        )
    body = _wire_body(data, compression)
    _check_bound("tensor-bytes", "the wire body", len(body), room)
    # Filled in place: a message given to a constructor is serialized and parsed.
    message = make()
    message.name = tensor.name
    message.shape.extend(tensor.shape)
    message.dtype = int(tensor.dtype)  # type: ignore[assignment]
    message.byte_order = pb.BYTE_ORDER_LITTLE_ENDIAN
    message.total_bytes = total
    message.compression = compression  # type: ignore[assignment]
    message.checksum.CopyFrom(_checksum(data, checksum))
    _add_fragments(message, body, fragment_bytes)
    return message, len(body)


def _check_bound(rule: str, what: str, size: int, bound: int) -> None:
    if size > bound:
        raise ProtocolError(rule, f"{what} of {size} bytes, at most {bound}")


def _wire_body(data: bytes, compression: int) -> bytes:
    if compression == pb.COMPRESSION_NONE:
        return data
    if compression == pb.COMPRESSION_ZSTD:
        return compress(data)
    raise ProtocolError("compression", f"compression {compression} is not one of NONE, ZSTD")


def _checksum(data: bytes, algorithm: int) -> pb.Checksum:
    if algorithm == pb.CHECKSUM_ALGORITHM_CRC32C:
        return pb.Checksum(algorithm=pb.CHECKSUM_ALGORITHM_CRC32C, value=crc32c(data))
    if algorithm == pb.CHECKSUM_ALGORITHM_NONE:
        return pb.Checksum(algorithm=pb.CHECKSUM_ALGORITHM_NONE)
    raise ProtocolError("checksum-algorithm", f"algorithm {algorithm} is not one of NONE, CRC32C")


def _add_fragments(message: pb.NamedTensor, body: bytes, fragment_bytes: int) -> None:
    if not 0 < fragment_bytes <= MAX_FRAGMENT_BYTES:
        raise ProtocolError(
            "fragment-bytes",
            f"fragments of {fragment_bytes} bytes, allowed 1 to {MAX_FRAGMENT_BYTES}",
        )
    count = max(1, -(-len(body) // fragment_bytes))
    if count > MAX_FRAGMENTS:
        raise ProtocolError("fragment-count", f"{count} fragments, at most {MAX_FRAGMENTS}")
    if count == 1:
        message.fragments.add(fragment_count=1, payload=body)
        return
    for index in range(count):
        start = index * fragment_bytes
        message.fragments.add(
            fragment_index=index,
            fragment_count=count,
            byte_offset=start,
            payload=body[start : start + fragment_bytes],
        )


def decode_tensor(message: pb.NamedTensor, *, max_bytes: int = MAX_CHUNK_BYTES) -> Tensor:
    """Check every rule of the codec and return the tensor, or raise.

    `max_bytes` bounds total_bytes and the wire body, each on its own. Raises ProtocolError when the
    message cannot be interpreted, PayloadCorrupt when it does not add up.
    """
    return _decode(message, max_bytes, max_bytes)[0]


def _decode(message: pb.NamedTensor, max_bytes: int, max_wire_bytes: int) -> tuple[Tensor, int]:
    """Return the tensor and the size of its wire body."""
    name = message.name
    if not name:
        raise ProtocolError("tensor-name", "a tensor without a name")
    dtype = _DTYPES.get(message.dtype)
    if dtype is None:
        raise ProtocolError("dtype", f"dtype {message.dtype} is not known")
    _check_enums(message)
    _check_rank(name, len(message.shape))
    shape = tuple(message.shape)
    size = _checked_size(name, shape, dtype)
    total = message.total_bytes
    if total != size:
        raise PayloadCorrupt(
            "total-bytes", f"shape and dtype promise {size} bytes, total_bytes is {total}"
        )
    _check_bound("tensor-bytes", "total_bytes", total, max_bytes)
    body = _joined_body(message, max_wire_bytes)
    data = body
    if message.compression == pb.COMPRESSION_ZSTD:
        data = decompress(body, total)
    elif len(body) != total:
        raise PayloadCorrupt("total-bytes", f"payload has {len(body)} bytes, total_bytes {total}")
    _verify_checksum(message.checksum, data)
    return Tensor(name, dtype, shape, data), len(body)


def _check_enums(message: pb.NamedTensor) -> None:
    order = message.byte_order
    if order == pb.BYTE_ORDER_BIG_ENDIAN:
        raise ProtocolError("byte-order", "big-endian payloads are not accepted")
    if order != pb.BYTE_ORDER_LITTLE_ENDIAN:
        raise ProtocolError("byte-order", f"byte order {order} is not LITTLE_ENDIAN")
    if message.compression not in (pb.COMPRESSION_NONE, pb.COMPRESSION_ZSTD):
        raise ProtocolError("compression", f"compression {message.compression} is not known")
    if message.checksum.algorithm not in (
        pb.CHECKSUM_ALGORITHM_NONE,
        pb.CHECKSUM_ALGORITHM_CRC32C,
    ):
        raise ProtocolError(
            "checksum-algorithm", f"checksum algorithm {message.checksum.algorithm} is not known"
        )


def _check_rank(name: str, rank: int) -> None:
    if rank > MAX_RANK:
        raise ProtocolError("rank", f"tensor {_shown(name)} has rank {rank}, at most {MAX_RANK}")


def _checked_size(name: str, shape: tuple[int, ...], dtype: DType) -> int:
    """Bytes of a tensor of this shape; Python integers cannot overflow, so the bound decides."""
    size = dtype.item_size
    for dimension in shape:
        if not 0 <= dimension <= MAX_DIMENSION:
            raise ProtocolError(
                "dimension",
                f"tensor {_shown(name)} has a dimension of {dimension}, allowed 0 to 2^31-1",
            )
        # One dimension of zero does not excuse the others: no array can have such a shape.
        size *= dimension or 1
    if size >= 2**63:
        raise ProtocolError("dimension", f"the shape of {_shown(name)} overflows 63 bits of bytes")
    return 0 if 0 in shape else size


def _shown(name: str) -> str:
    return repr(name[:_SHOWN_NAME])


def _joined_body(message: pb.NamedTensor, max_wire_bytes: int) -> bytes:
    count = len(message.fragments)
    if count > MAX_FRAGMENTS:
        raise ProtocolError("fragment-count", f"{count} fragments, at most {MAX_FRAGMENTS}")
    if count == 0:
        raise PayloadCorrupt("fragment-tiling", "no fragment; an empty tensor carries one")
    pieces: list[bytes | None] = [None] * count
    starts = [0] * count
    wire_bytes = 0
    for fragment in message.fragments:
        index = fragment.fragment_index
        if fragment.fragment_count != count:
            raise PayloadCorrupt(
                "fragment-tiling", f"fragment_count {fragment.fragment_count}, {count} are here"
            )
        if index >= count or pieces[index] is not None:
            raise PayloadCorrupt(
                "fragment-tiling", f"fragment {index} is repeated or beyond {count}"
            )
        payload = fragment.payload
        if len(payload) > MAX_FRAGMENT_BYTES:
            raise ProtocolError(
                "fragment-bytes",
                f"a fragment of {len(payload)} bytes, at most {MAX_FRAGMENT_BYTES}",
            )
        wire_bytes += len(payload)
        _check_bound("tensor-bytes", "the wire body", wire_bytes, max_wire_bytes)
        pieces[index], starts[index] = payload, fragment.byte_offset
    return _tiled([piece for piece in pieces if piece is not None], starts)


def _tiled(pieces: Sequence[bytes], starts: Sequence[int]) -> bytes:
    position = 0
    for index, (piece, start) in enumerate(zip(pieces, starts, strict=True)):
        if start != position:
            raise PayloadCorrupt(
                "fragment-tiling", f"fragment {index} begins at {start}, expected {position}"
            )
        position += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _verify_checksum(checksum: pb.Checksum, data: bytes) -> None:
    if checksum.algorithm == pb.CHECKSUM_ALGORITHM_NONE:
        return
    found, said = crc32c(data), checksum.value
    if found != said:
        shown = said.hex() if len(said) == len(found) else f"a value of {len(said)} bytes"
        raise PayloadCorrupt("checksum", f"CRC32C is {found.hex()}, the message says {shown}")


def encode_bundle(
    tensors: Iterable[Tensor],
    *,
    compression: int = pb.COMPRESSION_NONE,
    checksum: int = pb.CHECKSUM_ALGORITHM_CRC32C,
    fragment_bytes: int = MAX_FRAGMENT_BYTES,
) -> pb.TensorBundle:
    """Encode tensors that cross a seam together.

    Raises as `encode_tensor`, and ProtocolError for too many tensors, equal names, or a bundle
    above MAX_CHUNK_BYTES.
    """
    sent = tuple(tensors)
    _check_count(len(sent))
    _check_names(tensor.name for tensor in sent)
    promised = sum(tensor.size for tensor in sent)
    _check_bound("bundle-bytes", "a bundle", promised, MAX_CHUNK_BYTES)
    bundle = pb.TensorBundle(bundle_version=BUNDLE_VERSION)
    room = MAX_CHUNK_BYTES
    for tensor in sent:
        _, wire_bytes = _encode(
            bundle.tensors.add,
            tensor,
            room,
            compression=compression,
            checksum=checksum,
            fragment_bytes=fragment_bytes,
        )
        room -= wire_bytes
    return bundle


def decode_bundle(
    bundle: pb.TensorBundle, *, max_bytes: int = MAX_CHUNK_BYTES
) -> tuple[Tensor, ...]:
    """Check and return the tensors of a bundle.

    Their payloads together stay within `max_bytes`, and so do their wire bodies. Raises as
    `decode_tensor`, and ProtocolError for an unknown bundle version, too many tensors, equal
    names, or a bundle above the bound.
    """
    if bundle.bundle_version != BUNDLE_VERSION:
        raise ProtocolError("bundle-version", f"bundle version {bundle.bundle_version} is not 1")
    _check_count(len(bundle.tensors))
    _check_names(message.name for message in bundle.tensors)
    promised = sum(message.total_bytes for message in bundle.tensors)
    _check_bound("bundle-bytes", "a bundle", promised, max_bytes)
    tensors = []
    room = max_bytes
    for message in bundle.tensors:
        tensor, wire_bytes = _decode(message, max_bytes, room)
        tensors.append(tensor)
        room -= wire_bytes
    return tuple(tensors)


def _check_count(count: int) -> None:
    if count > MAX_TENSORS:
        raise ProtocolError("tensor-count", f"{count} tensors, at most {MAX_TENSORS}")


def _check_names(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ProtocolError("duplicate-name", f"two tensors named {_shown(name)}")
        seen.add(name)


def check_message_size(size: int, max_chunk_bytes: int) -> None:
    """Refuse a serialized stream message of `size` bytes, envelope included, above the bound.

    Raises ProtocolError.
    """
    if size > max_chunk_bytes:
        raise ProtocolError(
            "message-bytes", f"a message of {size} bytes, at most {max_chunk_bytes} were settled"
        )
