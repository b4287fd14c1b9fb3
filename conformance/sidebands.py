"""Sessions on a Shard of a model with shared indices, and sidebands drawn for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sideband import (
    INDICES,
    ORIGIN,
    PADDING,
    IndexShare,
    origin_tensor,
)
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_meshnet.runtime.shard import Rows

    Picks = NDArray[np.int64]

FEATURES = (Feature.INDEX_SHARE_SIDEBAND, Feature.DECODE_BUNDLE)
# Which other numbers stand where a row sees fewer positions than an indexer keeps.
PADDINGS = ("minus-one", "masked", "mixed")


@dataclass(frozen=True, slots=True)
class Sharing:
    """One Shard with an effective start, whose units carry a sideband where that is Shared.

    Which positions a row attends to is a pure function of the run's seed and its position, so that
    they are the same however work is cut.
    """

    shard: ShardUnderTest
    start: int
    padding: str = "minus-one"

    @classmethod
    def of(cls, shard: ShardUnderTest, start: int | None = None) -> Sharing:
        """The Shard from its first layer on, or from a later one."""
        return cls(shard, shard.layers.start if start is None else start)

    @property
    def share(self) -> IndexShare:
        """The roles of the model's layers, as the descriptor tells."""
        share = self.shard.target.model.index_share
        assert share is not None, "the fixture gives Shards of such models only"
        return share

    @property
    def producer(self) -> int | None:
        """The layer whose indices units must carry, None for no sideband."""
        return self.share.across(self.start)

    def session(self) -> Session:
        """A session that agreed on the sideband. Use as a context manager."""
        seam = self.shard.seam(effective_start=self.start)
        session = self.shard.session(seam, features=FEATURES)
        if Feature.INDEX_SHARE_SIDEBAND not in session.client.features:
            session.drop()
            raise Nonconformance(
                "accepted with FEATURE_INDEX_SHARE_SIDEBAND, which the profile sideband claims",
                f"accepted with features {sorted(session.client.features)}",
            )
        return session

    def states(self, count: int, key: int = 0) -> Tensor:
        """`count` rows to feed it."""
        return self.shard.tokens(self.shard.length(count), key, self.start)

    # Sidebands ---------------------------------------------------------------------------------

    def picks(self, first: int, rows: int) -> Picks:
        """Positions for `rows` rows from `first` on: [rows, k]. Each row attends to itself too.

        Every other row has half of the positions that it might have, so that its padding matters.
        """
        length = first + rows
        width = self.share.width(length)
        found = np.empty((rows, width), dtype=np.int64)
        for index in range(rows):
            position = first + index
            random = np.random.default_rng([self.shard.seed, position])
            kept = min(self.share.topk, position + 1)
            kept = max(1, kept // 2) if position % 2 else kept
            others = random.permutation(position)[: kept - 1]
            pads = self._pads(position, length, width - kept)
            found[index] = np.concatenate([[position], others, pads])
        return found

    def _pads(self, position: int, length: int, count: int) -> Picks:
        pads = np.full(count, PADDING)
        masked = np.arange(position + 1, length)[:count]
        if self.padding == "masked":
            pads[: len(masked)] = masked
        elif self.padding == "mixed":
            pads[: len(masked) : 2] = masked[::2]
        return pads

    def sideband(self, first: int, rows: int) -> list[Tensor]:
        """Indices and origin for `rows` rows from `first` on; nothing where none is due."""
        if self.producer is None:
            return []
        return [indices(self.picks(first, rows)), origin_tensor(self.producer, first)]

    def unit(self, states: Tensor, first: int) -> list[Tensor]:
        """Everything that a unit with these rows from `first` on carries."""
        return [states, *self.sideband(first, states.shape[1])]

    # Units -------------------------------------------------------------------------------------

    def prefill(self, session: Session, states: Tensor, chunk: int | None = None) -> list[Exchange]:
        """Prefill rows in chunks of at most `chunk`, all applied, and return the exchanges."""
        limit = session.client.limits.prefill_tokens
        step = min(limit, chunk or limit)
        count = states.shape[1]
        exchanges = []
        for first in range(0, count, step):
            rows = states.rows(first, min(count, first + step))
            last = first + step >= count
            message = session.client.chunk(self.unit(rows, first), final=last, fresh=first == 0)
            exchanges.append(session.applied(session.exchange(message)))
        return exchanges

    def decode(self, session: Session, row: Tensor, *, full: bool = False) -> Exchange:
        """One decode step at the end of what is held, applied."""
        return session.applied(session.exchange(self.step(session, row, full=full)))

    def step(self, session: Session, row: Tensor, *, full: bool = False) -> pb.SessionRequest:
        """A decode step: a bundle where that was agreed on, else the full form."""
        tensors = self.unit(row, session.client.sent_len)
        bundled = Feature.DECODE_BUNDLE in session.client.features
        if len(tensors) == 1 and not full:
            return session.client.decode(tensors[0])
        return session.client.decode(tensors, full=full or not bundled)

    def undisturbed(self, states: Tensor, prompt: int) -> Rows:
        """What a session of its own gives for a prefill and a decode step for each row behind."""
        with self.session() as session:
            exchanges = self.prefill(session, states.rows(0, prompt))
            for at in range(prompt, states.shape[1]):
                exchanges.append(self.decode(session, states.rows(at, at + 1)))
        return rows_of(exchanges)


def indices(picks: Picks | Sequence[Sequence[int]], dtype: DType = DType.INT32) -> Tensor:
    """`topk_indices` [1, n, k] of these positions."""
    return Tensor.from_array(INDICES, np.asarray(picks)[None], dtype)


def sideband_in(exchange: Exchange) -> dict[str, Tensor]:
    """The tensors of a sideband in a result, by name."""
    return {one.name: one for one in exchange.tensors if one.name in (INDICES, ORIGIN)}


def later_shared_starts(shard: ShardUnderTest) -> list[int]:
    """Effective starts behind the first layer that are Shared layers, where they are accepted."""
    share = shard.target.model.index_share
    if share is None or not shard.target.spec.later_start:
        return []
    return [one for one in shard.layers[1:] if share.across(one) is not None]
