"""Optimise a mean over private records that is known by its values alone: private local Bayesian optimisation."""

from discretion.bayesopt.accounting import (
    BudgetSpent,
    GaussianFilter,
    gradient_loss,
    gradient_noise,
    mu_of_pure,
    mu_within,
    training_mu_per_run,
    training_mu_total,
)
from discretion.bayesopt.candidates import CandidateChoice, CandidateRelease, select_candidate
from discretion.bayesopt.check import check_loss
from discretion.bayesopt.clipping import clamped_mean
from discretion.bayesopt.descent import SGD, AdaGrad, Adam, Constant, Late, Momentum, TrustRegion, default_steps
from discretion.bayesopt.diagnostics import NotPrivate, UnsafeRelease
from discretion.bayesopt.journal import StudyError
from discretion.bayesopt.kernels import Polynomial, RoughKernel
from discretion.bayesopt.mechanism import Evaluations, LocalSearch
from discretion.bayesopt.minimize import minimize
from discretion.bayesopt.optuna_export import to_optuna
from discretion.bayesopt.public_path import PublicPath, public_path
from discretion.bayesopt.release import LocalSearchRelease
from discretion.bayesopt.released import ReleasedGradients
from discretion.bayesopt.space import Categorical, CoarseInteger, Integer, Linear, Log, Logit, Space
from discretion.bayesopt.steps import Step
from discretion.bayesopt.stopping import Flat
from discretion.bayesopt.study import Study
from discretion.privacy.clipping import AdaptiveClip

__all__ = [
    "SGD",
    "AdaGrad",
    "Adam",
    "AdaptiveClip",
    "BudgetSpent",
    "CandidateChoice",
    "CandidateRelease",
    "Categorical",
    "CoarseInteger",
    "Constant",
    "Evaluations",
    "Flat",
    "GaussianFilter",
    "Integer",
    "Late",
    "Linear",
    "LocalSearch",
    "LocalSearchRelease",
    "Log",
    "Logit",
    "Momentum",
    "NotPrivate",
    "Polynomial",
    "PublicPath",
    "ReleasedGradients",
    "RoughKernel",
    "Space",
    "Step",
    "Study",
    "StudyError",
    "TrustRegion",
    "UnsafeRelease",
    "check_loss",
    "clamped_mean",
    "default_steps",
    "gradient_loss",
    "gradient_noise",
    "minimize",
    "mu_of_pure",
    "mu_within",
    "public_path",
    "select_candidate",
    "to_optuna",
    "training_mu_per_run",
    "training_mu_total",
]
