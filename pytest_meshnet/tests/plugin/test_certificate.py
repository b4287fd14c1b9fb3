"""A certificate run leaves nothing out, lets nothing off, and ends with the ledger's verdict."""

import tomllib

import pytest

from pytest_meshnet.evidence import documents
from pytest_meshnet.tests.plugin.conftest import ENTRIES, entry

PASSING = """
@requirement("{id}")
def test_{name}():
    pass
"""
ALL = "".join(
    PASSING.format(id=id, name=id.replace("-", "_").lower())
    for id in ("WIRE-01", "DECODE-01", "DECODE-02")
)


@pytest.fixture
def suite(suite):
    suite.module(ALL)
    return suite


def test_a_run_in_which_every_must_passes_is_certified_and_ends_with_zero(suite):
    result = suite.certify()
    result.stdout.fnmatch_lines(["CERTIFIED: 3 passed", "evidence: */meshnet-evidence/*"])
    assert result.ret == 0


def test_a_plain_run_never_says_certified(suite):
    result = suite.run()
    result.stdout.fnmatch_lines(["3 passed; no certificate: *certify*"])
    result.stdout.no_fnmatch_line("*CERTIFIED*")


def test_a_failed_must_ends_with_one(suite):
    suite.module('@requirement("DECODE-01")\ndef test_bad(): assert 1 == 2', name="test_other")
    result = suite.certify()
    result.stdout.fnmatch_lines(["NOT CONFORMANT: 3 passed, 1 failed; 1 against it"])
    assert result.ret == 1


def test_a_failed_should_ends_with_zero(suite):
    suite.module('@requirement("DECODE-03")\ndef test_bad(): assert 1 == 2', name="test_other")
    result = suite.certify()
    result.stdout.fnmatch_lines(["CERTIFIED: 3 passed, 1 failed"])
    assert result.ret == 0


@pytest.mark.parametrize(
    "body",
    [
        "raise NotProvoked('no race')",
        "raise KeyError",
        "pytest.skip('later')",
        "raise TargetLost('killed')",
    ],
)
def test_what_says_nothing_about_the_runtime_ends_with_three(suite, body):
    suite.module(f'@requirement("DECODE-01")\ndef test_unclear(): {body}', name="test_z")
    result = suite.certify()
    result.stdout.fnmatch_lines(["INCOMPLETE: *; * against it"])
    assert result.ret == 3


def test_a_must_without_a_test_ends_with_three_and_is_named(suite):
    suite.module(PASSING.format(id="DECODE-01", name="only"))
    result = suite.certify()
    result.stdout.fnmatch_lines(["not-run: no test yet: WIRE-01, DECODE-02", "INCOMPLETE: *"])
    assert result.ret == 3


def test_a_runtime_that_crashes_after_the_last_test_is_not_certified(suite):
    suite.target(crash="its process ended with 7")
    result = suite.certify()
    lost = "lost: the runtime crashed after the last test: its process ended with 7"
    result.stdout.fnmatch_lines([lost, "INCOMPLETE: 3 passed; 1 against it"])
    assert result.ret == 3


@pytest.mark.parametrize(
    ("profiles", "granted", "code"),
    [
        (["core", "flow"], False, 0),
        (["core", "flow"], True, 3),
        (["core"], True, 0),
    ],
)
def test_a_runtime_that_grants_after_the_first_look_is_not_certified_without_its_tests(
    suite, profiles, granted, code
):
    suite.ledger(*ENTRIES, entry("FLOW-04", profile="flow", needs=["grants"]))
    suite.module(PASSING.format(id="FLOW-04", name="grants"), name="test_grants")
    suite.target(profiles, {"grants": [False, "observed"]}, granted=granted)
    result = suite.certify()
    assert result.ret == code
    lost = "lost: FLOW-04 was left out, for no grant came in the look before the first test, *"
    result.stdout.fnmatch_lines([lost, "INCOMPLETE: *1 not-applicable; *"] if code else ["CERT*"])


def test_a_refusing_target_ends_with_two(suite):
    suite.target(refusal="nothing listens")
    result = suite.certify()
    result.stdout.fnmatch_lines(["REFUSED: nothing listens"])
    assert result.ret == 2


def test_known_failures_alone_end_with_zero_and_are_never_certified(suite):
    suite.module('@requirement("DECODE-01")\ndef test_bad(): assert 1 == 2', name="test_other")
    expected = suite.project / "expected.toml"
    expected.write_text(
        '[[failure]]\ntest = "conformance/test_other.py::test_bad"\n'
        'reason = "bug 7"\nmessage = "1 == 2"\n'
    )
    result = suite.certify("--meshnet-expect", expected)
    result.stdout.fnmatch_lines(["NOT CERTIFIED: 3 passed, 1 known-failure; 1 known failures"])
    assert result.ret == 0


@pytest.mark.parametrize(
    ("body", "message", "said"),
    [
        ("pass", "1 == 2", "expected to fail, passed: remove the entry"),
        ("assert 1 == 3", "1 == 2", "1 == 3"),
    ],
    ids=["stale", "another-message"],
)
def test_a_list_of_known_failures_that_no_longer_fits_ends_with_one(suite, body, message, said):
    suite.module(f'@requirement("DECODE-01")\ndef test_bad(): {body}', name="test_other")
    expected = suite.project / "expected.toml"
    expected.write_text(
        '[[failure]]\ntest = "conformance/test_other.py::test_bad"\n'
        f'reason = "bug 7"\nmessage = "{message}"\n'
    )
    result = suite.certify("--meshnet-expect", expected)
    result.stdout.fnmatch_lines([f"*{said}*", "NOT CONFORMANT: *; * against it"])
    assert result.ret == 1


FAILING = """
@requirement("DECODE-01")
def test_bad(): raise Nonconformance("four 'rows'", "three\\nof them")

@requirement("DECODE-02")
def test_worse(): assert 1 == 2, "one is not \\x7f two"

@requirement("DECODE-01")
def test_good(): pass
"""


def test_what_fails_is_written_as_a_list_that_holds_once_its_reasons_are_given(suite):
    suite.module(FAILING, name="test_other")
    written = suite.project / "known.toml"
    assert suite.certify("--meshnet-write-expect", written).ret == 1
    listed = tomllib.loads(written.read_text())["failure"]
    assert [one["test"].rpartition("::")[2] for one in listed] == ["test_bad", "test_worse"]
    assert {one["reason"] for one in listed} == {""}
    refused = suite.certify("--meshnet-expect", written)
    assert "reason of 'conformance/test_other.py::test_bad' is ''" in refused.stderr.str()
    written.write_text(written.read_text().replace('reason = ""', 'reason = "bug 7"'))
    result = suite.certify("--meshnet-expect", written)
    result.stdout.fnmatch_lines(["NOT CERTIFIED: *, 2 known-failure; 2 known failures"])
    assert result.ret == 0


def test_a_new_list_keeps_the_reasons_of_what_is_known_and_takes_out_what_is_stale(suite):
    suite.module(FAILING, name="test_other")
    known = suite.project / "known.toml"
    entry = '[[failure]]\ntest = "conformance/test_other.py::{}"\nreason = "{}"\nmessage = "{}"\n'
    known.write_text(
        entry.format("test_bad", "bug 7", "four")
        + entry.format("test_worse", "bug 8", "another message")
        + entry.format("test_good", "bug 9", "it passed meanwhile")
    )
    written = suite.project / "new.toml"
    suite.certify("--meshnet-expect", known, "--meshnet-write-expect", written)
    listed = tomllib.loads(written.read_text())["failure"]
    assert [(one["test"].rpartition("_")[2], one["reason"]) for one in listed] == [
        ("bad", "bug 7"),
        ("worse", ""),
    ]
    assert listed[1]["message"].startswith("one is not \x7f two")


def test_a_refused_run_writes_no_list(suite):
    suite.target(refusal="nothing listens")
    written = suite.project / "known.toml"
    assert suite.certify("--meshnet-write-expect", written).ret == 2
    assert not written.exists()


@pytest.mark.parametrize(
    "args",
    [
        ["-k", "decode"],
        ["-m", "not hardware"],
        ["--deselect", "conformance/test_sample.py::test_decode_01"],
        ["--lf"],
        ["--ff"],
        ["--nf"],
        ["--sw"],
        ["-x"],
        ["--maxfail=2"],
        ["--ignore=elsewhere"],
        ["--ignore-glob=*"],
        ["--collect-only"],
        ["--meshnet-inventory=simulated.json"],
        ["--setup-only"],
        ["--setup-plan"],
        ["--runxfail"],
        ["--pdb"],
    ],
)
def test_what_could_leave_a_test_out_is_refused(suite, args):
    result = suite.certify(*args)
    assert result.ret == 2
    lines = [line for line in result.stderr.lines if "is refused in a certificate run" in line]
    assert len(lines) == 1
    assert args[0].partition("=")[0] in lines[0]
    assert not (suite.project / "meshnet-evidence").exists()


def test_every_refusal_has_a_line_of_its_own(suite):
    result = suite.certify("-k", "a", "-m", "b", "-x")
    result.stderr.fnmatch_lines(["*refused", "-k *", "-m *", "-x/--maxfail *"])


def test_arguments_are_refused(suite):
    result = suite.certify("conformance/test_sample.py::test_wire_01")
    result.stderr.fnmatch_lines(["conformance/test_sample.py::test_wire_01 is refused *"])
    assert result.ret == 2


def test_a_certificate_run_without_a_suite_is_refused(suite):
    result = suite.certify(suite=None)
    result.stderr.fnmatch_lines(["a certificate run needs --meshnet-suite*"])
    assert result.ret == 2


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("PYTEST_ADDOPTS", "-v", "PYTEST_ADDOPTS is refused *"),
        ("PYTEST_PLUGINS", "json", "PYTEST_PLUGINS is refused *"),
        ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "", "*set PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"),
    ],
)
def test_an_environment_that_could_change_the_run_is_refused(suite, name, value, complaint):
    result = suite.certify(environment={name: value})
    result.stderr.fnmatch_lines([complaint])
    assert result.ret == 2


def test_the_configuration_of_a_stranger_is_refused(suite):
    result = suite.certify(ini="other.ini")
    result.stderr.fnmatch_lines(["a certificate run has its own configuration, not *other.ini*"])
    assert result.ret == 2


def test_a_conftest_of_a_stranger_is_refused(suite):
    (suite.project / "conftest.py").write_text("")
    result = suite.certify()
    result.stdout.fnmatch_lines(["*conftest.py was loaded: a certificate run has no conftest*"])
    assert result.ret == 2
    assert suite.certify("--noconftest").ret == 0


@pytest.mark.parametrize("mark", ["skip", "skipif(False, reason='x')", "xfail"])
def test_a_mark_that_lets_a_test_off_is_refused(suite, mark):
    suite.module(f"@pytest.mark.{mark}\n" + PASSING.format(id="DECODE-01", name="a").strip())
    result = suite.certify()
    name = mark.partition("(")[0]
    result.stdout.fnmatch_lines([f"*test_a is marked {name}: a certificate run lets nothing off*"])
    assert result.ret == 2


@pytest.fixture
def admitted(monkeypatch):
    """Let the plugin `stranger` pass as one of a certificate run."""
    known = documents.CERTIFICATE_PLUGINS | {"stranger"}
    monkeypatch.setattr(documents, "CERTIFICATE_PLUGINS", known)


def test_a_plugin_of_a_stranger_is_refused(suite):
    suite.stranger("def pytest_runtest_makereport(): pass")
    result = suite.certify("-p", "stranger")
    result.stderr.fnmatch_lines(["the plugin stranger is refused in a certificate run: *"])
    assert result.ret == 2
    assert not (suite.project / "meshnet-evidence").exists()


def test_a_plugin_that_a_module_of_the_suite_lets_in_is_refused(suite):
    suite.module(
        """
        @pytest.fixture(scope="session", autouse=True)
        def nothing(): yield

        class Eager:
            pass

        @pytest.hookimpl
        def pytest_generate_tests(metafunc):
            manager = metafunc.config.pluginmanager
            if not manager.has_plugin("eager"):
                manager.register(Eager(), "eager")

        @requirement("DECODE-01")
        def test_a(): pass
        """,
        name="test_eager",
    )
    result = suite.certify()
    result.stdout.fnmatch_lines(["*the plugin *test_eager is refused in a certificate run: *"])
    assert result.ret == 2


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.usefixtures("admitted")
def test_a_plugin_that_takes_a_test_away_is_refused(suite, announced):
    suite.stranger(
        f"""
        def pytest_collection_modifyitems(config, items):
            if {announced}:
                config.hook.pytest_deselected(items=items[:1])
            del items[:1]
        """
    )
    result = suite.certify("-p", "stranger")
    word = "was deselected" if announced else "was dropped by a plugin"
    result.stdout.fnmatch_lines([f"*test_wire_01 {word}: *"])
    assert result.ret == 2


def test_a_module_that_cannot_be_collected_ends_with_three(suite):
    suite.module("import no_such_module", name="test_broken")
    result = suite.certify()
    result.stdout.fnmatch_lines(["*engine-error*", "*no_such_module*", "INCOMPLETE: *"])
    assert result.ret == 3


@pytest.mark.parametrize("body", ["pass", "assert 1 == 2"])
@pytest.mark.usefixtures("admitted")
def test_an_internal_error_of_a_plugin_ends_with_three_whatever_came_before(suite, body):
    suite.module(f'@requirement("DECODE-01")\ndef test_a(): {body}', name="test_a")
    suite.stranger(
        """
        def pytest_runtest_logfinish(nodeid):
            if "test_sample" in nodeid:
                raise OSError("plugin broke")
        """
    )
    result = suite.certify("-p", "stranger")
    assert result.ret == 3


@pytest.mark.parametrize("body", ["pass", "assert 1 == 2"])
def test_evidence_that_cannot_be_sealed_ends_with_three_and_says_why(suite, body):
    suite.module(
        f"""
        from pathlib import Path

        @requirement("DECODE-01")
        def test_spoils_the_journal():
            (journal,) = Path().glob("meshnet-evidence/*/journal/main.jsonl")
            with journal.open("a") as file:
                file.write("spoilt\\n")
            {body}
        """,
        name="test_a",
    )
    result = suite.certify()
    result.stdout.fnmatch_lines(["the evidence is not sealed: *"])
    result.stdout.no_fnmatch_line("verify it with*")
    assert result.ret == 3
