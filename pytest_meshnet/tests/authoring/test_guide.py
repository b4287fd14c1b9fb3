"""The pages for implementers: tables as the code has them, commands and examples that work."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pytest_meshnet import cli, layout
from pytest_meshnet.authoring.exchange.canonical import exchanges
from pytest_meshnet.authoring.guide import TABLES, UnknownTable, filled
from pytest_meshnet.evidence.badge import _COLOURS
from pytest_meshnet.ledger.expected import ExpectedFailures
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.suite.certify import planned_tests
from pytest_meshnet.suite.pages import GUIDE, docs_folder

PAGES = {path.name: path for path in (docs_folder().parent / "README.md", *docs_folder().glob("*"))}
WRITTEN = ("README.md", "guide.md", "ci.md", "semantics.md")


def test_the_guide_has_every_table_as_the_code_has_it() -> None:
    page = PAGES[GUIDE].read_text()
    assert filled(page) == page
    assert set(re.findall(r"<!-- table: ([a-z-]+) -->", page)) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_was_edited_is_made_anew(name: str) -> None:
    page = f"before\n<!-- table: {name} -->\n| old |\n<!-- end -->\nafter\n"
    made = filled(page)
    assert "| old |" not in made
    assert made.startswith(f"before\n<!-- table: {name} -->\n| ")
    assert made.endswith("|\n<!-- end -->\nafter\n")
    assert filled(made) == made


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(UnknownTable, match="no table 'nothing': expected one of profiles"):
        filled("<!-- table: nothing -->\n<!-- end -->")


def test_the_table_of_requirements_says_which_have_a_sequence() -> None:
    rows = "\n".join(TABLES["requirements"]())
    for one in Ledger.load().requirements:
        shown = "yes" if one.id in exchanges() else ""
        assert f"| {one.id} | {one.level} | {one.profile} | {one.title} | {shown} |" in rows


def test_codes_that_are_never_retryable_are_those_of_err_03() -> None:
    rows = [line.split(" | ") for line in list(TABLES["codes"]())[1:]]
    never = {row[1] for row in rows if row[2] == "never"}
    assert never == {
        "SCHEMA_UNSUPPORTED",
        "FINGERPRINT_MISMATCH",
        "EPOCH_STALE",
        "SHARD_RANGE_MISMATCH",
        "CACHE_MISS",
    }


def commands() -> Iterator[tuple[str, str]]:
    """Every command line of ours in the pages."""
    for name in WRITTEN:
        for line in PAGES[name].read_text().splitlines():
            found = re.search(r"(?:^|[ `])(pytest-meshnet [a-z][^`#]*)", line)
            if found:
                yield name, found[1].strip()


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_a_command_of_a_page_is_one_that_there_is(page: str, line: str) -> None:
    _, name, *words = shlex.split(line)
    context = click.Context(cli.main)
    command = cli.main.get_command(context, name)
    assert isinstance(command, click.Command), f"{page}: {line}"
    if not isinstance(command, click.Group):
        command.make_parser(click.Context(command)).parse_args(list(words))


def test_every_command_for_authors_is_in_the_guide() -> None:
    told = {line.split()[1] for page, line in commands() if page == GUIDE}
    assert {"proto", "init", "doctor", "certify", "explain", "replay", "serve"} <= told


def test_the_known_failures_of_the_guide_are_a_list_that_the_suite_takes() -> None:
    (text,) = re.findall(r"```toml\n(\[\[failure\]\].*?)```", PAGES[GUIDE].read_text(), re.DOTALL)
    listed = ExpectedFailures.from_document(tomllib.loads(text), "the guide")
    listed.check(one.test for one in planned_tests())


def test_links_between_the_pages_lead_somewhere() -> None:
    for name in WRITTEN:
        page = PAGES[name]
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{name}: {target}"


def test_the_badges_of_the_page_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| ([A-Z ]+) \| meshnet \|", PAGES["ci.md"].read_text(), re.MULTILINE)
    assert rows == list(_COLOURS)


def test_the_descriptor_of_the_readme_is_one_that_the_suite_takes(tmp_path: Path) -> None:
    from pytest_meshnet.runtime.descriptor import load

    (text,) = re.findall(r"```toml\n(.*?)```", PAGES["README.md"].read_text(), re.DOTALL)
    path = tmp_path / "my-runtime.toml"
    path.write_text("\n".join(line.removeprefix("   ") for line in text.splitlines()))
    assert load(str(path)).shards[0].launch is not None
    assert layout.folder("fixtures").joinpath("target.schema.json").is_file()
