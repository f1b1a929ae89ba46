import json
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reference.posterior import KAPPA, epsilon_of, set_a_route
from discretion.gp.kernels import RBF, Diagonal, Exponential, Kernel
from discretion.posterior import assumptions as held
from discretion.posterior import divergence as dv
from discretion.posterior import sensitivity as sn
from discretion.posterior.account import (
    MOST_PATHS,
    calibrate_posterior,
    path_budget,
    path_routes,
    posterior_epsilon,
    posterior_loss,
)
from discretion.privacy.conversion import gaussian_delta
from discretion.privacy.loss import GaussianDP, PrivacyLoss

ASSUMPTIONS = [
    held.Bounded(1.0),
    held.RKHS(1.0),
    held.RKHS(0.8, 0.2),
    held.Separated(1.0, 1.0, 2, 0.45),
    held.Exponential1D(1.0),
    held.Diagonal(1.0),
    held.ResponseOnly(1.0),
]
RECORD = [a for a in ASSUMPTIONS if isinstance(a, held.RecordAssumption)]


def ids(assumption):
    return f"{assumption.name}-{getattr(assumption, 'noise', '')}"


@pytest.mark.parametrize("assumption", ASSUMPTIONS, ids=ids)
def test_epsilon_falls_with_ridge_and_scale_and_grows_with_paths(assumption):
    r = np.geomspace(0.05, 300.0, 60)[:, None, None]
    sigma = np.geomspace(0.02, 50.0, 20)[None, :, None]
    paths = np.array([1, 2, 10, 1000])[None, None, :]
    for kappa, eta in ((0.0, 0.0), (0.9, 0.0), (0.3, 0.5)):
        epsilon = posterior_epsilon(
            n=60,
            ridge=r,
            scale=sigma,
            delta=1e-4,
            assumption=assumption,
            least_kernel=kappa,
            paths=paths,
            prior_noise=eta,
        ).epsilon
        assert epsilon.shape == (60, 20, 4)
        assert np.all(np.isfinite(epsilon) & (epsilon >= 0))
        slack = 1e-9 * epsilon + 1e-12
        assert np.all(np.diff(epsilon, axis=0) <= slack[1:])
        assert np.all(np.diff(epsilon, axis=2) >= -slack[:, :, 1:])
        if eta == 0.0:
            assert np.all(np.diff(epsilon, axis=1) <= slack[:, 1:])


@pytest.mark.parametrize("assumption", ASSUMPTIONS, ids=ids)
def test_table_and_loss_agree(assumption):
    for ridge, scale, eta, paths in (
        (0.3, 0.5, 0.0, 1),
        (1.0, 1.0, 0.7, 3),
        (8.0, 0.04, 0.0, 1),
        (400.0, 1e-4, 0.0, 7),
    ):
        fixed = {
            "n": 400,
            "ridge": ridge,
            "scale": scale,
            "assumption": assumption,
            "least_kernel": 0.1,
            "paths": paths,
            "prior_noise": eta,
        }
        table, loss = posterior_epsilon(delta=1e-4, **fixed), posterior_loss(**fixed)
        guarantee = loss.guarantee(1e-4)
        assert loss.neighbours is assumption.neighbours
        assert guarantee.epsilon == pytest.approx(float(table.epsilon), rel=1e-9)
        assert str(table.rule) in guarantee.rule
        if guarantee.order is None:
            assert np.isnan(table.order)
        else:
            assert guarantee.order == pytest.approx(float(table.order), rel=1e-4)


def test_smallest_route_wins():
    fixed = {
        "n": 10,
        "ridge": 1.0,
        "delta": 1e-3,
        "least_kernel": math.exp(-1.0),
        "assumption": held.Exponential1D(1.0),
    }
    table = posterior_epsilon(scale=2.0, **fixed)
    joint, line = epsilon_of(set_a_route("joint line"), 1e-3)[0], epsilon_of(set_a_route("line"), 1e-3)[0]
    assert joint < line
    assert float(table.epsilon) == pytest.approx(joint, rel=1e-9)
    assert str(table.rule) == "(5.2a) joint mean term"
    alone = posterior_epsilon(scale=math.inf, **fixed)
    assert float(alone.epsilon) == pytest.approx(6.238344900007118, rel=1e-9)
    set_b = posterior_epsilon(n=100, ridge=5.0, scale=1.0, delta=1e-3, least_kernel=KAPPA, assumption=held.Bounded(1.0))
    assert str(set_b.rule) == "(4.3) coupled with Theorem 3.1 (5.1)"


@given(
    n=st.integers(1, 5000),
    ridge=st.floats(0.05, 300.0),
    scale=st.floats(1e-3, 100.0),
    kappa=st.floats(-0.5, 1.0),
    eta=st.floats(0.0, 10.0),
    which=st.sampled_from(RECORD),
)
@settings(max_examples=60)
def test_further_assumptions_only_help(n, ridge, scale, kappa, eta, which):
    fixed = {"n": n, "ridge": ridge, "scale": scale, "delta": 1e-5, "least_kernel": kappa}
    generic = posterior_epsilon(assumption=held.Bounded(1.0), **fixed).epsilon
    ours = posterior_epsilon(assumption=which, **fixed).epsilon
    if not isinstance(which, held.Diagonal):
        assert ours <= generic * (1 + 1e-9)
    noisy = posterior_epsilon(assumption=which, prior_noise=eta, **fixed).epsilon
    assert noisy <= ours * (1 + 1e-9)
    assert ours >= posterior_epsilon(assumption=held.ResponseOnly(0.0), **fixed).epsilon


@pytest.mark.parametrize("assumption", RECORD, ids=ids)
def test_no_cost_below_the_covariance_lower_bound(assumption):
    n, kappa = 50.0, 0.0 if isinstance(assumption, held.Diagonal) else 0.6
    r = np.geomspace(0.05, 100.0, 80)
    for eta in (0.0,):
        routes = path_routes(assumption, np.full(80, n), r, np.full(80, np.inf), np.full(80, kappa), np.full(80, eta))
        for closeness in (1e-3, 0.5, 0.999):
            excess = closeness * r**2
            cost = np.min([named.route.renyi(excess) for named in routes], axis=0)
            assert np.all(cost >= dv.covariance_lower_bound(excess, n, r, kappa) * (1 - 1e-9))


def test_large_data_sets_and_ridges_stay_accurate():
    """n = 10^6, ridge in the hundreds: against the closed forms evaluated with many digits at the reported
    order.
    """
    mpmath = pytest.importorskip("mpmath")
    n, r, delta = 10**6, 500.0, 1e-7
    table = posterior_epsilon(n=n, ridge=r, scale=1.0, delta=delta, assumption=held.RKHS(1.0), least_kernel=0.5)
    with mpmath.workdps(50):
        q, m, kappa = mpmath.mpf(r) ** 2, mpmath.mpf(n - 1), mpmath.mpf(0.5)
        v = ((1 - kappa**2) * m + q) / (m + q)
        tau, shift = v / q, v / (q + v)

        def epsilon(e):
            a = 1 + e
            renyi = -mpmath.log(1 - a * e * tau**2 / (1 + tau)) / (2 * e) + a / 2 * (1 + tau) / (1 - e * tau) * shift**2
            return renyi + mpmath.log(e / a) - (mpmath.log(delta) + mpmath.log(a)) / e

        at = epsilon(mpmath.mpf(float(table.order)) - 1)
        assert float(table.epsilon) >= float(at) - 1e-13
        assert float(table.epsilon) == pytest.approx(float(at), rel=1e-8)
        nearby = np.geomspace(0.5, 1.5, 201) * (float(table.order) - 1)
        best = min(epsilon(mpmath.mpf(x)) for x in nearby if x * tau < 1)
        assert float(table.epsilon) <= float(best) * (1 + 1e-9)


def test_speed():
    count = 20_000
    rng = np.random.default_rng(0)
    arguments = {
        "n": rng.integers(1, 5000, count),
        "ridge": np.exp(rng.uniform(-2, 5, count)),
        "scale": np.exp(rng.uniform(-3, 3, count)),
        "delta": 10.0 ** -rng.uniform(2, 9, count),
        "least_kernel": rng.uniform(0, 1, count),
    }
    start = time.process_time()
    table = posterior_epsilon(assumption=held.Bounded(1.0), **arguments)
    seconds = time.process_time() - start
    assert np.isfinite(table.epsilon).all()
    assert count / seconds >= 10_000


@pytest.mark.parametrize("assumption", ASSUMPTIONS, ids=ids)
@pytest.mark.parametrize("solve", ["scale", "ridge", "prior_noise"])
@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_calibrated_parameters_meet_the_target_and_barely(assumption, solve, epsilon):
    fixed = {
        "n": 300,
        "ridge": 9.0,
        "scale": 0.05,
        "assumption": assumption,
        "least_kernel": 0.2,
        "paths": 2,
        "prior_noise": 0.0,
    }
    del fixed[solve]
    value = calibrate_posterior(solve, epsilon=epsilon, delta=1e-5, **fixed)

    def cost(x):
        return float(posterior_epsilon(delta=1e-5, **{solve: x}, **fixed).epsilon)

    assert cost(value) <= epsilon
    assert posterior_loss(**{solve: value}, **fixed).epsilon(1e-5) <= epsilon
    if value > 0.0:
        assert cost(value * (1 - 1e-9)) > epsilon


def test_scale_with_prior_noise_is_not_assumed_monotone():
    fixed = {
        "n": 300,
        "ridge": 0.6,
        "assumption": held.Bounded(1.0),
        "least_kernel": 0.2,
        "prior_noise": 300.0,
    }
    value = calibrate_posterior("scale", epsilon=1.0, delta=1e-5, **fixed)
    assert float(posterior_epsilon(scale=value, delta=1e-5, **fixed).epsilon) <= 1.0
    assert float(posterior_epsilon(scale=math.inf, delta=1e-5, **fixed).epsilon) > 1.0


@pytest.mark.parametrize("assumption", ASSUMPTIONS, ids=ids)
def test_paths(assumption):
    fixed = {"n": 100, "ridge": 5.0, "scale": 1.0, "assumption": assumption, "least_kernel": KAPPA}
    for epsilon in (2.0, 10.0, 100.0):
        most = calibrate_posterior("paths", epsilon=epsilon, delta=1e-3, **fixed)
        assert isinstance(most, int)
        assert float(posterior_epsilon(delta=1e-3, paths=most, **fixed).epsilon) <= epsilon
        assert float(posterior_epsilon(delta=1e-3, paths=most + 1, **fixed).epsilon) > epsilon
        assert most == math.floor(path_budget(epsilon=epsilon, delta=1e-3, **fixed))


def test_free_paths_are_capped():
    free = {"n": 5, "ridge": 1.0, "scale": math.inf, "assumption": held.ResponseOnly(1.0)}
    assert path_budget(epsilon=1.0, delta=1e-3, **free) == math.inf
    assert calibrate_posterior("paths", epsilon=1.0, delta=1e-3, **free) == MOST_PATHS


def test_unreachable_targets_say_why():
    fixed = {"n": 10, "assumption": held.Bounded(1.0), "least_kernel": 0.3}
    covariance = float(posterior_epsilon(ridge=0.3, scale=math.inf, delta=1e-5, **fixed).epsilon)
    with pytest.raises(ValueError, match=rf"covariance alone .* costs {covariance:.6g}.*Raise the ridge"):
        calibrate_posterior("scale", epsilon=1.0, delta=1e-5, ridge=0.3, **fixed)
    with pytest.raises(ValueError, match="does not pay for one path"):
        calibrate_posterior("paths", epsilon=1.0, delta=1e-5, ridge=0.3, scale=1.0, **fixed)
    with pytest.raises(ValueError, match="infinite scale"):
        calibrate_posterior("eta", epsilon=1.0, delta=1e-5, ridge=0.3, scale=math.inf, **fixed)
    with pytest.raises(ValueError, match="cheapest ridge"):
        calibrate_posterior("ridge", epsilon=1e-12, delta=1e-5, scale=1e-9, paths=10**9, **fixed)
    with pytest.raises(ValueError, match="ridge is needed"):
        calibrate_posterior("scale", epsilon=1.0, delta=1e-5, **fixed)
    with pytest.raises(ValueError, match="solve must be"):
        calibrate_posterior("n", epsilon=1.0, delta=1e-5, ridge=1.0, scale=1.0, **fixed)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.0}, "delta"),
        ({"delta": -1e-5}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"n": 0}, "n must"),
        ({"ridge": 0.0}, "ridge"),
        ({"ridge": math.inf}, "ridge"),
        ({"scale": 0.0}, "scale"),
        ({"scale": math.nan}, "scale"),
        ({"paths": 0}, "paths"),
        ({"paths": 1.5}, "paths"),
        ({"prior_noise": -1.0}, "prior_noise"),
        ({"least_kernel": 1.5}, "least_kernel"),
        ({"assumption": "bounded"}, "assumption"),
    ],
)
def test_refusals(change, message):
    fixed = {"n": 10, "ridge": 1.0, "scale": 1.0, "delta": 1e-5, "assumption": held.Bounded(1.0)}
    with pytest.raises(ValueError, match=message):
        posterior_epsilon(**(fixed | change))
    if "delta" not in change:
        with pytest.raises(ValueError, match=message):
            posterior_loss(**{k: v for k, v in (fixed | change).items() if k != "delta"})


def test_loss_of_several_paths():
    fixed = {"n": 100, "ridge": 5.0, "scale": 1.0, "least_kernel": KAPPA}
    one, many = (posterior_loss(assumption=held.Bounded(1.0), paths=p, **fixed) for p in (1, 12))
    assert many.renyi(3.0) == pytest.approx(12 * one.renyi(3.0), rel=1e-14)
    assert one.renyi(1.0 + one.supremum) == math.inf
    again = posterior_loss(assumption=held.Bounded(1.0), **fixed)
    assert (one + again).epsilon(1e-3) == pytest.approx(
        posterior_loss(assumption=held.Bounded(1.0), paths=2, **fixed).epsilon(1e-3), rel=1e-12
    )
    stored = PrivacyLoss.from_dict(json.loads(json.dumps(many.to_dict())))
    assert many.epsilon(1e-3) <= stored.epsilon(1e-3) <= many.epsilon(1e-3) * 1.02
    gaussian = posterior_loss(assumption=held.ResponseOnly(1.0), paths=4, **fixed)
    assert isinstance(gaussian, GaussianDP)
    assert gaussian.mu == pytest.approx(
        2 * float(dv.response_only_mu(sn.posterior_variance_bound(100, 5.0, KAPPA), 5.0, 1.0))
    )
    epsilon = float(posterior_epsilon(assumption=held.ResponseOnly(1.0), paths=4, delta=1e-3, **fixed).epsilon)
    assert gaussian_delta(gaussian.mu, epsilon) <= 1e-3


@pytest.mark.parametrize("assumption", ASSUMPTIONS, ids=ids)
def test_assumptions_speak(assumption):
    assert assumption.name
    assert all(s.endswith(".") for s in (*assumption.enforced, *assumption.declared))
    assert "conjecture" not in " ".join((*assumption.enforced, *assumption.declared))


def test_assumptions_check_the_kernel():
    bad: list[tuple[held.Assumption, Kernel, int]] = [
        (held.Exponential1D(1.0), RBF(1.0), 1),
        (held.Exponential1D(1.0), Exponential(1.0), 2),
        (held.Diagonal(1.0), RBF(1.0), 1),
    ]
    for assumption, kernel, dimension in bad:
        with pytest.raises(ValueError, match="Bounded"):
            assumption.check(kernel, dimension)
    held.Exponential1D(1.0).check(Exponential(0.3), 1)
    held.Diagonal(1.0).check(Diagonal(1.0), 3)
    held.Bounded(1.0).check(RBF(1.0), 3)
    for make in (held.Bounded, held.Exponential1D, held.Diagonal, held.ResponseOnly, held.RKHS):
        with pytest.raises(ValueError, match="must be"):
            make(math.nan)


def test_empty_tables():
    table = posterior_epsilon(n=10, ridge=np.empty(0), scale=1.0, delta=1e-5, assumption=held.Bounded(1.0))
    assert table.epsilon.shape == table.order.shape == table.rule.shape == (0,)
