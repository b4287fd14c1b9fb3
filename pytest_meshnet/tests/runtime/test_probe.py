"""What a session shows about a Shard: the look at its grants goes through its credit anew."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome
from pytest_meshnet.protocol.machines.session import Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.granting import GrantsCreditLater
from pytest_meshnet.runtime.probe import ROUNDS, sends_grants
from pytest_meshnet.runtime.relay import RelayTransport
from pytest_meshnet.tests.runtime.workers import Change, small_shard


class GrantsAt(Worker):
    """Grants one credit more with the ack of unit number `number` of each session."""

    number = 20

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().apply(session, unit, outcome)
        if unit.step == self.number:
            session.credit += 1
            grant = pb.FlowControl(credits_granted=1)
            self.send(session.stream, pb.SessionResponse(flow_control=grant))


class GrantsNever(GrantsAt):
    """No session gets that far."""

    number = 10**6


@pytest.mark.parametrize(
    ("change", "grants"),
    [
        (lambda worker: GrantsCreditLater(worker.served), True),
        (lambda worker: GrantsAt(worker.served), True),
        (lambda worker: GrantsNever(worker.served), False),
    ],
    ids=["at-once", "late", "never"],
)
def test_a_grant_is_seen_whether_it_comes_at_once_or_after_some_rounds(
    change: Change, grants: bool
) -> None:
    shard = small_shard(change)
    assert sends_grants(shard) is grants
    assert ("flow_control" in shard.target.came) is grants
    assert shard.trace.text().count("chunk") >= (1 if grants else ROUNDS)


def test_what_comes_over_a_relay_came_from_the_same_shard() -> None:
    shard = small_shard(lambda worker: GrantsCreditLater(worker.served))
    relayed = shard.target.through(RelayTransport)
    with type(shard)(relayed, "r", seed=1).session() as session:
        session.prefill(shard.tokens(1))
    assert "flow_control" in shard.target.came
