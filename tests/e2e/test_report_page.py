"""The page of `penstok report` in Chromium: charts, widths, colours, labels, hostile text.

It needs Debian's `chromium` and `chromium-driver`, which `make test-tools` installs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import Scheme, open_browser, resize
from support import EXAMPLES, HOSTILE_MARKUP, few
from vocabularies import fetch_npm

import penstok as library

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.cold]

# Width and colour scheme; `make test` looks at two of the four.
VIEWS = few([(360, "dark"), (1440, "light"), (360, "light"), (1440, "dark")], 2)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of an output with hostile text and something skipped."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(EXAMPLES, folder / "corpus")
    lines = [json.dumps({"text": HOSTILE_MARKUP * 9}), "not json", json.dumps({"text": "last"})]
    (folder / "corpus" / "<img src=x onerror='window.pwned=4'>.jsonl").write_text("\n".join(lines))
    with pytest.warns(library.PenstokWarning):
        library.tokenize(folder / "corpus", folder / "tokens", val_fraction=0.2, on_error="skip")
    manifest = json.loads((folder / "tokens" / "manifest.json").read_text())
    # A run that was long enough for a chart.
    manifest["run"]["series"] = {
        "seconds": [0.2 * tick for tick in range(50)],
        "text_bytes": [tick * 10**7 for tick in range(50)],
        "memory_bytes": [2 * 10**8 + tick * 10**6 for tick in range(50)],
    }
    (folder / "tokens" / "manifest.json").write_text(json.dumps(manifest))
    return library.report(folder / "tokens", page=folder / "report.html").page


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with open_browser() as found:
        yield found


def look(browser: Chrome, page: Path, width: int = 1440, scheme: Scheme = "light") -> None:
    resize(browser, width, scheme)
    browser.get(page.as_uri())


def ask(browser: Chrome, script: str) -> Any:
    return browser.execute_script(f"return {script}")


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_charts_are_drawn_without_errors_or_horizontal_scrolling(
    browser: Chrome, page: Path, width: int, scheme: Scheme
) -> None:
    look(browser, page, width, scheme)
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert ask(browser, "document.documentElement.scrollWidth") <= width
    charts = ask(browser, "[...document.querySelectorAll('.plot')].map(each => each.dataset.chart)")
    assert charts == ["lengths", "inputs", "ratios", "ranks", "run"]
    # Something is drawn: not all pixels of a canvas are alike.
    painted = """[...document.querySelectorAll('.plot canvas')].map(canvas => {
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size > 5 && canvas.width > 200;
    })"""
    assert ask(browser, painted) == [True] * 5
    paper = ask(browser, "getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(251, 250, 247)", "dark": "rgb(20, 24, 27)"}[scheme]


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_contrast_and_labels_are_accessible(
    browser: Chrome, page: Path, width: int, scheme: Scheme
) -> None:
    script = fetch_npm("axe-core", "axe.min.js").read_text(encoding="utf-8")
    look(browser, page, width, scheme)
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    browser.execute_script(script)
    found = browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "const rules = ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice'];"
        "axe.run({exclude: [['article[hidden]']]}, {runOnly: rules})"
        ".then(result => done(result.violations.map("
        "each => [each.id, each.nodes.length, each.nodes[0].html, each.nodes[0].failureSummary])))"
    )
    assert found == []


def test_the_reading_room_is_paged(browser: Chrome, page: Path) -> None:
    look(browser, page)
    shown = "[...document.querySelectorAll('article:not([hidden]) h3')].map(each => each.innerText)"
    assert len(ask(browser, shown)) == 1
    assert ask(browser, shown)[0].startswith("train 0")
    click = "document.querySelector('{}').click()"
    ask(browser, click.format('[data-step="1"]'))
    assert not ask(browser, shown)[0].startswith("train 0 ")
    ask(browser, click.format('[data-step="-1"]'))
    assert ask(browser, shown)[0].startswith("train 0")
    assert ask(browser, "document.querySelector('[data-step=\"-1\"]').disabled")
    ask(browser, click.format("[data-show=val]"))
    assert ask(browser, shown)[0].startswith("val 0")
    ask(browser, click.format("article:not([hidden]) i:nth-child(2)"))
    said = ask(browser, "document.querySelector('.reader-controls output').textContent")
    ids = ask(browser, "document.querySelector('article:not([hidden])').dataset.ids").split()
    assert said.startswith("token ")
    assert said.split("id ")[1].split(", ")[0] in ids


def test_text_of_the_corpus_runs_no_script(browser: Chrome, page: Path) -> None:
    look(browser, page)
    assert ask(browser, "window.pwned === undefined")
    assert ask(browser, "document.querySelectorAll('main img, main svg, main script').length") == 0
    assert "onerror" in ask(browser, "document.querySelector('main').innerText")


def test_nothing_is_requested(browser: Chrome, page: Path) -> None:
    look(browser, page)
    assert ask(browser, "performance.getEntriesByType('resource').length") == 0


@pytest.mark.thorough
def test_without_javascript_numbers_and_documents_are_there(page: Path) -> None:
    with open_browser(has_scripts=False) as browser:
        browser.get(page.as_uri())
        source = browser.find_element("css selector", "main")
        visible = browser.find_elements("css selector", "article .text")
        assert all(each.is_displayed() for each in visible)
        assert "Tokens by input" in source.text
        plots = browser.find_elements("css selector", ".plot")
        assert plots
        assert not any(each.is_displayed() for each in plots)


@pytest.mark.thorough
def test_it_prints(browser: Chrome, page: Path) -> None:
    look(browser, page, scheme="dark")
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 20_000
    media = {"media": "print", "features": []}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    assert ask(browser, "getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert ask(browser, "getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
