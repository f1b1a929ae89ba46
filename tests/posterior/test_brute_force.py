import numpy as np
import pytest

from benchmarks import brute_force
from benchmarks.brute_force import ATTAINED, TOLERANCE, search
from discretion.posterior import sensitivity as sn


def check(found):
    broken = {name: ratio for name, ratio in found.items() if not ratio <= 1.0 + TOLERANCE}
    assert not broken, broken
    slack = {name: found[name] for name in ATTAINED if not found[name] > 0.98}
    assert not slack, slack


def test_no_pair_exceeds_a_bound_and_tight_bounds_are_reached():
    check(search(random=700, driven=24, seed=11, rounds=8))


@pytest.mark.slow
def test_no_pair_exceeds_a_bound_in_the_full_search():
    check(search(random=20_000, driven=200, seed=0))


@pytest.mark.parametrize(
    ("function", "bound"),
    [
        ("posterior_variance_bound", "(3) posterior variance"),
        ("mean_sensitivity_coupled", "(4.3) coupled"),
        ("mean_sensitivity_rkhs", "(4.6) RKHS"),
        ("mean_sensitivity_exponential_1d", "(4.8) exponential on a line"),
    ],
)
def test_the_search_notices_a_bound_that_is_two_percent_too_small(monkeypatch, function, bound):
    true = getattr(sn, function)
    monkeypatch.setattr(sn, function, lambda *args: 0.98 * true(*args))
    found: dict[str, float] = {}
    rng = np.random.default_rng(0)
    with np.errstate(invalid="ignore"):  # a bound that is too small puts the pole in the wrong place
        brute_force.known_worst(found)
        for n in (1, 2):
            batch = brute_force.draw(rng, 200, n, 1)
            brute_force.merge(found, brute_force.evaluate(brute_force.KERNELS[0], batch, adversarial=True))
    assert found[bound] > 1.0 + TOLERANCE
