"""One call attacks a mechanism of any wing: two data sets, and what the attacker looks at."""

import numpy as np
import pytest

from discretion.audit import MechanismGame, repeated
from discretion.bilevel.domains import Grid
from discretion.bilevel.exponential import ExponentialMechanism
from discretion.bilevel.families import QuadraticMean
from discretion.gp import Box, Exponential
from discretion.posterior import PosteriorMechanism
from discretion.posterior.records import Records
from discretion.privacy import SeededRandomness
from discretion.selection import NegativeBinomial, PublicScore, SelectionMechanism
from discretion.selection.linear import RidgeMechanism

DELTA = 0.01


def regression():
    """Ridge regression: one response goes from one end to the other."""
    mechanism = RidgeMechanism(
        dimension=1,
        feature_bound=1.0,
        alpha=1.0,
        delta=DELTA,
        response_range=(-1.0, 1.0),
        mu=1.5,
        intercept=False,
    )
    X, y = np.full((3, 1), 0.2), np.zeros(3)
    X[0], y[0] = 1.0, 1.0
    other = Records(X, np.array([-1.0, 0.0, 0.0]))
    return mechanism, Records(X, y), other, lambda release: release.coefficients


def choice():
    """A private choice among five points: the mean of records at one end or the other."""
    problem, grid = QuadraticMean(records=2, dimension=1), Grid.of(np.linspace(-1, 1, 5))
    mechanism = ExponentialMechanism(problem=problem, epsilon=3.0, grid=grid, value_share=1e-9)
    records = np.ones((2, 1))
    return mechanism, records, np.array([[1.0], [-1.0]]), lambda chosen: chosen.x


def search():
    """The best of a random number of posterior paths, by their value at one place."""
    path = PosteriorMechanism(Exponential(0.3), Box((0.0,), (1.0,)), (-1.0, 1.0), 3.0, 0.3, np.array([[0.5]]), 1e-4)
    score = PublicScore(lambda release: float(release.values[0, 0]), "the value")
    mechanism = SelectionMechanism((path,), score, NegativeBinomial.of_mean(2.0, 2.0), 1e-3)
    X = np.full((5, 1), 0.5)
    y = np.array([-1.0, -1.0, -1.0, -1.0, 1.0])
    return mechanism, Records(X, y), Records(X, np.full(5, -1.0)), lambda found: [found.winner.values[0, 0]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "shadows", "trials"), [(regression, 300, 1_500), (choice, 300, 2_000), (search, 12, 40)]
)
def test_a_claim_holds(make, shadows, trials):
    mechanism, included, excluded, feature = make()
    claimed = mechanism.privacy_loss(len(getattr(included, "response", included))).epsilon(DELTA)
    game = MechanismGame(mechanism, included, excluded, feature, SeededRandomness)
    found = repeated(game, shadows=shadows, trials=trials, delta=DELTA, claimed=claimed)
    assert not found.refuted
    assert found.auc > 0.55
    assert found.epsilon_lower > 0.1 * claimed or make is search  # a run of a search takes long, so it has few
