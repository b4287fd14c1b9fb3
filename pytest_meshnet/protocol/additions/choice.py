"""Choosing a token from a row of logits: a pure function of row, contract and position.

The random number of a position depends on seed and position alone, so no other session can disturb
it, and a retry draws the same one again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING

from pytest_meshnet.protocol.additions.sampling import DOMAIN, SampledToken, SamplingContract
from pytest_meshnet.protocol.tensors import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Float64Array = NDArray[np.float64]


def choose(
    logits: Tensor,
    contract: SamplingContract,
    position: int,
    end_of_sequence: Collection[int] = (),
) -> SampledToken:
    """Choose from float32 [1, 1, vocabulary]: greedily at temperature 0, else by the seed.

    Among equal logits the lowest id comes first. A NaN counts as minus infinity. `end_of_sequence`
    holds the ids that end a text.
    """
    import numpy as np

    row = logits.to_float32().reshape(-1).astype(np.float64)
    row = np.where(np.isnan(row), -np.inf, row)
    chosen = _greedy(row) if contract.temperature == 0 else _sampled(row, contract, position)
    return SampledToken(chosen, _log_prob(row, chosen), chosen in end_of_sequence)


def _greedy(row: Float64Array) -> int:
    return int(row.argmax())  # of equal ones the first


def _sampled(row: Float64Array, contract: SamplingContract, position: int) -> int:
    """Temperature first, then the `top_k` best, then the smallest set that reaches `top_p`."""
    import numpy as np

    if not np.isfinite(row.max()):
        return _greedy(row)
    order = np.argsort(-row, kind="stable")
    if contract.top_k:
        order = order[: contract.top_k]
    scaled = (row[order] - row[order[0]]) / contract.temperature
    cumulative = np.cumsum(np.exp(scaled))
    if contract.top_p:
        enough = np.searchsorted(cumulative, contract.top_p * cumulative[-1], side="left")
        cumulative = cumulative[: int(enough) + 1]
    drawn = uniform(contract.seed, position) * cumulative[-1]
    place = int(np.searchsorted(cumulative, drawn, side="right"))
    return int(order[min(place, len(cumulative) - 1)])


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) of a position: 53 bits of SHA-256("DOMAIN/seed/position")."""
    digest = hashlib.sha256(f"{DOMAIN}/{seed}/{position}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / float(1 << 53)


def _log_prob(row: Float64Array, chosen: int) -> float:
    """The logarithm of the softmax of `row` at `chosen`; 0 where the largest is not finite."""
    import numpy as np

    best = row.max()
    if not np.isfinite(best):
        return 0.0
    return float(row[chosen] - best - np.log(np.exp(row - best).sum()))
