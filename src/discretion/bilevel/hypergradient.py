"""The hypergradient by implicit differentiation, from products with the inner Hessian alone.

    grad Phi(x) = grad_x F - M v,    H v = grad_y F,    M = grad^2_xy G,  H = grad^2_yy G,    all at (x, y(x))

An inner error |y - y(x)| <= alpha and a residual |H v - grad_y F| <= tau move it by C alpha + l tau
(`sensitivity.hypergradient_error`). Both are checked on what was computed: |grad_y G(x, y)| <= mu_g alpha by strong
convexity, and the residual itself. Proof: `docs/proofs/bilevel-descent.md`, section 1.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.problem import BilevelProblem, InnerNotCertified, InnerSolver, Problem
from discretion.gp import Ball, Box

__all__ = ["LinearSolver", "certified_inner", "hypergradient", "implicit_gradient", "neumann"]

Floats = NDArray[np.float64]
LinearSolver = Literal["cg", "neumann", "dense"]


def certified_inner(
    problem: BilevelProblem,
    x: Floats,
    records: Any,
    tolerance: float,
    start: Floats | None,
    solver: InnerSolver | None = None,
    within: Box | Ball | None = None,
) -> Floats:
    """PRIVATE. An inner solution y in Y with |grad_y G(x, y)| <= tolerance, rounding included.

    What a solver from outside says of itself is not believed: the gradient is computed anew, at the projection of its
    answer on Y, outside of which no constant is known. Y contains y(x), so that projecting does not increase the error.

    Args:
        records: ingested.
        start: where to begin; its choice has no influence on the guarantee.
        solver: in place of the problem's own.
        within: Y. A problem that knows a bound `reach(x)` of |y(x)| needs none; else None is the whole space.

    Raises:
        InnerNotCertified: the solver did not get there.
    """
    rounding = problem.least_tolerance(x)
    own = solver is None and getattr(problem, "solver", None) is None

    def attempt(goal: float, start: Floats | None) -> tuple[Floats, float]:
        if solver is None:
            found = problem.solve(x, records, goal, start)
        else:
            begin = _start(problem, x, records) if start is None else start
            found = solver(problem, x, records, goal, begin)
        y = _projected(problem, x, np.asarray(found.y, dtype=np.float64), within)
        if y is found.y and own:
            return y, found.gradient_norm + rounding
        return y, float(np.linalg.norm(problem.inner_gradient(x, y, records))) + rounding

    goal = tolerance - rounding
    y, length = attempt(goal, start)
    if not length <= tolerance:
        # The projection moves y by at most |grad| / mu_g, and so the gradient by at most kappa |grad|.
        c = problem.constants(x)
        y, length = attempt(0.5 * goal / (1.0 + (c.b_gyy or c.get("mu_g")) / c.get("mu_g")), y)
    if not length <= tolerance:
        raise InnerNotCertified(
            "The inner solver did not reach the gradient norm that the guarantee needs. Either the constants are wrong "
            "or the solver is not up to it."
        )
    return y


def implicit_gradient(
    problem: BilevelProblem, x: Floats, y: Floats, records: Any, tolerance: float, linear: LinearSolver
) -> Floats:
    """PRIVATE. grad_x F - M v at (x, y), |H v - grad_y F| <= tolerance.

    "cg": conjugate gradients, about sqrt(kappa) log(1/tolerance) products and five vectors of memory. "neumann":
    `neumann`. "dense": factorises H, d_y products unless the problem has H at hand.

    Raises:
        InnerNotCertified: the residual is larger.
    """
    if linear == "dense":
        gradient, residual = problem.hypergradient(x, y, records)
    elif linear == "cg":
        gradient, residual = problem.product_hypergradient(x, y, records, tolerance)
    else:

        def multiply(v: Floats) -> Floats:
            return problem.inner_hvp(x, y, v, records)

        c = problem.constants(x)
        gx, b = problem.outer_gradients(x, y, records)
        v, residual = neumann(multiply, b, tolerance, c.get("mu_g"), c.get("b_gyy"))
        gradient = gx - problem.inner_cross(x, y, v, records)
    if not residual <= tolerance:
        raise InnerNotCertified(
            "The linear solve did not reach the residual that the guarantee needs. Either the constants are wrong or "
            'double precision does not suffice; try linear="dense".'
        )
    return gradient


def neumann(multiply: Any, b: Floats, tolerance: float, least: float, most: float) -> tuple[Floats, float]:
    """v = s sum_{j < J} (I - s H)^j b with s = 1/most, and |H v - b|, for least I <= H <= most I.

    The residual (I - s H)^J b is at most (1 - least/most)^J |b|, whence J.
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
    return v, float(np.linalg.norm(r))


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


def _start(problem: BilevelProblem, x: Floats, records: Any) -> Floats:
    if isinstance(problem, Problem):
        return problem.y_init
    return problem.solve(x, records, math.inf).y


def _projected(problem: BilevelProblem, x: Floats, y: Floats, within: Box | Ball | None) -> Floats:
    if within is not None:
        return within.clamp(y[None])[0]
    reach = getattr(problem, "reach", None)
    if reach is None:
        return y
    length, most = float(np.linalg.norm(y)), reach(x)
    return y if length <= most else y * (most / length)
