"""The documentation site: it builds strictly and quietly, every link leads somewhere, a browser is content."""

import fcntl
import importlib
import importlib.util
import os
import re
import shutil

import pytest

from benchmarks import browser
from benchmarks.documents import ROOT
from benchmarks.site import build, follow

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not importlib.util.find_spec("mkdocs") or not importlib.util.find_spec("mkdocstrings"):
        pytest.skip("the site needs `pip install '.[docs]'`")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with (folder.parent / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker builds for all
        if not folder.exists():
            made = folder.with_name("site-being-made")
            built = build(made)
            assert built.warnings == []
            assert built.cpu < 60
            made.rename(folder)
    return folder


def test_every_link_leads_somewhere_and_nothing_is_fetched_from_elsewhere(site):
    found = follow(site)
    assert found.pages > 120
    assert found.inside > 5_000
    assert found.broken == []
    assert found.remote == []


def test_a_link_that_leads_nowhere_is_found(site, tmp_path):
    for name in ("index.html", "glossary.html"):
        shutil.copy(site / name, tmp_path / name)
    (tmp_path / "index.html").write_text(
        '<h1 id="a">x</h1><a href="glossary.html#ridge">1</a><a href="glossary.html#nothing">2</a>'
        '<a href="no.html">3</a><a href="#a">4</a><script src="https://example.org/x.js"></script>'
    )
    found = follow(tmp_path)
    assert {each for each in found.broken if each.startswith("index")} == {
        "index.html: glossary.html#nothing",
        "index.html: no.html",
    }
    assert found.remote == ["index.html: https://example.org/x.js"]


def test_every_page_and_public_name_is_there(site):
    for path in (ROOT / "docs").rglob("*.md"):
        assert (site / path.relative_to(ROOT / "docs")).with_suffix(".html").is_file(), path
    for path in (site / "reference").glob("*.html"):
        if path.stem in {"index", "command-line", "datasets"}:
            continue
        wing = importlib.import_module(f"discretion.{path.stem}")
        ids = set(re.findall(r'id="discretion\.[\w.]+\.(\w+)"', path.read_text(encoding="utf-8")))
        assert set(wing.__all__) <= ids, path.stem


def test_the_command_line_is_there_in_full(site):
    page = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    for words in ("release", "ledger spend-report", "audit membership"):
        assert f"discretion {words}" in page
    assert "--response-range" in page


@pytest.fixture(scope="module")
def window():
    if browser.find() is None:
        pytest.skip("Chromium, its driver or selenium is missing")
    with browser.browser() as window:
        yield window


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["index", "tutorial", "glossary", "reference/posterior", "proofs/index"])
def test_a_browser_is_content(site, window, name, width, dark):
    window.visit((site / f"{name}.html").as_uri(), width=width, dark=dark)
    assert window.errors() == []
    assert window.overflow() <= 0
    assert all(each.startswith("file:") for each in window.requests())
    scheme = window.script("return document.body.dataset.mdColorScheme")
    assert scheme == ("slate" if dark else "default")


@pytest.mark.parametrize("name", ["index", "tutorial", "bayesopt", "reference/command-line", "proofs/kernel-sum"])
def test_axe_core_finds_nothing(site, window, name):
    if browser.axe() is None:
        pytest.skip(f"npm can't fetch {browser.AXE}")
    for width, dark in ((360, True), (1280, False)):
        window.visit((site / f"{name}.html").as_uri(), width=width, dark=dark)
        assert window.accessibility() == []
    window.errors()  # axe-core asks for style sheets again, which a browser does not allow from files


def test_the_search_finds_from_files_alone(site, window):
    window.visit((site / "index.html").as_uri())
    window.script("document.querySelector('[data-md-component=search-query]').focus()")
    window.driver.switch_to.active_element.send_keys("maximum principle")
    found = window.driver.execute_async_script(
        """const done = arguments[0], until = Date.now() + 20000
        const look = () => {
          const links = [...document.querySelectorAll(".md-search-result__link")].map((each) => each.href)
          if (links.length || Date.now() > until) done(links)
          else setTimeout(look, 100)
        }
        look()"""
    )
    assert any("lattice-maximum-principle" in link for link in found), found
    assert window.errors() == []
