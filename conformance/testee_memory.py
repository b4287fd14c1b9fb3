"""How much memory an answer costs a codec testee, as the kernel sees its processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_meshnet.runtime.codec_testee import CodecTestee
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked

from .codec_inputs import MIB


@contextmanager
def peak_within(codec_testee: CodecTestee, bound: int) -> Iterator[None]:
    """Require that the testee grows by at most `bound` bytes at its peak meanwhile.

    Raises NotProvoked where the kernel does not tell: what was not measured was within no bound.
    """
    before = codec_testee.reset_peak()
    yield
    after = codec_testee.peak()
    if before is None or after is None:
        raise NotProvoked("the memory of the codec testee cannot be measured here: it takes /proc")
    if after - before > bound:
        raise Nonconformance(
            f"a peak of at most {bound / MIB:.0f} MiB above what was in use",
            f"{(after - before) / MIB:.0f} MiB",
        )
