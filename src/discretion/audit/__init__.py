"""Attacks on one's own release: lower bounds of what leaks, beside the upper bounds that are claimed."""

from discretion.audit.membership import (
    ExactScorer,
    GaussianScorer,
    MechanismGame,
    MembershipAttack,
    OfflineScorer,
    PathGame,
    PathScorer,
    attack,
)
from discretion.audit.pair import Cluster, PairAudit, Record, Witness, audit_pair, witness_epsilon
from discretion.audit.rates import epsilon_lower_bound

__all__ = [
    "Cluster",
    "ExactScorer",
    "GaussianScorer",
    "MechanismGame",
    "MembershipAttack",
    "OfflineScorer",
    "PairAudit",
    "PathGame",
    "PathScorer",
    "Record",
    "Witness",
    "attack",
    "audit_pair",
    "epsilon_lower_bound",
    "witness_epsilon",
]
