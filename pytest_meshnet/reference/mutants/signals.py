"""Workers that carry out a signal that names another session or epoch than its stream's.

They break RELEASE-01, CANCEL-04 and EPOCH-05.
"""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.session import Refused, Session
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant


@mutant("RELEASE-01")
class ReleasesWhateverTheSignalNames(Worker):
    """A release in band drops the state of its stream, whichever session it names."""

    def on_release_signal(self, session: Session, signal: pb.ReleaseSignal) -> None:
        signal.route_session_id = session.session_id
        super().on_release_signal(session, signal)


@mutant("RELEASE-01")
class ReleasesForNewerEpochs(Worker):
    """A release in band of an epoch that was never opened drops the state of the present one."""

    def on_release_signal(self, session: Session, signal: pb.ReleaseSignal) -> None:
        signal.route_epoch = min(signal.route_epoch, session.epoch)
        super().on_release_signal(session, signal)


@mutant("CANCEL-04")
class CancelsWhateverTheSignalNames(Worker):
    """A cancel in band ends the units of its stream, whichever session it names."""

    def on_cancel_signal(self, session: Session, signal: pb.CancelSignal) -> None:
        signal.route_session_id = session.session_id
        super().on_cancel_signal(session, signal)


@mutant("CANCEL-04")
class CancelsForNewerEpochs(Worker):
    """A cancel in band of an epoch that was never opened ends the units of the present one."""

    def on_cancel_signal(self, session: Session, signal: pb.CancelSignal) -> None:
        signal.route_epoch = min(signal.route_epoch, session.epoch)
        super().on_cancel_signal(session, signal)


@mutant("EPOCH-05")
class CarriesOutReleasesOfOlderEpochs(Worker):
    """A release in band of an older epoch drops the state of the newer one."""

    def on_release_signal(self, session: Session, signal: pb.ReleaseSignal) -> None:
        signal.route_epoch = max(signal.route_epoch, session.epoch)
        super().on_release_signal(session, signal)


@mutant("EPOCH-05")
class CarriesOutCancelsOfOlderEpochs(Worker):
    """A cancel in band of an older epoch ends the units of the newer one."""

    def on_cancel_signal(self, session: Session, signal: pb.CancelSignal) -> None:
        signal.route_epoch = max(signal.route_epoch, session.epoch)
        super().on_cancel_signal(session, signal)


@mutant("EPOCH-05")
class StaleSignalsEndTheStream(Worker):
    """A signal of an older epoch ends the stream of the newer one, as work of it would."""

    def on_release_signal(self, session: Session, signal: pb.ReleaseSignal) -> None:
        if signal.route_epoch < session.epoch:
            stale = Refused(pb.ERROR_CODE_EPOCH_STALE, "an older epoch", terminal=True)
            self.send_status(session, "", 0, stale)
        else:
            super().on_release_signal(session, signal)
