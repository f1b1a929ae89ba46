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
from discretion.posterior.lattice_mechanism import LatticeMechanism
from discretion.posterior.lattice_release import LatticeRelease
from discretion.posterior.mechanism import Custodian, PathRelease, PosteriorMechanism
from discretion.posterior.recomputation import LOSSES
from discretion.posterior.records import Records
from discretion.posterior.sampler import PosteriorSampler
from discretion.posterior.thompson import HorizonReached, ThompsonSampler
from discretion.posterior.thompson_account import ChowdhuryGopalan
from discretion.posterior.thompson_mechanism import Responses, ThompsonMechanism
from discretion.posterior.thompson_release import ThompsonRelease

__all__ = [
    "LOSSES",
    "RKHS",
    "Assumption",
    "Bounded",
    "ChowdhuryGopalan",
    "Custodian",
    "Diagonal",
    "EpsilonTable",
    "Exponential1D",
    "HorizonReached",
    "KernelSum",
    "KernelSumMechanism",
    "KernelSumRelease",
    "LatticeMechanism",
    "LatticeRelease",
    "PartialSums",
    "PathRelease",
    "PosteriorMechanism",
    "PosteriorSampler",
    "Records",
    "ResponseOnly",
    "Responses",
    "Separated",
    "ThompsonMechanism",
    "ThompsonRelease",
    "ThompsonSampler",
    "calibrate_posterior",
    "path_budget",
    "posterior_epsilon",
    "posterior_loss",
]
