"""The machines of a route: what each really has, what it keeps back, what it may hold."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from pytest_meshnet.target.contract import Contract
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.manifest import GIB

_NODE = re.compile(r"(?:(?P<name>[^=]*)=)?(?P<ram>[^+:]*)(?:\+(?P<gpu>[^+:]*))?(?::(?P<kind>.*))?")
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")

Gib = int | float | Fraction


@dataclass(frozen=True, slots=True)
class Node:
    """One machine; capacities are physically usable GiB, `gpu_gib` None without its own GPU.

    Unified memory is one pool: its GPU addresses the same RAM, so naming GPU memory beside
    `unified` would count it twice and is refused. Raises TargetRefused: node-name, capacity,
    unified-counted-twice.
    """

    name: str
    ram_gib: Gib
    gpu_gib: Gib | None = None
    unified: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name != self.name.strip():
            raise TargetRefused("node-name", f"{self.name!r} names no node: name the machine")
        if not isinstance(self.unified, bool):
            raise TargetRefused("capacity", f"node {self.name}: unified must be true or false")
        _require_capacity(self.name, "RAM", self.ram_gib)
        if self.gpu_gib is None:
            return
        if self.unified:
            raise TargetRefused(
                "unified-counted-twice",
                f"node {self.name}: {self.gpu_gib} GiB of GPU memory beside unified memory is the "
                "same memory twice: name the pool once, as RAM",
            )
        _require_capacity(self.name, "GPU memory", self.gpu_gib)

    @classmethod
    def parse(cls, text: str, position: int) -> Self:
        """Read `[NAME=]RAM[+GPU][:unified]`, GiB in plain decimals; `position` counts from 1.

        An unnamed node is called `node-<position>`. Raises TargetRefused: node-grammar and the
        codes of the constructor.
        """
        found = _NODE.fullmatch(text)
        if found is None or found["kind"] not in (None, "unified"):
            raise TargetRefused(
                "node-grammar",
                f"{text!r} is no node: write [NAME=]RAM[+GPU][:unified], as in rig=64+24",
            )
        name = f"node-{position}" if found["name"] is None else found["name"]
        gpu = None if found["gpu"] is None else _decimal(text, found["gpu"])
        return cls(name, _decimal(text, found["ram"]), gpu, found["kind"] == "unified")

    @property
    def usable_bytes(self) -> int:
        """Everything the machine can physically use, in bytes; unified memory counted once."""
        return _bytes(self.ram_gib) + (0 if self.gpu_gib is None else _bytes(self.gpu_gib))


@dataclass(frozen=True, slots=True)
class Reserve:
    """What every node keeps back: the greater of a fraction of its memory and a floor in bytes."""

    fraction: Fraction
    floor_bytes: int

    @classmethod
    def of(cls, contract: Contract) -> Self:
        """Return the reserve the contract locks (20 % and 8 GiB in the published one)."""
        return cls(
            Fraction(str(contract.number("identity_and_fit", "min_node_reserve_fraction"))),
            _bytes(contract.number("identity_and_fit", "min_node_reserve_gib")),
        )

    def bytes_of(self, usable_bytes: int) -> int:
        """Return the reserve of a machine with that much usable memory, rounded up to a byte."""
        return max(math.ceil(usable_bytes * self.fraction), self.floor_bytes)

    def budget_of(self, node: Node) -> int:
        """Return how many bytes may be placed on `node`.

        Raises TargetRefused("no-budget") when nothing is left: such a figure is a placeholder or a
        machine that cannot take part, and planning with it would move the work to the others.
        """
        reserve = self.bytes_of(node.usable_bytes)
        if node.usable_bytes <= reserve:
            raise TargetRefused(
                "no-budget",
                f"node {node.name} has {node.usable_bytes / GIB:.3f} GiB, its reserve alone is "
                f"{reserve / GIB:.3f} GiB: name its real memory or leave it out",
            )
        return node.usable_bytes - reserve


def require_route(nodes: Sequence[Node]) -> None:
    """Refuse fewer than two nodes ("too-few-nodes") and one machine twice ("node-twice")."""
    names = [node.name.casefold() for node in nodes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TargetRefused(
            "node-twice", f"node {twice[0]!r} is in the route twice: a machine has its memory once"
        )
    if len(names) < 2:
        raise TargetRefused(
            "too-few-nodes", f"{len(names)} node is no route: name at least two machines"
        )


def require_accounted(total_bytes: int, parts: Sequence[int], free_bytes: int) -> int:
    """Return the bytes of a measured machine that no part explains.

    Raises TargetRefused("unaccounted") when parts and free memory exceed the total, which means
    that something was counted twice, and for negative figures.
    """
    if min((total_bytes, free_bytes, *parts)) < 0:
        raise TargetRefused("unaccounted", "a measured memory figure is negative: measure again")
    rest = total_bytes - free_bytes - sum(parts)
    if rest < 0:
        raise TargetRefused(
            "unaccounted",
            f"{sum(parts)} bytes in parts and {free_bytes} free exceed the total {total_bytes} by "
            f"{-rest}: a part is counted twice or belongs to another device",
        )
    return rest


def _decimal(text: str, number: str) -> Fraction:
    if not _DECIMAL.fullmatch(number):
        raise TargetRefused(
            "capacity", f"{number!r} in {text!r} is no positive number of GiB: write one, as in 64"
        )
    return Fraction(number)


def _require_capacity(name: str, what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
        raise TargetRefused(
            "capacity", f"node {name}: {what} is {value!r}, expected a number of GiB"
        )
    if not math.isfinite(value) or value <= 0:
        raise TargetRefused(
            "capacity", f"node {name}: {what} is {value} GiB, expected a finite positive number"
        )


def _bytes(gib: Gib) -> int:
    return math.floor(Fraction(gib) * GIB)
