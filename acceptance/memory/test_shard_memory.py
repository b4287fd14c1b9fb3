"""What a Shard keeps in memory grows with its own layers, not with the model's."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise

import pytest

from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.parity.memory import Resident, Weighed
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.footprint import group_resident
from pytest_meshnet.runtime.route import Route
from pytest_meshnet.runtime.route_making import RoutePlan
from pytest_meshnet.suite.evidence import Attachments

pytestmark = pytest.mark.timeout(900)

HEAD, SIZES = 2, (2, 2, 6, 10)
"""Layers of the head, and of the Shards between head and tail that are compared: two are alike, so
that the noise of the measurement is measured too."""

TOKENS = 2
"""Tokens that are generated before it is measured: what is mapped is resident once it was used."""


@pytest.mark.profile("parity")
def test_resident_memory_grows_with_the_layers_of_a_shard(
    parity: ParityBench, attachments: Attachments
) -> None:
    """Shards without ends, of 2, 2, 6 and 10 layers, after a prompt went through all of them.

    A Shard that loads every layer grows by nothing. The growth is compared with the weights of the
    oracle's layers.
    """
    layers = parity.seam.layers
    if layers <= HEAD + sum(SIZES) or not parity.seam.spec.start:
        raise NotProvoked(f"{layers} layers are too few for Shards of {SIZES} between two ends")
    if not isinstance(parity.oracle, Weighed):
        raise NotProvoked("the oracle has no weights here to compare with: name a GGUF file")
    edges = [0, *accumulate((HEAD, *SIZES)), layers]
    route = parity.route(RoutePlan(tuple(pairwise(edges)), parity.seam.spec.dtypes[-1]))
    route.generate(parity.corpus[parity.fitting(route)[0]], TOKENS)
    resident = _resident(route)
    attachments.data("resident-bytes.json", json.dumps(resident).encode(), "application/json")
    one, other, middle, large = list(resident.values())[1:-1]
    found = Resident((one, other), middle, large, SIZES[-1] - SIZES[0])
    if lines := found.findings(parity.oracle.layer_weights()):
        raise Nonconformance(
            "memory that grows with the layers of a Shard", f"{'; '.join(lines)}: {resident}",
            "does a Shard load layers that are not its own? A GPU's memory is not seen",
        )  # fmt: skip


def _resident(route: Route) -> dict[str, int]:
    """Resident bytes by layer range, of each Shard with all that it started."""
    resident = {}
    for shard in route.shards:
        bytes_held = group_resident(shard.target.pid) if shard.target.pid else None
        if bytes_held is None:
            raise NotProvoked("the Shards are no processes of their own")
        resident[f"{shard.layers.start}:{shard.layers.stop}"] = bytes_held
    return resident
