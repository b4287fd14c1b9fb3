"""The matrix in a real Chromium: readable for everybody, and as wide as a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet.alpha.judge import judge
from pytest_meshnet.alpha.page import page
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.tests.browsing import DESKTOP, NEEDS_BROWSER, PHONE, Browser

from .complete import claim, complete

pytestmark = NEEDS_BROWSER

UNBROKEN = "x" * 200


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A matrix in which everything is met, and one with failures, gaps and words without an end."""
    locked, out = LockedTarget.load(), tmp_path_factory.mktemp("matrix")
    good = complete(locked)
    good["synthetic"] = False
    bad: dict[str, Any] = complete(locked)
    bad["performance"]["ttft_seconds"] = claim(900.0)
    bad["identity_and_fit"]["target"]["quantization"] = claim(UNBROKEN)
    bad["labels"]["topology"] = claim(UNBROKEN)
    bad["storage"]["artifacts"][0]["resolved_path"] = claim(f"/home/{UNBROKEN}")
    bad["semantic_correctness"]["rendered_template"] = None
    for name, record in (("good", good), ("bad", bad)):
        (out / f"{name}.html").write_bytes(page(judge(locked, record), record))
    return {name: out / f"{name}.html" for name in ("good", "bad")}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["good", "bad"])
def test_the_matrix_is_readable_for_everybody(
    browser: Browser, pages: dict[str, Path], name: str, dark: bool
) -> None:
    browser.look(pages[name], DESKTOP, dark=dark)
    assert browser.driver.get_log("browser") == []
    assert browser.complaints() == []


@pytest.mark.parametrize("name", ["good", "bad"])
def test_on_a_phone_the_matrix_does_not_scroll_sideways(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.look(pages[name], PHONE)
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    marks = browser.driver.find_elements("css selector", "dl a.chip")
    assert len(marks) == 71
    assert all(one.is_displayed() for one in marks[:3])
