"""Publish what private records teach, under differential privacy, and know exactly what it costs."""

from importlib.metadata import version

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
