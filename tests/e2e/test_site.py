"""The site of `make docs`: built strictly, complete, and shown by a browser without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from browser import Scheme, find_faults, open_browser, resize
from pages import DOCS, PAGES
from processes import wait_for
from support import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
# Long tables, long lines of code, pictures, a page in another script if there is one.
LOOKED_AT = [
    "index.md",
    "guides/why-it-froze.md",
    "guides/how-big.md",
    "guides/first-corpus.md",
    "guides/examples.md",
    "troubleshooting.md",
    "concepts/architecture.md",
    "benchmarks.md",
    "reference/cli.md",
    "reference/python.md",
    "reference/json.md",
    "adr/0053-the-site.md",
    *sorted(page.relative_to(DOCS).as_posix() for page in DOCS.glob("??/index.md")),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("zensical", reason="pip install --group docs")
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(DOCS, folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


def test_every_page_is_in_the_site_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        built = (site / page.relative_to(DOCS)).with_suffix(".html").read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?:[^\"]+)", built)
        assert not loaded, page


def test_the_language_switch_leads_to_pages(site: Path) -> None:
    links = re.findall(r"link: (\S+/index\.html), lang: (\w+)", CONFIG)
    assert [language for _, language in links] == ["de", "zh", "ja", "hi", "es"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"(docs/{language}/index.md)" in readme for _, language in links)
    there = {path.parent.name for path in DOCS.glob("??/index.md")}
    assert all((site / link).exists() for link, language in links if language in there)


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("scheme", get_args(Scheme))
def test_pages_fit_the_screen_without_errors(
    site: Path, driver: Any, width: int, scheme: Scheme
) -> None:
    resize(driver, width, scheme)
    faults = {}
    for page in LOOKED_AT:
        driver.get((site / page).with_suffix(".html").as_uri())
        faults[page] = find_faults(driver)
        language = driver.execute_script("return document.documentElement.lang")
        assert language == (page[:2] if re.match(r"\w\w/", page) else "en")
        shown = driver.execute_script("return document.body.dataset.mdColorScheme")
        assert shown == {"light": "default", "dark": "slate"}[scheme]
    assert {page: found for page, found in faults.items() if found} == {}


def test_the_search_finds_a_page_without_a_server(site: Path, driver: Any) -> None:
    resize(driver, 1440, "light")
    driver.get((site / "index.html").as_uri())
    actions = pytest.importorskip("selenium.webdriver.common.action_chains").ActionChains
    body = driver.find_element("css selector", "body")
    body.send_keys("\ue009", "k")  # Control-K
    wait_for(lambda: driver.execute_script(_SHADOWS + "return shadows.some(e => e.activeElement)"))
    actions(driver).send_keys("mouse pointer").perform()
    wait_for(lambda: any("why-it-froze.html" in link for link in results(driver)))
    assert find_faults(driver) == []


# The search is in the shadow of an element.
_SHADOWS = "const shadows = [...document.querySelectorAll('*')].flatMap(e => e.shadowRoot ?? []);"


def results(driver: Any) -> list[str]:
    """Return where the results of a search lead."""
    links = "return shadows.flatMap(e => [...e.querySelectorAll('ol a')].map(a => a.href))"
    found: list[str] = driver.execute_script(_SHADOWS + links)
    return found


def test_the_navigation_has_every_page_but_decisions() -> None:
    listed = re.findall(r": ([\w./-]+\.md)$", CONFIG, re.MULTILINE)
    pages = [page.relative_to(DOCS).as_posix() for page in PAGES]
    assert sorted(listed) == [page for page in sorted(pages) if not re.match(r"\w\w/", page)]
