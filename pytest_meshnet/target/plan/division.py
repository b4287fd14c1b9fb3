"""Dividing a sequence of layers over machines, exactly: the search behind `placement`.

A dynamic programme over (machines used, layers placed). Machines that are alike count as one kind,
so equal machines cost almost nothing; every order of kinds is searched.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import lcm

State = tuple[int, ...]
# For each state and end: cost, the state before, the start of the last machine, its kind.
Table = dict[State, dict[int, tuple[int, State, int, int]]]


@dataclass(frozen=True)
class Loads:
    """Bytes to place: `layers[i]` is layer i with its cache; head, tail and every come on top.

    `every` is what each node holds whatever its layers (replicated tensors, scratch it must keep
    beside the reserve). A cut before a layer that is not in `group_starts` breaks an IndexShare
    group.
    """

    layers: tuple[int, ...]
    head: int
    tail: int
    every: int
    group_starts: frozenset[int]

    @cached_property
    def prefix(self) -> tuple[int, ...]:
        """Running sums of `layers`, from 0."""
        return (0, *accumulate(self.layers))

    def of(self, start: int, end: int) -> int:
        """Return the bytes on a node that holds `[start, end)`."""
        head = self.head if start == 0 else 0
        tail = self.tail if end == len(self.layers) else 0
        return self.prefix[end] - self.prefix[start] + self.every + head + tail

    def breaks_group(self, cut: int) -> bool:
        """Return whether a seam before layer `cut` cuts an IndexShare group."""
        return 0 < cut < len(self.layers) and cut not in self.group_starts


@dataclass(frozen=True, slots=True)
class Kind:
    """Machines that nothing tells apart but their names."""

    budget: int
    weight: Fraction
    names: tuple[str, ...]


class Search:
    """The dynamic programme. A state is how many machines of each kind are used.

    With a fixed order every machine is followed by exactly one other, so a state is reached by one
    path only; the tables are the same.
    """

    def __init__(self, loads: Loads, kinds: Sequence[Kind], order: Sequence[str] | None) -> None:
        self._loads = loads
        self._kinds = kinds
        self._order = order
        self._count = len(loads.layers)
        self._steps = list(self._transitions())

    def caps(self, peak: Fraction | None) -> list[int]:
        """Return the bytes a machine of each kind may hold for a greatest load of `peak`."""
        if peak is None:
            return [kind.budget for kind in self._kinds]
        return [min(kind.budget, int(peak * kind.weight)) for kind in self._kinds]

    def fewest_cuts(self, caps: list[int], broken: list[int]) -> int | None:
        """Return the least sum of `broken` over the cuts of a placement within `caps`, or None."""
        never = self._count + 1
        starts = [self._lowest_starts(cap) for cap in caps]
        table = {self._first: [0] + [never] * self._count}
        for state, kind, following in self._steps:
            before, lowest = table[state], starts[kind]
            after = table.setdefault(following, [never] * (self._count + 1))
            for end in range(1, self._count + 1):
                if lowest[end] < end:
                    cost = min(before[lowest[end] : end]) + broken[end]
                    after[end] = min(after[end], cost)
        found = table[self._last][self._count]
        return found if found < never else None

    def least_peak(self, broken: list[int], most: int) -> Fraction:
        """Return the least peak of a placement with at most `most` broken cuts, which exists."""
        peaks = sorted(
            {
                Fraction(self._loads.of(start, end), kind.weight)
                for kind in self._kinds
                for start in range(self._count)
                for end in range(start + 1, self._count + 1)
                if self._loads.of(start, end) <= kind.budget
            }
        )
        low, high = 0, len(peaks) - 1
        while low < high:
            middle = (low + high) // 2
            cuts = self.fewest_cuts(self.caps(peaks[middle]), broken)
            if cuts is not None and cuts <= most:
                high = middle
            else:
                low = middle + 1
        return peaks[low]

    def best(self, peak: Fraction, broken: list[int]) -> list[tuple[int, int, int]]:
        """Return (start, end, kind) of each machine in route order.

        It is the division within `peak` that breaks least and, among those, has the least sum of
        squared loads in proportion to the weights.
        """
        starts = [self._lowest_starts(cap) for cap in self.caps(peak)]
        square = self._square_weights()
        # One cut weighs more than the squared loads of all machines can differ.
        per_cut = 1 + self._count * max(square) * self._loads.of(0, self._count) ** 2
        table: Table = {self._first: {0: (0, self._first, 0, 0)}}
        for state, kind, following in self._steps:
            after = table.setdefault(following, {})
            for start, (cost, *_) in table[state].items():
                for end in range(start + 1, self._count + 1):
                    if start < starts[kind][end]:
                        break
                    load = self._loads.of(start, end)
                    total = cost + broken[end] * per_cut + load * load * square[kind]
                    if end not in after or total < after[end][0]:
                        after[end] = (total, state, start, kind)
        return self._read_back(table)

    def _read_back(self, table: Table) -> list[tuple[int, int, int]]:
        pieces = []
        state, end = self._last, self._count
        while state != self._first:
            _, before, start, kind = table[state][end]
            pieces.append((start, end, kind))
            state, end = before, start
        pieces.reverse()
        return pieces

    def _transitions(self) -> Iterator[tuple[State, int, State]]:
        """Yield (state, kind of the next machine, state after it), earlier states first."""
        sizes = tuple(len(kind.names) for kind in self._kinds)
        self._first: State = tuple(0 for _ in sizes)
        self._last: State = sizes
        level, position = [self._first], 0
        while level != [self._last]:
            following: dict[State, None] = {}
            for state in level:
                for kind in self._next_kinds(state, sizes, position):
                    after = (*state[:kind], state[kind] + 1, *state[kind + 1 :])
                    following[after] = None
                    yield state, kind, after
            level, position = list(following), position + 1

    def _next_kinds(self, state: State, sizes: State, position: int) -> list[int]:
        if self._order is None:
            return [kind for kind, used in enumerate(state) if used < sizes[kind]]
        name = self._order[position]
        return [index for index, kind in enumerate(self._kinds) if name in kind.names]

    def _lowest_starts(self, cap: int) -> list[int]:
        """Return, for each end, the lowest start whose load is within `cap`; the end if none is."""
        lowest = [0]
        for end in range(1, self._count + 1):
            top = self._loads.prefix[end] + self._loads.every
            top += self._loads.tail if end == self._count else 0
            start = bisect_left(self._loads.prefix, top - cap, 0, end)
            if start == 0 and self._loads.of(0, end) > cap:
                start = 1
            lowest.append(start)
        return lowest

    def _square_weights(self) -> list[int]:
        """Return integers proportional to 1 / weight, so that squared loads add up exactly."""
        common = lcm(*(kind.weight.numerator for kind in self._kinds))
        return [kind.weight.denominator * (common // kind.weight.numerator) for kind in self._kinds]
