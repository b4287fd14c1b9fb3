"""Honest workers that answer in another way: order, encoding, unknown fields, detail texts."""

from __future__ import annotations

from collections import defaultdict

from google.protobuf.message import Message

from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Effect, Event, Outcome, Reply, Send
from pytest_meshnet.protocol.machines.results import ack_of
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import variant

UNKNOWN_FIELD = bytes.fromhex("b8e004b960")
"""Number 9999, the varint 12345: what a later version might add."""

# Order -------------------------------------------------------------------------------------------


@variant
class AcksAfterTheResult(Worker):
    """Sends the result of a unit before its ack."""

    def answer_applied(
        self, session: Session, unit: Unit, outcome: Outcome, cache_hit: bool
    ) -> None:
        """Turn the two answers round."""
        self.send_result(session, unit, outcome)
        past_len = 0 if unit.mode == pb.CACHE_MODE_STATELESS else session.held
        ack = ack_of(unit, past_len, cache_hit, outcome.execution_nanos)
        self.send(session.stream, pb.SessionResponse(ack=ack))


@variant
class AnswersInReverse(Worker):
    """Keeps acks and results while further units wait, and then sends the latest first."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self._kept: defaultdict[int, list[Effect]] = defaultdict(list)

    def answer_applied(
        self, session: Session, unit: Unit, outcome: Outcome, cache_hit: bool
    ) -> None:
        """Keep the answers of an applied unit."""
        before = len(self.effects)
        super().answer_applied(session, unit, outcome, cache_hit)
        self._kept[session.stream] += self.effects[before:]
        del self.effects[before:]
        if not any(isinstance(item, Unit) for item in session.queue):
            self._flush(session)

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        """The unit that others waited for may end in a refusal or a cancel."""
        self._flush(session)
        super().refuse_unit(session, unit, refused)

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        """Or in a duplicate."""
        self._flush(session)
        super().answer_duplicate(session, unit)

    def end(self, session: Session) -> None:
        """Deliver what is owed before the stream ends."""
        self._flush(session)
        super().end(session)

    def _flush(self, session: Session) -> None:
        self.effects += reversed(self._kept.pop(session.stream, []))


@variant
class RepeatsResults(Worker):
    """Sends the original result again for a duplicate: before its ack at even steps, else after."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self._results: dict[tuple[str, int, int], pb.SessionResponse] = {}

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        """Remember what was sent."""
        before = len(self.effects)
        super().send_result(session, unit, outcome)
        for effect in self.effects[before:]:
            if isinstance(effect, Send):
                key = (session.session_id, session.epoch, unit.step)
                self._results[key] = effect.message

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        """Repeat it, where that step was used."""
        before = len(self.effects)
        super().answer_duplicate(session, unit)
        original = self._results.get((session.session_id, session.epoch, unit.step))
        if original is not None:
            place = before if unit.step % 2 == 0 else len(self.effects)
            self.effects.insert(place, Send(session.stream, original))

    def end(self, session: Session) -> None:
        """Forget the results of a session that ended."""
        super().end(session)
        ended = (session.session_id, session.epoch)
        self._results = {key: sent for key, sent in self._results.items() if key[:2] != ended}


# Encoding ----------------------------------------------------------------------------------------


class FragmentedRules(Rules):
    """Counts the fragments in when the size of a result is foreseen."""

    fragment_bytes = 64 * 1024

    def result_bytes(self, envelope: pb.Envelope, tokens: int, width: int = 0) -> int:
        """The exact size of the message as it is sent."""
        empty = self.served.empty_result(tokens, width)
        bundle = encode_bundle(empty, fragment_bytes=self.size_of_fragments(empty[0].size))
        chunk = pb.ActivationChunk(envelope=envelope, bundle=bundle)
        return pb.SessionResponse(chunk=chunk).ByteSize()

    def size_of_fragments(self, size: int) -> int:
        """Bytes of each fragment of a tensor of `size` bytes but its last."""
        del size
        return self.fragment_bytes


class TinyFragmentedRules(FragmentedRules):
    """As many fragments as the codec takes."""

    def size_of_fragments(self, size: int) -> int:
        """A size that leaves nearly every fragment in the middle of an item."""
        return size // 61 + 1


class _Fragmented(Worker):
    rules_type = FragmentedRules

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        self._fragments = self.rules_type(served)
        super().__init__(served, rules or self._fragments)

    def encode_result(self, session: Session, outcome: Outcome) -> pb.TensorBundle:
        """Cut every tensor."""
        del session
        size = max(tensor.size for tensor in outcome.tensors)
        fragment_bytes = self._fragments.size_of_fragments(size)
        return encode_bundle(outcome.tensors, fragment_bytes=fragment_bytes)


@variant
class LargeFragments(_Fragmented):
    """Cuts every result into fragments of 64 KiB."""


@variant
class TinyFragments(_Fragmented):
    """Cuts every result into tens of fragments, most of them in the middle of an item."""

    rules_type = TinyFragmentedRules


@variant
class CompressesAlways(Worker):
    """Compresses every result with zstd where the client accepts that, without a checksum."""

    def encode_result(self, session: Session, outcome: Outcome) -> pb.TensorBundle:
        """Choose the compression of the session."""
        accepted = pb.COMPRESSION_ZSTD in session.compression
        return encode_bundle(
            outcome.tensors,
            compression=pb.COMPRESSION_ZSTD if accepted else pb.COMPRESSION_NONE,
            checksum=pb.CHECKSUM_ALGORITHM_NONE,
        )


@variant
class UnknownFieldsEverywhere(Worker):
    """Adds a field of a later version to every message it sends, inner messages included."""

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Add it on the way out."""
        effects = super().handle(event, now)
        return [self._extended(effect) for effect in effects]

    def _extended(self, effect: Effect) -> Effect:
        if isinstance(effect, (Send, Reply)):
            message = type(effect.message)()
            message.CopyFrom(effect.message)  # type: ignore[arg-type]
            extend(message)
            place = effect.stream if isinstance(effect, Send) else effect.call
            return type(effect)(place, message)  # type: ignore[arg-type]
        return effect


def extend(message: Message) -> None:
    """Add the unknown field to a message and to every message in it."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for inner in value if field.is_repeated else [value]:
            extend(inner)
    message.MergeFromString(UNKNOWN_FIELD)


# Detail texts ------------------------------------------------------------------------------------


class _Worded(Worker):
    wording = ""

    def send_status(self, session: Session, work_id: str, step: int, refused: Refused) -> None:
        """Say it in other words."""
        super().send_status(session, work_id, step, self._reworded(refused))

    def _reworded(self, refused: Refused) -> Refused:
        refused.detail = self.wording
        return refused

    def stale(self, session_id: str, epoch: int) -> Refused | None:
        """Unary answers too."""
        refused = super().stale(session_id, epoch)
        return None if refused is None else self._reworded(refused)

    def open(self, stream: int, message: pb.SessionOpen) -> None:
        """And the refusal of an open."""
        try:
            super().open(stream, message)
        except Refused as refused:
            raise self._reworded(refused) from None


@variant
class QuietDetails(_Worded):
    """Leaves every detail text empty: it is for operators, and the code says it all."""


@variant
class LongDetails(_Worded):
    """Fills every detail text to its 512 characters, most of them outside of ASCII."""

    wording = ("запрос отклонён; 要求は拒否されました; " * 20)[:512]


# Signals -----------------------------------------------------------------------------------------


@variant
class AnswersMisaddressedSignals(Worker):
    """Answers a signal that names another session or epoch with a status that ends nothing."""

    def on_release_signal(self, session: Session, signal: pb.ReleaseSignal) -> None:
        """A release is looked at first."""
        if not self._is_elsewhere(session, signal.route_session_id, signal.route_epoch):
            super().on_release_signal(session, signal)

    def on_cancel_signal(self, session: Session, signal: pb.CancelSignal) -> None:
        """And so is a cancel."""
        if not self._is_elsewhere(session, signal.route_session_id, signal.route_epoch):
            super().on_cancel_signal(session, signal)

    def _is_elsewhere(self, session: Session, name: str, epoch: int) -> bool:
        if (name, epoch) == (session.session_id, session.epoch):
            return False
        stale = name == session.session_id and epoch < session.epoch
        code = pb.ERROR_CODE_EPOCH_STALE if stale else pb.ERROR_CODE_PAYLOAD_CORRUPT
        self.send_status(session, "", 0, Refused(code, "the signal is not for this stream"))
        return True


@variant
class CancelGivesUpThePrefill(Worker):
    """A cancel of all in mid-prefill gives up what was held of it, and not only what is in flight.

    CANCEL-07 can be read so; the client is told by the miss of what it sends next.
    """

    def cancel_units(self, session: Session, work_id: str) -> int:
        """Cancel, and drop a prefill that has no final chunk."""
        count = super().cancel_units(session, work_id)
        if not work_id and not session.finished:
            session.drop_state()
        return count
