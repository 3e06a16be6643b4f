# SPDX-License-Identifier: GPL-2.0-only
"""A page in Debian's chromium: nothing on its console, no violation that axe finds, and controls that keys work.

Opt-in: ./lab test --nightly tests/unit/report/test_page_in_browser.py
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from record_builders import cell, failed, reference, run
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait
from stored_profiles import profile, record, stacked, store_run
from test_html_page import HOSTILE, kept_run

from orchestrator.benchmarks.registry import reports
from orchestrator.library.stored import load_comparison
from orchestrator.pages.comparison_page import comparison_page
from orchestrator.pages.run_page import run_page
from orchestrator.paths import cache_dir
from orchestrator.results.runs import Run
from orchestrator.results.statistics import median

CHROMIUM, DRIVER, NPM = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver"), Path("/usr/bin/npm")
# Tests run with the programs of the package lists on their PATH; these are of no list.
pytestmark = [
    pytest.mark.nightly("a browser is started"),
    pytest.mark.skipif(
        not (CHROMIUM.exists() and DRIVER.exists()), reason="no browser: apt install chromium chromium-driver"
    ),
]


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core, which npm keeps in the lab's cache."""
    if not NPM.exists():
        pytest.skip("no npm to fetch axe-core with: apt install npm")
    folder = cache_dir() / "axe-core"
    source = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [str(NPM), "install", "--prefix", str(folder), "--ignore-scripts", "axe-core@4"]
        subprocess.run(
            command, check=True, capture_output=True, timeout=600, env={**os.environ, "PATH": "/usr/bin:/bin"}
        )
    return source.read_text("utf-8")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with charts, a failed cell, a hostile console and C."""
    cells = [cell(probe, reference=reference(probe)) for probe in ("none", "kprobe", "djprobe")]
    cells.append(failed("jprobe", HOSTILE, reference=reference("jprobe")))
    kept_run(tmp_path / "run", *cells, console=HOSTILE)
    file = tmp_path / "page.html"
    file.write_text(run_page(Run(run(*cells), tmp_path / "run"), reports()).text)
    return file


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A page with profiles and flame graphs."""
    stacks = {"callbench": 5, "callbench;entry": 7}
    cells = [record(stacked(f"x/{name}", stacks), name, tmp_path / "run") for name in ("none", "kprobe")]
    file = tmp_path / "page.html"
    file.write_text(run_page(Run(run(*cells), tmp_path / "run"), reports()).text)
    return file


@pytest.fixture
def comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of a comparison with every sort of change, and symbols."""
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    identity = "pentium4/debian-686/kprobe/noop"
    sides = []
    for name, more in (("one", 0), ("two", 3)):
        profiled = record(profile(identity, {"entry": 40, "handler [lab_kprobe]": 2 + more}), "kprobe", tmp_path / name)
        samples = {"t0": [409.0 + more], "t1": [409.0 - more], "t2": [400.0 + n + 50 * more for n in range(19)]}
        wall = {"clock": "wall", "unit": "ns"}
        timed = [cell("none", id=id_, samples=one, value=median(one), **wall) for id_, one in samples.items()]
        jprobe = failed("jprobe", HOSTILE) if more else cell("jprobe")
        store_run(tmp_path / "lab", tmp_path / name, cell("none"), profiled, jprobe, *timed)
        sides.append(str(tmp_path / name))
    file = tmp_path / "comparison.html"
    file.write_text(comparison_page(load_comparison(sides, [])))
    return file


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """A chromium of this test's own."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", f"user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    try:
        yield started
    finally:
        started.quit()


@pytest.mark.parametrize("theme", ["light", "dark"])
# A phone, a desk, and A4 with margins.
@pytest.mark.parametrize(("media", "width"), [("screen", 390), ("screen", 1200), ("print", 720)])
def test_axe_finds_no_violation(
    theme: str, width: int, media: str, page: Path, browser: webdriver.Chrome, axe: str
) -> None:
    look_at(page, browser, theme, width, media)
    WebDriverWait(browser, 60).until(lambda driver: expanded(driver, "file-1"))
    check_with(axe, browser, width)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("media", "width"), [("screen", 390), ("screen", 1200), ("print", 720)])
@pytest.mark.parametrize("name", ["comparison", "profiles"])
def test_axe_finds_no_violation_in_other_pages(
    name: str, theme: str, width: int, media: str, browser: webdriver.Chrome, axe: str, request: pytest.FixtureRequest
) -> None:
    look_at(request.getfixturevalue(name), browser, theme, width, media)
    check_with(axe, browser, width)


def look_at(page: Path, browser: webdriver.Chrome, theme: str, width: int, media: str) -> None:
    """Open a page with all that is folded in it."""
    emulate(browser, theme, width, media)
    browser.get(page.as_uri())
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")


def emulate(browser: webdriver.Chrome, theme: str, width: int, media: str) -> None:
    """Show pages on such a screen or paper."""
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def check_with(axe: str, browser: webdriver.Chrome, width: int) -> None:
    """Fail for what axe finds, for a page wider than the window, and for anything on the console."""
    browser.execute_script(axe)
    violations = browser.execute_async_script("axe.run().then((found) => arguments[0](found.violations))")
    assert [
        (violation["id"], violation["nodes"][0]["html"][:200], violation["nodes"][0]["failureSummary"])
        for violation in violations
    ] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_keys_filter_and_sort_and_the_theme_is_kept(page: Path, browser: webdriver.Chrome) -> None:
    browser.get(page.as_uri())
    text = browser.find_element(By.NAME, "text")
    text.send_keys("DJPROBE")
    assert [row.get_attribute("data-probe") for row in shown_rows(browser)] == ["djprobe"]
    assert browser.find_element(By.CSS_SELECTOR, "output").text == "1 of 4 cells"
    assert [
        element.get_attribute("id") for element in browser.find_elements(By.CSS_SELECTOR, "details.cell:not([hidden])")
    ] == ["cell-3"]
    text.send_keys(Keys.BACKSPACE * len("DJPROBE"))
    value = browser.find_elements(By.CSS_SELECTOR, "#cell-list th button")[5]
    for expected in (["409", "462", "1036", "-"], ["1036", "462", "409", "-"]):
        value.send_keys(Keys.ENTER)
        found = [element.text for element in browser.find_elements(By.CSS_SELECTOR, "#cell-list td:nth-child(6)")]
        assert found == expected
    browser.find_element(By.ID, "theme").send_keys(Keys.ENTER)
    browser.find_element(By.ID, "theme").send_keys(Keys.ENTER)
    browser.refresh()
    assert browser.find_element(By.ID, "theme").text == "Theme: dark"


def test_changes_are_filtered_and_sorted_with_their_signs(comparison: Path, browser: webdriver.Chrome) -> None:
    browser.get(comparison.as_uri())
    browser.find_element(By.NAME, "change").send_keys("regressed")
    assert {row.get_attribute("data-change") for row in shown_rows(browser)} == {"regressed"}
    browser.find_element(By.NAME, "change").send_keys("all")
    browser.find_elements(By.CSS_SELECTOR, "#cell-list th button")[4].send_keys(Keys.ENTER)
    differences = [row.find_elements(By.TAG_NAME, "td")[3].text for row in shown_rows(browser)]
    figures = [float(difference) for difference in differences if difference]
    assert len(figures) > 1
    assert figures == sorted(figures)
    assert differences[len(figures) :] == [""] * (len(differences) - len(figures))


def test_a_link_opens_what_is_folded_and_expands_it(page: Path, browser: webdriver.Chrome) -> None:
    browser.get(page.as_uri())
    browser.get(page.as_uri() + "#file-1")
    assert WebDriverWait(browser, 60).until(lambda driver: expanded(driver, "file-1")) == HOSTILE
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 1


def shown_rows(browser: webdriver.Chrome) -> list[WebElement]:
    """The rows of the list of cells that the filter leaves."""
    return [element for element in browser.find_elements(By.CSS_SELECTOR, "tr[data-cell]") if element.is_displayed()]


def expanded(browser: webdriver.Chrome, file: str) -> str:
    """The text of an attachment; empty until it is there."""
    return str(browser.execute_script("return document.querySelector(`#${arguments[0]} pre`).textContent", file))
