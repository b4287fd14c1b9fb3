"""How a criterion reads a record: every claim with its source, nothing defaulted.

A claim is `{"value": ..., "source": "measured" | "reported" | "configured", "by": "..."}`. What is
absent, null, told where it must be measured, of the wrong kind, negative or not finite becomes a
problem of the criterion that asked for it, with a reason code of its own. Configuration is never
evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_meshnet.target.contract import Threshold
    from pytest_meshnet.target.documents import LockedTarget

MISSING = "missing"
NOT_MEASURED = "not-measured"
NOTHING_SCANNED = "nothing-scanned"
NOTHING_SEARCHED = "nothing-searched"
UNKNOWN = frozenset({MISSING, NOT_MEASURED, NOTHING_SCANNED, NOTHING_SEARCHED})
"""Codes of what nobody looked at: a criterion with nothing worse has no evidence."""
SOURCES = ("measured", "reported", "configured")
"""Strongest first: a criterion is as good as the weakest claim it read."""

GIB = 2**30

_LARGEST = 2**63 - 1
"""No size, count or time of a real run exceeds what 64 bits hold."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a criterion is not met: `code` is stable, `text` says what was found and expected."""

    code: str
    text: str


@dataclass(slots=True)
class Reading:
    """One criterion at work: what it may read, what it asked for, and what it found wrong.

    Readers return None where the claim cannot be used, having noted why; a criterion then has
    nothing more to say about it.
    """

    record: Mapping[str, Any]
    locked: LockedTarget
    section: str
    key: str
    problems: list[Problem] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)
    measured: Any = None
    unit: str = ""
    note: str = ""

    @property
    def threshold(self) -> Threshold:
        """The locked threshold of this criterion."""
        if self.section == "target":
            bound: Threshold = getattr(self.locked.contract.target, self.key)
            return bound
        return self.locked.contract.threshold(self.section, self.key)

    def locked_number(self, section: str, key: str) -> int | float:
        """Another number that the contract locks."""
        return self.locked.contract.number(section, key)

    @property
    def limit(self) -> int | float:
        """The threshold of this criterion, which is a number."""
        return self.locked_number(self.section, self.key)

    def fail(self, code: str, text: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(code, text))

    def show(self, value: Any, unit: str = "") -> None:
        """Keep what was measured, for the line of this criterion."""
        self.measured, self.unit = value, unit

    # Claims ------------------------------------------------------------------------------------

    def claim(self, part: Mapping[str, Any], name: str, where: str, *, told: bool = False) -> Any:
        """The value of the claim `name` of `part`, when it was measured.

        `told` is for what only the runtime itself can know: then its report is enough.
        """
        found = part.get(name)
        value = found.get("value") if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping) or value is None:
            self.fail(MISSING, f"{where}.{name} is not in the record")
            return None
        source = found.get("source")
        self.sources.add(str(source))
        if source not in SOURCES[: 2 if told else 1]:
            enough = "a measurement or the runtime's report" if told else "a measurement"
            self.fail(NOT_MEASURED, f"{where}.{name} is {source}, and only {enough} counts")
            return None
        if not str(found.get("by", "")).strip():
            self.fail(NOT_MEASURED, f"{where}.{name} is {source} by nobody: name who looked")
            return None
        return value

    def number(
        self, part: Mapping[str, Any], name: str, where: str, *, told: bool = False
    ) -> int | float | None:
        """A finite number of at least zero; a boolean is none."""
        value = self.claim(part, name, where, told=told)
        return None if value is None else self.as_number(value, f"{where}.{name}")

    def as_number(self, value: Any, where: str) -> int | float | None:
        """`value` as a finite number of at least zero."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail("not-a-number", f"{where} is {value!r}, expected a number")
        elif isinstance(value, float) and not math.isfinite(value):
            self.fail("not-finite", f"{where} is {value}, expected a finite number")
        elif value < 0:
            self.fail("negative", f"{where} is below zero, which cannot be")
        elif value > _LARGEST:
            self.fail("too-large", f"{where} has more than 64 bits, which cannot be")
        else:
            return value
        return None

    def count(
        self, part: Mapping[str, Any], name: str, where: str, *, told: bool = False
    ) -> int | None:
        """A whole number of at least zero."""
        value = self.claim(part, name, where, told=told)
        return None if value is None else self.as_count(value, f"{where}.{name}")

    def as_count(self, value: Any, where: str) -> int | None:
        """`value` as a whole number of at least zero; a float is none, whatever it is."""
        found = self.as_number(value, where)
        if found is None or isinstance(found, int):
            return found
        self.fail("not-a-number", f"{where} is {found!r}, expected a whole number")
        return None

    def above_zero(self, found: float, what: str) -> None:
        """Require something: an instrument that shows nothing is no measurement."""
        if found == 0:
            self.fail("zero", f"{what} is 0, which no run can have")

    def flag(
        self, part: Mapping[str, Any], name: str, where: str, *, told: bool = False
    ) -> bool | None:
        """True or false."""
        value = self.claim(part, name, where, told=told)
        if value is None or isinstance(value, bool):
            return value
        self.fail("wrong-type", f"{where}.{name} is {value!r}, expected true or false")
        return None

    def text(
        self, part: Mapping[str, Any], name: str, where: str, *, told: bool = False
    ) -> str | None:
        """A text that is not blank."""
        value = self.claim(part, name, where, told=told)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        self.fail("wrong-type", f"{where}.{name} is {value!r}, expected a text")
        return None

    def items(
        self, part: Mapping[str, Any], name: str, where: str, *, told: bool = False
    ) -> Sequence[Any] | None:
        """A list, which may be empty."""
        value = self.claim(part, name, where, told=told)
        if value is None or isinstance(value, (list, tuple)):
            return value
        self.fail("wrong-type", f"{where}.{name} is {value!r}, expected a list")
        return None

    # Parts -------------------------------------------------------------------------------------

    def part(self, *path: str) -> Mapping[str, Any]:
        """A part of the record by its path; an empty one where the record has none."""
        found: Any = self.record
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def parts(self, *path: str) -> list[Mapping[str, Any]]:
        """A list of parts by its path. An absent or empty one is a problem."""
        found = self.part(*path[:-1]).get(path[-1])
        entries = found if isinstance(found, (list, tuple)) else ()
        listed = [one for one in entries if isinstance(one, Mapping)]
        if not listed or len(listed) < len(entries):
            self.fail(MISSING, f"{'.'.join(path)} has no entry, or an empty one, in the record")
        return listed

    def nodes(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Every machine with the path that names it in messages."""
        for number, node in enumerate(self.parts("identity_and_fit", "nodes")):
            yield f"nodes[{number}]", node

    # Judgements that many criteria share -------------------------------------------------------

    def equal(self, found: Any, expected: Any, what: str) -> None:
        """Require a value; a boolean never equals a number."""
        if type(found) is not type(expected) or found != expected:
            self.fail("differs", f"{what} is {found!r}, expected {expected!r}")

    def at_least(self, found: float, least: float, what: str) -> None:
        """Require a value of at least `least`."""
        if found < least:
            self.fail("too-low", f"{what} is {found:g}, at least {least:g} is needed")

    def at_most(self, found: float, most: float, what: str) -> None:
        """Require a value of at most `most`."""
        if found > most:
            self.fail("too-high", f"{what} is {found:g}, at most {most:g} is allowed")

    def all_refused(self, part: Mapping[str, Any], where: str) -> None:
        """Require that something was tried at least once, and refused every time."""
        tried, refused = self.count(part, "tried", where), self.count(part, "refused", where)
        if tried is None or refused is None:
            return
        if tried == 0:
            self.fail("not-tried", f"{where} was never tried")
        if refused > tried:
            self.fail("contradictory", f"{where}: {refused} of {tried} tries were refused")
        elif refused < tried:
            self.fail("accepted", f"{where}: {tried - refused} of {tried} tries were accepted")
