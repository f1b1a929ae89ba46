"""Lower bounds of epsilon from explicit neighbouring data sets."""

import json
import math

import numpy as np
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

from discretion.audit import Cluster, Record, Witness, audit_pair, witness_epsilon
from discretion.audit.pair import _DataSets, _Family
from discretion.cli import app
from discretion.cli.console import BAD_INPUT, REFUSED
from discretion.gp import Box
from discretion.gp.kernels import RBF, Diagonal, Exponential, ExponentialL1, Matern32
from discretion.posterior import Bounded, Exponential1D
from discretion.posterior.account import posterior_loss
from discretion.posterior.add_remove import add_remove_epsilon, record_profile
from discretion.posterior.certified import certified_epsilon
from discretion.privacy import Neighbours, gaussian_epsilon

LINE = Exponential(0.5)
UNIT = Box((0.0,), (1.0,))
SQUARE = Box((0.0, -1.0), (2.0, 1.0))
ONE_CLUSTER = Witness((Cluster(99, (1.0,), -1.0),), Record((0.0,), 1.0), Record((0.0,), -1.0))
APART = Witness((Cluster(99, (0.25,), -1.0),), Record((0.0,), 1.0), Record((1.0,), 1.0))


def law(kernel, records, test, ridge, scale):
    """Mean and covariance of a path at the test places, from all records one by one."""
    X = np.array([place for place, _ in records]).reshape(-1, test.shape[1])
    y = np.array([response for _, response in records])
    weights = np.linalg.solve(kernel(X) + ridge**2 * np.eye(len(X)), kernel(X, test))
    return weights.T @ y, scale**2 * (kernel(test) - kernel(test, X) @ weights)


def releases(witness, kernel, ridge, scale):
    core = [(cluster.place, cluster.response) for cluster in witness.core for _ in range(cluster.count)]
    record = (witness.record.place, witness.record.response)
    other = [] if witness.other is None else [(witness.other.place, witness.other.response)]
    test = np.unique([record[0]] + [place for place, _ in other], axis=0)
    return law(kernel, [*core, record], test, ridge, scale), law(kernel, core + other, test, ridge, scale)


def hockey_stick(first, second, epsilon):
    """P(E) - e^eps Q(E), E where p > e^eps q, by the trapezoid rule along one axis and normal laws along the other."""
    (m, S), (m2, S2) = first, second
    inverse = np.linalg.inv(np.linalg.cholesky(S))
    l, turn = np.linalg.eigh(inverse @ S2 @ inverse.T)
    d = turn.T @ inverse @ (m2 - m)
    order = np.argsort(np.abs(np.log(l)))
    l, d = l[order], d[order]

    def inner(level):
        """P - Q e^level of one axis: log p - log q - level = A t^2 + B t + C."""
        A, B = 0.5 * (1.0 / l[-1] - 1.0), -d[-1] / l[-1]
        C = 0.5 * np.log(l[-1]) + 0.5 * d[-1] ** 2 / l[-1] - level
        disc = B * B - 4.0 * A * C
        root = np.sqrt(np.maximum(disc, 0.0))
        low, high = np.sort([(-B - root) / (2 * A), (-B + root) / (2 * A)], axis=0)
        wide = np.sqrt(l[-1])
        if A < 0:
            p, q = norm.cdf(high) - norm.cdf(low), norm.cdf(high, d[-1], wide) - norm.cdf(low, d[-1], wide)
            return np.where(disc > 0, p - np.exp(level) * q, 0.0)
        p, q = norm.cdf(low) + norm.sf(high), norm.cdf(low, d[-1], wide) + norm.sf(high, d[-1], wide)
        return np.where(disc > 0, p - np.exp(level) * q, 1.0 - np.exp(level))

    if len(d) == 1:
        return float(inner(np.float64(epsilon)))
    t, step = np.linspace(-9.0, 9.0, 40_001, retstep=True)
    along = norm.logpdf(t) - norm.logpdf(t, d[0], math.sqrt(l[0]))
    return float(np.sum(norm.pdf(t) * inner(epsilon - along)) * step)


# --- epsilon of a given pair ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("witness", "ridge", "scale", "expected"),
    [
        (ONE_CLUSTER, 3.0, 0.2179477291, 2.984093),
        (ONE_CLUSTER, 6.0, 0.05287656382, 3.253998),
        (APART, 1.5, 1.0612, 3.101972),
    ],
)
def test_simple_witnesses_have_their_reference_epsilon(witness, ridge, scale, expected):
    epsilon, direction = witness_epsilon(witness, LINE, ridge=ridge, scale=scale, delta=1e-3)
    assert epsilon == pytest.approx(expected, abs=5.1e-7)
    assert direction == "D against D'"


SPREAD = Witness(
    (Cluster(7, (0.1, 0.4), 1.0), Cluster(12, (1.3, -0.2), -1.0), Cluster(3, (2.0, 1.0), 1.0)),
    Record((0.8, 0.1), 1.0),
    Record((0.5, 0.9), -1.0),
)


@pytest.mark.parametrize(
    ("witness", "kernel", "ridge", "scale", "delta"),
    [
        (APART, LINE, 1.5, 1.0612, 1e-3),
        (APART, Matern32(0.4), 3.0, 0.2, 1e-5),
        (SPREAD, ExponentialL1((0.5, 0.8)), 1.0, 1.0, 1e-3),
        (SPREAD, RBF(0.7), 2.0, 0.5, 1e-2),
        (SPREAD, Exponential((1.0, 0.3)), 0.7, 2.0, 1e-6),
        (Witness(SPREAD.core, SPREAD.record, None), ExponentialL1((0.5, 0.8)), 1.0, 1.0, 1e-3),
        (Witness(APART.core, APART.record, None), LINE, 2.0, 0.3, 1e-4),
        (Witness((), APART.record, None), LINE, 2.0, 1.0, 1e-3),
    ],
)
def test_witness_agrees_with_full_matrices_and_quadrature(witness, kernel, ridge, scale, delta):
    epsilon, direction = witness_epsilon(witness, kernel, ridge=ridge, scale=scale, delta=delta)
    first, second = releases(witness, kernel, ridge, scale)
    values = {
        "D against D'": hockey_stick(first, second, epsilon),
        "D' against D": hockey_stick(second, first, epsilon),
    }
    assert values[direction] == max(values.values())
    # a lower bound, and within 1e-5 of the exact profile
    assert delta * (1.0 - 1e-8) <= values[direction] <= delta * (1.0 + 1e-5)


def test_one_record_present_or_absent_is_the_pair_of_the_add_remove_account():
    datasets, ridge, scale = _DataSets.of(Witness(APART.core, APART.record, None)), 2.0, 0.3
    pair = datasets.pair(LINE, ridge)
    tau = pair.v / ridge**2
    distance = np.abs(pair.residual) * np.sqrt(pair.v) / (scale * (ridge**2 + pair.v))
    epsilon, direction = witness_epsilon(
        Witness(APART.core, APART.record, None), LINE, ridge=ridge, scale=scale, delta=1e-4
    )
    profiles = dict(zip(("D' against D", "D against D'"), record_profile(epsilon, tau, distance), strict=True))
    assert float(max(profiles.values())[0]) == pytest.approx(1e-4, rel=1e-6)
    assert max(profiles, key=lambda each: float(profiles[each][0])) == direction


@pytest.mark.parametrize("paths", [1, 4, 30])
def test_records_at_one_place_are_a_gaussian_pair_for_any_number_of_paths(paths):
    pair = _DataSets.of(ONE_CLUSTER).pair(LINE, 3.0)
    mu = 2.0 * math.sqrt(pair.v[0] / (9.0 + pair.v[0])) / 3.0 / 0.3
    epsilon, _ = witness_epsilon(ONE_CLUSTER, LINE, ridge=3.0, scale=0.3, delta=1e-3, paths=paths)
    exact = float(gaussian_epsilon(mu * math.sqrt(paths), 1e-3))
    assert exact * (1.0 - 1e-4) <= epsilon <= exact * (1.0 + 1e-7)


def test_no_epsilon_is_forced_where_delta_exceeds_the_total_variation():
    assert witness_epsilon(ONE_CLUSTER, LINE, ridge=3.0, scale=1e6, delta=0.5)[0] == 0.0


# --- the search -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "box", "n", "neighbours"),
    [(LINE, UNIT, 100, Neighbours.REPLACE), (RBF((0.3, 0.2)), SQUARE, 7, Neighbours.ADD_REMOVE)],
)
def test_what_the_search_draws_are_data_sets_of_the_family(kernel, box, n, neighbours):
    family = _Family(kernel, box, n - 1, 2.5, neighbours, 3)
    datasets = family.decode(family.draw(np.random.default_rng(0), 500))
    assert np.all(datasets.counts == np.floor(datasets.counts))
    assert np.all(datasets.counts >= 0)
    total = datasets.counts.sum(axis=1)
    assert np.all(total == n - 1) if neighbours is Neighbours.REPLACE else np.all(total <= n - 1)
    if neighbours is Neighbours.ADD_REMOVE:
        assert np.any(total == 0)
        assert np.any(total == n - 1)
    assert np.all(np.abs(datasets.responses) == 2.5)
    assert box.contains(datasets.places.reshape(-1, box.dimension)).all()
    witness = datasets.witness(3, neighbours)
    assert witness.size == 1 + total[3]
    assert witness.neighbours is neighbours


def test_the_search_finds_the_known_pair_on_the_line():
    found = audit_pair(LINE, UNIT, n=100, ridge=3.0, scale=0.2179477291, delta=1e-3, claimed=3.69, rounds=150)
    assert 0.995 * 2.985 <= found.epsilon_lower <= 3.678
    assert found.rigorous
    assert found.complete
    assert not found.refuted
    assert str(found).startswith("claimed 3.6900, cannot be below 2.98")
    again = witness_epsilon(found.witness, LINE, ridge=3.0, scale=0.2179477291, delta=1e-3)
    assert again == (found.epsilon_lower, found.direction)
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_claim_that_is_too_small_is_refuted():
    setting = {"n": 30, "ridge": 2.0, "scale": 0.5, "delta": 1e-3, "rounds": 80}
    wrong = audit_pair(Matern32(0.4), UNIT, claimed=0.5, **setting)
    assert wrong.refuted
    assert "REFUTED" in str(wrong)
    assert audit_pair(Matern32(0.4), UNIT, claimed=math.nan, **setting).refuted
    assert not audit_pair(Matern32(0.4), UNIT, claimed=wrong.epsilon_lower, **setting).refuted


def test_the_search_is_the_same_in_every_run():
    setting = {"n": 20, "ridge": 1.0, "scale": 1.0, "delta": 1e-3, "rounds": 20}
    assert audit_pair(LINE, UNIT, seed=3, **setting) == audit_pair(LINE, UNIT, seed=3, **setting)


def test_a_time_limit_stops_the_search_with_a_lower_bound():
    found = audit_pair(LINE, UNIT, n=20, ridge=1.0, scale=1.0, delta=1e-3, rounds=10**6, time_limit=0.2)
    assert not found.complete
    assert found.epsilon_lower > 0.0


SETTINGS = [
    (LINE, UNIT, 100, 1.5, 1.0612, 1e-3, 1),
    (LINE, UNIT, 100, 6.0, 1.0, 1e-3, 10),
    (LINE, UNIT, 1, 2.0, 0.5, 1e-5, 1),
    (LINE, UNIT, 2, 1.0, 1e5, 1e-3, 1),
    (RBF(0.2), UNIT, 14, 3.0, 0.3, 1e-2, 1),
    (Matern32((0.5, 2.0)), SQUARE, 400, 8.0, 0.14, 1e-3, 1),
    (ExponentialL1((0.5, 2.0)), SQUARE, 50, 4.0, 0.3, 1e-4, 3),
    (Diagonal(), UNIT, 50, 2.0, 0.5, 1e-3, 1),
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_certified_epsilon_is_below_the_lower_bound(setting):
    kernel, box, n, ridge, scale, delta, paths = setting
    found = audit_pair(kernel, box, n=n, ridge=ridge, scale=scale, delta=delta, paths=paths, rounds=60)
    assumption = Exponential1D(1.0) if kernel is LINE else Bounded(1.0)
    account = {"n": n, "ridge": ridge, "scale": scale, "assumption": assumption, "paths": paths}
    account["least_kernel"] = kernel.least_value(box)
    published = posterior_loss(**account).epsilon(delta)
    certified = certified_epsilon(delta=delta, tolerance=1e-2, **account)
    assert 0.0 < found.epsilon_lower <= min(published, certified)


@pytest.mark.parametrize("paths", [1, 4])
@pytest.mark.parametrize("n", [1, 5, 100])
def test_no_add_remove_epsilon_is_below_the_lower_bound(n, paths):
    account = {"ridge": 1.5, "scale": 1.0, "delta": 1e-3, "paths": paths}
    found = audit_pair(LINE, UNIT, n=n, neighbours=Neighbours.ADD_REMOVE, rounds=60, **account)
    claimed = add_remove_epsilon(assumption=Exponential1D(1.0), most_records=n, **account)
    assert found.epsilon_lower <= claimed
    if paths == 1:  # that account is exact up to the bound of the core's mean
        assert found.epsilon_lower >= 0.9 * claimed
    assert found.witness.size <= n


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"n": 0}, "n must"),
        ({"ridge": -1.0}, "ridge"),
        ({"paths": 1.5}, "paths"),
        ({"clusters": 0}, "clusters"),
        ({"neighbours": "replace-response"}, "replace and add-remove"),
        ({"kernel": RBF((1.0, 1.0))}, "length scales"),
    ],
)
def test_parameters_out_of_range_are_refused(wrong, words):
    setting = {"kernel": LINE, "domain": UNIT, "n": 5, "ridge": 1.0, "scale": 1.0, "delta": 1e-3, "rounds": 1}
    with pytest.raises(ValueError, match=words):
        audit_pair(**(setting | wrong))


# --- the command ----------------------------------------------------------------------------------

COMMAND = "audit pair --n 30 --ridge 3 --scale 0.3 --delta 1e-3 --kernel exponential --length-scale 0.5 --domain 0:1"


def test_the_command_sets_the_lower_bound_beside_the_claim():
    result = CliRunner().invoke(app, COMMAND.split())
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("claimed ")
    assert "cannot be below" in result.stdout
    assert "Witness: " in result.stdout
    assert "becomes" in result.stdout


def test_the_command_refutes_a_claim_and_prints_json():
    result = CliRunner().invoke(app, [*COMMAND.split(), "--claimed", "0.5", "--seconds", "1", "--json"])
    assert result.exit_code == REFUSED
    said = json.loads(result.stdout)
    assert said["refuted"]
    assert said["epsilon_lower"] > 0.5
    assert set(said) >= {"epsilon_lower", "witness", "direction", "claimed", "delta", "neighbours"}


def test_the_command_says_what_is_wrong():
    result = CliRunner().invoke(app, [*COMMAND.split(), "--length-scale", "1,2"])
    assert result.exit_code == BAD_INPUT
    assert "length scales" in result.stderr
