"""Every option: on the command line, in an ini file, and which of the two wins."""

import pytest

from pytest_meshnet import options
from pytest_meshnet.options import (
    COMPLETE_VARIABLE,
    DEFAULT_SEED,
    KEY_VARIABLE,
    OPTIONS,
    SUITE_OPTIONS,
)

CASES = [
    ("suite", "conformance", "acceptance", "suites", ("conformance",), ("acceptance",)),
    ("target", "reference:a", "reference:b", "target", "reference:a", "reference:b"),
    ("shard", "head", "tail", "shard", "head", "tail"),
    ("profile", "kv", "flow core", "profiles", ("kv",), ("flow", "core")),
    ("challenge", "ask", "ini-ask", "challenge", "ask", "ini-ask"),
    ("seed", "7", "8", "seed", 7, 8),
    ("transport", "in-process", "grpc", "transport", "in-process", "grpc"),
    ("offer", "zstd", "none", "offer", "zstd", "none"),
]
PATHS = [
    ("target", "target"),
    ("expect", "expect"),
    ("out", "out"),
    ("signing-key", "signing_key"),
    ("policy", "policy"),
]
NEW_PATHS = [("write-expect", "write_expect")]
"""Files that must not exist yet."""


@pytest.fixture
def settings(pytester, monkeypatch):
    """Write an ini file and return the settings of a command line beside it."""
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.delenv(COMPLETE_VARIABLE, raising=False)

    def settings(*args, ini=""):
        pytester.makeini(f"[pytest]\n{ini}\n")
        return options.settings(pytester.parseconfig(*map(str, args)))

    return settings


def test_every_option_has_a_case_here():
    named = (
        {case[0] for case in CASES}
        | {name for name, _ in (*PATHS, *NEW_PATHS)}
        | {"certificate", "complete"}
    )
    assert named == {one.name for one in SUITE_OPTIONS}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_an_option_is_read_from_the_command_line_before_the_ini(settings, case):
    name, told, written, field, from_line, from_ini = case
    twin = f"meshnet_{name.replace('-', '_')} = {written}"
    assert getattr(settings(f"--meshnet-{name}", told), field) == from_line
    assert getattr(settings(ini=twin), field) == from_ini
    assert getattr(settings(f"--meshnet-{name}", told, ini=twin), field) == from_line


@pytest.mark.parametrize(("name", "field"), [*PATHS, *NEW_PATHS])
def test_a_path_is_relative_to_where_it_was_written(settings, pytester, monkeypatch, name, field):
    elsewhere = pytester.mkdir("elsewhere")
    if (name, field) in PATHS:
        for folder in (pytester.path, elsewhere):
            (folder / "one.txt").touch()
    twin = f"meshnet_{name.replace('-', '_')} = one.txt"
    assert str(getattr(settings(ini=twin), field)) == str(pytester.path / "one.txt")
    monkeypatch.chdir(elsewhere)
    config = pytester.path / "tox.ini"
    assert str(getattr(settings("-c", config, ini=twin), field)) == str(pytester.path / "one.txt")
    told = settings("-c", config, f"--meshnet-{name}", "one.txt", ini=twin)
    assert str(getattr(told, field)) == str(elsewhere / "one.txt")


def test_the_key_of_the_environment_comes_after_the_command_line_and_before_the_ini(
    settings, pytester, monkeypatch
):
    for name in ("line", "variable", "ini"):
        (pytester.path / name).touch()
    twin = "meshnet_signing_key = ini"
    monkeypatch.setenv(KEY_VARIABLE, "variable")
    assert settings(ini=twin).signing_key.name == "variable"
    assert settings("--meshnet-signing-key", "line", ini=twin).signing_key.name == "line"
    monkeypatch.setenv(KEY_VARIABLE, "")
    assert settings(ini=twin).signing_key.name == "ini"


def test_a_run_is_asked_to_be_complete_in_three_ways(settings, monkeypatch):
    assert settings().complete is False
    assert settings("--meshnet-complete").complete is True
    assert settings(ini="meshnet_complete = true").complete is True
    monkeypatch.setenv(COMPLETE_VARIABLE, "false")
    assert settings(ini="meshnet_complete = true").complete is False
    assert settings("--meshnet-complete").complete is True
    monkeypatch.setenv(COMPLETE_VARIABLE, "True")
    assert settings().complete is True
    monkeypatch.setenv(COMPLETE_VARIABLE, "1")
    with pytest.raises(pytest.UsageError, match="expected true or false"):
        settings()


def test_a_certificate_run_writes_evidence_even_when_no_folder_is_named(settings, pytester):
    assert settings("--meshnet-certificate").out == pytester.path / "meshnet-evidence"
    assert settings(ini="meshnet_certificate = true").certificate is True
    assert settings(ini="meshnet_certificate = false").out is None


def test_without_any_option_the_reference_is_examined_with_a_fixed_seed(settings):
    plain = settings()
    assert (plain.target, plain.transport, plain.seed) == ("reference", "grpc", DEFAULT_SEED)
    assert (plain.suites, plain.profiles, plain.out, plain.expect) == ((), (), None, None)
    assert (plain.shard, plain.signing_key, plain.challenge) == (None, None, "")
    assert plain.certificate is False


def test_suites_and_profiles_may_be_repeated_and_count_once(settings):
    told = settings(*["--meshnet-suite", "acceptance", "--meshnet-suite", "conformance"] * 2)
    assert told.suites == ("conformance", "acceptance")
    profiles = settings(
        "--meshnet-profile", "kv", "--meshnet-profile", "core", "--meshnet-profile", "kv"
    )
    assert profiles.profiles == ("kv", "core")


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--meshnet-suite", "speed"], "'speed' is no suite: choose from conformance, acceptance"),
        (["--meshnet-seed", "many"], "--meshnet-seed is 'many': expected a whole number"),
        (["--meshnet-transport", "pigeon"], "expected grpc or in-process"),
        (["--meshnet-offer", "lz4"], "--meshnet-offer is 'lz4': expected none or zstd"),
        (["--meshnet-target", "no.toml"], "--meshnet-target: there is no file"),
        (["--meshnet-write-expect", "tox.ini"], "tox.ini exists and is never overwritten"),
        (["--meshnet-expect", "no.toml"], "--meshnet-expect: there is no file"),
        (["--meshnet-policy", "no.toml"], "--meshnet-policy: there is no file"),
        (["--meshnet-signing-key", "no.pem"], "--meshnet-signing-key: there is no file"),
    ],
)
def test_an_unusable_value_is_refused_with_what_was_expected(settings, args, complaint):
    with pytest.raises(pytest.UsageError, match=complaint):
        settings(*args)


def test_only_a_reference_target_is_reached_in_process(settings, pytester):
    (pytester.path / "mine.toml").touch()
    in_process = ["--meshnet-transport", "in-process"]
    assert settings(*in_process, "--meshnet-target", "reference:any").transport == "in-process"
    with pytest.raises(pytest.UsageError, match="reaches only a reference target"):
        settings(*in_process, "--meshnet-target", "mine.toml")


def test_a_file_whose_name_begins_like_the_reference_is_a_file(settings, pytester):
    (pytester.path / "reference.toml").touch()
    assert settings("--meshnet-target", "reference.toml").is_reference is False


def test_the_help_shows_every_option_and_its_twin_in_one_group(pytester):
    result = pytester.runpytest_inprocess("--help")
    text = result.stdout.str()
    group = text.partition("conformance and acceptance of Shard runtimes")[2].partition("\n\n")[0]
    written = text.partition("configuration options in the first")[2]
    for one in OPTIONS:
        assert f"  {one.flag}" in group
        assert f"  {one.key} (" in written
        start = " ".join(one.help.split())[:40]
        assert start in " ".join(group.split())
        assert start in " ".join(written.split())
    assert text.count("--meshnet-seed=") == 1


@pytest.mark.parametrize(
    ("args", "ini", "used"),
    [
        ([], "", False),
        ([], "meshnet_target = reference", False),
        ([], "meshnet_suite = conformance", True),
        ([], "meshnet_certificate = true", True),
        (["--meshnet-seed", "1"], "", True),
    ],
)
def test_a_run_that_does_not_ask_for_the_plugin_is_left_alone(pytester, args, ini, used):
    pytester.makeini(f"[pytest]\n{ini}\n")
    assert options.are_used(pytester.parseconfig(*args)) is used
