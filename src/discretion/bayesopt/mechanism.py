"""Private local Bayesian optimisation as a mechanism: what is public, what a run costs, and one step of it.

At each step, around theta: choose locations Z, evaluate the losses l_i of every record there, and release

    (1/n) sum_i clip_B(A l_i) + sigma_t g,    sigma_t = 2 B / (n mu_t),    sum mu_t^2 = mu^2,

A the map from losses to the posterior mean of the gradient. Then move. Locations, A and sigma depend on releases
alone, so that the run is mu-GDP whatever the losses do: no assumption on them, on the kernel or on B is needed, only
that the loss of a record depends on no other record. `docs/proofs/gradient-descent.md`.

Source: Sopa, Marusic, Avella-Medina and Cunningham, *Scalable differentially private Bayesian optimization* (2025).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt import promise
from discretion.bayesopt.accounting import RULE, mu_within
from discretion.bayesopt.clipping import per_record_sensitivity
from discretion.bayesopt.descent import AdaGrad, Constant, Schedule, Update
from discretion.bayesopt.kernels import GradientKernel, gradient_kernel
from discretion.bayesopt.planning import INFLATED, Plan, planned
from discretion.bayesopt.release import LocalSearchRelease
from discretion.bayesopt.sampling import sampled_loss, sampled_mu
from discretion.bayesopt.space import Space
from discretion.bayesopt.surrogate import MEAN_NUGGET, POINT_NUGGET, Offset
from discretion.gp import RBF
from discretion.privacy import Certificate, GaussianDP, Neighbours, PrivacyLoss, PublicError, Randomness
from discretion.privacy.clipping import AdaptiveClip, clip
from discretion.privacy.delta import UNSTATED
from discretion.privacy.frames import cleared
from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.sampling import sampling_rate

__all__ = ["Evaluations", "LocalSearch"]

Floats = NDArray[np.float64]

_UPDATE, _SCHEDULE = AdaGrad(0.1), Constant()


@dataclass(frozen=True, eq=False)
class Evaluations:
    """PRIVATE. What `LocalSearch.run` runs on: a function of parameters that gives the losses, and how many records.

    Args:
        losses: called with the list of the b parameter dictionaries of a step; returns (n, b) losses or chunks of such
            rows (means, shape (b,), in aggregate mode).
        n: the public number of records.
    """

    losses: Callable[[list[dict[str, Any]]], Any]
    n: int

    def __repr__(self) -> str:
        return "Evaluations(PRIVATE)"


@dataclass(frozen=True, eq=False)
class LocalSearch:
    """The public parameters of a private local search. All are fixed before a record is read.

    Parameters
    ----------
    space : Space
    mu : float
        What the whole run costs in Gaussian DP; or use `calibrated(epsilon=, delta=)`.
    steps : int
        T, fixed in advance.
    clip : float
        B, the norm to which each record's gradient estimate is clipped, in loss per scaled unit. Privacy holds whatever
        it is; a B that clips most records biases the direction, a B that clips none adds noise.
    delta : float
        The delta at which the certificate states epsilon; by default that of the ledger that pays, else 1e-5.
    start : dict, optional
        Parameters to begin at; the middle of the box by default.
    batch : int, optional
        b, evaluations a step; d + 1 by default.
    tolerance : float, optional
        Instead of a fixed b: the smallest b <= `batch` that brings the trace to this fraction of its prior value.
    kernel
        RBF, Matern52, RationalQuadratic, Matern32 of `discretion.gp`, or `Polynomial`; length scales in scaled units.
        By default RBF(0.2), and along whole numbers at least five of them long, so that neighbours can be compared.
        The prior belief about the loss surface: public, never fitted to private losses.
    offset : {"trend", "mean", "none"}
        What becomes of a record's constant.
    cache : int, optional
        How many old evaluations nearest to theta are used again; 3 d by default, none in aggregate mode. Their losses
        are kept in memory: private.
    update : Update
        AdaGrad (default), SGD, Momentum or Adam; TrustRegion moves to the minimiser of the surrogate nearby.
    schedule : Schedule
        How mu^2 is divided among the steps.
    largest_loss : float, optional
        Lambda. Aggregate mode: only means over records of losses clamped to [0, Lambda] are told. The noise is then
        up to many times larger.
    norm : float
        A guess of the losses' RKHS norm, from which the aggregate mode chooses how far apart to evaluate.
    adaptive_clip : AdaptiveClip, optional
        Learn the clipping norm, for a share of the budget.
    learn_kernel, smooth : bool
        Fit length scale and variance to the released gradients, for later locations; move along the posterior mean of
        the gradient given all releases. Free of charge.
    point_nugget, mean_nugget : float
        Noise variance of evaluations in units of the signal variance, where locations are chosen and in the map. For
        noisy evaluations both are the public variance of the noise.
    metric : dict, optional
        Positive m_j by name of the parameter, 1 where none is given: estimates are clipped where sum_j m_j u_j^2
        exceeds B^2, and coordinate j gets noise sigma / sqrt(m_j). For gradients whose scales are known to differ.
    sample_rate : float, optional
        q: in each step a record takes part with this probability, secretly; only the losses of those are told. mu is
        then what the noise gives *before* sampling; the certificate states the smaller epsilon after it. No cache.
    training_mu : float, optional
        mu_0 of each training run, where evaluations train on private records; None: training data are public.
    seed : int
        Public: turns the stencils.
    unit : str
        The unit of privacy in words.

    Raises
    ------
    ValueError
        A parameter out of range; the message says how to mend it.
    """

    space: Space
    mu: float
    steps: int
    clip: float
    delta: float = UNSTATED
    start: Mapping[str, Any] | None = None
    batch: int | None = None
    tolerance: float | None = None
    kernel: Any = None
    offset: Offset = "trend"
    cache: int | None = None
    update: Update = _UPDATE
    schedule: Schedule = _SCHEDULE
    largest_loss: float | None = None
    norm: float = 1.0
    adaptive_clip: AdaptiveClip | None = None
    learn_kernel: bool = False
    smooth: bool = False
    point_nugget: float = POINT_NUGGET
    mean_nugget: float = MEAN_NUGGET
    metric: Mapping[str, float] | None = None
    sample_rate: float | None = None
    training_mu: float | None = None
    seed: int = 0
    unit: str = "one record of those on which losses are evaluated"

    name = "private-local-search"
    neighbours = Neighbours.REPLACE
    n_is_public = True

    def __post_init__(self) -> None:
        if not isinstance(self.space, Space):
            object.__setattr__(self, "space", Space(self.space))
        if self.kernel is None:
            object.__setattr__(self, "kernel", RBF(self.space.length_scale(0.2)))
        numbers = {"mu": self.mu, "norm": self.norm, "point_nugget": self.point_nugget, "mean_nugget": self.mean_nugget}
        optional = {"tolerance": self.tolerance, "largest_loss": self.largest_loss, "training_mu": self.training_mu}
        for label, value in (numbers | {k: v for k, v in optional.items() if v is not None}).items():
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{label} must be a positive finite number; got {value!r}.")
        counts = {"steps": self.steps, "batch": self.batch, "cache": self.cache, "seed": self.seed}
        for label, value in counts.items():
            least = 0 if label in ("cache", "seed") else 1
            if value is not None and (isinstance(value, bool) or int(value) != value or value < least):
                raise ValueError(f"{label} must be a whole number of at least {least}; got {value!r}.")
        per_record_sensitivity(self.clip, 1)
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {self.delta!r}.")
        if self.offset not in ("trend", "mean", "none"):
            raise ValueError(f'offset must be "trend", "mean" or "none"; got {self.offset!r}.')
        if self.aggregate and self.adaptive_clip is not None:
            raise ValueError("adaptive_clip needs the losses of each record, which the aggregate mode does not see.")
        if self.aggregate and self.tolerance is not None:
            raise ValueError("In aggregate mode locations are chosen for their noise too; leave out tolerance.")
        if self.sample_rate is not None:
            object.__setattr__(self, "sample_rate", sampling_rate(self.sample_rate))
            if self.aggregate or self.adaptive_clip is not None or self.cache or self.training_mu is not None:
                raise ValueError(
                    "sample_rate is for losses of each record alone: leave out adaptive_clip, cache and training_mu."
                )
        object.__setattr__(self, "start", self.space.parameters(self._start()))
        _ = self.gradient_kernel.scales(self.space.size), self.shares, self.weights

    @classmethod
    def calibrated(cls, space: Any, *, epsilon: float, delta: float, **parameters: Any) -> Self:
        """The search that costs (epsilon, delta): with the largest mu that does. Other arguments as for the class."""
        if parameters.get("sample_rate") is None:
            return cls(space, mu=mu_within(epsilon, delta), delta=delta, **parameters)
        trial = cls(space, mu=1.0, delta=delta, **parameters)
        assert trial.sample_rate is not None
        return replace(trial, mu=sampled_mu(trial.shares, trial.sample_rate, epsilon, delta))

    def _start(self) -> Floats:
        return np.zeros(self.space.size) if self.start is None else self.space.theta(self.start)

    # --- what it costs, from public parameters alone

    @property
    def aggregate(self) -> bool:
        """Whether only means over the records are seen."""
        return self.largest_loss is not None

    @cached_property
    def gradient_kernel(self) -> GradientKernel:
        """The kernel with its derivatives."""
        return gradient_kernel(self.kernel)

    @cached_property
    def shares(self) -> Floats:
        """The shares of mu^2, one a step, (steps,); ValueError unless positive and of sum 1."""
        shares = np.asarray(self.schedule.shares(self.steps), dtype=np.float64)
        if shares.shape != (self.steps,) or not ((shares > 0).all() and abs(shares.sum() - 1.0) < 1e-12):
            raise ValueError("The schedule must give one positive share a step, which sum to 1.")
        return shares

    @cached_property
    def weights(self) -> Floats:
        """sqrt(m_j), (d,): the square roots of the metric; ValueError for an unknown name or a number not positive."""
        metric = {} if self.metric is None else dict(self.metric)
        if not set(metric) <= set(self.space.names):
            raise ValueError(f"metric may name {', '.join(self.space.names)}, and nothing else.")
        values = np.array([float(metric.get(name, 1.0)) for name in self.space.names])
        if not ((values > 1e-24) & (values < 1e24)).all():
            raise ValueError("metric must give positive numbers of ordinary size.")
        return np.sqrt(values)

    @property
    def most_evaluations(self) -> int:
        """How many evaluations a run makes at most."""
        return self.steps * self.most_batch

    @property
    def most_batch(self) -> int:
        """How many evaluations a step makes at most."""
        return self.space.size + 1 if self.batch is None else self.batch

    @property
    def most_cached(self) -> int:
        """How many old evaluations are kept."""
        none = self.aggregate or self.sample_rate is not None
        return (0 if none else 3 * self.space.size) if self.cache is None else self.cache

    def noise(self, n: int, step: int = 0) -> float:
        """sigma_t of a step on n records, at the clipping norm as given (not known in advance in aggregate mode)."""
        mu, _ = self.costs(step)
        return per_record_sensitivity(self.clip, n) / mu * INFLATED / (self.sample_rate or 1.0)

    def privacy_loss(self, n: int) -> PrivacyLoss:
        """mu-GDP for the whole run, whatever the losses do; less with `sample_rate`.

        Proof: `docs/proofs/gradient-descent.md`, Theorems 1 and 4.
        """
        if self.sample_rate is not None:
            return sampled_loss((self.costs(step)[0] for step in range(self.steps)), self.sample_rate)
        return GaussianDP(self.mu, neighbours=self.neighbours, rule=RULE)

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data."""
        optional = {"tolerance": self.tolerance, "largest_loss": self.largest_loss, "training_mu": self.training_mu}
        optional |= {"sample_rate": self.sample_rate, "metric": None if self.metric is None else dict(self.metric)}
        adaptive = self.adaptive_clip
        return optional | {
            "space": self.space.describe(),
            "mu": self.mu,
            "steps": int(self.steps),
            "clip": self.clip,
            "start": dict(self.start or {}),
            "batch": int(self.most_batch),
            "kernel": repr(self.kernel),
            "offset": self.offset,
            "cache": int(self.most_cached),
            "update": self.update.describe(),
            "schedule": self.schedule.describe(),
            "norm": self.norm,
            "adaptive_clip": None if adaptive is None else vars(adaptive).copy(),
            "learn_kernel": bool(self.learn_kernel),
            "smooth": bool(self.smooth),
            "point_nugget": self.point_nugget,
            "mean_nugget": self.mean_nugget,
            "seed": int(self.seed),
        }

    def scope(self) -> str:
        """Whom the guarantee protects, in words."""
        return promise.scope(self)

    def certificate(self, n: int, randomness: Randomness) -> Certificate:
        """The certificate of a run on n records, finished or not: it states the budget, not what was spent of it.

        It says whether `randomness` can be replayed.
        """
        return Certificate.issue(
            self,
            n=n,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
            enforced=promise.enforced(self),
            declared=promise.declared(self),
            limits=promise.limits(self),
        )

    # --- one step

    def costs(self, step: int) -> tuple[float, float | None]:
        """mu of a step's gradient, and of its fraction of unclipped records."""
        mu = self.mu * math.sqrt(self.shares[step])
        if self.adaptive_clip is None:
            return mu, None
        share = self.adaptive_clip.share
        return mu * math.sqrt(1.0 - share), mu * math.sqrt(share)

    def plan(
        self,
        n: int,
        step: int,
        theta: Floats,
        old: Floats,
        clip_norm: float,
        *,
        kernel: GradientKernel | None = None,
        new: Floats | None = None,
    ) -> Plan:
        """Where to evaluate at theta, the map and the noise: see `planned`."""
        return planned(self, n, step, theta, old, clip_norm, kernel=kernel, new=new)

    def released(self, plan: Plan, n: int, total: Floats, unclipped: int, randomness: Randomness) -> tuple[Floats, Any]:
        """PRIVATE sum in, PUBLIC gradient and fraction out: noise is added to the sum of n clipped estimates.

        Of a sample, the sum is divided by the number that was expected, q n, not by the one that was drawn.
        """
        expected = n * (self.sample_rate or 1.0)
        scale = expected * plan.noise
        noisy = to_lattice(total + scale * randomness.standard_normal(total.shape), lattice_spacing(scale))
        noisy = noisy / expected / plan.weights
        if plan.fraction_noise is None:
            return noisy, None
        return noisy, AdaptiveClip.fraction(unclipped, n, n * plan.fraction_noise, randomness)

    def released_aggregate(self, plan: Plan, means: Floats, randomness: Randomness) -> Floats:
        """PRIVATE means in, PUBLIC gradient out."""
        largest = self.largest_loss or 0.0
        means = np.clip(np.where(np.isfinite(means), means, largest), 0.0, largest)
        exact = clip((plan.map @ means)[None], plan.clip)[0]
        noisy = to_lattice(exact + plan.noise * randomness.standard_normal(exact.shape), lattice_spacing(plan.noise))
        return noisy / plan.weights

    # --- as a mechanism

    @cleared
    def check(self, records: Any) -> int:
        """The number of records of `Evaluations`; PublicError for anything else."""
        if not isinstance(records, Evaluations):
            raise PublicError("A local search runs on Evaluations(losses, n).")
        return records.n

    @cleared
    def run(self, records: Evaluations, randomness: Randomness) -> LocalSearchRelease:
        """The whole run in memory. Called by a ledger after the loss has been reserved."""
        from discretion.bayesopt.study import Study

        study = Study(self, n=records.n, randomness=randomness)
        while not study.done:
            points = study.ask()
            losses = records.losses(points) if points else np.empty((records.n, 0))
            if self.sample_rate is not None and isinstance(losses, np.ndarray):
                losses = losses[study.sample()]
            (study.tell_mean if self.aggregate else study.tell)(losses)
        return study.result()
