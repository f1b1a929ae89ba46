"""Exact laws of adaptive search, shared rates, disjoint tuning and thresholds, to hold their bounds against."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import roots_sh_jacobi

from benchmarks.selection_truth import Finite, Tally, divergence
from discretion.privacy import Neighbours, PrivacyProfile, RenyiCurve
from discretion.selection.bounds import generic_renyi, pure_cost, tnb_renyi
from discretion.selection.extensions import SharedRate, disjoint_tuning_loss, threshold_loss
from discretion.selection.profile_bound import rank_curve, selection_deltas
from discretion.selection.proposals import DensityBox
from discretion.selection.repetitions import Binomial, Capped, Fixed, NegativeBinomial, Poisson, Repetitions, geometric

Array = NDArray[np.float64]

_EXCESS = np.array([0.2, 0.7, 1.0, 3.0, 9.0])
_EPSILONS = np.array([0.0, 0.1, 0.3, 0.7, 1.2, 2.0, 3.0])
SHORT_LAWS: tuple[Repetitions, ...] = (
    Fixed(1),
    Fixed(2),
    Binomial(3, 0.6),
    Capped(geometric(2.0), 3),
    Capped(Poisson(1.5), 3),
    Capped(NegativeBinomial.of_mean(-0.5, 2.0), 3),
)


def hockey_sticks(p: Array, r: Array, epsilons: Array) -> Array:
    """H at each epsilon."""
    return np.maximum(p - np.exp(epsilons)[:, None] * r, 0.0).sum(axis=1)


def joint(pair: Finite) -> RenyiCurve:
    """The larger Renyi divergence of the two orders of a pair, with its limit."""
    both = bool(np.all(pair.q * pair.other > 0))
    limit = float(np.max(np.abs(np.log(pair.q / pair.other)))) if both else np.inf

    def renyi(x: Array) -> Array:
        each = np.maximum(pair.renyi(np.minimum(x, 1e5)), pair.turned.renyi(np.minimum(x, 1e5)))
        return np.where(x > 1e5, limit, np.minimum(each, limit))

    return RenyiCurve(renyi, neighbours=Neighbours.ADD_REMOVE, rule="exact")


# --- Adaptive search ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Tree:
    """An adaptive search over finitely many outcomes: after each history of ranks, chances of the candidates.

    Attributes:
        candidate: of each outcome, shape (n,).
        chances: at depth k an array of shape (n,) * k + (candidates,).
    """

    candidate: NDArray[np.int64]
    chances: list[Array]

    @classmethod
    def random(
        cls, random: np.random.Generator, candidate: NDArray[np.int64], weights: tuple[float, ...], box: DensityBox
    ) -> Tree:
        """Proposals that want one candidate only, or a few, after each history, as far as the box lets them."""
        n, chances = candidate.size, []
        for depth in range(3):
            wanted = random.dirichlet(np.full(len(weights), 0.1), n**depth)
            held = [box.project(each, weights) for each in wanted]
            chances.append(np.array(held).reshape((n,) * depth + (len(weights),)))
        return cls(candidate, chances)

    def best(self, law: Repetitions, given: Array) -> Array:
        """Probabilities of the best of K runs, outcomes ranked by position, and last of the default.

        Args:
            law: of K, at most 3.
            given: probability of each outcome given that its candidate runs, shape (n,).
        """
        n = given.size
        found, path = np.append(np.zeros(n), law.none), np.ones(())
        for depth in range(3):
            path = path[..., None] * self.chances[depth][..., self.candidate] * given
            best = np.max(np.indices(path.shape), axis=0)
            found[:n] += float(law.pmf(depth + 1)) * np.bincount(best.ravel(), path.ravel(), n)
        return found


def hold_adaptive(random: np.random.Generator, trials: int) -> Tally:
    """Hold the bounds of adaptive search against exact trees of proposals, in both orders of the pair."""
    tally = Tally()
    for _ in range(trials):
        m, n = int(random.integers(2, 4)), 6
        candidate = random.permutation(np.arange(n) % m)
        weights = tuple((np.diff(np.sort(random.integers(1, 2**20, m - 1)), prepend=0, append=2**20) / 2**20).tolist())
        given = np.empty((2, n))
        for j in range(m):
            mine = candidate == j
            q = random.dirichlet(np.full(mine.sum(), random.choice([0.4, 2.0])))
            other = q * np.exp(random.uniform(0.05, 1.5) * random.uniform(-1, 1, mine.sum()))
            given[:, mine] = q, other / other.sum()
        box = DensityBox(random.choice([0.2, 0.5, 0.9, 1.0]), random.choice([1.0, 1.1, 1.5, 3.0]))
        tree = Tree.random(random, candidate, weights, box)
        base = Finite(*(np.array(weights)[candidate] * given))
        both, renyi = (base, base.turned), joint(base)
        for law in SHORT_LAWS:
            bests = [tree.best(law, each) for each in given]
            curves = [rank_curve(law, each.trade_off, 400, box) for each in both]
            bound = generic_renyi(renyi.renyi_excess, law, curves)(_EXCESS)
            for side, p, r in zip(both, bests, bests[::-1], strict=True):
                epsilons, deltas = selection_deltas(side.pair, law, box)
                some = np.linspace(0, epsilons.size - 1, 9).astype(int)[:-1]
                tally.compare("adaptive profile", hockey_sticks(p, r, epsilons[some]), deltas[some], 1e-13)
                tally.compare("adaptive Renyi", divergence(p, r, _EXCESS), bound, 1e-11)
                kept = p > 1e-14
                largest = np.max(np.log(p[kept] / r[kept]), keepdims=True)
                limit = renyi.renyi_excess(math.inf)
                tally.compare("adaptive pure", largest, np.array([pure_cost(limit, law, box)]), 1e-9)
        law = NegativeBinomial(float(random.choice([-0.5, 0.0, 1.0, 3.0])), float(random.uniform(0.02, 0.5)))
        # the closed form is never below what the curve itself gives
        curves = [rank_curve(law, each.trade_off, 2000, box) for each in both]
        sharp = generic_renyi(renyi.renyi_excess, law, curves)(_EXCESS)
        closed = tnb_renyi(renyi.renyi_excess, math.inf, law, box)(_EXCESS)
        tally.compare("adaptive Renyi, closed form", sharp, closed * (1 + 1e-4), 1e-9)
    return tally


# --- A shared random rate -----------------------------------------------------------------------------


def shared_best(rate: SharedRate, masses: Array, order: NDArray[np.int64]) -> Array:
    """Probabilities of the best of all runs, over outcomes from the worst to the best, the default first.

    Args:
        rate: the selection.
        masses: of each candidate's outcomes, shape (candidates, outcomes).
        order: the place of each (candidate, outcome) among all, flat.
    """
    nodes, weights = roots_sh_jacobi(rate.rounds * rate.candidates // 2 + 2, rate.exponent, rate.exponent)
    weights = weights / weights.sum()
    size = masses.size
    above = np.zeros((rate.candidates, size + 1))
    for j in range(rate.candidates):
        mine = np.zeros(size)
        mine[order.reshape(masses.shape)[j]] = masses[j]
        above[j, :-1] = np.cumsum(mine[::-1])[::-1]
    # P[best at most the outcome before place i] = E prod (1 - p mass from i on)^rounds
    below = np.prod(1 - nodes[:, None, None] * above, axis=1) ** rate.rounds
    return np.diff(weights @ below, prepend=0.0)


def hold_shared(random: np.random.Generator, trials: int) -> Tally:
    """Hold `SharedRate.loss` against exact integrals over the rate, for pure and for failing candidates."""
    tally = Tally()
    for number in range(trials):
        m, n = int(random.integers(1, 4)), int(random.integers(2, 4))
        rate = SharedRate(m, int(random.integers(1, 7)), float(random.choice([0.2, 0.5, 1.0, 2.0])))
        q = random.dirichlet(np.full(n, random.choice([0.2, 1.0])), m) + 1e-6
        q = q / q.sum(axis=1, keepdims=True)
        other = q * np.exp(random.uniform(0.05, 1.5) * random.choice([-1.0, 1.0], q.shape))
        other = other / other.sum(axis=1, keepdims=True)
        epsilon = float(np.max(np.abs(np.log(q / other))))
        deltas = random.uniform(0, 0.02, m) if number % 2 else np.zeros(m)
        if number % 2:  # with probability delta something that tells all
            zero = np.zeros((m, 1))
            q = np.hstack([q * (1 - deltas[:, None]), deltas[:, None], zero])
            other = np.hstack([other * (1 - deltas[:, None]), zero, deltas[:, None]])
        loss = rate.loss(epsilon, neighbours=Neighbours.REPLACE, deltas=deltas.tolist())
        for _ in range(3):
            order = random.permutation(q.size)
            p, r = shared_best(rate, q, order), shared_best(rate, other, order)
            total = np.array([(2 + rate.exponent) * epsilon])
            for one, two in ((p, r), (r, p)):
                exact = hockey_sticks(one, two, total)
                tally.compare("shared rate", exact, np.array([loss.delta(float(total[0]))]), 1e-12)
                if not number % 2:
                    kept = one > 1e-9
                    tally.compare(
                        "shared rate, pure", np.max(np.log(one[kept] / two[kept]), keepdims=True), total, 1e-6
                    )
            tally.compare("shared rate, none", p[:1], np.array([rate.none * (1 + 1e-9)]), 0.0)
    return tally


# --- Tuning on a disjoint part ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Halves:
    """Tuning and training by table for every part of three records (as bits); a record tunes with probability q.

    Attributes:
        tune: laws of theta, shape (8, thetas).
        train: laws of the model, shape (thetas, 8, models).
        q: the probability.
    """

    tune: Array
    train: Array
    q: float

    @classmethod
    def random(cls, random: np.random.Generator) -> Halves:
        """Laws around one centre each, near or far."""
        spread = random.uniform(0.1, 1.5, 2)
        tune = random.dirichlet(np.ones(2)) * np.exp(spread[0] * random.uniform(-1, 1, (8, 2)))
        train = random.dirichlet(np.ones(3), (2, 1)) * np.exp(spread[1] * random.uniform(-1, 1, (2, 8, 3)))
        return cls(
            tune / tune.sum(axis=-1, keepdims=True),
            train / train.sum(axis=-1, keepdims=True),
            float(random.choice([0.05, 0.3, 0.5, 0.9])),
        )

    def outcome(self, records: int) -> Array:
        """Law of (theta, model) on these records, all splits averaged."""
        total = np.zeros(self.train[:, 0].shape)
        for part in range(8):
            if part & ~records == 0:
                rest = records & ~part
                chance = self.q ** part.bit_count() * (1 - self.q) ** rest.bit_count()
                total += chance * self.tune[part][:, None] * self.train[:, rest]
        return total.ravel()


def worst(tables: Array) -> RenyiCurve:
    """The largest Renyi divergence between neighbouring parts, tables of shape (..., 8, outcomes)."""
    near = [(a, a ^ (1 << bit)) for a in range(8) for bit in range(3)]
    pairs = [Finite(each[a], each[b]) for each in tables.reshape(-1, *tables.shape[-2:]) for a, b in near]

    def renyi(x: Array) -> Array:
        return np.max([pair.renyi(np.minimum(x, 1e5)) for pair in pairs], axis=0)

    return RenyiCurve(renyi, neighbours=Neighbours.ADD_REMOVE, rule="exact")


def hold_disjoint(random: np.random.Generator, trials: int) -> Tally:
    """Hold `disjoint_tuning_loss` against mechanisms given by a table for every part of three records."""
    tally = Tally()
    for _ in range(trials):
        halves = Halves.random(random)
        loss = disjoint_tuning_loss(worst(halves.tune), worst(halves.train), halves.q)
        bound = loss.renyi_excess(_EXCESS)
        for records in (7, 3, 5, 6):
            for bit in range(3):
                if records >> bit & 1:
                    present, absent = halves.outcome(records), halves.outcome(records ^ (1 << bit))
                    tally.compare("disjoint part, present", divergence(present, absent, _EXCESS), bound, 1e-11)
                    tally.compare("disjoint part, absent", divergence(absent, present, _EXCESS), bound, 1e-11)
    return tally


# --- A threshold --------------------------------------------------------------------------------------


def first_above(law: Array, accepted: NDArray[np.bool_], stop: float) -> Array:
    """Probabilities of the accepted outcomes, and last of "none", of a loop that ends with probability `stop`."""
    good, bad = law[accepted].sum(), law[~accepted].sum()
    return np.append(law[accepted], stop * bad) / (good + stop * bad)


def hold_threshold(random: np.random.Generator, trials: int) -> Tally:
    """Hold `threshold_loss` against the exact law of the loop: pure runs, Renyi curves, and profiles."""
    tally = Tally()
    for _ in range(trials):
        n = int(random.integers(2, 6))
        q = random.dirichlet(np.full(n, random.choice([0.3, 1.0])))
        other = q * np.exp(random.uniform(0.05, 1.5) * random.uniform(-1, 1, n))
        pair = Finite(q, other / other.sum())
        curve = joint(pair)
        nodes = np.linspace(0.0, curve.renyi_excess(math.inf), 40)
        profile = np.minimum(np.maximum(pair.profile(nodes), pair.turned.profile(nodes)), 1.0)
        table = PrivacyProfile(tuple(nodes), tuple(profile), neighbours=Neighbours.ADD_REMOVE)
        accepted = np.arange(n) >= random.integers(0, n)
        stop = float(random.choice([0.02, 0.1, 0.4, 1.0]))
        losses = [threshold_loss(curve, stop), threshold_loss(table, stop)]
        laws = [first_above(each, accepted, stop) for each in (pair.q, pair.other)]
        for p, r in (laws, laws[::-1]):
            kept = p > 1e-300
            exact = np.max(np.log(p[kept] / r[kept]), keepdims=True)
            tally.compare("threshold, pure", exact, np.array([2 * curve.renyi_excess(math.inf)]), 1e-12)
            tally.compare("threshold, Renyi", divergence(p, r, _EXCESS), losses[0].renyi_excess(_EXCESS), 1e-10)
            for loss in losses:
                bound = loss._profile(_EPSILONS)
                tally.compare("threshold, profile", hockey_sticks(p, r, _EPSILONS), bound, 1e-12)
    return tally
