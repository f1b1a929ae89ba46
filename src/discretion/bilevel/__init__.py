"""Private bilevel optimisation: choose an outer variable by the loss of an inner solution that records determine."""

from discretion.bilevel.clipped import ClippedBilevel
from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.continuous import ConvexExponential
from discretion.bilevel.counts import Counts, Layout, SplitRecords
from discretion.bilevel.descent import Descent, noisy_hypergradient
from discretion.bilevel.domains import Grid
from discretion.bilevel.estimators import LogisticRegressionCV, RidgeCV
from discretion.bilevel.exponential import Choice, ExponentialMechanism, NotCertified, exponential
from discretion.bilevel.falsify import Falsification, falsify
from discretion.bilevel.families import (
    BiasedRidge,
    HuberPenalty,
    LogisticPenalty,
    QuadraticMean,
    RidgePenalty,
    Table,
)
from discretion.bilevel.forecast import Forecast
from discretion.bilevel.huber import HuberRidgeCV
from discretion.bilevel.inner import InnerRelease
from discretion.bilevel.losses import Problem
from discretion.bilevel.penalty import PenaltyDescent
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.recomputation import LOSSES
from discretion.bilevel.regularised import RegularisedExponential
from discretion.bilevel.report import Report, TunedReport
from discretion.bilevel.samplers import EnvelopeViolated
from discretion.bilevel.sensitivity import (
    Bound,
    hypergradient_sensitivity,
    inner_shift,
    range_bound,
    smoothness,
    value_change,
)
from discretion.bilevel.separable import SeparableDescent
from discretion.bilevel.solvers import InnerNotCertified, InnerSolution
from discretion.bilevel.tuned import TunedModel
from discretion.bilevel.warm_start import WarmStart, warm_start
from discretion.privacy.clipping import AdaptiveClip

__all__ = [
    "LOSSES",
    "AdaptiveClip",
    "BiasedRidge",
    "BilevelProblem",
    "Bound",
    "Choice",
    "ClippedBilevel",
    "Constants",
    "ConvexExponential",
    "Counts",
    "Descent",
    "EnvelopeViolated",
    "ExponentialMechanism",
    "Falsification",
    "Forecast",
    "Grid",
    "HuberPenalty",
    "HuberRidgeCV",
    "InnerNotCertified",
    "InnerRelease",
    "InnerSolution",
    "Layout",
    "LogisticPenalty",
    "LogisticRegressionCV",
    "MissingConstant",
    "NotCertified",
    "PenaltyDescent",
    "Problem",
    "QuadraticMean",
    "Refused",
    "RegularisedExponential",
    "Report",
    "RidgeCV",
    "RidgePenalty",
    "SeparableDescent",
    "SplitRecords",
    "Table",
    "TunedModel",
    "TunedReport",
    "WarmStart",
    "exponential",
    "falsify",
    "hypergradient_sensitivity",
    "inner_shift",
    "noisy_hypergradient",
    "range_bound",
    "smoothness",
    "value_change",
    "warm_start",
]
