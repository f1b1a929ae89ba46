"""Decoders: the best linear estimate of a target field from released kernel sums, under a public prior.

A kernel sum is a blurred, noisy image of what its user wants to see. Where a prior for that is public (a Gaussian
process, or anything that can be simulated), the estimate of least mean squared error that is linear in the release
follows from public second moments alone:

    estimate = E f + Cov(f, (h, d)) Cov((h, d))^{-1} ((h, d) - E (h, d)).

It is post-processing and costs no privacy. It carries the prior's knowledge, which the plain map does not: say so, and
report the two apart. Statements and proofs: ``docs/proofs/best-linear-decoder.md``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from discretion.gp import Kernel
from discretion.gp.fields import Grid, Places
from discretion.posterior.layout import Normals, SumLayout
from discretion.posterior.worlds import GaussianProcessWorlds, Worlds, square_root

__all__ = [
    "SCHEMA",
    "Decoder",
    "FieldPosterior",
    "KernelBasis",
    "best_linear_decoder",
    "simulated_decoder",
    "tuned_cut",
    "world_features",
]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SCHEMA = 1
"""Version of the layout of a saved decoder."""

_MOST_PLACES = 4_096  # where the kernel is no product over the axes of a grid
_TILE = 1 << 22  # float64 entries of one block of kernel values, 32 MB
_ARRAYS = ("mean", "weights", "target_mean")
_PENALTIES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, eq=False)
class KernelBasis:
    """Eigenvectors of a kernel on a grid, scaled so that the noise of a kernel sum has unit covariance.

    With K = U diag(l) U^T the Gram matrix of the grid and tau the nugget, the features of an array h on the grid are
    the first entries (largest l first) of

        diag(l + tau)^{-1/2} U^T h.

    Noise s (GP(0, k) + nugget) has features N(0, s^2 I). For a product kernel on a rectangular grid U is the Kronecker
    product of the axes' eigenvectors and is never formed.

    Attributes
    ----------
    kernel : Kernel
    places : Grid or array (m, d)
        In the kernel's coordinates.
    vectors : tuple of arrays (g_a, r_a)
        Leading eigenvectors of each factor: of each axis, or of the whole Gram matrix.
    index : array (r, factors)
        The eigenvectors of the factors that make up each feature.
    root : array (r,)
        sqrt(l + tau).
    """

    kernel: Kernel
    places: Places
    vectors: tuple[Floats, ...]
    index: NDArray[np.int64]
    root: Floats

    @classmethod
    def of(cls, kernel: Kernel, places: Places, nugget: float, features: int = 256) -> Self:
        """The basis with at most so many features; those with l <= min(10 tau, 1e-3), mostly nugget, are left out.

        Raises
        ------
        ValueError
            If the kernel is no product over the axes of a grid and there are more than 4,096 places.
        """
        if features < 1:
            raise ValueError(f"features must be at least 1; got {features!r}.")
        pairs = [np.linalg.eigh(k(nodes)) for k, _, nodes in _factors(kernel, places)]
        joint = reduce(np.multiply.outer, [np.maximum(value[::-1], 0.0) for value, _ in pairs])
        order = np.argsort(-joint, axis=None, kind="stable")[:features]
        order = order[joint.ravel()[order] > min(10.0 * nugget, 1e-3)]
        index = np.stack(np.unravel_index(order, joint.shape), axis=1)
        vectors = [v[:, ::-1][:, : 1 + int(used.max())].copy() for (_, v), used in zip(pairs, index.T, strict=True)]
        return cls(kernel, places, tuple(vectors), index, np.sqrt(joint.ravel()[order] + nugget))

    @property
    def size(self) -> int:
        """Number of features r."""
        return len(self.root)

    def whiten(self, arrays: Floats) -> Floats:
        """Features of arrays (..., m) on the grid: shape (..., r)."""
        batch = arrays.shape[:-1]
        values = arrays.reshape(-1, *map(len, self.vectors))
        for axis, vector in enumerate(self.vectors, 1):
            values = np.moveaxis(np.tensordot(values, vector, (axis, 0)), -1, axis)
        return (values[(slice(None), *self.index.T)] / self.root).reshape(*batch, -1)

    def points(self, X: Floats) -> Floats:
        """Features of k(x_i, .), without noise, for kernel coordinates X (n, d): shape (n, r)."""
        parts = zip(self._projected(X), self.index.T, strict=True)
        return reduce(np.multiply, [values[:, used] for values, used in parts]) / self.root

    def sums(self, X: Floats, weights: Sequence[Floats]) -> list[Floats]:
        """Features of sum_i w_i k(x_i, .), without noise: shape (N, r) for each w (N, n) and batches X (N, n, d)."""
        N, n, d = X.shape
        out = [np.empty((N, self.size)) for _ in weights]
        for start, stop in _blocks(N, max(1, _TILE // max(1, n * max(map(len, self.vectors))))):
            values = [p.reshape(stop - start, n, -1) for p in self._projected(X[start:stop].reshape(-1, d))]
            for result, w in zip(out, weights, strict=True):
                result[start:stop] = self._summed(values, w[start:stop])
        return [result / self.root for result in out]

    def _summed(self, values: list[Floats], w: Floats) -> Floats:
        first, index = values[0] * w[:, :, None], self.index
        if len(values) == 1:
            return first.sum(axis=1)[:, index[:, 0]]
        if len(values) == 2:
            return (first.swapaxes(1, 2) @ values[1])[:, index[:, 0], index[:, 1]]
        rest = list(zip(values[1:], index.T[1:], strict=True))
        worlds = range(len(w))
        return np.stack(
            [reduce(np.multiply, [v[b][:, used] for v, used in rest], first[b][:, index[:, 0]]).sum(0) for b in worlds]
        )

    def _projected(self, X: Floats) -> list[Floats]:
        """k_a(x_a, nodes_a) U_a for each factor a."""
        factors = zip(_factors(self.kernel, self.places), self.vectors, strict=True)
        return [k(X[:, columns], nodes) @ vector for (k, columns, nodes), vector in factors]


def _factors(kernel: Kernel, places: Places) -> list[tuple[Kernel, slice, Floats]]:
    """Kernels whose product is the kernel, the coordinates they read, and their nodes."""
    if isinstance(places, Grid):
        axes = places.axes
        if kernels := kernel.factors(len(axes)):
            return [(k, slice(a, a + 1), axes[a][:, None]) for a, k in enumerate(kernels)]
    points = places.points if isinstance(places, Grid) else places
    if len(points) > _MOST_PLACES:
        raise ValueError(
            f"A decoder for the {kernel.name} kernel takes at most {_MOST_PLACES} places; use a kernel that is a "
            "product over the axes of a grid (rbf, exponential-l1), or fewer places."
        )
    return [(kernel, slice(None), points)]


def _blocks(total: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, total, size):
        yield start, min(start + size, total)


@dataclass(frozen=True, eq=False)
class FieldPosterior:
    """A Gaussian law of the target field given a release: N(mean, factor^T factor).

    Attributes
    ----------
    mean : array (m,)
    factor : array (q, m)
    """

    mean: Floats
    factor: Floats

    def sd(self) -> Floats:
        """Standard deviation at each node, shape (m,)."""
        return np.sqrt(np.einsum("qm,qm->m", self.factor, self.factor))

    def covariance(self) -> Floats:
        """Covariance matrix, shape (m, m)."""
        return self.factor.T @ self.factor

    def draws(self, count: int, randomness: Normals | None = None) -> Floats:
        """Independent draws of the field, shape (count, m)."""
        source = np.random.default_rng() if randomness is None else randomness
        return self.mean + source.standard_normal((count, len(self.factor))) @ self.factor

    def probability(self, threshold: float) -> Floats:
        """Probability that the field is at or above the threshold, node by node, shape (m,)."""
        sd = self.sd()
        certain = (self.mean >= threshold).astype(np.float64)
        return np.where(sd > 0, ndtr((self.mean - threshold) / np.where(sd > 0, sd, 1.0)), certain)


@dataclass(frozen=True, eq=False)
class Decoder:
    """A frozen affine map from released kernel sums to a target: estimate = target_mean + (features - mean) weights.

    Made by `best_linear_decoder` (closed form) or `simulated_decoder` (simulated public worlds), from public numbers
    only; it can be saved, shared and applied to any number of releases of the layout it was made for.

    Attributes
    ----------
    layout : SumLayout
        The releases it reads: kernels, grid, noise scale, centre and bound of the response.
    bases : tuple of KernelBasis
        How arrays are turned into features, kernel by kernel.
    target_shape : tuple of int
        Shape of the target's map; m values in all.
    mean : array (p,)
        Mean of the features. Features are those of the value sums, kernel by kernel, then those of the densities.
    weights : array (p, m)
    target_mean : array (m,)
    error : array (q, m) or None
        Factor of the covariance of the target given the release.
    threshold : float or None
    cut : float or None
        The excursion set {f >= threshold} is estimated by {estimate >= cut}; both are None until tuned.
    facts : dict
        How it was made and what it scored on public simulations, JSON-able.

    Raises
    ------
    ValueError
        If shapes disagree, a number is not finite, or only one of threshold and cut is given.
    """

    layout: SumLayout
    bases: tuple[KernelBasis, ...]
    target_shape: tuple[int, ...]
    mean: Floats
    weights: Floats
    target_mean: Floats
    error: Floats | None = None
    threshold: float | None = None
    cut: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*_ARRAYS, "error"):  # one memory layout, so that a saved decoder gives the same bits
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        p, m = sum(b.size for b in self.bases) * (2 if self.layout.density else 1), math.prod(self.target_shape)
        shapes = {"mean": (p,), "weights": (p, m), "target_mean": (m,)}
        for name, shape in shapes.items():
            given = getattr(self, name)
            if given.shape != shape or not np.isfinite(given).all():
                raise ValueError(f"A decoder's {name} must be finite and of shape {shape}; got {given.shape}.")
        if self.error is not None and (self.error.shape[1:] != (m,) or not np.isfinite(self.error).all()):
            raise ValueError(f"A decoder's error factor must be finite and of shape (q, {m}).")
        if (self.threshold is None) != (self.cut is None):
            raise ValueError("A decoder has a threshold and a cut, or neither.")

    # --- what it says about a release -----------------------------------------------------------------------------

    def decode(self, release: Any, column: int = 0) -> Floats:
        """The estimate of the target, shape ``target_shape``.

        ``release`` is a kernel-sum release, or a pair of arrays (value sums, densities or None), each of shape
        (kernels, m) or (m,). ``column`` picks the response.

        Raises
        ------
        ValueError
            If the release has another layout than the decoder was made for.
        """
        return self._estimate(self._features(release, column)).reshape(self.target_shape)

    def excursion_set(self, release: Any, column: int = 0) -> Mask:
        """Estimate of {f >= threshold}: {estimate >= cut}, shape ``target_shape``; ValueError until tuned."""
        if self.cut is None:
            raise ValueError("This decoder has no cut: tune it on simulated worlds first (Decoder.tuned).")
        return self.decode(release, column) >= self.cut

    def posterior(self, release: Any, column: int = 0) -> FieldPosterior:
        """Law of the target given the release, in the Gaussian approximation of the joint law.

        Its mean is the estimate and its covariance the estimate's error under the prior; the approximation is that the
        error is Gaussian and independent of the release. It is the posterior given *the release*; the posterior given
        the records stays private. ValueError if the decoder was made without an error covariance.
        """
        if self.error is None:
            raise ValueError("This decoder was made without an error covariance: make it anew with posterior=True.")
        return FieldPosterior(self._estimate(self._features(release, column)), self.error)

    def _features(self, release: Any, column: int) -> Floats:
        if isinstance(release, tuple):
            values, density = (None if part is None else np.asarray(part, dtype=np.float64) for part in release)
        else:
            self.layout.check(SumLayout.of(release, column))
            values, density = release.value_sums[column], release.density
            if density is not None:
                density = density * (self.layout.response_bound / release.mechanism.density_bound)
        if values is None or (self.layout.density and density is None):
            raise ValueError(
                "This decoder reads value sums and densities, and the release lacks one; make a decoder for it."
            )
        parts = [values] + ([density] if self.layout.density else [])
        m = self.layout.size
        out = []
        for part in parts:
            if part.size != len(self.bases) * m or not np.isfinite(part).all():
                raise ValueError(f"The release must hold finite arrays of shape ({len(self.bases)}, {m}).")
            rows = part.reshape(-1, m)
            out += [basis.whiten(row) for basis, row in zip(self.bases, rows, strict=True)]
        return np.concatenate(out)

    def _estimate(self, features: Floats) -> Floats:
        return self.target_mean + (features - self.mean) @ self.weights

    # --- worlds ---------------------------------------------------------------------------------------------------

    def simulate(self, worlds: Worlds, rng: np.random.Generator, *, releases: int = 1) -> Floats:
        """Decoded releases of simulated worlds, fresh noise for each: shape (releases, N, m)."""
        features = world_features(self.layout, self.bases, worlds)
        noise = rng.standard_normal((releases, *features.shape))
        noise *= self.layout.scale
        return self._estimate(features + noise)

    def tuned(self, worlds: Worlds, threshold: float, rng: np.random.Generator) -> Self:
        """The same decoder with the cut that maximises the mean IoU on simulated worlds it was not trained on."""
        cut, score = tuned_cut(self.simulate(worlds, rng)[0], worlds.targets >= threshold, around=threshold)
        facts = self.facts | {"cut_worlds": len(worlds), "cut_iou": score}
        return replace(self, threshold=float(threshold), cut=cut, facts=facts)

    # --- storage --------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the decoder to the file ``path``: a NumPy ``.npz`` archive of plain arrays and one JSON header."""
        header = {
            "schema": SCHEMA,
            "layout": self.layout.to_dict(),
            "target_shape": list(self.target_shape),
            "threshold": self.threshold,
            "cut": self.cut,
            "facts": self.facts,
        }
        text = json.dumps(header, sort_keys=True, allow_nan=False)
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS} | (
            {} if self.error is None else {"error": self.error}
        )
        for i, basis in enumerate(self.bases):
            arrays |= {f"index_{i}": basis.index, f"root_{i}": basis.root}
            arrays |= {f"vectors_{i}_{a}": vectors for a, vectors in enumerate(basis.vectors)}
        with Path(path).open("wb") as file:
            np.savez_compressed(file, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The decoder that `save` wrote. Nothing in the file is executed.

        Raises
        ------
        ValueError
            If the file is no decoder, or of another schema.
        """
        unlike = f"{os.fspath(path)} is not a decoder saved by this library"
        data = BytesIO(Path(path).read_bytes())
        try:
            with np.load(data, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            header = json.loads(arrays.pop("header").tobytes().decode())
            schema = header.pop("schema")
        except Exception as error:  # zipfile, zlib and numpy have many words for a file that is none
            raise ValueError(unlike) from error
        if schema != SCHEMA:
            raise ValueError(f"This decoder has schema {schema!r}, and this version reads {SCHEMA}: make it anew.")
        try:
            return cls._restored(header, arrays)
        except (KeyError, TypeError) as error:
            raise ValueError(unlike) from error

    @classmethod
    def _restored(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Self:
        layout = SumLayout.from_dict(header.pop("layout"))
        bases = []
        for i, kernel in enumerate(layout.kernels):
            index = arrays[f"index_{i}"].astype(np.int64)
            vectors = tuple(arrays[f"vectors_{i}_{a}"] for a in range(index.shape[1]))
            bases.append(KernelBasis(kernel, layout.kernel_places, vectors, index, arrays[f"root_{i}"]))
        shape = tuple(header.pop("target_shape"))
        mean, weights, target_mean = (arrays[name] for name in _ARRAYS)
        return cls(layout, tuple(bases), shape, mean, weights, target_mean, arrays.get("error"), **header)


# --- closed form ------------------------------------------------------------------------------------------------------


def best_linear_decoder(
    layout: SumLayout,
    prior: GaussianProcessWorlds,
    *,
    poisson: bool = False,
    features: int = 256,
) -> Decoder:
    """The best linear estimate of f ~ GP at the prior's nodes from (h, d), in closed form.

    Model: f ~ GP(mu, C); n records with covariates independent from the design probabilities p_j of the nodes z_j and
    y_i = f(x_i) + e_i, e_i independent of all else with mean 0 and variance v; no clipping. With
    K = k(z_j, u), a(u) = sum_j p_j (mu_j - c) K_ju, b(u) = sum_j p_j K_ju, P = diag(p), N1 = n and N2 = n (n - 1):

        E h = N1 a,                          E d = M N1 b,
        Cov(h, h) = N2 K^T P C P K + N1 K^T P diag(C_jj + (mu_j - c)^2 + v) K + (N2 - N1^2) a a^T + s^2 (k + tau),
        Cov(h, d) = M (N1 K^T P diag(mu_j - c) K + (N2 - N1^2) a b^T),
        Cov(d, d) = M^2 (N1 K^T P K + (N2 - N1^2) b b^T) + s^2 (k + tau),
        Cov(f, h) = N1 C P K,                Cov(f, d) = 0.

    With ``poisson`` the number of records is Poisson with mean n (add/remove neighbours: n is not public), N2 = n^2.
    Computed for the features of `KernelBasis`; with all of them it is the best linear estimate from the whole release.
    Proof: ``docs/proofs/best-linear-decoder.md``, Theorem 1.

    Parameters
    ----------
    layout : SumLayout
        The release to decode, with its noise scale.
    prior : GaussianProcessWorlds
        The public prior, without normalisation; its grid is the target's.
    poisson : bool
    features : int
        Most features per kernel.

    Raises
    ------
    ValueError
        If the prior is normalised or on another domain.
    """
    if prior.normalise or prior.domain != layout.domain:
        raise ValueError("The closed form needs a prior without normalisation on the release's own domain.")
    assert prior.density is not None
    p, n, M = prior.density, float(prior.n), layout.response_bound
    first, second = n, n * n if poisson else n * (n - 1.0)
    bases = _bases(layout, features)
    mu = np.broadcast_to(np.asarray(prior.mean, dtype=np.float64), p.shape) - layout.centre
    root = prior.root
    nodes = layout.kernel_coordinates(prior.domain.grid(prior.grid))
    G = np.concatenate([basis.points(nodes) for basis in bases], axis=1)  # K times the features, (nodes, r)

    a, b = G.T @ (p * mu), G.T @ p
    signal = root.T @ (p[:, None] * G)  # R^T P K, C = R R^T
    second_moment = np.einsum("jq,jq->j", root, root) + mu**2 + prior.noise_sd**2
    loose = second - first**2
    hh = second * signal.T @ signal + first * G.T @ ((p * second_moment)[:, None] * G) + loose * np.outer(a, a)
    cross, covariance, mean = first * signal, hh, first * a
    if layout.density:
        hd = M * (first * G.T @ ((p * mu)[:, None] * G) + loose * np.outer(a, b))
        dd = M**2 * (first * G.T @ (p[:, None] * G) + loose * np.outer(b, b))
        covariance = np.block([[hh, hd], [hd.T, dd]])
        cross = np.concatenate([cross, np.zeros_like(cross)], axis=1)
        mean = np.concatenate([mean, M * first * b])
    covariance[np.diag_indices_from(covariance)] += layout.scale**2
    solved = cho_solve(cho_factor(covariance, lower=True), cross.T)  # (p, q)
    left = np.eye(root.shape[1]) - cross @ solved
    error = square_root(0.5 * (left + left.T), 1e-12).T @ root.T
    explained = 1.0 - float(np.sum(error**2) / np.sum(root**2))
    facts = {"made": "closed form", "n": prior.n, "poisson": poisson, "explained": explained}
    return Decoder(
        layout=layout,
        bases=bases,
        target_shape=prior.grid,
        mean=mean,
        weights=solved @ root.T,
        target_mean=mu + layout.centre,
        error=error,
        facts=facts,
    )


# --- from simulated worlds --------------------------------------------------------------------------------------------


def simulated_decoder(
    layout: SumLayout,
    worlds: Worlds,
    target_shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    threshold: float | None = None,
    penalties: Sequence[float] = _PENALTIES,
    folds: int = 5,
    features: int = 256,
    posterior: bool = True,
) -> Decoder:
    """Ridge regression of the target on the features of simulated releases, the penalty chosen by cross-fitting.

    The noise is not simulated in the fit: given a world its features are N(phi, s^2 I), so the expected squared error
    of weights W over N worlds is known,

        sum_i ||t_i - t0 - W^T phi_i||^2 + N (s^2 + penalty s^2) ||W||^2,

    and is minimised exactly. The penalty (in units of s^2; it stands for the finite number of worlds) is the one with
    the least expected error on held-out folds, without the penalty term. With a threshold, the cut that maximises the
    mean IoU of {estimate >= cut} with {target >= threshold} is tuned on the held-out estimates, noise included. The
    error covariance is that of the held-out estimates.

    Source: ``docs/proofs/best-linear-decoder.md``, Theorem 2.

    Parameters
    ----------
    layout : SumLayout
        The release to decode, with its noise scale.
    worlds : Worlds
        Simulated public worlds; a few thousand.
    target_shape : tuple of int
        Shape of the target's map.
    rng : Generator
        For the noise under which the cut is tuned, and to split the worlds.
    threshold : float, optional
    penalties : sequence of float
    folds : int
    features : int
        Most features per kernel.
    posterior : bool
        Whether to keep the error covariance.

    Raises
    ------
    ValueError
        If there are too few worlds, or they do not fit the layout.
    """
    N, m = worlds.targets.shape
    if folds < 2 or 2 * folds > N:
        raise ValueError(f"{folds} folds need at least {2 * folds} worlds and two folds; got {N} worlds.")
    if math.prod(target_shape) != m or not penalties or min(penalties) < 0:
        raise ValueError(f"The target shape must hold {m} values, and penalties must be given and not be negative.")
    bases = _bases(layout, features)
    raw = world_features(layout, bases, worlds)
    centre_x, centre_t = raw.mean(axis=0), worlds.targets.mean(axis=0)  # for precision only
    X = np.concatenate([np.ones((N, 1)), raw - centre_x], axis=1)
    T = worlds.targets - centre_t
    parts = [np.sort(part) for part in np.array_split(rng.permutation(N), folds)]
    gram = [X[part].T @ X[part] for part in parts]
    cross = [X[part].T @ T[part] for part in parts]
    squares = float(np.sum(T**2))
    noise = layout.scale**2

    def fit(A: Floats, B: Floats, count: int, penalty: float) -> Floats:
        ridge = np.full(len(A), count * noise * (1.0 + penalty))
        ridge[0] = 0.0  # the intercept
        return cho_solve(cho_factor(A + np.diag(ridge), lower=True), B)

    A, B = np.sum(gram, axis=0), np.sum(cross, axis=0)
    losses = np.full(len(penalties), squares)
    for part, Af, Bf in zip(parts, gram, cross, strict=True):
        for i, penalty in enumerate(penalties):
            W = fit(A - Af, B - Bf, N - len(part), penalty)
            losses[i] += np.sum(W * (Af @ W)) - 2.0 * np.sum(W * Bf) + len(part) * noise * np.sum(W[1:] ** 2)
    penalty = float(penalties[int(np.argmin(losses))])

    cut = score = None
    error = None
    if threshold is not None or posterior:
        estimates = np.empty((N, m))  # held-out, without noise
        noisy = np.empty((N, m))
        spread = np.zeros((X.shape[1] - 1, m))
        for part, Af, Bf in zip(parts, gram, cross, strict=True):
            W = fit(A - Af, B - Bf, N - len(part), penalty)
            estimates[part] = X[part] @ W
            noisy[part] = estimates[part] + layout.scale * rng.standard_normal((len(part), len(spread))) @ W[1:]
            spread += W[1:] / folds
        if threshold is not None:
            cut, score = tuned_cut(noisy + centre_t, worlds.targets >= threshold, around=threshold)
        if posterior:
            residual = T - estimates
            total = residual.T @ residual / N + noise * spread.T @ spread
            error = square_root(total, 1e-6 * float(total.diagonal().max())).T
    W = fit(A, B, N, penalty)
    facts: dict[str, Any] = {
        "made": "simulated worlds",
        "worlds": N,
        "records": worlds.responses.shape[1],
        "folds": folds,
        "penalty": penalty,
        "explained": 1.0 - float(losses.min()) / squares,
    }
    if score is not None:
        facts |= {"cut_worlds": N, "cut_iou": score}
    return Decoder(
        layout=layout,
        bases=bases,
        target_shape=tuple(target_shape),
        mean=centre_x,
        weights=W[1:],
        target_mean=centre_t + W[0],
        error=error,
        threshold=None if threshold is None else float(threshold),
        cut=cut,
        facts=facts,
    )


def tuned_cut(estimates: Floats, truth: Mask, *, around: float = 0.0, candidates: int = 161) -> tuple[float, float]:
    """The cut c that maximises the mean IoU of {estimates >= c} with the true sets, and that mean.

    Candidates are the threshold itself (``around``) and quantiles of the estimates near it; of equal scores the one
    nearest to the threshold wins; ``candidates`` is how many quantiles. ``estimates`` and ``truth`` have shape (N, m);
    an empty union has IoU 1.
    """
    share = float(np.mean(estimates >= around))
    low, high = np.clip((1.0 - share) + np.array([-0.25, 0.25]), 0.005, 0.995)
    cuts = np.append(np.quantile(estimates, np.linspace(low, high, candidates)), around)
    size = truth.sum(axis=1)
    scores = np.empty(len(cuts))
    for i, cut in enumerate(cuts):
        inside = estimates >= cut
        both = np.count_nonzero(inside & truth, axis=1)
        union = np.count_nonzero(inside, axis=1) + size - both
        scores[i] = np.mean(np.where(union == 0, 1.0, both / np.maximum(union, 1)))
    best = np.flatnonzero(scores == scores.max())
    chosen = best[np.argmin(np.abs(cuts[best] - around))]
    return float(cuts[chosen]), float(scores[chosen])


def _bases(layout: SumLayout, features: int) -> tuple[KernelBasis, ...]:
    return tuple(KernelBasis.of(kernel, layout.kernel_places, layout.nugget, features) for kernel in layout.kernels)


def world_features(layout: SumLayout, bases: Sequence[KernelBasis], worlds: Worlds) -> Floats:
    """Features of the worlds' sums without noise, responses clipped as the mechanism clips them: shape (N, p).

    ``layout`` and ``bases`` are those of a `Decoder`; ValueError for worlds of another number of covariates.
    """
    N, n, d = worlds.covariates.shape
    if d != layout.domain.dimension:
        raise ValueError(f"The worlds have {d} covariates, the release {layout.domain.dimension}.")
    clamped = layout.domain.clamp(worlds.covariates.reshape(-1, d))
    X = layout.kernel_coordinates(clamped).reshape(N, n, d)
    bound = layout.response_bound
    weights = [np.clip(worlds.responses - layout.centre, -bound, bound)]
    if layout.density:
        weights.append(np.full((N, n), bound))
    found = [basis.sums(X, weights) for basis in bases]
    return np.concatenate([part[w] for w in range(len(weights)) for part in found], axis=1)
