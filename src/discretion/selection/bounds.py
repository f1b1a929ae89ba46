"""What the best of K runs costs, given what one run costs.

A base run draws a candidate from public weights, trains it with fresh noise and scores it; its output (artefact,
candidate and score) has a privacy loss. K comes from a public law, K runs are made, and only the best output leaves.
All bounds hold for every order on outputs that was fixed beforehand.

What is not here: bounds that are printed in the literature but false. The Renyi theorem for Poisson laws, as printed,
leaves out the default outcome of K = 0, and its use with a mean below 1 understates the loss; `poisson_renyi` is true
for every mean and never larger where the printed one is true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from discretion.privacy import GaussianDP, NeighbourMismatch, PrivacyLoss, PrivacyProfile, PureDP, RenyiCurve
from discretion.privacy.conversion import LEAST_EXCESS
from discretion.privacy.profiles import BestOf
from discretion.selection.profile_bound import RankCurve, profile_bound, rank_curve
from discretion.selection.proposals import FIXED, DensityBox
from discretion.selection.repetitions import Binomial, Capped, Fixed, NegativeBinomial, Poisson, Repetitions
from discretion.selection.trade_off import Pair, below, pairs_of, pure_trade_off

__all__ = [
    "approximate_selection",
    "cap_penalty",
    "conditional_loss",
    "fixed_lower_bound",
    "generic_renyi",
    "heterogeneous",
    "poisson_renyi",
    "pure_cost",
    "selection_loss",
    "thinned",
    "tnb_renyi",
]

Array = NDArray[np.float64]
Curve = Callable[[Array], Array]
"""Bounds of Renyi divergences at excess orders x = alpha - 1, positive or infinite."""
Rule = Literal["best", "renyi", "profile"]

_UNIT = 2.0**-52
_CELLS = 500
_NODES = 81


def selection_loss(base: PrivacyLoss, law: Repetitions, *, rule: Rule = "best", box: DensityBox = FIXED) -> PrivacyLoss:
    """The privacy loss of releasing the best of K runs, each of loss `base`.

    Args:
        base: of one whole run: draw of the candidate, training and score. See `heterogeneous` for candidates of
            different losses.
        law: of the number of runs.
        rule: "profile", the profile bound (`docs/proofs/selection-profile.md`); "renyi", the least of the Renyi bounds
            (`docs/proofs/selection-renyi.md`); "best", the least of both, and of releasing all runs where K is bounded.
        box: how far the chance of a candidate may move, in view of earlier runs, from its public weight; by default
            not at all. `base` is of a run by the public weights (`docs/proofs/selection-adaptive.md`).

    Returns:
        A loss that adds to others; its guarantee names the bound that gave it.

    Raises:
        ValueError: an unknown rule.
    """
    if rule not in ("best", "renyi", "profile"):
        raise ValueError(f"The rule is 'best', 'renyi' or 'profile', not {rule!r}.")
    box = FIXED if box.fixed else box
    if (law.single and box.fixed) or base.renyi_excess(math.inf) == 0:
        return base  # one run surely, or runs that reveal nothing
    name = f"best of {law.name} runs, mean {law.mean:g}"
    name += "" if box.fixed else f", proposed with {box.low:g} to {box.high:g} times the weights"
    pure = _pure(base, law, name, box)
    if pure is not None and pure.epsilon_value == math.inf:
        return pure
    pairs = pairs_of(base)
    parts: list[PrivacyLoss] = []
    if rule != "profile":
        parts.append(_renyi_curve(base, law, pairs, name, box))
    if rule != "renyi":
        parts.append(profile_bound(pairs, law, base.neighbours, f"{name}, profile bound ({base.rule})", box))
    if pure is not None:
        parts.append(pure)
    most = _most(law) if box.fixed else None
    if rule == "best" and most is not None and most <= 2 * law.mean:
        parts.append(most * base)
    return parts[0] if len(parts) == 1 else BestOf(tuple(parts))


def _pure(base: PrivacyLoss, law: Repetitions, name: str, box: DensityBox) -> PureDP | None:
    limit = base.renyi_excess(math.inf)
    if math.isinf(limit) and not isinstance(base, PureDP | GaussianDP):
        return None
    if isinstance(base, GaussianDP) and math.isfinite(base.mu):
        return None
    return PureDP(pure_cost(limit, law, box), neighbours=base.neighbours, rule=f"{name}, pure bound ({base.rule})")


def _most(law: Repetitions) -> int | None:
    match law:
        case Fixed():
            return law.count
        case Binomial():
            return law.trials
        case Capped():
            return law.most
    return None


def pure_cost(epsilon: float, law: Repetitions, box: DensityBox = FIXED) -> float:
    """Epsilon of pure DP of the best of K runs, each `epsilon`-DP: `epsilon + c`, exact and rounded up.

        c = log f'(1 - s) / f'(1 - e^epsilon s)    at  s = 1 / (1 + e^epsilon)

    It is attained in the limit of many outputs, at most (2 + eta) epsilon for the truncated negative binomial law of
    shape eta (Papernot and Steinke 2022; Liu and Talwar 2019), and epsilon + mean tanh(epsilon / 2) for Poisson laws.
    For a capped law c is the largest over s, found with a relative excess below 1e-3. So it is for proposals in a box
    [low, high], with the curves of `docs/proofs/selection-adaptive.md`; then, for shape eta, the cost is at most
    (2 + eta) (epsilon + log(high / low)). Proof: `docs/proofs/selection-pure.md`.

    Raises:
        ValueError: epsilon negative or NaN.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon of one run must be at least 0, not {epsilon!r}.")
    if epsilon in (0, math.inf):
        return epsilon
    if not box.fixed:
        cost = epsilon + rank_curve(law, pure_trade_off(epsilon), box=box).log_ratio
        if isinstance(law, NegativeBinomial):
            cost = min(cost, (2 + law.shape) * (epsilon + math.log(box.high / box.low)) * (1 + 1e-12))
        return cost
    if isinstance(law, Capped):
        return epsilon + rank_curve(law, pure_trade_off(epsilon)).log_ratio
    # s, and t = e^epsilon s; the ratio by way of t - s, which does not cancel
    s = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    t, between = 1 / (1 + math.exp(-epsilon)), math.tanh(epsilon / 2)
    match law:
        case Poisson():
            c = law.mean * between
        case NegativeBinomial():
            rest = 1 - law.gamma
            c = (1 + law.shape) * math.log1p(rest * between / (law.gamma + rest * s))
        case Binomial():
            c = (law.trials - 1) * math.log1p(law.chance * between / (s + t * (1 - law.chance)))
        case Fixed():
            c = (law.count - 1) * epsilon
        case _:
            raise ValueError(f"There is no bound in pure DP for a law of type {type(law).__name__}; take rule='renyi'.")
    return (epsilon + c) * (1 + (64 + law.rounding / _UNIT) * _UNIT)


# --- Renyi bounds -----------------------------------------------------------------------------------


def generic_renyi(renyi: Curve, law: Repetitions, curves: Sequence[RankCurve]) -> Curve:
    """The generic Renyi bound, with the trade-off curve t of one run.

        R'(x) = R(x) + 1/x sup over s of [ (1 + x) log f'(1 - s) - x log f'(1 - t(s)) ]

    and, the chance f(0) of the default outcome included, `log(f(0) + e^(x R'(x))) / x` (after Papernot and Steinke
    2022, Lemma 7, whose supremum has to run over all attainable masses). Proof: `docs/proofs/selection-renyi.md`.

    Args:
        renyi: bounds of one run.
        law: of K.
        curves: of the law over the trade-off curves of the pair, in each order (`rank_curve`).
    """
    none, parts = law.none, []
    for each in curves:
        with np.errstate(divide="ignore", invalid="ignore"):
            u, ratio = np.log(each.u), np.log(each.u) - np.log(each.v)
        falling = np.argsort(-u)
        u, ratio = u[falling], ratio[falling]
        # a corner with a larger u and a larger ratio is larger at every order
        kept = (u > -np.inf) & (ratio > np.append(-np.inf, np.fmax.accumulate(ratio)[:-1]))
        parts.append((u[kept], ratio[kept]))

    steepest = max(float(np.max(ratio)) for _, ratio in parts)

    def curve(x: Array) -> Array:
        end = np.isinf(x)
        finite = np.where(end, 1.0, x)
        with np.errstate(invalid="ignore", over="ignore"):
            one = renyi(x)
            highest = np.max([np.max(u + finite[:, None] * ratio, axis=1) for u, ratio in parts], axis=0)
            cost = one + highest / finite
            if none > 0:
                # f(0) and the power may add up to little more than 1: what rounding takes from their logarithm
                cost = np.logaddexp(math.log(none), finite * cost) / finite + 4 * _UNIT / finite
        # in the limit f(0) has no part: it is the same on both sides
        return np.where(end, one + steepest, cost)

    return curve


def tnb_renyi(renyi: Curve, supremum: float, law: NegativeBinomial, box: DensityBox = FIXED) -> Curve:
    """The Renyi bound for truncated negative binomial laws (Papernot and Steinke 2022, Theorem 2).

        R'(x) = R(x) + (1 + eta) min over y >= 0 of [ y R(y) + log(1/gamma) ] / (1 + y)  +  log(mean) / x

    The second term does not depend on x. For rho-zCDP it is least at `1 + y = sqrt(log(1/gamma) / rho)`. For proposals
    in a box [c, C], put R(y) + log(C/c) and C/gamma for R(y) and 1/gamma in it, and add log(C/c) + log(C) / x
    (`docs/proofs/selection-adaptive.md`). Proof: `docs/proofs/selection-renyi.md`.
    """
    spread, log_high = math.log(box.high / box.low), math.log(box.high)
    log_inverse = log_high - math.log(law.gamma)

    def bracket(log_y: Array) -> Array:
        y = below(np.exp(log_y), supremum)
        return (y * (renyi(y) + spread) + log_inverse) / (1 + y)

    grid = np.linspace(math.log(1e-6), math.log(1e8), 129)
    least, width = log_inverse, float(grid[1] - grid[0])
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(7):
            values = np.where(np.isnan(found := bracket(grid)), np.inf, found)
            best = int(np.argmin(values))
            least = min(least, float(values[best]))
            grid, width = grid[best] + width * np.linspace(-1, 1, 17), width / 8
    limit = float(renyi(np.array([np.inf]))[0]) if math.isinf(supremum) else math.inf
    constant = (1 + law.shape) * min(least, limit + spread) + spread
    return lambda x: renyi(x) + constant + (math.log(law.mean) + log_high) / x


def poisson_renyi(renyi: Curve, law: Poisson, pairs: Sequence[Pair]) -> Curve:
    """The Renyi bound for Poisson laws, true for every mean and with the default outcome.

        R'(x) = 1/x log(1 + mean e^(x mean d) (e^(x R(x)) - 1)),      d = H_(1 + 1/x)(Q' || Q)

    For a mean of at least 1 it is at most `R(x) + mean d + log(mean) / x`, the theorem of Papernot and Steinke
    (2022). As the mean goes to 0 so does the bound. Proof: `docs/proofs/selection-poisson.md`.

    Args:
        renyi: bounds of one run, for both orders of the pair.
        law: of K.
        pairs: profiles of one run, in each order.
    """

    profiles = dict.fromkeys(each for pair in pairs for each in (pair.forward, pair.backward))

    def curve(x: Array) -> Array:
        end = np.isinf(x)
        finite, one = np.where(end, 1.0, x), renyi(x)
        at = np.where(end, 0.0, np.log1p(1 / finite) * (1 - 4 * _UNIT))
        d = np.max([profile(at) for profile in profiles], axis=0)
        exponent = finite * np.maximum(one, 1e-300)
        with np.errstate(divide="ignore", over="ignore"):
            grown = exponent + np.log(-np.expm1(-exponent))
        bound = np.logaddexp(0.0, math.log(law.mean) + finite * law.mean * d + grown) / finite
        return np.where(end, one + law.mean * d, bound)

    return curve


def _renyi_curve(
    base: PrivacyLoss, law: Repetitions, pairs: Sequence[Pair], name: str, box: DensityBox = FIXED
) -> RenyiCurve:
    """The least of the Renyi bounds."""
    bounds: dict[str, Curve] = {}
    poisson = law if isinstance(law, Poisson) and box.fixed else None
    if (most := _most(law)) is not None and box.fixed:
        bounds[f"all of {most} runs"] = lambda x: most * base.renyi_excess(x)
    if not (poisson is not None and base._exact_profile):
        # with an exact profile the bound for Poisson laws is smaller
        curves = [rank_curve(law, pair.trade_off, _CELLS, box) for pair in pairs]
        bounds["generic Renyi bound"] = generic_renyi(base.renyi_excess, law, curves)
    if isinstance(law, NegativeBinomial):
        bounds["Renyi bound of Papernot and Steinke 2022"] = tnb_renyi(base.renyi_excess, base.supremum, law, box)
    if poisson is not None:
        bounds["Renyi bound for Poisson laws"] = poisson_renyi(base.renyi_excess, poisson, pairs)
    rising = {rule: _Rising.of(bound, base.supremum) for rule, bound in bounds.items()}

    def least(x: Array) -> Array:
        return np.min([curve(x) for curve in rising.values()], axis=0) * (1 + 1e-11)

    def rule(excess: float) -> str:
        found = {word: float(curve(np.array([excess]))[0]) for word, curve in rising.items()}
        return f"{name}, {min(found, key=found.__getitem__)} ({base._renyi_rule(excess)})"

    return RenyiCurve(least, base.supremum, neighbours=base.neighbours, rule=rule)


@dataclass(frozen=True)
class _Rising:
    """A bound of a Renyi curve, made to rise: a bound at some order holds at all smaller ones.

    At nodes it is the least of the values at this and all later nodes, the limit included; between two nodes the curve
    itself, kept between what it is at both. Nodes are a grid and the local minima found from it. Where the curve has a
    kink between nodes, it may still fall there by a little: of the orders that are asked for together, each has the
    least of the values at this and the larger ones.
    """

    curve: Curve
    nodes: Array
    least: Array
    """Shape (nodes + 2,): 0 below the first node, and the limit, or inf, above the last."""

    @classmethod
    def of(cls, curve: Curve, supremum: float) -> _Rising:
        grid = np.linspace(math.log(LEAST_EXCESS), math.log(1e8), _NODES)

        def at(log_x: Array) -> Array:
            with np.errstate(all="ignore"):
                values = curve(below(np.exp(log_x), supremum).ravel())
            return np.where(np.isnan(values), np.inf, values).reshape(log_x.shape)

        values = at(grid)
        padded = np.concatenate([[np.inf], values, [np.inf]])
        centres = grid[(values <= padded[:-2]) & (values <= padded[2:]) & np.isfinite(values)]
        width = float(grid[1] - grid[0])
        for _ in range(5 if centres.size else 0):
            around = np.clip(centres[:, None] + width * np.linspace(-1, 1, 17), grid[0], grid[-1])
            best = np.argmin(at(around), axis=1)
            centres, width = around[np.arange(best.size), best], width / 8
        nodes = np.unique(np.append(grid, centres))
        last = at(np.array([np.inf])) if math.isinf(supremum) else np.array([np.inf])
        found = np.minimum.accumulate(np.append(at(nodes), last)[::-1])[::-1]
        return cls(curve, below(np.exp(nodes), supremum), np.append(0.0, found))

    def __call__(self, x: Array) -> Array:
        place = np.searchsorted(self.nodes, x, side="right")
        with np.errstate(all="ignore"):
            values = self.curve(x)
        values = np.clip(np.where(np.isnan(values), np.inf, values), self.least[place], self.least[place + 1])
        falling = np.argsort(-x, kind="stable")
        values[falling] = np.minimum.accumulate(values[falling])
        return values


# --- Candidates of different losses, approximate DP, caps -------------------------------------------


def heterogeneous(losses: Sequence[PrivacyLoss], weights: Sequence[float]) -> PrivacyLoss:
    """The loss of one run that draws candidate j with public probability w_j, runs it and names it.

        H_a(Q || Q') = sum of w_j H_a(Q_j || Q_j'),      e^(x R(x)) = sum of w_j e^(x R_j(x))

    within one order of the neighbours, since j is part of the output. Proof: `docs/proofs/selection-mixture.md`.

    Args:
        losses: of the candidates, under one neighbour relation.
        weights: not negative, of sum 1; they may not depend on the records. Candidates of weight 0 are never drawn and
            cost nothing.

    Raises:
        ValueError: weights that are not probabilities, or not one for each loss.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (len(losses),) or not np.all(w >= 0) or not abs(float(w.sum()) - 1) <= 1e-9:
        raise ValueError("Candidates need weights of at least 0 and of sum 1, one for each loss.")
    if len({loss.neighbours for loss in losses}) > 1:
        raise NeighbourMismatch("Candidates whose losses are about different neighbour relations do not compare.")
    losses, w = [loss for loss, each in zip(losses, w, strict=True) if each > 0], w[w > 0]
    if all(loss == losses[0] for loss in losses):
        return losses[0]
    w = w / w.sum() * (1 + 1e-15)
    rule = f"{len(losses)} candidates averaged (" + "; ".join(dict.fromkeys(str(loss.rule) for loss in losses)) + ")"
    supremum = min(loss.supremum for loss in losses)

    def renyi(x: Array) -> Array:
        rows = np.array([loss.renyi_excess(x) for loss in losses])
        if np.all(np.isinf(x)):
            return np.max(rows, axis=0)
        with np.errstate(all="ignore"):
            power = x * rows
            small = np.log1p(np.sum(w[:, None] * np.expm1(power), axis=0))
            found = np.where(np.max(power, axis=0) < 1, small, np.logaddexp.reduce(np.log(w)[:, None] + power, axis=0))
        return np.minimum(found / x * (1 + 1e-12), np.max(rows, axis=0))

    curve = RenyiCurve(renyi, supremum, neighbours=losses[0].neighbours, rule=rule)
    pairs = [pairs_of(loss) for loss in losses]
    reach = max(pair.reach for found in pairs for pair in found)
    nodes = np.concatenate([[0.0], np.geomspace(1e-6 * reach, 1e-3 * reach, 30), np.linspace(0, reach, 2000)[4:]])
    nodes = np.unique(nodes)
    orders = [sum(wj * found[side].forward(nodes) for wj, found in zip(w, pairs, strict=True)) for side in (0, -1)]
    deltas = np.minimum(np.maximum(orders[0], orders[1]), 1.0)
    table = PrivacyProfile(tuple(nodes), tuple(deltas), neighbours=losses[0].neighbours, rule=rule)
    return BestOf((table, curve))


def thinned(law: Repetitions, delta: float) -> tuple[Repetitions, float]:
    """The law and the failure of selection among runs each of which fails with probability `delta`.

    If each run's law is `(1 - delta) Q1 + delta Q2`, the best of K runs is, but for probability `1 - f(1 - delta)`,
    the best of K' runs of Q1, where K' has the generating function `f((1 - delta) x) / f(1 - delta)` (Papernot and
    Steinke 2022). Poisson, negative binomial and binomial laws stay what they are. Proof:
    `docs/proofs/selection-approximate.md`.

    Returns:
        The law of K', and that probability, at most mean times delta.

    Raises:
        ValueError: delta outside [0, 1).
    """
    if not 0 <= delta < 1:
        raise ValueError(f"The failure probability of one run must lie in [0, 1), not {delta!r}.")
    failure = min(float(law.success(delta)) * (1 + 1e-12), 1.0)
    kept = 1 - delta
    match law:
        case Poisson():
            return Poisson(law.mean * kept), failure
        case NegativeBinomial():
            return NegativeBinomial(law.shape, min(law.gamma + delta * (1 - law.gamma), 1.0)), failure
        case Binomial():
            return Binomial(law.trials, law.chance * kept / (1 - law.chance * delta)), failure
        case Capped():
            return Capped(thinned(law.uncapped, delta)[0], law.most), failure
    return law, failure


def approximate_selection(
    base: PrivacyLoss, delta: float, law: Repetitions, *, rule: Rule = "best"
) -> tuple[PrivacyLoss, float]:
    """Selection among runs that have the loss `base` but for an event of probability `delta`.

    Returns:
        The loss of the selection but for an event, and that event's probability d: the release is
        `(epsilon, d + (1 - d) loss.delta(epsilon))`-DP for every epsilon. See `thinned`.
    """
    law, failure = thinned(law, delta)
    return selection_loss(base, law, rule=rule), failure


def cap_penalty(law: Repetitions, most: int, excess: float) -> float:
    """What a declared cap adds to a Renyi bound of the law without it, at order 1 + excess.

        log(1 + E[K; K > most] / E[K; K <= most]) - log P[K <= most] / excess

    (Papernot and Steinke 2022). The account of `Capped`, by the capped law's own generating function, is smaller.
    Proof: `docs/proofs/selection-cap.md`.
    """
    capped = Capped(law, most)
    kept = float(law.cdf(most))
    within = capped.mean * kept
    return math.log(law.mean / within) - math.log(kept) / excess


def conditional_loss(base: PrivacyLoss, least_acceptance: float) -> RenyiCurve:
    """The loss of a run given that its output was accepted, where acceptance has probability at least c on all data.

    With 1/p + 1/q + 1/r = 1, l = 1 + x, l + 1/q >= 2 and r (l - 1/p) > 1,

        x R'(x) = (l - 1/p - 1/r) R_(r (l - 1/p)) + (l + 1/q - 2) R_(l + 1/q - 1) + (1 + 1/r) log(1/c)

    (Papernot and Steinke 2022; without l + 1/q >= 2, as printed, it is false), and at most 2 R_inf. The bound c must
    hold on all data sets: a measured acceptance rate is private. Proof: `docs/proofs/selection-conditional.md`.

    Raises:
        ValueError: c outside (0, 1].
    """
    if not 0 < least_acceptance <= 1:
        raise ValueError(f"The least acceptance probability must lie in (0, 1], not {least_acceptance!r}.")
    log_inverse = -math.log(least_acceptance)
    share = np.linspace(0.0, 1.0, 9)
    inverse_p, inverse_q = (each.ravel() for each in np.meshgrid(share, share, indexing="ij"))
    inside = inverse_p + inverse_q < 1 - 1e-9
    inverse_p, inverse_q = inverse_p[inside], inverse_q[inside]
    inverse_r = 1 - inverse_p - inverse_q
    limit = base.renyi_excess(math.inf)

    def bound(x: Array) -> Array:
        order = 1 + x[:, None]
        with np.errstate(all="ignore"):
            first, second = (order - inverse_p) / inverse_r, order + inverse_q - 1
            usable = (second >= 1) & (first > 1)
            one = base.renyi_excess(np.where(usable, first - 1, 0.0))
            two = base.renyi_excess(np.where(usable, second - 1, 0.0))
            total = (order - inverse_p - inverse_r) * one + np.where(second == 1, 0.0, (second - 1) * two)
            cost = np.where(usable, (total + (1 + inverse_r) * log_inverse) / x[:, None], np.inf)
        return np.min(np.where(np.isnan(cost), np.inf, cost), axis=1)

    # which exponents are best changes with the order: steps from each order of a grid down to the one before
    orders = below(np.geomspace(1e-3, 1e5, 700), base.supremum)
    values = np.append(np.minimum.accumulate(bound(orders)[::-1])[::-1] * (1 + 1e-12), np.inf)

    def curve(x: Array) -> Array:
        return np.minimum(values[np.searchsorted(orders, x)], 2 * limit)

    rule = f"given acceptance, of probability at least {least_acceptance:g} ({base.rule})"
    return RenyiCurve(curve, base.supremum, neighbours=base.neighbours, rule=rule)


def fixed_lower_bound(epsilon: float, count: int, excess: float) -> float:
    """A lower bound of the Renyi divergence of the best of a fixed number of epsilon-DP runs, in the worst case.

        count epsilon - count log(1 + e^(-epsilon)) / excess

    (Papernot and Steinke 2022): a fixed number of runs is no cheaper than releasing all of them. Attained by two
    outcomes of which the worse has odds e^(-epsilon) and e^epsilon. Proof: `docs/proofs/selection-fixed.md`.
    """
    return count * (epsilon - math.log1p(math.exp(-epsilon)) / excess)
