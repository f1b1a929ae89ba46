"""Adaptive proposals, shared rates, disjoint tuning and thresholds, against exact enumeration."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.selection.makers import MeanMechanism, forced

from benchmarks.extension_truth import (
    SHORT_LAWS,
    Tree,
    hockey_sticks,
    hold_adaptive,
    hold_disjoint,
    hold_shared,
    hold_threshold,
    shared_best,
)
from benchmarks.selection_truth import Finite
from discretion.privacy import GaussianDP, Neighbours, PureDP, RenyiCurve, SeededRandomness
from discretion.selection import (
    Capped,
    DensityBox,
    Fixed,
    NegativeBinomial,
    Outcome,
    Poisson,
    Proposals,
    PublicScore,
    SelectionMechanism,
    SharedRate,
    disjoint_tuning_loss,
    geometric,
    logarithmic,
    selection_loss,
    threshold_loss,
)
from discretion.selection.bounds import pure_cost
from discretion.selection.profile_bound import selection_deltas
from discretion.selection.search import dyadic
from discretion.selection.streams import SearchKey

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE
BASE = GaussianDP(0.4, neighbours=ADD)


# --- Adaptive proposals


def test_adaptive_brute_force():
    tally = hold_adaptive(np.random.default_rng(4), 6)
    assert tally.checks > 1000
    assert tally.violations == 0
    assert tally.tightest["adaptive profile"] > 0.7
    assert tally.tightest["adaptive Renyi, closed form"] > 0.7


def test_adaptive_search_does_exceed_the_bounds_of_fixed_proposals():
    # even the first proposal may favour the one candidate that tells of the records
    candidate, weights, box = np.array([0, 1, 1, 0]), (0.5, 0.5), DensityBox(0.2, 1.8)
    tree = Tree(candidate, [np.broadcast_to([0.9, 0.1], (4,) * depth + (2,)) for depth in range(3)])
    first, second = np.array([0.9, 0.5, 0.5, 0.1]), np.array([0.6, 0.5, 0.5, 0.4])
    base, law, exceeded = Finite(weights[0] * first, weights[0] * second), Fixed(1), False
    p, r = tree.best(law, first), tree.best(law, second)
    for side, one, two in ((base, p, r), (base.turned, r, p)):
        for allowed in (DensityBox(1, 1), box):
            epsilons, deltas = selection_deltas(side.pair, law, allowed)
            over = hockey_sticks(one, two, epsilons) - deltas
            assert allowed.fixed or np.max(over) <= 1e-12
            exceeded |= allowed.fixed and np.max(over) > 0.01
    assert exceeded


def test_a_box_of_no_width_costs_nothing_and_a_wider_one_more():
    for law in (geometric(10), Poisson(3), Capped(logarithmic(5), 20)):
        plain = selection_loss(BASE, law).epsilon(1e-6)
        assert selection_loss(BASE, law, box=DensityBox(1, 1)).epsilon(1e-6) == plain
        assert selection_loss(BASE, law, box=DensityBox(1, 3)).epsilon(1e-6) == plain
        found = [selection_loss(BASE, law, box=DensityBox(1 / c, c)).epsilon(1e-6) for c in (1.0001, 1.1, 1.5)]
        assert plain < found[0] < found[1] < found[2]
        if not isinstance(law, Poisson):
            assert found[0] < plain * 1.001


def test_pure_price_of_a_box():
    box, spread = DensityBox(0.5, 2.0), math.log(4)
    for shape in (-0.5, 0.0, 1.0, 3.0):
        law = NegativeBinomial.of_mean(shape, 1e5)
        cost = pure_cost(0.5, law, box)
        assert 0.5 + spread < cost <= (2 + shape) * (0.5 + spread) * (1 + 1e-9)
    assert pure_cost(0.5, geometric(1e9), box) == pytest.approx(3 * (0.5 + spread), rel=1e-3)
    base = PureDP(0.5, neighbours=ADD)
    assert selection_loss(base, geometric(5), box=box).epsilon(0.0) == pure_cost(0.5, geometric(5), box)


@pytest.mark.parametrize("numbers", [(0.0, 2.0), (1.1, 2.0), (0.5, 0.9), (0.5, math.inf), (0.001, 100.0)])
def test_boxes_out_of_range(numbers):
    with pytest.raises(ValueError, match="0 < low <= 1 <= high"):
        DensityBox(*numbers)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=12),
    st.lists(st.floats(0, 1), min_size=12, max_size=12),
    st.sampled_from([(0.3, 2.0), (0.999, 1.0001), (1e-3, 5.0), (0.5, 1e3), (1.0, 1.0)]),
)
def test_projections_lie_in_the_box_exactly(wanted, raw, limits):
    weights = dyadic([each + 1e-3 for each in raw[: len(wanted)]], len(wanted))
    box = DensityBox(*limits)
    found = box.project(wanted, weights)
    units = [round(each * 2**52) for each in found]
    assert sum(units) == 2**52
    assert all(unit * 2.0**-52 == each for unit, each in zip(units, found, strict=True))
    for each, weight in zip(found, weights, strict=True):
        assert box.low * weight <= each <= box.high * weight


def test_projections_keep_proportions_where_the_box_allows():
    weights = dyadic(None, 4)
    found = DensityBox(0.1, 3.0).project([1, 2, 3, 2], weights)
    assert found == pytest.approx([1 / 8, 2 / 8, 3 / 8, 2 / 8], abs=1e-8)
    assert DensityBox(0.4, 3.0).project([0, 0, 0, 5], weights) == pytest.approx([0.1, 0.1, 0.1, 0.7], abs=1e-7)
    assert DensityBox(0.2, 1.5).project([0, 0, 0, 5], weights)[3] == 1.5 / 4
    for nonsense in ([1, 2, 3], [math.nan, 1, 1, 1], [-1, 1, 1, 1], [0, 0, 0, 0], ["a", 1, 1, 1], None):
        assert DensityBox(0.2, 1.5).project(nonsense, weights) == weights
    assert DensityBox(0.2, 3.0).project([1, 1], (0.0, 1.0)) == (0.0, 1.0)


class Favour:
    """Wants the candidate of the best score so far; remembers what it was shown."""

    def __init__(self):
        self.seen = []

    def __call__(self, history):
        self.seen.append(history)
        best = max(history, key=lambda each: each[1], default=None)
        if len(history) == 3:
            raise RuntimeError("odd")
        return [1.0, 1.0] if best is None else [float(best[0] == j) for j in range(2)]


def adaptive(propose, law, box=DensityBox(0.25, 1.75), **options):  # noqa: B008
    return SelectionMechanism(
        (MeanMechanism(exact=True, shift=1.0), MeanMechanism(exact=True, shift=2.0)),
        PublicScore(lambda release: release.value, "value"),
        law,
        1e-6,
        proposals=Proposals(box, propose, "favours the best so far"),
        **options,
    )


def test_the_runner_proposes_in_view_of_the_scores():
    favour = Favour()
    mechanism = adaptive(favour, forced(200))
    records = np.linspace(0, 1, 20)
    release = mechanism.run(records, SeededRandomness(1))
    assert (release.candidate, release.score) == (1, 2.0)
    assert [len(each) for each in favour.seen] == list(range(200))
    drawn = np.array([each[0] for each in favour.seen[-1]])
    assert 0.82 < drawn[10:].mean() < 0.93  # 7/8 of the draws are of the favourite
    assert {each[1] for each in favour.seen[-1]} == {1.0, 2.0}
    parameters = mechanism.parameters()
    assert (parameters["proposals"], parameters["box"]) == ("favours the best so far", [0.25, 1.75])


def test_the_runner_charges_the_box_and_replays():
    records = np.linspace(0, 1, 20)
    mechanism = adaptive(Favour(), geometric(5))
    plain = SelectionMechanism(mechanism.candidates, mechanism.score, mechanism.law, 1e-6)
    assert mechanism.privacy_loss(20).epsilon(1e-6) > 1.5 * plain.privacy_loss(20).epsilon(1e-6)
    certificate = mechanism.run(records, SeededRandomness(3)).certificate
    assert certificate.epsilon == mechanism.privacy_loss(20).epsilon(1e-6)
    key = SearchKey.draw(SeededRandomness(5))
    assert mechanism.replay(key, records).score == mechanism.replay(key, records).score
    assert adaptive(Favour(), forced(0)).run(records, SeededRandomness(1)).outcome is Outcome.DEFAULT
    with pytest.raises(ValueError, match="each run waits"):
        adaptive(Favour(), geometric(5), jobs=2)


def test_draws_of_the_runner_follow_the_projected_chances():
    seen, records, counts = [], np.linspace(0, 1, 20), np.zeros(2)
    mechanism = adaptive(lambda history: seen.append(history) or [0.0, 1.0], forced(250), DensityBox(0.5, 1.5))
    for seed in range(2):
        mechanism.run(records, SeededRandomness(seed))
        counts += np.bincount([each[0] for each in seen[-1]], minlength=2)
    assert abs(counts[1] / counts.sum() - 0.75) < 4 * math.sqrt(0.75 * 0.25 / counts.sum())


# --- A shared random rate


def test_shared_rate_brute_force():
    tally = hold_shared(np.random.default_rng(6), 150)
    assert tally.checks > 1000
    assert tally.violations == 0
    assert tally.tightest["shared rate"] > 0.95


def test_the_price_of_a_shared_rate_is_nearly_attained():
    # a rare outcome on top of a common one, many rounds
    e, rate = 0.5, SharedRate(1, 400, 1.0)
    rare = 1e-2
    q, other = np.array([[1 - rare, rare]]), np.array([[1 - rare * math.exp(e), rare * math.exp(e)]])
    p, r = (shared_best(rate, each, np.arange(2)) for each in (q, other))
    assert math.log(p[1] / r[1]) > 0.8 * e
    assert rate.none == pytest.approx(1 / 401, rel=1e-9)
    assert rate.mean == 200
    assert p[0] == pytest.approx(rate.none, rel=1e-9)


def test_shared_rates_out_of_range():
    with pytest.raises(ValueError, match="exponent"):
        SharedRate(3, 2, 0.0)
    with pytest.raises(ValueError, match="for each candidate"):
        SharedRate(3, 2, 0.5).loss(0.1, neighbours=ADD, deltas=[0.1])
    with pytest.raises(ValueError, match="negative"):
        SharedRate(3, 2, 0.5).loss(-0.1, neighbours=ADD)
    assert SharedRate(3, 2, 0.5).loss(0.4, neighbours=ADD).epsilon(0.0) == pytest.approx(1.0)
    assert SharedRate(3, 2, 0.5).loss(math.inf, neighbours=ADD).epsilon(1e-6) == math.inf


# --- Tuning on a disjoint part


def test_disjoint_tuning_brute_force():
    tally = hold_disjoint(np.random.default_rng(7), 12)
    assert tally.checks > 1000
    assert tally.violations == 0
    assert tally.tightest["disjoint part, present"] > 0.6


def test_disjoint_tuning_of_integer_orders():
    tuning, training, q = GaussianDP(1.0, neighbours=ADD), GaussianDP(0.3, neighbours=ADD), 0.2
    loss = disjoint_tuning_loss(tuning, training, q)
    for order in (2, 3, 8):

        def term(bound, j):
            return math.exp((j - 1) * bound.renyi(float(j))) if j >= 2 else 1.0

        present = sum(
            math.comb(order, j) * q ** (order - j) * (1 - q) ** j * term(tuning, order - j) * term(training, j)
            for j in range(order + 1)
        )
        absent = q * term(tuning, order) + (1 - q) * term(training, order)
        assert loss.renyi(float(order)) == pytest.approx(math.log(max(present, absent)) / (order - 1), rel=1e-8)
    x = np.geomspace(0.01, 3000, 400)
    found = loss.renyi_excess(x)
    assert np.all(np.diff(found) >= -1e-12)
    assert np.all(found <= np.maximum(tuning.renyi_excess(x), training.renyi_excess(x)))
    # less than a record that is surely tuned with
    assert loss.epsilon(1e-6) < 0.95 * RenyiCurve(tuning.renyi_excess, neighbours=ADD, rule="tuning").epsilon(1e-6)


def test_disjoint_tuning_takes_selections_and_refuses_replacements():
    tuning = selection_loss(BASE, geometric(10))
    loss = disjoint_tuning_loss(tuning, BASE, 0.1)
    assert 0 < loss.epsilon(1e-6) < (tuning + BASE).epsilon(1e-6)
    assert "disjoint part" in loss.guarantee(1e-6).rule
    other = GaussianDP(0.4, neighbours=REPLACE)
    with pytest.raises(ValueError, match="add-remove"):
        disjoint_tuning_loss(other, other, 0.1)
    with pytest.raises(ValueError, match="probability"):
        disjoint_tuning_loss(BASE, BASE, 1.0)
    endless = RenyiCurve(lambda x: np.where(x < 5, x, np.inf), 5.0, neighbours=ADD, rule="ends")
    assert disjoint_tuning_loss(endless, BASE, 0.1).epsilon(1e-6) < math.inf
    assert disjoint_tuning_loss(GaussianDP(math.inf, neighbours=ADD), BASE, 0.1).epsilon(1e-6) == math.inf


# --- A threshold


def test_threshold_brute_force():
    tally = hold_threshold(np.random.default_rng(8), 4)
    assert tally.checks > 100
    assert tally.violations == 0


def test_thresholds():
    pure = PureDP(0.5, neighbours=REPLACE)
    assert threshold_loss(pure, 0.0).epsilon(0.0) == 1.0
    assert threshold_loss(pure, 0.1).epsilon(0.0) == 1.0
    assert threshold_loss(BASE, 0.1).epsilon(1e-6) <= selection_loss(BASE, geometric(10)).epsilon(1e-6)
    with pytest.raises(ValueError, match="pure DP"):
        threshold_loss(BASE, 0.0)
    with pytest.raises(ValueError, match=r"lies in \[0, 1\]"):
        threshold_loss(BASE, 1.5)


@pytest.mark.parametrize("law", SHORT_LAWS, ids=lambda law: law.name)
def test_a_tree_that_never_adapts_is_a_selection(law):
    weights, candidate = (0.25, 0.75), np.array([0, 1, 0, 1])
    flat = Tree(candidate, [np.broadcast_to(weights, (4,) * depth + (2,)) for depth in range(3)])
    masses = np.array([0.3, 0.2, 0.7, 0.8])
    below = np.append(0.0, np.cumsum(np.array(weights)[candidate] * masses))
    expected = np.append(np.diff(law.pgf(below)), law.none)
    assert flat.best(law, masses) == pytest.approx(expected, abs=1e-12)
