"""Secret samples: every record, and every subset, with the chance that the account assumes."""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from discretion.privacy import SystemRandomness
from discretion.privacy.sampling import sampling_rate, secret_sample, secret_subset


def test_each_record_takes_part_with_the_stated_probability():
    n = 200_000
    for rate in (0.25, 0.3, 2.0**-30 * 12345):
        found = secret_sample(n, sampling_rate(rate), SystemRandomness())
        assert binomtest(int(found.sum()), n, rate).pvalue > 1e-6


@pytest.mark.parametrize("rate", [0.1, 1 / 3, 0.999999, 1e-5, 3e-9])
def test_the_rate_that_is_used_is_the_one_accounted(rate):
    used = sampling_rate(rate)
    assert used <= rate
    assert used == pytest.approx(rate, rel=1e-9)
    assert int(used * 2.0**64) / 2**64 == used  # so that words below it have exactly that share


def test_every_subset_has_the_same_chance():
    for n, size in ((5, 2), (6, 5), (4, 1)):
        seen = Counter(tuple(secret_subset(n, size, SystemRandomness()).tolist()) for _ in range(20_000))
        subsets = list(itertools.combinations(range(n), size))
        assert set(seen) <= set(subsets)
        assert chisquare([seen[each] for each in subsets]).pvalue > 1e-6
    assert secret_subset(3, 3, SystemRandomness()).tolist() == [0, 1, 2]


class Coarse:
    """Words of two bits: ties are common."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def words(self, count):
        return self.rng.integers(0, 4, count, dtype=np.uint64)


def test_ties_favour_nobody():
    source = Coarse(0)
    seen = Counter(tuple(secret_subset(5, 2, source).tolist()) for _ in range(20_000))
    assert chisquare([seen[each] for each in itertools.combinations(range(5), 2)]).pvalue > 1e-6
