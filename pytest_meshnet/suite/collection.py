"""Finding and collecting the modules of a suite, alike in a checkout and an installation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_meshnet import layout, markers
from pytest_meshnet.options import SUITES
from pytest_meshnet.suite import session as sessions
from pytest_meshnet.suite import target as targets

_TEST_ID = pytest.StashKey[str]()


class SuiteModule(pytest.Module):
    """A module of a suite.

    Its id is relative to the suite's root wherever that lies, and a stranger's ini does not
    decide which of its functions are tests.
    """

    def funcnamefilter(self, name: str) -> bool:
        return name.startswith("test_")

    def classnamefilter(self, name: str) -> bool:
        return name.startswith("Test")

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """Collect the tests. Raises CollectError with a line for everything that is wrong."""
        found = list(super().collect())
        problems = [line for one in found for line in self._problems(one)]
        if problems:
            raise self.CollectError("\n".join(problems))
        return found

    def _problems(self, found: pytest.Item | pytest.Collector) -> Iterator[str]:
        if not isinstance(found, pytest.Item):
            yield f"{found.name}: tests of a suite are plain functions, not classes"
            return
        yield from markers.check(found, sessions.ensure(self.config).ledger)
        marked = any(found.get_closest_marker(one.name) for one in markers.MARKERS)
        if not marked and self.nodeid.startswith("conformance/"):
            yield f'{found.name}: no requirement: add @pytest.mark.requirement("GROUP-01")'


def make_module(path: Path, parent: pytest.Collector) -> SuiteModule | None:
    """Return the collector of a suite's module, or None for a stranger's module."""
    for name in SUITES:
        folder = next((one for one in path.parents if one.name == name), None)
        if folder is not None and folder.samefile(layout.folder(name)):
            sessions.ensure(parent.config)
            targets.register_fixtures(parent.config)
            _register_lanes(parent.config)
            nodeid = f"{name}/{path.relative_to(folder).as_posix()}"
            module = SuiteModule.from_parent(parent, path=path, nodeid=nodeid)
            assert isinstance(module, SuiteModule)
            return module
    return None


def _register_lanes(config: pytest.Config) -> None:
    from pytest_meshnet.suite import hardware

    hardware.register(config)


def contains(item: pytest.Item) -> bool:
    """Say whether a test belongs to a suite."""
    return item.getparent(SuiteModule) is not None


def test_id(item: pytest.Item) -> str:
    """Return the id that evidence uses; xdist appends its group to the node id."""
    return item.stash.setdefault(_TEST_ID, item.nodeid)


def address(config: pytest.Config, suites: tuple[str, ...]) -> bool:
    """Make the suites what pytest collects; return whether every test of them was asked for.

    Without arguments of its own the run is about the suites alone. An argument inside a suite,
    as a path or in the form `conformance/test_open.py::test_x`, asks for that part of it. The
    files are named one by one, because a folder would be filtered by the ini's python_files.
    """
    whole = True
    given = config.args if config.args_source is config.ArgsSource.ARGS else []
    arguments = [_located(argument, config.invocation_params.dir) for argument in given]
    for name in suites:
        folder = layout.part(name)
        if any(folder in Path(argument.partition("::")[0]).parents for argument in arguments):
            whole = False
        else:
            arguments += [str(path) for path in sorted(folder.rglob("test_*.py"))]
    config.args[:] = arguments
    return whole


def _located(argument: str, called_in: Path) -> str:
    path, colons, names = argument.partition("::")
    given = called_in / path
    for suite in SUITES:
        if Path(path).parts[:1] == (suite,) and not given.exists():
            given = layout.folder(suite).joinpath(*Path(path).parts[1:])
    return f"{given}{colons}{names}" if given.exists() else argument


def drop_doubles(items: list[pytest.Item]) -> None:
    """Keep the first of each test of a suite that was found by its folder and by its path."""
    seen: set[str] = set()
    kept = []
    for item in items:
        if not contains(item):
            kept.append(item)
        elif test_id(item) not in seen:
            seen.add(test_id(item))
            kept.append(item)
    items[:] = kept
