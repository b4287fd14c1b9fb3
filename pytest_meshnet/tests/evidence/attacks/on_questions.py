"""Bundles that are what they are, before a reader who asks for more; and what a reader is told."""

from __future__ import annotations

import hashlib
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_meshnet import layout
from pytest_meshnet.evidence.documents import document_name
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.verify.policy import Policy
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.attacks.base import (
    Act,
    Attack,
    insert,
    insider,
    judged_insider,
    outside,
    shift,
    times,
)
from pytest_meshnet.tests.evidence.attacks.honest import ARTIFACT, CHALLENGE, STRANGER
from pytest_meshnet.tests.evidence.attacks.on_journals import forged, second_attempt
from pytest_meshnet.tests.evidence.making import PROFILE, RUNTIME_TEST, Forger

Hand = Callable[[Callable[[Forger], Any]], Act]
HOUR = 3600 * 10**9


def nothing(path: Path, key: SigningKey) -> None:
    """The bundle stays as it is; only the question is another."""


def asked(name: str, code: str, on: str = "good", act: Act = nothing, **policy: Any) -> Attack:
    """A policy that the run does not meet."""
    return Attack(name, act, 1, code, "policy", on, {"policy": Policy(**policy)})


def met(name: str, on: str = "good", code: str = "", act: Act = nothing, **policy: Any) -> Attack:
    """A policy that the run meets."""
    return Attack(name, act, 0, code, "", on, {"policy": Policy(**policy)})


def trusting(name: str, code: str, **trusted: Any) -> Attack:
    return Attack(name, nothing, 4, code, "signer", trusted=trusted)


def old(name: str, age: int, allowed: bool) -> Attack:
    """A policy of three hours before a seal of this age in nanoseconds."""
    sealed = making.ticking()()[1]  # all honest runs begin at the same time
    question = {"policy": Policy(max_age_hours=3), "now_ns": sealed + age}
    if allowed:
        return Attack(name, nothing, 0, "", asked=question)
    return Attack(name, nothing, 1, "policy-age", "policy", asked=question)


def from_another(name: str) -> Act:
    """Take a file from another bundle by the same key."""

    def act(path: Path, key: SigningKey) -> None:
        other = making.make(path.parent / "other", key, challenge=CHALLENGE)
        shutil.copyfile(other / name, path / name)

    return act


def anchored(content: Callable[[str], bytes], name: str = "stamp") -> Act:
    """Add an anchor, made from the SHA-256 hex of the seal."""

    def act(path: Path) -> None:
        seal = (path / document_name("seal")).read_bytes()
        digest = hashlib.sha256(seal).hexdigest()
        (path / "anchors").mkdir()
        (path / "anchors" / name.format(digest)).write_bytes(content(digest))

    return outside(act)


def dsse_about(digest: str) -> bytes:
    payload = f'{{"subject":[{{"digest":{{"sha256":"{digest}"}}}}]}}'.encode()
    return b'{"payload":"' + b64encode(payload) + b'"}'


def by_ledger(change: Callable[[str], str], hand: Hand = judged_insider) -> tuple[Act, str]:
    """Say that the run was made by a ledger of its own, which travels along."""
    text = change((layout.folder("conformance") / "requirements.toml").read_text())
    digest = hashlib.sha256(text.encode()).hexdigest()

    def act(forger: Forger) -> None:
        copies = forger.path / "artifacts" / "sha256"
        (copies / digest).write_text(text)
        forger.document("start", lambda start: start["ledger"].update(digest=digest))

    return hand(act), digest


def misnamed(path: Path, key: SigningKey) -> None:
    """Let another ledger travel under the name of one that was accepted."""
    OTHER_LEDGER(path, key)
    with (path / "artifacts" / "sha256" / OTHER_DIGEST).open("a") as copy:
        copy.write("# and another\n")


def unknown_need(text: str) -> str:
    """Let the test about the runtime need something that no suite has a rule for."""
    place = text.index('id = "DECODE-01"')
    text = text[:place] + 'needs = ["moon"]\n' + text[place:]
    return text.replace("[needs]\n", '[needs]\n"moon" = "the moon is full"\n', 1)


def start(**change: Any) -> Act:
    return insider(lambda forger: forger.document("start", lambda found: found.update(change)))


def environment(**change: str) -> Act:
    return insider(lambda f: f.document("start", lambda found: found["environment"].update(change)))


PLUGIN = {"name": STRANGER.name, "version": STRANGER.version}
OTHER_LEDGER, OTHER_DIGEST = by_ledger(lambda text: text + "# another version\n")
MOON, MOON_DIGEST = by_ledger(unknown_need, insider)
EARLY, LATE = 1, 2**62

ON_QUESTIONS = (
    # replay
    Attack("an old run in answer to a new challenge", nothing, 2, "challenge-differs", "challenge",
           asked={"challenge": "c-2"}),
    Attack("a run without challenge in answer to one", nothing, 2, "challenge-differs",
           "challenge", "second", asked={"challenge": "c-1"}),
    Attack("a run in answer to its challenge", nothing, 0, "", asked={"challenge": CHALLENGE}),
    *(
        Attack(f"{name} of another bundle", from_another(name), 2, code)
        for name, code in (
            ("start.dsse.json", "run-differs"),
            ("plan.dsse.json", "plan-unbound"),
            ("statement.dsse.json", "statement-differs"),
            ("run.dsse.json", "run-differs"),
            ("seal.dsse.json", "digest-differs"),
            ("journal/main.jsonl", "run-differs"),
        )
    ),
    # trust
    trusting("a key that was revoked", "signer-revoked", revoked=True),
    trusting("a key for other runtimes", "signer-scope", scope=("vendor-*",)),
    trusting("a key of later", "signer-window", valid_from=LATE),
    trusting("a key of before", "signer-window", valid_until=EARLY),
    Attack("a key that nobody keeps", nothing, 4, "signer-ephemeral", "signer", "ephemeral"),
    # a plugin that rewrites outcomes
    Attack("a plugin in a certificate run", start(plugins=[PLUGIN]), 2, "certificate-plugin",
           "certificate"),
    Attack("a plugin that came late to a certificate run",
           insider(lambda f: f.journal(insert("plugins", {"plugins": [PLUGIN]}))), 2,
           "certificate-plugin", "certificate"),
    Attack("options from the environment of a certificate run", environment(PYTEST_ADDOPTS="-x"),
           2, "certificate-environment"),
    Attack("plugins from the environment of a certificate run", environment(PYTEST_PLUGINS="x"),
           2, "certificate-environment"),
    Attack("a certificate run that let any plugin in",
           environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD=""), 2, "certificate-environment"),
    # policies
    met("a policy that is met", requirements=("DECODE-01",), profiles=(PROFILE,), certificate=True,
        artifacts=(ARTIFACT,), plugins=("pytest-timeout",), reruns=False, skips=False,
        deselection=False),
    asked("a requirement that is not claimed", "policy-requirement", requirements=("DRAIN-01",)),
    asked("a requirement that nobody knows", "policy-requirement", requirements=("NOPE-99",)),
    asked("a profile that is not claimed", "policy-requirement", profiles=("core",)),
    asked("a profile that nobody knows", "policy-requirement", profiles=("nope",)),
    asked("another artifact", "policy-artifact", artifacts=(ARTIFACT, "cd" * 32)),
    asked("a plugin that was not allowed", "policy-plugin", plugins=("other",)),
    asked("no certificate", "policy-certificate", "ordinary", certificate=True),
    asked("a plugin of a conftest", "policy-plugin", "ordinary", plugins=("pytest-timeout",)),
    asked("a known failure", "policy-known-failure", "known"),
    met("a known failure that is allowed", "known", expected_failures=(RUNTIME_TEST,)),
    met("a known failure of a SHOULD", "known should"),
    asked("a rerun", "policy-rerun", "good", forged(second_attempt)),
    met("a rerun that is allowed", "good", act=forged(second_attempt), reruns=True),
    asked("a test left out", "policy-deselected", "ordinary", deselection=False),
    met("a test left out that may be", "ordinary"),
    asked("a skip of no MUST", "policy-skip", "skipping", skips=False),
    met("a skip of no MUST that is allowed", "skipping"),
    asked("a GPU where none was seen", "policy-gpu", gpu={"model": "RTX"}),
    asked("another model of GPU", "policy-gpu", "hardware", gpu={"model": "RTX 2"}),
    asked("another GPU", "policy-gpu", "hardware", gpu={"uuid": "GPU-2"}),
    asked("another driver", "policy-gpu", "hardware", gpu={"driver": "1"}),
    met("the right GPU", "hardware", gpu={"model": "RTX", "uuid": "GPU-1", "driver": "560"}),
    old("a seal that is too old", 4 * HOUR, allowed=False),
    old("a seal of tomorrow", -HOUR, allowed=False),
    old("a seal that is young enough", 2 * HOUR, allowed=True),
    met("another policy than the run's", code="policy-differs", digest="ab" * 32),
    # ledgers
    Attack("a ledger that nobody accepted", OTHER_LEDGER, 3, "ledger-unknown"),
    met("a ledger that is accepted", act=OTHER_LEDGER, ledgers=(OTHER_DIGEST,)),
    Attack("a ledger that its name does not fit",
misnamed, 2, "ledger-unknown", asked={"policy": Policy(ledgers=(OTHER_DIGEST,))}),
    Attack("a ledger with a need without a rule", MOON, 2, "ledger-unknown-need",
           asked={"policy": Policy(ledgers=(MOON_DIGEST,))}),
    # what a reader is told
    Attack("a later run", nothing, 0, "not-first-run", on="second"),
    Attack("a clock that was set forward",
           insider(lambda f: f.journal(times(shift("t_wall", 61)))), 0, "clock-jumped"),
    *(
        Attack(f"an anchor that names the seal {how}", anchored(content, name), 0, "anchor-bound")
        for how, name, content in (
            ("by its name", "{}.sig", lambda _: b"x"),
            ("in raw bytes", "stamp.tsr", lambda digest: b"\x30\x20" + bytes.fromhex(digest)),
            ("in hex", "notary.txt", lambda digest: f"seen: {digest}\n".encode()),
            ("in base64", "bundle.json", lambda digest: b64encode(bytes.fromhex(digest))),
            ("in a payload", "countersigned.json", dsse_about),
        )
    ),
    Attack("an anchor of another seal", anchored(lambda _: b"x" * 100), 0, "anchor-unbound"),
    Attack("an anchor of a run without a seal",
           outside(lambda p: [(p / "anchors").mkdir(), (p / "anchors" / "x").write_text("x")]),
           3, "anchor-unbound", on="cut short"),
)  # fmt: skip
