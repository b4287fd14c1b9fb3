"""What a Shard keeps in memory grows with its own layers, not with the model's."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.footprint import process_counts
from pytest_meshnet.runtime.route_making import RoutePlan
from pytest_meshnet.suite.evidence import Attachments

pytestmark = pytest.mark.timeout(900)

ENDS, SIZES = 2, (2, 6, 10)
"""Layers of the head, and of the Shards between head and tail that are compared."""

NOISE = 32 * 2**20
"""Bytes that an allocator may keep or not: layers that weigh less cannot be told from it."""


@pytest.mark.profile("parity")
def test_resident_memory_grows_with_the_layers_of_a_shard(
    parity: ParityBench, attachments: Attachments
) -> None:
    """Three Shards without ends, of 2, 6 and 10 layers: each four more weigh the same."""
    layers = parity.seam.layers
    if layers <= ENDS + sum(SIZES) or not parity.seam.spec.start:
        raise NotProvoked(f"{layers} layers are too few for Shards of {SIZES} between two ends")
    edges = [0, *(ENDS + sum(SIZES[:count]) for count in range(len(SIZES) + 1)), layers]
    ranges = tuple(pairwise(edges))
    shards = parity.route(RoutePlan(ranges, parity.seam.spec.dtypes[-1])).shards
    resident = {}
    for shard in shards:
        if shard.target.pid is None:
            raise NotProvoked("the Shards are no processes of their own")
        _, _, resident[f"{shard.layers.start}:{shard.layers.stop}"] = process_counts(
            shard.target.pid
        )
    attachments.data("resident-bytes.json", json.dumps(resident).encode(), "application/json")
    small, middle, large = list(resident.values())[1:-1]
    if large - small < NOISE:
        raise NotProvoked(f"8 layers weigh {large - small} bytes: too few to be told from noise")
    share = (large - middle) / (large - small)
    if not 0.3 <= share <= 0.7:
        raise Nonconformance(
            "half of what 8 layers weigh for 4 of them", f"{share:.2f} of it: {resident}",
            "does a Shard load layers that are not its own?",
        )  # fmt: skip
