"""Attacks on one's own release: lower bounds of what leaks, beside the upper bounds that are claimed."""

from discretion.audit.pair import Cluster, PairAudit, Record, Witness, audit_pair, witness_epsilon

__all__ = ["Cluster", "PairAudit", "Record", "Witness", "audit_pair", "witness_epsilon"]
