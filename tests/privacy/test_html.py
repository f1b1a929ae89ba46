"""Losses, certificates and ledgers as HTML: valid pieces that say what their objects say."""

import math
import re

import numpy as np
import pytest

from benchmarks.markup import Markup
from discretion import Box, GaussianDP, Ledger, Matern32, PosteriorMechanism, PureDP
from discretion.posterior.records import Records
from discretion.privacy import BoundedRange, Neighbours, RenyiCurve, SeededRandomness, html

REPLACE = Neighbours.REPLACE
LOSSES = {
    "gaussian": GaussianDP(0.8, neighbours=REPLACE),
    "nothing": GaussianDP(0.0, neighbours=REPLACE),
    "pure": PureDP(1.5, neighbours=Neighbours.ADD_REMOVE),
    "endless": PureDP(math.inf, neighbours=REPLACE),
    "range": BoundedRange(0.7, neighbours=REPLACE),
    "curve": RenyiCurve(lambda x: 0.3 * (1 + x), 40.0, neighbours=REPLACE, rule="made <up> & odd"),
    "sum": GaussianDP(0.8, neighbours=REPLACE) + 3 * PureDP(0.1, neighbours=REPLACE),
}


def piece(text: str) -> Markup:
    """A piece inside a page, read strictly."""
    whole = f"<html><head><title>x</title></head><body><main><h1>x</h1><h2>y</h2>{text}</main></body></html>"
    return Markup(whole)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_in_a_notebook_is_valid_and_says_its_epsilons(name):
    loss = LOSSES[name]
    found = piece(loss._repr_html_())
    assert found.mistakes == []
    assert found.remote == []
    assert type(loss).__name__ in found.text
    shown = dict(re.findall(r'<th scope="row">1e(-\d+)</th><td>([^<]*)</td>', loss._repr_html_()))
    for power, text in shown.items():
        exact = loss.epsilon(10.0 ** int(power))
        if math.isinf(exact):
            assert text == "no bound"
        else:
            assert exact <= float(text) <= exact + 1.001e-3


def test_a_certificate_and_its_release_say_what_is_protected(tmp_path):
    mechanism = PosteriorMechanism(
        Matern32(0.2), domain=Box((0.0,), (1.0,)), response_range=(0.0, 1.0), ridge=5.0, scale=0.5, delta=1e-3,
        locations=np.linspace(0, 1, 5)[:, None], unit="one <visit>",
    )  # fmt: skip
    release = mechanism.run(Records(np.full((4, 1), 0.5), np.full(4, 0.5)), SeededRandomness(1))
    text = release._repr_html_()
    assert text == release.certificate._repr_html_()
    found = piece(text)
    assert found.mistakes == []
    assert "one <visit>" in found.text
    assert "TEST ONLY" in found.text
    for words in ("What this protects", "Against whom", "What it does not protect", release.certificate.promise):
        assert words in found.text
    for words in release.certificate.limits:
        assert words in found.text


def test_a_ledger_shows_who_spent_what(tmp_path):
    book = Ledger.create(tmp_path / "a.ledger", dataset="A & <B>", epsilon=2.0, delta=1e-5)
    assert piece(book._repr_html_()).mistakes == []
    book.reserve(GaussianDP(0.2, neighbours=REPLACE), {"mechanism": "<sum>"})
    found = piece(book._repr_html_())
    assert found.mistakes == []
    assert "A & <B>" in found.text
    assert "<sum>" in found.text
    assert book.entries()[0].who in found.text
    spent = float(re.search(r"Spent epsilon ([\d.]+)", re.sub(r"\s+", " ", found.text))[1])
    assert book.spent().epsilon <= spent <= book.spent().epsilon + 1.001e-3
    left = float(re.search(r"Left epsilon ([\d.]+)", re.sub(r"\s+", " ", found.text))[1])
    assert left <= book.remaining()
    assert book.entries()[0].who not in html.ledger_card(book, entries=False)


def test_the_bar_is_as_long_as_what_is_spent():
    for spent, budget, share in ((0.0, 2.0, 0.0), (1.0, 2.0, 0.5), (9.0, 2.0, 1.0), (math.inf, 2.0, 1.0)):
        width = float(re.search(r'class="spent" [^>]*width="([\d.]+)"', html.spent_bar(spent, budget))[1])
        assert width == pytest.approx(398 * share, abs=0.06)


def test_a_chart_puts_points_where_they_are():
    x, y = [1.0, 10.0, 100.0], [1e-2, 1e-4, 1e-6]
    chart = html.line_chart(
        [("a", x, y)], x_label="x", y_label="y", words="w", log_x=True, log_y=True, marks=[(10, 1e-4)]
    )
    points = np.array([[float(v) for v in p.split()] for p in re.search(r'l0" d="M([^"]*)"', chart)[1].split("L")])
    np.testing.assert_allclose(points[1], points[[0, 2]].mean(axis=0), atol=0.1)
    mark = [float(v) for v in re.search(r'cx="([\d.]+)" cy="([\d.]+)"', chart).groups()]
    np.testing.assert_allclose(mark, points[1], atol=0.1)
    assert points[0, 1] < points[2, 1]


@pytest.mark.parametrize("values", [[1.0, 1.0], [0.0, 0.0], [-3.0, -3.0], [5e-324, 1e-300], [1e300, -1e300]])
def test_a_chart_of_odd_numbers_is_still_one(values):
    chart = html.line_chart([("a", [0.0, 1.0], values)], x_label="x", y_label="y", words="w")
    assert "nan" not in chart
    assert "inf" not in chart
    assert piece(f'<div class="dis">{chart}</div>').mistakes == []


def test_nothing_finite_is_no_chart():
    assert "nothing to draw" in html.line_chart([("a", [1.0], [math.inf])], x_label="x", y_label="y", words="w")
