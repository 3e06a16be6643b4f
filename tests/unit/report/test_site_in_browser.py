# SPDX-License-Identifier: GPL-2.0-only
"""A site in Debian's chromium: nothing on its console, no violation that axe finds, and links that work from files.

Opt-in: ./lab test --nightly tests/unit/report/test_site_in_browser.py
"""

from __future__ import annotations

import random
from pathlib import Path
from unittest.mock import patch

import pytest
import test_page_in_browser
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait
from stored_histories import KPROBE, broken, store_days, timed
from stored_sites import site_of, six_days

pytestmark = test_page_in_browser.pytestmark
axe, browser = test_page_in_browser.axe, test_page_in_browser.browser


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of runs with steps, failures, times and charts."""
    lab = tmp_path / "lab"
    six_days(lab)
    chance = random.Random(3)
    with patch("stored_histories.EXPERIMENT", "times"):
        days = [round(chance.gauss(1000 + 60 * (day >= 15), 8), 1) for day in range(30)]
        store_days(lab, [timed(value) if at % 9 else broken() for at, value in enumerate(days)])
    site_of(lab, tmp_path / "site")
    return tmp_path / "site"


@pytest.mark.parametrize("theme", ["light", "dark"])
# A phone, a desk, and A4 with margins.
@pytest.mark.parametrize(("media", "width"), [("screen", 390), ("screen", 1200), ("print", 720)])
def test_axe_finds_no_violation_(
    theme: str, width: int, media: str, site: Path, browser: webdriver.Chrome, axe: str
) -> None:
    test_page_in_browser.emulate(browser, theme, width, media)
    pages = ["index.html", "runs.html", "experiments/times.html", *(f"runs/{run.name}" for run in newest_runs(site))]
    pages += [path.relative_to(site).as_posix() for path in site.glob("metrics/*/*kprobe*.html")]
    assert len(pages) == 7
    for name in pages:
        browser.get((site / name).as_uri())
        test_page_in_browser.check_with(axe, browser, width)


def test_links_of_a_site_work_from_files(site: Path, browser: webdriver.Chrome) -> None:
    browser.get((site / "index.html").as_uri())
    assert title(browser) == "Probe lab"
    for link, expected in [
        ("#experiment-list th a", "Experiment times"),
        ("#metric-list th a", f"times:{KPROBE}"),
        ("#run-list th a", "times"),
        ("details.cell:last-of-type a", f"times:{KPROBE}"),
        ("nav a", "Probe lab"),
    ]:
        browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
        browser.find_element(By.CSS_SELECTOR, link).send_keys(Keys.ENTER)
        assert WebDriverWait(browser, 60).until(lambda driver: is_loaded(driver) and title(driver)) == expected


def test_keys_filter_and_sort_a_list_of_runs(site: Path, browser: webdriver.Chrome) -> None:
    browser.get((site / "runs.html").as_uri())
    browser.find_element(By.NAME, "text").send_keys("quickstart")
    assert len(rows_of(browser, "th")) == 6
    assert browser.find_element(By.CSS_SELECTOR, "output").text == "6 of 36 runs"
    browser.find_elements(By.CSS_SELECTOR, "#run-list th button")[5].send_keys(Keys.ENTER)
    browser.find_elements(By.CSS_SELECTOR, "#run-list th button")[5].send_keys(Keys.ENTER)
    # Those that the filter hides are sorted, too.
    assert [element.text for element in rows_of(browser, "td:nth-child(6)")] == ["1", "0", "0", "0", "0", "0"]


def rows_of(browser: webdriver.Chrome, column: str) -> list[WebElement]:
    """A column of the list of runs, as far as it is shown."""
    elements = browser.find_elements(By.CSS_SELECTOR, f"#run-list tbody {column}")
    return [element for element in elements if element.is_displayed()]


def newest_runs(site: Path) -> list[Path]:
    """The newest run of each experiment."""
    return [max(site.glob(f"runs/*-{name}-*.html")) for name in ("quickstart", "times")]


def title(browser: webdriver.Chrome) -> str:
    """The heading of the page that is open."""
    return browser.find_element(By.TAG_NAME, "h1").text


def is_loaded(browser: webdriver.Chrome) -> bool:
    """Whether a page is there as a whole."""
    return bool(browser.execute_script("return document.readyState") == "complete")
