import pytest

from pytest_meshnet.hardware.pinning.visibility import MASKS


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """No mask of this machine, and no plugin of this run, reaches into a test."""
    for name in (*MASKS, "PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
