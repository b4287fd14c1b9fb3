"""PARITY-01, PARITY-02: the float32 seam, and the seam in the declared activation dtype."""

from __future__ import annotations

import pytest

from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.parity.lanes import cross_engine, exact, production
from pytest_meshnet.runtime.errors import NotProvoked

from .judging import check

pytestmark = pytest.mark.timeout(900)

_BEGIN = "compare the states seam by seam: the first Shard whose input agrees and output does not"


@pytest.mark.requirement("PARITY-01")
def test_every_cut_gives_the_oracles_first_32_greedy_tokens_and_its_logits(
    parity: ParityBench, figures_of_lane
) -> None:
    """Each route continues the corpus greedily over a float32 boundary.

    Another engine than the oracle's rounds differently: it must agree where weights are the same,
    and is reported without a judgement where they are not.
    """
    records = parity.exact_records()
    figures_of_lane("cross engine" if parity.is_whole else "f32 seam", records)
    parity.check_gated()
    bits = parity.spec.same_kernels
    found = [
        f"{record.label}: {line}"
        for record in records
        for line in (
            cross_engine(record.whole) if parity.is_whole else exact(record.whole, bits=bits)
        )
    ]
    found += [
        f"{record.label}: lost on the way, and begun again {record.epochs - 1} time(s)"
        for record in records
        if record.epochs > 1
    ]
    check(found, "the oracle's tokens, and logits within 1e-3 of its", _BEGIN)


@pytest.mark.requirement("PARITY-01")
def test_chunks_alike_give_the_oracles_bits(parity: ParityBench) -> None:
    """Prefill in chunks of 1, 7 and 128 tokens, on both sides."""
    if parity.is_whole:
        raise NotProvoked("an engine chunks as it likes")
    found = [
        f"{record.label}, chunks of {bound}: {line}"
        for record in parity.exact_records()
        for bound, comparisons in record.chunked.items()
        for line in exact(comparisons, bits=parity.spec.same_kernels)
    ]
    check(found, "tokens and logits of an oracle that is chunked alike", _BEGIN)


@pytest.mark.requirement("PARITY-02")
def test_the_production_dtype_keeps_tokens_and_states(parity: ParityBench, figures_of_lane) -> None:
    """Each route continues the corpus over the boundary dtype that it declares for use."""
    records = parity.production_records()
    figures_of_lane("production seam", records)
    found = [f"{record.label}: {line}" for record in records for line in production(record.whole)]
    check(
        found,
        "greedy agreement of at least 0.90 and a mean cosine similarity of at least 0.999, over "
        "finite tensors",
        "a mean far below 0.999 is no rounding: run the float32 lane first",
    )
