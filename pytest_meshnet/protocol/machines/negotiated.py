"""The rules of 1.1: what was negotiated at open, and what that allows or asks of a unit.

One method each, as in `rules.py`: it returns quietly or raises Refused, and mutants break one.
"""

from __future__ import annotations

from pytest_meshnet.protocol.additions.features import Feature, negotiated
from pytest_meshnet.protocol.additions.sampling import SamplingContract
from pytest_meshnet.protocol.additions.sideband import (
    INDICES,
    ORIGIN,
    IndexShare,
    check_indices,
    check_origin,
    check_width,
)
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.tensors import Tensor


class NegotiatedRules:
    """The rules that depend on features."""

    def __init__(self, served: ServedShard) -> None:
        self.served = served

    # At open -----------------------------------------------------------------------------------

    def settled_features(self, message: pb.SessionOpen) -> tuple[Feature, ...]:
        """What was offered and is served here."""
        return negotiated(message.features, self.served.features)

    def check_sideband_agreed(self, message: pb.SessionOpen) -> None:
        """Execution that begins on a Shared layer needs the sideband."""
        producer = self.served.producer_before(message.shard_range.effective_start_layer)
        if producer is None or Feature.INDEX_SHARE_SIDEBAND in self.settled_features(message):
            return
        raise Refused(
            pb.ERROR_CODE_SHARD_RANGE_MISMATCH,
            f"the first layer shares the indices of layer {producer}: offer the sideband",
            terminal=True,
        )

    def settled_sampling(self, message: pb.SessionOpen) -> SamplingContract | None:
        """The contract of a session with tail results, None without them."""
        if Feature.TAIL_RESULT not in self.settled_features(message):
            return None
        try:
            return SamplingContract.from_proto(message.sampling)
        except ProtocolError as error:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, str(error), terminal=True) from None

    # In a unit ---------------------------------------------------------------------------------

    def check_form(self, session: Session, unit: Unit) -> None:
        """A DecodeStep has exactly one of tensor and bundle, and a bundle only where agreed."""
        if unit.envelope is not None:
            return
        self.check_one_form(unit)
        if unit.bundle is not None and Feature.DECODE_BUNDLE not in session.features:
            raise Refused(
                pb.ERROR_CODE_PAYLOAD_CORRUPT, "bundles in decode steps were not agreed on"
            )

    def check_one_form(self, unit: Unit) -> None:
        """Not both, not neither."""
        if (unit.tensor is None) == (unit.bundle is None):
            found = "neither" if unit.tensor is None else "both"
            raise Refused(
                pb.ERROR_CODE_PAYLOAD_CORRUPT, f"a decode step has {found} of tensor and bundle"
            )

    def sideband_producer(self, session: Session) -> int | None:
        """The producer of the sideband that every unit must carry, None where none is due."""
        return self.served.producer_before(session.shard_range.effective_start_layer)

    def read_sideband(self, session: Session, unit: Unit, tensors: dict[str, Tensor]) -> Tensor:
        """Take the sideband out of a unit's tensors, and return its indices, checked."""
        share, producer = self.served.index_share, self.sideband_producer(session)
        assert share is not None, "no sideband is due here"
        assert producer is not None, "no sideband is due here"
        if INDICES not in tensors or ORIGIN not in tensors:
            raise Refused(
                pb.ERROR_CODE_PAYLOAD_CORRUPT,
                f"the first layer shares the indices of layer {producer}: {INDICES} and {ORIGIN} "
                "are missing",
            )
        indices, origin = tensors.pop(INDICES), tensors.pop(ORIGIN)
        try:
            self.check_sideband_origin(unit, origin, producer)
            self.check_sideband_width(unit, indices, share)
            self.check_sideband_range(unit, indices)
        except ProtocolError as error:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, str(error)[:512]) from None
        return indices

    def check_sideband_origin(self, unit: Unit, origin: Tensor, producer: int) -> None:
        """The indices are those of the producer for these very rows."""
        check_origin(origin, producer, unit.position)

    def check_sideband_width(self, unit: Unit, indices: Tensor, share: IndexShare) -> None:
        """As many rows as the unit has tokens, as many indices as that length allows."""
        width = share.width(unit.position + unit.token_count)
        check_width(indices, unit.token_count, width)

    def check_sideband_range(self, unit: Unit, indices: Tensor) -> None:
        """Every index is padding, or a position that will be held."""
        check_indices(indices, unit.position + unit.token_count)

    def sends_sideband(self, session: Session) -> bool:
        """Whether results of this session carry indices."""
        agreed = Feature.INDEX_SHARE_SIDEBAND in session.features
        return agreed and self.served.producer_before(self.served.end_layer) is not None

    def sideband_width(self, session: Session, unit: Unit) -> int:
        """Indices of each row of the result, 0 where none are sent."""
        share = self.served.index_share
        if share is None or not self.sends_sideband(session):
            return 0
        return share.width(unit.position + unit.token_count)
