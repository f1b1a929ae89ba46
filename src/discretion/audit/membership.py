"""Membership inference against a release: was this record in the data?

A game has two worlds, one with the candidate record and one without. The attacker makes shadow releases in both, fits
the densities of what he sees, and scores fresh releases by the log-likelihood ratio. What he gains bounds epsilon from
below; the claimed loss bounds it from above.

Everything is made up from public parameters: no record is read, and an attack costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from joblib import Parallel, delayed
from scipy.special import logsumexp

from discretion.audit.densities import LatentMixture, LogMixture
from discretion.audit.rates import Rate, area_under_curve, curve, epsilon_lower_bound, rate_at
from discretion.gp.batch import posteriors_at
from discretion.gp.domain import Array
from discretion.gp.kernels import Exponential, Kernel
from discretion.privacy.conversion import round_up

FALSE_POSITIVE_RATES = (0.01, 0.05, 0.1)
_AVERAGED = 2_000  # shadow worlds that the exact attacker averages over


class Game(Protocol):
    """What an attack is played on."""

    def features(self, member: bool, count: int, rng: np.random.Generator) -> Array:
        """What the attacker sees of `count` independent releases, (count, k), with the candidate or without it."""
        ...


class Scorer(Protocol):
    """A trained attack: larger scores speak for membership."""

    def __call__(self, features: Array) -> Array: ...


Trainer = Callable[[Array, Array], Scorer]
"""From features of shadow releases, of members and of others, to a scorer."""


# --- games ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PathGame:
    """Values of `paths` posterior sample paths at the candidate's place, for two labelled halves of the line.

    n records on [0, 1], half of them left of the middle; the label is -1 left and +1 right of it, mixed with noise
    uniform on [-label_noise, label_noise]. The candidate, +1 at 1/2, replaces a record of the right half. `scale` = inf
    releases the posterior noise alone, without the mean. Features: the mean of the values and their variance
    divided by scale^2 (of one path the mean only).

    `ridge` > 0 is that of the posterior with the prior `kernel`, `scale` > 0 multiplies its standard deviation; `paths`
    >= 1, `n` >= 2 and `label_noise` in [0, 1]. ValueError otherwise.

    Source: Maciazek 2026, Section 4 and Appendix C.
    """

    ridge: float
    scale: float
    paths: int = 3
    n: int = 10
    kernel: Kernel = field(default_factory=Exponential)
    label_noise: float = 0.0

    def __post_init__(self) -> None:
        if not (self.ridge > 0 and self.scale > 0 and self.paths >= 1 and self.n >= 2 and 0 <= self.label_noise <= 1):
            raise ValueError(
                "ridge and scale must be positive, paths 1 or more, n 2 or more, label_noise between 0 and 1."
            )

    def posteriors(self, member: bool, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Posterior mean and variance at the candidate's place, (count,) each, in worlds with it or without.

        The worlds are drawn by `rng`.
        """
        x = 0.5 * rng.random((count, self.n))
        x[:, self.n // 2 :] += 0.5
        label = np.ones(self.n)
        label[: self.n // 2] = -1.0
        y = (1.0 - self.label_noise) * label + self.label_noise * rng.uniform(-1.0, 1.0, (count, self.n))
        if member:
            x[:, -1], y[:, -1] = 0.5, 1.0
        return posteriors_at(self.kernel, self.ridge, x, y, 0.5)

    def features(self, member: bool, count: int, rng: np.random.Generator) -> Array:
        """Features of `count` worlds with the candidate or without it: (count, 2), and (count, 1) of one path."""
        mean, variance = self.posteriors(member, count, rng)
        noise = np.sqrt(variance)[:, None] * rng.standard_normal((count, self.paths))
        values = noise if math.isinf(self.scale) else mean[:, None] + self.scale * noise
        average = values.mean(axis=1)
        if self.paths == 1:
            return average[:, None]
        scale = 1.0 if math.isinf(self.scale) else self.scale
        return np.column_stack([average, values.var(axis=1) / scale**2])


@dataclass(frozen=True)
class MechanismGame:
    """Any mechanism with `run(records, randomness)`, between two neighbouring data sets of the auditor's own.

    `included` and `excluded` are the data sets; `feature(release)` gives the numbers the attacker looks at, shape (k,);
    `randomness(seed)` makes the test randomness of one run. Runs go through joblib, `n_jobs` as there.
    """

    mechanism: Any
    included: Any
    excluded: Any
    feature: Callable[[Any], Any]
    randomness: Callable[[int], Any]
    n_jobs: int | None = None

    def features(self, member: bool, count: int, rng: np.random.Generator) -> Array:
        """Features of `count` runs on `included` for a member, else on `excluded`, seeded from `rng`: (count, k)."""
        records = self.included if member else self.excluded
        seeds = rng.integers(0, 2**63 - 1, count)

        def one(seed: int) -> Array:
            return np.ravel(self.feature(self.mechanism.run(records, self.randomness(int(seed)))))

        return np.array(Parallel(n_jobs=self.n_jobs)(delayed(one)(seed) for seed in seeds), dtype=np.float64)


# --- attacks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PathScorer:
    """Log-likelihood ratio of the mean (latent mixture) and of the variance (mixture of its logarithm) of the paths."""

    mean: tuple[LatentMixture, LatentMixture]
    variance: tuple[LogMixture, LogMixture] | None

    @classmethod
    def fit(cls, members: Array, others: Array) -> PathScorer:
        """Online: from shadows of `members` and `others`, (shadows, features).

        Source: Carlini et al. 2022 (LiRA); Maciazek 2026, Appendix C.
        """
        mean = LatentMixture.fit(members[:, 0]), LatentMixture.fit(others[:, 0])
        if members.shape[1] == 1:
            return cls(mean, None)
        return cls(mean, (LogMixture.fit(members[:, 1]), LogMixture.fit(others[:, 1])))

    def __call__(self, features: Array) -> Array:
        score = self.mean[0].log_density(features[:, 0]) - self.mean[1].log_density(features[:, 0])
        if self.variance is not None:
            score = score + self.variance[0].log_density(features[:, 1]) - self.variance[1].log_density(features[:, 1])
        return score


@dataclass(frozen=True)
class OfflineScorer:
    """The attack of one who has no shadows with the candidate: is the mean too near its label, the variance too small?

    Minus the logarithms of both tail probabilities in worlds without the candidate, added (Fisher's combination).
    Source: Carlini et al. 2022, offline LiRA.
    """

    shadows: Array  # each column sorted

    @classmethod
    def fit(cls, members: Array, others: Array) -> OfflineScorer:
        """From shadows of `others`, (shadows, features); `members` are not looked at."""
        return cls(np.sort(others * _TOWARDS[: others.shape[1]], axis=0))

    def __call__(self, features: Array) -> Array:
        score = np.zeros(len(features))
        for column, seen, sign in zip(self.shadows.T, features.T, _TOWARDS, strict=False):
            beyond = len(column) - np.searchsorted(column, sign * seen)
            score -= np.log((beyond + 1.0) / (len(column) + 1.0))
        return score


_TOWARDS = np.array([1.0, -1.0])  # a member raises the mean and lowers the variance


@dataclass(frozen=True)
class GaussianScorer:
    """Log-likelihood ratio of two Gaussians fitted to the features: the attack for mechanisms one knows little of.

    Of members and of others: `means` (k,) and whitening matrices `roots` (k, k).
    """

    means: tuple[Array, Array]
    roots: tuple[Array, Array]

    @classmethod
    def fit(cls, members: Array, others: Array) -> GaussianScorer:
        """From shadows of `members` and `others`, (shadows, features).

        Covariances are pooled with their diagonal, one part in a hundred, so that they can be inverted.
        """
        means, roots = [], []
        for sample in (members, others):
            means.append(sample.mean(axis=0))
            covariance = np.atleast_2d(np.cov(sample, rowvar=False))
            diagonal = np.diag(np.maximum(np.diag(covariance), 1e-30))
            roots.append(np.linalg.inv(np.linalg.cholesky(0.99 * covariance + 0.01 * diagonal)))
        return cls((means[0], means[1]), (roots[0], roots[1]))

    def __call__(self, features: Array) -> Array:
        logs = [
            np.log(np.diag(root)).sum() - 0.5 * (((features - mean) @ root.T) ** 2).sum(axis=1)
            for mean, root in zip(self.means, self.roots, strict=True)
        ]
        return logs[0] - logs[1]


@dataclass(frozen=True)
class ExactScorer:
    """The best attack on a `PathGame`: the exact likelihood ratio, averaged over shadow worlds.

    Given a world, the values at the candidate's place are independent N(mean, scale^2 variance); the attacker does not
    know the world, so both likelihoods are means over 2,000 `worlds` of the `game`, with the candidate and without.
    """

    game: PathGame
    worlds: tuple[tuple[Array, Array], tuple[Array, Array]]

    @classmethod
    def of(cls, game: PathGame, rng: np.random.Generator) -> ExactScorer:
        """With worlds drawn by `rng`, of which no release is looked at."""
        return cls(game, (game.posteriors(True, _AVERAGED, rng), game.posteriors(False, _AVERAGED, rng)))

    def __call__(self, features: Array) -> Array:
        return self._log_likelihood(features, *self.worlds[0]) - self._log_likelihood(features, *self.worlds[1])

    def _log_likelihood(self, features: Array, mean: Array, variance: Array) -> Array:
        game = self.game
        if math.isinf(game.scale):
            mean, spread = np.zeros_like(mean), variance
        else:
            spread = game.scale**2 * variance
        unit = 1.0 if math.isinf(game.scale) else game.scale**2
        result = np.empty(len(features))
        for rows in _blocks(len(features), 1 << 11):
            seen = features[rows]
            squares = (seen[:, :1] - mean) ** 2
            if game.paths > 1:
                squares = squares + unit * seen[:, 1:2]
            logs = -0.5 * game.paths * (squares / spread + np.log(spread))
            result[rows] = logsumexp(logs, axis=1)
        return result


def _blocks(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


# --- the verdict ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MembershipAttack:
    """What an attack reached on fresh releases.

    `rates` at false positive rates of 1, 5 and 10 %; `auc`; `epsilon_lower`, which the release can't be below with the
    given `confidence` (0: nothing shown); `claimed`, the epsilon it promises at `delta`, if told. `members` and
    `others` are the scores of the fresh releases with and without the candidate, (trials,) each.
    """

    members: Array = field(repr=False)
    others: Array = field(repr=False)
    rates: tuple[Rate, ...]
    auc: float
    epsilon_lower: float
    delta: float
    confidence: float
    claimed: float | None

    @property
    def refuted(self) -> bool:
        """Whether the claim is below what the attack proves."""
        return self.claimed is not None and self.epsilon_lower > self.claimed

    @property
    def curve(self) -> tuple[Array, Array]:
        """False and true positive rates at all thresholds."""
        return curve(self.members, self.others)

    def rate(self, false_positive: float) -> Rate:
        """Rates at another false positive rate, strictly between 0 and 1 or a ValueError."""
        return rate_at(self.members, self.others, false_positive, self.confidence)

    def __str__(self) -> str:
        rates = ", ".join(f"{r.true_positive:.3f} at {r.false_positive:.0%}" for r in self.rates)
        lower = f"epsilon at least {math.floor(self.epsilon_lower * 1e3) / 1e3:.3f} (confidence {self.confidence:.0%})"
        if self.claimed is not None:
            lower += f", claimed {round_up(self.claimed, 3)}"
        verdict = "; the claim is refuted" if self.refuted else ""
        return f"true positives {rates} false positives; AUC {self.auc:.3f}; {lower}, delta {self.delta:g}{verdict}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able summary without the scores."""
        return {
            "rates": [
                {
                    "false_positive": r.false_positive,
                    "true_positive": r.true_positive,
                    "excess": r.excess,
                    "interval": list(r.true_positive_interval),
                    "false_positive_interval": list(r.false_positive_interval),
                }
                for r in self.rates
            ],
            "trials": len(self.members),
            "auc": self.auc,
            "epsilon_lower": self.epsilon_lower,
            "delta": self.delta,
            "confidence": self.confidence,
            "claimed": self.claimed,
            "refuted": self.refuted,
        }


def attack(
    game: Game,
    trainer: Trainer | None = None,
    *,
    shadows: int = 10_000,
    trials: int = 10_000,
    delta: float = 1e-3,
    confidence: float = 0.95,
    claimed: float | None = None,
    seed: int = 0,
    step: Callable[[str], None] = lambda name: None,
) -> MembershipAttack:
    """Train on `shadows` releases of each world, score `trials` fresh ones of each.

    `trainer` turns shadow features into a scorer: `PathScorer.fit` (default for a `PathGame`), `OfflineScorer.fit`,
    `GaussianScorer.fit` (default otherwise), or `lambda *_: ExactScorer.of(game, rng)`. The bound on epsilon takes its
    thresholds from the shadows' scores, so the fresh ones are used once; it holds at `delta` with the given
    `confidence`, beside the epsilon that is `claimed`, if told. One `seed`, one result. `step` is told what begins.

    ValueError when a count is below 8 or features are not finite.
    """
    if min(shadows, trials) < 8:
        raise ValueError(f"shadows and trials must be 8 or more; got {shadows} and {trials}.")
    rng = np.random.default_rng(seed)
    if trainer is None:
        trainer = PathScorer.fit if isinstance(game, PathGame) else GaussianScorer.fit
    step(f"{shadows:,} releases with the record, to learn from")
    members = _finite(game.features(True, shadows, rng))
    step(f"{shadows:,} releases without it, to learn from")
    seen = members, _finite(game.features(False, shadows, rng))
    scorer = trainer(*seen)
    step(f"{trials:,} releases with the record, to score")
    members = scorer(_finite(game.features(True, trials, rng)))
    step(f"{trials:,} releases without it, to score")
    others = scorer(_finite(game.features(False, trials, rng)))
    step("Bounding epsilon")
    lower = epsilon_lower_bound(
        members, others, delta, confidence=confidence, chosen_on=(scorer(seen[0]), scorer(seen[1]))
    )
    return MembershipAttack(
        members,
        others,
        tuple(rate_at(members, others, target, confidence) for target in FALSE_POSITIVE_RATES),
        area_under_curve(members, others),
        lower,
        delta,
        confidence,
        claimed,
    )


def _finite(features: Array) -> Array:
    if features.ndim != 2 or not np.isfinite(features).all():
        raise ValueError("Features must be finite numbers of shape (releases, features).")
    return features
