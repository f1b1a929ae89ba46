"""Exact Gaussian processes: kernels with unit diagonal, posteriors (on the line in linear time), sample paths."""

from discretion.gp.climb import Climb
from discretion.gp.dense import DensePosterior, FactorisationError, ridge_floor
from discretion.gp.domain import Ball, Box, Domain
from discretion.gp.engine import Engine, engine
from discretion.gp.exponential import ExponentialPaths, ExponentialPosterior
from discretion.gp.kernels import (
    KERNELS,
    RBF,
    Diagonal,
    Exponential,
    ExponentialL1,
    Kernel,
    Matern32,
    Matern52,
    RationalQuadratic,
    kernel,
)
from discretion.gp.lattice import Lattice
from discretion.gp.markov import MarkovPaths, MarkovPosterior
from discretion.gp.matern_line import MaternLinePaths, MaternLinePosterior
from discretion.gp.memory import NotEnoughMemory
from discretion.gp.path import NuggetTooSmall, SamplePaths, mean_rounding, nugget_floor

__all__ = [
    "KERNELS",
    "RBF",
    "Ball",
    "Box",
    "Climb",
    "DensePosterior",
    "Diagonal",
    "Domain",
    "Engine",
    "Exponential",
    "ExponentialL1",
    "ExponentialPaths",
    "ExponentialPosterior",
    "FactorisationError",
    "Kernel",
    "Lattice",
    "MarkovPaths",
    "MarkovPosterior",
    "Matern32",
    "Matern52",
    "MaternLinePaths",
    "MaternLinePosterior",
    "NotEnoughMemory",
    "NuggetTooSmall",
    "RationalQuadratic",
    "SamplePaths",
    "engine",
    "kernel",
    "mean_rounding",
    "nugget_floor",
    "ridge_floor",
]
