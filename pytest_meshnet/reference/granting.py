"""A conforming worker that hands its credit out in grants, instead of all at once with accepted."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import variant

# Beyond the settled credit: the in-flight limit binds whatever was granted.
_BEYOND = 2


@variant
class GrantsCreditLater(Worker):
    """Accepts with no credit, grants half of it at once, and the rest and more at the first ack."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self._owed: dict[str, int] = {}

    def accepted(self, session: Session) -> pb.SessionAccepted:
        """Tell every limit, and no credit."""
        message = super().accepted(session)
        message.flow_control.credits_granted = 0
        return message

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        """Let the first grant follow on the acceptance."""
        super().accept(stream, message)
        session = self.table.find(message.route_session_id)
        assert session is not None, "an accepted session is in the table"
        settled, session.credit = session.credit, 0
        first = max(1, settled // 2)
        self._owed[session.session_id] = settled - first + _BEYOND
        self.grant(session, first)

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        """Let the second grant follow on the first ack."""
        super().apply(session, unit, outcome)
        owed = self._owed.pop(session.session_id, 0)
        if owed:
            self.grant(session, owed)

    def grant(self, session: Session, credits: int) -> None:
        """Add credit and say so."""
        session.credit += credits
        message = pb.FlowControl(credits_granted=credits)
        self.send(session.stream, pb.SessionResponse(flow_control=message))
