"""The exact law of the best of K runs over finitely many outputs, to hold bounds against."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from discretion.privacy import GaussianDP, Neighbours
from discretion.selection.bounds import generic_renyi, poisson_renyi, pure_cost, tnb_renyi
from discretion.selection.profile_bound import rank_curve, selection_deltas
from discretion.selection.repetitions import (
    Binomial,
    Capped,
    Fixed,
    NegativeBinomial,
    Poisson,
    Repetitions,
    geometric,
    logarithmic,
)
from discretion.selection.trade_off import Pair, pairs_of

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Finite:
    """Laws q and other of one run over finitely many outputs, on the data and on a neighbour; zeros allowed."""

    q: Array
    other: Array

    @property
    def turned(self) -> Finite:
        """The pair in the other order."""
        return Finite(self.other, self.q)

    def profile(self, epsilon: Array) -> Array:
        """H_(e^epsilon)(q || other)."""
        return np.maximum(self.q - np.exp(np.minimum(epsilon, 700.0))[..., None] * self.other, 0.0).sum(axis=-1)

    def renyi(self, x: Array) -> Array:
        """Renyi divergence of order 1 + x of q from other."""
        return divergence(self.q, self.other, x)

    def trade_off(self, w: Array) -> Array:
        """Largest mass of other at q-mass Phi(w), rounded up."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(self.q > 0, self.other / self.q, np.inf)
        order = np.argsort(-ratio, kind="stable")
        s, t = np.cumsum(self.q[order]), np.cumsum(self.other[order])
        first = self.other[self.q == 0].sum()
        kept = self.q[order] > 0
        nodes, values = np.append(0.0, s[kept]), np.append(first, t[kept])
        return np.minimum(np.interp(ndtr(w), nodes, values) * (1 + 1e-12), 1.0)

    @property
    def pair(self) -> Pair:
        """What the bounds are given."""
        return Pair(self.profile, self.turned.profile, self.trade_off)


def divergence(p: Array, r: Array, x: Array) -> Array:
    """Renyi divergence of order 1 + x of p from r, each x positive."""
    kept = p > 0
    with np.errstate(divide="ignore"):
        exponent = (1 + x)[:, None] * np.log(p[kept]) - x[:, None] * np.log(r[kept])
    top = exponent.max(axis=1)
    with np.errstate(invalid="ignore"):
        found = (top + np.log(np.exp(exponent - top[:, None]).sum(axis=1))) / x
    return np.where(np.isnan(found), np.inf, found)


def best_of(law: Repetitions, masses: Array, ranks: Array) -> Array:
    """Probabilities of the best of K runs: of each output, and last of the default.

    Args:
        law: of K.
        masses: of one run.
        ranks: a higher one is better; outputs of equal rank are told apart by a fresh uniform tag.
    """
    values, classes = np.unique(ranks, return_inverse=True)
    group = np.bincount(classes, masses, values.size)
    above, below = np.append(np.cumsum(group[::-1])[::-1][1:], 0.0), np.append(0.0, np.cumsum(group)[:-1])
    # from the side where less cancels
    high = law.success(np.minimum(above + group, 1.0)) - law.success(np.minimum(above, 1.0))
    low = law.pgf(np.minimum(below + group, 1.0)) - law.pgf(np.minimum(below, 1.0))
    won = np.where(above < 0.5, high, low)
    if isinstance(law, Poisson):
        won = np.exp(-law.mean * above) * -np.expm1(-law.mean * group)
    share = np.divide(masses, group[classes], out=np.zeros(masses.shape), where=group[classes] > 0)
    return np.append(won[classes] * share, law.none)


def random_pair(random: np.random.Generator, kind: int) -> Finite:
    """Random and adversarial pairs of 2 to 6 outputs: near or far, with null outputs, randomised responses."""
    size = int(random.integers(2, 7))
    q = random.dirichlet(np.full(size, random.choice([0.3, 1.0, 5.0])))
    if kind == 0:
        return Finite(q, random.dirichlet(np.full(size, 1.0)))
    if kind == 1:
        other = q * np.exp(random.uniform(0.05, 1.5) * random.uniform(-1, 1, size))
        return Finite(q, other / other.sum())
    if kind == 2:
        q, other = q.copy(), random.dirichlet(np.ones(size))
        q[0] *= random.choice([0.0, 1e-6])
        other[-1] *= random.choice([0.0, 1e-4])
        return Finite(q / q.sum(), other / other.sum())
    if kind == 3:
        e = random.uniform(0.1, 2.0)
        p = 1 / (1 + np.exp(e))
        return Finite(np.array([p, 1 - p]), np.array([1 - p, p]))
    if kind == 4:
        # Gaussian, cut into cells
        mu, cuts = random.uniform(0.1, 1.5), np.linspace(-5.0, 6.0, 60)
        edges = np.concatenate([[-np.inf], cuts, [np.inf]])
        return Finite(np.diff(ndtr(edges)), np.diff(ndtr(edges - mu)))
    # rare outputs that give much away
    rare, e = 10.0 ** random.uniform(-6, -2), random.uniform(0.5, 4.0)
    rest = random.dirichlet(np.ones(size))
    return Finite(np.append(rest * (1 - rare), rare), np.append(rest * (1 - rare * np.exp(e)), rare * np.exp(e)))


def orders(pair: Finite, random: np.random.Generator) -> list[Array]:
    """Ranks of the outputs: by likelihood ratio both ways, tied, in two blocks, and at random."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(pair.q > 0, pair.other / pair.q, np.inf)
    place = np.argsort(np.argsort(ratio)).astype(np.float64)
    cut = random.integers(0, ratio.size)
    blocks = np.where(place >= cut, ratio.size + place, -place)
    several = [place, -place, np.zeros(ratio.size), np.floor(place / 2), blocks, random.permutation(ratio.size)]
    return [np.asarray(each, dtype=np.float64) for each in several]


LAWS: tuple[Repetitions, ...] = (
    Poisson(0.05),
    Poisson(0.5),
    Poisson(1.0),
    Poisson(10.0),
    Poisson(100.0),
    geometric(2.0),
    geometric(10.0),
    geometric(100.0),
    logarithmic(10.0),
    logarithmic(100.0),
    NegativeBinomial.of_mean(-0.5, 10.0),
    NegativeBinomial.of_mean(-0.9, 5.0),
    NegativeBinomial.of_mean(0.5, 10.0),
    NegativeBinomial.of_mean(5.0, 20.0),
    Binomial(3, 0.5),
    Binomial(20, 0.5),
    Fixed(2),
    Fixed(5),
    Capped(Poisson(5.0), 6),
    Capped(logarithmic(10.0), 12),
    Capped(geometric(4.0), 3),
)
_EXCESS = np.array([0.2, 0.7, 1.0, 3.0, 9.0])
_ROUNDING = 1e-9


@dataclass
class Tally:
    """How many comparisons were made, how many exceeded a bound, and the largest exact over bound of each kind."""

    checks: int = 0
    violations: int = 0
    tightest: dict[str, float] = field(default_factory=dict)

    def compare(self, name: str, exact: Array, bound: Array, absolute: float) -> None:
        """Count comparisons; a value above its bound by more than rounding is a violation."""
        self.checks += exact.size
        self.violations += int(np.sum(exact > bound * (1 + _ROUNDING) + absolute))
        kept = np.isfinite(bound) & (bound > 1e-9)
        if np.any(kept):
            self.tightest[name] = max(self.tightest.get(name, 0.0), float(np.max(exact[kept] / bound[kept])))


def hold(random: np.random.Generator, bases: int, laws: tuple[Repetitions, ...] = LAWS) -> Tally:
    """Hold every bound against the exact law of the best of K runs of random pairs, in both orders."""
    tally = Tally()
    for number in range(bases):
        base = random_pair(random, number % 6)
        ranked = orders(base, random)
        both = (base, base.turned)
        common = bool(np.all(base.q * base.other > 0))
        limit = float(np.max(np.abs(np.log(base.q / base.other)))) if common else np.inf

        def renyi(x: Array, both: tuple[Finite, Finite] = both, limit: float = limit) -> Array:
            found = np.max([each.renyi(np.minimum(x, 1e6)) for each in both], axis=0)
            return np.where(x > 1e6, limit, np.minimum(found, limit))

        for law in laws:
            curves = [rank_curve(law, each.trade_off, 400) for each in both]
            bounds = {"generic Renyi": generic_renyi(renyi, law, curves)(_EXCESS)}
            if isinstance(law, NegativeBinomial):
                bounds["Renyi, negative binomial"] = tnb_renyi(renyi, np.inf, law)(_EXCESS)
            if isinstance(law, Poisson):
                bounds["Renyi, Poisson"] = poisson_renyi(renyi, law, [each.pair for each in both])(_EXCESS)
            for side in both:
                epsilons, deltas = selection_deltas(side.pair, law)
                some = np.linspace(0, epsilons.size - 1, 9).astype(int)[:-1]
                for ranks in ranked:
                    p, r = best_of(law, side.q, ranks), best_of(law, side.other, ranks)
                    exact = np.maximum(p - np.exp(np.minimum(epsilons[some], 700.0))[:, None] * r, 0.0).sum(axis=1)
                    tally.compare("profile", exact, deltas[some], 1e-13)
                    exact = divergence(p, r, _EXCESS)
                    for name, bound in bounds.items():
                        tally.compare(name, exact, bound, 1e-11)
                    # rounding of tiny probabilities weighs in ratios: only pairs of few outputs
                    if common and base.q.size < 10:
                        kept = p > 1e-12
                        largest = np.max(np.log(p[kept] / r[kept]), keepdims=True)
                        tally.compare("pure", largest, np.array([pure_cost(limit, law)]), 1e-3)
    return tally


def hold_gaussian(random: np.random.Generator, bases: int, laws: tuple[Repetitions, ...] = LAWS) -> Tally:
    """Hold the bounds of Gaussian runs, from their closed forms, against runs that report a fine cell of a Gaussian."""
    tally = Tally()
    for _ in range(bases):
        mu = float(random.uniform(0.1, 1.5))
        base = GaussianDP(mu, neighbours=Neighbours.REPLACE)
        pair = pairs_of(base)[0]
        edges = np.concatenate([[-np.inf], np.linspace(-6.0, 6.0 + mu, 150), [np.inf]])
        cells = Finite(np.diff(ndtr(edges)), np.diff(ndtr(edges - mu)))
        for law in laws:
            bounds = {"Gaussian, Renyi": generic_renyi(base.renyi_excess, law, [rank_curve(law, pair.trade_off, 400)])}
            if isinstance(law, NegativeBinomial):
                bounds["Gaussian, Renyi, negative binomial"] = tnb_renyi(base.renyi_excess, np.inf, law)
            if isinstance(law, Poisson):
                bounds["Gaussian, Renyi, Poisson"] = poisson_renyi(base.renyi_excess, law, [pair])
            found = {name: bound(_EXCESS) for name, bound in bounds.items()}
            epsilons, deltas = selection_deltas(pair, law)
            some = np.linspace(0, epsilons.size - 1, 9).astype(int)[:-1]
            for side in (cells, cells.turned):
                for ranks in orders(side, random):
                    p, r = best_of(law, side.q, ranks), best_of(law, side.other, ranks)
                    exact = np.maximum(p - np.exp(np.minimum(epsilons[some], 700.0))[:, None] * r, 0.0).sum(axis=1)
                    tally.compare("Gaussian, profile", exact, deltas[some], 1e-13)
                    for name, bound in found.items():
                        tally.compare(name, divergence(p, r, _EXCESS), bound, 1e-11)
    return tally
