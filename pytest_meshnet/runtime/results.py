"""What the answers to units come to: result rows, and whether a status has a code that is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.runtime.errors import Nonconformance, UnitRefused
from pytest_meshnet.runtime.trace import code_name, describe

if TYPE_CHECKING:
    from pytest_meshnet.runtime.shard import Rows


def answer_line(exchange: Exchange) -> str:
    """The line of the trace with the ack or the status of a unit; empty while there is none."""
    if exchange.ack is not None:
        return describe(pb.SessionResponse(ack=exchange.ack))
    return describe(pb.SessionResponse(status=exchange.status)) if exchange.status else ""


LEAST_KEPT = 2
"""Sessions that keep their state whatever a Shard evicts: fewer could not take turns (KV-01)."""


def is_eviction(exchange: Exchange) -> bool:
    """Whether a unit was answered as by a Shard that dropped the state to make room."""
    error = exchange.status.error if exchange.status is not None else None
    missed = error is not None and error.code == pb.ERROR_CODE_CACHE_MISS
    return missed and error is not None and error.actual_past_len == 0


def rows_of(exchanges: Sequence[Exchange]) -> Rows:
    """The result rows of applied units, in order: [rows, width] in float32.

    Raises Nonconformance for results that are not the [1, rows, width] that their units ask for.
    """
    return joined(*(_rows(exchange) for exchange in exchanges if _brings_rows(exchange)))


def joined(*parts: Rows) -> Rows:
    """Result rows one after the other; chunks of a tail that gave none are left out.

    Raises Nonconformance when widths differ.
    """
    import numpy as np

    filled = [part for part in parts if part.size]
    widths = sorted({part.shape[1] for part in filled})
    if len(widths) > 1:
        raise Nonconformance("results of one width", f"results of widths {widths}")
    return np.concatenate(filled) if filled else np.empty((0, 0), dtype=np.float32)


def _brings_rows(exchange: Exchange) -> bool:
    """A tail result without logits has no rows; any other result must have some."""
    return bool(exchange.results) and (bool(exchange.tensors) or not exchange.tails)


def _rows(exchange: Exchange) -> Rows:
    named = {tensor.name: tensor for tensor in exchange.tensors}
    tensor = named.get("logits" if "logits" in named else "hidden_states")
    if tensor is None:
        raise Nonconformance(
            f"hidden_states or logits in the result of work {exchange.work_id!r}", f"{list(named)}"
        )
    if len(tensor.shape) != 3 or 0 in tensor.shape:
        raise Nonconformance(
            f"a [1, n, width] result for work {exchange.work_id!r}", f"shape {list(tensor.shape)}"
        )
    return tensor.to_float32().reshape(-1, tensor.shape[-1])


def check_code(status: pb.ShardStatus, *codes: int) -> None:
    """Require one of `codes`, or where none is named any but UNSPECIFIED and INTERNAL."""
    found = status.error.code
    allowed = not codes and found not in (pb.ERROR_CODE_UNSPECIFIED, pb.ERROR_CODE_INTERNAL)
    if found not in codes and not allowed:
        wanted = " or ".join(map(code_name, codes)) or "a code other than UNSPECIFIED and INTERNAL"
        raise Nonconformance(wanted, describe(pb.SessionResponse(status=status)))


_OF_CONTENT = frozenset({
    pb.ERROR_CODE_SCHEMA_UNSUPPORTED, pb.ERROR_CODE_FINGERPRINT_MISMATCH,
    pb.ERROR_CODE_EPOCH_STALE, pb.ERROR_CODE_SHARD_RANGE_MISMATCH, pb.ERROR_CODE_CACHE_MISS,
    pb.ERROR_CODE_PAYLOAD_CORRUPT,
})  # fmt: skip
"""Codes that speak about a unit itself, and not about time, room, credit or a broken runtime."""


def not_applied(expected: str, status: pb.ShardStatus) -> Nonconformance:
    """What to raise for a unit that was answered by a status instead of being applied."""
    kind = UnitRefused if status.error.code in _OF_CONTENT else Nonconformance
    return kind(expected, describe(pb.SessionResponse(status=status)))


def lacks_place(answer: pb.SessionAccepted | pb.ShardStatus) -> bool:
    """Whether an open was refused for lack of a session place, which a later try may find."""
    if isinstance(answer, pb.SessionAccepted):
        return False
    return answer.error.code == pb.ERROR_CODE_RESOURCE_EXHAUSTED and answer.error.retryable


def may_pass(refusal: pb.ShardStatus) -> bool:
    """Whether an open was refused for now only: that says nothing about what was asked for."""
    error = refusal.error
    return error.retryable or error.code == pb.ERROR_CODE_RESOURCE_EXHAUSTED
