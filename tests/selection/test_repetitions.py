"""Laws of the number of runs."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from discretion.privacy import SeededRandomness, SystemRandomness
from discretion.selection import (
    Binomial,
    Capped,
    Fixed,
    NegativeBinomial,
    Poisson,
    geometric,
    logarithmic,
    repetitions_from,
)

LAWS = (
    Poisson(0.3),
    Poisson(10.0),
    geometric(10.0),
    logarithmic(10.0),
    NegativeBinomial.of_mean(-0.5, 3.0),
    NegativeBinomial.of_mean(5.0, 20.0),
    NegativeBinomial(2.0, 1.0),
    Binomial(20, 0.5),
    Fixed(3),
    Capped(Poisson(5.0), 6),
    Capped(logarithmic(10.0), 12),
)
TABLE = [
    (-0.5, 10, 0.00277008310249307, 0.526315789474, 0.308131997385, 0.743294146247, (1, 16, 171, 558)),
    (0, 10, 0.0269182596006802, 0.269182596007, 0.184396676429, 0.524253208062, (4, 26, 81, 148)),
    (0.5, 10, 0.0625, 0.15625, 0.123996227047, 0.403526082688, (6, 24, 55, 88)),
    (1, 10, 0.1, 0.1, 0.0909090909091, 0.330578512397, (7, 22, 44, 66)),
    (2, 10, 0.170820393249937, 0.0498447189992, 0.0576474687263, 0.248449601211, (8, 20, 35, 48)),
    (-0.9, 10, 3.48678441329271e-11, 0.900000000317, 0.464113268895, 0.964596116619, (1, 1, 14, 177)),
    (0, 100, 0.00154211507488967, 0.154211507489, 0.106818369131, 0.307948123534, (15, 282, 1166, 2307)),
    (-0.5, 100, 2.52518875785965e-05, 0.502512562814, 0.29436350457, 0.71065110901, (1, 29, 1531, 17526)),
    (5, 100, 0.0476190587234589, 1.16596318861e-06, 5.96436938911e-06, 5.64474683942e-05, (93, 161, 235, 301)),
]


@pytest.mark.parametrize(("shape", "mean", "gamma", "one", "half", "slope", "quantiles"), TABLE)
def test_reference_values(shape, mean, gamma, one, half, slope, quantiles):
    law = NegativeBinomial.of_mean(shape, mean)
    assert law.gamma == pytest.approx(gamma, rel=1e-12)
    assert law.mean == pytest.approx(mean, rel=1e-14)
    assert law.mean >= mean or law.gamma < gamma * (1 + 1e-13)
    assert float(law.pmf(1)) == pytest.approx(one, rel=1e-9)
    assert float(law.pgf(0.5)) == pytest.approx(half, rel=1e-9)
    assert float(law.derivative(0.5)) == pytest.approx(slope, rel=1e-9)
    assert tuple(law.quantile(q) for q in (0.5, 0.9, 0.99, 0.999)) == quantiles


def test_quantiles_of_poisson():
    for mean, expected in ((10, (10, 14, 18, 21)), (100, (100, 113, 124, 132))):
        assert tuple(Poisson(mean).quantile(q) for q in (0.5, 0.9, 0.99, 0.999)) == expected


def test_utility():
    rows = [
        (Poisson(10), 0.900004539993, 0.632120558829, 0.181269246922),
        (logarithmic(10), 0.751033930298, 0.423048989758, 0.150503088285),
        (geometric(10), 0.826841346544, 0.526315789474, 0.169491525424),
        (NegativeBinomial.of_mean(-0.5, 10), 0.65, 0.282375696128, 0.103531345148),
        (logarithmic(100), 0.847094810188, 0.646495327130, 0.407040135123),
    ]
    for law, quantile, tenth, fiftieth in rows:
        assert law.best_quantile == pytest.approx(quantile, rel=1e-9)
        assert law.success([0.1, 0.02]) == pytest.approx([tenth, fiftieth], rel=1e-9)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.name} {law.mean:g}")
def test_mass_generating_function_and_derivative_agree(law):
    k = np.arange(4000)
    masses = law.pmf(k)
    assert masses.sum() == pytest.approx(1, abs=1e-9)
    assert masses @ k == pytest.approx(law.mean, rel=1e-6)
    assert law.none == pytest.approx(masses[0], abs=1e-300)
    x = np.array([0.0, 0.1, 0.5, 0.9, 0.99])
    assert law.pgf(x) == pytest.approx(x[:, None] ** k @ masses, rel=1e-9, abs=1e-12)
    slope = (k[1:] * masses[1:]) @ x[:, None].T ** (k[1:, None] - 1)
    assert law.derivative(1 - x) == pytest.approx(slope, rel=1e-9, abs=1e-12)
    assert law.cdf(k[:300]) == pytest.approx(np.cumsum(masses)[:300], abs=1e-12)
    assert float(law.cdf(-1)) == float(law.pmf(-1)) == 0
    for q in (0.0, 0.3, 0.9, 0.999):
        at = law.quantile(q)
        assert float(law.cdf(at)) >= q
        assert at == 0 or float(law.cdf(at - 1)) < q
    assert repetitions_from(json.loads(json.dumps(law.parameters()))) == law


def test_the_derivative_does_not_cancel():
    law = logarithmic(1e6)
    t = np.array([1e-12, 1e-3])
    assert law.derivative(t) == pytest.approx(law.mean * law.gamma / (law.gamma + (1 - law.gamma) * t), rel=1e-14)
    # 1 - t is 1 in doubles, and the derivative is not E K
    assert float(law.derivative(1e-17)) < law.mean or law.gamma > 1e-3


@settings(deadline=None, max_examples=60)
@given(st.floats(-0.95, 30), st.floats(1, 1e5))
def test_means_round_trip_from_above(shape, mean):
    try:
        law = NegativeBinomial.of_mean(shape, mean)
    except ValueError:
        assert shape < -0.9  # gamma leaves the range of doubles
        return
    assert mean <= law.mean <= mean * (1 + 1e-12) or math.isclose(law.gamma, 1.0, rel_tol=1e-15)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.name} {law.mean:g}")
def test_the_sampler_has_the_law(law):
    random = SeededRandomness(7)
    drawn = np.array([law.sample(random) for _ in range(4000)])
    last = law.quantile(0.99)
    expected = 4000 * np.append(law.pmf(np.arange(last + 1)), 1 - float(law.cdf(last)))
    observed = np.append(np.bincount(np.minimum(drawn, last + 1), minlength=last + 2)[: last + 1], np.sum(drawn > last))
    assert np.all(observed[expected < 1e-9] == 0)
    large = expected > 8
    pooled = [np.append(each[large], each[~large].sum()) for each in (observed, expected)]
    if pooled[1][-1] < 1e-6:
        pooled = [each[:-1] for each in pooled]
    if pooled[0].size > 1:
        assert chisquare(pooled[0], pooled[1] * pooled[0].sum() / pooled[1].sum()).pvalue > 1e-4
    assert isinstance(law.sample(SystemRandomness()), int)


class Scripted:
    """Uniform numbers whose 52 bits are given."""

    bookable = False

    def __init__(self, *cells):
        self.cells = list(cells)

    def uniform(self, shape=()):
        return np.array((self.cells.pop(0) + 0.5) * 2.0**-52)


def test_the_sampler_draws_more_bits_where_the_first_do_not_decide():
    ones, half = 2**52 - 1, 2**51
    law = NegativeBinomial(1.0, 0.5)  # P[K = 1] = 1/2 exactly
    randomness = Scripted(half - 1, ones, 5, 0)  # U is below 1/2 by less than 2^-104, if at all
    assert law.sample(randomness) == 1
    assert len(randomness.cells) < 2
    randomness = Scripted(half, 0, 3, 7)
    assert law.sample(randomness) == 2
    assert law.sample(Scripted(half - 1, 0)) == 1


def test_a_capped_law_is_the_law_given_the_cap():
    law, capped = Poisson(5.0), Capped(Poisson(5.0), 6)
    k = np.arange(7)
    assert capped.pmf(k) == pytest.approx(law.pmf(k) / law.cdf(6), rel=1e-12)
    assert float(capped.pmf(7)) == 0
    random = SeededRandomness(3)
    assert max(capped.sample(random) for _ in range(500)) == 6


@pytest.mark.parametrize(
    "make",
    [
        lambda: Poisson(0),
        lambda: Poisson(math.nan),
        lambda: NegativeBinomial(-1, 0.5),
        lambda: NegativeBinomial(1, 0),
        lambda: NegativeBinomial(1, 1.5),
        lambda: NegativeBinomial.of_mean(1, 0.5),
        lambda: NegativeBinomial.of_mean(-0.9999, 1e6),
        lambda: Binomial(0, 0.5),
        lambda: Binomial(3, 1.0),
        lambda: Fixed(0),
        lambda: Fixed(True),
        lambda: Fixed(2.5),
        lambda: Capped(Fixed(5), 3),
        lambda: Capped(Poisson(100), 3),
        lambda: repetitions_from({"law": "zipf"}),
        lambda: Poisson(3).quantile(1.0),
    ],
)
def test_bad_laws_are_refused(make):
    with pytest.raises(ValueError, match=r".{20}"):
        make()
