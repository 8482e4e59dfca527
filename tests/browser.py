"""A headless Chromium for tests of pages; they are skipped, loudly, where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest

Scheme = Literal["light", "dark"]

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# A busy machine takes half a minute for what else takes a second.
_SCRIPT_SECONDS = 300


@contextmanager
def open_browser(*, has_scripts: bool = True) -> Iterator[Any]:
    """Start Chromium with its driver: Debian's packages `chromium` and `chromium-driver`."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="pip install --group docs")
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        pytest.skip(f"NOT TESTED: no {' and '.join(missing)}: run `make test-tools` as root")
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(programs["chromedriver"])
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(_SCRIPT_SECONDS)
    try:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not has_scripts})
        # What a page would load from elsewhere is an error in its console.
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["http://*", "https://*"]})
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int, scheme: Scheme) -> None:
    """Set the width of the page, which a window cannot make narrow enough, and its colours."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def find_faults(driver: Any) -> list[str]:
    """Return what is wrong with the page that is open: errors, and what is wider than the page."""
    errors = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    script = "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
    wanted, available = driver.execute_script(script)
    return [*errors, *([f"{wanted} wide, {available} available"] if wanted > available else [])]
