"""Parameters that just meet a target under each rule."""

import math
import time

import pytest

from discretion.posterior import Exponential1D, ResponseOnly
from discretion.posterior.account import calibrate_posterior
from discretion.posterior.calibration import calibrated, least_on_grid
from discretion.posterior.rules import posterior_price
from discretion.privacy.calibration import Unreachable

LINE = {"n": 100, "assumption": Exponential1D(1.0), "least_kernel": math.exp(-2.0)}
PATIENT = {"time_limit": 600.0}  # searches end, on a busy machine too


@pytest.mark.parametrize("rule", ["published", "renyi", "best"])
def test_a_calibrated_scale_is_the_least_to_a_thousandth(rule):
    account = LINE | {"ridge": 3.0} | PATIENT
    scale, price = calibrated("scale", rule, epsilon=3.0, delta=1e-3, **account)
    assert price.complete
    assert price.epsilon <= 3.0
    assert posterior_price(rule, scale=scale, delta=1e-3, **account).epsilon == price.epsilon
    assert posterior_price(rule, scale=scale * 0.997, delta=1e-3, **account).epsilon > 3.0
    if rule == "published":
        assert scale == pytest.approx(0.604712297, rel=1.1e-3)


@pytest.mark.parametrize(("solve", "given"), [("ridge", {"scale": 0.3}), ("eta", {"ridge": 3.0, "scale": 0.2})])
def test_ridge_and_prior_noise_meet_the_target(solve, given):
    value, price = calibrated(solve, "renyi", epsilon=3.0, delta=1e-3, **LINE, **given)
    closed = calibrate_posterior(solve, epsilon=3.0, delta=1e-3, **LINE, **given)
    assert price.epsilon <= 3.0
    assert 0.0 < value <= closed * (1.0 + 1e-3)
    if solve == "ridge":
        assert posterior_price("renyi", ridge=value * 0.997, delta=1e-3, **LINE, **given).epsilon > 3.0


def test_no_prior_noise_where_none_is_needed():
    assert calibrated("prior_noise", "renyi", epsilon=9.0, delta=1e-3, ridge=3.0, scale=0.5, **LINE)[0] == 0.0


def test_the_number_of_paths_is_the_largest():
    given = LINE | {"ridge": 6.0, "scale": 1.0}
    count, price = calibrated("paths", "renyi", epsilon=3.0, delta=1e-3, **given)
    assert price.epsilon <= 3.0
    assert posterior_price("renyi", paths=count + 1, delta=1e-3, **given).epsilon > 3.0
    assert count > calibrate_posterior("paths", epsilon=3.0, delta=1e-3, **given)


def test_response_only_is_solved_exactly():
    given = LINE | {"assumption": ResponseOnly(1.0), "ridge": 3.0}
    closed = calibrate_posterior("scale", epsilon=3.0, delta=1e-3, **given)
    assert calibrated("scale", epsilon=3.0, delta=1e-3, **given)[0] == closed


def test_no_time_leaves_a_scale_that_meets_the_target():
    start = time.process_time()
    scale, price = calibrated("scale", "best", epsilon=2.9, delta=1e-3, time_limit=0.0, ridge=3.0, **LINE)
    assert price.epsilon <= 2.9
    assert not price.complete
    assert time.process_time() - start < 5.0
    assert scale <= 1.002 * calibrate_posterior("scale", epsilon=2.9, delta=1e-3, ridge=3.0, **LINE)


def test_what_cannot_be_met_is_refused():
    with pytest.raises(Unreachable):
        calibrated("scale", "renyi", epsilon=1e-3, delta=1e-3, **LINE | {"ridge": 0.5})
    with pytest.raises(Unreachable):
        calibrated("paths", "renyi", epsilon=1e-3, delta=1e-3, **LINE | {"ridge": 3.0, "scale": 0.1})
    with pytest.raises(ValueError, match="solve must be"):
        calibrated("n", epsilon=1.0, delta=1e-3, **LINE)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("start", [1e-3, 1.0, 1e3])
def test_the_search_finds_the_least_step_in_few_prices(power, start):
    asked = []

    def price(value: float) -> float:
        asked.append(value)
        return 2.0 * value**-power

    found = least_on_grid(price, 3.0, start)
    assert price(found) <= 3.0 < price(found * math.exp(-1e-3))
    assert len(asked) <= 25


def test_the_search_ends_on_prices_that_jump_or_vanish():
    assert 1.0 <= least_on_grid(lambda value: 5.0 if value < 1.0 else 0.0, 3.0, 0.2) <= math.exp(1e-3)
    with pytest.raises(Unreachable):
        least_on_grid(lambda value: math.inf, 3.0, 1.0)
