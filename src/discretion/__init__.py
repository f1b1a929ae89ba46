"""Publish what private records teach, under differential privacy, and know exactly what it costs."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discretion.gp import RBF, Ball, Box, Diagonal, Exponential, Kernel, Matern32, Matern52, RationalQuadratic
    from discretion.posterior import PosteriorMechanism, PosteriorSampler
    from discretion.privacy import Certificate, GaussianDP, Ledger, Neighbours, PrivacyLoss, PureDP, RenyiCurve

__version__ = version("discretion")

__all__ = [
    "RBF",
    "Ball",
    "Box",
    "Certificate",
    "Diagonal",
    "Exponential",
    "GaussianDP",
    "Kernel",
    "Ledger",
    "Matern32",
    "Matern52",
    "Neighbours",
    "PosteriorMechanism",
    "PosteriorSampler",
    "PrivacyLoss",
    "PureDP",
    "RationalQuadratic",
    "RenyiCurve",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """A name is fetched from its wing when it is first asked for: importing the package loads nothing."""
    if name in __all__:
        for wing in ("privacy", "gp", "posterior"):
            module = import_module(f"discretion.{wing}")
            if name in module.__all__:
                return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module 'discretion' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
