"""Excursion sets {f >= 0} of one posterior path at the same epsilon, under the published and the certified account.

Each account chooses kernel, length scale, ridge and filter on public simulated worlds; the posterior scale is the
least that meets epsilon there. The worlds scored are those of :mod:`studies.excursions`, so that columns can be
compared world by world.

``published``
    Maciazek 2026 as it was run: exponential kernel, ridge at most 10, Theorem 3.1 with Corollary 1 on the line and
    with the operator bound of Appendix D.3 elsewhere.
``published_free``
    The same bounds, the smaller where both hold, with the kernels and ridges of the certified account.
``certified``
    The worst case over all neighbours by branch and bound (``docs/proofs/certified-renyi.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from discretion.gp import RBF, Exponential, Kernel
from discretion.posterior import Bounded, Exponential1D
from discretion.posterior.certified import CertifiedTable
from discretion.posterior.divergence import Route, two_norm_route
from discretion.posterior.rules import published_epsilon
from discretion.posterior.sensitivity import mean_sensitivity_operator, posterior_variance_bound
from discretion.posterior.worlds import Worlds
from discretion.privacy.conversion import renyi_to_epsilon
from discretion.studies.path_sampler import PathSampler
from studies.excursion_settings import (
    EPSILONS,
    LENGTHS,
    NUGGET,
    TRAINING,
    WIDTHS,
    Floats,
    default_worlds,
    filtered,
    public_worlds,
    published_delta,
    scores,
    simulator,
    test_worlds,
)

ACCOUNTS = ("published", "published_free", "certified")
RIDGES = {1: (3.0, 4.5, 6.5, 10.0, 16.0, 64.0, 256.0), 2: (3.0, 5.0, 7.0, 10.0, 16.0, 64.0, 256.0)}
PUBLISHED_RIDGE = 10.0
SEARCH, SEARCH_RELEASES = {1: 300, 2: 80}, {1: 6, 2: 3}
"""Public worlds on which an account chooses, and paths of each, by dimension."""
_SCAN = np.linspace(0.0, 1.0, 40)

Held = Bounded | Exponential1D


class Choice(NamedTuple):
    """What an account chose on public worlds; ``width`` is that of the filter, in nodes."""

    kernel: Kernel
    ridge: float
    scale: float
    width: float


@dataclass(frozen=True, eq=False)
class PosteriorRow:
    """Scores of one setting by account: ``scores[account]`` (worlds,), mean IoU over the paths of each world."""

    scores: dict[str, Floats]
    chosen: dict[str, Choice]


# --- the scale that an account asks for ---------------------------------------------------------------------------


def assumption(kernel: Kernel, dimension: int) -> Held:
    """Responses in [-1, 1]; on the line the exponential kernel has an account of its own."""
    return Exponential1D(1.0) if dimension == 1 and isinstance(kernel, Exponential) else Bounded(1.0)


def operator_epsilon(n: int, ridge: float, least_kernel: float, scale: Floats, delta: float) -> Floats:
    """Maciazek 2026, Theorem 3.1 with the bound of Appendix D.3, M = 1; it is never above that of Lemma B.1."""
    variance = posterior_variance_bound(n, ridge, least_kernel)
    return _epsilon(two_norm_route(variance, ridge, mean_sensitivity_operator(n, variance, ridge), scale), delta)


def _epsilon(route: Route, delta: float) -> Floats:
    tau, direct, coupled = np.broadcast_arrays(route.tau, route.direct, route.coupled)
    full = Route(tau, direct, coupled)
    return np.asarray(renyi_to_epsilon(full.renyi, full.supremum, np.full(tau.shape, delta))[0])


def least_scales(cost: Callable[[Floats], Floats], epsilon: Floats, ridge: float) -> Floats:
    """Least scales whose cost, which falls with the scale, is at most ``epsilon`` (E,); infinity where none is.

    ``cost`` takes scales (k, E). Four scans of ``ridge^2 scale``, each within one step of the last, to 1e-6; every
    scale returned was checked.
    """
    low, high = np.full(epsilon.shape, 0.1 / ridge**2), np.full(epsilon.shape, 1e4 / ridge**2)
    met = np.zeros((1, *epsilon.shape), dtype=np.bool_)
    for _ in range(4):
        grid = low * (high / low) ** _SCAN[:, None]
        met = cost(grid) <= epsilon
        first = np.argmax(met, axis=0)[None]
        low = np.take_along_axis(grid, np.maximum(first - 1, 0), axis=0)[0]
        high = np.take_along_axis(grid, first, axis=0)[0]
    return np.where(met.any(axis=0), high, np.inf)


@cache
def certified_scales(held: Held, n: int, ridge: float, delta: float, epsilons: tuple[float, ...]) -> Floats:
    """Least scales under the certified account with least kernel value 0: one table for every length scale."""
    table = CertifiedTable(n, ridge, held)
    return least_scales(lambda s: table.epsilon(s, delta), np.array(epsilons), ridge)


def equal_epsilon_scales(
    kernel: Kernel, dimension: int, n: int, ridge: float, epsilons: tuple[float, ...]
) -> dict[str, Floats]:
    """Scales (E,) that meet each epsilon under each account; infinity where none does or the account has no such path.

    The certified scale is never above that of the published bounds.
    """
    held, delta, target = assumption(kernel, dimension), published_delta(dimension, n), np.array(epsilons)
    least = kernel.least_value(simulator(dimension, n, 0.0).domain)
    free = least_scales(lambda s: operator_epsilon(n, ridge, least, s, delta), target, ridge)
    published = free
    if isinstance(held, Exponential1D):
        line: dict[str, Any] = {"n": n, "ridge": ridge, "least_kernel": least, "delta": delta, "assumption": held}
        published = least_scales(lambda s: published_epsilon(scale=s, **line)[0], target, ridge)
        free = np.minimum(free, published)
    as_run = isinstance(kernel, Exponential) and ridge <= PUBLISHED_RIDGE
    return {
        "published": published if as_run else np.full(target.shape, np.inf),
        "published_free": free,
        "certified": np.minimum(free, certified_scales(held, n, ridge, delta, epsilons)),
    }


# --- the study ----------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A column of a row: M_xi, epsilon and the account."""

    noise: float
    epsilon: float
    account: str


def path_kernels(dimension: int) -> list[Kernel]:
    """Candidates for the posterior path."""
    return [kind(l) for kind in (RBF, Exponential) for l in LENGTHS[dimension]]


class Study(NamedTuple):
    """One dimension and n; the worlds of all noises share covariates, hence covariances and centred paths."""

    dimension: int
    n: int
    cases: tuple[Case, ...]

    @property
    def epsilons(self) -> tuple[float, ...]:
        return tuple(sorted({case.epsilon for case in self.cases}))

    def path_scores(
        self,
        kernel: Kernel,
        worlds: dict[float, Worlds],
        scales: dict[tuple[float, float], dict[Case, float]],
        releases: int,
        rng: np.random.Generator,
    ) -> dict[tuple[Case, float, float], Floats]:
        """IoU (worlds,), mean over releases, of the cases that ``scales`` names at each (ridge, width)."""
        setting = simulator(self.dimension, self.n, 0.0)
        sampler = PathSampler(kernel, setting.domain.grid(setting.grid), NUGGET)
        ridges = tuple(sorted({ridge for ridge, _ in scales}))
        noises, first = list(worlds), next(iter(worlds.values()))
        assert all(np.array_equal(each.covariates, first.covariates) for each in worlds.values())
        found = {(case, *at): np.empty(len(first)) for at, wanted in scales.items() for case in wanted}
        for w in range(len(first)):
            Y = np.stack([each.responses[w] for each in worlds.values()], axis=1)
            truth = first.targets[w] >= 0
            paths = sampler.paths(first.covariates[w], Y, ridges, releases, rng)
            for ridge, (means, centred) in zip(ridges, paths, strict=True):
                for width in (width for r, width in scales if r == ridge):
                    means_here, centred_here = (filtered(a, setting.grid, width) for a in (means, centred))
                    for case, scale in scales[ridge, width].items():
                        path = means_here[noises.index(case.noise)] + scale * centred_here
                        found[case, ridge, width][w] = scores(path, 0.0, truth).mean()
        return found

    def choose(self, worlds: dict[float, Worlds], seed: int) -> dict[Case, Choice]:
        """For each case the candidate with the largest mean IoU on public worlds; all see the same random numbers."""
        releases = SEARCH_RELEASES[self.dimension]
        best = dict.fromkeys(self.cases, -1.0)
        chosen: dict[Case, Choice] = {}
        for kernel in path_kernels(self.dimension):
            scales: dict[tuple[float, float], dict[Case, float]] = {}
            for ridge in RIDGES[self.dimension]:
                table = equal_epsilon_scales(kernel, self.dimension, self.n, ridge, self.epsilons)
                least = {case: float(table[case.account][self.epsilons.index(case.epsilon)]) for case in self.cases}
                met = {case: scale for case, scale in least.items() if np.isfinite(scale)}
                scales |= {(ridge, width): met for width in WIDTHS[self.dimension]}
            rng = np.random.default_rng([seed, 5])
            for (case, ridge, width), found in self.path_scores(kernel, worlds, scales, releases, rng).items():
                if found.mean() > best[case]:
                    best[case] = float(found.mean())
                    chosen[case] = Choice(kernel, ridge, scales[ridge, width][case], width)
        return chosen

    def score(
        self, chosen: dict[Case, Choice], worlds: dict[float, Worlds], releases: int, rng: np.random.Generator
    ) -> dict[Case, Floats]:
        """IoU (worlds,) of what was chosen."""
        result: dict[Case, Floats] = {}
        for kernel in dict.fromkeys(choice.kernel for choice in chosen.values()):
            scales: dict[tuple[float, float], dict[Case, float]] = {}
            for case, choice in chosen.items():
                if choice.kernel == kernel:
                    scales.setdefault((choice.ridge, choice.width), {})[case] = choice.scale
            found = self.path_scores(kernel, worlds, scales, releases, rng)
            result |= {case: values for (case, _, _), values in found.items()}
        return result


def posterior_rows(
    dimension: int,
    n: int,
    noises: tuple[float, ...],
    epsilons: tuple[float, ...] = EPSILONS,
    *,
    worlds: int | None = None,
    releases: int = 50,
    training: int = TRAINING,
    search: int | None = None,
    seed: int = 0,
) -> dict[tuple[float, float], PosteriorRow]:
    """Score one posterior path under each account, by (noise, epsilon).

    Parameters
    ----------
    dimension, n, noises, epsilons
        The settings; ``noises`` are values of M_xi.
    worlds, releases, training, seed
        As in :func:`studies.excursions.decoder_row`; the same worlds are scored.
    search : int
        Public worlds on which the settings are chosen, at most ``training``; ``SEARCH`` unless given.
    """
    count = default_worlds(dimension) if worlds is None else worlds
    study = Study(dimension, n, tuple(Case(x, e, a) for x in noises for e in epsilons for a in ACCOUNTS))
    public = {x: public_worlds(dimension, n, x, training, seed)[: search or SEARCH[dimension]] for x in noises}
    chosen = study.choose(public, seed)
    test = {x: test_worlds(dimension, n, x, count, seed) for x in noises}
    found = study.score(chosen, test, releases, np.random.default_rng([seed, 6]))
    rows: dict[tuple[float, float], PosteriorRow] = {}
    for x in noises:
        for e in epsilons:
            cases = {account: Case(x, e, account) for account in ACCOUNTS}
            rows[x, e] = PosteriorRow(
                {account: found[case] for account, case in cases.items()},
                {account: chosen[case] for account, case in cases.items()},
            )
    return rows
