"""What a release costs: privacy losses as values, conversions, the ledger. Nothing here ever sees a record."""

from discretion.privacy.calibration import Unreachable, largest, largest_integer, smallest
from discretion.privacy.conversion import gaussian_delta, gaussian_epsilon, gaussian_mu, round_up, round_up_significant
from discretion.privacy.ledger import BudgetExceeded, Entry, Ledger, LedgerError, MechanismFailed, State
from discretion.privacy.loss import (
    BoundedRange,
    Composition,
    GaussianDP,
    Guarantee,
    NeighbourMismatch,
    Neighbours,
    PrivacyLoss,
    PureDP,
    RenyiCurve,
)
from discretion.privacy.mechanism import Checked, Mechanism, PublicError
from discretion.privacy.noise import Randomness, SeededRandomness, SystemRandomness
from discretion.privacy.release import Certificate, NotBookable, Release

__all__ = [
    "BoundedRange",
    "BudgetExceeded",
    "Certificate",
    "Checked",
    "Composition",
    "Entry",
    "GaussianDP",
    "Guarantee",
    "Ledger",
    "LedgerError",
    "Mechanism",
    "MechanismFailed",
    "NeighbourMismatch",
    "Neighbours",
    "NotBookable",
    "PrivacyLoss",
    "PublicError",
    "PureDP",
    "Randomness",
    "Release",
    "RenyiCurve",
    "SeededRandomness",
    "State",
    "SystemRandomness",
    "Unreachable",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "largest",
    "largest_integer",
    "round_up",
    "round_up_significant",
    "smallest",
]
