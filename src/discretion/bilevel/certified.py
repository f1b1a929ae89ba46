"""Inner solutions that are checked where they lie, whoever found them.

|grad_y G(x, y)| <= mu_g alpha gives |y - y(x)| <= alpha by strong convexity, for y in Y. Proof:
`docs/proofs/bilevel-descent.md`, section 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.constants import Constants, MissingConstant
from discretion.bilevel.solvers import InnerNotCertified, InnerSolver
from discretion.gp import Ball, Box

if TYPE_CHECKING:
    from discretion.bilevel.problem import BilevelProblem

__all__ = ["certified_inner"]

Floats = NDArray[np.float64]

_MOST_STEPS = 20_000


def certified_inner(
    problem: BilevelProblem,
    x: Floats,
    records: Any,
    tolerance: float,
    start: Floats | None = None,
    solver: InnerSolver | None = None,
) -> Floats:
    """PRIVATE. An inner solution y in Y with |grad_y G(x, y)| <= tolerance, rounding included.

    What a solver says of itself is not believed, a back end's no more than one from outside: the gradient is computed
    anew, at the projection of its answer on Y, outside of which no constant is known. Y contains y(x), so that
    projecting does not increase the error.

    Args:
        records: ingested.
        start: where to begin; its choice has no influence on the guarantee.
        solver: in place of the problem's own.

    Raises:
        InnerNotCertified: neither the solver got there nor, within Y, projected gradient descent from a public point.
    """
    within = problem.inner_domain if isinstance(problem.inner_domain, Box | Ball) else None
    rounding = problem.least_tolerance(x)
    if start is None:
        start = problem.y_init
    if start is None and solver is not None:
        start = problem.solve(x, records, math.inf).y

    def length(y: Floats) -> float:
        return float(np.linalg.norm(problem.inner_gradient(x, y, records))) + rounding

    def attempt(goal: float, start: Floats | None) -> tuple[Floats, float]:
        if solver is None:
            found = problem.solve(x, records, goal, start)
        else:
            assert start is not None
            found = solver(problem, x, records, goal, start)
        answer = np.asarray(found.y, dtype=np.float64)
        if start is not None and answer.shape != start.shape:
            raise InnerNotCertified("The inner solver returned a vector of another shape than its start has.")
        if not np.isfinite(answer).all():
            return answer, math.inf
        y = _projected(problem, x, answer, within)
        return y, length(y)

    goal = tolerance - rounding
    y, reached = attempt(goal, start)
    if not reached <= tolerance and (c := _known(problem, x)) is not None:
        if np.isfinite(y).all():
            # The projection moves y by at most |grad| / mu_g, and so the gradient by at most kappa |grad|.
            y, reached = attempt(0.5 * goal / (1.0 + (c.b_gyy or c.get("mu_g")) / c.get("mu_g")), y)
        if not reached <= tolerance and within is not None and c.b_gyy is not None:
            y = _within(problem, x, records, goal, within)
            reached = length(y)
    if not reached <= tolerance:
        raise InnerNotCertified(
            "The inner solver did not reach the gradient norm that the guarantee needs. Either the constants are wrong "
            "or the solver is not up to it."
        )
    return y


def _known(problem: BilevelProblem, x: Floats) -> Constants | None:
    """The constants at x, or None where they do not say how convex the inner loss is."""
    try:
        c = problem.constants(x)
    except MissingConstant:
        return None
    return c if c.mu_g is not None else None


def _within(problem: BilevelProblem, x: Floats, records: Any, tolerance: float, within: Box | Ball) -> Floats:
    """y in Y by projected gradient descent from a public point of Y.

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
    for _ in range(math.ceil(steps)):
        gradient = problem.inner_gradient(x, y, records)
        if not np.linalg.norm(gradient) > tolerance:
            break
        y = within.clamp((y - gradient / b)[None])[0]
    return y


def _projected(problem: BilevelProblem, x: Floats, y: Floats, within: Box | Ball | None) -> Floats:
    if within is not None:
        return within.clamp(y[None])[0]
    reach = getattr(problem, "reach", None)
    if reach is None:
        return y
    length, most = float(np.linalg.norm(y)), reach(x)
    return y if length <= most else y * (most / length)
