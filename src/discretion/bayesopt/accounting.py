"""What steps of a private descent cost together, and what a run of them protects.

Step t releases a mean of sensitivity Delta_t with Gaussian noise sigma_t: it is mu_t-GDP, mu_t = Delta_t / sigma_t,
whatever was released before, and T of them are sqrt(sum mu_t^2)-GDP (Dong, Roth and Su 2022).
`docs/proofs/gradient-descent.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from scipy.special import ndtri

from discretion.bayesopt.clipping import per_record_sensitivity
from discretion.privacy import GaussianDP, Neighbours, PublicError, gaussian_mu
from discretion.privacy.sums import root_sum_of_squares

__all__ = [
    "RULE",
    "BudgetSpent",
    "GaussianFilter",
    "gradient_loss",
    "gradient_noise",
    "mu_of_pure",
    "mu_within",
    "training_mu_per_run",
    "training_mu_total",
]

RULE = "adaptive composition of Gaussian mechanisms, exact (Dong, Roth and Su 2022)"

_HAIR = 1e-13


class BudgetSpent(PublicError):
    """A run asked for more than was fixed for it in advance."""


def gradient_noise(*, mu: float, clip: float, n: int, steps: int, neighbours: Neighbours = Neighbours.REPLACE) -> float:
    """sigma = 2 B sqrt(T) / (n mu), the noise of each released gradient in each coordinate, with which T are mu-GDP.

    `clip` is B, in units of the gradient, and `steps` T; under add/remove `neighbours` as in `per_record_sensitivity`.

    Source: Sopa et al. 2025, Algorithm 1, for losses clipped record by record. `docs/proofs/gradient-descent.md`.

    Raises:
        ValueError: a parameter that is not positive.
    """
    _positive("mu", mu)
    return per_record_sensitivity(clip, n, neighbours) * math.sqrt(_count("steps", steps)) / mu


def gradient_loss(
    *, noise: float, clip: float, n: int, steps: int, neighbours: Neighbours = Neighbours.REPLACE
) -> GaussianDP:
    """What `steps` releases of clipped mean gradients cost with this noise: mu = 2 B sqrt(T) / (n sigma).

    `noise` is sigma, in each coordinate, `clip` B in the same unit; `neighbours` as in `per_record_sensitivity`.

    Raises:
        ValueError: a parameter that is not positive.
    """
    _positive("noise", noise)
    one = per_record_sensitivity(clip, n, neighbours) / noise
    total = root_sum_of_squares([(_count("steps", steps), one)])
    return GaussianDP(total, neighbours=neighbours, rule=RULE)


def mu_within(epsilon: float, delta: float) -> float:
    """The largest mu, to a hair, whose exact epsilon at delta, rounded up, is at most `epsilon`.

    Raises:
        ValueError: epsilon not positive, delta outside (0, 1).
    """
    _positive("epsilon", epsilon)
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta!r}.")
    mu = float(gaussian_mu(epsilon, delta))
    while GaussianDP(mu, neighbours=Neighbours.REPLACE).epsilon(delta) > epsilon * (1.0 - _HAIR):
        mu *= 1.0 - _HAIR
    return mu


def mu_of_pure(epsilon: float) -> float:
    """The least mu such that every epsilon-DP mechanism is mu-GDP: 2 Phi^-1(e^eps / (1 + e^eps)).

    The trade-off function of epsilon-DP is made of two chords that meet on the diagonal; that of mu-GDP is convex and
    passes through the same point. `docs/proofs/gradient-descent.md`, Lemma 2.
    """
    _positive("epsilon", epsilon)
    return -2.0 * float(ndtri(math.exp(-epsilon) / (1.0 + math.exp(-epsilon))))


def training_mu_per_run(mu: float, runs: int) -> float:
    """mu_0 = mu / sqrt(N): how private each of N training runs must be for their records to have mu in all.

    All b T evaluations of a search train a model each. (Runs of mu / (b sqrt(T)), which Sopa et al. ask for, are more
    private than that needs.)
    """
    _positive("mu", mu)
    return mu / math.sqrt(_count("runs", runs))


def training_mu_total(mu_per_run: float, runs: int, validation_mu: float = 0.0) -> float:
    """sqrt(N mu_0^2 + mu^2): what a record costs that is in the training set and, with mu > 0, in the validation set.

    `mu_per_run` is mu_0, `runs` N, `validation_mu` mu; all Gaussian DP.

    For disjoint sets a record costs the one or the other. The model trained at the end is another run.
    """
    return root_sum_of_squares([(_count("runs", runs), mu_per_run), (1, validation_mu)])


@dataclass
class GaussianFilter:
    """A budget of mu for steps whose costs may depend on earlier releases: the sum of mu_t^2 never exceeds mu^2.

    What may be stated is the budget, not the smaller sum that was spent (Smith and Thakurta 2022; Koskela, Tobaben and
    Honkela 2023). `parts` are the costs so far.
    """

    mu: float
    parts: list[float] = field(default_factory=list)

    def charge(self, mu: float) -> None:
        """Spend mu.

        Raises:
            BudgetSpent: it does not fit; nothing is spent.
            ValueError: mu is negative or not finite.
        """
        if not (math.isfinite(mu) and mu >= 0):
            raise ValueError("A step's mu must be finite and not negative.")
        if root_sum_of_squares([(1, each) for each in (*self.parts, mu)]) > self.mu:
            raise BudgetSpent(f"A step of mu = {mu:g} does not fit: {self.left:g} of mu = {self.mu:g} is left.")
        self.parts.append(mu)

    @property
    def spent(self) -> float:
        """sqrt(sum mu_t^2)."""
        return root_sum_of_squares([(1, each) for each in self.parts])

    @property
    def left(self) -> float:
        """The mu of one more step that just fits."""
        return math.sqrt(max(self.mu**2 - self.spent**2, 0.0))


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive finite number; got {value!r}.")


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}.")
    return int(value)
