"""A plugin of child runs: the suite examines another Shard of the small model, in process.

The reference target is a middle Shard with generous limits. What a test takes for granted there, a
head, a tail, a whole model or a worker with the smallest limits shows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import pytest

from pytest_meshnet import suite_fixtures
from pytest_meshnet.protocol.codec import MAX_CHUNK_BYTES
from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.machines.events import ShardModel
from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference import catalogue
from pytest_meshnet.runtime.descriptor import Descriptor, ShardSpec
from pytest_meshnet.tests.small import described

VARIABLE = "MESHNET_TEST_KIND"


@dataclass(frozen=True)
class Kind:
    """Layers [start, end) of the four, and whether limits are as small as the suite allows."""

    start: int
    end: int
    tight: bool = False


KINDS = {
    "head": Kind(0, 2),
    "tail": Kind(2, 4),
    "whole": Kind(0, 4),
    "one-layer": Kind(1, 2),
    "tight": Kind(1, 3, tight=True),
    "tight-tail": Kind(2, 4, tight=True),
}


def pytest_configure(config: pytest.Config) -> None:
    """Put the Shard that the environment names in the place of the reference's own."""
    kind = KINDS[os.environ[VARIABLE]]
    build_small = catalogue.build_small

    def build(
        name: str, descriptor: Descriptor, shard: ShardSpec | None = None
    ) -> tuple[Worker, ShardModel]:
        worker, model = build_small(name, descriptor, shard)
        return Worker(tightened(worker.served)) if kind.tight else worker, model

    suite_fixtures.descriptor_of = lambda config: described(kind.start, kind.end)
    catalogue.build_small = build


def tightened(served: ServedShard) -> ServedShard:
    """One place, one credit, one token a chunk, and a context of eight tokens."""
    limits = FlowLimits(credits=1, inflight=1, chunk_bytes=MAX_CHUNK_BYTES, prefill_tokens=1)
    return replace(served, max_sessions=1, max_context=8, limits=limits)
