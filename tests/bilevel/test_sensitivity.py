"""Sensitivities against neighbouring data sets that were made to be bad."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.counts import Counts, SplitRecords
from discretion.bilevel.families import BiasedRidge, HuberPenalty, LogisticPenalty, QuadraticMean, RidgePenalty, Table
from discretion.bilevel.sensitivity import (
    hypergradient_error,
    hypergradient_sensitivity,
    inexactness,
    inner_shift,
    lipschitz,
    penalty_bias,
    range_bound,
    smoothness,
    value_change,
)
from discretion.gp import Ball, Box

TWIST = 4 / (3 * math.sqrt(3))  # max of |d/du sech^2 u|
MU, SIDE = 0.6, 1.5  # strong convexity; x in [-SIDE, SIDE]


class LogCosh:
    """f = log cosh(p y + q x - a), g = mu y^2/2 + log cosh(u y - v x - e), all in [-1, 1]; a batch of data sets."""

    constants = Constants(
        L_fx=1.0, L_fy=1.0, b_fxx=1.0, b_fxy=1.0, b_fyy=1.0, mu_g=MU, L_gy=2.0, b_gxy=1.0, b_gyy=MU + 1.0,
        r_xy=TWIST, r_yy=TWIST, r_xy_x=TWIST, r_yy_x=TWIST, D_g=2.0, D_gxy=2.0, D_gyy=1.0, D_y=1 / MU,
    )  # fmt: skip

    def __init__(self, outer, inner):
        self.p, self.q, self.a = np.moveaxis(outer, -1, 0)  # (pairs, records)
        self.u, self.v, self.e = np.moveaxis(inner, -1, 0)

    def slope(self, x, y):
        return MU * y + np.mean(self.u * np.tanh(self.u * y - self.v * x - self.e), axis=1, keepdims=True)

    def solve(self, x):
        low, high = np.full(x.shape, -1 / MU), np.full(x.shape, 1 / MU)
        for _ in range(60):
            y = 0.5 * (low + high)
            up = self.slope(x, y) > 0
            low, high = np.where(up, low, y), np.where(up, y, high)
        return 0.5 * (low + high)

    def value(self, x, y):
        return np.mean(np.log(np.cosh(self.p * y + self.q * x - self.a)), axis=1, keepdims=True)

    def parts(self, x, y):
        t = np.tanh(self.p * y + self.q * x - self.a)
        s = 1 / np.cosh(self.u * y - self.v * x - self.e) ** 2

        def mean(each):
            return np.mean(each, axis=1, keepdims=True)

        return mean(self.q * t), mean(self.p * t), mean(-self.u * self.v * s), MU + mean(self.u**2 * s)

    def gradient(self, x, y):
        fx, fy, M, H = self.parts(x, y)
        return fx - M * fy / H


def records(rng, pairs, n):
    """Random, extreme and constant data sets, with a random or extreme record in place of the first."""
    Z = rng.uniform(-1, 1, (pairs, n, 3))
    Z[1::3] = np.sign(Z[1::3])
    Z[2::3] = np.sign(Z[2::3, :1]) * np.where(rng.random((len(Z[2::3]), 1, 3)) < 0.5, 1.0, rng.random())
    other = Z.copy()
    other[:, 0] = np.where(rng.random((pairs, 1)) < 0.5, -Z[:, 0], np.sign(rng.uniform(-1, 1, (pairs, 3))))
    return Z, other


@pytest.fixture(scope="module")
def joint():
    rng = np.random.default_rng(5)
    n = 8
    outer, inner = records(rng, 1500, n), records(rng, 1500, n)
    return n, LogCosh(outer[0], inner[0]), LogCosh(outer[1], inner[1])


def test_log_cosh_shift_range_and_hypergradient(joint):
    n, one, other = joint
    c, counts = LogCosh.constants, Counts(n)
    rng = np.random.default_rng(6)
    X = np.concatenate([np.linspace(-SIDE, SIDE, 5), rng.uniform(-SIDE, SIDE, 4)])
    moved, differences, gradients = [], [], []
    for x in X:
        at = np.full((len(one.p), 1), x)
        y, z = one.solve(at), other.solve(at)
        moved.append(np.abs(y - z).max() / inner_shift(c, counts))
        differences.append(one.value(at, y) - other.value(at, z))
        change = np.abs(one.gradient(at, y) - other.gradient(at, z))
        gradients.append(change.max() / hypergradient_sensitivity(c, counts).value)
    ranges = np.ptp(np.array(differences), axis=0).max() / range_bound(c, counts, 2 * SIDE).value
    assert max(moved) <= 1 + 1e-9
    assert ranges <= 1 + 1e-9
    assert max(gradients) <= 1 + 1e-9
    assert max(moved) > 0.5  # not vacuous


def test_log_cosh_error_smoothness_and_penalty_bias(joint):
    _, one, _ = joint
    c = LogCosh.constants
    rng = np.random.default_rng(7)
    x, step = rng.uniform(-SIDE, SIDE, (2, len(one.p), 1))
    y = one.solve(x)
    for alpha in (1e-4, 0.05):
        wrong = one.gradient(x, y + rng.choice([-alpha, alpha], y.shape))
        assert np.abs(wrong - one.gradient(x, y)).max() <= inexactness(c) * alpha * (1 + 1e-9) + 1e-12
    _, _, M, H = one.parts(x, y)
    tau = 0.01
    assert np.abs(M * tau / H).max() <= hypergradient_error(c, 0.0, tau) * (1 + 1e-9)
    turned = np.abs(one.gradient(step, one.solve(step)) - one.gradient(x, y)) / np.abs(step - x)
    assert turned.max() <= smoothness(c) * (1 + 1e-6)
    slope = np.abs(one.value(step, one.solve(step)) - one.value(x, y)) / np.abs(step - x)
    assert slope.max() <= lipschitz(c) * (1 + 1e-9)
    for weight in (3.0, 10.0):
        low, high = y - 1 / (weight * MU), y + 1 / (weight * MU)
        for _ in range(60):
            middle = 0.5 * (low + high)
            up = one.parts(x, middle)[1] + weight * one.slope(x, middle) > 0
            low, high = np.where(up, low, middle), np.where(up, middle, high)

        def inner_x(y):
            return np.mean(-one.v * np.tanh(one.u * y - one.v * x - one.e), axis=1, keepdims=True)

        q = one.parts(x, low)[0] + weight * (inner_x(low) - inner_x(y))
        assert np.abs(q - one.gradient(x, y)).max() <= penalty_bias(c, weight) * (1 + 1e-6)


def test_log_cosh_split():
    rng = np.random.default_rng(8)
    n, m, pairs = 6, 4, 900
    outer, inner = records(rng, pairs, m), records(rng, pairs, n)
    c, counts = LogCosh.constants, Counts(n, m)
    one = LogCosh(outer[0], inner[0])
    for other in (LogCosh(outer[1], inner[0]), LogCosh(outer[0], inner[1])):
        differences = []
        for x in np.linspace(-SIDE, SIDE, 7):
            at = np.full((pairs, 1), x)
            y, z = one.solve(at), other.solve(at)
            differences.append(one.value(at, y) - other.value(at, z))
            change = np.abs(one.gradient(at, y) - other.gradient(at, z))
            assert change.max() <= hypergradient_sensitivity(c, counts).value * (1 + 1e-9)
        assert np.ptp(np.array(differences), axis=0).max() <= range_bound(c, counts, 2 * SIDE).value * (1 + 1e-9)
    bound = hypergradient_sensitivity(c, counts)
    own = [value for name, value in bound.parts.items() if "own record" in name]
    assert bound.value == max(sum(own), sum(bound.parts.values()) - sum(own))


class Curvature:
    """f = q y, g = h y^2/2 - m x y: y = mean(m) x / mean(h), grad Phi = mean(q) mean(m) / mean(h)."""

    def __init__(self, largest, side):
        reach = side  # |y| <= |x| mean|m| / mean(h), h >= 1
        self.constants = Constants(
            L_fx=0.0, L_fy=1.0, b_fxx=0.0, b_fxy=0.0, b_fyy=0.0, mu_g=1.0, b_gxy=1.0, b_gyy=largest, r_xy=0.0, r_yy=0.0,
            D_g=(largest - 1) * reach + 2 * side,
        )  # fmt: skip


def test_curvature_counter_example_printed_lemma_fails_and_ours_holds():
    n, kappa = 1000, 100.0
    c = Curvature(kappa, 3.0).constants
    change = abs(1.0 - 1.0 / ((n - 1 + kappa) / n))  # all (h, m) = (1, 1), one replaced by (100, 1)
    printed = 2.0 * (0.0 + c.get("L_fy") * c.get("b_gxy") / n)
    assert change > 40 * printed
    assert change <= hypergradient_sensitivity(c, Counts(n)).value


@pytest.mark.parametrize("n", [50, 1000])
def test_hypergradient_bound_is_reached(n):
    c = Curvature(2.0, 1.0).constants
    bound = hypergradient_sensitivity(c, Counts(n)).value
    best = 0.0
    for q, h, m in np.ndindex(2, 2, 2):
        one = np.array([1.0, 1.0, 1.0])  # q, h, m of every record
        other = np.array([1.0 - 2 * q, 1.0 + h, 1.0 - 2 * m])
        mean = one + (other - one) / n
        best = max(best, abs(1.0 - mean[0] * mean[2] / mean[1]) / bound)
    assert 0.9 < best <= 1 + 1e-12
    assert n < 1000 or best > 0.99


def test_inner_shift_is_reached():
    # g = (y - z)^2 / 2, |z| <= 1
    n = 7
    shift = 2.0 / n
    assert inner_shift(Constants(mu_g=1.0, D_g=2.0), Counts(n)) == pytest.approx(shift, rel=1e-15)


def test_range_is_reached_and_halves_what_an_anchor_would_pay():
    # f = <x, z>, |z| <= 1 on [-1, 1]
    c = Constants(L_fx=1.0, L_fy=0.0, mu_g=1.0, D_g=0.0, D_y=0.0)
    assert range_bound(c, Counts(10), 2.0).value == pytest.approx(0.4)  # h = 2 x / 10


def test_range_of_the_reference_instance():
    problem = QuadraticMean(records=50, dimension=3)
    assert range_bound(problem.constants(), problem.counts, 2.0).value == pytest.approx(4 / 50)
    assert hypergradient_sensitivity(problem.constants(), problem.counts).value == pytest.approx(2 / 50)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(LogisticPenalty, {}), (HuberPenalty, {"corner": 1e-3}), (HuberPenalty, {"corner": 1e-3, "smooth": True})],
)
def test_solvers_always_get_there(kind, options):
    """A run that stops tells on the records: whatever they are, the least tolerance is reached."""
    rng = np.random.default_rng(12)
    problem = kind(training=200, validation=200, dimension=5, penalties=(1e-6, 10.0), candidates=7, **options)
    tolerances = np.array([1.01 * problem.least_tolerance(x) for x in problem.x_domain.array])
    for trial in range(12):
        A = rng.normal(size=(200, 5)) * 10.0 ** rng.uniform(-4, 1, (200, 1))
        b = np.sign(A @ rng.normal(size=5)) if trial % 3 == 0 else rng.choice([-1.0, 1.0, 1e-6], 200)
        A[: (0, 100, 199)[trial % 3]] = A[-1]
        if trial % 5 == 4:
            A[::2] = 0.0
        records = problem.ingest(SplitRecords(Table(A, b), Table(A, b)))
        assert np.isfinite(problem.values(problem.x_domain.array, records, tolerances)).all()


# --- Verified families -------------------------------------------------------------------------------

FAMILIES = {
    "ridge": RidgePenalty(training=7, validation=5, dimension=2, label_bound=0.7, penalties=(0.05, 5.0), candidates=5),
    "logistic": LogisticPenalty(training=7, validation=5, dimension=2, penalties=(0.05, 5.0), candidates=5),
    "huber": HuberPenalty(training=7, validation=5, dimension=2, penalties=(0.05, 5.0), candidates=5, corner=0.4),
    "pseudo": HuberPenalty(training=7, validation=5, dimension=2, penalties=(0.05, 5.0), candidates=5, smooth=True),
}


def rows(rng, n, extreme):
    A = rng.normal(size=(n, 2))
    b = rng.uniform(-1, 1, n)
    if extreme:
        A = np.tile(A[:1], (n, 1)) * rng.choice([-1.0, 1.0], (n, 1))
        b = np.where(A[:, 0] * b[0] > 0, 1.0, -1.0) * (1 if rng.random() < 0.5 else -1)
    return A / np.linalg.norm(A, axis=1, keepdims=True), b


@pytest.mark.parametrize("name", FAMILIES)
def test_families_on_neighbours(name):
    problem = FAMILIES[name]
    rng = np.random.default_rng(9)
    points = problem.x_domain.array
    local = [problem.constants(x) for x in points]
    changes = np.array([value_change(c, problem.counts).value for c in local])
    whole = range_bound(problem.constants(), problem.counts, problem.x_domain.diameter()).value
    tolerances = np.full(5, 1e-9)
    largest = np.zeros(3)
    for trial in range(260):
        A, b = rows(rng, 7, trial % 2)
        V, c = rows(rng, 5, trial % 3 == 0)
        if trial % 2:
            V, c = A[:5] * 0.999, b[:5]
        base = problem.ingest(SplitRecords(Table(A, b), Table(V, c)))
        values = problem.values(points, base, tolerances)
        solutions = [problem.certified(x, base, 1e-9) for x in points]
        for kind in ("training", "validation"):
            A2, b2, V2, c2 = A.copy(), b.copy(), V.copy(), c.copy()
            features, labels = (A2, b2) if kind == "training" else (V2, c2)
            features[0], labels[0] = (-features[0], labels[0]) if trial % 4 < 2 else (rows(rng, 1, False)[0][0], 1.0)
            if trial % 8 == 1:
                features[0], labels[0] = A[0], -b[0]
            other = problem.ingest(SplitRecords(Table(A2, b2), Table(V2, c2)))
            h = problem.values(points, other, tolerances) - values
            largest[0] = max(largest[0], np.max(np.abs(h) / changes))
            largest[1] = max(largest[1], np.ptp(h) / whole)
            for at in (0, 4):
                shift = np.linalg.norm(problem.certified(points[at], other, 1e-9) - solutions[at])
                assert shift <= inner_shift(local[at], problem.counts) * (1 + 1e-6)
                assert np.linalg.norm(solutions[at]) <= problem.reach(points[at]) * (1 + 1e-9)
                if local[at].differentiable and trial % 4 == 0:
                    y2 = problem.certified(points[at], other, 1e-9)
                    move = (
                        problem.hypergradient(points[at], y2, other)[0]
                        - problem.hypergradient(points[at], solutions[at], base)[0]
                    )
                    bound = hypergradient_sensitivity(local[at], problem.counts).value
                    largest[2] = max(largest[2], np.linalg.norm(move) / bound)
    assert largest.max() <= 1 + 1e-6
    assert largest[0] > 0.25


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
@pytest.mark.parametrize("penalty", [0.001, 0.03])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_records_change_the_value_by_no_more_than_the_range_of_the_loss(n, penalty, relation):
    """All data sets of a few records on a line, their neighbours too; with one record the range is attained."""
    problem = RidgePenalty(training=n, validation=1, dimension=1, penalties=(penalty, 1.0), neighbours=relation)
    x = np.log([penalty])
    c = problem.constants(x)
    found = value_change(c, problem.counts)
    assert found.rule == "range of the outer loss"
    assert found.value == c.S_f == problem.loss.largest_value(problem.reach(x))
    assert found.value < found.parts["shift of the inner solution"]
    assert range_bound(problem.constants(), problem.counts, 7.0).value <= 2 * found.value * (1 + 1e-9)
    # the moments of a record (a, b): its solution is sum ab / (sum a^2 + n lambda)
    lengths = [0.0, 0.001, 0.01, 0.03, penalty**0.5, 0.5, 1.0]
    a, b = (each.ravel() for each in np.meshgrid(lengths, [-1.0, 1.0]))
    sums = np.zeros((1, 2))
    for _ in range(n):
        sums = (sums[:, None] + np.column_stack([a * b, a * a])).reshape(-1, 2)
    y = sums[:, 0] / (sums[:, 1] + n * penalty)
    losses = 0.5 * (y[:, None] * np.array([1.0, -1.0, 0.5, 0.0]) - np.array([1.0, 1.0, 0.3, -1.0])) ** 2
    apart = np.ptp(losses)
    assert apart <= found.value * (1 + 1e-12)
    if n == 1:
        # one training record that is fitted as far as it goes, another that is fitted well; one validation record
        far, near = 1 / (2 * penalty**0.5), -brentq(lambda a: a / (a * a + penalty) - 1, 0.0, penalty**0.5)
        y = near / (near * near + penalty)
        assert 0.5 * (far + 1) ** 2 - 0.5 * (y + 1) ** 2 == pytest.approx(found.value, rel=1e-9)


def test_the_range_of_the_loss_is_a_constant_like_others():
    known = Constants(L_fy=10.0, mu_g=0.1, D_g=2.0, B_f=3.0, S_f=4.0, one_f=3.5, one_g=1.0, L_fx=0.0)
    assert value_change(known, Counts(1)).value == 4.0
    assert value_change(known, Counts(100)).value == 10.0 * 0.2 + 0.03
    assert Constants.of(known.described()) == known
    # an absent record counts as 0: f in [1, 3.5], say, is within 4 of itself and 0
    assert known.single_terms().S_f == 4.0
    assert Constants(one_f=3.5, S_f=1.0).single_terms().S_f == 3.5
    assert Constants(one_f=3.5).single_terms().S_f == 7.0
    assert Constants(S_f=1.0).single_terms().S_f is None
    # unknown: as ever
    assert value_change(Constants(L_fy=10.0, mu_g=0.1, D_g=2.0, B_f=3.0), Counts(1)).value == 203.0


@pytest.mark.parametrize("name", ["ridge", "logistic", "pseudo"])
def test_bounds_of_penalty_families_fall_with_the_penalty(name):
    """What lets suprema over the domain be taken at the least penalty."""
    problem = FAMILIES[name]
    all_points = [problem.constants(x) for x in np.linspace(math.log(0.05), math.log(5.0), 200)[:, None]]
    for bound in (
        lambda c: value_change(c, problem.counts).value,
        lambda c: hypergradient_sensitivity(c, problem.counts).value,
        lambda c: c.l,
        lambda c: c.get("D_y"),
        inexactness,
    ):
        values = np.array([bound(c) for c in all_points])
        assert np.all(np.diff(values) <= 1e-12 * values[:-1])
    assert smoothness(problem.constants()) >= max(smoothness(c) for c in all_points)


@pytest.mark.parametrize("name", ["ridge", "logistic", "pseudo"])
def test_hypergradient_of_families_by_central_differences(name):
    problem = FAMILIES[name]
    rng = np.random.default_rng(3)
    data = problem.ingest(SplitRecords(Table(*rows(rng, 7, False)), Table(*rows(rng, 5, False))))
    for x in (np.array([-2.0]), np.array([0.3])):
        y = problem.certified(x, data, 1e-12)
        gradient, residual = problem.hypergradient(x, y, data)
        h = 1e-4
        ends = [problem.outer_value(x + s, problem.certified(x + s, data, 1e-12), data) for s in (h, -h)]
        assert gradient[0] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5)
        assert residual < 1e-12


def test_biased_ridge_by_differences_and_neighbours():
    problem = BiasedRidge(training=7, validation=5, dimension=2, domain=Ball((0.0, 0.0), 1.5), strength=0.3)
    rng = np.random.default_rng(4)
    c = problem.constants()
    bound = hypergradient_sensitivity(c, problem.counts).value
    largest = 0.0
    for trial in range(300):
        A, b = rows(rng, 7, trial % 2)
        V, e = rows(rng, 5, trial % 2)
        A2, b2 = A.copy(), b.copy()
        A2[0], b2[0] = rows(rng, 1, False)[0][0], -b[0]
        one, other = (problem.ingest(SplitRecords(Table(F, g), Table(V, e))) for F, g in ((A, b), (A2, b2)))
        x = rng.normal(size=2)
        x *= 1.5 / np.linalg.norm(x)
        y, z = problem.certified(x, one, 1e-10), problem.certified(x, other, 1e-10)
        move = problem.hypergradient(x, y, one)[0] - problem.hypergradient(x, z, other)[0]
        largest = max(largest, float(np.linalg.norm(move)) / bound)
        assert np.linalg.norm(y - z) <= inner_shift(problem.constants(x), problem.counts) * (1 + 1e-9)
    assert largest <= 1 + 1e-9
    gradient, _ = problem.hypergradient(x, y, one)
    numeric = []
    for step in 1e-4 * np.eye(2):
        ends = [problem.outer_value(p, problem.certified(p, one, 1e-12), one) for p in (x + step, x - step)]
        numeric.append((ends[0] - ends[1]) / 2e-4)
    assert np.allclose(gradient, numeric, rtol=1e-6)


@pytest.mark.parametrize(("strength", "least"), [(0.01, 0.0), (0.3, 0.0), (10.0, 0.5), (1000.0, 0.5)])
def test_the_range_of_biased_ridge_by_search(strength, least):
    """Largest where the training features vanish and the validation record that changes turns its sign."""
    problem = BiasedRidge(training=6, validation=4, dimension=1, domain=Box((-3.0,), (3.0,)), strength=strength)
    bound = range_bound(problem.constants(), problem.counts, problem.x_domain.diameter()).value
    centres = np.linspace(-3.0, 3.0, 7)[:, None]
    rng = np.random.default_rng(5)
    largest = 0.0
    for trial in range(60):
        A = np.zeros((6, 1)) if trial % 2 else rng.choice([-1.0, 0.3, 1.0], (6, 1))
        b, V, e = rng.choice([-1.0, 1.0], 6), rng.choice([-1.0, 0.0, 1.0], (4, 1)), rng.choice([-1.0, 1.0], 4)
        other = rng.choice([-1.0, 0.0, 1.0], (1, 1)), rng.choice([-1.0, 1.0], 1)
        changed = np.vstack([other[0], V[1:]]), np.r_[other[1], e[1:]]
        one, two = (problem.ingest(SplitRecords(Table(A, b), Table(*part))) for part in ((V, e), changed))
        gaps = [
            problem.outer_value(x, problem.certified(x, one, 1e-9), one)
            - problem.outer_value(x, problem.certified(x, two, 1e-9), two)
            for x in centres
        ]
        largest = max(largest, float(np.ptp(gaps)) / bound)
    assert least < largest <= 1 + 1e-9


def test_add_remove_uses_single_terms():
    kind = {"training": 6, "validation": 4, "dimension": 2, "penalties": (0.05, 5.0), "candidates": 4}
    replace, remove = RidgePenalty(**kind), RidgePenalty(**kind, neighbours="add-remove")
    c = remove.constants()
    assert c.get("D_g") == pytest.approx(replace.constants().get("D_g") / 2)
    rng = np.random.default_rng(2)
    points = remove.x_domain.array
    changes = np.array([value_change(remove.constants(x), remove.counts).value for x in points])
    whole = range_bound(c, remove.counts, remove.x_domain.diameter()).value
    for trial in range(200):
        A, b = rows(rng, 6, trial % 2)
        V, e = rows(rng, 4, trial % 3 == 0)
        full, less, fewer = (
            remove.values(
                points, remove.ingest(SplitRecords(Table(A[i:], b[i:]), Table(V[j:], e[j:]))), np.full(4, 1e-9)
            )
            for i, j in ((0, 0), (1, 0), (0, 1))
        )
        for h in (full - less, full - fewer):
            assert np.all(np.abs(h) <= changes * (1 + 1e-9))
            assert np.ptp(h) <= whole * (1 + 1e-9)
    with pytest.raises(ValueError, match="more records"):
        remove.ingest(SplitRecords(Table(*rows(rng, 7, False)), Table(*rows(rng, 4, False))))


def test_add_remove_has_no_defaults_of_replacement():
    c = Constants(L_fx=1.0, L_fy=1.0, mu_g=1.0, L_gy=1.0, b_gxy=1.0, b_gyy=2.0, one_g=0.5).single_terms()
    assert c.get("D_g") == 0.5
    assert c.get("D_fy") == 1.0
    for name, wanted in (("D_gxy", "one_gxy"), ("D_gyy", "one_gyy"), ("B_f", "one_f"), ("D_y", "D_y")):
        with pytest.raises(MissingConstant, match=wanted):
            c.get(name)


# --- Refusals ----------------------------------------------------------------------------------------


def test_wall_breaks_the_hypergradient_bound_and_it_is_refused():
    # f = y, g = (y - x - c)^2 / 2 over Y = [-1, 1], X = [-1, 1]: K = 0, the range is |c - c'| / n
    n, x = 20, np.linspace(-1, 1, 401)
    h = np.clip(x + 1 / n, -1, 1) - np.clip(x, -1, 1)
    facts = {"L_fx": 0.0, "L_fy": 1.0, "b_fxx": 0.0, "b_fxy": 0.0, "b_fyy": 0.0, "D_fx": 0.0, "D_fy": 0.0}
    facts |= {"mu_g": 1.0, "b_gxy": 1.0, "b_gyy": 1.0, "r_xy": 0.0, "r_yy": 0.0, "D_g": 1.0, "D_gxy": 0.0, "D_gyy": 0.0}
    facts |= {"D_y": 2.0, "B_f": 0.0}
    free = Constants(**facts)
    assert hypergradient_sensitivity(free, Counts(n)).value == 0.0
    walled = Constants(**facts, inner_unconstrained=False)
    for bound in (
        lambda c: hypergradient_sensitivity(c, Counts(n)),
        inexactness,
        smoothness,
        lambda c: penalty_bias(c, 2),
    ):
        with pytest.raises(Refused, match="constrained"):
            bound(walled)
    found = range_bound(walled, Counts(n), 2.0)
    assert "hypergradient times diameter" not in found.parts
    assert np.ptp(h) == pytest.approx(1 / n)
    assert np.ptp(h) <= found.value


def test_clipped_outer_loss_breaks_the_hypergradient_bound_and_it_is_refused():
    # f = clip(y, 0, 1), g = (y - x - c)^2 / 2: K of the unclipped f is 0
    n, x = 20, np.linspace(-2, 2, 801)
    h = np.clip(x + 1 / n, 0, 1) - np.clip(x, 0, 1)
    c = Constants(L_fx=0.0, L_fy=1.0, mu_g=1.0, b_gxy=1.0, D_g=1.0, D_y=4.0, B_f=0.0, smooth=False)
    with pytest.raises(Refused, match="kink"):
        hypergradient_sensitivity(c, Counts(n))
    assert np.ptp(h) == pytest.approx(1 / n)
    assert np.ptp(h) <= range_bound(c, Counts(n), 4.0).value


def test_kink_is_refused_because_one_record_moves_the_hypergradient_by_a_half():
    # g = (y - x)^2/2 + huber_1(y - b): n - 1 records sit at the kink; one record pulls them over it or back
    for n in (20, 200):

        def hypergradient(last, n=n):
            b = np.zeros(n)
            b[-1] = last
            low, high = -5.0, 5.0
            for _ in range(80):
                y = 0.5 * (low + high)
                low, high = (low, y) if y - 2.0 + 0.5 / n + np.clip(y - b, -1, 1).mean() > 0 else (y, high)
            return 1.0 / (1.0 + np.mean(np.abs(0.5 * (low + high) - b) < 1.0))

        assert abs(hypergradient(5.0) - hypergradient(-5.0)) > 0.4
    problem = FAMILIES["huber"]
    with pytest.raises(Refused, match="kink"):
        hypergradient_sensitivity(problem.constants(), problem.counts)


def test_missing_and_wrong_constants():
    with pytest.raises(MissingConstant, match="D_g"):
        inner_shift(Constants(mu_g=1.0), Counts(3))
    with pytest.raises(MissingConstant, match="r_xy"):
        hypergradient_sensitivity(Constants(L_fx=0.0, L_fy=1.0, b_fxy=0.0, mu_g=1.0, L_gy=1.0, b_gxy=1.0), Counts(3))
    for wrong in ({"mu_g": 0.0}, {"L_fx": -1.0}, {"L_fy": math.nan}):
        with pytest.raises(ValueError, match="must be"):
            Constants(**wrong)
    # 0 times infinity is no bound
    c = Constants(L_fx=1.0, L_fy=0.0, mu_g=1.0, D_g=math.inf, D_y=0.0)
    assert range_bound(c, Counts(3), 1.0).value == math.inf
