"""Means of losses over records and their derivatives, written once for every automatic differentiator."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.counts import Counts, in_blocks
from discretion.privacy import PublicError

__all__ = ["LossDerivatives", "Transforms", "separable_gradients"]

Floats = NDArray[np.float64]
Loss = Callable[..., Any]
Unflatten = Callable[[Any], Any]

_MOST_NEWTON = 200
_CLOSE = 0.8  # of its tolerance that a linear solve aims at: the rest is for rounding
_TASKS = 64  # records whose own inner problems are solved at a time


class Transforms(ABC):
    """What an automatic differentiator provides: a back end. Losses see float64 arrays of its own kind.

    Args:
        x_like, y_like: examples of the trees that the losses take as x and y: nested dictionaries, lists and tuples of
            arrays (torch: modules also, whose losses then take the dictionary of parameters). None: flat vectors.
    """

    name: str
    x_like: Any
    y_like: Any

    @abstractmethod
    def grad(self, f: Loss, argument: int = 0) -> Loss:
        """Gradient of a scalar function in one argument."""

    @abstractmethod
    def vjp(self, f: Loss, x: Any, cotangent: Any) -> Any:
        """cotangent' (df/dx), a vector."""

    @abstractmethod
    def jvp(self, f: Loss, x: Any, tangent: Any) -> tuple[Any, Any]:
        """f(x) and (df/dx) tangent."""

    @abstractmethod
    def jacobian(self, f: Loss) -> Loss:
        """Jacobian of a vector function of a vector."""

    @abstractmethod
    def each(self, f: Loss) -> Loss:
        """f for every record: the last argument of f is a record, that of the result the records."""

    @abstractmethod
    def solve(self, H: Any, b: Any) -> Any:
        """H^-1 b; not finite, and no error, where H is singular."""

    @abstractmethod
    def linearised(self, f: Loss, y: Any) -> tuple[Any, Loss]:
        """f(y), and v to (df/dy) v, prepared for many v."""

    @abstractmethod
    def choose(self, condition: Any, one: Any, other: Any) -> Any:
        """`one` where the condition holds, else `other`."""

    @abstractmethod
    def loop(self, unfinished: Loss, body: Loss, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """state <- body(state) while unfinished(state)."""

    @abstractmethod
    def join(self, parts: list[Any]) -> Any:
        """Vectors end to end."""

    @abstractmethod
    def compiled(self, f: Loss) -> Loss:
        """f on NumPy vectors and placed records, with NumPy results."""

    @abstractmethod
    def flatten(self, tree: Any) -> tuple[Floats, Unflatten]:
        """The numbers of a tree as one float64 vector, and the way back for vectors of the differentiator's kind."""

    @abstractmethod
    def place(self, records: Any) -> Any:
        """Records (a tree of arrays whose first axis counts them) as float64 arrays of the differentiator's kind."""

    @abstractmethod
    def leaves(self, records: Any) -> list[Any]:
        """The arrays of a tree."""

    @abstractmethod
    def some(self, records: Any, rows: slice) -> Any:
        """Some of the records."""

    def count(self, records: Any) -> int:
        """How many records a tree of arrays holds: the length of every first axis.

        Raises:
            PublicError: arrays of different lengths, or none.
        """
        lengths = {len(leaf) if getattr(leaf, "ndim", 0) else -1 for leaf in self.leaves(records)}
        if len(lengths) != 1 or -1 in lengths:
            raise PublicError("Records must be arrays, all with as many rows as there are records.")
        return lengths.pop()

    def derivatives(self, outer: Loss, inner: Loss, inner_reg: Loss | None, counts: Counts) -> LossDerivatives:
        """Means with the fixed denominators `counts`, and their derivatives."""
        return LossDerivatives(self, outer, inner, inner_reg, counts)

    def flat(self, loss: Loss) -> Loss:
        """The loss as a function of flat x and y."""
        x_of = _same if self.x_like is None else self.flatten(self.x_like)[1]
        y_of = _same if self.y_like is None else self.flatten(self.y_like)[1]

        def flattened(x: Any, y: Any, *z: Any) -> Any:
            value = loss(x_of(x), y_of(y), *z)
            if getattr(value, "ndim", None) != 0 or not str(value.dtype).endswith("float64"):
                raise PublicError("A loss must be one float64 number for a record; keep float32 out of it.")
            return value

        return flattened


class LossDerivatives:
    """F, G and their derivatives at (x, y), all flat; see `Derivatives` in `losses.py`. G includes the regulariser.

    Made by a back end, `to`, of the `outer` and `inner` loss of one record and `inner_reg`, the regulariser, for fixed
    `counts` of records.
    """

    def __init__(self, to: Transforms, outer: Loss, inner: Loss, inner_reg: Loss | None, counts: Counts) -> None:
        f, g, reg = to.flat(outer), to.flat(inner), None if inner_reg is None else to.flat(inner_reg)

        def total(loss: Loss, x: Any, y: Any, Z: Any) -> Any:
            return to.each(loss)(x, y, Z).sum() if to.count(Z) else 0.0 * (x.sum() + y.sum())

        def F(x: Any, y: Any, Z: Any) -> Any:
            return total(f, x, y, Z) / counts.outer

        def G(x: Any, y: Any, Z: Any) -> Any:
            mean = total(g, x, y, Z) / counts.training
            return mean if reg is None else mean + reg(x, y)

        def slope(x: Any, y: Any, Z: Any) -> Any:
            return to.grad(G, 1)(x, y, Z)

        def outer_gradients(x: Any, y: Any, Z: Any) -> Any:
            return to.grad(F, 0)(x, y, Z), to.grad(F, 1)(x, y, Z)

        def hvp(x: Any, y: Any, v: Any, Z: Any) -> Any:
            return to.jvp(lambda y: slope(x, y, Z), y, v)[1]

        def cross(x: Any, y: Any, v: Any, Z: Any) -> Any:
            return to.vjp(lambda x: slope(x, y, Z), x, v)

        def solve(x: Any, y: Any, b: Any, Z: Any, tolerance: Any) -> Any:
            multiply = to.linearised(lambda y: slope(x, y, Z), y)[1]
            v = conjugate_gradients(to, multiply, b, tolerance)
            return v, multiply(v)

        def minimise(x: Any, y: Any, Z: Any, tolerance: Any) -> Any:
            return newton(to, lambda y: slope(x, y, Z), y, tolerance)

        def along(h: Loss, x: Any, y: Any, v: Any, *z: Any) -> Any:
            """grad_y h, (grad^2_yy h) v and (grad^2_xy h) v, end to end."""
            slope = to.grad(h, 1)
            a, Hv = to.jvp(lambda y: slope(x, y, *z), y, v)
            return to.join([a, Hv, to.vjp(lambda x: slope(x, y, *z), x, v)])

        def first(h: Loss) -> Loss:
            return lambda x, y, *z: to.join([to.grad(h, 0)(x, y, *z), to.grad(h, 1)(x, y, *z)])

        self._to = to
        self._value, self._inner_value = to.compiled(F), to.compiled(G)
        self._gradients, self._slope = to.compiled(outer_gradients), to.compiled(slope)
        self._hvp, self._cross = to.compiled(hvp), to.compiled(cross)
        self._solve, self._minimise = to.compiled(solve), to.compiled(minimise)
        self._inner_rows = to.compiled(to.each(lambda x, y, v, z: along(g, x, y, v, z)))
        self._outer_first, self._inner_first = to.compiled(to.each(first(f))), to.compiled(to.each(first(g)))
        self._reg = None if reg is None else to.compiled(lambda x, y, v: along(reg, x, y, v))
        self._reg_first = None if reg is None else to.compiled(first(reg))

    def outer_value(self, x: Floats, y: Floats, records: Any) -> float:
        """F(x, y)."""
        return float(self._value(x, y, records))

    def outer_gradients(self, x: Floats, y: Floats, records: Any) -> tuple[Floats, Floats]:
        """grad_x F (d_x,) and grad_y F (d_y,)."""
        return self._gradients(x, y, records)

    def inner_value(self, x: Floats, y: Floats, records: Any) -> float:
        """G(x, y)."""
        return float(self._inner_value(x, y, records))

    def inner_gradient(self, x: Floats, y: Floats, records: Any) -> Floats:
        """grad_y G, (d_y,)."""
        return self._slope(x, y, records)

    def inner_hvp(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats:
        """(grad^2_yy G) v, (d_y,)."""
        return self._hvp(x, y, v, records)

    def inner_cross(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats:
        """(grad^2_xy G) v, (d_x,)."""
        return self._cross(x, y, v, records)

    def minimise(self, x: Floats, y: Floats, records: Any, tolerance: float) -> Floats:
        """An inner solution from y by Newton's method."""
        return self._minimise(x, y, records, np.float64(tolerance))

    def solve(self, x: Floats, y: Floats, b: Floats, records: Any, tolerance: float) -> tuple[Floats, Floats]:
        """v with (grad^2_yy G) v about b, by conjugate gradients, and (grad^2_yy G) v, computed anew."""
        return self._solve(x, y, b, records, np.float64(tolerance))

    def inner_rows(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats:
        """Of each record grad_y g, (grad^2_yy g) v and (grad^2_xy g) v end to end, (n, 2 d_y + d_x). No regulariser."""
        return self._inner_rows(x, y, v, records)

    def outer_first(self, x: Floats, y: Floats, records: Any) -> Floats:
        """Of every record grad_x f and grad_y f end to end, (n, d_x + d_y)."""
        return self._outer_first(x, y, records)

    def inner_first(self, x: Floats, y: Floats, records: Any) -> Floats:
        """Of every record grad_x g and grad_y g end to end, (n, d_x + d_y); no regulariser."""
        return self._inner_first(x, y, records)

    def regulariser_first(self, x: Floats, y: Floats) -> Floats:
        """What `inner_first` has, of the regulariser: (d_x + d_y,)."""
        return np.zeros(len(x) + len(y)) if self._reg_first is None else self._reg_first(x, y)

    def regulariser(self, x: Floats, y: Floats, v: Floats) -> Floats:
        """What `inner_rows` has, of the regulariser: (2 d_y + d_x,)."""
        return np.zeros(2 * len(y) + len(x)) if self._reg is None else self._reg(x, y, v)


def conjugate_gradients(to: Transforms, multiply: Loss, b: Any, tolerance: Any) -> Any:
    """v with |J v - b| about 0.8 tolerance, J positive definite, by at most 10 d + 50 products from v = 0."""
    most = 10 * len(b) + 50

    def unfinished(v: Any, r: Any, p: Any, square: Any, count: Any) -> Any:
        return (square**0.5 > _CLOSE * tolerance) & (count < most)

    def body(v: Any, r: Any, p: Any, square: Any, count: Any) -> Any:
        Jp = multiply(p)
        step = square / (p @ Jp)
        r = r - step * Jp
        after = r @ r
        return v + step * p, r, r + (after / square) * p, after, count + 1

    return to.loop(unfinished, body, (0.0 * b, b, b, b @ b, 0 * b[0]))[0]


def newton(to: Transforms, gradient: Loss, y: Any, tolerance: Any) -> Any:
    """y with |gradient(y)| <= tolerance for a strongly convex objective.

    Directions solve J p = -g to |g| / (10 + |g|^(-1/2)), so that convergence is superlinear; a step is halved until the
    gradient is shorter by a tenth of it. Its length falls along p, whatever the start: no value is needed.
    """

    def unfinished(here: Any, size: Any, p: Any, t: Any, count: Any) -> Any:
        return (size > tolerance) & (t > 1e-12) & (count < _MOST_NEWTON)

    def body(here: Any, size: Any, p: Any, t: Any, count: Any) -> tuple[Any, ...]:
        y = here + t * p
        g, multiply = to.linearised(gradient, y)
        length = _length(g)
        good = length <= (1.0 - 0.1 * t) * size
        ready = good & (length > tolerance)
        accuracy = to.choose(ready, length / _CLOSE / (10.0 + length**-0.5), math.inf * (1.0 + 0.0 * length))
        step = conjugate_gradients(to, multiply, -g, accuracy)
        return (
            to.choose(good, y, here),
            to.choose(good, length, size),
            to.choose(good, step, p),
            to.choose(good, 1.0 + 0.0 * t, 0.5 * t),
            count + 1,
        )

    one = 1.0 + 0.0 * y[0]
    return to.loop(unfinished, body, (y, math.inf * one, 0.0 * y, one, 0.0 * one))[0]


def _length(vector: Any) -> Any:
    return (vector @ vector) ** 0.5


def separable_gradients(
    to: Transforms,
    outer: Loss,
    inner: Loss,
    *,
    y_init: Floats,
    inner_reg: Loss | None = None,
    solver: Loss | None = None,
    steps: int = 8,
) -> Callable[[Floats, Any], Floats]:
    """Hypergradients of problems that every record has for itself: (x, records) to rows (n, d_x), not clipped.

    Row i is the gradient of f(x, y_i(x), z_i), y_i(x) = argmin g(x, y, z_i) + R(x, y), by implicit differentiation at
    what the inner solver found; it depends on no other record. Dense, for d_y up to some hundred.

    Args:
        outer, inner: f and g, of x, y and one record; `inner_reg`: R, of x and y.
        solver: (x, z) to flat y, written for the back end; by default `steps` Newton steps from y_init.
    """
    f, g = to.flat(outer), to.flat(inner)
    reg = None if inner_reg is None else to.flat(inner_reg)

    def total(x: Any, y: Any, z: Any) -> Any:
        return g(x, y, z) if reg is None else g(x, y, z) + reg(x, y)

    slope = to.grad(total, 1)
    start = to.compiled(lambda y: y)(np.asarray(y_init, dtype=np.float64))

    def one(x: Any, y0: Any, z: Any) -> Any:
        def curvature(y: Any) -> Any:
            return to.jacobian(lambda y: slope(x, y, z))(y)

        y = y0 if solver is None else solver(x, z)
        for _ in range(steps if solver is None else 0):
            y = y - to.solve(curvature(y), slope(x, y, z))
        v = to.solve(curvature(y), to.grad(f, 1)(x, y, z))
        return to.grad(f, 0)(x, y, z) - to.vjp(lambda x: slope(x, y, z), x, v)

    rows = to.compiled(to.each(one))

    def gradients(x: Floats, records: Any) -> Floats:
        found = [rows(x, start, some)[:real] for some, real in in_blocks(to, to.place(records), _TASKS)]
        return np.concatenate(found) if found else np.zeros((0, len(x)))

    return gradients


def _same(vector: Any) -> Any:
    return vector
