"""A real browser for the pages: Chromium by its driver, and the accessibility rules of axe-core.

Both are Debian packages (`apt-get install chromium chromium-driver`), selenium is on PyPI. axe-core (MPL-2.0) is not
part of this project: npm fetches it when a check asks for it. What is missing is None, and checks say so.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["AXE", "WIDTHS", "Browser", "axe", "browser", "find"]

AXE = "axe-core@4.10.3"
WIDTHS = (360, 768, 1280, 2200)
"""Widths of windows, in pixels."""


def find() -> tuple[str, str] | None:
    """Chromium and its driver, if both and selenium are there."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return None
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (program, driver) if program and driver else None


@lru_cache
def axe() -> str | None:
    """The script of axe-core, from npm; None where that can't be had."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    with tempfile.TemporaryDirectory() as home:
        ran = subprocess.run([npm, "pack", AXE, "--silent"], cwd=home, capture_output=True, check=False, timeout=60)
        packed = next(Path(home).glob("*.tgz"), None)
        if ran.returncode or packed is None:
            return None
        with tarfile.open(packed) as archive:
            file = archive.extractfile("package/axe.min.js")
            return None if file is None else file.read().decode()


class Browser:
    """One window."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def visit(self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of this size, for a reader who prefers it dark or light."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self.driver.get(address)
        self.settle()

    def settle(self) -> None:
        """Wait until two frames were drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        )

    def errors(self) -> list[str]:
        """What the console has said since it was last asked: errors and warnings."""
        return [each["message"] for each in self.driver.get_log("browser") if each["level"] != "INFO"]

    def script(self, code: str, *given: Any) -> Any:
        """What a function body in the page returns."""
        return self.driver.execute_script(code, *given)

    def drawn(self) -> str:
        """The map as it is drawn, to be compared."""
        self.settle()
        return self.script("return document.getElementById('canvas').toDataURL()")

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        return self.script("return document.documentElement.scrollWidth - window.innerWidth")

    def requests(self) -> list[str]:
        """Whatever was fetched beside the page itself."""
        return self.script("return performance.getEntriesByType('resource').map((entry) => entry.name)")

    def accessibility(self) -> list[str]:
        """Rules of axe-core that the page breaks, each with the first element that does.

        Raises RuntimeError where axe-core can't be had.
        """
        rules = axe()
        if rules is None:
            raise RuntimeError(f"{AXE} could not be fetched by npm.")
        self.script(rules)
        found = self.driver.execute_async_script("axe.run(document).then(arguments[arguments.length - 1])")
        return [f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in found["violations"]]

    def picture(self, path: Path) -> None:
        """The whole page as a PNG file."""
        width, height = self.script("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self) -> bytes:
        """The page as a PDF."""
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])


@contextmanager
def browser() -> Iterator[Browser]:
    """A window without a screen, and with no way to the network but to this machine."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    programs = find()
    if programs is None:
        raise RuntimeError("Chromium, its driver or selenium is missing.")
    options = Options()
    options.binary_location = programs[0]
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(each)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs[1]))
    driver.set_script_timeout(120)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
