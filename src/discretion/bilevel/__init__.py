"""Private bilevel optimisation: choose an outer variable by the loss of an inner solution that records determine."""

from discretion.bilevel.constants import Constants, MissingConstant, Refused
from discretion.bilevel.continuous import ConvexExponential, RegularisedExponential
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
from discretion.bilevel.inner import InnerRelease
from discretion.bilevel.problem import (
    BilevelProblem,
    Counts,
    Grid,
    InnerNotCertified,
    InnerSolution,
    Layout,
    Problem,
    SplitRecords,
)
from discretion.bilevel.report import Report
from discretion.bilevel.samplers import EnvelopeViolated
from discretion.bilevel.sensitivity import (
    Bound,
    hypergradient_sensitivity,
    inner_shift,
    range_bound,
    smoothness,
    value_change,
)
from discretion.bilevel.tuned import TunedModel

__all__ = [
    "BiasedRidge",
    "BilevelProblem",
    "Bound",
    "Choice",
    "Constants",
    "ConvexExponential",
    "Counts",
    "EnvelopeViolated",
    "ExponentialMechanism",
    "Falsification",
    "Grid",
    "HuberPenalty",
    "InnerNotCertified",
    "InnerRelease",
    "InnerSolution",
    "Layout",
    "LogisticPenalty",
    "LogisticRegressionCV",
    "MissingConstant",
    "NotCertified",
    "Problem",
    "QuadraticMean",
    "Refused",
    "RegularisedExponential",
    "Report",
    "RidgeCV",
    "RidgePenalty",
    "SplitRecords",
    "Table",
    "TunedModel",
    "exponential",
    "falsify",
    "hypergradient_sensitivity",
    "inner_shift",
    "range_bound",
    "smoothness",
    "value_change",
]
