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
from discretion.audit.own import OwnGame, own_game
from discretion.audit.pair import Cluster, PairAudit, Record, Witness, audit_pair, witness_epsilon
from discretion.audit.rates import epsilon_lower_bound
from discretion.audit.release_game import affordable
from discretion.audit.releases import ReleaseGame, certificate_game, mechanism_game
from discretion.audit.repeated import RepeatedAttack, draw_attack, repeated

__all__ = [
    "Cluster",
    "ExactScorer",
    "GaussianScorer",
    "MechanismGame",
    "MembershipAttack",
    "OfflineScorer",
    "OwnGame",
    "PairAudit",
    "PathGame",
    "PathScorer",
    "Record",
    "ReleaseGame",
    "RepeatedAttack",
    "Witness",
    "affordable",
    "attack",
    "audit_pair",
    "certificate_game",
    "draw_attack",
    "epsilon_lower_bound",
    "mechanism_game",
    "own_game",
    "repeated",
    "witness_epsilon",
]
