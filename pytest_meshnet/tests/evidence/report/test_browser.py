"""The pages in a real Chromium: from a file, by keyboard, on a phone, at night."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_meshnet.evidence.documents import Named
from pytest_meshnet.evidence.report import run_report
from pytest_meshnet.evidence.report.measured import Measured
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.tests.browsing import NEEDS_BROWSER, PHONE, Browser
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.report import samples

pytestmark = NEEDS_BROWSER

UNBROKEN = "meshnet-runtime-" + "x" * 200


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out, key = tmp_path_factory.mktemp("pages"), SigningKey.make_ephemeral()
    target = Named(UNBROKEN, making.TARGET.digest)
    failing = samples.mixed(out / "a", key, target=target)
    good = samples.make(out / "b", key)
    bundles = [failing, good, samples.make(out / "c", key, target=target)]
    assert run_report(bundles, html=out / "matrix.html", providers=(Measured(),))[1] == 0
    return {"page": failing / "report.html", "matrix": out / "matrix.html"}


ENTRIES = "#results .entry"
FALLEN = {"DECODE-02", "DECODE-03", "OPEN-03", "PREFILL-02"}


def test_it_opens_from_a_file_without_a_network_and_without_a_complaint(
    browser: Browser, pages: dict[str, Path]
):
    for page in pages.values():
        browser.look(page)
        assert browser.driver.get_log("browser") == [], "no blocked style, script or request"
        names = "return performance.getEntriesByType('resource').map(one => one.name)"
        assert browser.run(names) == []
        assert UNBROKEN in browser.find("body").text


def test_the_filters_narrow_by_status_and_by_text(browser: Browser, pages: dict[str, Path]):
    browser.look(pages["page"])
    browser.find("#filter input[value=passed]").click()
    assert set(browser.shown(ENTRIES)) == FALLEN
    browser.find("#filter-text").send_keys("Wrong LENGTH")
    assert browser.shown(ENTRIES) == ["DECODE-02"]
    total = len(browser.driver.find_elements("css selector", ENTRIES))
    assert browser.find("#filter-told").text == f"1 of {total} requirements shown"
    browser.find("#filter-text").clear()
    browser.find("#filter-text").send_keys("row 59 of a long account")
    assert browser.shown(ENTRIES) == ["DECODE-02"], "a text deep in a failure is found"
    assert browser.shown("#self-checks"), "the filter is about requirements only"


def test_a_long_failure_unfolds(browser: Browser, pages: dict[str, Path]):
    browser.look(pages["page"])
    account = browser.find("#DECODE-02 details.long pre")
    assert not account.is_displayed()
    browser.find("#DECODE-02 details.long summary").click()
    assert account.is_displayed()
    assert "row 59 of a long account" in account.text


def test_a_link_to_a_requirement_unfolds_its_group(browser: Browser, pages: dict[str, Path]):
    browser.look(pages["page"], place="#OPEN-01")
    assert browser.find("#OPEN-01 .statement").is_displayed()


def test_everything_can_be_done_by_keyboard(browser: Browser, pages: dict[str, Path]):
    from selenium.webdriver import Keys

    browser.look(pages["page"])
    browser.press(Keys.TAB)
    assert browser.focused().text == "Skip to the results"
    browser.tab_to("#filter input[value=failed]")
    browser.press(Keys.SPACE)
    assert "DECODE-02" not in browser.shown(ENTRIES)
    browser.press(Keys.SPACE)
    browser.tab_to("#filter-text")
    browser.press("DECODE-02")
    assert browser.shown(ENTRIES) == ["DECODE-02"]
    browser.tab_to("#DECODE-02 details.long summary")
    assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press(Keys.ENTER)
    assert browser.find("#DECODE-02 details.long pre").is_displayed()


def test_without_a_script_everything_is_there_but_the_filter(
    browser: Browser, pages: dict[str, Path]
):
    browser.look(pages["page"], script=False)
    assert not browser.find("#filter").is_displayed()
    browser.find("#DECODE-02 details.long summary").click()
    assert "row 59" in browser.find("#DECODE-02 details.long pre").text
    browser.find("#results > .group > summary").click()
    assert browser.find("#OPEN-01").is_displayed()


def test_even_markup_that_got_through_could_run_and_load_nothing(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
):
    inserted = "<script>window.owned = 1</script><img src=x.png onerror='window.owned = 2'>"
    page = pages["page"].read_text(encoding="utf-8").replace("<main", f"{inserted}<main")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    browser.look(tmp_path / "page.html")
    assert browser.run("return window.owned") is None
    assert browser.find("#filter").is_displayed(), "the page's own script ran"
    blocked = [one["message"] for one in browser.driver.get_log("browser")]
    assert sum("Content Security Policy" in one for one in blocked) >= 2


@pytest.mark.parametrize("name", ["page", "matrix"])
def test_on_a_phone_nothing_reaches_over_the_edge(
    browser: Browser, pages: dict[str, Path], name: str
):
    browser.look(pages[name], PHONE)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]


def test_the_look_for_complaints_finds_what_is_wrong(browser: Browser, pages: dict[str, Path]):
    browser.look(pages["matrix"])
    browser.run("document.querySelector('h1').style.color = '#ddd'")
    browser.run("document.querySelector('main').append(document.createElement('img'))")
    found = " ".join(browser.complaints())
    assert "color-contrast" in found
    assert "image-alt" in found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["page", "matrix"])
def test_it_is_readable_for_everybody_in_light_and_in_dark(
    browser: Browser, pages: dict[str, Path], name: str, dark: bool
):
    browser.look(pages[name], dark=dark)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    darkness = sum(map(int, background.removeprefix("rgb(").removesuffix(")").split(",")))
    assert (darkness < 200) is dark
    assert browser.complaints() == []
