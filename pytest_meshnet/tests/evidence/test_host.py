"""What a bundle tells about the machine, and what it must not."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import pytest

from pytest_meshnet.evidence import host
from pytest_meshnet.evidence.host import MESSAGE_LIMIT, Redactor

redact = Redactor({"HOME": "/home/ada", "MY_SECRET": "correct-horse", "SHORT_TOKEN": "abc"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("at /home/ada/project/x.py", "at ~/project/x.py"),
        ("at /home/ada", "at ~"),
        ("at /home/adam/x", "at ~/x"),
        ("/Users/grace/x and /root/y", "~/x and ~/y"),
        ("/rootless/x", "/rootless/x"),
        ("the value is correct-horse!", "the value is [redacted]!"),
        ("abc is short", "abc is short"),
        ("password=hunter2 next", "password=[redacted] next"),
        ('{"api_key": "v4lue", "n": 1}', '{"api_key": "[redacted]", "n": 1}'),
        ("DB_PASSWORD: hunter2", "DB_PASSWORD: [redacted]"),
        ("GITHUB_TOKEN=xyz", "GITHUB_TOKEN=[redacted]"),
        ("access_token = xyz", "access_token = [redacted]"),
        ("XYZ_TOKEN=abc", "XYZ_TOKEN=[redacted]"),
        ("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer [redacted]"),
        ("key hf_abcdefghijklmnopqrstuv", "key [redacted]"),
        ("id AKIAABCDEFGHIJKLMNOP", "id [redacted]"),
        ("got token=0123456789abcdef", "got token=[redacted]"),
        ("by eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM.c2lnbmVk", "by [redacted]"),
        (
            "x\n-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\ny",
            "x\n[redacted]\ny",
        ),
        ("-----BEGIN RSA PRIVATE KEY-----\nMC4C", "[redacted]"),
    ],
)
def test_homes_and_secrets_are_taken_out(text: str, expected: str):
    assert redact(text) == expected


def test_a_home_elsewhere_is_taken_out_and_a_missing_one_changes_nothing():
    assert Redactor({"HOME": "/data/ada/"})("at /data/ada/x, /data/adam") == "at ~/x, /data/adam"
    for home in ({}, {"HOME": ""}, {"HOME": "/"}, {"HOME": "relative"}):
        assert Redactor(home)("at /x, relative/y") == "at /x, relative/y"


def test_a_secret_of_eight_characters_is_long_enough_to_find():
    secrets = Redactor({"A_SECRET": "12345678", "B_SECRET": "7654321"})
    assert secrets("12345678 7654321") == "[redacted] 7654321"


@pytest.mark.parametrize(
    "text",
    [
        "sampled_token=7",
        "token_ids: [1, 2]",
        "tokens = 5, token: 3",
        "expected: key=value, actual: monkey=3",
        "sha256 3cba9f" * 20,
        "Namespace(api_key=None, hf_token='null')",
        "password=[redacted]",
        "the token: indistinguishable",
    ],
)
def test_the_words_of_this_field_are_no_secrets(text: str):
    assert redact(text) == text


def test_a_long_text_is_cut_with_a_note():
    text = redact("x" * (MESSAGE_LIMIT + 1))
    assert len(text) == MESSAGE_LIMIT
    assert text.endswith(f"[cut: {MESSAGE_LIMIT + 1} characters in all]")
    assert redact("x" * MESSAGE_LIMIT) == "x" * MESSAGE_LIMIT


def test_redaction_takes_no_time_that_grows_with_the_square():
    begin = time.process_time()
    redact("ab-cd_" * 100_000)
    redact("A" * 1_000_000)
    assert time.process_time() - begin < 3


def test_only_the_allow_list_of_the_environment_is_told():
    told = redact.environment(
        {"LANG": "C", "PATH": "/bin", "GITHUB_TOKEN": "x", "CUDA_VISIBLE_DEVICES": "0"}
    )
    assert told == {"CUDA_VISIBLE_DEVICES": "0", "LANG": "C"}


def test_allowed_variables_are_redacted_too():
    assert redact.environment({"PYTEST_ADDOPTS": "--rootdir /home/ada/x"}) == {
        "PYTEST_ADDOPTS": "--rootdir ~/x"
    }


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", True),
        ("HF_TOKEN", True),
        ("MESHNET_EVIDENCE_SIGNING_KEY", True),
        ("npm_token", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("LANG", False),
    ],
)
def test_names_of_credentials_are_known(name: str, secret: bool):
    assert host.is_credential_name(name) is secret


def test_the_variables_of_the_allow_list_are_no_credentials():
    assert not [name for name in host.ENVIRONMENT if host.is_credential_name(name)]


def test_host_facts_are_texts_without_the_machine_id():
    facts = host.host_facts()
    assert (facts["system"], facts["release"]) == (platform.system(), platform.release())
    assert (facts["machine"], facts["cpu_count"]) == (platform.machine(), str(os.cpu_count()))
    machine_id = Path("/etc/machine-id")
    assert all(isinstance(one, str) and one for one in facts.values())
    if machine_id.exists() and machine_id.read_text().strip():
        assert machine_id.read_text().strip() not in facts.values()


def test_what_cannot_be_read_is_unknown_and_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert host._first_match("/no/such/file", "x") == "unknown"
    (tmp_path / "info").write_text("model name : fast\n")
    assert host._first_match(str(tmp_path / "info"), r"^model name\s*: (.+)$") == "fast"
    assert host._first_match(str(tmp_path / "info"), r"^MemTotal: (.+)$") == "unknown"
    for name in ("system", "release", "machine"):
        monkeypatch.setattr(platform, name, lambda: "")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    facts = host.host_facts()
    assert {facts[one] for one in ("system", "release", "machine", "cpu_count")} == {"unknown"}


def test_the_suite_digest_changes_with_any_file_of_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package = tmp_path / "pytest_meshnet"
    names = ("a.py", "room/b.py", "tests/t.py", "../conformance/c.toml")
    for name in (f"pytest_meshnet/{one}" for one in names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(host.layout, "__file__", str(package / "layout.py"))
    monkeypatch.setattr(host.layout, "_PACKAGE", package)
    before = host.suite_digest()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.pyc").write_text("2")
    (package / "tests" / "t.py").write_text("2")
    (package / ".hidden").write_text("2")
    assert host.suite_digest() == before
    (tmp_path / "conformance/c.toml").write_text("2")
    changed = host.suite_digest()
    (package / "a.py").write_text("2")
    also = host.suite_digest()
    (package / "room" / "b.py").write_text("2")
    assert len({before, changed, also, host.suite_digest()}) == 4


def test_the_suite_digest_is_equal_in_a_checkout_and_in_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    digests = []
    for root, folder in (("checkout", "conformance"), ("wheel", "pytest_meshnet/conformance")):
        package = tmp_path / root / "pytest_meshnet"
        for name in ("pytest_meshnet/a.py", f"{folder}/c.toml"):
            (tmp_path / root / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / root / name).write_text("1")
        monkeypatch.setattr(host.layout, "__file__", str(package / "layout.py"))
        monkeypatch.setattr(host.layout, "_PACKAGE", package)
        digests.append(host.suite_digest())
    assert digests[0] == digests[1]
