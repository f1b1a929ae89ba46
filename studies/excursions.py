"""Excursion sets from kernel sums: raw or filtered, and decoded, on the simulated worlds of Maciazek 2026.

``decoder_row`` scores the kernel-sum releases of one setting (dimension, n, noise, epsilon) world by world. Everything
that is chosen (kernel, length scale, filter, decoder and its cut) is chosen on public simulated worlds that the score
does not use. Nothing here reads real data.

``python -m studies.excursions`` prints the rows of the two published settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.ndimage import gaussian_filter
from threadpoolctl import threadpool_limits

from discretion.gp import RBF, Exponential, ExponentialL1, Kernel
from discretion.gp.fields import kernel_sums, stationary_field
from discretion.posterior.confidence import SumLayout
from discretion.posterior.decoder import Decoder, simulated_decoder
from discretion.posterior.worlds import BlobWorlds, GaussianProcessWorlds, OUExcursionWorlds, Worlds
from discretion.privacy import gaussian_mu

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

TRAINING, SEARCH = 3_000, 200
_NUGGET = 1e-6


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
        middle = np.median if self.dimension == 2 else np.mean
        return {name: float(middle(getattr(self, name))) for name in ("kernel_sum", "decoder", "trivial")}


def simulator(dimension: int, n: int, noise: float) -> OUExcursionWorlds | BlobWorlds:
    """The worlds of the setting: paths on [0, 1] on 800 nodes, or bumps on the unit square on 40 x 40."""
    if dimension == 1:
        return OUExcursionWorlds(n, noise)
    if dimension == 2:
        return BlobWorlds(n, noise)
    raise ValueError(f"the published settings have one or two dimensions, not {dimension!r}")


def published_delta(dimension: int, n: int) -> float:
    """1e-3 in one dimension and n^-1.1 in two."""
    return 1e-3 if dimension == 1 else float(n) ** -1.1


@cache
def public_worlds(dimension: int, n: int, noise: float, count: int, seed: int) -> Worlds:
    """Training worlds; the same for all epsilons of a setting."""
    return simulator(dimension, n, noise).simulate(count, np.random.default_rng([seed, 1]))


@cache
def generic_worlds(n: int, noise: float, count: int, seed: int) -> Worlds:
    """Training worlds that know nothing of the bumps: random fields of a length scale of 0.25 with the same noise."""
    blobs = BlobWorlds(n, noise)
    rng = np.random.default_rng([seed, 2])
    prior = GaussianProcessWorlds(RBF(0.25), blobs.domain, blobs.grid, n, 0.0, normalise=True)
    worlds = prior.simulate(count, rng)
    y = (1.0 - noise) * worlds.responses + rng.uniform(-noise, noise, worlds.responses.shape)
    return Worlds(worlds.covariates, y, worlds.targets)


def scores(estimates: Floats, cut: float, truth: Mask) -> Floats:
    """IoU of {estimate >= cut} with the truth, for estimates (..., worlds, m) and truth (worlds, m)."""
    inside = estimates >= cut
    union = np.count_nonzero(inside | truth, axis=-1)
    return np.where(union == 0, 1.0, np.count_nonzero(inside & truth, axis=-1) / np.maximum(union, 1))


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
    count = {1: 60, 2: 30}[dimension] if worlds is None else worlds
    delta = published_delta(dimension, n)
    scale = 2.0 / float(gaussian_mu(epsilon, delta))
    rng = np.random.default_rng([seed, 3, round(1000 * epsilon)])
    setting = simulator(dimension, n, noise)
    public = public_worlds(dimension, n, noise, training, seed)
    test = setting.simulate(count, np.random.default_rng([seed, 4]))
    truth = test.targets >= 0

    kernel, width = best_plain(setting, public[:SEARCH], scale, rng)
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
    return SumLayout.on_grid(kernel, setting.domain, setting.grid, scale, nugget=_NUGGET)


def plain_kernels(dimension: int) -> list[Kernel]:
    """Candidates for the map without a decoder."""
    if dimension == 1:
        return [kind(l) for kind in (RBF, Exponential) for l in (0.02, 0.04, 0.06, 0.1, 0.15, 0.25, 0.4)]
    return [kind(l) for kind in (RBF, ExponentialL1) for l in (0.06, 0.1, 0.14, 0.18, 0.24, 0.32)]


def best_plain(
    setting: OUExcursionWorlds | BlobWorlds, public: Worlds, scale: float, rng: np.random.Generator
) -> tuple[Kernel, float]:
    """The kernel and the width of the filter (in nodes) with the largest mean IoU on public worlds."""
    widths = (0.0, 8.0, 20.0) if len(setting.grid) == 1 else (0.0, 2.0)
    truth, found = public.targets >= 0, []
    for kernel in plain_kernels(len(setting.grid)):
        values = released(setting, kernel, scale, public, 1, rng)
        found += [(scores(filtered(values, setting.grid, w), 0.0, truth).mean(), kernel, w) for w in widths]
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
    noise = field.draw(rng.standard_normal, max(_NUGGET, 8.0 * field.rounding), releases * len(worlds))
    return sums + scale * noise.reshape(releases, *sums.shape)


def filtered(values: Floats, grid: tuple[int, ...], width: float) -> Floats:
    """Gaussian filter over the map, nearest boundary, truncated at 3 standard deviations (in nodes)."""
    if width == 0.0:
        return values
    maps = values.reshape(-1, *grid)
    sigma = (0.0,) + (width,) * len(grid)
    return gaussian_filter(maps, sigma, mode="nearest", truncate=3.0).reshape(values.shape)


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


def main() -> None:
    """Print the rows of the published settings."""
    table = Table("dimension", "n", "noise-to-signal", "epsilon", "kernel sum", "decoder", "all places")
    with threadpool_limits(1):
        for dimension, n, noise in ((1, 100, 0.5), (2, 400, 0.5), (2, 400, 0.3)):
            for epsilon in (9.0, 3.0, 1.0):
                s = decoder_row(dimension, n, noise, epsilon).summary()
                values = (f"{s[name]:.3f}" for name in ("kernel_sum", "decoder", "trivial"))
                table.add_row(str(dimension), str(n), f"{noise / (1 - noise):.2f}", f"{epsilon:g}", *values)
    Console().print(table)


if __name__ == "__main__":
    main()
