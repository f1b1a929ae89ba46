"""The hypergradient by implicit differentiation, from products with the inner Hessian alone.

    grad Phi(x) = grad_x F - M v,    H v = grad_y F,    M = grad^2_xy G,  H = grad^2_yy G,    all at (x, y(x))

An inner error |y - y(x)| <= alpha and a residual |H v - grad_y F| <= tau move it by C alpha + l tau
(`sensitivity.hypergradient_error`). Both are checked on what was computed, here and in `certified.py`. Proof:
`docs/proofs/bilevel-descent.md`, section 1.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.solvers import InnerNotCertified

__all__ = ["LinearSolver", "hypergradient", "implicit_gradient", "neumann"]

Floats = NDArray[np.float64]
LinearSolver = Literal["cg", "neumann", "dense"]


def implicit_gradient(
    problem: BilevelProblem, x: Floats, y: Floats, records: Any, tolerance: float, linear: LinearSolver
) -> Floats:
    """PRIVATE. grad_x F - M v of the records at (x, y), |H v - grad_y F| <= tolerance, (d_x,).

    `linear` says how v is found. "cg": conjugate gradients, about sqrt(kappa) log(1/tolerance) products and five
    vectors of memory. "neumann": `neumann`. "dense": factorises H, d_y products unless the problem has H at hand.

    Raises:
        InnerNotCertified: the residual is larger.
    """
    gx, b = problem.outer_gradients(x, y, records)
    if linear == "cg":
        v, Hv = problem.product_solve(x, y, b, records, tolerance)
    else:
        if linear == "dense":
            v = problem.linear_solve(x, y, b, records)
        else:
            c = problem.constants(x)
            v = neumann(lambda v: problem.inner_hvp(x, y, v, records), b, tolerance, c.get("mu_g"), c.get("b_gyy"))
        Hv = problem.inner_hvp(x, y, v, records)
    if not np.linalg.norm(Hv - b) <= tolerance:
        raise InnerNotCertified(
            "The linear solve did not reach the residual that the guarantee needs. Either the constants are wrong or "
            'double precision does not suffice; try linear="dense".'
        )
    return gx - problem.inner_cross(x, y, v, records)


def neumann(multiply: Any, b: Floats, tolerance: float, least: float, most: float) -> Floats:
    """v = s sum_{j < J} (I - s H)^j b with s = 1/most, for least I <= H <= most I; multiply(v) is H v.

    The residual (I - s H)^J b is at most (1 - least/most)^J |b|, which J makes half the tolerance.
    """
    s, length = 1.0 / most, float(np.linalg.norm(b))
    rate = -math.log1p(-least / most) if least < most else math.inf
    steps = 1 + max(0, math.ceil(math.log(max(2.0 * length / tolerance, 1.0)) / rate)) if length > 0 else 0
    v, r = np.zeros_like(b), b
    for _ in range(steps):
        v = v + s * r
        r = b - multiply(v)
        if np.linalg.norm(r) <= 0.5 * tolerance:
            break
    return v


def hypergradient(
    problem: BilevelProblem,
    x: Floats,
    records: Any,
    *,
    y: Floats | None = None,
    tolerance: float = 1e-11,
    linear: LinearSolver = "cg",
) -> Floats:
    """NOT PRIVATE, for tests and public data: grad Phi(x), (d_x,).

    Args:
        records: as the problem takes them.
        y: an inner solution; found by the problem's solver if None.
        tolerance: of the inner gradient, and of the residual of the linear solve.

    Raises:
        InnerNotCertified: an accuracy was not reached.
    """
    x = np.atleast_1d(np.asarray(x, dtype=np.float64))
    held = problem.ingest(records)
    found = problem.certified(x, held, tolerance) if y is None else np.asarray(y, dtype=np.float64)
    return implicit_gradient(problem, x, found, held, tolerance, linear)
