"""The generated pages of docs/ say what the code says."""

from __future__ import annotations

import pytest

from pytest_meshnet.suite import pages


def test_no_generated_page_is_out_of_date() -> None:
    assert pages.drift() == [], "run tox run -e pages"


@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_page_does_not_depend_on_the_terminal(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert pages.drift() == []


@pytest.mark.parametrize("name", [*pages.PAGES, pages.GUIDE])
def test_an_edited_page_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("docs")
    for page in (*pages.PAGES, pages.GUIDE):
        text = (pages.docs_folder() / page).read_text()
        edited = text.replace("| FLOW", "| an edit") if page == pages.GUIDE else text + "an edit\n"
        (copy / page).write_text(edited if page == name else text)
    monkeypatch.setattr(pages, "docs_folder", lambda: copy)
    assert pages.drift() == [name]
