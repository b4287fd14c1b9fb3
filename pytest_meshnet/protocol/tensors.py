"""Tensors as the protocol sees them: a name, a dtype, a shape and little-endian bytes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Float32Array = NDArray[np.float32]

Buffer = bytes | bytearray | memoryview


class DType(IntEnum):
    """Element types, with the numbers of the wire's DType enum."""

    BFLOAT16 = 1
    FLOAT16 = 2
    FLOAT32 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    INT8 = 7
    BOOL = 8

    @property
    def item_size(self) -> int:
        """Size of one element in bytes."""
        return _ITEM_SIZE[self]

    @property
    def is_float(self) -> bool:
        """Whether elements are floating point."""
        return self in _FLOATS

    @classmethod
    def parse(cls, name: str) -> DType:
        """Return the dtype called `name` ("bfloat16"). Raises ValueError with the known names."""
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(d.name.lower() for d in cls)
            raise ValueError(f"unknown dtype {name!r}: use one of {known}") from None


_ITEM_SIZE = {
    DType.BFLOAT16: 2,
    DType.FLOAT16: 2,
    DType.FLOAT32: 4,
    DType.INT32: 4,
    DType.INT64: 8,
    DType.UINT8: 1,
    DType.INT8: 1,
    DType.BOOL: 1,
}
_FLOATS = (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32)
# bfloat16 has no numpy dtype; it is handled through the upper half of float32.
_NUMPY_NAME = {
    DType.FLOAT16: "<f2",
    DType.FLOAT32: "<f4",
    DType.INT32: "<i4",
    DType.INT64: "<i8",
    DType.UINT8: "u1",
    DType.INT8: "i1",
    DType.BOOL: "?",
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor at an Activation Seam. `data` is row-major and little-endian.

    The codec, not this class, checks that shape, dtype and data agree, so that tests can build
    tensors that do not.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: Buffer

    @property
    def size(self) -> int:
        """Bytes that shape and dtype promise."""
        return prod(self.shape) * self.dtype.item_size

    @classmethod
    def from_float32(cls, name: str, array: Float32Array, dtype: DType) -> Tensor:
        """Encode a float32 array as `dtype`; bfloat16 rounds to nearest, ties to even.

        Raises ValueError when `dtype` is not a floating-point type.
        """
        import numpy as np

        values = np.ascontiguousarray(array, dtype="<f4")
        shape = tuple(array.shape)
        if dtype is DType.FLOAT32:
            return cls(name, dtype, shape, values.tobytes())
        if dtype is DType.FLOAT16:
            with np.errstate(over="ignore"):  # Beyond its range a value is infinite.
                return cls(name, dtype, shape, values.astype("<f2").tobytes())
        if dtype is DType.BFLOAT16:
            return cls(name, dtype, shape, _bfloat16_bits(values).tobytes())
        raise ValueError(f"{dtype.name} is not a floating-point dtype")

    @classmethod
    def from_array(cls, name: str, array: NDArray[np.generic], dtype: DType) -> Tensor:
        """Encode an array as any dtype but bfloat16, by plain conversion.

        Raises ValueError for bfloat16, which is rounded to: see `from_float32`.
        """
        import numpy as np

        if dtype not in _NUMPY_NAME:
            raise ValueError(f"{dtype.name} has no numpy dtype: use from_float32")
        values = np.ascontiguousarray(array, dtype=_NUMPY_NAME[dtype])
        return cls(name, dtype, tuple(array.shape), values.tobytes())

    def to_array(self) -> NDArray[np.generic]:
        """Return the elements; bfloat16 comes back as float32."""
        import numpy as np

        if self.dtype is DType.BFLOAT16:
            bits = np.frombuffer(self.data, dtype="<u2").astype("<u4") << np.uint32(16)
            return bits.view("<f4").reshape(self.shape)
        return np.frombuffer(self.data, dtype=_NUMPY_NAME[self.dtype]).reshape(self.shape)

    def to_float32(self) -> Float32Array:
        """Return the elements as float32, exactly for the floating-point dtypes."""
        import numpy as np

        return self.to_array().astype(np.float32)

    def rows(self, start: int, stop: int) -> Tensor:
        """Return the token rows [start, stop) of a [1, n, ...] tensor."""
        row = self.size // self.shape[1]
        view = memoryview(self.data)[start * row : stop * row]
        return Tensor(self.name, self.dtype, (1, stop - start, *self.shape[2:]), bytes(view))


def _bfloat16_bits(values: Float32Array) -> NDArray[np.uint16]:
    """Upper halves of float32, rounded to nearest even; a NaN stays a NaN."""
    import numpy as np

    bits = values.view("<u4")
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(
        16
    )
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x0040)
    return np.where(np.isnan(values), quiet_nan, rounded).astype("<u2")
