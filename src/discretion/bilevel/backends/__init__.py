"""Automatic differentiators for problems given by two losses: jax (``discretion[jax]``), torch (``discretion[torch]``).

Both are the same small set of transformations (`Transforms`: grad, vjp, jvp, vmap, a linear solve), from which
`derivatives.py` makes everything once. Vectors go in and out as flat float64 NumPy arrays; losses may be written on
trees (dictionaries, lists, tuples of arrays; torch modules) given as examples, ``JaxBackend(y_like=...)``.
"""

from discretion.bilevel.backends.derivatives import LossDerivatives, Transforms, separable_gradients
from discretion.bilevel.backends.jax_backend import JaxBackend
from discretion.bilevel.backends.torch_backend import TorchBackend

__all__ = ["JaxBackend", "LossDerivatives", "TorchBackend", "Transforms", "separable_gradients"]
