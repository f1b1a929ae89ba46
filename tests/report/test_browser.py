"""Pages in a real browser: quiet consoles, controls that do what they say, room on every screen, axe-core content."""

import json
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.browser import AXE, WIDTHS, axe, browser, find
from discretion.privacy import Certificate
from discretion.report import audit_page
from discretion.report.page import Contents
from discretion.report.page import page as page_of
from discretion.report.scene import Layer, Line, Scene

pytestmark = pytest.mark.slow

KINDS = ("sums", "paths", "lattice")


@pytest.fixture(scope="module")
def window():
    if find() is None:
        pytest.skip("no browser here (Debian: apt-get install chromium chromium-driver; pip install selenium)")
    with browser() as opened:
        yield opened
        assert opened.errors() == []


@pytest.fixture
def page(window, released):
    """Opens the page of a release."""

    def opened(kind, **window_):
        window.visit((released / kind / "report.html").as_uri(), **window_)
        return window

    return opened


def press(window, key):
    from selenium.webdriver.common.by import By

    window.driver.find_element(By.ID, "canvas").send_keys(key)


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_no_request_and_no_sideways_scrolling(page, kind):
    for width in WIDTHS:
        window = page(kind, width=width)
        assert window.errors() == []
        assert window.requests() == []
        assert window.overflow() <= 0
        assert len(set(window.script("return [...document.getElementById('canvas').getContext('2d')"
                                     ".getImageData(0, 0, 200, 200).data.slice(0, 40000)]"))) > 8  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_choice_of_the_map_changes_it(page, kind):
    window = page(kind)
    inputs = "document.querySelectorAll('#controls input:enabled')"
    count = window.script(f"return {inputs}.length")
    assert count >= 2
    before = window.drawn()
    for i in range(1, count):
        window.script(f"{inputs}[arguments[0]].click()", i)
        after = window.drawn()
        assert after != before, window.script(f"return {inputs}[arguments[0]].parentElement.textContent", i)
        before = after
    units = window.script("return document.getElementById('ticks').textContent")
    window.script(f"{inputs}[0].click()")
    assert window.drawn() != before
    if kind == "sums":
        assert window.script("return document.getElementById('ticks').textContent") != units


@pytest.mark.parametrize("kind", KINDS)
def test_buttons_keys_wheel_and_drags_move_the_map(page, kind):
    window = page(kind)
    whole = window.drawn()
    scale = "return Number(document.getElementById('canvas').dataset.scale)"

    def clicked(name):
        window.script("document.getElementById(arguments[0]).click()", name)
        return window.drawn()

    assert clicked("zoom-in") != whole
    zoomed = window.script(scale)
    clicked("zoom-out")
    assert window.script(scale) < zoomed
    assert clicked("zoom-all") == whole
    press(window, "+")
    assert window.script(scale) == pytest.approx(zoomed, rel=0.01)
    seen = [window.drawn()]
    for key in ("\ue012", "\ue013", "\ue013", "\ue014", "\ue014", "\ue015", "\ue015"):  # arrows
        press(window, key)
        seen.append(window.drawn())
    assert all(a != b for a, b in pairwise(seen))
    assert window.script("return document.getElementById('readout').textContent") != ""
    press(window, "-")
    assert window.script(scale) < zoomed
    press(window, "0")
    wheel = (
        "const c = document.getElementById('canvas'); "
        "c.dispatchEvent(new WheelEvent('wheel', {deltaY: -100, cancelable: true}))"
    )
    before = window.script(scale)
    window.script(wheel)
    assert window.script(scale) > before
    window.script("document.activeElement.blur(); document.getElementById('zoom-all').click()")
    window.script(wheel)  # the page's, while the map has no focus
    assert window.script(scale) == pytest.approx(before)

    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    canvas = window.driver.find_element(By.ID, "canvas")
    before = window.drawn()
    ActionChains(window.driver).drag_and_drop_by_offset(canvas, 60, 40).perform()
    window.script("document.activeElement.blur()")
    assert window.drawn() != before


def test_the_pointer_reads_values(page, released):
    window = page("sums")
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    canvas = window.driver.find_element(By.ID, "canvas")
    readings = set()
    for x, y in ((0, 0), (120, 60), (-150, -80)):
        ActionChains(window.driver).move_to_element_with_offset(canvas, x, y).perform()
        readings.add(window.script("return document.getElementById('readout').textContent"))
    assert len(readings) == 3
    assert all("local mean" in each or "too few records" in each for each in readings)


HALVES = {"Surely yes": (0.6, 0.85), "Surely no": (0.6, 0.15), "Undecided": (0.6, 0.5)}


def answering(released, file):
    """A map whose left half has no value, though the outlines go on there: yes above, no below, undecided between."""

    def box(low):
        return [[np.array([[0.0, low], [1.0, low], [1.0, 1.0], [0.0, 1.0], [0.0, low]])]]

    values = np.tile(np.linspace(0.0, 1.0, 21), (21, 1))
    values[:, :10] = np.nan
    scene = Scene(
        (0.0, 0.0, 1.0, 1.0), (21, 21), (Layer("Local mean", values, "u"),), between=True, question="Is it so?",
        lines=(Line("Surely yes inside", box(0.7)), Line("Surely no outside", box(0.3), True)),
        answers=(0.3, 0.4, 0.3),
    )  # fmt: skip
    made = Certificate.from_json((released / "sums" / "certificate.json").read_text())
    file.write_text(page_of(Contents(made, scene=scene.data())))
    return file


def test_each_answer_is_marked_where_it_holds_and_nowhere_else(window, released, tmp_path):
    file = answering(released, tmp_path / "answers.html")
    piece = """
        const canvas = document.getElementById('canvas'), side = 0.96 * Math.min(canvas.width, canvas.height);
        const x = canvas.width / 2 + (arguments[0] - 0.5) * side, y = canvas.height / 2 + (0.5 - arguments[1]) * side;
        const size = Math.round(0.1 * side), copy = document.createElement('canvas');
        [copy.width, copy.height] = [size, size];
        const pen = copy.getContext('2d', {willReadFrequently: true});
        pen.drawImage(canvas, x, y - size / 2, size, size, 0, 0, size, size);
        return [...pen.getImageData(0, 0, size, size).data];
    """
    for dark in (False, True):
        for width in (360, 1280):
            window.visit(file.as_uri(), width=width, dark=dark)
            window.settle()
            assert not any(any(window.script(piece, 0.2, y)[3::4]) for _, y in HALVES.values())
            for i, name in enumerate(HALVES):
                before = {each: window.script(piece, *place) for each, place in HALVES.items()}
                words = window.script(
                    "const i = document.querySelectorAll('#controls input[type=checkbox]')[arguments[0]]; i.click(); "
                    "return i.parentElement.textContent", i
                )  # fmt: skip
                window.settle()
                after = {each: window.script(piece, *place) for each, place in HALVES.items()}
                assert words.startswith(name)
                assert "0 % of the places" in words
                assert [each for each in HALVES if before[each] != after[each]] == [name]
    assert window.script("return [...document.querySelectorAll('legend')].map((e) => e.textContent)") == [
        "Colours show", "Is it so?", "Outlines"
    ]  # fmt: skip


def test_the_readout_answers_only_where_there_is_a_value(window, released, tmp_path):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    window.visit(answering(released, tmp_path / "answers.html").as_uri())
    canvas = window.driver.find_element(By.ID, "canvas")
    side = 0.96 * window.script("return Math.min(arguments[0].clientWidth, arguments[0].clientHeight)", canvas)
    said = []
    for x, y in (*HALVES.values(), (0.2, 0.15)):
        place = round((x - 0.5) * side), round((0.5 - y) * side)
        ActionChains(window.driver).move_to_element_with_offset(canvas, *place).perform()
        said.append(window.script("return document.getElementById('readout').textContent"))
    assert [next((each for each in HALVES if each in text), None) for text in said] == [*HALVES, None]
    assert "too few records" in said[3]


def test_the_theme_follows_the_reader_and_the_button(page):
    window = page("sums", dark=False)
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = window.script(paper)
    window.script("document.getElementById('theme').click()")
    dark = window.script(paper)
    assert dark != light
    assert window.script("return document.getElementById('theme').textContent") == "Light page"
    assert page("sums", dark=True).script(paper) == dark
    window.script("document.getElementById('theme').click()")
    assert window.script(paper) == light


def test_the_certificate_is_saved_as_it_is(page, released, tmp_path):
    window = page("sums")
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    window.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    window.script("document.getElementById('save').click()")
    target = tmp_path / "certificate.json"
    for _ in range(100):
        window.settle()
        if target.exists() and target.stat().st_size:
            break
    assert target.read_bytes() == (released / "sums" / "certificate.json").read_bytes()


def test_everything_is_reached_by_the_tab_key(page):
    from selenium.webdriver.common.action_chains import ActionChains

    window = page("sums")
    reached = set()
    for _ in range(60):
        ActionChains(window.driver).send_keys("\ue004").perform()
        reached.add(
            window.script("const e = document.activeElement; return e.id || e.type || e.className || e.tagName")
        )
    assert {"canvas", "zoom-in", "zoom-out", "zoom-all", "theme", "save", "radio", "checkbox", "skip"} <= reached


def test_without_scripts_the_words_are_there(page, window, released):
    window.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        window.driver.get((released / "sums" / "report.html").as_uri())
    finally:
        window.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    text = window.script("return document.body.innerText")
    assert "The map needs JavaScript" in text
    assert "What it does not protect" in text


def test_it_prints_on_white_paper(page):
    window = page("sums", dark=True)
    assert window.printed().startswith(b"%PDF")
    try:
        window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        assert window.script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert window.script("return getComputedStyle(document.querySelector('nav')).display") == "none"
    finally:
        window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "audit"])
def test_axe_core_finds_nothing(window, released, tmp_path, kind, dark):
    if axe() is None:
        pytest.skip(f"{AXE} can't be had: no npm, or no network")
    file = released / kind / "report.html"
    if kind == "audit":
        file = tmp_path / "audit.html"
        found = {"epsilon_lower": 1.0, "claimed": 2.0, "delta": 1e-3, "refuted": False, "witness": {"shared": [1]}}
        file.write_text(audit_page(json.loads(json.dumps(found))))
    for width in (360, 1280):
        window.visit(file.as_uri(), width=width, dark=dark)
        assert window.accessibility() == []
