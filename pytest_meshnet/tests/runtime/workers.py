"""Shards of the small model in this process, on a worker that a test has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailWant
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.runtime.descriptor import TimeLimits, load
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.transport import Transport
from pytest_meshnet.tests.small import shard_of

Change = Callable[[Worker], Worker]


def small_shard(
    change: Change = lambda worker: worker,
    cleanup: float = 5.0,
    behind: Callable[[Transport], Transport] = lambda inner: inner,
    name: str | None = None,
) -> ShardUnderTest:
    """The Shard `name` of the small reference, the first one where none is named.

    `change` makes its worker another one, `behind` puts something before its transport.
    """
    descriptor = replace(load("reference", small=True), time=TimeLimits(cleanup=cleanup))
    return shard_of(descriptor=descriptor, change=change, behind=behind, shard=name)


class BusyAtFirst(Rules):
    """Has no place for the first three sessions."""

    asked = 0

    def check_capacity(self, places_held: int) -> None:
        self.asked += 1
        super().check_capacity(places_held if self.asked > 3 else 99)


class TokensOnly(Rules):
    """A tail that refuses for good whoever wants logits and a token."""

    def settled_sampling(self, message: pb.SessionOpen) -> SamplingContract | None:
        contract = super().settled_sampling(message)
        if contract is not None and contract.want is TailWant.BOTH:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "no logits", terminal=True)
        return contract


class NotNow(Rules):
    """A tail that has no session for anybody just now."""

    def settled_sampling(self, message: pb.SessionOpen) -> SamplingContract | None:
        raise Refused(pb.ERROR_CODE_CANCELLED, "later", retryable=True, terminal=True)


def ruled_by(rules: type[Rules]) -> Change:
    """The same worker under other rules."""
    return lambda worker: Worker(worker.served, rules(worker.served))
