"""Whether a Shard runs layers at all: a row of its result must depend on the rows before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_meshnet.protocol.additions.sideband import INDICES
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.route import Route
from pytest_meshnet.runtime.shard import ShardUnderTest

if TYPE_CHECKING:
    from pytest_meshnet.runtime.generation import Rows

LayerRange = tuple[int, int]


def blind_shards(route: Route) -> tuple[LayerRange, ...]:
    """The Shards that give a last row which is the same whatever came before it, by their layers.

    One that needs a sideband is left out: drawn states have no indices.
    """
    return tuple(
        (one.layers.start, one.layers.stop)
        for one in route.shards
        if not _needs_sideband(one) and not one.differ(_last_row(one, 1), _last_row(one, 2))
    )


def _needs_sideband(shard: ShardUnderTest) -> bool:
    inputs = shard.report.boundary.inputs
    return any(one.name == INDICES and not one.optional for one in inputs)


def _last_row(shard: ShardUnderTest, key: int) -> Rows:
    """What a Shard makes of the same last token behind six others, drawn by `key`."""
    before, last = shard.tokens(6, key), shard.tokens(1, 0)
    data = bytes(before.data) + bytes(last.data)
    prompt = Tensor(last.name, last.dtype, (1, 7, *last.shape[2:]), data)
    with shard.session() as session:
        return session.prefill(prompt)[-1:]
