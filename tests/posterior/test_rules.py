"""The rules by which a release of paths is priced: each against its source, the best of them, and the cache."""

import math
import time

import numpy as np
import pytest

from discretion.posterior import RKHS, Bounded, Exponential1D, ResponseOnly, rules
from discretion.posterior.account import posterior_epsilon
from discretion.posterior.certified import certified_epsilon
from discretion.posterior.covering import certified_profile_epsilon
from discretion.posterior.rules import RELEASE_RULES, path_loss, posterior_price, profile_loss, published_epsilon
from discretion.privacy import GaussianDP, Neighbours, PrivacyLoss

LINE = {"n": 100, "ridge": 3.0, "scale": 0.2179477291, "assumption": Exponential1D(1.0), "least_kernel": math.exp(-2.0)}
PLANE = {
    "n": 4390,
    "ridge": 10.0,
    "scale": 0.2315925716,
    "assumption": Bounded(1.0),
    "least_kernel": math.exp(-math.sqrt(2.0)),
}


@pytest.mark.parametrize(
    ("n", "ridge", "scale", "delta", "paths", "epsilon"),
    [
        (100, 1.5, 1.061180203, 1e-3, 1, 9.0),
        (100, 3.0, 2.533656095, 1e-3, 1, 1.0),
        (100, 3.0, 0.2179477291, 1e-3, 1, 9.0),
        (100, 6.0, 0.1785665575, 1e-5, 1, 3.0),
        (100, 6.0, 1.0, 1e-3, 1, 0.3786),
        (100, 6.0, 1.0, 1e-3, 10, 1.1728),
        (100, 3.0, 1.0, 1e-3, 100, 25.243),
    ],
)
def test_published_figures_on_the_line(n, ridge, scale, delta, paths, epsilon):
    account = {"assumption": Exponential1D(1.0), "least_kernel": math.exp(-2.0)}
    found, order = published_epsilon(n=n, ridge=ridge, scale=scale, delta=delta, paths=paths, **account)
    assert found == pytest.approx(epsilon, rel=2e-4)
    assert order > 1.0


@pytest.mark.parametrize(
    ("n", "ridge", "scale", "epsilon"),
    [(100, 5.0, 1.426580028, 1.0), (400, 3.0, 2.168056999, 3.0), (400, 8.0, 0.1360777894, 9.0)],
)
def test_published_figures_in_the_plane(n, ridge, scale, epsilon):
    account = {"assumption": Bounded(1.0), "least_kernel": math.exp(-math.sqrt(2.0))}
    found, _ = published_epsilon(n=n, ridge=ridge, scale=scale, delta=1e-3, **account)
    assert found == pytest.approx(epsilon, rel=2e-4)


def test_each_rule_is_its_source():
    price = posterior_price("renyi", **LINE, delta=1e-3)
    closed = float(posterior_epsilon(**LINE, delta=1e-3).epsilon)
    assert price.compared == {
        "closed form": pytest.approx(closed, rel=1e-12),
        "renyi": certified_epsilon(**LINE, delta=1e-3),
    }
    assert price.epsilon == price.compared["renyi"]
    assert "branch and bound" in price.guarantee.rule
    profile = posterior_price("profile", **LINE, delta=1e-3)
    assert profile.epsilon == certified_profile_epsilon(**LINE, delta=1e-3).epsilon
    assert profile.guarantee.order is None


@pytest.mark.parametrize(("account", "most"), [(LINE, 3.70), (PLANE, 0.95)])
def test_the_best_says_which_rule_won(account, most):
    delta = 1e-3 if account is LINE else 4390**-1.1
    price = posterior_price(**account, delta=delta, time_limit=600.0)  # searches end, on a busy machine too
    assert set(price.compared) == {"published", "closed form", "renyi", "profile"}
    assert price.epsilon == min(price.compared.values()) == price.compared["profile"] <= most
    assert price.complete
    assert "profile" in price.guarantee.rule


def test_a_second_call_takes_no_time_and_gives_the_same(monkeypatch, tmp_path):
    monkeypatch.setenv("DISCRETION_CACHE", str(tmp_path))
    first = posterior_price(**LINE, delta=2e-3, time_limit=600.0)
    for name in ("certified_guarantee", "certified_profile_epsilon"):
        monkeypatch.setattr(rules, name, None)  # a search would fail
    start = time.process_time()
    again = posterior_price(**LINE, delta=2e-3)
    assert (again.guarantee, again.compared) == (first.guarantee, first.compared)
    assert time.process_time() - start < 1.0
    with pytest.raises(TypeError):
        posterior_price(**LINE, delta=3e-3)


def test_a_time_limit_leaves_a_bound_that_is_not_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("DISCRETION_CACHE", str(tmp_path))
    short = posterior_price(**PLANE, delta=1e-4, time_limit=0.0)
    full = posterior_price(**PLANE, delta=1e-4, time_limit=600.0)
    assert not short.complete
    assert full.complete
    assert full.epsilon <= short.epsilon <= short.compared["closed form"]


def test_several_paths_are_priced_by_what_is_proved():
    best = posterior_price(**LINE, delta=1e-3, paths=10)
    assert "profile" not in best.compared
    assert best.epsilon == best.compared["renyi"] < best.compared["closed form"]
    numerical = posterior_price("profile", **LINE, delta=1e-3, paths=10)
    assert "numerical" in numerical.guarantee.rule
    assert numerical.epsilon < best.epsilon


def test_assumptions_without_a_search_of_their_own():
    only = posterior_price(**LINE | {"assumption": ResponseOnly(1.0)}, delta=1e-3)
    assert only.compared == {"closed form": only.epsilon}
    graph = LINE | {"assumption": RKHS(1.0)}
    assert "profile" not in posterior_price(**graph, delta=1e-3).compared
    with pytest.raises(ValueError, match="no certified profile"):
        posterior_price("profile", **graph, delta=1e-3)
    with pytest.raises(ValueError, match="rule must be one of"):
        posterior_price("tight", **LINE, delta=1e-3)


def test_prices_are_doubles():
    assert type(posterior_price("published", **LINE, delta=np.float64(1e-3)).epsilon) is float


@pytest.mark.slow
def test_a_profile_composes_with_itself_and_with_other_losses():
    account = LINE | {"ridge": 6.0, "scale": 1.0}
    loss = profile_loss(**account, deltas=(0.03, 3e-3, 1e-3, 1e-4, 1e-6, 1e-8))
    assert loss.neighbours is Neighbours.REPLACE
    assert loss.epsilon(1e-3) == pytest.approx(posterior_price("profile", **account, delta=1e-3).epsilon, rel=1e-9)
    closed = float(posterior_epsilon(**account, delta=1e-3, paths=10).epsilon)
    assert 0.395 < (10 * loss).epsilon(1e-3) < 0.8 * closed  # 0.395: an explicit pair of data sets
    both = loss + GaussianDP(0.3, neighbours=Neighbours.REPLACE)
    alone = GaussianDP(0.3, neighbours=Neighbours.REPLACE).epsilon(1e-3)
    assert alone < both.epsilon(1e-3) < alone + loss.epsilon(1e-3)


def test_numbers_of_numpy_and_tiny_deltas_are_priced():
    numpy = LINE | {"n": np.int64(100), "scale": np.float32(0.25)}
    assert posterior_price("renyi", **numpy, delta=1e-3).epsilon > 0
    tiny = posterior_price(**LINE, delta=1e-14)
    assert "profile" not in tiny.compared
    assert math.isfinite(tiny.epsilon)


def test_a_loss_for_the_ledger_is_the_price_of_its_rule():
    losses = {rule: path_loss(rule, **LINE, delta=1e-3) for rule in RELEASE_RULES}
    price = posterior_price(**LINE, delta=1e-3)
    assert losses["closed-form"].epsilon(1e-3) == pytest.approx(price.compared["closed form"], rel=1e-9)
    for rule in ("renyi", "best"):
        epsilon = price.compared["profile" if rule == "best" else rule]
        assert epsilon <= losses[rule].epsilon(1e-3) <= 1.003 * epsilon
        assert losses[rule].epsilon(1e-6) <= losses["closed-form"].epsilon(1e-6)
        stored = PrivacyLoss.from_dict(losses[rule].to_dict(1e-3))
        assert stored.epsilon(1e-3) == pytest.approx(losses[rule].epsilon(1e-3), rel=1e-9)
    # What a release adds for its rounding is paid by what delta was spared, not by falling back on the curve.
    rounding = GaussianDP(1e-7, neighbours=Neighbours.REPLACE)
    assert (losses["best"] + rounding).epsilon(1e-3) <= 1.003 * price.epsilon
    # Of many releases the Renyi curves are smaller than a table with one entry, which says nothing below delta.
    assert (20 * losses["best"]).epsilon(1e-3) == pytest.approx((20 * losses["renyi"]).epsilon(1e-3), rel=1e-6)
    only = path_loss("best", **LINE | {"assumption": ResponseOnly(1.0)}, delta=1e-3)
    assert isinstance(only, GaussianDP)
    with pytest.raises(ValueError, match="rule must be one of"):
        path_loss("published", **LINE, delta=1e-3)
