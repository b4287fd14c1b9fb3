"""Every pytest plugin of a process, also those that no distribution tells of."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pytest_meshnet.evidence.journal import Plugin

_OWN = frozenset({"_pytest", "pytest", "pytest_meshnet", "__channelexec__"})
"""First names of modules that belong to pytest and to this suite; the last is a worker of xdist."""


def active(config: pytest.Config) -> tuple[Plugin, ...]:
    """Return the plugins of this process, without those that are pytest's own.

    A distribution speaks for all plugins of its modules. What has none, a conftest or a module
    named with `-p`, is told by its own name and the digest of its file.
    """
    manager = config.pluginmanager
    told = {
        _first_name(plugin): Plugin(distribution.project_name, distribution.version)
        for plugin, distribution in manager.list_plugin_distinfo()
    }
    strangers = {
        _alone(plugin)
        for _, plugin in manager.list_name_plugin()
        if plugin is not None and _first_name(plugin) not in _OWN | told.keys()
    }
    return tuple(sorted({*told.values(), *strangers}, key=lambda one: (one.name, one.version)))


def conftests(config: pytest.Config) -> Iterator[Path]:
    """Yield the file of every conftest that is loaded."""
    for plugin in config.pluginmanager.get_plugins():
        origin = Path(getattr(plugin, "__file__", None) or "")
        if origin.name == "conftest.py":
            yield origin


def _alone(plugin: object) -> Plugin:
    name = _module_name(plugin)
    file = getattr(sys.modules.get(name, plugin), "__file__", None)
    origin = Path(getattr(plugin, "__file__", None) or file or "")
    version = "unknown"
    if origin.is_file():
        version = f"sha256:{hashlib.sha256(origin.read_bytes()).hexdigest()}"
    return Plugin(str(origin) if origin.name == "conftest.py" else name, version)


def _first_name(plugin: object) -> str:
    return _module_name(plugin).partition(".")[0]


def _module_name(plugin: object) -> str:
    if isinstance(plugin, ModuleType):
        return plugin.__name__
    kind = plugin if isinstance(plugin, type) else type(plugin)
    return kind.__module__
