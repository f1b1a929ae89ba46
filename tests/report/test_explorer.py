"""The explorer: prices as the library has them, a server that only its own page can ask, and its page in a browser."""

import http.client
import json
import shlex
import socket
import struct
import sys
import threading
import time
import urllib.parse
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.browser import AXE, WIDTHS, axe, browser, find
from benchmarks.markup import Markup
from discretion.cli import app
from discretion.privacy.power import attack_power
from discretion.report.explorer import RANGES, Explorer, Setting, certified, model, prices, world
from discretion.report.explorer.sheet import sheet

SETTINGS = (
    Setting(),
    Setting(n=200, dimension=3, kernel="matern32", length_scale=1.5, ridge=12.5, scale=0.05, paths=4, bound=2.5),
    Setting(n=50, dimension=1, kernel="exponential", assumption="exponential-1d", ridge=5, scale=0.3, delta=1e-3),
    Setting(kernel="diagonal", assumption="diagonal", scale=1e-4),
    Setting(assumption="response-only", scale=1.23456789e-4),
    Setting(mechanism="kernel-sum", scale=7.3, paths=3, delta=1e-6, bound=0.7),
)


def run(words: str) -> dict:
    ran = CliRunner().invoke(app, [*shlex.split(words)[1:], "--json"])
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_command_prints_the_price_of_the_page(setting):
    found = prices(setting)
    least = min(rule["value"] for rule in found["rules"] if rule["name"] != "as published")
    extra = " --rule renyi --time-limit 0" if setting.mechanism == "posterior" else ""
    printed = run(found["command"] + extra)
    mine = printed["compared"]["closed form"] if "compared" in printed else printed["epsilon"]
    assert mine == pytest.approx(least, rel=1e-9)
    assert found["power"] == attack_power(setting.loss(), 0.05)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_budget_pays_for_as_many_and_for_no_more(setting):
    roomy = replace(setting, budget=4.3 * setting.loss().epsilon(setting.delta) / setting.paths)
    count = int(prices(roomy)["within"].replace(",", ""))
    assert count >= 1
    assert replace(roomy, paths=count).loss().epsilon(roomy.delta) <= roomy.budget * (1 + 1e-9)
    assert replace(roomy, paths=count + 1).loss().epsilon(roomy.delta) > roomy.budget


def test_the_smallest_scale_costs_the_budget():
    setting = Setting(budget=2.0)
    assert run(setting.calibration() + " --rule renyi --time-limit 0")["epsilon"] <= 2.0
    sums = Setting(mechanism="kernel-sum", budget=2.0)
    assert run(sums.calibration())["epsilon"] == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize(
    "query",
    [
        {"n": "0"},
        {"n": "1e99"},
        {"n": "10.5"},
        {"delta": "nan"},
        {"scale": "-1"},
        {"kernel": "x"},
        {"records": "a.csv"},
    ],
)
def test_what_is_out_of_range_is_refused_in_words(query):
    with pytest.raises(ValueError, match=r"\.$"):
        Setting.read(query)


def test_every_end_of_every_slider_has_an_answer():
    for name, limits in RANGES.items():
        for end in (limits.low, limits.high):
            text = str(int(end)) if limits.whole else repr(float(end))
            found = prices(Setting.read({name: text}))
            assert json.dumps(found, allow_nan=False)


def test_worlds_are_made_up_again_by_their_seed():
    setting = Setting(n=100, scale=1.0, ridge=3.0)
    one, same, other = world(setting, 1), world(setting, 1), world(setting, 2)
    assert one == same
    assert one["layers"][0]["values"] != other["layers"][0]["values"]
    assert 0 <= one["right"] <= 1


def test_more_noise_is_more_often_wrong():
    def right(scale: float) -> float:
        each = [world(Setting(mechanism="kernel-sum", n=3_000, scale=scale), seed)["right"] for seed in range(3)]
        return float(np.mean(each))

    assert right(0.5) > 0.75
    assert right(5_000.0) < 0.65


@pytest.mark.slow
def test_searches_find_less(monkeypatch):
    monkeypatch.setattr(model, "SECONDS", 60.0)  # however busy the machine is
    found = certified(Setting())
    closed = prices(Setting())["rules"][1]["value"]
    assert all(rule["value"] < closed for rule in found["rules"])


# --- the server


@pytest.fixture(scope="module")
def explorer():
    with Explorer() as running:
        yield running


def ask(explorer, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", explorer.port, timeout=120)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=given)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


def test_who_has_the_address_is_answered(explorer):
    status, text, headers = ask(explorer, f"/{explorer.token}/")
    assert status == 200
    assert Markup(text).mistakes == []
    assert Markup(text).remote == []
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "discretion" in headers["Server"]
    assert "Python" not in headers["Server"]
    query = urllib.parse.urlencode({"n": 500, "scale": 0.01})
    status, text, headers = ask(explorer, f"/{explorer.token}/prices?{query}")
    assert status == 200
    assert json.loads(text)["command"] == Setting(n=500, scale=0.01).command()
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "//", "/prices", "/x/", "/{}~/", "/%00/", "/../{}/", "/favicon.ico"])
def test_without_the_token_nothing_is(explorer, path):  # no token holds a ~, so none of these is one
    status, text, _ = ask(explorer, path.format(explorer.token[:-1]))
    assert (status, text) == (403, "Refused.\n")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_sites_are_refused_token_or_not(explorer, headers):
    assert ask(explorer, f"/{explorer.token}/prices", **headers)[0] == 403


def test_localhost_is_a_name_of_this_server(explorer):
    assert ask(explorer, f"/{explorer.token}/", Host=f"localhost:{explorer.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_nothing_is_taken_in(explorer, method):
    assert ask(explorer, f"/{explorer.token}/prices", method)[0] in (403, 501)


def test_mistakes_are_answered_in_words(explorer):
    status, text, _ = ask(explorer, f"/{explorer.token}/prices?n=0")
    assert status == 400
    assert "from 10 to" in json.loads(text)["error"]
    assert ask(explorer, f"/{explorer.token}/prices?kernel=rbf&assumption=exponential-1d")[0] == 400
    assert ask(explorer, f"/{explorer.token}/world?seed=-1&n=10&scale=1")[0] == 200
    assert ask(explorer, f"/{explorer.token}/nothing")[0] == 404
    assert ask(explorer, f"/{explorer.token}/prices?n=" + "1" * 5_000)[0] == 404


def test_a_reader_who_has_left_is_no_error(monkeypatch):
    gone, done, errors = threading.Event(), threading.Event(), []
    with Explorer() as running:
        server = running._server
        monkeypatch.setattr(running, "answer", lambda *_: {"waited": gone.wait(120)})
        monkeypatch.setattr(server, "handle_error", lambda *_: errors.append(sys.exception()))
        monkeypatch.setattr(server, "shutdown_request", lambda _: done.set())
        with socket.create_connection(("127.0.0.1", running.port)) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets
            line.sendall(f"GET /{running.token}/prices HTTP/1.0\r\nHost: 127.0.0.1:{running.port}\r\n\r\n".encode())
            time.sleep(0.2)
        gone.set()
        assert done.wait(120)
    assert errors == []


def test_what_is_no_address_is_said_to_be_none(explorer, capfd):
    for path in (b"http://[x", b"http://a]b/"):
        with socket.create_connection(("127.0.0.1", explorer.port)) as line:
            line.sendall(b"GET " + path + b" HTTP/1.0\r\n\r\n")
            answer = line.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.0 400 "), answer
        assert answer.endswith(b"This is no address.\n")
    with socket.create_connection(("127.0.0.1", explorer.port)) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.sendall(b"GET /half")  # reset while it is being read
    assert ask(explorer, f"/{explorer.token}/")[0] == 200
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


def test_only_the_loopback_interface_listens(explorer):
    assert explorer._server.server_address[0] == "127.0.0.1"
    assert len(explorer.token) >= 32
    with Explorer() as other:
        assert other.token != explorer.token


def test_the_page_has_a_slider_for_every_number():
    page = Markup(sheet())
    assert page.mistakes == []
    for name in RANGES:
        assert f"s-{name}" in page.ids


# --- in a browser


@pytest.fixture(scope="module")
def window():
    if find() is None:
        pytest.skip("no browser here (Debian: apt-get install chromium chromium-driver; pip install selenium)")
    with browser() as opened:
        yield opened
        assert opened.errors() == []


def ready(window):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(window.driver, 40, poll_frequency=0.05).until(
        lambda _: window.script("return document.body.dataset.state") == "ready"
    )


def priced(window):
    from selenium.webdriver.support.ui import WebDriverWait

    filled = "return document.querySelectorAll('#facts dd').length"
    WebDriverWait(window.driver, 40, poll_frequency=0.05).until(lambda _: window.script(filled))


def shown(window):
    """What the page says and shows, by part."""
    ready(window)
    parts = {
        name: f"document.getElementById('{name}').textContent" for name in ("rules", "facts", "command", "calibration")
    }
    parts |= {"chart": "document.getElementById('chart').innerHTML"}
    parts |= {name: f"document.getElementById('{name}').toDataURL()" for name in ("world-0", "world-1")}
    return {name: window.script(f"return {code}") for name, code in parts.items()}


@pytest.fixture(scope="module")
def opened(window, explorer):
    window.visit(explorer.address)
    return window


@pytest.fixture
def page(opened):
    """The page at a setting that is quick to answer."""
    given = {name: limits.first for name, limits in RANGES.items()} | {"n": 300, "ridge": 5, "scale": 0.5}
    choices = {"mechanism": "posterior", "assumption": "response-only", "kernel": "rbf", "dimension": 2}
    for name, value in (choices | given).items():
        put(opened, name, value)
    ready(opened)
    return opened


def put(window, name, value):
    """Set a control as a person does: the number or choice, and the event that follows."""
    kind = "change" if name in ("mechanism", "dimension", "kernel", "assumption") else "input"
    window.script(
        "const e = document.querySelector(`[name=${arguments[0]}]`); e.value = arguments[1]; "
        "e.dispatchEvent(new Event(arguments[2], {bubbles: true}))",
        name, str(value), kind,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "changes"),
    [
        ("n", 200, {"command", "calibration", "world-1"}),
        ("length_scale", 0.4, {"command", "facts", "world-0", "world-1"}),
        ("ridge", 20, {"rules", "facts", "command", "chart", "world-1"}),
        ("scale", 5, {"rules", "facts", "command", "chart", "world-1"}),
        ("paths", 3, {"rules", "facts", "command", "chart", "world-1"}),
        ("delta", 1e-3, {"rules", "command", "chart", "calibration"}),
        ("bound", 3, {"rules", "facts", "command", "chart", "world-1"}),
        ("budget", 9, {"facts", "calibration", "chart"}),
        ("kernel", "matern32", {"facts", "command", "world-0", "world-1"}),
        ("dimension", "3", {"facts", "command"}),
        ("assumption", "bounded", {"rules", "facts", "command", "chart"}),
        ("mechanism", "kernel-sum", {"rules", "facts", "command", "chart", "world-1"}),
    ],
)
def test_every_control_changes_what_it_should(page, name, value, changes):
    before = shown(page)
    put(page, name, value)
    after = shown(page)
    assert changes <= {part for part in before if before[part] != after[part]}
    assert page.script("return document.body.dataset.wrong") == "no"
    assert page.errors() == []


@pytest.mark.slow
def test_sliders_and_numbers_go_together(page):
    for name, limits in RANGES.items():
        for place, expected in ((0, limits.low), (1000, limits.high)):
            page.script(
                "const e = document.getElementById(arguments[0]); e.value = arguments[1]; "
                "e.dispatchEvent(new Event('input', {bubbles: true}))",
                f"s-{name}", str(place),
            )  # fmt: skip
            assert float(page.script("return document.getElementById(arguments[0]).value", f"n-{name}")) == expected
        put(page, name, limits.first)
        assert page.script("return document.getElementById(arguments[0]).value", f"s-{name}") not in ("0", "1000") or (
            limits.first in (limits.low, limits.high)
        )


@pytest.mark.slow
def test_what_cannot_be_is_said_and_mended(page):
    put(page, "assumption", "exponential-1d")
    ready(page)
    assert page.script("return document.body.dataset.wrong") == "yes"
    assert page.script("return document.getElementById('wrong').hidden") is False
    put(page, "assumption", "bounded")
    ready(page)
    assert page.script("return document.getElementById('wrong').hidden") is True
    page.errors()  # the browser notes the 400


@pytest.mark.slow
def test_another_world_and_copied_commands(page):
    before = shown(page)
    page.script("document.getElementById('again').click()")
    after = shown(page)
    assert after["world-0"] != before["world-0"]
    assert after["command"] == before["command"]
    page.script("document.querySelector('.copy').click()")
    page.settle()
    said = page.script("return document.querySelector('.copy').textContent")
    assert said == "Copied" or (
        said.startswith("Selected") and page.script("return String(getSelection())").strip() == after["command"]
    )


@pytest.mark.slow
def test_nothing_but_this_server_is_asked(page, explorer):
    assert all(each.startswith(f"{explorer.address}") for each in page.requests())


@pytest.mark.slow
def test_there_is_room_on_every_screen(window, explorer):
    for width in WIDTHS:
        window.visit(explorer.address, width=width)
        priced(window)
        assert window.overflow() <= 0


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_axe_core_finds_nothing(window, explorer, dark):
    if axe() is None:
        pytest.skip(f"{AXE} can't be had: no npm, or no network")
    window.visit(explorer.address, width=1280 if dark else 360, dark=dark)
    priced(window)
    assert window.accessibility() == []
    window.driver.get("about:blank")  # asks the server nothing more, which ends with the last test
