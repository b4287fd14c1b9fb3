"""A real Chromium for the tests of pages: without a network, in any size, by day or at night.

Needs the extra `browser` and Debian's packages chromium and chromium-driver; where they are not
there, a test that is marked `NEEDS_BROWSER` says that it did not run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
AXE = find_spec("axe_core_python")

NEEDS_BROWSER = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="NOT TESTED IN A BROWSER: apt-get install chromium chromium-driver",
    ),
    pytest.mark.skipif(
        AXE is None or find_spec("selenium") is None,
        reason="NOT TESTED IN A BROWSER: pip install pytest-meshnet[browser]",
    ),
]

PHONE, DESKTOP = (360, 740), (1200, 900)


class Browser:
    """A Chromium that has no network."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.send("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self.send("Network.emulateNetworkConditions", offline)

    def send(self, method: str, parameters: dict[str, Any]) -> None:
        self.driver.execute_cdp_cmd(method, parameters)

    def look(
        self,
        page: Path,
        size: tuple[int, int] = DESKTOP,
        *,
        dark: bool = False,
        script: bool = True,
        place: str = "",
    ) -> None:
        """Load a page from its file."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setDeviceMetricsOverride", metrics)
        self.send("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.send("Emulation.setScriptExecutionDisabled", {"value": not script})
        self.driver.get("about:blank")
        self.driver.get(page.as_uri() + place)

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def shown(self, selector: str) -> list[str]:
        """Return the ids of the elements of a selector that a person can see."""
        found = self.driver.find_elements("css selector", selector)
        return [one.get_attribute("id") for one in found if one.is_displayed()]

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> Any:
        return self.driver.switch_to.active_element

    def tab_to(self, selector: str) -> None:
        """Press Tab until an element of the selector has the focus."""
        from selenium.webdriver import Keys

        for _ in range(60):
            self.press(Keys.TAB)
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return
        raise AssertionError(f"no Tab leads to {selector}")

    def complaints(self) -> list[str]:
        """Return what axe-core finds serious or critical."""
        assert AXE is not None
        assert AXE.origin is not None
        source = Path(AXE.origin).with_name("axe.min.js").read_text(encoding="utf-8")
        self.run(source)
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {resultTypes: ['violations']}).then(found => done(found.violations))"
        )
        return [
            f"{one['impact']} {one['id']}: {node['html'][:200]} {node.get('failureSummary')}"
            for one in found
            for node in one["nodes"]
            if one["impact"] in ("serious", "critical")
        ]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
