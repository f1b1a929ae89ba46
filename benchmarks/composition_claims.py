"""Figures stated about numerical composition and interchange, against exact cases and dp-accounting."""

from __future__ import annotations

import logging
import math
import time
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from benchmarks.harness import Measured, claim
from discretion.posterior import Exponential1D
from discretion.posterior.certified import certified_loss
from discretion.privacy import (
    Composition,
    FixedSizeGaussian,
    GaussianDP,
    LaplaceDP,
    Neighbours,
    PrivacyLoss,
    PrivacyProfile,
    PureDP,
    RenyiCurve,
    SubsampledGaussian,
    from_dp_event,
    gaussian_delta,
    gaussian_epsilon,
    to_dp_event,
)
from discretion.privacy.composition import numerical_delta, numerical_epsilon

ADD_REMOVE, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE


def _gaussian(mu: float) -> Any:
    return GaussianDP(mu, neighbours=REPLACE)._profiles


@claim(
    "ledger",
    "Numerical composition of Gaussian losses over the exact epsilon: 1 to 10^6 parts, delta 0.1 to 1e-50",
    "never below; <= 1.001; <= 0.5 s each",
)
def composition_gaussian() -> Measured:
    lowest, highest, slowest = math.inf, 0.0, 0.0
    for mu, count, delta in (
        (1.0, 1, 1e-5),
        (0.2, 50, 1e-5),
        (0.01, 1000, 1e-10),
        (5.0, 4, 1e-6),
        (50.0, 1, 1e-6),
        (0.1, 100, 1e-30),
        (0.3, 11, 1e-50),
        (1e-3, 1_000_000, 1e-6),
        (0.3, 7, 0.1),
    ):
        start = time.process_time()
        ratio = numerical_epsilon([(_gaussian(mu), count)], delta) / gaussian_epsilon(mu * math.sqrt(count), delta)
        slowest = max(slowest, time.process_time() - start)
        lowest, highest = min(lowest, ratio), max(highest, ratio)
    text = f"{lowest - 1:+.1e} to {highest - 1:+.1e}, slowest {slowest:.2f} s"
    return Measured(text, lowest >= 1.0 and highest <= 1.001 and slowest <= 0.5)


@claim(
    "ledger",
    "257 to 3,000 different pure or Laplace losses, rounded up to 256, over the numerical composition of all",
    "never below; <= 1.004",
    slow=True,
)
def composition_of_many() -> Measured:
    ratios, seconds = [], []
    for kind in (PureDP, LaplaceDP):
        for count in (257, 300, 600, 1200, 3000):
            loss = Composition(tuple((kind(float(e), neighbours=REPLACE), 1) for e in np.linspace(0.01, 0.05, count)))
            start = time.process_time()
            found = loss.epsilon(1e-6)
            seconds.append(time.process_time() - start)
            ratios.append(found / loss.guarantee(1e-6, numerical=True).epsilon)
    text = f"{min(ratios):.6f} to {max(ratios):.4f}, {max(seconds):.1f} s at most"
    return Measured(text, min(ratios) >= 1.0 and max(ratios) <= 1.004)


@claim(
    "ledger",
    "Numerical composition of pure losses over the exact delta of randomised responses (Kairouz, Oh and Viswanath)",
    "never below; <= 1 + 1e-5",
)
def composition_pure() -> Measured:
    ratios = []
    for e, count, epsilon in ((0.1, 100, 2.0), (1.0, 10, 6.0), (0.01, 10_000, 3.0), (5.0, 3, 12.0), (0.7, 2, 0.3)):
        i = np.arange(count + 1)
        log = gammaln(count + 1) - gammaln(i + 1) - gammaln(count - i + 1) - count * np.log1p(np.exp(e)) + i * e
        exact = float(np.sum(np.exp(log) * -np.expm1(np.minimum(epsilon - (2 * i - count) * e, 0))))
        ratios.append(numerical_delta([(PureDP(e, neighbours=REPLACE)._profiles, count)], epsilon) / exact)
    return Measured(f"{min(ratios) - 1:+.1e} to {max(ratios) - 1:+.1e}", min(ratios) >= 1 and max(ratios) <= 1 + 1e-5)


@claim(
    "ledger",
    "A pure loss beside a Gaussian one, by default, over the exact epsilon: (mu, epsilon) = (0.27, 0.1), (1, 2), (3, "
    "0.05), delta 1e-2 to 1e-12; and what the sum of the epsilons says of the first at 1e-5",
    "never below; <= 1.001; 1.067 where the sum is 1.108",
)
def composition_pure_and_gaussian() -> Measured:
    def profile(mu: float, epsilon: float) -> float:
        if epsilon >= 0:
            return gaussian_delta(mu, epsilon)
        return -math.expm1(epsilon) + math.exp(epsilon) * gaussian_delta(mu, -epsilon)

    ratios = []
    for mu, e in ((0.27, 0.1), (1.0, 2.0), (3.0, 0.05)):
        p = 1 / (1 + math.exp(-e))
        for delta in (1e-2, 1e-5, 1e-12):

            def over(epsilon: float, mu: float = mu, e: float = e, p: float = p, delta: float = delta) -> float:
                return math.log((p * profile(mu, epsilon - e) + (1 - p) * profile(mu, epsilon + e)) / delta)

            exact = float(brentq(over, 0.0, 60.0, xtol=1e-13))  # pyright: ignore[reportArgumentType]
            ratios.append((GaussianDP(mu, neighbours=REPLACE) + PureDP(e, neighbours=REPLACE)).epsilon(delta) / exact)
    first = GaussianDP(0.27, neighbours=REPLACE) + PureDP(0.1, neighbours=REPLACE)
    found, added = first.epsilon(1e-5), GaussianDP(0.27, neighbours=REPLACE).epsilon(1e-5) + 0.1
    holds = min(ratios) >= 1 and max(ratios) <= 1.001 and round(found, 3) == 1.067 and round(added, 3) == 1.108
    return Measured(f"{min(ratios) - 1:+.1e} to {max(ratios) - 1:+.1e}; {found:.3f} and {added:.3f}", holds)


@claim(
    "ledger",
    "Renyi divergence of Gaussian noise on a subset of fixed size (q = 0.01, s = 1), orders 2, 3, 8 and 32, over that "
    "of dp-accounting (Wang, Balle and Kasiviswanathan)",
    "never above; half of it at order 2",
)
def subset_renyi() -> Measured:
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    loss, orders = FixedSizeGaussian(0.01, 1.0, neighbours=REPLACE), [2.0, 3.0, 8.0, 32.0]
    theirs = RdpAccountant(orders, NeighboringRelation.REPLACE_ONE).compose(to_dp_event(loss))._rdp
    ratios = loss.renyi(np.array(orders)) / theirs
    return Measured(", ".join(f"{ratio:.3f}" for ratio in ratios), bool(ratios.max() <= 1 and ratios[0] <= 0.55))


def _mixtures() -> list[PrivacyLoss]:
    gaussian, laplace = GaussianDP(0.5, neighbours=ADD_REMOVE), LaplaceDP(0.25, neighbours=ADD_REMOVE)
    step = SubsampledGaussian(0.01, 1.0, neighbours=ADD_REMOVE)
    rare = SubsampledGaussian(0.004, 0.8, neighbours=ADD_REMOVE)
    return [10 * gaussian, 30 * laplace, 1000 * step, 5000 * rare, gaussian + 3 * laplace + 100 * step]


@claim(
    "ledger", "Events of dp-accounting: its epsilon (PLD accountant) and ours, five compositions, two deltas", "1e-3"
)
def interchange_agrees() -> Measured:
    from dp_accounting.pld import PLDAccountant

    largest, ours, theirs = 0.0, 0.0, 0.0
    for loss in _mixtures():
        for delta in (1e-3, 1e-6):
            event = to_dp_event(loss)
            start = time.process_time()
            found = from_dp_event(event, ADD_REMOVE).epsilon(delta)
            middle = time.process_time()
            other = PLDAccountant().compose(event).get_epsilon(delta)
            ours, theirs = ours + middle - start, theirs + time.process_time() - middle
            largest = max(largest, abs(found / other - 1))
    return Measured(f"{largest:.1e}; {ours:.1f} s here, {theirs:.1f} s there", largest <= 1e-3)


@claim(
    "ledger",
    "1,000 steps of DP-SGD (q = 0.01, noise 1) and one path (certified, line, n = 100, r = 6, sigma = 1), both under "
    "replace: epsilon at 1e-5 over the sum of their epsilons at 5e-6",
    "< 0.95; <= 1 s",
)
def training_and_map() -> Measured:
    training = 1000 * SubsampledGaussian(0.01, 1.0, neighbours=REPLACE)
    path = certified_loss(n=100, ridge=6.0, scale=1.0, assumption=Exponential1D(1.0), least_kernel=math.exp(-2))
    start = time.process_time()
    together = (training + path).guarantee(1e-5)
    seconds = time.process_time() - start
    apart = training.epsilon(5e-6) + path.epsilon(5e-6)
    text = f"{together.epsilon:.4f} against {apart:.4f}, {seconds:.2f} s"
    return Measured(text, together.epsilon < 0.95 * apart and seconds <= 1.0)


@claim(
    "ledger",
    "Where dp-accounting says 0 or too little (an infinite order, NaN, a tiny negative value, repeated randomised "
    "response), the same imported or written here",
    "never less than the truth",
)
def fails_closed() -> Measured:
    from dp_accounting import NeighboringRelation, dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    logging.getLogger("absl").setLevel(logging.ERROR)
    event = dp_event.GaussianDpEvent(0.1)
    with np.errstate(all="ignore"):
        infinite = RdpAccountant(orders=[2, 8, np.inf]).compose(event).get_epsilon(1e-5)
        missing = float(compute_epsilon([2.0], [math.nan], 1e-5)[0])
        negative = float(compute_epsilon([2.0, 3.0], [-1e-12, 50.0], 1e-5)[0])
    response = dp_event.SelfComposedDpEvent(dp_event.RandomizedResponseDpEvent(2 / (1 + math.exp(0.7)), 2), 3)
    once = PLDAccountant(NeighboringRelation.REPLACE_ONE).compose(response).get_epsilon(1e-9)
    extra = LaplaceDP(0.1, neighbours=ADD_REMOVE)
    nan = RenyiCurve(lambda x: np.full(x.shape, math.nan), neighbours=ADD_REMOVE, rule="nan")
    bad = RenyiCurve(lambda x: np.where(x < 1.5, -1e-12, 50.0), neighbours=ADD_REMOVE, rule="negative")
    ours = (
        (from_dp_event(event, ADD_REMOVE) + extra).epsilon(1e-5),
        (nan + extra).epsilon(1e-5),
        (bad + extra).epsilon(1e-5),
        Composition(((from_dp_event(response, REPLACE), 1),)).guarantee(1e-9, numerical=True).epsilon,
    )
    holds = ours[0] >= gaussian_epsilon(10.0, 1e-5) and ours[1] == math.inf and ours[2] > 4 and ours[3] >= 2.09
    text = f"there {infinite:.3g}, {missing:.3g}, {negative:.3g}, {once:.3g}; here " + ", ".join(
        f"{e:.4g}" for e in ours
    )
    return Measured(text, holds)


@claim(
    "ledger",
    "A profile known only to within 2 % (Gaussian, mu = 0.2, 1,200 nodes): epsilon of 50 at 1e-3 over the exact one",
    ">= 1; <= 1.02",
)
def noisy_profile() -> Measured:
    e = np.linspace(0, 12, 1201)
    noise = 1 + 0.02 * np.random.default_rng(1).random(e.size)
    table = PrivacyProfile(tuple(e), tuple(np.minimum(gaussian_delta(0.2, e) * noise, 1)), neighbours=REPLACE)
    ratio = (50 * table).epsilon(1e-3) / gaussian_epsilon(0.2 * math.sqrt(50), 1e-3)
    return Measured(f"{ratio:.4f}", 1 <= ratio <= 1.02)
