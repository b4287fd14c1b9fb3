"""Which tests and which mutants speak for each requirement, and where one is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_meshnet.ledger.requirements import Ledger, Requirement
from pytest_meshnet.ledger.status import PlannedTest


@dataclass(frozen=True, slots=True)
class Coverage:
    """The tests and the mutants of one requirement, by their ids."""

    requirement: Requirement
    tests: tuple[str, ...]
    mutants: tuple[str, ...]

    @property
    def gaps(self) -> tuple[str, ...]:
        """What a MUST still lacks: "no test", "no mutant", both or nothing."""
        if self.requirement.level != "MUST":
            return ()
        lacking = [("no test", self.tests), ("no mutant", self.mutants)]
        return tuple(word for word, found in lacking if not found)


def cover(
    ledger: Ledger, planned: Iterable[PlannedTest], mutants: Mapping[str, Iterable[str]]
) -> tuple[Coverage, ...]:
    """Return the coverage of every requirement, in the order of the ledger.

    `mutants` maps each mutant's id to the requirements it breaks. Raises UnknownRequirement when
    a test or a mutant names an id that is not in the ledger.
    """
    tests: dict[str, list[str]] = {one.id: [] for one in ledger.requirements}
    killers: dict[str, list[str]] = {one.id: [] for one in ledger.requirements}
    for one in planned:
        for name in one.requirements:
            tests[ledger.get(name).id].append(one.test)
    for mutant, names in mutants.items():
        for name in names:
            killers[ledger.get(name).id].append(mutant)
    return tuple(
        Coverage(one, tuple(tests[one.id]), tuple(killers[one.id])) for one in ledger.requirements
    )
