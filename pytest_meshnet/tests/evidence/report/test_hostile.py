"""Whatever a run writes, it stays text: in HTML, in Markdown, in JUnit XML, on a terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.evidence.report import run_report
from pytest_meshnet.evidence.report.measured import Measured
from pytest_meshnet.evidence.shown import md_block, md_code, md_prose, printable, visible
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.tests.evidence.report import samples, structure

hostile = pytest.mark.parametrize("text", samples.HOSTILE, ids=range(len(samples.HOSTILE)))


@dataclass(frozen=True)
class Pair:
    """A hostile run, and one with as many lines and nothing in them that could be markup."""

    text: str
    run: Path
    twin: Path

    def read(self, name: str) -> tuple[str, str]:
        return (self.run / name).read_text(), (self.twin / name).read_text()


@pytest.fixture(scope="module", params=samples.HOSTILE, ids=range(len(samples.HOSTILE)))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    text, key = request.param, SigningKey.make_ephemeral()
    harmless = re.sub(r"[^_\n]", "x", text)
    runs = (
        samples.hostile_run(tmp_path_factory.mktemp("out"), key, one) for one in (text, harmless)
    )
    return Pair(text, *runs)


def test_no_text_of_a_run_adds_an_element_or_an_attribute_to_the_page(pair: Pair):
    page, twin = pair.read("report.html")
    elements, shown = structure.of_html(page)
    assert elements == structure.of_html(twin)[0]
    assert shown.count(visible(pair.text)) >= 10, "it is shown as it is, wherever it belongs"


def test_no_text_of_a_run_is_markdown(pair: Pair):
    page, twin = pair.read("report.md")
    elements, shown = structure.of_markdown(page)
    assert elements == structure.of_markdown(twin)[0]
    assert shown.count(visible(pair.text).strip(" ")) >= 2
    assert shown.count(printable(pair.text).strip(" ")) >= 5
    outside = re.sub(r"^```.*?^```+$|`[^`\n]*`", "", page, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"@someone|www\.|https?://|(?<!&)#1", outside), "no link and no mention"


def test_no_text_of_a_run_breaks_the_xml(pair: Pair):
    root, twin = map(ElementTree.fromstring, pair.read("junit.xml"))
    assert [one.tag for one in root.iter()] == [one.tag for one in twin.iter()]
    (case,) = (one for one in root.iter("testcase") if one.find("failure") is not None)
    assert case.get("name") == printable(f"test_{pair.text}")
    assert visible(pair.text) in (case.findtext("failure") or "")


def test_a_matrix_of_hostile_runs_is_laid_out_like_any_other(tmp_path: Path, pair: Pair):
    html, md = tmp_path / "matrix.html", tmp_path / "matrix.md"
    made = []
    for run in (pair.run, pair.twin):
        assert run_report([run, run], html=html, md=md, providers=(Measured(),))[1] == 0
        made.append((structure.of_html(html.read_text()), structure.of_markdown(md.read_text())))
    (page, markdown), (twin_page, twin_markdown) = made
    assert page[0] == twin_page[0]
    assert markdown[0] == twin_markdown[0]
    assert page[1].count(visible(pair.text)) >= 4


@hostile
def test_each_way_of_showing_gives_the_text_back(text: str):
    line = printable(text).strip(" ")
    row = f"| {md_code(text)} | b |"
    prose = printable(text.replace("\n", " ")).strip(" ")
    assert shown(md_code(text)) == line
    assert shown(f"{row}\n|---|---|\n{row}").split("\n").count(line) == 2
    assert shown(f"- {md_prose(text)}") == prose
    assert shown(md_block(text)) == visible(text).rstrip("\n")


PUNCTUATION = st.text(st.sampled_from("`|\\*_{}[]<>()#+-.!~@:$^&;\"'=/ \n\twWhHtTpPsSx0\r"))


@settings(max_examples=100, deadline=None)
@given(PUNCTUATION | st.text())
def test_any_text_stays_one_cell_one_line_or_one_block_of_markdown(text: str):
    row = f"| {md_code(text)} | b |"
    cells = [one for one in tags(f"{row}\n|---|---|\n{row}") if one != "code"]
    assert cells == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]
    assert tags(f"- x {md_prose(text)}") == ["ul", "li"]
    assert tags(md_block(text)) == ["pre", "code"]
    assert shown(md_block(text)) == visible(text).strip("\n")


def tags(markdown: str) -> list[object]:
    return [one[0] for one in structure.of_markdown(markdown)[0] if one[0] != "/"]


def shown(markdown: str) -> str:
    return structure.of_markdown(markdown)[1].strip("\n")


def test_the_terminal_forms_keep_ordinary_text_as_it_is():
    assert printable("größer als 3") == "größer als 3"
    assert visible("a\nb\tc\r\n") == "a\nb\\tc\\r\n"
    assert md_code("") == "(empty)"
