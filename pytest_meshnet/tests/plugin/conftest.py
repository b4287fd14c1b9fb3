import json
import os
import sys
import textwrap

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from pytest_meshnet import layout
from pytest_meshnet.evidence.report import html, junit, markdown
from pytest_meshnet.reference import serve
from pytest_meshnet.suite import hooks, session
from pytest_meshnet.tests.plugin import fake_target

_IMPORTED = (hooks, session, serve, ed25519, serialization, html, junit, markdown)
"""What pytester would otherwise import again for every run; some libraries allow it only once."""

LEDGER = """
schema = 1
ledger_version = "9.9.9"

[needs]
"launch" = "the descriptor has a start command"
"sessions>=2" = "max_concurrent_sessions is at least 2"
"grants" = "the worker was seen to send a FlowControl grant"

"""
ENTRY = """
[[requirement]]
id = "{id}"
level = "{level}"
profile = "{profile}"
subject = "{subject}"
title = "Title of {id}"
statement = "Statement of {id}."
"""


def entry(id, *, level="MUST", profile="core", subject="runtime", needs=()):
    text = ENTRY.format(id=id, level=level, profile=profile, subject=subject)
    return text + (f"needs = {json.dumps(needs)}\n" if needs else "")


ENTRIES = (
    entry("WIRE-01", subject="suite"),
    entry("DECODE-01"),
    entry("DECODE-02"),
    entry("DECODE-03", level="SHOULD"),
    entry("KV-01", profile="kv", needs=["sessions>=2"]),
    entry("KV-02", profile="kv"),
)

HEADER = """
import pytest
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked, Refusal, TargetLost

requirement = pytest.mark.requirement
"""


class Suite:
    """A suite of a test's own, run by a pytest of its own."""

    def __init__(self, pytester):
        self.pytester = pytester
        self.home = pytester.path / "home"
        self.project = pytester.mkdir("project")
        for name in ("conformance", "acceptance", "fixtures", "goldens"):
            (self.home / name).mkdir(parents=True)
        self.ledger(*ENTRIES)
        self.target()

    def ledger(self, *entries):
        path = self.home / "conformance" / "requirements.toml"
        path.write_text(LEDGER + "".join(entries))

    def target(self, profiles=("core",), facts=(), **told):
        told |= {"profiles": list(profiles), "facts": dict(facts)}
        (self.home / "target.json").write_text(json.dumps(told))

    def module(self, source, name="test_sample", suite="conformance"):
        path = self.home / suite / f"{name}.py"
        path.write_text(HEADER + textwrap.dedent(source))
        return path

    def ini(self, text):
        (self.project / "pytest.ini").write_text("[pytest]\n" + textwrap.dedent(text))

    def stranger(self, source):
        """Write a plugin that knows nothing of the suite; load it with `-p stranger`."""
        (self.project / "stranger.py").write_text("import pytest\n" + textwrap.dedent(source))

    @property
    def calls(self):
        path = self.home / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, *args, suite="conformance", quiet=None):
        """Run pytest in this process, in a project that knows nothing of the suite."""
        chosen = ["--meshnet-suite", suite] if suite else []
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.project)
            patch.syspath_prepend(self.project)
            patch.setattr(layout, "folder", self.home.joinpath)
            patch.setitem(sys.modules, "pytest_meshnet.suite_fixtures", fake_target)
            arguments = [*(_QUIET if quiet is None else quiet), *chosen, *map(str, args)]
            return self.pytester.runpytest_inprocess(*arguments)

    def certify(self, *args, suite="conformance", ini="certify.ini", environment=()):
        """Run pytest in this process as a certificate run."""
        wanted = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | dict(environment)
        config = self.home / "conformance" / ini
        config.write_text("[pytest]\naddopts = --tb=no\n")
        plugins = [part for name in CERTIFICATE_PLUGINS for part in ("-p", name)]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in wanted.items():
                patch.setenv(name, value)
            chosen = ["--meshnet-certificate", "-c", config, f"--rootdir={self.home}"]
            return self.run(*chosen, *plugins, *args, suite=suite, quiet=())

    def run_apart(self, *args, suite="conformance"):
        """Run pytest in a process of its own, for workers of xdist and for certificates."""
        chosen = ["--meshnet-suite", suite] if suite else []
        plugin = ["-p", "pytest_meshnet.tests.plugin.fake_home"]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.project)
            patch.setenv("PYTHONPATH", str(self.project), prepend=os.pathsep)
            patch.setenv("MESHNET_FAKE_HOME", str(self.home))
            return self.pytester.runpytest_subprocess(
                *_QUIET, *plugin, *chosen, *map(str, args), timeout=60
            )


CERTIFICATE_PLUGINS = ("meshnet", "timeout")
_QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")


@pytest.fixture
def suite(pytester, monkeypatch):
    """A suite with a small ledger and a target that claims core."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "MESHNET_EVIDENCE_SIGNING_KEY"):
        monkeypatch.delenv(name, raising=False)
    return Suite(pytester)
