"""An unrelated pytest run pays next to nothing for the plugin."""

import subprocess
import sys

import pytest

HEAVY = (
    "click",
    "cryptography",
    "google.protobuf",
    "grpc",
    "hypothesis",
    "jinja2",
    "jsonschema",
    "numpy",
    "rich",
    "zstandard",
)
SHOW = f"""
import sys
loaded = [name for name in {HEAVY} if name in sys.modules]
rooms = sorted(name for name in sys.modules if name.startswith("pytest_meshnet."))
print(*loaded, "|", *rooms)
"""


def imported_by(code):
    run = [sys.executable, "-c", code + SHOW]
    ended = subprocess.run(run, check=True, capture_output=True, text=True)
    heavy, _, rooms = ended.stdout.splitlines()[-1].partition("|")
    return heavy.split(), rooms.split()


def test_importing_the_plugin_imports_nothing_heavy_and_no_room():
    heavy, rooms = imported_by("import pytest_meshnet.plugin")
    assert heavy == []
    assert rooms == ["pytest_meshnet.markers", "pytest_meshnet.options", "pytest_meshnet.plugin"]


@pytest.mark.parametrize(
    "module", ["options", "markers", "layout", "ledger.verdict", "ledger.coverage"]
)
def test_what_the_plugin_stands_on_imports_nothing_heavy(module):
    heavy, _ = imported_by(f"import pytest_meshnet.{module}")
    assert heavy == []


def test_an_unrelated_run_imports_no_room_of_the_plugin(tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own(): pass")
    heavy, rooms = imported_by(
        "import os, pytest\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "os.environ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] = '1'\n"
        "assert pytest.main(['-qq', '-p', 'meshnet', '-p', 'no:cacheprovider']) == 0\n"
    )
    assert heavy == []
    assert rooms == ["pytest_meshnet.markers", "pytest_meshnet.options", "pytest_meshnet.plugin"]


def test_the_command_shows_its_help_without_anything_heavy_but_its_own_library():
    heavy, _ = imported_by("import pytest_meshnet.cli")
    assert heavy == ["click"]
