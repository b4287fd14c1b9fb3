"""The small reference worker in process, as a Shard under test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import build_small
from pytest_meshnet.runtime.descriptor import Descriptor, load
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target, choose_shard
from pytest_meshnet.runtime.transport import Transport


def described(start: int, end: int, **changes: object) -> Descriptor:
    """The small reference, its first Shard on other layers."""
    descriptor = load("reference", small=True)
    spec = replace(descriptor.shards[0], start_layer=start, end_layer=end)
    return replace(descriptor, shards=(spec, *descriptor.shards[1:]), **changes)  # type: ignore[arg-type]


def shard_of(
    name: str = "",
    descriptor: Descriptor | None = None,
    served: Callable[[Worker], None] = lambda worker: None,
    *,
    change: Callable[[Worker], Worker] = lambda worker: worker,
    behind: Callable[[Transport], Transport] = lambda inner: inner,
    shard: str | None = None,
) -> ShardUnderTest:
    """The mutant or variant of that name; `served` may change its worker before it is reached.

    `change` may put another in its place, `behind` something before its transport. `shard` is one
    of the descriptor, else its first.
    """
    found = load("reference", small=True) if descriptor is None else descriptor
    spec = choose_shard(found, shard)

    def transport() -> Transport:
        worker, model = build_small(name, found, spec)
        served(worker)
        return behind(InProcessTransport(change(worker), model))

    target = Target(found, spec, in_process=transport)
    target.connect()
    return ShardUnderTest(target, "t", seed=7)
