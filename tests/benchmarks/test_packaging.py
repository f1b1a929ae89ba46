"""Every extra is tried from the wheel, and is named where readers look for it."""

import re
import subprocess
import sys

from benchmarks.documents import page
from benchmarks.packaging import ROOT, SMOKE, extras, long_description, pythons


def test_every_extra_has_a_smoke_test():
    assert set(SMOKE) == {"core", *extras()}


def test_the_first_page_names_every_extra():
    text = page("docs/index.md").path.read_text(encoding="utf-8").partition("## Install")[2]
    assert [extra for extra in extras() if f"`{extra}`" not in text] == []


def test_an_index_is_shown_no_link_or_picture_that_it_does_not_have():
    shown = long_description(page("README.md").path.read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)]*)\)", shown)
    assert [link for link in links if not link.startswith(("#", "https://"))] == []
    assert "pip install -e" not in shown
    named = re.findall(r"`((?:docs|examples|src)/[^`]*)`", shown)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_an_interpreter_is_of_the_version_it_is_asked_for():
    found = pythons()
    assert list(found) == ["3.11", "3.12", "3.13"]
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert ours not in found or found[ours] is not None
    for version, path in found.items():
        if path is not None:
            said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            assert said.startswith(f"Python {version}.")
