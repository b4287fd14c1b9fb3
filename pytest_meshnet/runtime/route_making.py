"""Putting routes together from a descriptor: started, reached, or in this process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.descriptor import Descriptor, Launch, ShardSpec
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.model_facts import ModelFacts
from pytest_meshnet.runtime.route import Route
from pytest_meshnet.runtime.route_spec import Ranges, RouteSpec, ranges_of
from pytest_meshnet.runtime.target import InProcess, Target, choose_shard

MOST_ROUTES = 2
"""Routes that run or load at once: each Shard is a process with weights of its own."""


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """One route to be made: its Shards' layer ranges in the order in which they are driven.

    `control` names a negative control that each Shard is started with; empty for an honest route.
    """

    ranges: Ranges
    dtype: DType
    control: str = ""

    def __str__(self) -> str:
        ranges = " ".join(f"{start}:{end}" for start, end in self.ranges)
        control = f" with {self.control}" if self.control else ""
        return f"{ranges} in {self.dtype.name.lower()}{control}"


MakeInProcess = Callable[[int, int, DType, str], InProcess]


class RouteMaker:
    """Makes the routes of a descriptor, and keeps the last ones running. Close it in the end.

    `in_process` makes Shards of the reference worker without a process.
    """

    def __init__(
        self, descriptor: Descriptor, *, in_process: MakeInProcess | None = None, place: int = 0
    ) -> None:
        assert descriptor.route is not None, "a descriptor without a route has none to make"
        assert descriptor.model is not None, "a descriptor with a route knows its model"
        self.descriptor = descriptor
        self.spec: RouteSpec = descriptor.route
        self.model: ModelFacts = descriptor.model
        self.layers = descriptor.model.layers or 0
        self._in_process = in_process
        self._place = place
        self._running: OrderedDict[RoutePlan, Route] = OrderedDict()
        self._loading: OrderedDict[RoutePlan, list[Target]] = OrderedDict()

    def plans(self, dtype: DType) -> list[RoutePlan]:
        """Every route that the descriptor asks to examine, in the boundary dtype `dtype`."""
        if self.spec.shards:
            shards = [choose_shard(self.descriptor, name) for name in self.spec.shards]
            return [RoutePlan(tuple((one.start_layer, one.end_layer) for one in shards), dtype)]
        return [RoutePlan(ranges_of(cut, self.layers), dtype) for cut in self.spec.cuts]

    def make(self, plan: RoutePlan) -> Route:
        """Return the route of a plan, started or still running. Raises Refusal."""
        if plan in self._running:
            self._running.move_to_end(plan)
            return self._running[plan]
        targets = self._loading.pop(plan, None)
        self._make_room()
        self._running[plan] = self._connected(targets or self._launched(plan))
        return self._running[plan]

    def prepare(self, plan: RoutePlan) -> None:
        """Start the Shards of a plan that `make` will soon be asked for; they load meanwhile.

        Say it before `make` is asked for the route to be driven now. Raises Refusal.
        """
        if plan not in self._running and plan not in self._loading:
            self._make_room()
            self._loading[plan] = self._launched(plan)

    def _make_room(self) -> None:
        """End the oldest routes: those that were driven before those that only load."""
        while len(self._running) + len(self._loading) >= MOST_ROUTES:
            if self._running:
                self._running.popitem(last=False)[1].close()
            else:
                _close(self._loading.popitem(last=False)[1])

    def close(self) -> None:
        """End every route that still runs or loads."""
        while self._running:
            self._running.popitem()[1].close()
        while self._loading:
            _close(self._loading.popitem()[1])

    def forget(self, plan: RoutePlan) -> None:
        """End a route, so that the next is a fresh start."""
        if plan in self._running:
            self._running.pop(plan).close()

    def _launched(self, plan: RoutePlan) -> list[Target]:
        model = replace(self.model, boundary_dtypes=(plan.dtype,))
        descriptor = replace(self.descriptor, model=model)
        targets = [
            Target(
                descriptor,
                self._shard(plan, start, end),
                place=self._place,
                in_process=self._made_here(plan, start, end),
            )
            for start, end in plan.ranges
        ]
        for target in targets:
            target.launch_ahead()
        return targets

    def _connected(self, targets: list[Target]) -> Route:
        try:
            for target in targets:
                target.connect()
        except Refusal:
            _close(targets)
            raise
        return Route(targets)

    def _made_here(self, plan: RoutePlan, start: int, end: int) -> InProcess | None:
        if self._in_process is None:
            return None
        return self._in_process(start, end, plan.dtype, plan.control)

    def _shard(self, plan: RoutePlan, start: int, end: int) -> ShardSpec:
        for name in self.spec.shards:
            shard = choose_shard(self.descriptor, name)
            if (shard.start_layer, shard.end_layer) == (start, end):
                return shard
        command = self.spec.command(start, end, plan.dtype)
        if plan.control:
            command += self.spec.control(plan.control)
        return ShardSpec(
            name=f"{start}-{end}",
            start_layer=start,
            end_layer=end,
            endpoints=(),
            launch=Launch(command, dict(self.spec.environment)),
            drain=None,
            reduced_limits=None,
            later_start=False,
            stall_hook=False,
        )


def _close(targets: Iterable[Target]) -> None:
    for target in targets:
        target.close()
