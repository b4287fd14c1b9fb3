"""What an attack is, and the hands that make one.

An outsider edits files and can sign with a key of their own; an insider holds the bundle's key.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet.evidence.signing.keys import SigningKey, keygen
from pytest_meshnet.evidence.verify import CHECKS, Check, Question, Report, verify
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.tests.evidence.attacks.honest import HONEST
from pytest_meshnet.tests.evidence.making import LEDGER, Forger, trusting

Act = Callable[[Path, SigningKey], None]


@dataclass(frozen=True)
class Attack:
    """`check` is the one check without which the attack would end with another result.

    `on` names the honest run that is attacked, `asked` what the reader asks beside, `trusted` how
    the reader trusts the key. `limits` are limits of the verifier that are lowered for it, because
    what is beyond the real ones is too large to make.
    """

    name: str
    act: Act
    exit_code: int
    code: str
    check: str = ""
    on: str = "good"
    asked: Mapping[str, Any] = field(default_factory=dict)
    trusted: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)

    def question(self, key: SigningKey) -> Question:
        """What the reader of the attacked bundle asks."""
        return Question(trusting(key, **self.trusted), **self.asked)

    @contextmanager
    def within_limits(self) -> Iterator[None]:
        """Lower the verifier's limits for this attack, and spare it reading its ledger again."""
        load = Ledger.load
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "load", lambda path=None: load(path) if path else LEDGER)
            for name, value in self.limits.items():
                patch.setattr(f"pytest_meshnet.evidence.{name}", value)
            yield


@dataclass(frozen=True)
class Corpus:
    """The honest runs, and every attacked bundle that was made from them so far."""

    folder: Path
    key: SigningKey
    honest: Mapping[str, Path]
    attacked: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path) -> Corpus:
        """Make the honest runs."""
        keygen(folder / "key.pem")
        key = SigningKey.load(folder / "key.pem")
        found = {name: run(folder / f"out-{name}", key) for name, run in HONEST.items()}
        return cls(folder, key, found)

    def bundle(self, attack: Attack) -> Path:
        """Return the attacked bundle, made on the first call."""
        if attack.name not in self.attacked:
            path = self.folder / f"attacked-{len(self.attacked)}" / "copy"
            shutil.copytree(self.honest[attack.on], path)
            attack.act(path, self.key)
            self.attacked[attack.name] = path
        return self.attacked[attack.name]

    def verify(self, attack: Attack, checks: Mapping[str, Check] = CHECKS) -> Report:
        """Verify an attacked bundle as the attack's reader."""
        path = self.bundle(attack)
        with attack.within_limits():
            return verify(path, attack.question(self.key), checks)

    def complaint(self, attack: Attack) -> str:
        """Say how the verification ends otherwise than it must; empty when it does not."""
        try:
            report = self.verify(attack)
        except Exception as error:  # noqa: BLE001 - a mutant may break in any way
            return f"{type(error).__name__}: {error}"
        if report.result.exit_code != attack.exit_code:
            return f"ends with {report.result.exit_code}: {report.findings}"
        if attack.code and attack.code not in report.codes:
            return f"finds {sorted(report.codes)} and not {attack.code}"
        return ""


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
