"""What a released kernel sum says for certain: local means, excursion sets with confidence, sums over regions.

A kernel-sum release is a pair of arrays at m public places,

    h = sum_i (y_i - c) k(x_i, .) + s g_1,          d = M sum_i k(x_i, .) + s g_2,

with |y_i - c| <= M, kernel k, g_1 and g_2 independent fields N(0, K + tau I). Everything but the sums is public, the
law of the noise included, so what the non-private sums are can be stated with a known confidence. All of it is
post-processing and costs no privacy.

**What is covered.** The statements are about the *non-private smoothed map* (the same sums without noise, responses
clipped) at the released places, not between them. They quantify the noise of privacy, not the sampling error of the
records. Proofs: ``docs/proofs/confidence-sets.md``. The sets and their names follow Bolin and Lindgren 2015 (R package
``excursions``).
"""

from discretion.posterior.confidence.bands import Bands, mean_bands
from discretion.posterior.confidence.regions import RegionMeans, RegionSums, region_mean, region_sum
from discretion.posterior.confidence.sets import ExcursionSets, argmax_set, excursion_function, excursion_sets
from discretion.posterior.confidence.sums import LocalMean, ReleasedSums, local_mean, released_sums, threshold_field
from discretion.posterior.confidence.suprema import simulated_suprema, supremum_quantile

__all__ = [
    "Bands",
    "ExcursionSets",
    "LocalMean",
    "RegionMeans",
    "RegionSums",
    "ReleasedSums",
    "argmax_set",
    "excursion_function",
    "excursion_sets",
    "local_mean",
    "mean_bands",
    "region_mean",
    "region_sum",
    "released_sums",
    "simulated_suprema",
    "supremum_quantile",
    "threshold_field",
]
