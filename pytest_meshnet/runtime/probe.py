"""What only a session shows about a Shard: whether it grants credit, and what a tail can give."""

from __future__ import annotations

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailWant
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.results import check_code, may_pass
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

ROUNDS = 3
"""How often a session spends all its credit before it counts as one in which no grant comes."""


def sends_grants(shard: ShardUnderTest) -> bool:
    """Run a session through its credit several times and say whether a FlowControl grant came.

    Raises Nonconformance when the Shard breaks a rule in it.
    """
    tokens = shard.tokens(shard.length(2))
    with shard.session() as session:
        session.prefill(tokens.rows(0, 1))
        if tokens.shape[1] > 1:
            session.decode(tokens.rows(1, 2))
        return grant_comes(session, tokens.rows(0, 1))


def grant_comes(session: Session, token: Tensor) -> bool:
    """Spend the credit of a session again and again until a grant came. Returns whether one did.

    Raises Nonconformance for a unit that was not applied.
    """
    for _ in range(ROUNDS):
        if session.client.grants:
            return True
        spend_credit(session, token)
    return bool(session.client.grants)


def spend_credit(session: Session, token: Tensor) -> None:
    """Send fresh chunks, as many as there is credit for at once and one more, and apply all.

    Raises Nonconformance for a unit that was not applied.
    """
    sent: list[Exchange] = []
    while session.client.may_send:
        sent.append(session.send_unit(session.client.chunk([token], fresh=True)))
    for exchange in sent:
        session.applied(session.wait(exchange))
    session.applied(session.exchange(session.client.chunk([token], fresh=True)))


def gives_logits_and_token(shard: ShardUnderTest) -> bool | None:
    """Ask a tail for both parts of a result and say whether both came; None is not known.

    A tail that refuses such a contract for good, or does not know tail results, cannot give both.
    One that refuses for now, or that accepts the contract and breaks it, tells nothing. Raises
    Nonconformance when the Shard breaks a rule in it.
    """
    contract = SamplingContract(want=TailWant.BOTH)
    session = shard.try_session(features=[Feature.TAIL_RESULT], sampling=contract)
    if isinstance(session, pb.ShardStatus):
        check_code(session)
        return None if may_pass(session) else False
    with session:
        if Feature.TAIL_RESULT not in session.client.features:
            return False
        exchange = session.send_unit(session.client.chunk([shard.tokens(1)]))
        result = session.tail(exchange)
    return True if result.logits is not None and result.token is not None else None
