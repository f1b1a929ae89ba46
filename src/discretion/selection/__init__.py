"""Private selection: tune the hyperparameters of any private learner, and pay for the tuning."""

from discretion.selection.adapters import (
    AdaptiveSampler,
    Declared,
    diffprivlib_loss,
    dp_sgd_loss,
    opacus_loss,
    optuna_candidates,
)
from discretion.selection.beforehand import rehearse
from discretion.selection.bounds import heterogeneous, selection_loss
from discretion.selection.charged import select
from discretion.selection.disjoint import DisjointTuning
from discretion.selection.extensions import SharedRate, Threshold, disjoint_tuning_loss, threshold_loss
from discretion.selection.journal import JournalError
from discretion.selection.learners import PrivateLogisticRegression, PrivateRidge
from discretion.selection.linear import LabelledRecords, LogisticMechanism, ModelRelease, RidgeMechanism
from discretion.selection.lower_bound import selection_lower_bound
from discretion.selection.model_selection import NothingChosen, PrivateSearchCV
from discretion.selection.outcome import Outcome, SelectionRelease
from discretion.selection.proposals import DensityBox, Proposals
from discretion.selection.recomputation import selection_losses, selection_sentences
from discretion.selection.repetitions import (
    Binomial,
    Capped,
    Fixed,
    NegativeBinomial,
    Poisson,
    Repetitions,
    geometric,
    logarithmic,
    repetitions_from,
)
from discretion.selection.scores import NoisyScore, PublicScore, Score, correct
from discretion.selection.search import RunLimit, SelectionMechanism

__all__ = [
    "AdaptiveSampler",
    "Binomial",
    "Capped",
    "Declared",
    "DensityBox",
    "DisjointTuning",
    "Fixed",
    "JournalError",
    "LabelledRecords",
    "LogisticMechanism",
    "ModelRelease",
    "NegativeBinomial",
    "NoisyScore",
    "NothingChosen",
    "Outcome",
    "Poisson",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateSearchCV",
    "Proposals",
    "PublicScore",
    "Repetitions",
    "RidgeMechanism",
    "RunLimit",
    "Score",
    "SelectionMechanism",
    "SelectionRelease",
    "SharedRate",
    "Threshold",
    "correct",
    "diffprivlib_loss",
    "disjoint_tuning_loss",
    "dp_sgd_loss",
    "geometric",
    "heterogeneous",
    "logarithmic",
    "opacus_loss",
    "optuna_candidates",
    "rehearse",
    "repetitions_from",
    "select",
    "selection_loss",
    "selection_losses",
    "selection_lower_bound",
    "selection_sentences",
    "threshold_loss",
]
