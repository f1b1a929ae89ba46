"""Release Gaussian-process posterior sample paths when covariates and responses are private (Maciazek 2026)."""

from discretion.posterior.account import (
    EpsilonTable,
    calibrate_posterior,
    path_budget,
    posterior_epsilon,
    posterior_loss,
)
from discretion.posterior.assumptions import (
    RKHS,
    Assumption,
    Bounded,
    Diagonal,
    Exponential1D,
    ResponseOnly,
    Separated,
)
from discretion.posterior.kernel_sum import KernelSumMechanism, KernelSumRelease, PartialSums
from discretion.posterior.kernel_sum_estimator import KernelSum
from discretion.posterior.lattice_mechanism import LatticeMechanism, LatticeRelease, LatticeSampler
from discretion.posterior.mechanism import Custodian, PathRelease, PosteriorMechanism
from discretion.posterior.recomputation import LOSSES
from discretion.posterior.sampler import PosteriorSampler

__all__ = [
    "LOSSES",
    "RKHS",
    "Assumption",
    "Bounded",
    "Custodian",
    "Diagonal",
    "EpsilonTable",
    "Exponential1D",
    "KernelSum",
    "KernelSumMechanism",
    "KernelSumRelease",
    "LatticeMechanism",
    "LatticeRelease",
    "LatticeSampler",
    "PartialSums",
    "PathRelease",
    "PosteriorMechanism",
    "PosteriorSampler",
    "ResponseOnly",
    "Separated",
    "calibrate_posterior",
    "path_budget",
    "posterior_epsilon",
    "posterior_loss",
]
