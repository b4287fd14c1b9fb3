"""Which requirements apply to a target: the `needs` of the ledger over recorded facts.

A need is judged with three values. A fact that nobody recorded leaves it undecided, and an
undecided need never excuses a test: unknown is not "no".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

FactValue = int | bool | str
Source = Literal["capability", "descriptor", "observed"]


class FactError(ValueError):
    """A fact has an unknown name or a value of the wrong type."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One recorded fact about a target and where it comes from.

    `capability` was told by the runtime, `descriptor` is configuration, `observed` was measured.
    """

    value: FactValue
    source: Source


FACTS: Mapping[str, type] = {
    "launch": bool,
    "max_concurrent_sessions": int,
    "max_context_tokens": int,
    "reduced_limits_variant": bool,
    "layers": int,
    "later_start": bool,
    "tail": bool,
    "stall_hook": bool,
    "grants": bool,
    "drain_command": bool,
    "logits_and_token": bool,
    "codec_testee": bool,
}
"""Every fact that a need may be judged by, with the type of its value.

`layers` counts the layers of the served range; `later_start` says that an effective start after
the first layer was accepted; `reduced_limits_variant` that the descriptor can start one.
"""

CODEC_TESTEE = "codec-testee"
"""The need of every test that examines the runtime's own codec."""

_Facts = Mapping[str, Fact]


def _flag(facts: _Facts, name: str) -> bool | None:
    fact = facts.get(name)
    return None if fact is None else bool(fact.value)


def _count(facts: _Facts, name: str, holds: Callable[[int], bool]) -> bool | None:
    """Whether a count holds; 0 is what a report says that does not tell it."""
    fact = facts.get(name)
    return holds(int(fact.value)) if fact is not None and fact.value else None


def _any_of(*answers: bool | None) -> bool | None:
    if True in answers:
        return True
    return None if None in answers else False


def _all_of(*answers: bool | None) -> bool | None:
    if False in answers:
        return False
    return None if None in answers else True


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


NEEDS: Mapping[str, Callable[[_Facts], bool | None]] = {
    "launch": lambda facts: _flag(facts, "launch"),
    "sessions>=2": lambda facts: _count(facts, "max_concurrent_sessions", lambda n: n >= 2),
    "sessions<=64": lambda facts: _any_of(
        _count(facts, "max_concurrent_sessions", lambda n: n <= 64),
        _flag(facts, "reduced_limits_variant"),
    ),
    "reduced-limits": lambda facts: _any_of(
        _count(facts, "max_context_tokens", lambda n: n <= 4096),
        _flag(facts, "reduced_limits_variant"),
    ),
    "layers>=2": lambda facts: _all_of(
        _count(facts, "layers", lambda n: n >= 2), _flag(facts, "later_start")
    ),
    "not-tail": lambda facts: _not(_flag(facts, "tail")),
    "stall-hook": lambda facts: _flag(facts, "stall_hook"),
    "grants": lambda facts: _flag(facts, "grants"),
    "drain-command": lambda facts: _flag(facts, "drain_command"),
    "logits-and-token": lambda facts: _flag(facts, "logits_and_token"),
    CODEC_TESTEE: lambda facts: _flag(facts, "codec_testee"),
}
"""The rule of each need of the ledger: True, False, or None while it cannot be decided."""


def unmet(needs: Iterable[str], facts: Mapping[str, Fact]) -> str | None:
    """Return the first need that the recorded facts contradict, or None.

    Raises FactError for a malformed fact and for a need without a rule.
    """
    check_facts(facts)
    for need in needs:
        rule = NEEDS.get(need)
        if rule is None:
            raise FactError(f"the need {need!r} has no rule: expected one of {', '.join(NEEDS)}")
        if rule(facts) is False:
            return need
    return None


def check_facts(facts: Mapping[str, Fact]) -> None:
    """Raise FactError for an unknown name, a value of another type or an unknown source.

    A misspelt name would otherwise leave its need undecided for ever.
    """
    for name, fact in facts.items():
        expected = FACTS.get(name)
        if expected is None:
            raise FactError(f"unknown fact {name!r}: expected one of {', '.join(FACTS)}")
        if type(fact.value) is not expected:
            raise FactError(f"the fact {name} is {fact.value!r}: expected {expected.__name__}")
        if fact.source not in get_args(Source):
            raise FactError(f"the fact {name} has source {fact.source!r}: expected {Source}")
