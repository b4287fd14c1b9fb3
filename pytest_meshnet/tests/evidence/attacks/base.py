"""What an attack is, and the hands that make one.

An outsider edits files and can sign with a key of their own; an insider holds the bundle's key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.tests.evidence.making import Forger

Act = Callable[[Path, SigningKey], None]


@dataclass(frozen=True)
class Attack:
    """`check` is the one check without which the attack would end with another result."""

    name: str
    act: Act
    exit_code: int
    code: str
    check: str = ""


def insider(change: Callable[[Forger], Any]) -> Act:
    """Change something with the bundle's own key, then make the seal fit again."""

    def act(path: Path, key: SigningKey) -> None:
        forger = Forger(path, key)
        change(forger)
        forger.reseal()

    return act


def judged_insider(change: Callable[[Forger], Any]) -> Act:
    """The same, and both statements written as the changed journals give them."""

    def act(path: Path, key: SigningKey) -> None:
        forger = Forger(path, key)
        change(forger)
        forger.reseal()
        forger.rejudge()
        forger.reseal()

    return act


def sealer(change: Callable[[dict[str, Any]], Any]) -> Act:
    """Change only the seal, with the bundle's own key."""
    return lambda path, key: Forger(path, key).document("seal", change)


def outside(act: Callable[[Path], Any]) -> Act:
    def run(path: Path, key: SigningKey) -> None:
        act(path)

    return run


def about(test: str) -> Callable[[dict[str, Any]], bool]:
    return lambda record: record["body"].get("test") != test


def only(keep: Callable[[dict[str, Any]], bool]) -> Callable[[list[dict[str, Any]]], Any]:
    return lambda records: [one for one in records if keep(one)]


def body(of: str, number: int = 0, **change: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Change the body of one record of a type."""

    def act(records: list[dict[str, Any]]) -> None:
        [one for one in records if one["type"] == of][number]["body"].update(change)

    return act


def insert(kind: str, what: dict[str, Any]) -> Callable[[list[dict[str, Any]]], Any]:
    """Add a record before the last one."""

    def act(records: list[dict[str, Any]]) -> Any:
        return [*records[:-1], records[-1] | {"type": kind, "body": what}, records[-1]]

    return act


def times(change: Callable[[int, dict[str, Any]], None]) -> Callable[[list[dict[str, Any]]], None]:
    def act(records: list[dict[str, Any]]) -> None:
        for number, one in enumerate(records):
            change(number, one)

    return act


def shift(name: str, seconds: int, at: int = 5) -> Callable[[int, dict[str, Any]], None]:
    """Move one time of one record."""

    def change(number: int, record: dict[str, Any]) -> None:
        if number == at:
            record[name] = str(int(record[name]) + seconds * 10**9)

    return change
