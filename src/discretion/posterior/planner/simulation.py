"""Simulated releases of simulated worlds, and their scores. Public from end to end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Exponential, Kernel, kernel
from discretion.gp.fields import stationary_field
from discretion.posterior.account import calibrate_posterior
from discretion.posterior.assumptions import Bounded, Exponential1D, RecordAssumption
from discretion.posterior.certified import CertifiedTable
from discretion.posterior.confidence.suprema import supremum_quantile
from discretion.posterior.decoder import Decoder, best_linear_decoder, tuned_cut
from discretion.posterior.excursion import agreed
from discretion.posterior.layout import SumLayout
from discretion.posterior.planner.paths import PathWorlds
from discretion.posterior.planner.priors import Model, NodeWorlds
from discretion.posterior.planner.setting import Setting, path_kernels
from discretion.posterior.spectrum import KernelChoice, SpectralPrior, choose_kernel
from discretion.privacy import Unreachable, gaussian_mu

__all__ = ["Candidate", "Score", "Simulation", "candidate"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_NUGGET = 1e-6
_RIDGES = (0.1, 3.0, 100.0)  # r^2 in units of n
FEATURES = 160
"""Features of a decoder."""


@dataclass(frozen=True)
class Score:
    """A mean over worlds and its standard error, ``se``, by world."""

    mean: float
    se: float

    @classmethod
    def of(cls, values: Floats) -> Score:
        """Of one value a world."""
        return cls(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))

    def __str__(self) -> str:
        return f"{self.mean:.3f} +- {self.se:.3f}"


@dataclass(frozen=True)
class Candidate:
    """One release that could be made, and what it scored on simulated worlds that were not used to choose it.

    Attributes
    ----------
    mechanism : {"kernel-sum", "posterior", "lattice"}
    account : str
        "exact" for a kernel sum; for a posterior path "published" (`posterior_loss`: Theorem 3.1 and its refinements)
        or "certified" (`CertifiedTable`, where it is smaller); on a lattice "certified on a lattice".
    kernel : Kernel or Hexagons
    decoder : bool
    epsilon, scale : float
    ridge : float or None
        Of the posterior.
    iou : Score
        Overlap of the published set with the true {f >= threshold}: what candidates are compared by.
    agreement : Score
        Overlap with what the same map would show without privacy: what can be checked afterwards.
    rmse : Score
        Of the local mean against the true field; where there is no support the best constant is taken.
    ceiling : Score
        Overlap of the same map without privacy with the true set.
    gain : Score
        ``iou`` less that of the best trivial answer, paired by world.
    merit : float
        Mean overlap on the worlds it was chosen by.
    """

    mechanism: str
    account: str
    kernel: Any
    decoder: bool
    epsilon: float
    scale: float
    ridge: float | None
    iou: Score
    agreement: Score
    rmse: Score
    ceiling: Score
    gain: Score
    merit: float

    @property
    def label(self) -> str:
        """The row of the frontier it belongs to."""
        if self.mechanism == "lattice":
            return "posterior path on a lattice"
        if self.mechanism == "posterior":
            return f"posterior path, {self.account} account"
        return "kernel sum with decoder" if self.decoder else "kernel sum"

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        values = {name: value for name, value in vars(self).items() if name not in ("kernel", "merit")}
        scores = {name: vars(value) for name, value in values.items() if isinstance(value, Score)}
        return values | scores | {"label": self.label, "kernel": kernel_dict(self.kernel)}


def kernel_dict(kernel: Any) -> dict[str, Any]:
    """A kernel, or the prior that stands in its place, as JSON data."""
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(kernel).items()}
    return {"name": kernel.name} | {key: value for key, value in plain.items() if not callable(value)}


def overlap(A: Mask, B: Mask) -> Floats:
    """Intersection over union along the last axis; an empty union has 1."""
    union = np.count_nonzero(A | B, axis=-1)
    return np.where(union == 0, 1.0, np.count_nonzero(A & B, axis=-1) / np.maximum(union, 1))


@dataclass(frozen=True, eq=False)
class _Scored:
    """Scores world by world; the names are those of `Candidate`."""

    iou: Floats
    agreement: Floats
    rmse: Floats
    ceiling: Floats
    gain: Floats


@dataclass(frozen=True, eq=False)
class _Sums:
    """Kernel sums of all worlds, (N, m), and two unit noise fields for each."""

    values: Floats
    density: Floats
    first: Floats
    second: Floats

    def at(self, worlds: NDArray[np.int64], places: NDArray[np.int64]) -> _Sums:
        return _Sums(*(values[np.ix_(worlds, places)] for values in vars(self).values()))

    def noisy(self, s: float) -> tuple[Floats, Floats]:
        return self.values + s * self.first, self.density + s * self.second


@dataclass(frozen=True, eq=False)
class Simulation:
    """All worlds of a plan, and every candidate scored on them. The first half chooses, the second half reports.

    The same noise serves every epsilon, so that scores along the frontier are comparable.

    Parameters
    ----------
    model : Model
    delta : float
    floor : float
        Records that must be near for a local mean to be drawn.
    worlds, path_worlds : int
        Number of simulated worlds for kernel sums, and for posterior paths.
    seed : int
    paths : int
        Released together, of which at least half must agree at a place of the map.
    """

    model: Model
    delta: float
    floor: float
    worlds: int
    path_worlds: int
    seed: int
    paths: int = 1

    @property
    def setting(self) -> Setting:
        """The public problem."""
        return self.model.setting

    @cached_property
    def data(self) -> NodeWorlds:
        """The worlds."""
        return self.model.simulate(self.worlds, self._rng(1))

    @cached_property
    def truth(self) -> Mask:
        """The true sets at the places that are scored."""
        return (self.data.fields >= self.setting.threshold)[:, self.model.mask]

    @cached_property
    def trivial(self) -> dict[str, Floats]:
        """Overlap, world by world, of the answers that need no data."""
        everything = np.ones(self.truth.shape[1:], dtype=bool)
        return {"all places": overlap(everything, self.truth), "no places": overlap(~everything, self.truth)}

    @cached_property
    def best_trivial(self) -> str:
        """The better of them, by its mean."""
        return max(self.trivial, key=lambda name: float(self.trivial[name].mean()))

    @cached_property
    def constant(self) -> Floats:
        """RMSE, world by world, of the best constant."""
        gap = self.data.fields[:, self.model.mask] - self._best_constant
        return np.sqrt(np.mean(gap * gap, axis=1))

    @cached_property
    def _best_constant(self) -> float:
        return float(self.data.fields[:, self.model.mask].mean())

    # --- kernel sums --------------------------------------------------------------------------------------------------

    def noise(self, epsilon: float) -> float:
        """s = 2 M / mu. The mechanism's own scale is larger by the rounding of the sums, at most one per cent."""
        return 2.0 * self.setting.bound / float(gaussian_mu(epsilon, self.delta))

    def water_filling(self, epsilon: float) -> KernelChoice:
        """The kernel with the least error under a decoder, and the least error of all stationary kernels."""
        cache: dict[float, KernelChoice] = self.__dict__.setdefault("_choices", {})
        if epsilon not in cache:
            cache[epsilon] = self._water_filling(epsilon)
        return cache[epsilon]

    def _water_filling(self, epsilon: float) -> KernelChoice:
        law, box = self.model.gaussian, self.setting.box
        modes = {1: 512, 2: 64}.get(box.dimension, min(16, int(2.0 ** (22.0 / box.dimension))))
        # uniform records, whatever the design: a first guess
        prior = SpectralPrior(law.kernel, box, self.setting.n, law.noise_sd**2, law.amplitude, modes)
        return choose_kernel(prior, self.noise(epsilon))

    def kernel_sum(self, kernel: Kernel, epsilon: float) -> Candidate:
        """The map {h + (c - t) d / M >= 0} and the local means c + M h / d."""
        scored = self._scored_kernel_sum(kernel, epsilon)
        return candidate(scored, kernel=kernel, epsilon=epsilon, scale=self.noise(epsilon))

    def _scored_kernel_sum(self, kernel: Kernel, epsilon: float) -> _Scored:
        cache: dict[Any, _Scored] = self.__dict__.setdefault("_plain", {})
        if (kernel, epsilon) not in cache:
            everywhere = np.arange(self.worlds), np.arange(len(self.model.mask))
            cache[kernel, epsilon] = self._kernel_sum(kernel, epsilon, *everywhere)
        return cache[kernel, epsilon]

    def _kernel_sum(
        self, kernel: Kernel, epsilon: float, worlds: NDArray[np.int64], places: NDArray[np.int64]
    ) -> _Scored:
        s, M = self.noise(epsilon), self.setting.bound
        sums = self._sums(kernel).at(worlds, places)
        h, d = sums.noisy(s)
        support = d / M >= self.floor + 2.0 * s / M
        means = self.setting.centre + M * np.clip(np.divide(h, d, out=np.zeros_like(h), where=support), -1.0, 1.0)
        fields = np.where(support, means, self._best_constant)
        return self.scored(self._above(h, d), self._above(sums.values, sums.density), fields, worlds, places)

    def undecided(self, kernel: Kernel, epsilon: float, level: float = 0.95) -> Score:
        """Share of the scored places that lie between the inner and the outer set of `excursion_sets`."""
        setting, sums, scored = self.setting, self._sums(kernel), self.model.mask
        a, s = (setting.centre - setting.threshold) / setting.bound, self.noise(epsilon)
        h, d = sums.noisy(s)
        suprema = np.abs(np.concatenate([sums.first, sums.second])[:, scored]).max(axis=1)
        cut = supremum_quantile(suprema, level) * s * math.hypot(1.0, a)
        return Score.of(np.mean(np.abs(h + a * d)[self.worlds // 2 :, scored] < cut, axis=1))

    def decoder(self, kernel: Kernel, epsilon: float) -> Decoder:
        """The closed-form decoder of such a release at every second place, its cut tuned on worlds of the same law."""
        setting = self.setting
        layout = SumLayout(
            (kernel,), setting.box, setting.places, self.noise(epsilon), setting.bound, setting.centre, _NUGGET, "data"
        )
        decoder = best_linear_decoder(layout, self.model.coarse, features=FEATURES)
        kept = setting.half[1]
        scored, worlds = self.model.mask[kept], self._decoder_worlds
        sums = self._summed(kernel, setting.places.points, worlds, self._rng(4))
        estimates = _decoded(decoder, *sums.noisy(self.noise(epsilon)))[:, scored]
        truth = (worlds.fields[:, kept] >= setting.threshold)[:, scored]
        cut, score = tuned_cut(estimates, truth, around=setting.threshold)
        facts = decoder.facts | {"cut_worlds": len(truth), "cut_iou": score}
        return replace(decoder, threshold=setting.threshold, cut=cut, facts=facts)

    def decoded(self, kernel: Kernel, epsilon: float) -> Candidate:
        """The map {estimate >= cut} of a decoder."""
        decoder, sums, s = self.decoder(kernel, epsilon), self._sums(kernel), self.noise(epsilon)
        assert decoder.cut is not None
        noisy, clear = _decoded(decoder, *sums.noisy(s)), _decoded(decoder, sums.values, sums.density)
        kept = self.setting.half[1]
        scored = self.scored(noisy >= decoder.cut, clear >= decoder.cut, noisy, np.arange(self.worlds), kept)
        return candidate(scored, kernel=kernel, epsilon=epsilon, scale=s, decoder=True)

    @cached_property
    def _decoder_worlds(self) -> NodeWorlds:
        return self.model.decoder_worlds(max(100, self.worlds // 2), self._rng(3))

    def _sums(self, kernel: Kernel) -> _Sums:
        cache: dict[Kernel, _Sums] = self.__dict__.setdefault("_kept", {})
        if kernel not in cache:
            cache[kernel] = self._summed(kernel, self.model.nodes, self.data, self._rng(2))
        return cache[kernel]

    def _summed(self, kernel: Kernel, nodes: Floats, worlds: NodeWorlds, rng: np.random.Generator) -> _Sums:
        weights = kernel(nodes, self.setting.places.points)
        field = stationary_field(kernel, self.setting.places)
        noise = field.draw(rng.standard_normal, max(_NUGGET, 8.0 * field.rounding), 2 * len(worlds.counts))
        first, second = np.split(noise, 2)
        return _Sums(worlds.sums @ weights, self.setting.bound * (worlds.counts @ weights), first, second)

    def _above(self, h: Floats, d: Floats) -> Mask:
        return h + (self.setting.centre - self.setting.threshold) / self.setting.bound * d >= 0.0

    # --- posterior paths ----------------------------------------------------------------------------------------------

    def posterior(self, lengths: list[float], epsilons: tuple[float, ...]) -> Iterator[Candidate]:
        """The paths for each kernel, ridge, account and epsilon that some scale can meet.

        Simulated on fewer worlds and places than kernel sums: records are moved to the nearest of these places.
        """
        names = reversed(path_kernels(self.setting.n, self.setting.box.dimension))
        for each in [kernel(name, length) for name in names for length in lengths]:
            ridges = np.sqrt(np.asarray(_RIDGES) * self.setting.n).tolist()
            drawn = list(self.path_data.posteriors(each, ridges, self.paths))
            for row, ridge in enumerate(ridges):
                means, noises = (np.stack([world[part][row] for world in drawn]) for part in (0, 1))
                yield from self._paths(each, ridge, epsilons, means, noises)

    def _path_scales(
        self, kernel: Kernel, ridge: float, epsilons: tuple[float, ...]
    ) -> Iterator[tuple[str, float, float]]:
        """(account, epsilon, scale) that can be had."""
        n, bound = self.setting.n, self.setting.of_paths.bound
        line = isinstance(kernel, Exponential) and self.setting.box.dimension == 1
        assumption = Exponential1D(bound) if line else Bounded(bound)
        least = kernel.least_value(self.setting.box)
        common: dict[str, Any] = {"n": n, "ridge": ridge, "assumption": assumption, "least_kernel": least}
        common["paths"] = self.paths
        published: dict[float, float] = {}
        for epsilon in epsilons:
            try:
                published[epsilon] = calibrate_posterior("scale", epsilon=epsilon, delta=self.delta, **common)
            except Unreachable:
                continue
            yield "published", epsilon, published[epsilon]
        table = self._certified(ridge, assumption)
        if table is None:
            return
        for epsilon in epsilons:
            # about the scale at which the paths' noise is that of a kernel sum, scale ridge^2 = 2 M sqrt(paths) / mu
            unit = 2.0 * bound * math.sqrt(self.paths) / gaussian_mu(epsilon, self.delta) / ridge**2
            scales = unit * np.geomspace(0.3, 30.0, 400)
            met = scales[table.epsilon(scales, self.delta, self.paths) <= epsilon]
            found = min(float(met.min(initial=math.inf)), published.get(epsilon, math.inf))
            if math.isfinite(found):
                yield "certified", epsilon, found

    def _certified(self, ridge: float, assumption: RecordAssumption) -> CertifiedTable | None:
        """The certified account of a ridge for every kernel (least value 0), where the search ends in time."""
        cache: dict[Any, CertifiedTable | None] = self.__dict__.setdefault("_tables", {})
        key = ridge, assumption.name
        if key not in cache:
            try:
                # a search that the clock stops would not be the same in each run
                table = CertifiedTable(self.setting.n, ridge, assumption, tolerance=0.03)
            except ValueError:
                table = None
            cache[key] = table
        return cache[key]

    def _paths(
        self, kernel: Kernel, ridge: float, epsilons: tuple[float, ...], means: Floats, noises: Floats
    ) -> Iterator[Candidate]:
        kept = self.setting.half[1]
        for account, epsilon, scale in self._path_scales(kernel, ridge, epsilons):
            few = self.scored_paths(means, scale, noises, kept)
            yield candidate(
                few,
                self.controls(kernel, epsilon, kept),
                mechanism="posterior",
                account=account,
                kernel=kernel,
                epsilon=epsilon,
                scale=scale,
                ridge=ridge,
            )

    def scored_paths(self, means: Floats, scale: float, noises: NDArray[Any], places: NDArray[np.int64]) -> _Scored:
        """Scores of the map of the paths, from their means (W, m) less the centre and noises (W, paths, m) at scale 1.

        The set is where at least half of them are at least the threshold, the field their mean.
        """
        c, t = self.setting.of_paths.centre, self.setting.threshold
        paths = np.moveaxis(c + means[:, None] + scale * noises, 1, 0)
        shown = agreed(paths, 0.5) >= t
        return self.scored(shown, c + means >= t, paths.mean(axis=0), self.path_numbers, places)

    def controls(self, kernel: Kernel, epsilon: float, places: NDArray[np.int64]) -> tuple[_Scored, _Scored]:
        """Scores of a kernel sum on the worlds of paths, at places, and on all worlds everywhere."""
        few = self._kernel_sum(kernel, epsilon, self.path_numbers, places)
        return few, self._scored_kernel_sum(kernel, epsilon)

    @cached_property
    def path_data(self) -> PathWorlds:
        """The worlds of paths, at every second place."""
        return PathWorlds.of(self.model, self.data, self.path_numbers, self.setting.half[1], self.seed)

    @cached_property
    def path_numbers(self) -> NDArray[np.int64]:
        """Which worlds posterior paths are simulated on: evenly among all, so that halves stay halves."""
        return np.linspace(0, self.worlds - 1, min(self.path_worlds, self.worlds)).astype(np.int64)

    # --- scores -------------------------------------------------------------------------------------------------------

    def scored(
        self, shown: Mask, clear: Mask, fields: Floats, worlds: NDArray[np.int64], places: NDArray[np.int64]
    ) -> _Scored:
        """Scores of the maps shown, of those without privacy and of the fields, (worlds, places) each."""
        scored = self.model.mask[places]
        target = self.data.fields[np.ix_(worlds, places)][:, scored]
        truth, shown, clear = target >= self.setting.threshold, shown[:, scored], clear[:, scored]
        iou = overlap(shown, truth)
        constant = np.full(truth.shape[1:], self.best_trivial == "all places")
        rmse = np.sqrt(np.mean((fields[:, scored] - target) ** 2, axis=1))
        return _Scored(iou, overlap(shown, clear), rmse, overlap(clear, truth), iou - overlap(constant, truth))

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])


def candidate(
    scored: _Scored,
    control: tuple[_Scored, _Scored] | None = None,
    *,
    kernel: Any,
    epsilon: float,
    scale: float,
    mechanism: str = "kernel-sum",
    account: str = "exact",
    decoder: bool = False,
    ridge: float | None = None,
) -> Candidate:
    """The candidate with these scores. With a control, few worlds are made to speak for many:

        mean over the few of (score - control) + mean over the many of the control,

    the control being the kernel sum of the same kernel and epsilon, on the few and on the many.
    """
    worlds = len(scored.iou)
    scores: dict[str, Score] = {}
    choosing, reporting = slice(worlds // 2), slice(worlds // 2, None)
    for name, values in vars(scored).items():
        scores[name] = Score.of(values[reporting])
        if control is not None:
            few, many = (getattr(each, name) for each in control)
            gap, base = Score.of((values - few)[reporting]), Score.of(many[len(many) // 2 :])
            scores[name] = Score(gap.mean + base.mean, math.hypot(gap.se, base.se))
    merit = float(scored.iou[choosing].mean())
    if control is not None:
        few, many = (each.iou for each in control)
        merit += float(many[: len(many) // 2].mean() - few[choosing].mean())
    return Candidate(mechanism, account, kernel, decoder, float(epsilon), float(scale), ridge, **scores, merit=merit)


def _decoded(decoder: Decoder, h: Floats, d: Floats) -> Floats:
    """Estimates of many releases at once, (N, m), as `Decoder.decode` makes them one by one."""
    features = np.concatenate([decoder.bases[0].whiten(h), decoder.bases[0].whiten(d)], axis=-1)
    return decoder.target_mean + (features - decoder.mean) @ decoder.weights
