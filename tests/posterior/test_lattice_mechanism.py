import json
import math
import pickle

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from discretion.gp import RBF, Box
from discretion.gp.lattice import Lattice
from discretion.posterior.lattice_mechanism import LatticeMechanism
from discretion.posterior.records import Records
from discretion.posterior.sampler import PosteriorSampler
from discretion.privacy import Ledger, Mechanism, Neighbours, PublicError, SeededRandomness
from discretion.privacy.calibration import Unreachable

BOX = Box((0.0, 0.0), (6.0, 5.0))
LATTICE = Lattice.hexagon(1.0, BOX, 0.3)


def made(n: int = 300, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return Records(rng.uniform(0.0, 5.0, (n, 2)), rng.uniform(1.0, 3.0, n))


def mechanism(**changes) -> LatticeMechanism:
    parameters = {
        "lattice": LATTICE,
        "response_range": (1.0, 3.0),
        "ridge": 4.0,
        "scale": 0.3,
        "delta": 1e-4,
        "rule": "closed-form",
    }
    return LatticeMechanism(**(parameters | changes))


def test_it_is_a_mechanism_whose_parameters_json_can_write():
    run = mechanism()
    assert isinstance(run, Mechanism)
    written = json.loads(json.dumps(run.parameters()))
    assert written["graph"] == "hexagon"
    assert written["nodes"] == LATTICE.size


def test_the_released_paths_have_the_law_of_the_posterior():
    records, run = made(), mechanism(paths=4000)
    values = run.run(records, SeededRandomness(1)).values
    node = LATTICE.node(records.covariates)
    Sigma, _ = LATTICE.covariance
    K = Sigma[np.ix_(node, node)] + 16.0 * np.eye(300)
    gain = np.linalg.solve(K, Sigma[node]).T
    mean, C = 2.0 + gain @ (records.response - 2.0), Sigma - gain @ Sigma[node]
    whitened = np.linalg.solve(np.linalg.cholesky(C), (values - mean).T) / 0.3
    assert stats.kstest(whitened.ravel(), "norm").pvalue > 1e-3
    np.testing.assert_allclose(np.cov(whitened), np.eye(LATTICE.size), atol=0.12)


def test_values_are_multiples_of_a_public_power_of_two_well_below_every_noise():
    records, run = made(), mechanism()
    release, spacing = run.run(records, SeededRandomness(0)), run.spacing(300)
    assert math.frexp(spacing)[0] == 0.5
    np.testing.assert_array_equal(release.values, np.round(release.values / spacing) * spacing)
    A = LATTICE.precision.toarray() + np.diag(np.eye(LATTICE.size)[3] * 300 / 16.0)
    assert spacing <= 0.3 / math.sqrt(np.linalg.eigvalsh(A)[-1]) / 64.0


def test_no_direction_is_without_noise_and_rounding_is_a_small_part_of_it():
    # the attack of the clipped eigenvectors needs a direction whose noise drowns in rounding
    records, run = made(), mechanism()
    held = run.statistics(records)
    C = np.linalg.inv(LATTICE.precision.toarray() + np.diag(held.counts / 16.0))
    assert np.linalg.eigvalsh(C)[0] > 1e-3
    mean, _ = held.posterior(LATTICE, 4.0)
    exact = C @ (held.sums / 16.0)
    off = np.linalg.norm(np.linalg.solve(np.linalg.cholesky(C), mean - exact)) / 0.3
    assert off <= run.rounding(300) < 1e-6


def test_sums_do_not_depend_on_the_order_of_the_records():
    records, run = made(5000), mechanism()
    order = np.random.default_rng(1).permutation(5000)
    held, again = (
        run.statistics(each) for each in (records, Records(records.covariates[order], records.response[order]))
    )
    np.testing.assert_array_equal(held.sums, again.sums)
    assert np.abs(held.sums).max() <= held.counts.max()


def test_responses_are_clipped_and_places_outside_go_to_the_border():
    wild = Records(np.array([[-100.0, -100.0], [2.0, 2.0]]), np.array([1e6, -1e6]))
    tame = Records(np.array([[0.0, 0.0], [2.0, 2.0]]), np.array([3.0, 1.0]))
    for name in ("counts", "sums"):
        np.testing.assert_array_equal(*(getattr(mechanism().statistics(each), name) for each in (wild, tame)))


def test_the_price_is_known_in_advance_and_is_the_one_in_the_certificate():
    run, records = mechanism(rule="renyi"), made()
    certificate = run.run(records, SeededRandomness(0)).certificate
    assert certificate.epsilon == run.privacy_loss(300).epsilon(1e-4)
    assert certificate.epsilon < mechanism().privacy_loss(300).epsilon(1e-4)
    assert certificate.n == 300
    with pytest.raises(ValueError, match="public here"):
        run.privacy_loss()


@pytest.mark.parametrize("rule", ["renyi", "closed-form"])
def test_the_calibrated_scale_meets_the_target_closely(rule):
    run = LatticeMechanism.calibrated(
        n=300, epsilon=2.0, delta=1e-4, lattice=LATTICE, response_range=(1.0, 3.0), ridge=4.0, rule=rule
    )
    assert 1.98 <= run.privacy_loss(300).epsilon(1e-4) <= 2.0


def test_add_remove_knows_no_number_of_records():
    run = mechanism(neighbours="add-remove", most_records=1000)
    assert run.neighbours is Neighbours.ADD_REMOVE
    release = run.run(made(200), SeededRandomness(0))
    assert release.certificate.n is None
    assert release.certificate.epsilon == run.privacy_loss().epsilon(1e-4)
    empty = run.run(Records(np.empty((0, 2)), np.empty(0)), SeededRandomness(0))
    assert empty.values.shape == release.values.shape
    with pytest.raises(PublicError, match="more than 1,000"):
        run.check(made(1001))


@pytest.mark.slow
def test_the_calibrated_scale_meets_the_target_closely_under_add_remove():
    run = LatticeMechanism.calibrated(
        epsilon=2.0,
        delta=1e-4,
        lattice=LATTICE,
        response_range=(1.0, 3.0),
        ridge=4.0,
        neighbours="add-remove",
        most_records=1000,
    )
    assert 1.98 <= run.privacy_loss().epsilon(1e-4) <= 2.0


def test_several_contributions_cost_more_and_are_checked():
    one, two = mechanism(), mechanism(contributions=2)
    assert two.privacy_loss(300).epsilon(1e-4) > one.privacy_loss(300).epsilon(1e-4)
    records = made(4)
    with pytest.raises(PublicError, match="A unit has more than 1"):
        one.check(Records(records.covariates, records.response, np.array([1, 1, 2, 3])))
    assert two.check(Records(records.covariates, records.response, np.array([1, 1, 2, 3]))) == 4


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"ridge": 0.0}, "ridge"),
        ({"scale": math.nan}, "scale"),
        ({"delta": 1.0}, "delta"),
        ({"paths": 0}, "paths"),
        ({"response_range": (1.0, 1.0)}, "response_range"),
        ({"centre": 5.0}, "centre"),
        ({"rule": "guess"}, "rule"),
        ({"neighbours": "replace-response"}, "account"),
        ({"most_records": 10**9}, "most_records"),
        ({"unit": " "}, "unit"),
    ],
)
def test_parameters_out_of_range_are_refused(changes, word):
    with pytest.raises(ValueError, match=word):
        mechanism(**changes)


def test_records_that_are_not_finite_are_named_by_row_only():
    with pytest.raises(PublicError, match="rows 1") as caught:
        mechanism().check(Records(np.array([[1.25, 1.0], [np.nan, 1.0]]), np.array([1.0, 2.0])))
    assert "1.25" not in str(caught.value)


@pytest.mark.parametrize("rule", ["renyi", "closed-form"])
def test_a_target_below_the_cost_of_the_covariance_is_unreachable(rule):
    with pytest.raises(Unreachable, match="covariance alone"):
        LatticeMechanism.calibrated(
            n=300, epsilon=0.05, delta=1e-4, lattice=LATTICE, response_range=(1.0, 3.0), ridge=1.0, rule=rule
        )


def test_what_a_release_tells_of_excursions_and_values():
    release = mechanism(paths=40).run(made(), SeededRandomness(2))
    share, low, high = release.exceedance(2.0)
    np.testing.assert_array_equal(share, release.excursion(2.0).mean(axis=0))
    assert ((low <= share) & (share <= high)).all()
    count = int(40 * share[0])
    interval = stats.binomtest(count, 40).proportion_ci(0.95, "exact")
    assert (low[0], high[0]) == pytest.approx((interval.low, interval.high))
    np.testing.assert_allclose(release.rescaled(2.0) - 2.0, 2.0 * (release.values - 2.0))


def test_smoothing_is_the_mean_of_a_node_and_its_neighbours():
    release = mechanism().run(made(), SeededRandomness(2))
    node = int(LATTICE.node(np.array([[3.0, 2.5]]))[0])
    around = LATTICE.precision[[node]].indices
    assert len(around) == 7
    assert release.smoothed(1)[0, node] == pytest.approx(release.values[0, around].mean())
    np.testing.assert_array_equal(release.smoothed(0), release.values)


def test_the_estimator_forgets_predicts_and_pickles():
    records = made()
    model = PosteriorSampler(
        prior=LATTICE,
        response_range=(1.0, 3.0),
        ridge=4.0,
        epsilon=3.0,
        rule="closed-form",
        randomness=SeededRandomness(0),
    )
    model.fit(records.covariates, records.response)
    assert model.release_.certificate.epsilon <= 3.0
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(records.covariates), model.predict(records.covariates))
    np.testing.assert_array_equal(
        model.predict(records.covariates), model.release_.values[0, LATTICE.node(records.covariates)]
    )
    assert records.response.tobytes() not in pickle.dumps(model)


def test_a_ledger_is_charged_for_the_release(tmp_path):
    records, run = made(), mechanism()
    book = Ledger.create(tmp_path / "ledger.db", dataset="sales", epsilon=50.0, delta=1e-3)
    release = book.run(run, records, n=300)
    assert release.certificate.epsilon == run.privacy_loss(300).epsilon(1e-4)
    assert 0.0 < book.spent().epsilon <= 50.0


def test_the_estimator_refuses_what_a_lattice_has_no_use_for():
    with pytest.raises(ValueError, match="prior must be a Lattice"):
        PosteriorSampler(prior=BOX, epsilon=1.0).mechanism(10)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="not both"):
        PosteriorSampler(prior=LATTICE).mechanism(10)
    with pytest.raises(ValueError, match="give a delta"):
        PosteriorSampler(prior=LATTICE, scale=1.0, neighbours="add-remove").mechanism()
    with pytest.raises(ValueError, match="leave out domain, kernel, grid"):
        PosteriorSampler(BOX, prior=LATTICE, kernel=RBF(1.0), grid=3, scale=1.0).mechanism(10)
    with pytest.raises(ValueError, match="nothing to extend"):
        PosteriorSampler(prior=LATTICE, scale=1.0).fit_custodian([[0.0, 0.0]], [0.0])
    with pytest.raises(ValueError, match="3 covariates, the lattice 2"):
        PosteriorSampler(prior=LATTICE, scale=1.0, delta=1e-3).fit(np.zeros((5, 3)), np.zeros(5))


def test_a_graph_without_places_takes_node_numbers():
    W = csr_array(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    lattice = Lattice.car(W, 0.9)
    model = PosteriorSampler(
        prior=lattice, response_range=(0.0, 1.0), ridge=3.0, scale=0.5, delta=1e-3, rule="closed-form"
    )
    model.fit(np.array([[0.0], [1.0], [1.0], [2.0]]), np.array([0.1, 0.5, 0.7, 0.2]))
    assert model.predict(np.array([[2.0]])).shape == (1,)


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        (lambda X: np.full(len(X), 2), "admissible"),  # a hidden node
        (lambda X: np.full(len(X), 9), "admissible"),
        (lambda X: np.full(len(X), 0.0), "whole number"),
        (lambda X: [][int(X[0, 0])], "failed"),
    ],
)
def test_a_rule_of_somebodys_own_that_gives_no_admissible_node_is_refused_before_anything_is_spent(rule, word):
    Q = csr_array([[2.0, -1.0, -0.5], [-1.0, 2.0, -0.5], [-0.5, -0.5, 2.0]])
    lattice = Lattice.of_precision(Q, admissible=[True, True, False], locate=rule)
    run = mechanism(lattice=lattice)
    records = Records(np.full((3, 1), 4242.125), np.full(3, 2.0))
    with pytest.raises(ValueError, match=word) as error:
        run.check(records)
    assert "4242" not in str(error.value)


def test_coordinates_beyond_every_map_belong_to_a_node():
    far = np.array([[1e308, -1e308], [1e160, 0.0]])
    box = Lattice.of_precision(np.eye(2), locations=[[0.0, 0.0], [1.0, 1.0]])
    assert set(box.node(far).tolist()) <= {0, 1}
