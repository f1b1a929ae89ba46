r"""The exact pair of a neighbouring change: two Gaussians on a plane with five free numbers.

For every set of test points, and for the whole path, the two releases of neighbouring data sets are images of one
pair of two-dimensional laws under one common Markov kernel. So every divergence that obeys data processing is
at most its value for that pair, and equals it when the set contains both covariates that differ. Whitened, with
unit vectors u, u' at ``<u, u'> = rho``,

.. math::

    P = N(b\sqrt a\,u,\; I - a\,uu^\top), \qquad Q = N(b'\sqrt{a'}\,u',\; I - a'\,u'u'^\top)

Proof in ``docs/proofs/two-dimensional-reduction.md``. :class:`~discretion.posterior.pair.Pair` holds the same pair
before whitening, and its Renyi divergence at full precision near order 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discretion.posterior.pair import Pair
from discretion.posterior.sensitivity import Array


@dataclass(frozen=True)
class ExactPair:
    r"""The five numbers of a pair; arrays of one batch shape.

    With v, v', w the core's posterior covariances of x and x' and s, s' the residuals,

    .. math::

        a = \frac{v}{r^2+v},\quad a' = \frac{v'}{r^2+v'},\quad c = \frac{w}{\sqrt{(r^2+v)(r^2+v')}},\quad
        b = \frac{s}{\sigma\sqrt{r^2+v}},\quad b' = \frac{s'}{\sigma\sqrt{r^2+v'}}

    ``gap`` is ``a a' - c^2 >= 0``, kept apart because it cancels.
    """

    a: Array
    a_other: Array
    c: Array
    b: Array
    b_other: Array
    gap: Array

    @classmethod
    def of(cls, pair: Pair, scale: ArrayLike) -> ExactPair:
        """The five numbers of ``pair`` for paths of posterior scale ``scale``."""
        q, sigma = np.square(pair.ridge), np.asarray(scale, dtype=np.float64)
        total, total_other = q + pair.v, q + pair.v_other
        return cls(
            a=pair.v / total,
            a_other=pair.v_other / total_other,
            c=pair.w / np.sqrt(total * total_other),
            b=pair.residual / (sigma * np.sqrt(total)),
            b_other=pair.residual_other / (sigma * np.sqrt(total_other)),
            gap=np.maximum(pair.v * pair.v_other - np.square(pair.w), 0.0) / (total * total_other),
        )

    @property
    def poles(self) -> tuple[Array, Array]:
        r"""The interval ``(z_-, z_+)`` about 0 in which ``d`` is positive: where the cumulant is finite.

        With ``m = a - a' - e`` and ``e = gap`` they are the roots of ``(1-a') + m z - e z^2``; infinite where there is
        none. ``1 + z_+`` is the supremum of the Renyi orders.
        """
        low, high = self._reciprocals
        with np.errstate(divide="ignore"):
            return np.where(low < 0.0, 1.0 / low, -np.inf), np.where(high > 0.0, 1.0 / high, np.inf)

    @property
    def _reciprocals(self) -> tuple[Array, Array]:
        """``1 / z_- <= 0 <= 1 / z_+``, each without cancellation: their product is ``-e / (1-a')``."""
        m, rest = self.a - self.a_other - self.gap, 1.0 - self.a_other
        root = np.sqrt(m * m + 4.0 * self.gap * rest)
        far = (np.abs(m) + root) / (2.0 * rest)
        near = np.where(far > 0.0, self.gap / (rest * np.where(far > 0.0, far, 1.0)), 0.0)
        return np.where(m > 0.0, -far, -near), np.where(m > 0.0, near, far)

    def determinant(self, z: Any) -> Any:
        """``d(z) = 1 + z a - (1+z) a' - z (1+z) e``."""
        return 1.0 + z * self.a - (1.0 + z) * self.a_other - z * (1.0 + z) * self.gap

    def cumulant(self, z: Any) -> Any:
        r"""``K(z) = log E_P exp(z L) = z D_{1+z}`` with L the privacy loss ``log dP/dQ``, for real or complex z.

        .. math::

            K(z) = \frac{z(1+z)N(z)}{2d(z)}
                   - \tfrac12\bigl[\log(1-z/z_-) + \log(1-z/z_+) + z\log(1-a) - z\log(1-a')\bigr],\quad
            N(z) = b^2(a-(1+z)e) + b'^2(a'+ze) - 2cbb'

        Analytic for real parts in ``poles``; infinite outside. L independent paths from the same records have L times
        this cumulant.
        """
        z = np.asarray(z)
        b, other, e = self.b, self.b_other, self.gap
        N = b * b * (self.a - (1.0 + z) * e) + other * other * (self.a_other + z * e) - 2.0 * self.c * b * other
        low, high = self._reciprocals
        inside = (1.0 - z.real * low > 0.0) & (1.0 - z.real * high > 0.0)
        x = np.where(inside, z, 0.0)
        logs = np.log1p(-x * low) + np.log1p(-x * high) + x * (np.log1p(-self.a) - np.log1p(-self.a_other))
        value = x * (1.0 + x) * N / (2.0 * np.where(inside, self.determinant(z), 1.0)) - 0.5 * logs
        return np.where(inside, value, np.inf)
