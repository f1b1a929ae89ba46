"""Excursion sets from kernel sums, raw or decoded, beside those of posterior paths, on the worlds of Maciazek 2026.

``decoder_row`` scores the kernel-sum releases of one setting (dimension, n, noise, epsilon) world by world;
``excursion_rows`` adds posterior paths (:mod:`studies.posterior_excursions`) on the same worlds. Everything that is
chosen (kernel, length scale, filter, ridge, decoder and its cut) is chosen on public simulated worlds that the score
does not use. Nothing here reads real data.

``python -m studies.excursions`` prints all rows, and the differences of neighbouring columns with paired standard
errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from discretion.gp import RBF, ExponentialL1, Kernel
from discretion.gp.fields import kernel_sums, stationary_field
from discretion.posterior.decoder import Decoder, simulated_decoder
from discretion.posterior.layout import SumLayout
from discretion.posterior.worlds import BlobWorlds, OUExcursionWorlds, Worlds
from discretion.privacy import gaussian_mu
from studies.excursion_settings import (
    EPSILONS,
    LENGTHS,
    NUGGET,
    TRAINING,
    WIDTHS,
    Floats,
    default_worlds,
    filtered,
    generic_worlds,
    public_worlds,
    published_delta,
    scores,
    simulator,
    test_worlds,
)
from studies.posterior_excursions import posterior_rows

SEARCH, SEARCH_RELEASES = {1: 400, 2: 200}, {1: 8, 2: 2}
"""Public worlds on which kernel and filter of a raw map are chosen, and releases of each, by dimension."""
SETTINGS = ((1, 100, (0.5,)), (2, 400, (0.5, 0.3)))
"""Dimension, n and values of M_xi: noise-to-signal 1 and, in two dimensions, 0.43."""
WORLDS, RELEASES = {1: 400, 2: 100}, 30
"""Worlds of the whole table by dimension, and releases of each."""
LADDER = ("published", "certified", "kernel_sum", "decoder")
"""Columns in the order in which they should rise."""


@dataclass(frozen=True, eq=False)
class DecoderRow:
    """Scores of one setting, world by world.

    Attributes
    ----------
    dimension, n, noise, epsilon, delta : the setting; ``noise`` is M_xi, noise-to-signal M_xi / (1 - M_xi).
    scale : float
        Noise scale s = 2 / mu of the kernel sums, M = 1, exact Gaussian DP, replace-one neighbours.
    kernel_sum : array (worlds,)
        IoU of {h >= 0}, or of the filtered h, mean over the releases of each world.
    decoder : array (worlds,)
        IoU of the decoded set, mean over the releases.
    trivial : array (worlds,)
        IoU of the set of all places.
    chosen : dict
        What was chosen on public worlds.
    """

    dimension: int
    n: int
    noise: float
    epsilon: float
    delta: float
    scale: float
    kernel_sum: Floats
    decoder: Floats
    trivial: Floats
    chosen: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, float]:
        """The published summary of each column: median over worlds in two dimensions, mean in one."""
        return {name: middle(self.dimension, getattr(self, name)) for name in ("kernel_sum", "decoder", "trivial")}


def decoder_row(
    dimension: int,
    n: int,
    noise: float,
    epsilon: float,
    *,
    worlds: int | None = None,
    releases: int = 50,
    training: int = TRAINING,
    generic: bool = False,
    seed: int = 0,
) -> DecoderRow:
    """Score kernel sums and their decoder in one setting.

    Parameters
    ----------
    dimension, n, noise, epsilon
        The setting; ``noise`` is M_xi.
    worlds : int, optional
        Worlds to score; 60 in one dimension and 30 in two.
    releases : int
        Releases of each world.
    training : int
        Public worlds on which decoder and settings are chosen.
    generic : bool
        Train the decoder on random fields in place of the test family (two dimensions).
    seed : int
        Of the simulation.
    """
    count = default_worlds(dimension) if worlds is None else worlds
    delta = published_delta(dimension, n)
    scale = 2.0 / float(gaussian_mu(epsilon, delta))
    rng = np.random.default_rng([seed, 3, round(1000 * epsilon)])
    setting = simulator(dimension, n, noise)
    public = public_worlds(dimension, n, noise, training, seed)
    test = test_worlds(dimension, n, noise, count, seed)
    truth = test.targets >= 0

    kernel, width = best_plain(setting, public[: SEARCH[dimension]], scale, rng)
    plain = released(setting, kernel, scale, test, releases, rng)
    kernel_sum = scores(filtered(plain, setting.grid, width), 0.0, truth).mean(axis=0)

    taught = generic_worlds(n, noise, training, seed) if generic else public
    decoder = best_decoder(setting, taught, scale, rng)
    assert decoder.cut is not None
    decoded = scores(decoder.simulate(test, rng, releases=releases), decoder.cut, truth).mean(axis=0)
    chosen = {"plain": [kernel.name, kernel.length_scale, width], "decoder": decoder.facts}
    return DecoderRow(dimension, n, noise, epsilon, delta, scale, kernel_sum, decoded, truth.mean(axis=1), chosen)


def layout(setting: OUExcursionWorlds | BlobWorlds, kernel: Kernel, scale: float) -> SumLayout:
    """The release of a setting: responses in [-1, 1] about 0."""
    return SumLayout.on_grid(kernel, setting.domain, setting.grid, scale, nugget=NUGGET)


def plain_kernels(dimension: int) -> list[Kernel]:
    """Candidates for the map without a decoder; both are products over the axes."""
    return [kind(l) for kind in (RBF, ExponentialL1) for l in LENGTHS[dimension]]


def best_plain(
    setting: OUExcursionWorlds | BlobWorlds, public: Worlds, scale: float, rng: np.random.Generator
) -> tuple[Kernel, float]:
    """The kernel and the width of the filter (in nodes) with the largest mean IoU on public worlds.

    All candidates see the same random numbers.
    """
    dimension = len(setting.grid)
    truth, found, seed = public.targets >= 0, [], int(rng.integers(2**63))
    for kernel in plain_kernels(dimension):
        same = np.random.default_rng(seed)
        values = released(setting, kernel, scale, public, SEARCH_RELEASES[dimension], same)
        for width in WIDTHS[dimension]:
            found.append((scores(filtered(values, setting.grid, width), 0.0, truth).mean(), kernel, width))
    _, kernel, width = max(found, key=lambda item: item[0])
    return kernel, width


def released(
    setting: OUExcursionWorlds | BlobWorlds,
    kernel: Kernel,
    scale: float,
    worlds: Worlds,
    releases: int,
    rng: np.random.Generator,
) -> Floats:
    """Released value sums of each world, shape (releases, worlds, m)."""
    places = layout(setting, kernel, scale).kernel_places
    pairs = zip(worlds.covariates, worlds.responses, strict=True)
    sums = np.concatenate([kernel_sums(kernel, places, X, y[:, None]) for X, y in pairs])
    field = stationary_field(kernel, places)
    noise = field.draw(rng.standard_normal, max(NUGGET, 8.0 * field.rounding), releases * len(worlds))
    return sums + scale * noise.reshape(releases, *sums.shape)


def best_decoder(
    setting: OUExcursionWorlds | BlobWorlds, public: Worlds, scale: float, rng: np.random.Generator
) -> Decoder:
    """The decoder whose tuned sets score best on held-out public worlds, over a few length scales."""
    lengths = (0.05, 0.1, 0.2) if len(setting.grid) == 1 else (0.14, 0.2, 0.28)
    made = [
        simulated_decoder(layout(setting, RBF(l), scale), public, setting.grid, rng, threshold=0.0, posterior=False)
        for l in lengths
    ]
    return max(made, key=lambda decoder: decoder.facts["cut_iou"])


# --- the whole table ----------------------------------------------------------------------------------------------


class Gain(NamedTuple):
    """Mean of a paired difference over worlds and its standard error."""

    mean: float
    error: float

    @property
    def clear(self) -> bool:
        """Whether the mean is above 2 standard errors."""
        return self.mean > 2.0 * self.error

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ({self.error:.4f})"


@dataclass(frozen=True, eq=False)
class ExcursionRow:
    """One setting at one epsilon: ``columns[name]`` (worlds,) are mean IoUs over the releases of each world."""

    dimension: int
    n: int
    noise: float
    epsilon: float
    delta: float
    columns: dict[str, Floats]
    chosen: dict[str, Any]

    @property
    def setting(self) -> tuple[str, ...]:
        """In words, for tables."""
        return str(self.dimension), str(self.n), f"{self.noise / (1.0 - self.noise):.2f}", f"{self.epsilon:g}"

    def summary(self) -> dict[str, float]:
        """The published summary of each column: median over worlds in two dimensions, mean in one."""
        return {name: middle(self.dimension, values) for name, values in self.columns.items()}

    def gain(self, worse: str, better: str) -> Gain:
        """Paired difference of two columns over worlds."""
        difference = self.columns[better] - self.columns[worse]
        return Gain(float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference))))

    def steps(self) -> list[Gain]:
        """Gain of each column of the ladder over the one before."""
        return [self.gain(a, b) for a, b in pairwise(LADDER)]


def middle(dimension: int, values: Floats) -> float:
    """Median over worlds in two dimensions, mean in one."""
    return float(np.median(values) if dimension == 2 else np.mean(values))


def excursion_rows(
    settings: tuple[tuple[int, int, tuple[float, ...]], ...] = SETTINGS,
    epsilons: tuple[float, ...] = EPSILONS,
    *,
    worlds: Mapping[int, int] = WORLDS,
    releases: int = RELEASES,
    training: int = TRAINING,
    search: int | None = None,
    seed: int = 0,
) -> list[ExcursionRow]:
    """All columns of each setting on the same worlds.

    Parameters
    ----------
    settings
        Dimension, n and values of M_xi.
    worlds
        Worlds to score, by dimension.
    releases, training, search, seed
        As in :func:`decoder_row` and :func:`studies.posterior_excursions.posterior_rows`.
    """
    rows = []
    for dimension, n, noises in settings:
        sizes = {"worlds": worlds[dimension], "releases": releases, "training": training, "seed": seed}
        paths = posterior_rows(dimension, n, noises, epsilons, search=search, **sizes)
        for (noise, epsilon), path in paths.items():
            sums = decoder_row(dimension, n, noise, epsilon, generic=False, **sizes)
            columns = path.scores | {name: getattr(sums, name) for name in ("kernel_sum", "decoder", "trivial")}
            chosen = path.chosen | sums.chosen
            rows.append(ExcursionRow(dimension, n, noise, epsilon, sums.delta, columns, chosen))
    return rows


def tables(rows: list[ExcursionRow]) -> tuple[Table, Table]:
    """Summaries; paired differences."""
    setting = ("dimension", "n", "noise-to-signal", "epsilon")
    names = list(rows[0].columns)
    summaries = Table(*setting, *(name.replace("_", " ") for name in names), title="IoU: mean (1-D), median (2-D)")
    steps = [*pairwise(LADDER), ("published_free", "certified")]
    titles = (f"{b} - {a}".replace("_", " ") for a, b in steps)
    gains = Table(*setting, *titles, title="Mean paired difference over worlds (standard error)")
    for row in rows:
        found = row.summary()
        summaries.add_row(*row.setting, *(f"{found[name]:.3f}" for name in names))
        gains.add_row(*row.setting, *(str(row.gain(a, b)) for a, b in steps))
    return summaries, gains


def main() -> None:
    """Print the rows of the published settings."""
    with threadpool_limits(1):
        rows = excursion_rows()
    console = Console(width=160)
    for table in tables(rows):
        console.print(table)


if __name__ == "__main__":
    main()
