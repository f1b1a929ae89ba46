"""The contract between problems and mechanisms, with a back end of closed forms."""

from dataclasses import dataclass

import numpy as np
import pytest

from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.counts import Counts, Layout, SplitRecords
from discretion.bilevel.domains import Grid
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.families import QuadraticMean
from discretion.bilevel.losses import Problem
from discretion.bilevel.solvers import InnerNotCertified, InnerSolution, conjugate_gradients, newton
from discretion.gp import Ball, Box
from discretion.privacy import PublicError, SystemRandomness


@dataclass(frozen=True)
class Closed:
    """Means of f = |y - z|^2 / 2 and g = sum of log cosh(3 (y - z)) / 9 + x'Qy, and (mu/2) |y|^2, by hand."""

    mu: float
    Q: np.ndarray

    def outer_value(self, x, y, Z):
        return float(np.mean(0.5 * np.sum((y - Z) ** 2, axis=1)))

    def outer_gradients(self, x, y, Z):
        return np.zeros(len(x)), np.mean(y - Z, axis=0)

    def inner_value(self, x, y, Z):
        return float(np.mean(np.sum(np.log(np.cosh(3 * (y - Z))), axis=1)) / 9 + x @ self.Q @ y + self.mu / 2 * y @ y)

    def inner_gradient(self, x, y, Z):
        return np.mean(np.tanh(3 * (y - Z)), axis=0) / 3 + self.Q.T @ x + self.mu * y

    def inner_hvp(self, x, y, v, Z):
        return np.mean(1 - np.tanh(3 * (y - Z)) ** 2, axis=0) * v + self.mu * v

    def inner_cross(self, x, y, v, Z):
        return self.Q @ v

    def solve(self, x, y, b, Z, tolerance):
        v = conjugate_gradients(lambda v: self.inner_hvp(x, y, v, Z), b, tolerance)
        return v, self.inner_hvp(x, y, v, Z)


class Hand:
    """A back end that makes `Closed`, whatever the losses are."""

    name = "by hand"

    def __init__(self, dx, dy, mu=0.2):
        self.closed = Closed(mu, np.random.default_rng(0).normal(size=(dx, dy)) / 2)

    def derivatives(self, outer, inner, inner_reg, counts):
        return self.closed

    def count(self, records):
        return len(records)

    def place(self, records):
        return records


def problem(dx=2, dy=3, n=20, **options):
    defaults = {"x_domain": Box((-1.0,) * dx, (1.0,) * dx), "counts": n, "y_init": np.zeros(dy)}
    return Problem(outer=abs, inner=abs, backend=Hand(dx, dy), **defaults | options)


def data(n=20, dy=3, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, (n, dy))


@pytest.mark.parametrize(("dx", "dy"), [(1, 1), (2, 3), (3, 1)])
def test_hypergradient_against_central_differences(dx, dy):
    """A scalar inner variable is as good as any."""
    one = problem(dx, dy)
    records = one.ingest(data(dy=dy))
    x = np.linspace(-0.5, 0.7, dx)
    y = one.certified(x, records, 1e-12)
    gradient, residual = one.hypergradient(x, y, records)
    numeric = []
    for step in 1e-5 * np.eye(dx):
        ends = [one.outer_value(p, one.certified(p, records, 1e-13), records) for p in (x + step, x - step)]
        numeric.append((ends[0] - ends[1]) / 2e-5)
    assert np.allclose(gradient, numeric, rtol=1e-6, atol=1e-9)
    assert residual < 1e-12


def test_newton_is_certified_from_far_away():
    one = problem()
    for start in (np.zeros(3), np.full(3, 1e3), np.array([-50.0, 80.0, 1e-3])):
        found = newton(one, np.zeros(2), data(), 1e-12, start)
        assert found.certified
        assert np.linalg.norm(one.inner_gradient(np.zeros(2), found.y, data())) <= 1e-12


def test_what_the_solver_says_is_checked():
    def lazy(problem, x, records, tolerance, start):
        return InnerSolution(start, 0.5, False)

    one = problem(solver=lazy)
    with pytest.raises(InnerNotCertified) as caught:
        one.certified(np.zeros(2), data(), 1e-6)
    assert not any(character.isdigit() for character in str(caught.value))


def test_conjugate_gradients():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(30, 30))
    A = root @ root.T + 0.1 * np.eye(30)
    b = rng.normal(size=30)
    assert np.linalg.norm(A @ conjugate_gradients(lambda p: A @ p, b, 1e-9) - b) <= 1e-9
    assert np.linalg.norm(A @ conjugate_gradients(lambda p: A @ p, b, 1e-9, most=2) - b) > 1e-3
    assert not conjugate_gradients(lambda p: A @ p, np.zeros(30), 0.0).any()


def test_exponential_mechanism_with_declared_constants():
    # |z| <= sqrt 3, Y in a ball of radius 4: L_fy <= 6, D_g = 2 sqrt(3)/3, B_f <= 17
    c = Constants(L_fx=0.0, L_fy=6.0, mu_g=0.2, b_gxy=1.5, D_g=1.2, D_y=8.0, B_f=17.0)
    one = problem(declared=c, n=4000, inner_domain="everywhere")
    mechanism = ExponentialMechanism(problem=one, epsilon=1.0, grid=Grid.of([[0.0, 0.0], [1.0, -1.0], [0.5, 0.5]]))
    choice = mechanism.run(data(4000), SystemRandomness())
    assert "answers for" in choice.report().text()
    assert any("constants hold" in words for words in choice.certificate.declared)
    with pytest.raises(MissingConstant, match="No constants"):
        ExponentialMechanism(problem=problem(inner_domain="everywhere"), epsilon=1.0)
    at = {"declared_at": lambda x: Constants(**{**c.known(), "mu_g": 0.2 + abs(x[0])}), "inner_domain": "everywhere"}
    local = problem(n=4000, declared=c, **at)
    changes = ExponentialMechanism(problem=local, epsilon=1.0, grid=mechanism.grid).plan.changes
    assert changes[0] > changes[2] > changes[1]


def test_counts_and_layouts():
    with pytest.raises(ValueError, match="split layout"):
        problem(layout="split")
    split = problem(layout="split", counts=Counts(20, 10))
    assert split.counts.total == 30
    with pytest.raises(PublicError, match="SplitRecords"):
        split.ingest(data())
    with pytest.raises(PublicError, match="not 10"):
        split.ingest(SplitRecords(data(20), data(11)))
    with pytest.raises(PublicError, match="more records"):
        problem(neighbours="add-remove").ingest(data(21))
    assert len(problem(neighbours="add-remove").ingest(data(7))) == 7
    with pytest.raises(ValueError, match="at least 1"):
        Counts(0)
    alone = problem(layout=Layout.SEPARABLE, declared=Constants(L_fy=1.0, mu_g=1.0), inner_domain="everywhere")
    with pytest.raises(Refused, match="of its own"):
        ExponentialMechanism(problem=alone, epsilon=1.0)


def test_numbers_and_relations_without_an_account_are_refused():
    for wrong in (2.5, 3.0, 0, True, "3", float("nan")):
        with pytest.raises(ValueError, match="whole number"):
            Counts(wrong)
    with pytest.raises(ValueError, match="have an account"):
        problem(neighbours="replace-response")
    with pytest.raises(ValueError, match="have an account"):
        QuadraticMean(records=5, dimension=1, neighbours="replace-response")
    with pytest.raises(ValueError, match="whole number"):
        QuadraticMean(records=5, dimension=1.5)


def test_grids():
    grid = Grid.of([0.0, 1.0, 4.0])
    assert grid.dimension == 1
    assert grid.diameter() == pytest.approx(4.0)
    assert grid.contains([[1.0], [2.0]]).tolist() == [True, False]
    assert grid.clamp([[1.4], [9.0]]).ravel().tolist() == [1.0, 4.0]
    for wrong in ([], [[0.0], [0.0]], [[np.nan]]):
        with pytest.raises(ValueError, match="grid"):
            Grid.of(wrong)
    many = Grid.of(np.random.default_rng(1).normal(size=(2500, 2)))
    apart = many.array[:, None] - many.array
    assert many.diameter() >= np.sqrt((apart**2).sum(axis=2)).max()
    assert Ball((0.0,), 1.0).diameter() == pytest.approx(2.0)
