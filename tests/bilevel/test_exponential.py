"""The exponential mechanism: its exact law between neighbours, its scores, its refusals, its place in a ledger."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.counts import SplitRecords
from discretion.bilevel.domains import Grid, default_grid
from discretion.bilevel.exponential import ExponentialMechanism, NotCertified, exponential
from discretion.bilevel.families import HuberPenalty, LogisticPenalty, QuadraticMean, RidgePenalty, Table
from discretion.bilevel.samplers import probabilities
from discretion.bilevel.scores import candidate_scores
from discretion.bilevel.solvers import InnerSolution
from discretion.gp import Ball, Box
from discretion.privacy import BoundedRange, Ledger, Mechanism, PublicError, SeededRandomness, SystemRandomness

RIDGE = RidgePenalty(training=9, validation=7, dimension=2, penalties=(0.05, 5.0), candidates=9)


def table(rng, n, d=2):
    A = rng.normal(size=(n, d))
    return Table(A / np.linalg.norm(A, axis=1, keepdims=True), rng.uniform(-1, 1, n))


def law(mechanism, records):
    return probabilities(mechanism._scored(records))


def neighbours(rng, trial):
    one = SplitRecords(table(rng, 9), table(rng, 7))
    A, b = one.training.features.copy(), one.training.labels.copy()
    V, c = one.validation.features.copy(), one.validation.labels.copy()
    if trial % 3 == 0:
        A[:], b[:], V[:], c[:] = A[0], 1.0, A[0], 1.0
    one = SplitRecords(Table(A.copy(), b.copy()), Table(V.copy(), c.copy()))
    if trial % 2:
        A[0], b[0] = -A[0] if trial % 4 == 1 else A[0], -b[0]
    else:
        V[0], c[0] = table(rng, 1).features[0], -c[0]
    return one, SplitRecords(Table(A, b), Table(V, c))


@pytest.mark.parametrize("score", ["plain", "candidate"])
@pytest.mark.parametrize("family", ["ridge", "logistic", "huber"])
def test_log_ratio_between_neighbours_has_range_epsilon(score, family):
    kind = {"ridge": RidgePenalty, "logistic": LogisticPenalty, "huber": HuberPenalty}[family]
    problem = kind(training=9, validation=7, dimension=2, penalties=(0.05, 5.0), candidates=9)
    mechanism = ExponentialMechanism(problem=problem, epsilon=2.0, score=score)
    rng = np.random.default_rng(1)
    widest = 0.0
    for trial in range(120 if family == "ridge" else 40):
        one, other = neighbours(rng, trial)
        ratio = np.log(law(mechanism, one) / law(mechanism, other))
        widest = max(widest, float(np.ptp(ratio)))
    assert 0.001 < widest <= 2.0 + 1e-9


def test_plain_mechanism_attains_epsilon():
    """f = <x, z> on the ends of a ball: values computed without error."""
    n = 40
    problem = QuadraticMean(records=n, dimension=1)
    grid = Grid.of(np.linspace(-1, 1, 5))
    mechanism = ExponentialMechanism(problem=problem, epsilon=1.0, grid=grid, value_share=1e-9)
    ones = np.ones((n, 1))
    other = ones.copy()
    other[0] = -1.0
    ratio = np.log(law(mechanism, ones) / law(mechanism, other))
    assert np.ptp(ratio) == pytest.approx(1.0, rel=1e-7)
    assert np.abs(ratio).max() > 0.95  # skewed data come near epsilon itself


class Shaken(RidgePenalty):
    """A ridge family whose computed values are off by the whole allowed error, in the worst pattern."""

    sign = 1.0
    size = 0.0

    def values(self, points, records, tolerances):
        pattern = np.where(np.arange(len(points)) == 0, 1.0, -1.0)
        return super().values(points, records, tolerances) + Shaken.sign * Shaken.size * pattern


def test_inexact_values_stay_within_epsilon_and_reach_it():
    problem = Shaken(training=9, validation=7, dimension=2, penalties=(0.05, 5.0), candidates=9)
    mechanism = ExponentialMechanism(problem=problem, epsilon=1.0, score="plain", value_share=0.4)
    a = float(mechanism.plan.rule.errors[0])
    Shaken.size = a
    records = neighbours(np.random.default_rng(3), 1)[0]
    Shaken.sign = 1.0
    one = law(mechanism, records)
    Shaken.sign = -1.0
    ratio = np.ptp(np.log(one / law(mechanism, records)))
    assert ratio == pytest.approx(4 * a * mechanism.k, rel=1e-6)  # errors alone; the records are the same
    assert mechanism.k * (mechanism.plan.range.value + 4 * a) == pytest.approx(1.0, rel=1e-9)


def test_inexact_allowance_is_reached_where_the_range_is():
    n, share = 10, 0.3

    class Off(QuadraticMean):
        sign = 1.0

        def values(self, points, records, tolerances):
            a = share * 4 / n
            return super().values(points, records, tolerances) + Off.sign * a * np.sign(points[:, 0])

    problem = Off(records=n, dimension=1)
    mechanism = ExponentialMechanism(
        problem=problem, epsilon=1.0, grid=Grid.of([-1.0, 1.0]), value_share=share, score="plain"
    )
    ones, other = np.ones((n, 1)), np.ones((n, 1))
    other[0] = -1.0
    Off.sign = -1.0
    p = law(mechanism, ones)
    Off.sign = 1.0
    reached = np.ptp(np.log(p / law(mechanism, other)))
    assert 0.99 <= reached <= 1.0 + 1e-9


def test_negative_control_a_quarter_of_the_sensitivity_exceeds_epsilon():
    n = 40
    mechanism = ExponentialMechanism(
        problem=QuadraticMean(records=n, dimension=1), epsilon=2.0, grid=Grid.of(np.linspace(-1, 1, 5)), score="plain"
    )
    ones, other = np.ones((n, 1)), np.ones((n, 1))
    other[0] = -1.0
    values = [mechanism.problem.values(mechanism.points, z, np.ones(5)) for z in (ones, other)]
    ratio = np.ptp(np.log(probabilities(4 * mechanism.k * values[0]) / probabilities(4 * mechanism.k * values[1])))
    assert ratio > 3.8 * 2.0


# --- Scores ------------------------------------------------------------------------------------------


def test_candidate_scores_move_by_at_most_one():
    rng = np.random.default_rng(4)
    for _ in range(800):
        N = int(rng.integers(2, 9))
        changes = rng.uniform(0.02, 1.0, N) ** 3
        values = rng.normal(size=N)
        other = values + changes * rng.choice([-1.0, 0.0, 1.0], N)
        t = float(rng.exponential(3.0))
        assert np.abs(candidate_scores(values, changes, t) - candidate_scores(other, changes, t)).max() <= 1 + 1e-9


def test_candidate_scores_in_blocks():
    rng = np.random.default_rng(5)
    values, changes = rng.normal(size=1300), rng.uniform(0.1, 1.0, 1300)
    raised = values + 2.0 * changes
    whole = np.max((raised[:, None] - raised) / (changes[:, None] + changes), axis=1)
    assert np.array_equal(candidate_scores(values, changes, 2.0), whole)
    assert whole.min() == 0.0


@pytest.mark.parametrize(("epsilon", "plain", "candidate"), [(0.5, 0.079, 0.010), (2.0, 0.076, 0.003)])
def test_reference_example_of_the_candidate_score(epsilon, plain, candidate):
    penalties = np.geomspace(1e-3, 10, 41)
    values, changes = 0.2 + np.log10(penalties) ** 2 / 30, 0.002 / penalties
    excess = values - values.min()
    worst = float(excess @ probabilities(epsilon / (2 * changes.max()) * values))
    t = 2 * math.log(41 / 0.05) / epsilon
    ours = float(excess @ probabilities(0.5 * epsilon * candidate_scores(values, changes, t)))
    assert worst == pytest.approx(plain, rel=0.2)
    assert ours == pytest.approx(candidate, rel=0.2)


def penalties(n, epsilon, **options):
    problem = RidgePenalty(training=n // 2, validation=n // 2, dimension=3, penalties=(0.1, 10.0), candidates=21)
    return ExponentialMechanism(problem=problem, epsilon=epsilon, **options)


def test_candidate_score_is_taken_where_it_alone_is_informative():
    assert penalties(442, 8.0).report().score == "plain"  # nothing is informative
    assert penalties(10_000, 1.0, spread=0.05).report().score == "candidate"
    assert penalties(10_000, 1.0).report().score == "plain"  # a guess does not decide for it
    assert penalties(200_000, 0.5).report().score == "plain"  # both are
    asked = penalties(442, 8.0, score="candidate").report()
    assert asked.score == "candidate"
    assert "penalty 10 is favoured" in asked.text()
    narrow = replace(RIDGE, penalties=(5.0, 6.0))
    assert ExponentialMechanism(problem=narrow, epsilon=1.0).report().other is None


def test_verdict():
    few, many = penalties(442, 8.0).report(), penalties(200_000, 0.5).report()
    assert not few.informative
    assert few.text().startswith("Not informative")
    assert many.informative
    assert many.text().startswith("Informative")
    assert [each.spread for each in many.forecasts] == pytest.approx([0.05, 0.05 / 3, 0.15])
    shares = [each.share for each in many.forecasts]
    assert shares[2] < shares[0] < shares[1]
    told = penalties(200_000, 0.5, spread=0.001).report()
    assert not told.informative
    assert told.spread == 0.001
    wild = penalties(442, 8.0, score="candidate", head_start=6.0).report()
    assert wild.forecasts[0].missed[0][0] == 0  # the least penalty
    assert wild.missed[0].startswith("penalty 0.1 to ")
    assert "A uniform draw does better if the best one is penalty 0.1" in wild.text()


def test_forecast_is_the_expected_excess_of_hypothetical_losses():
    mechanism = penalties(10_000, 1.0)
    x = mechanism.points[:, 0]
    ratios = []
    for best in x:
        for power in (0.5, 1.0, 2.0):
            u = np.abs(x - best) / np.abs(x - best).max()
            losses = 0.05 * u**power
            ratios.append(float(losses @ probabilities(mechanism.scores(losses))) / losses.mean())
    found = mechanism.report().forecasts[0]
    assert found.share == pytest.approx(np.mean(ratios), rel=1e-9)
    assert found.worst == pytest.approx(max(ratios), rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12), st.floats(0.0, 500.0))
def test_plain_score_is_never_worse_than_a_uniform_choice(losses, k):
    over = np.array(losses) - min(losses)
    assert over @ probabilities(k * over) <= over.mean() * (1 + 1e-12) + 1e-300


def test_a_point_that_nobody_would_take_is_no_merit():
    """Where public offsets rule out all points but a few, to avoid the others is not to be informative."""
    plain = penalties(2_000, 1.0).report()
    walled = penalties(2_000, 1.0, offsets=np.where(np.arange(21) < 12, 1e3, 0.0)).report()
    assert not plain.informative
    assert not walled.informative
    assert walled.forecasts[0].share > 0.9
    assert walled.ruled_out == 12
    assert "rule out 12 of them" in walled.text()
    x = np.log(np.geomspace(0.1, 10.0, 21))
    likely = penalties(10_000, 1.0).report().forecasts[0]
    shares = []
    for fixed in x:
        apart = np.abs(x - x[:, None]) / np.abs(x - x[:, None]).max(axis=1, keepdims=True)
        over = apart[:, None] ** np.array([[0.5], [1.0], [2.0]])
        shares.append(float(np.mean(over[:, :, x == fixed][..., 0] / over.mean(axis=-1))))
    assert likely.public == pytest.approx(min(shares), rel=1e-9)
    assert likely.fixed == np.argmin(shares)


def test_forecast_of_a_long_list_is_thinned():
    box = replace(RIDGE, training=5000, validation=5000, candidates=None)
    many = Grid.of(np.linspace(math.log(0.05), math.log(5.0), 3001))
    few, thin = (
        ExponentialMechanism(problem=box, epsilon=1.0, grid=grid, score="plain").report().forecasts[0]
        for grid in (None, many)
    )
    assert thin.share == pytest.approx(few.share, rel=0.01)


def test_wrong_head_start_or_spread():
    for options in ({"head_start": 1.0}, {"head_start": -1.0, "score": "candidate"}, {"spread": 0.0}):
        with pytest.raises(ValueError, match=r"head_start|spread"):
            ExponentialMechanism(problem=RIDGE, epsilon=1.0, **options)


# --- As a mechanism ----------------------------------------------------------------------------------


def test_run_in_a_ledger(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.ledger", dataset="made up", epsilon=2.0, delta=1e-6)
    rng = np.random.default_rng(6)
    records = SplitRecords(table(rng, 9), table(rng, 7))
    choice = exponential(RIDGE, records, epsilon=1.0, ledger=tmp_path / "budget.ledger")
    assert choice.penalty == pytest.approx(math.exp(choice.x[0]))
    assert choice.x[0] in RIDGE.x_domain.array[:, 0]
    assert RIDGE.x_domain.array[choice.place] == choice.x
    assert choice.certificate.epsilon == 1.0
    assert choice.certificate.delta == 0.0
    assert ledger.spent().epsilon <= 1.0 + 1e-9
    assert isinstance(ExponentialMechanism(problem=RIDGE, epsilon=1.0), Mechanism)
    report = choice.report()
    assert report.certified
    assert report.verified
    text = report.text()
    for word in ("Delta", "k =", "uniform draw", "exact"):
        assert word in text
    with pytest.raises(ValueError, match="16 records"):
        ExponentialMechanism(problem=RIDGE, epsilon=1.0).privacy_loss(15)


def test_report_is_the_same_whatever_the_records_are():
    mechanism = ExponentialMechanism(problem=RIDGE, epsilon=1.0)
    rng = np.random.default_rng(7)
    reports = [mechanism.run(each, SeededRandomness(1)).report() for each in neighbours(rng, 0)]
    assert reports[0] == reports[1] == mechanism.report()


def test_uncertified_sampler_never_enters_a_ledger(tmp_path):
    walk = ExponentialMechanism(problem=RIDGE, epsilon=1.0, sampler=lambda scores, randomness: int(np.argmin(scores)))
    assert not walk.report().certified
    assert "NOT CERTIFIED" in walk.report().text()
    records = SplitRecords(table(np.random.default_rng(8), 9), table(np.random.default_rng(9), 7))
    ledger = Ledger.create(tmp_path / "budget.ledger", dataset="made up", epsilon=2.0, delta=1e-6)
    with pytest.raises(NotCertified):
        ledger.run(walk, records, n=16)
    with pytest.raises(NotCertified):
        walk.run(records, SystemRandomness())
    assert ledger.entries() == []
    assert walk.sample_uncertified(records, SystemRandomness()).shape == (1,)


def test_records_are_refused_before_anything_is_spent(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.ledger", dataset="made up", epsilon=2.0, delta=1e-6)
    rng = np.random.default_rng(10)
    bad = table(rng, 7)
    bad.labels[0] = math.nan
    for records in (SplitRecords(table(rng, 8), table(rng, 7)), SplitRecords(table(rng, 9), bad), table(rng, 9)):
        with pytest.raises(PublicError):
            exponential(RIDGE, records, epsilon=1.0, ledger=ledger)
    assert ledger.entries() == []


def test_records_are_clipped_at_ingestion():
    rng = np.random.default_rng(11)
    wild = Table(1e200 * rng.normal(size=(9, 2)), 1e300 * rng.normal(size=9))
    part = RIDGE.ingest(SplitRecords(wild, table(rng, 7))).training
    assert np.all(np.linalg.norm(part.A, axis=1) <= 1.0)
    assert np.all(np.abs(part.b) <= 1.0)
    small = table(rng, 9)
    kept = RIDGE.ingest(SplitRecords(Table(0.3 * small.features, small.labels), table(rng, 7))).training
    assert np.allclose(kept.A, 0.3 * small.features, rtol=1e-14)


def test_refusals():
    with pytest.raises(ValueError, match="one point"):
        ExponentialMechanism(problem=RIDGE, epsilon=1.0, grid=Grid.of(RIDGE.x_domain.array[:1]))
    with pytest.raises(ValueError, match="outside the domain"):
        ExponentialMechanism(problem=RIDGE, epsilon=1.0, grid=Grid.of([0.0, 99.0]))
    with pytest.raises(ValueError, match="epsilon"):
        ExponentialMechanism(problem=RIDGE, epsilon=0.0)
    with pytest.raises(Refused, match="Double precision"):
        ExponentialMechanism(
            problem=replace(RIDGE, training=10**9, validation=10**9, penalties=(1e-12, 1.0)), epsilon=1.0
        )

    class Unbounded(QuadraticMean):
        def constants(self, x=None):
            return Constants(L_fx=0.0, L_fy=0.0, mu_g=1.0, D_g=0.0, D_y=0.0, B_f=0.0)

    with pytest.raises(Refused, match="No record"):
        ExponentialMechanism(problem=Unbounded(records=5, dimension=1), epsilon=1.0)

    class Unknown(QuadraticMean):
        def constants(self, x=None):
            return Constants(L_fy=1.0, mu_g=1.0)

    with pytest.raises(MissingConstant, match="D_g"):
        ExponentialMechanism(problem=Unknown(records=5, dimension=1), epsilon=1.0)


def test_uncertified_inner_solution_is_an_error_without_values():
    class Lazy(LogisticPenalty):
        def solve(self, x, records, tolerance, start=None):
            return InnerSolution(np.full(2, 0.123456), 0.987654, False)

    lazy = Lazy(training=9, validation=7, dimension=2)
    records = SplitRecords(table(np.random.default_rng(1), 9), table(np.random.default_rng(2), 7))
    with pytest.raises(PublicError, match="gradient norm") as caught:
        ExponentialMechanism(problem=lazy, epsilon=1.0).run(records, SystemRandomness())
    assert "0.1" not in str(caught.value)
    assert "0.9" not in str(caught.value)


def test_default_grids():
    assert default_grid(Box((0.0,), (1.0,))).shape == (201, 1)
    assert default_grid(Box((0.0,) * 2, (1.0,) * 2)).shape == (61**2, 2)
    ball = Ball((0.0,) * 3, 1.0)
    points = default_grid(ball)
    assert ball.contains(points).all()
    assert len(points) > 0.47 * 31**3
    with pytest.raises(ValueError, match="no default grid"):
        default_grid(Box((0.0,) * 4, (1.0,) * 4))


def test_grid_of_a_box_says_what_it_can_miss():
    problem = replace(RIDGE, candidates=None)
    mechanism = ExponentialMechanism(problem=problem, epsilon=1.0)
    report = mechanism.report()
    rng = np.random.default_rng(2)
    records = problem.ingest(SplitRecords(table(rng, 9), table(rng, 7)))
    low, high = problem.x_domain.lower[0], problem.x_domain.upper[0]
    fine = problem.values(np.linspace(low, high, 20_001)[:, None], records, np.full(20_001, 1e-9))
    coarse = problem.values(mechanism.points, records, np.full(201, 1e-9))
    assert 0 <= coarse.min() - fine.min() <= report.discretisation
    assert "best of the domain" in report.text()
    assert ExponentialMechanism(problem=RIDGE, epsilon=1.0).report().discretisation is None


def test_loss_is_bounded_range():
    loss = ExponentialMechanism(problem=RIDGE, epsilon=0.7).privacy_loss(16)
    assert isinstance(loss, BoundedRange)
    assert loss.epsilon(0.0) == 0.7
    assert loss.epsilon(1e-6) < 0.7
