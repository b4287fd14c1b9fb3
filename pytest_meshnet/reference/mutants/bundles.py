"""Workers that mistake a decode step with a bundle, and suites that change the bytes of 1.0."""

from __future__ import annotations

from dataclasses import replace

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Start
from pytest_meshnet.protocol.machines.outgoing import SeamMessages
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import mutant, suite_mutant
from pytest_meshnet.reference.mutants.patching import field, schema_mutant
from pytest_meshnet.reference.mutants.patching import replace as patch

# Negotiated --------------------------------------------------------------------------------------


@mutant("BUNDLE-01")
class TakesBundlesUnasked(Rules):
    """A bundle in a DecodeStep is computed whether or not it was agreed on."""

    def check_form(self, session: Session, unit: Unit) -> None:
        if unit.envelope is None:
            self.check_one_form(unit)


@mutant("BUNDLE-01")
class ReadsAnyFeatureAsBundles(Rules):
    """A session that agreed on any feature may send bundles."""

    def check_form(self, session: Session, unit: Unit) -> None:
        if unit.envelope is None and not session.features:
            super().check_form(session, unit)


@mutant("BUNDLE-01")
class UnaskedBundlesAreInternal(Rules):
    """A bundle that was not agreed on is a fault, reported as INTERNAL."""

    def check_form(self, session: Session, unit: Unit) -> None:
        unasked = unit.bundle is not None and Feature.DECODE_BUNDLE not in session.features
        if unit.envelope is None and unasked:
            raise Refused(pb.ERROR_CODE_INTERNAL, "no such field")
        super().check_form(session, unit)


@mutant("BUNDLE-01")
class UnaskedBundlesAdvance(Worker):
    """A refused bundle moves the length all the same."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        session.held += unit.envelope is None and unit.bundle is not None


# Exactly one form --------------------------------------------------------------------------------


class _OneFormWins(Rules):
    """Takes a step that has both forms."""

    def settled(self, unit: Unit) -> Unit:
        raise NotImplementedError

    def read_tensors(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        if unit.tensor is not None and unit.bundle is not None and unit.envelope is None:
            unit = self.settled(unit)
        return super().read_tensors(session, unit)


@mutant("BUNDLE-02")
class TheTensorWins(_OneFormWins):
    """Of a step with both forms the tensor is computed."""

    def settled(self, unit: Unit) -> Unit:
        return replace(unit, bundle=None)


@mutant("BUNDLE-02")
class TheBundleWins(_OneFormWins):
    """Of a step with both forms the bundle is computed."""

    def settled(self, unit: Unit) -> Unit:
        return replace(unit, tensor=None)


@mutant("BUNDLE-02")
class BothFormsMayAgree(_OneFormWins):
    """A step whose two forms hold the same tensor is computed."""

    def settled(self, unit: Unit) -> Unit:
        bundle = unit.bundle or pb.TensorBundle()
        same = len(bundle.tensors) == 1 and bundle.tensors[0] == unit.tensor
        return replace(unit, bundle=None) if same else unit


@mutant("BUNDLE-02")
class AnEmptyTensorIsNone(_OneFormWins):
    """A tensor without any field counts as absent beside a bundle."""

    def settled(self, unit: Unit) -> Unit:
        empty = unit.tensor is not None and not unit.tensor.ByteSize()
        return replace(unit, tensor=None) if empty else unit


class _OtherCode(Rules):
    """Refuses a malformed step with another code."""

    def is_meant(self, unit: Unit) -> bool:
        raise NotImplementedError

    def check_one_form(self, unit: Unit) -> None:
        try:
            super().check_one_form(unit)
        except Refused as refused:
            if self.is_meant(unit):
                refused.code = pb.ERROR_CODE_SCHEMA_UNSUPPORTED
            raise


@mutant("BUNDLE-02")
class NeitherIsUnsupported(_OtherCode):
    """A step with neither form is SCHEMA_UNSUPPORTED."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.tensor is None


@mutant("BUNDLE-02")
class BothAreUnsupported(_OtherCode):
    """A step with both forms is SCHEMA_UNSUPPORTED."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.tensor is not None


@mutant("BUNDLE-02")
class NeitherRepeatsTheLastRow(Rules):
    """A step with neither form computes the row of the step before once more."""

    def __init__(self, served: object) -> None:
        super().__init__(served)  # type: ignore[arg-type]
        self.last: dict[str, tuple[Tensor, ...]] = {}

    def read_tensors(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        if unit.tensor is None and unit.bundle is None:
            tensors = self.last[session.session_id]
        else:
            tensors = super().read_tensors(session, unit)
        rows = tensors[0]
        last = rows.rows(rows.shape[1] - 1, rows.shape[1])
        self.last[session.session_id] = (last, *tensors[1:])
        return tensors


@mutant("BUNDLE-02")
class MalformedStepsAdvance(Worker):
    """A step with both forms or neither is refused, and yet moves the length."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        malformed = (unit.tensor is None) == (unit.bundle is None)
        session.held += unit.envelope is None and malformed


# Bundle equals tensor ----------------------------------------------------------------------------


def _is_bundled(unit: Unit) -> bool:
    return unit.envelope is None and unit.bundle is not None


@mutant("BUNDLE-03")
class BundlesAreOnePositionLate(Worker):
    """A step in a bundle is computed one position late."""

    def start(self, session: Session, unit: Unit, tensors: tuple[Tensor, ...]) -> None:
        super().start(session, unit, tensors)
        if _is_bundled(unit):
            effect = self.effects.pop()
            assert isinstance(effect, Start), "a started unit ends in its Start"
            work = replace(effect.work, first_position=effect.work.first_position + 1)
            self.effects.append(Start(work))


@mutant("BUNDLE-03")
class BundlesLeaveNoTrace(Worker):
    """A step in a bundle advances the length and keeps the state without it."""

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        if _is_bundled(unit):
            outcome = replace(outcome, state=session.state)
        super().commit(session, unit, outcome)


@mutant("BUNDLE-03")
class BundlesStandStill(Worker):
    """A step in a bundle leaves the length where it was."""

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        held = session.held
        super().commit(session, unit, outcome)
        if _is_bundled(unit):
            session.held = held


@mutant("BUNDLE-03")
class BundlesBeginAnew(Worker):
    """A step in a bundle attends to nothing but itself."""

    def state_for(self, session: Session, unit: Unit) -> object | None:
        return None if _is_bundled(unit) else super().state_for(session, unit)


@mutant("BUNDLE-03")
class ReadsOneFragmentOfBundles(Rules):
    """A bundle in a step must come in one fragment."""

    def decode(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        bundle = unit.bundle if _is_bundled(unit) else None
        if bundle is not None and any(len(one.fragments) > 1 for one in bundle.tensors):
            raise ProtocolError("fragment-count", "one fragment is enough for one token")
        return super().decode(session, unit)


@mutant("BUNDLE-03")
class BundlesAreNeverDuplicates(Rules):
    """A step in a bundle that comes again is computed again, or misses."""

    def is_duplicate(self, session: Session, unit: Unit) -> bool:
        return not _is_bundled(unit) and super().is_duplicate(session, unit)


@mutant("BUNDLE-03")
class BundlesNeedNoLength(Rules):
    """The expected length of a step in a bundle is not looked at."""

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        if not _is_bundled(unit):
            super().check_decode_cache(session, unit)


# 1.0 bytes unchanged -----------------------------------------------------------------------------


@schema_mutant("BUNDLE-04")
def report_with_a_moved_time(file: File) -> None:
    """The validation time made way for the features: it has number 16."""
    field(file, "CapabilityReport", "validated_at_unix_nanos").number = 16


@schema_mutant("BUNDLE-04")
def deadline_that_gave_its_number_away(file: File) -> None:
    """In a DecodeStep the bundle has number 6 and the deadline 7."""
    field(file, "DecodeStep", "deadline_unix_nanos").number = 8
    field(file, "DecodeStep", "bundle").number = 6
    field(file, "DecodeStep", "deadline_unix_nanos").number = 7


@schema_mutant("BUNDLE-04")
def envelope_with_a_new_kind_of_step(file: File) -> None:
    """1.1 made the idempotency step a fixed64."""
    field(file, "Envelope", "idempotency_step").type = Field.TYPE_FIXED64


@schema_mutant("BUNDLE-04")
def accepted_whose_features_took_a_number(file: File) -> None:
    """In SessionAccepted the features have number 6 and the fingerprint 9."""
    field(file, "SessionAccepted", "fingerprint").number = 9
    field(file, "SessionAccepted", "features").number = 6


@suite_mutant("BUNDLE-04")
def client_that_always_offers_features() -> None:
    """Every open offers all features, whether or not they were asked for."""
    plain = SeamMessages.open

    def opened(self: SeamMessages, *args: object, **fields: object) -> pb.SessionRequest:
        message = plain(self, *args, **fields)  # type: ignore[arg-type]
        message.open.features.extend(int(one) for one in Feature)  # type: ignore[misc]
        return message

    patch(SeamMessages, "open", opened)


@suite_mutant("BUNDLE-04")
def client_that_adds_an_empty_bundle() -> None:
    """Every DecodeStep has a bundle, which is empty where the tensor is set."""
    plain = SeamMessages.decode

    def decoded(self: SeamMessages, *args: object, **fields: object) -> pb.SessionRequest:
        message = plain(self, *args, **fields)  # type: ignore[arg-type]
        message.decode.bundle.SetInParent()
        return message

    patch(SeamMessages, "decode", decoded)
