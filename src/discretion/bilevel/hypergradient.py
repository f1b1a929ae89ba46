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

from discretion.bilevel.constants import Constants, MissingConstant
from discretion.bilevel.problem import BilevelProblem, InnerNotCertified, InnerSolver, Problem
from discretion.gp import Ball, Box

__all__ = ["LinearSolver", "certified_inner", "hypergradient", "implicit_gradient", "neumann"]

Floats = NDArray[np.float64]
LinearSolver = Literal["cg", "neumann", "dense"]

_MOST_STEPS = 20_000


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
        within: Y, in place of the problem's own `inner_domain`. A problem that knows a bound `reach(x)` of |y(x)| needs
            none; else None is the whole space.

    Raises:
        InnerNotCertified: neither the solver got there nor, within Y, projected gradient descent from a public point.
    """
    own_domain = problem.inner_domain
    within = own_domain if within is None and isinstance(own_domain, Box | Ball) else within
    rounding = problem.least_tolerance(x)
    own = solver is None and getattr(problem, "solver", None) is None

    def attempt(goal: float, start: Floats | None) -> tuple[Floats, float]:
        if solver is None:
            found = problem.solve(x, records, goal, start)
        else:
            begin = _start(problem, x, records) if start is None else start
            found = solver(problem, x, records, goal, begin)
        answer = np.asarray(found.y, dtype=np.float64)
        if start is not None and answer.shape != start.shape:
            raise InnerNotCertified("The inner solver returned a vector of another shape than its start has.")
        if not np.isfinite(answer).all():
            return answer, math.inf
        y = _projected(problem, x, answer, within)
        if y is found.y and own:
            return y, found.gradient_norm + rounding
        return y, float(np.linalg.norm(problem.inner_gradient(x, y, records))) + rounding

    goal = tolerance - rounding
    if start is None and isinstance(problem, Problem):
        start = problem.y_init
    y, length = attempt(goal, start)
    if not length <= tolerance and (c := _known(problem, x)) is not None:
        if np.isfinite(y).all():
            # The projection moves y by at most |grad| / mu_g, and so the gradient by at most kappa |grad|.
            y, length = attempt(0.5 * goal / (1.0 + (c.b_gyy or c.get("mu_g")) / c.get("mu_g")), y)
        if not length <= tolerance and within is not None and c.b_gyy is not None:
            y, length = _within(problem, x, records, goal, within)
            length += rounding
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


def _known(problem: BilevelProblem, x: Floats) -> Constants | None:
    """The constants at x, or None where they do not say how convex the inner loss is."""
    try:
        c = problem.constants(x)
    except MissingConstant:
        return None
    return c if c.mu_g is not None else None


def _within(
    problem: BilevelProblem, x: Floats, records: Any, tolerance: float, within: Box | Ball
) -> tuple[Floats, float]:
    """y in Y and the length of the gradient there, by projected gradient descent from a public point of Y.

    G is strongly convex and b_gyy-smooth on Y, so that every step 1/b_gyy divides the distance to y(x), which Y
    contains, by at least (1 - mu_g/b_gyy)^(-1/2), whatever G is elsewhere.
    """
    c = problem.constants(x)
    mu, b = c.get("mu_g"), c.get("b_gyy")
    if isinstance(within, Ball):
        y = np.array(within.center, dtype=np.float64)
    else:
        y = 0.5 * np.add(within.lower, within.upper)
    # from the diameter of Y to tolerance / b_gyy, and no more than a run can wait for
    wanted = math.log(max(b * within.diameter() / tolerance, 1.0)) if tolerance > 0 else math.inf
    steps = 10 + min(_MOST_STEPS, 2.0 * wanted / -math.log1p(-mu / b) if mu < b else 0.0)
    length = math.inf
    for _ in range(math.ceil(steps)):
        gradient = problem.inner_gradient(x, y, records)
        length = float(np.linalg.norm(gradient))
        if not length > tolerance:
            break
        y = within.clamp((y - gradient / b)[None])[0]
    else:
        length = float(np.linalg.norm(problem.inner_gradient(x, y, records)))
    return y, length


def _projected(problem: BilevelProblem, x: Floats, y: Floats, within: Box | Ball | None) -> Floats:
    if within is not None:
        return within.clamp(y[None])[0]
    reach = getattr(problem, "reach", None)
    if reach is None:
        return y
    length, most = float(np.linalg.norm(y)), reach(x)
    return y if length <= most else y * (most / length)
