"""Hardware lanes: the marks that name a class of machines, as data.

A lane says what it wants of a device, how many, or which fact about the host. Every lane implies
the mark `hardware`. Users add lanes in an ini file or by the hook `pytest_meshnet_lanes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pytest_meshnet.hardware.inventory.device import GIB, Device

UMBRELLA = "hardware"
UMBRELLA_LINE = f'{UMBRELLA}: implied by every hardware lane; `-m "not {UMBRELLA}"` runs all else.'
"""The line of the common mark in `pytest --markers`."""

Parameter = Literal["", "count", "gfx", "name"]


class LaneError(ValueError):
    """A lane is declared wrongly, or a mark has arguments that its lane does not accept."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a device is wanted, and why. None: it cannot be told."""

    value: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Want:
    """Conditions on one device; a condition that is None accepts anything.

    `name` is the whole product name, with or without the vendor before it; `word` a part of it
    between word boundaries. Memory bounds are bytes, both inclusive. `whole` excludes MIG
    instances.
    """

    vendor: str | None = None
    name: str | None = None
    word: str | None = None
    capability: tuple[int, int] | None = None
    capability_from: tuple[int, int] | None = None
    gfx: str | None = None
    memory_from: int | None = None
    memory_to: int | None = None
    whole: bool = False

    def fits(self, device: Device) -> Fit:
        """Judge a device by every condition; a plain no outweighs what is unknown."""
        if device.split:
            return Fit(False, "it is in MIG mode, and only its instances run anything")
        answers = list(self._answers(device))
        for value in (False, None):
            found = next((one for one in answers if one.value is value), None)
            if found is not None:
                return found
        return Fit(True)

    def _answers(self, device: Device) -> Iterator[Fit]:
        if self.vendor is not None:
            yield Fit(device.vendor == self.vendor, f"its vendor is {device.vendor}")
        if self.whole:
            yield Fit(device.mig is None, "it is a MIG instance")
        if self.name is not None:
            name = (device.name or "").lower().removeprefix("nvidia ").removeprefix("amd ")
            yield _known(device, "name", device.name, name == self.name.lower())
        if self.word is not None:
            found = re.search(rf"\b{re.escape(self.word)}\b", device.name or "", re.IGNORECASE)
            yield _known(device, "name", device.name, found is not None)
        yield from self._of_architecture(device)
        memory = device.memory_bytes
        if self.memory_from is not None:
            yield _known(device, "memory_bytes", memory, (memory or 0) >= self.memory_from)
        if self.memory_to is not None:
            yield _known(device, "memory_bytes", memory, (memory or 0) <= self.memory_to)

    def _of_architecture(self, device: Device) -> Iterator[Fit]:
        found = device.capability
        if (self.capability or self.capability_from) and device.vendor != "nvidia":
            yield Fit(False, f"a {device.vendor} device has no CUDA compute capability")
        elif self.capability is not None:
            yield _known(device, "capability", found, found == self.capability)
        elif self.capability_from is not None:
            yield _known(device, "capability", found, (found or (0, 0)) >= self.capability_from)
        if self.gfx is not None:
            yield _known(device, "gfx", device.gfx, device.gfx == self.gfx)


def _known(device: Device, what: str, value: object, holds: bool) -> Fit:
    if value is None:
        return Fit(
            None, f"its {what} is unknown ({device.unknown.get(what, 'no driver tells it')})"
        )
    return Fit(holds, f"its {what} is {value}")


@dataclass(frozen=True, slots=True)
class Lane:
    """One mark: its name, what it means to a person, and what it needs.

    `want` is None for a lane that is about the host and no device; `fact` then names what the host
    must be known to have. `parameter` is what the mark's argument sets.
    """

    name: str
    meaning: str
    want: Want | None = None
    count: int = 1
    fact: str = ""
    parameter: Parameter = ""
    argument_is_optional: bool = False

    @property
    def parameters(self) -> str:
        """The parameters as `pytest --markers` shows them."""
        shown = {"": "", "count": "(n)", "gfx": "(gfx)", "name": "(name)"}[self.parameter]
        return "(gfx=None)" if shown and self.argument_is_optional else shown

    @property
    def sentence(self) -> str:
        """What `pytest --markers` says about the lane."""
        return f"needs {self.meaning}; implies {UMBRELLA}."

    def need(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Need:
        """Return what a mark of this lane asks for. Raises LaneError for its arguments."""
        given = list(args)
        if kwargs and not given and set(kwargs) == {_KEYWORDS.get(self.parameter)}:
            given = list(kwargs.values())
        elif kwargs:
            raise LaneError(f"{self.name} has {dict(kwargs)}: write {self.name}{self.parameters}")
        if not given and (self.argument_is_optional or not self.parameter):
            return Need(self.name, self.want, self.count if self.want else 0, self.fact)
        if len(given) != 1 or not self.parameter or not self._accepts(given[0]):
            expected = f"{self.name}{self.parameters or ' without arguments'}"
            raise LaneError(
                f"{self.name}{tuple(given)}: expected {expected}{_EXPECTED[self.parameter]}"
            )
        return self._with(given[0])

    def least(self) -> Need:
        """Return the least that any test of this lane asks for, whatever its argument."""
        return Need(self.name, self.want, self.count if self.want else 0, self.fact)

    def _accepts(self, value: Any) -> bool:
        if self.parameter == "count":
            return type(value) is int and value >= 2
        return isinstance(value, str) and bool(value)

    def _with(self, value: Any) -> Need:
        if self.parameter == "count":
            fact = f"{self.fact}:{value}" if self.fact else ""
            return Need(self.name, self.want, value if self.want else 0, fact)
        if self.parameter == "gfx":
            return Need(self.name, replace(self.want or Want(), gfx=value), self.count, self.fact)
        return Need(self.name, self.want, self.count if self.want else 0, f"{self.fact}:{value}")


_EXPECTED = {
    "": "",
    "count": ", n a whole number from 2",
    "gfx": ', for example rocm("gfx1100")',
    "name": ', for example real_runtime("llama.cpp")',
}
_KEYWORDS = {"count": "n", "gfx": "gfx", "name": "name"}


@dataclass(frozen=True, slots=True)
class Need:
    """What one mark on one test asks for: `count` devices that fit, and a fact about the host."""

    lane: str
    want: Want | None
    count: int
    fact: str = ""


BUILT_IN = (
    Lane("gpu", "any one GPU, or one MIG instance", Want()),
    Lane(
        "rtx3060",
        "one GeForce RTX 3060 12 GB, sm_86",
        Want(
            name="GeForce RTX 3060",
            capability=(8, 6),
            memory_from=11 * GIB,
            memory_to=13 * GIB,
            whole=True,
        ),
    ),
    Lane(
        "h200",
        "one whole H200, sm_90",
        Want(vendor="nvidia", word="H200", capability=(9, 0), whole=True),
    ),
    Lane("multi_gpu", "n whole GPUs of one vendor", Want(whole=True), 2, parameter="count"),
    Lane(
        "rocm",
        "one AMD GPU, of this gfx where one is named",
        Want(vendor="amd"),
        parameter="gfx",
        argument_is_optional=True,
    ),
    Lane("multi_machine", "n machines", fact="machines", parameter="count"),
    Lane("real_target", "the GLM-5.2 artifact on this host", fact="real_target"),
    Lane("real_runtime", "this runtime on this host", fact="real_runtime", parameter="name"),
)
"""The lanes that every installation has."""


def line(lane: Lane) -> str:
    """Return the line of a lane for `pytest --markers`."""
    return f"{lane.name}{lane.parameters}: {lane.sentence}"


def table(own: Iterable[Lane]) -> dict[str, Lane]:
    """Return all lanes by name. Raises LaneError when a user's lane takes a name twice."""
    found = {lane.name: lane for lane in BUILT_IN}
    for lane in own:
        if lane.name in found or lane.name == UMBRELLA:
            raise LaneError(f"the lane {lane.name} exists already: choose another name")
        found[lane.name] = lane
    return found


# Lanes of an ini file --------------------------------------------------------------------------

_CONDITION = re.compile(r"(?P<key>[a-z]+)\s*(?P<how>>=|<=|=|~)\s*(?P<value>.+)")
_KEYS = "vendor=, name=, name~, sm=, sm>=, gfx=, memory>=, memory<=, count=, mig=no"


def parse(text: str) -> Lane:
    """Read `a6000: name~RTX A6000, sm=8.6, memory>=47GiB, count=2`. Raises LaneError."""
    name, colon, conditions = text.partition(":")
    name = name.strip()
    if not colon or not name.isidentifier():
        raise LaneError(
            f"the lane {text!r}: expected NAME: CONDITION, ... with a Python identifier"
        )
    want, count = Want(), 1
    for part in filter(None, (one.strip() for one in conditions.split(","))):
        found = _CONDITION.fullmatch(part)
        if found is None:
            raise LaneError(f"the lane {name}: {part!r} is no condition: expected {_KEYS}")
        key, how, value = found["key"], found["how"], found["value"].strip()
        if (key, how) == ("count", "="):
            count = _whole_number(name, value)
        else:
            want = replace(want, **_condition(name, key + how, value))
    return Lane(name, conditions.strip() or "any one GPU", want, count)


def _condition(lane: str, condition: str, value: str) -> dict[str, Any]:
    plain = {"vendor=": "vendor", "name=": "name", "name~": "word", "gfx=": "gfx"}
    if condition in plain:
        return {plain[condition]: value}
    if condition in ("sm=", "sm>="):
        major, _, minor = value.removeprefix("sm_").partition(".")
        if not minor:
            major, minor = major[:-1], major[-1:]
        key = "capability" if condition == "sm=" else "capability_from"
        return {key: (_whole_number(lane, major), _whole_number(lane, minor))}
    if condition in ("memory>=", "memory<="):
        bytes_ = _whole_number(lane, value.removesuffix("GiB").strip()) * GIB
        return {"memory_from" if condition == "memory>=" else "memory_to": bytes_}
    if condition == "mig=" and value == "no":
        return {"whole": True}
    raise LaneError(f"the lane {lane}: {condition}{value} is no condition: expected {_KEYS}")


def _whole_number(lane: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise LaneError(f"the lane {lane}: {text!r} is no whole number (memory is in GiB)")
    return int(text)


# Lanes of a -m expression ----------------------------------------------------------------------

_TOKEN = re.compile(r"[()]|\"[^\"]*\"|'[^']*'|[^\s()\"']+")


def asked_for(expression: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a `-m` expression asks for, and not those it only excludes."""
    known = set(names)
    return frozenset(token for token, wanted in _signed(expression) if wanted and token in known)


def excludes_hardware(expression: str) -> bool:
    """Say whether a `-m` expression surely deselects every hardware test."""
    signed = list(_signed(expression))
    # Behind a `not`, an `and` leaves alternatives as an `or` does elsewhere.
    return (UMBRELLA, False) in signed and not {("or", True), ("and", False)} & set(signed)


def _signed(expression: str) -> Iterator[tuple[str, bool]]:
    """Yield each word with False when an odd number of `not` stands before it."""
    outer: list[bool] = []
    inside = sign = True
    for token in _TOKEN.findall(expression):
        if token == "not":
            sign = not sign
        elif token == "(":
            outer.append(inside)
            inside = sign
        elif token == ")":
            inside = sign = outer.pop() if outer else True
        else:
            yield token, sign
            sign = inside
