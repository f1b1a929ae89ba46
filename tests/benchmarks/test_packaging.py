"""Every extra is tried from the wheel, and is named where readers look for it."""

from benchmarks.documents import page
from benchmarks.packaging import SMOKE, extras


def test_every_extra_has_a_smoke_test():
    assert set(SMOKE) == {"core", *extras()}


def test_the_first_page_names_every_extra():
    text = page("docs/index.md").path.read_text(encoding="utf-8").partition("## Install")[2]
    assert [extra for extra in extras() if f"`{extra}`" not in text] == []
