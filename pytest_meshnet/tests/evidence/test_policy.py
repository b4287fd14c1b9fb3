"""The policy file, and what it makes of a sound bundle."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet.evidence.bundle import BundleWriter
from pytest_meshnet.evidence.documents import Named
from pytest_meshnet.evidence.journal import Collection, Plugin
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.verify import Question, verify
from pytest_meshnet.evidence.verify.finding import Result
from pytest_meshnet.evidence.verify.policy import Policy, PolicyError
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.attacks.honest import optional, unclaimed
from pytest_meshnet.tests.evidence.making import RUNTIME_TEST

HOUR = 3600 * 10**9


def load(tmp_path: Path, text: str) -> Policy:
    (tmp_path / "policy.toml").write_text(text)
    return Policy.load(tmp_path / "policy.toml")


def test_a_policy_without_keys_asks_what_no_policy_asks(tmp_path: Path):
    loaded = load(tmp_path, "schema = 1\n")
    assert loaded == Policy(digest=hashlib.sha256(b"schema = 1\n").hexdigest())


def test_every_key_of_a_policy_is_read(tmp_path: Path):
    text = """
schema = 1
requirements = ["DECODE-01"]
profiles = ["core-wire"]
certificate = true
expected_failures = ["t"]
reruns = true
deselection = false
skips = false
artifacts = ["ab"]
ledgers = ["cd"]
plugins = ["p"]
max_age_hours = 3
gpu = { model = "m", uuid = "u", driver = "d" }
"""
    digest = hashlib.sha256(text.encode()).hexdigest()
    gpu = {"model": "m", "uuid": "u", "driver": "d"}
    assert load(tmp_path, text) == Policy(
        ("DECODE-01",),
        ("core-wire",),
        True,
        ("t",),
        True,
        False,
        False,
        ("ab",),
        ("cd",),
        ("p",),
        3,
        gpu,
        digest,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "schema is None"),
        ("schema = 2", "schema is 2"),
        ("schema = 1\nreruns = 1", "true or false"),
        ("schema = 1\nrerun = true", "unknown key 'rerun'"),
        ("schema = 1\ndigest = 'x'", "unknown key 'digest'"),
        ("schema = 1\nplugins = 'p'", "list of texts"),
        ("schema = 1\nledgers = [1]", "list of texts"),
        ("schema = 1\nmax_age_hours = 0", "positive integer"),
        ("schema = 1\nmax_age_hours = 1.5", "positive integer"),
        ("schema = 1\ngpu = { vram = 'x' }", "driver"),
        ("schema = 1\ngpu = { model = 1 }", "driver"),
        ("schema = 1\ngpu = 'x'", "driver"),
        ("schema", "expected TOML"),
    ],
)
def test_a_policy_that_is_not_understood_is_refused(tmp_path: Path, text: str, message: str):
    with pytest.raises(PolicyError, match=message):
        load(tmp_path, text)


def test_a_missing_policy_file_is_refused(tmp_path: Path):
    with pytest.raises(PolicyError, match="cannot be read"):
        Policy.load(tmp_path / "none.toml")


def answer(
    tmp_path: Path, key: SigningKey, asked: dict[str, Any], now_ns: int = 0, **made: Any
) -> tuple[Result, frozenset[str]]:
    path = making.make(tmp_path / "out", key, **made)
    question = Question(making.trusting(key), Policy(**asked), now_ns=now_ns)
    report = verify(path, question)
    return report.result, report.codes


MET: tuple[Result, frozenset[str]] = (Result.VALID_PASS, frozenset())


def unmet(code: str) -> tuple[Result, frozenset[str]]:
    return Result.VALID_FAIL, frozenset({code})


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"requirements": ("DECODE-01",)}, None),
        ({"requirements": ("DECODE-01", "DRAIN-01")}, "policy-requirement"),
        ({"requirements": ("NOPE-99",)}, "policy-requirement"),
        ({"profiles": ("core-wire",)}, None),
        ({"profiles": ("core",)}, "policy-requirement"),
        ({"profiles": ("nope",)}, "policy-requirement"),
        ({"certificate": True}, None),
        ({"artifacts": ("ab" * 32,)}, None),
        ({"artifacts": ("ab" * 32, "cd" * 32)}, "policy-artifact"),
        ({"plugins": ("pytest-timeout", "other")}, None),
        ({"plugins": ("other",)}, "policy-plugin"),
        ({"gpu": {"model": "RTX", "uuid": "GPU-1", "driver": "1"}}, None),
        ({"gpu": {"model": "RTX 2"}}, "policy-gpu"),
        ({"gpu": {"uuid": "GPU-2"}}, "policy-gpu"),
        ({"gpu": {"driver": "2"}}, "policy-gpu"),
        ({"deselection": False, "skips": False, "reruns": False}, None),
    ],
)
def test_each_rule_of_a_policy_is_applied(
    tmp_path: Path, key: SigningKey, asked: dict[str, Any], code: str | None
):
    def extra(writer: BundleWriter) -> None:
        seen = {"uuid": "GPU-1", "name": "RTX", "driver": "1"}
        writer.recorder.device(RUNTIME_TEST, {}, seen)

    result, codes = answer(
        tmp_path,
        key,
        asked,
        extra=extra,
        plugins=(Plugin("pytest-timeout", "2"),),
        artifacts=(Named("m", "ab" * 32),),
        gpus=({"uuid": "GPU-1"},),
    )
    assert (result, codes) == (MET if code is None else unmet(code))


def test_a_run_without_a_proven_device_meets_no_gpu_policy(tmp_path: Path, key: SigningKey):
    made = {"gpus": ({"uuid": "GPU-1", "name": "RTX"},)}
    assert answer(tmp_path, key, {"gpu": {"model": "RTX"}}, **made) == unmet("policy-gpu")


def test_an_ordinary_run_is_no_certificate(tmp_path: Path, key: SigningKey):
    assert answer(tmp_path, key, {}, certificate=False) == MET
    asked = {"certificate": True}
    assert answer(tmp_path, key, asked, certificate=False)[0] is Result.VALID_FAIL


LISTED = f'[[failure]]\ntest = "{RUNTIME_TEST}"\nreason = "known"\nmessage = "expected: 1"\n'


@pytest.mark.parametrize(("allowed", "code"), [((), "policy-known-failure"), ((RUNTIME_TEST,), "")])
def test_a_known_failure_passes_only_where_the_policy_allows_it(
    tmp_path: Path, key: SigningKey, allowed: tuple[str, ...], code: str
):
    made = {"expected_failures": LISTED, "calls": {RUNTIME_TEST: making.FAILING}}
    asked = {"expected_failures": allowed}
    assert answer(tmp_path, key, asked, **made) == (unmet(code) if code else MET)


@pytest.mark.parametrize(("allowed", "code"), [(False, "policy-rerun"), (True, "")])
def test_a_rerun_passes_only_where_the_policy_allows_it(
    tmp_path: Path, key: SigningKey, allowed: bool, code: str
):
    def extra(writer: BundleWriter) -> None:
        making.record(writer.recorder, RUNTIME_TEST)

    found = answer(tmp_path, key, {"reruns": allowed}, extra=extra)
    assert found == (unmet(code) if code else MET)


def test_a_rerun_until_it_passes_does_not_pass_by_any_policy(tmp_path: Path, key: SigningKey):
    def extra(writer: BundleWriter) -> None:
        making.record(writer.recorder, RUNTIME_TEST)

    calls = {RUNTIME_TEST: making.FAILING}
    found = answer(tmp_path, key, {"reruns": True}, extra=extra, calls=calls, exit_status=1)
    assert found == unmet("not-conformant")


@pytest.mark.parametrize(("allowed", "code"), [(True, ""), (False, "policy-deselected")])
def test_a_policy_can_forbid_every_deselection(
    tmp_path: Path, key: SigningKey, allowed: bool, code: str
):
    made = {"collection": Collection(making.planned(), (unclaimed(),)), "certificate": False}
    found = answer(tmp_path, key, {"deselection": allowed}, **made)
    assert found == (unmet(code) if code else MET)


@pytest.mark.parametrize(("allowed", "code"), [(True, ""), (False, "policy-skip")])
def test_a_policy_can_forbid_every_skip(tmp_path: Path, key: SigningKey, allowed: bool, code: str):
    skipped = [optional()]
    found = answer(tmp_path, key, {"skips": allowed}, skipped=skipped)
    assert found == (unmet(code) if code else MET)


@pytest.mark.parametrize(
    ("age", "code"),
    [(HOUR, ""), (3 * HOUR, ""), (3 * HOUR + 10**9, "policy-age"), (-1, "policy-age")],
)
def test_a_seal_beyond_the_age_or_of_tomorrow_is_refused(
    tmp_path: Path, key: SigningKey, age: int, code: str
):
    path = making.make(tmp_path, key)
    material = verify(path, Question()).material
    assert material.seal is not None
    now = int(material.seal.t_wall) + age
    report = verify(path, Question(making.trusting(key), Policy(max_age_hours=3), now_ns=now))
    assert (report.result, report.codes) == (unmet(code) if code else MET)


def test_a_run_under_another_policy_is_noted(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path, key, policy_digest="ab" * 32)
    same = verify(path, Question(making.trusting(key), Policy(digest="ab" * 32)))
    other = verify(path, Question(making.trusting(key), Policy(digest="cd" * 32)))
    assert (same.codes, other.codes) == (frozenset(), {"policy-differs"})
    assert other.result is Result.VALID_PASS
