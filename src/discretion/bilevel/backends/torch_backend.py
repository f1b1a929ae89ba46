"""torch as a back end, in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.backends.derivatives import Loss, Transforms, Unflatten

__all__ = ["TorchBackend"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TorchBackend(Transforms):
    """Losses in torch, on the CPU. Needs ``pip install 'discretion[torch]'``.

    Args:
        x_like, y_like: examples of what the losses take: nested dictionaries, lists, tuples of tensors, or a module,
            whose losses take the dictionary of its parameters (`torch.func.functional_call`); None for flat vectors.
    """

    x_like: Any = None
    y_like: Any = None

    name = "torch"

    def grad(self, f: Loss, argument: int = 0) -> Loss:
        return _torch().func.grad(f, argument)

    def vjp(self, f: Loss, x: Any, cotangent: Any) -> Any:
        return _torch().func.vjp(f, x)[1](cotangent)[0]

    def jvp(self, f: Loss, x: Any, tangent: Any) -> tuple[Any, Any]:
        return _torch().func.jvp(f, (x,), (tangent,))

    def jacobian(self, f: Loss) -> Loss:
        return _torch().func.jacfwd(f)

    def each(self, f: Loss) -> Loss:
        def mapped(*arguments: Any) -> Any:
            return _torch().func.vmap(f, in_dims=(None,) * (len(arguments) - 1) + (0,))(*arguments)

        return mapped

    def solve(self, H: Any, b: Any) -> Any:
        torch = _torch()
        found, wrong = torch.linalg.solve_ex(H, b)
        return torch.where(wrong == 0, found, torch.nan)

    def linearised(self, f: Loss, y: Any) -> tuple[Any, Loss]:
        torch = _torch()
        return f(y), lambda v: torch.func.jvp(f, (y,), (v,))[1]

    def choose(self, condition: Any, one: Any, other: Any) -> Any:
        return _torch().where(condition, one, other)

    def loop(self, unfinished: Loss, body: Loss, state: tuple[Any, ...]) -> tuple[Any, ...]:
        while unfinished(*state):
            state = body(*state)
        return state

    def join(self, parts: list[Any]) -> Any:
        return _torch().cat(parts)

    def compiled(self, f: Loss) -> Loss:
        torch = _torch()

        def call(*arguments: Any) -> Any:
            with torch.autograd.set_detect_anomaly(False):  # else a NaN of one record is an error of the run
                found = f(*(_tensor(each) if isinstance(each, np.ndarray) else each for each in arguments))
            return tuple(map(_array, found)) if isinstance(found, tuple) else _array(found)

        def _array(found: Any) -> Floats:
            return torch.as_tensor(found).detach().numpy()

        return call

    def flatten(self, tree: Any) -> tuple[Floats, Unflatten]:
        tree = _parameters(tree)
        shapes = [tuple(leaf.shape) for leaf in self.leaves(self.place(tree))]
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
        parts = [leaf.detach().numpy().ravel() for leaf in self.leaves(self.place(tree))]

        def back(vector: Any) -> Any:
            pieces = iter(part.reshape(shape) for part, shape in zip(vector.split(sizes), shapes, strict=True))
            return _mapped(lambda _: next(pieces), tree)

        return np.concatenate(parts).astype(np.float64), back

    def place(self, records: Any) -> Any:
        return _mapped(_tensor, records)

    def leaves(self, records: Any) -> list[Any]:
        found: list[Any] = []
        _mapped(found.append, records)
        return found

    def some(self, records: Any, rows: slice) -> Any:
        return _mapped(lambda leaf: leaf[rows], records)


def _torch() -> Any:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError("TorchBackend needs torch: pip install 'discretion[torch]'.") from None
    return torch


def _tensor(leaf: Any) -> Any:
    """As a tensor, float64 where it is of floats."""
    torch = _torch()
    if isinstance(leaf, np.ndarray) and not leaf.flags.writeable:
        leaf = leaf.copy()
    tensor = torch.as_tensor(leaf).detach()
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _parameters(tree: Any) -> Any:
    return dict(tree.named_parameters()) if isinstance(tree, _torch().nn.Module) else tree


def _mapped(f: Any, tree: Any) -> Any:
    """A tree of the same shape with f of every leaf, dictionaries in the order of their keys."""
    if isinstance(tree, dict):
        return {key: _mapped(f, tree[key]) for key in sorted(tree)}
    if isinstance(tree, list | tuple):
        return type(tree)(_mapped(f, each) for each in tree)
    return f(tree)
