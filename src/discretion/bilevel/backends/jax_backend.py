"""jax as a back end, in double precision whatever the global setting is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.backends.derivatives import Loss, Transforms, Unflatten

__all__ = ["JaxBackend"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class JaxBackend(Transforms):
    """Losses in jax.numpy. Needs ``pip install 'discretion[jax]'``.

    Args:
        x_like, y_like: examples of the trees (pytrees) that the losses take; None for flat vectors.
    """

    x_like: Any = None
    y_like: Any = None

    name = "jax"

    def grad(self, f: Loss, argument: int = 0) -> Loss:
        return _jax().grad(f, argument)

    def vjp(self, f: Loss, x: Any, cotangent: Any) -> Any:
        return _jax().vjp(f, x)[1](cotangent)[0]

    def jvp(self, f: Loss, x: Any, tangent: Any) -> tuple[Any, Any]:
        return _jax().jvp(f, (x,), (tangent,))

    def jacobian(self, f: Loss) -> Loss:
        return _jax().jacfwd(f)

    def each(self, f: Loss) -> Loss:
        def mapped(*arguments: Any) -> Any:
            return _jax().vmap(f, in_axes=(None,) * (len(arguments) - 1) + (0,))(*arguments)

        return mapped

    def solve(self, H: Any, b: Any) -> Any:
        return _jax().numpy.linalg.solve(H, b)

    def linearised(self, f: Loss, y: Any) -> tuple[Any, Loss]:
        return _jax().linearize(f, y)

    def choose(self, condition: Any, one: Any, other: Any) -> Any:
        return _jax().numpy.where(condition, one, other)

    def loop(self, unfinished: Loss, body: Loss, state: tuple[Any, ...]) -> tuple[Any, ...]:
        return _jax().lax.while_loop(lambda each: unfinished(*each), lambda each: body(*each), state)

    def join(self, parts: list[Any]) -> Any:
        return _jax().numpy.concatenate(parts)

    def compiled(self, f: Loss) -> Loss:
        quick = _jax().jit(f)

        def call(*arguments: Any) -> Any:
            with _computing():
                found = quick(*arguments)
            return tuple(map(np.asarray, found)) if isinstance(found, tuple) else np.asarray(found)

        return call

    def flatten(self, tree: Any) -> tuple[Floats, Unflatten]:
        from jax.flatten_util import ravel_pytree

        with _computing():
            vector, back = ravel_pytree(self.place(tree))
            return np.asarray(vector, dtype=np.float64), back

    def place(self, records: Any) -> Any:
        jax = _jax()

        def one(leaf: Any) -> Any:
            if isinstance(leaf, jax.Array) and leaf.dtype == np.float64:
                return leaf
            array = np.asarray(leaf)
            return jax.numpy.asarray(array.astype(np.float64) if array.dtype.kind == "f" else array)

        with _computing():
            return jax.tree_util.tree_map(one, records)

    def leaves(self, records: Any) -> list[Any]:
        return _jax().tree_util.tree_leaves(records)

    def some(self, records: Any, rows: slice) -> Any:
        with _computing():
            return _jax().tree_util.tree_map(lambda leaf: leaf[rows], records)


def _jax() -> Any:
    try:
        import jax
    except ImportError:
        raise ImportError("JaxBackend needs jax: pip install 'discretion[jax]'.") from None
    return jax


@contextmanager
def _computing() -> Iterator[None]:
    """Double precision; and a NaN of one record is not an error of the run, as jax's search for NaN would make it."""
    jax = _jax()
    if hasattr(jax, "enable_x64"):
        wide = jax.enable_x64
    else:
        from jax import experimental

        wide = getattr(experimental, "enable_x64")  # noqa: B009  (before jax 0.9)
    with wide(True), jax.debug_nans(False), jax.debug_infs(False):
        yield
