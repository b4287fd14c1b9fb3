"""The generated pages of docs/ say what the code says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_meshnet.suite import pages


def _check(docs: Path, columns: str = "80") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest_meshnet.suite.pages", "--check", str(docs)],
        env=os.environ | {"COLUMNS": columns},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("columns", ["40", "200"])
def test_no_page_is_out_of_date_in_a_terminal_of_any_width(columns: str) -> None:
    answer = _check(pages.docs_folder(), columns)
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("name", [*pages.PAGES, pages.GUIDE])
def test_an_edited_page_is_noticed(name: str, tmp_path: Path) -> None:
    for page in (*pages.PAGES, pages.GUIDE):
        shutil.copy(pages.docs_folder() / page, tmp_path)
    page = tmp_path / name
    page.write_text(page.read_text().replace("| FLOW", "| an edit") + "an edit\n")
    if name == pages.GUIDE:
        page.write_text(page.read_text().removesuffix("an edit\n"))  # only its tables are generated
    answer = _check(tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"docs/{name} is out of date: run tox run -e pages")
    assert answer.stderr.count(" is out of date") == 1
    assert "edit" in answer.stderr


def test_a_missing_page_is_noticed(tmp_path: Path) -> None:
    assert _check(tmp_path).stderr.count(" is out of date") == len(pages.PAGES) + 1
