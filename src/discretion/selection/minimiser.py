"""The minimiser of a logistic objective, found to a public length of gradient whatever the records are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

__all__ = ["BLOCK", "logistic_minimiser"]

Floats = NDArray[np.float64]

BLOCK = 1024
"""Most rows of which a sum is taken in one go; sums of blocks are added exactly."""


def logistic_minimiser(Z: Floats, alpha: float, linear: Floats, reach: float, tolerance: float) -> Floats:
    """argmin of F = sum log(1 + exp(-Z w)) + alpha |w|^2 / 2 + linear.w, to a gradient of length `tolerance`.

    Newton steps held to length 1,

        h = argmin over |h| <= 1 of  grad.h + h'H h / 2,      F(w + h) - F* <= (1 - .41 / max(1, |w - w*|)) (F(w) - F*),

    and in turn with them Newton steps p made shorter, by log(1 + b) / b, b the largest of |Z p|, which never raise F
    and make the best of directions in which it is nearly flat. Both are made longer while F still falls, as told by
    the sign of its slope, never by its value, which rounding drowns. The factor is the same whatever the records are,
    and |w - w*| at most twice `reach`: no records make it fail.
    Proof: `docs/proofs/objective-perturbation.md`.
    """
    # Rows of 0 do nothing to any gradient; blocks of rows keep the rounding of long sums down.
    blocks = -(-max(len(Z), 1) // BLOCK)
    Z = np.pad(Z, ((0, blocks * BLOCK - len(Z)), (0, 0))) if blocks > 1 else Z
    parts = Z.reshape(blocks, -1, Z.shape[1])

    def summed(values: Floats) -> Floats:
        return _exact_sum(np.einsum("bnd,bn->bd", parts, values.reshape(blocks, -1)))

    w, margins = np.zeros(Z.shape[1]), np.zeros(len(Z))
    best, least = w, math.inf
    steps = 2 * math.ceil(64 + 5 * max(1.0, 2 * reach) * math.log(1e40 * (1 + reach)))
    for number in range(steps):
        slope = expit(-margins)
        gradient = alpha * w + linear - summed(slope)
        length = float(np.linalg.norm(gradient))
        if length < least:
            best, least = w, length
        if length <= tolerance:
            break
        curved = slope * (1.0 - slope)
        weighted = parts * curved.reshape(blocks, -1, 1)
        H = _exact_sum((weighted.transpose(0, 2, 1) @ parts).reshape(blocks, -1)).reshape(len(w), len(w))
        H += alpha * np.eye(len(w))
        if number % 2:
            h, most = np.asarray(np.linalg.solve(H, -gradient), dtype=np.float64), 1.0
            widest = float(np.max(np.abs(Z @ h), initial=0.0))
            t = math.log1p(widest) / widest if widest > 1e-3 else 1.0
        else:
            h, held = _held_step(H, gradient)
            most, t = (4.0 * reach if held else 1.0), 1.0
        along = Z @ h

        def falls(t: float, w: Any = w, h: Any = h, margins: Any = margins, along: Any = along) -> bool:
            slopes = expit(-(margins + t * along))
            return float(alpha * ((w + t * h) @ h) + linear @ h - slopes @ along) < 0.0

        while t < most and falls(min(2.0 * t, most)):
            t = min(2.0 * t, most)
        h = t * h
        w = w + h
        margins = Z @ w
    return best


def _held_step(H: Floats, gradient: Floats) -> tuple[Floats, bool]:
    """argmin over |h| <= 1 of gradient.h + h'H h / 2, and whether the bound held it: h = -(H + v I)^-1 gradient."""
    values, vectors = np.linalg.eigh(H)
    values, inside = np.maximum(values, np.finfo(np.float64).tiny), vectors.T @ gradient

    def step(v: float) -> Floats:
        return -inside / (values + v)

    if np.linalg.norm(h := step(0.0)) <= 1.0:
        return np.asarray(vectors @ h), False
    low, high = 0.0, float(np.linalg.norm(gradient))  # there |h| <= 1
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if np.linalg.norm(step(middle)) <= 1.0 else (middle, high)
    return vectors @ step(high), True


def _exact_sum(rows: Floats) -> Floats:
    """The sum of the rows, each column rounded once."""
    return rows[0] if len(rows) == 1 else np.array([math.fsum(column) for column in rows.T])
