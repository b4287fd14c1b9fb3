"""How much memory an answer costs a codec testee, as the kernel sees its processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_meshnet.runtime.codec_testee import CodecTestee
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_inputs import MIB


@contextmanager
def peak_within(codec_testee: CodecTestee, bound: int) -> Iterator[None]:
    """Require that the testee grows by at most `bound` bytes at its peak meanwhile.

    Where there is no /proc nothing is measured, and only the refusal counts.
    """
    before = codec_testee.reset_peak()
    yield
    after = codec_testee.peak()
    if before is not None and after is not None and after - before > bound:
        raise Nonconformance(
            f"a peak of at most {bound / MIB:.0f} MiB above what was in use",
            f"{(after - before) / MIB:.0f} MiB",
        )
