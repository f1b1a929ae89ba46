"""Figures stated about membership inference: what attacks reach, and that none beats a claim that is true."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.attacked import FAMILIES, KINDS, random_mechanism
from benchmarks.harness import Measured, claim
from discretion.audit import (
    GaussianScorer,
    MembershipAttack,
    OfflineScorer,
    PathGame,
    PathScorer,
    attack,
    mechanism_game,
    repeated,
)
from discretion.audit.releases import ReleaseGame
from discretion.gp import RBF, Box, Exponential, Lattice, Matern32
from discretion.gp.batch import posteriors_at
from discretion.posterior import Exponential1D, KernelSumMechanism, LatticeMechanism, PosteriorMechanism
from discretion.posterior.account import posterior_epsilon
from discretion.studies.membership import PATHS, SCALES, attacked
from discretion.studies.published import published

CONFIGURATIONS = 500
EFFORT = {"shadows": 10_000, "trials": 10_000, "repetitions": 2, "seed": 0}
NULLS = 200
GAMES = 100
LINE = Box((0.0,), (1.0,))


@claim(
    "audit",
    "Membership attack: n = 10, length scale 1, ridge .1, scale .5, 3 paths, 10,000 shadows and 10,000 trials a world",
    "excess TPR at 10 % .78 +- .02, AUC .958 +- .01, <= 1 cpu s",
)
def membership_attack() -> Measured:
    attack(PathGame(0.1, 0.5), shadows=100, trials=100)
    start = time.process_time()
    found = attack(PathGame(0.1, 0.5))
    seconds = time.process_time() - start
    excess = found.rates[2].excess
    return Measured(
        f"excess {excess:.3f}, AUC {found.auc:.3f}, {seconds:.2f} cpu s",
        abs(excess - 0.78) <= 0.02 and abs(found.auc - 0.958) <= 0.01 and seconds <= 1.0,
    )


@claim(
    "audit",
    "The same over ridge .1, .5, 1, 2 and scale .5, 1, 5, inf; mean of 3 repetitions",
    "published excess TPR at 10 % +- .03 in all 16",
    slow=True,
)
def membership_grid() -> Measured:
    table: Any = published()["membership"]["excess TPR at 10 %"]
    off = 0.0
    lines = []
    for j, ridge in enumerate(table["ridge"]):
        row = []
        for name in ("0.5", "1", "5", "inf"):
            found = repeated(PathGame(ridge, float(name)), repetitions=3).excess[2]
            off = max(off, abs(found - table[f"scale {name}"][j]))
            row.append(f"{found:.3f}")
        lines.append(f"r {ridge:g}: " + "/".join(row))
    return Measured("; ".join(lines) + f"; largest deviation {off:.3f}", bool(off <= 0.03))


@claim(
    "audit",
    "Figure 2, one path, 30 ridges from .065 to 4, scales .5, 1, 2.5, inf: excess TPR at 10 % at the smallest ridge; "
    "the largest where the claimed epsilon is at most 10, at most 1",
    ">= .1 at every scale; <= .05; <= .01",
    slow=True,
)
def membership_by_epsilon() -> Measured:
    ridges = [float(f"{ridge:.4g}") for ridge in np.geomspace(0.065, 4.0, 30)]
    rows = {scale: [attacked(ridge, scale, 1, **EFFORT) for ridge in ridges] for scale in SCALES}
    first = {scale: found[0]["excess"][2] for scale, found in rows.items()}
    every = [row for found in rows.values() for row in found]
    near = [max(row["excess"][2] for row in every if row["epsilon"] <= most) for most in (10.0, 1.0)]
    text = ", ".join(f"{value:.3f} at scale {scale}" for scale, value in first.items())
    holds = min(first.values()) >= 0.1 and near[0] <= 0.05 and near[1] <= 0.01
    return Measured(f"{text}; {near[0]:.3f}; {near[1]:.3f}", holds)


@claim(
    "audit",
    "Figure 3, ridge 1, scale 2, by number of paths from 1 to 1,000: excess TPR at 10 %; lower bound of epsilon over "
    "the claimed one",
    "rises at every step; <= 1",
    slow=True,
)
def membership_by_paths() -> Measured:
    found = [attacked(1.0, "2", paths, **EFFORT) for paths in PATHS]
    excess, ratio = [row["excess"][2] for row in found], [row["lower"] / row["epsilon"] for row in found]
    text = ", ".join(f"{value:.3f} ({paths:,})" for paths, value in zip(PATHS, excess, strict=True))
    return Measured(f"{text}; at most {max(ratio):.3f}", bool(np.all(np.diff(excess) > 0.0)) and max(ratio) <= 1.0)


@claim(
    "audit", "Exact posterior mean and variance at a point, exponential kernel, data sets of n = 10", "<= 0.5 us each"
)
def membership_filter() -> Measured:
    rng = np.random.default_rng(0)
    x, y = rng.random((5_000, 10)), rng.standard_normal((5_000, 10))
    posteriors_at(Exponential(), 0.3, x, y, 0.5)
    seconds = math.inf
    for _ in range(60):
        start = time.process_time()
        posteriors_at(Exponential(), 0.3, x, y, 0.5)
        seconds = min(seconds, time.process_time() - start)
    each = 1e6 * seconds / len(x)
    return Measured(f"{each:.2f} us", each <= 0.5)


class Null(PathGame):
    """Neither world has the candidate."""

    def posteriors(self, member: bool, count: int, rng: np.random.Generator) -> Any:
        return super().posteriors(False, count, rng)


@claim(
    "audit", f"Lower bound of epsilon from {NULLS} attacks where there is nothing to find", "0 in >= 95 %", slow=True
)
def membership_null() -> Measured:
    trainers = (PathScorer.fit, OfflineScorer.fit, GaussianScorer.fit)
    zero = 0
    for k in range(NULLS):
        trials = (100, 1_000)[k % 2]
        found = attack(Null(0.3, 0.5), trainers[k % 3], shadows=300, trials=trials, delta=1e-3, seed=k)
        zero += found.epsilon_lower == 0.0
    return Measured(f"0 in {zero} of {NULLS}", zero >= 0.95 * NULLS)


def random_claims(count: int) -> list[tuple[float, float, str]]:
    """(lower bound, claimed epsilon, what) of attacks: games of labelled halves, and worst-case pairs."""
    rng = np.random.default_rng(0)
    found = []
    for index in range(count):
        kind = ("game", "game", "game", "paths", "lattice")[index % 5] if index % 25 else "sums"
        ridge, scale = math.exp(rng.uniform(-2.5, 2.0)), math.exp(rng.uniform(-2.0, 1.5))
        delta = float(rng.choice([1e-4, 1e-3, 1e-2, 0.1]))
        if kind == "game":
            scale = math.inf if rng.random() < 0.2 else scale
            n, length = int(rng.integers(2, 30)), math.exp(rng.uniform(-2.0, 1.0))
            game = PathGame(
                ridge, scale, int(rng.choice([1, 2, 3, 10])), n, Exponential(length), rng.choice([0.0, 0.3])
            )
            claimed = posterior_epsilon(
                n=n,
                ridge=ridge,
                scale=scale,
                delta=delta,
                assumption=Exponential1D(1.0),
                least_kernel=math.exp(-1.0 / length),
                paths=game.paths,
            ).epsilon
            trainer = OfflineScorer.fit if rng.random() < 0.2 else PathScorer.fit
            result = attack(game, trainer, shadows=1_000, trials=4_000, delta=delta, seed=index)
        else:
            mechanism, n = _mechanism(kind, ridge, scale, delta, rng)
            claimed = mechanism.privacy_loss(n).epsilon(delta)
            other = mechanism_game(mechanism, n, seconds=0.3, seed=index)
            result = attack(other, other.trainer, shadows=1_000, trials=4_000, delta=delta, seed=index)
        found.append((result.epsilon_lower, float(claimed), kind))
    return found


def _mechanism(kind: str, ridge: float, scale: float, delta: float, rng: np.random.Generator) -> tuple[Any, int]:
    n, length = int(rng.integers(2, 40)), float(rng.uniform(0.1, 1.0))
    if kind == "sums":
        return KernelSumMechanism(RBF(length), LINE, (-1.0, 1.0), scale, delta, grid=(5,)), n
    if kind == "lattice":
        graph = Lattice.hexagon(0.25, Box((0.0, 0.0), (1.0, 1.0)), float(rng.uniform(0.1, 1.0)))
        return LatticeMechanism(graph, (-1.0, 1.0), max(ridge, 0.5), scale, delta, rule="closed-form"), n
    kernel = (Exponential, RBF, Matern32)[int(rng.integers(3))](length)
    paths = int(rng.choice([1, 2, 5]))
    place = np.array([[0.5]])
    return PosteriorMechanism(kernel, LINE, (-1.0, 1.0), max(ridge, 0.5), scale, place, delta, paths=paths), n


@claim(
    "audit",
    f"Lower bound of epsilon over claimed epsilon, attacks on {CONFIGURATIONS} random configurations: labelled halves "
    "(ridge, scale up to infinity, paths, n, length scale, label noise), worst-case pairs of posterior paths, lattices "
    "and kernel sums",
    "never above 1",
    slow=True,
)
def membership_never_beats_a_claim() -> Measured:
    found = random_claims(CONFIGURATIONS)
    ratios = np.array([0.0 if lower == 0.0 else lower / max(claimed, 1e-300) for lower, claimed, _ in found])
    shown = sum(lower > 0 for lower, *_ in found)
    best = {kind: max(r for r, (*_, k) in zip(ratios, found, strict=True) if k == kind) for *_, kind in found}
    words = ", ".join(f"{kind} {value:.2f}" for kind, value in best.items())
    return Measured(
        f"{int((ratios > 1.0).sum())} of {len(found)} above; largest ratio {words}; {shown} attacks show something",
        bool((ratios <= 1.0).all()),
    )


class HalfTheNoise(PosteriorMechanism):
    """A deliberate mistake: half the noise that is paid for."""

    def run(self, records: Any, randomness: Any) -> Any:
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["scale"] = 0.5 * self.scale
        return PosteriorMechanism(**fields).run(records, randomness)


@claim(
    "audit",
    "A mechanism that adds half the noise it pays for (n = 60, ridge 3, scale .2179, delta 1e-3), in 20 attacks; the "
    "same with all its noise",
    "refuted 20 times; never",
    slow=True,
)
def membership_half_the_noise() -> Measured:
    settings: dict[str, Any] = {"kernel": Exponential(0.5), "domain": LINE, "response_range": (-1.0, 1.0), "ridge": 3.0}
    settings |= {"scale": 0.2179, "locations": np.array([[0.5]]), "delta": 1e-3, "rule": "best"}
    honest, broken = PosteriorMechanism(**settings), HalfTheNoise(**settings)
    claimed = honest.privacy_loss(60).epsilon(1e-3)
    caught, lowest = [], math.inf
    for mechanism in (broken, honest):
        game: ReleaseGame = mechanism_game(replace(mechanism, rule="closed-form"), 60, seconds=3.0)
        results = [
            attack(game, game.trainer, shadows=4_000, trials=20_000, claimed=claimed, seed=seed) for seed in range(20)
        ]
        caught.append(sum(each.refuted for each in results))
        lowest = min(lowest, *(each.epsilon_lower for each in results)) if mechanism is broken else lowest
    return Measured(
        f"refuted {caught[0]} of 20 (claimed {claimed:.3f}, least lower bound {lowest:.3f}); {caught[1]} of 20",
        caught == [20, 0],
    )


def game_attack(mechanism: Any, n: int | None, claimed: float, trials: int, seed: int = 0) -> MembershipAttack:
    """The attack of a mechanism's own game, which has few shadows to learn from where the likelihood ratio is known."""
    game = mechanism_game(mechanism, n)
    shadows = 50 if game.scored else 300
    delta = float(getattr(mechanism, "delta", 0.0))
    return attack(game, game.trainer, shadows=shadows, trials=trials, delta=delta, claimed=claimed, seed=seed)


@claim(
    "audit",
    f"Lower bound of epsilon over claimed epsilon, attacks on {GAMES} random mechanisms of {len(KINDS)} kinds by the "
    f"games made for them: {', '.join(KINDS)}",
    "never above 1; <= 60 cpu s",
    slow=True,
)
def membership_games_never_beat_a_claim() -> Measured:
    rng, start = np.random.default_rng(0), time.process_time()
    ratios: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for index in range(GAMES):
        kind, mechanism, n = random_mechanism(index, rng)
        claimed = float(mechanism.privacy_loss(n).epsilon(float(getattr(mechanism, "delta", 0.0))))
        ratios[kind].append(game_attack(mechanism, n, claimed, 150, index).epsilon_lower / claimed)
    seconds = time.process_time() - start
    above = sum(each > 1.0 for found in ratios.values() for each in found)
    words = ", ".join(f"{kind} {max(found):.2f}" for kind, found in ratios.items())
    return Measured(
        f"{above} of {GAMES} above; largest ratio {words}; {seconds:.0f} cpu s", above == 0 and seconds <= 60.0
    )


@claim(
    "audit",
    f"Twice the budget under the claim of the honest mechanism, {len(FAMILIES)} kinds by the games made "
    f"for them: {', '.join(FAMILIES)}; the honest one",
    "all refuted; none",
    slow=True,
)
def membership_games_catch_half_the_noise() -> Measured:
    caught, wronged, least = [], [], math.inf
    for name, (make, n, trials) in FAMILIES.items():
        honest = make(1.0)
        claimed = float(honest.privacy_loss(n).epsilon(float(getattr(honest, "delta", 0.0))))
        broken = game_attack(make(2.0), n, claimed, trials)
        least = min(least, broken.epsilon_lower / claimed)
        caught += [name] * broken.refuted
        wronged += [name] * game_attack(honest, n, claimed, trials).refuted
    return Measured(
        f"{len(caught)} of {len(FAMILIES)} refuted (least lower bound over claim {least:.2f}); {len(wronged)}",
        len(caught) == len(FAMILIES) and not wronged,
    )
