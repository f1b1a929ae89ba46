"""Implicit differentiation against closed forms, differences, and solvers that lie."""

import copy
import math
import tracemalloc

import numpy as np
import pytest

from discretion.bilevel.certified import certified_inner
from discretion.bilevel.constants import Constants
from discretion.bilevel.counts import SplitRecords
from discretion.bilevel.families import LogisticPenalty, RidgePenalty, Table
from discretion.bilevel.first_order import gradient_descent, lbfgs
from discretion.bilevel.hypergradient import hypergradient, implicit_gradient, neumann
from discretion.bilevel.losses import Problem
from discretion.bilevel.sensitivity import hypergradient_error, penalty_bias, smoothness
from discretion.bilevel.solvers import InnerNotCertified, InnerSolution, conjugate_gradients, newton
from discretion.gp import Ball, Box

TWIST = 4 / (3 * math.sqrt(3))
MU = 0.7


def unit_rows(rng, n, d):
    A = rng.normal(size=(n, d))
    return A / np.linalg.norm(A, axis=1, keepdims=True)


# --- Linear solves ---


@pytest.mark.parametrize("kappa", [1.0, 3.0, 1e4])
def test_linear_solves_reach_their_residual(kappa):
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    H = (Q * np.linspace(1.0 / kappa, 1.0, 30)) @ Q.T
    b = rng.normal(size=30)
    exact = np.linalg.solve(H, b)
    for v in (
        conjugate_gradients(lambda v: H @ v, b, 1e-9),
        neumann(lambda v: H @ v, b, 1e-9, 1.0 / kappa, 1.0),
    ):
        assert np.linalg.norm(H @ v - b) <= 1e-9
        assert np.linalg.norm(v - exact) <= 1e-9 * kappa * 1.001
    assert not neumann(lambda v: H @ v, 0 * b, 1e-9, 1.0 / kappa, 1.0).any()


def test_neumann_with_wrong_constants_does_not_certify():
    H = np.diag([1.0, 1e-6])
    v = neumann(lambda v: H @ v, np.ones(2), 1e-9, 0.5, 1.0)
    assert np.linalg.norm(H @ v - 1.0) > 1e-3


# --- Against closed forms ---


@pytest.fixture(scope="module")
def ridge():
    rng = np.random.default_rng(1)
    problem = RidgePenalty(training=40, validation=30, dimension=6, penalties=(0.01, 10.0), candidates=None)
    tables = [Table(unit_rows(rng, n, 6), rng.uniform(-1, 1, n)) for n in (40, 30)]
    return problem, SplitRecords(*tables)


@pytest.mark.parametrize("linear", ["cg", "neumann", "dense"])
def test_ridge_hypergradient_is_the_closed_form(ridge, linear):
    problem, records = ridge
    (A, b), (V, c) = ((t.features, t.labels) for t in (records.training, records.validation))
    for x in (-3.0, 0.0, 2.0):
        lam = math.exp(x)
        H = A.T @ A / 40 + lam * np.eye(6)
        y = np.linalg.solve(H, A.T @ b / 40)
        exact = -lam * y @ np.linalg.solve(H, V.T @ (V @ y - c) / 30)
        assert hypergradient(problem, x, records, linear=linear)[0] == pytest.approx(exact, rel=1e-9)


def test_autograd_and_conjugate_gradients_are_the_dense_closed_form(ridge):
    jnp = pytest.importorskip("jax.numpy")
    from discretion.bilevel.backends import JaxBackend

    problem, records = ridge
    by_hand = problem.ingest(records)

    def f(x, y, z):
        return 0.5 * (z[0] @ y - z[1]) ** 2

    given = Problem(outer=f, inner=f, backend=JaxBackend(), x_domain=problem.x_domain, counts=problem.counts,
                    y_init=np.zeros(6), layout="split", inner_reg=lambda x, y: 0.5 * jnp.exp(x[0]) * y @ y)  # fmt: skip
    raw = SplitRecords(*((part.A, part.b) for part in (by_hand.training, by_hand.validation)))
    for x in (-3.0, 0.0, 2.0):
        expected = hypergradient(problem, x, records, linear="dense")
        np.testing.assert_allclose(hypergradient(given, x, raw), expected, rtol=1e-9)


def test_scalar_inner_variable_and_differences():
    jnp = pytest.importorskip("jax.numpy")
    from discretion.bilevel.backends import JaxBackend

    problem = Problem(
        outer=lambda x, y, z: jnp.log(jnp.cosh(y[0] - z)) + 0.1 * x[0] * y[0],
        inner=lambda x, y, z: jnp.log(jnp.cosh(y[0] * z - x[0])),
        inner_reg=lambda x, y: 0.25 * (y[0] - jnp.sin(x[1])) ** 2,
        backend=JaxBackend(), x_domain=Box((-2, -2), (2, 2)), counts=9, y_init=0.0,
    )  # fmt: skip
    records = np.linspace(-2, 3, 9)
    x = np.array([0.4, -0.7])
    found, h = hypergradient(problem, x, records), 1e-4

    def value(x):
        held = problem.ingest(records)
        return problem.outer_value(x, problem.certified(x, held, 1e-13), held)

    numeric = [(value(x + h * e) - value(x - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(found, numeric, rtol=1e-5)
    for solver in (newton, lbfgs):
        y = certified_inner(problem, x, problem.ingest(records), 1e-12, None, solver)
        np.testing.assert_allclose(implicit_gradient(problem, x, y, problem.ingest(records), 1e-12, "cg"), found)


# --- Certificates ---


def test_first_order_solvers_certify(ridge):
    problem, records = ridge
    held = problem.ingest(records)
    for x in (np.array([-2.0]), np.array([1.0])):
        exact = problem.certified(x, held, 1e-11)
        for solver in (lbfgs, gradient_descent, newton):
            y = certified_inner(problem, x, held, 1e-9, None, solver)
            assert np.linalg.norm(y - exact) <= 1.1e-9 / problem.constants(x).get("mu_g")


def test_gradient_descent_stops_where_constants_are_wrong():
    H = np.diag([1.0, 1e-4])

    class Wrong:
        def constants(self, x):
            return Constants(mu_g=0.5, b_gyy=1.0, L_gy=1.0)

        def inner_gradient(self, x, y, records):
            return H @ y

    found = gradient_descent(Wrong(), np.zeros(1), None, 1e-8, np.ones(2))
    assert not found.certified
    assert found.gradient_norm > 1e-5


def test_solvers_are_not_believed(ridge):
    problem, records = ridge
    held = problem.ingest(records)

    def liar(problem, x, records, tolerance, start):
        return InnerSolution(start + 1.0, 0.0, True)

    with pytest.raises(InnerNotCertified, match="solver"):
        certified_inner(problem, np.zeros(1), held, 1e-6, np.zeros(6), liar)

    def nan(problem, x, records, tolerance, start):
        return InnerSolution(start * np.nan, 0.0, True)

    with pytest.raises(InnerNotCertified):
        certified_inner(problem, np.zeros(1), held, 1e-6, np.zeros(6), nan)


def within(problem, domain):
    one = copy.copy(problem)
    object.__setattr__(one, "inner_domain", domain)
    return one


def test_answers_outside_the_inner_domain_are_projected_and_checked_there(ridge):
    problem, records = ridge
    held, x = problem.ingest(records), np.array([0.5])
    exact = problem.certified(x, held, 1e-12)
    edge = Ball(tuple(np.zeros(6)), float(np.linalg.norm(exact)))
    outward = exact / np.linalg.norm(exact)
    calls = []

    def outside(problem, x, records, tolerance, start):
        calls.append(tolerance)
        mu = problem.constants(x).get("mu_g")
        return InnerSolution(exact + 0.5 * tolerance * outward / (mu + 1), 0.0, True)

    y = certified_inner(within(problem, edge), x, held, 1e-6, np.zeros(6), outside)
    assert np.linalg.norm(y) <= edge.radius * (1 + 1e-15)
    with pytest.raises(InnerNotCertified):
        certified_inner(within(problem, Ball((10.0, *(0.0,) * 5), 1.0)), x, held, 1e-6, np.zeros(6))


def test_memory_of_conjugate_gradients_is_linear():
    peaks = []
    for d in (2000, 20000):
        H = np.linspace(1.0, 9.0, d)
        tracemalloc.start()
        conjugate_gradients(lambda v, H=H: H * v, np.ones(d), 1e-9)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 12 * peaks[0]
    assert peaks[1] < 20 * 8 * 20000


def test_logistic_by_conjugate_gradients_and_dense():
    rng = np.random.default_rng(4)
    problem = LogisticPenalty(training=50, validation=40, dimension=5, penalties=(0.05, 5.0), candidates=None)
    records = SplitRecords(*(Table(unit_rows(rng, n, 5), rng.choice([-1.0, 1.0], n)) for n in (50, 40)))
    ways = [hypergradient(problem, -1.0, records, linear=linear) for linear in ("cg", "neumann", "dense")]
    np.testing.assert_allclose(ways[0], ways[2], rtol=1e-9)
    np.testing.assert_allclose(ways[1], ways[2], rtol=1e-9)


# --- C, b_Phi and the bias of the penalty method, in several dimensions ---

D_X, D_Y, N = 2, 3, 5
SEVERAL = Constants(
    L_fx=1.0, L_fy=1.0, b_fxx=1.0, b_fxy=1.0, b_fyy=1.0, mu_g=MU, L_gy=2.0, b_gxy=1.0, b_gyy=MU + 1.0,
    r_xy=TWIST, r_yy=TWIST, r_xy_x=TWIST, r_yy_x=TWIST, D_g=2.0, D_gxy=2.0, D_gyy=1.0, D_y=1 / MU,
)  # fmt: skip


class LogCosh:
    """f = log cosh(p'y + q'x - a), g = mu |y|^2/2 + log cosh(u'y - v'x - e), |p|, |q|, |u|, |v| <= 1."""

    def __init__(self, rng, trial):
        vectors = [unit_rows(rng, N, d) for d in (D_Y, D_X, D_Y, D_X)]
        if trial % 2:  # all along one line
            vectors = [np.tile(each[:1], (N, 1)) * rng.choice([-1.0, 1.0], (N, 1)) for each in vectors]
        if trial % 4 == 3:
            vectors = [np.tile(each[:1], (N, 1)) for each in vectors]
        self.p, self.q, self.u, self.v = vectors
        self.a, self.e = rng.uniform(-1, 1, (2, N)) * (trial % 3)

    def slope(self, x, y, p=0.0):
        inner = MU * y + self.u.T @ np.tanh(self.u @ y - self.v @ x - self.e) / N
        return inner + p * self.p.T @ np.tanh(self.p @ y + self.q @ x - self.a) / N

    def solve(self, x, p=0.0):
        y = np.zeros(D_Y)
        for _ in range(60):
            H = MU * np.eye(D_Y) + self.curved(self.u, 1 - np.tanh(self.u @ y - self.v @ x - self.e) ** 2)
            H = H + p * self.curved(self.p, 1 - np.tanh(self.p @ y + self.q @ x - self.a) ** 2)
            step = np.linalg.solve(H, self.slope(x, y, p))
            before = np.linalg.norm(self.slope(x, y, p))
            while np.linalg.norm(self.slope(x, y - step, p)) > before and before > 1e-14:
                step = 0.5 * step
            y = y - step
            if before < 1e-14:
                break
        return y

    @staticmethod
    def curved(U, weights):
        return (U * weights[:, None]).T @ U / N

    def gradient(self, x, y, residual=None):
        t = np.tanh(self.p @ y + self.q @ x - self.a)
        s = 1 - np.tanh(self.u @ y - self.v @ x - self.e) ** 2
        H = MU * np.eye(D_Y) + self.curved(self.u, s)
        M = -(self.v * s[:, None]).T @ self.u / N
        b = self.p.T @ t / N
        v = np.linalg.solve(H, b if residual is None else b + residual)
        return self.q.T @ t / N - M @ v

    def inner_x(self, x, y):
        return -self.v.T @ np.tanh(self.u @ y - self.v @ x - self.e) / N


@pytest.mark.parametrize("trials", [200, pytest.param(1500, marks=pytest.mark.slow)])
def test_error_smoothness_and_penalty_bias_in_several_dimensions(trials):
    rng = np.random.default_rng(8)
    largest = np.zeros(4)
    for trial in range(trials):
        one = LogCosh(rng, trial)
        x = rng.uniform(-1.5, 1.5, D_X)
        y = one.solve(x)
        exact = one.gradient(x, y)
        away, residual = rng.normal(size=(2, D_Y))
        alpha, tau = 10.0 ** rng.uniform(-4, -0.5, 2)
        off = one.gradient(x, y + alpha * away / np.linalg.norm(away), tau * residual / np.linalg.norm(residual))
        ratios = [np.linalg.norm(off - exact) / hypergradient_error(SEVERAL, alpha, tau)]
        step = x + 10.0 ** rng.uniform(-3, 0.3) * rng.normal(size=D_X)
        turned = np.linalg.norm(one.gradient(step, one.solve(step)) - exact)
        ratios.append(turned / np.linalg.norm(step - x) / smoothness(SEVERAL))
        for weight in (2.0, 20.0):
            z = one.solve(x, 1.0 / weight)
            t = np.tanh(one.p @ z + one.q @ x - one.a)
            q = one.q.T @ t / N + weight * (one.inner_x(x, z) - one.inner_x(x, y))
            ratios.append(np.linalg.norm(q - exact) / penalty_bias(SEVERAL, weight))
        largest = np.maximum(largest, ratios)
    assert largest.max() <= 1 + 1e-9
    assert largest.min() > 0.05
