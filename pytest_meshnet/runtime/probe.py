"""What only a session shows about a Shard: whether its worker grants credit."""

from __future__ import annotations

from pytest_meshnet.runtime.shard import ShardUnderTest


def sends_grants(shard: ShardUnderTest) -> bool:
    """Run a short session and say whether a FlowControl grant came in it.

    Raises Nonconformance when the Shard breaks a rule in it.
    """
    tokens = shard.tokens(shard.length(2))
    with shard.session() as session:
        session.prefill(tokens.rows(0, 1))
        if tokens.shape[1] > 1:
            session.decode(tokens.rows(1, 2))
    return bool(session.client.grants)
