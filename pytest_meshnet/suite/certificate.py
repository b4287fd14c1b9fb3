"""What a certificate run refuses: everything by which a test could be left out or let off."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_meshnet import layout
from pytest_meshnet.evidence import documents
from pytest_meshnet.suite import plugins

if TYPE_CHECKING:
    from pytest_meshnet.suite.run import Run

INI = "certify.ini"
"""The configuration of a certificate run, in the folder of the suite."""

_SELECTING = {
    "-k": "keyword",
    "-m": "markexpr",
    "--deselect": "deselect",
    "--lf": "lf",
    "--ff": "failedfirst",
    "--nf": "newfirst",
    "--sw": "stepwise",
    "--sw-skip": "stepwise_skip",
    "-x/--maxfail": "maxfail",
    "--ignore": "ignore",
    "--ignore-glob": "ignore_glob",
    "--collect-only": "collectonly",
    "--setup-only/--setup-plan": "setuponly",
    "--runxfail": "runxfail",
    "--reruns": "reruns",
    "--pdb": "usepdb",
    "--trace": "trace",
}
"""Options that leave tests out, cut a run short or let a failure off, by pytest's name."""

ENVIRONMENT = documents.UNSET_FOR_CERTIFICATE
_LEFT_OUT = ("skip", "skipif", "xfail")


def problems_of(config: pytest.Config) -> Iterator[str]:
    """Yield a line for everything in the configuration that a certificate run refuses."""
    for flag, name in _SELECTING.items():
        if config.getoption(name, None):
            yield f"{flag} is refused in a certificate run: everything planned runs; leave it out"
    if config.getoption("meshnet_inventory", None):
        yield "--meshnet-inventory is refused in a certificate run: a simulation proves nothing"
    if config.args_source is config.ArgsSource.ARGS:
        yield f"{' '.join(config.args)} is refused in a certificate run: name only the suite"
    if not config.getoption("meshnet_suite") and not config.getini("meshnet_suite"):
        yield "a certificate run needs --meshnet-suite: start it with `pytest-meshnet certify`"
    for name in ENVIRONMENT:
        if os.environ.get(name):
            yield f"{name} is refused in a certificate run: unset it"
    if not os.environ.get(documents.SET_FOR_CERTIFICATE):
        yield f"a certificate run loads no strangers: set {documents.SET_FOR_CERTIFICATE}=1"
    yield from _strangers(config)
    own = layout.folder("conformance") / INI
    if config.inipath != own:
        yield f"a certificate run has its own configuration, not {config.inipath}: use -c {own}"


def problems_of_collection(session: pytest.Session, run: Run) -> Iterator[str]:
    """Yield a line for everything collected that a certificate run refuses."""
    for test in run.deselected:
        yield f"{test} was deselected: a certificate run runs everything planned"
    for test in sorted(run.seen - run.planned.keys() - run.deselected.keys()):
        yield f"{test} was dropped by a plugin: a certificate run runs everything planned"
    yield from _strangers(session.config)
    for origin in plugins.conftests(session.config):
        yield f"{origin} was loaded: a certificate run has no conftest"
    yield from _marked(session.items)


def _strangers(config: pytest.Config) -> Iterator[str]:
    loaded = {one.name for one in plugins.active(config)} - documents.CERTIFICATE_PLUGINS
    for name in sorted(loaded - {str(one) for one in plugins.conftests(config)}):
        yield f"the plugin {name} is refused in a certificate run: leave out its -p"


def _marked(items: Iterable[pytest.Item]) -> Iterator[str]:
    for item in items:
        for name in _LEFT_OUT:
            if item.get_closest_marker(name):
                yield f"{item.nodeid} is marked {name}: a certificate run lets nothing off"


def check_configuration(config: pytest.Config) -> None:
    """End the process with exit code 2 and one line for each refusal, when there is any."""
    _exit(list(problems_of(config)))


def check_collection(session: pytest.Session, run: Run) -> None:
    """Refuse the run, with one line for each reason, when something was left out."""
    problems = list(problems_of_collection(session, run))
    if not problems:
        return
    run.refuse("\n".join(problems))
    if hasattr(session.config, "workerinput"):
        # Exiting here would look like a crash to the controller, and be tried again.
        session.shouldstop = f"refused: {problems[0]}"
    else:
        _exit(problems)


def _exit(problems: list[str]) -> None:
    if problems:
        pytest.exit("refused\n" + "\n".join(problems), returncode=2)
