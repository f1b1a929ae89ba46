"""What a release costs: privacy losses as values, conversions, the ledger. Nothing here ever sees a record."""

from discretion.privacy.calibration import Unreachable, largest, largest_integer, smallest
from discretion.privacy.conversion import gaussian_delta, gaussian_epsilon, gaussian_mu, round_up, round_up_significant
from discretion.privacy.interchange import (
    from_dp_event,
    neighboring_relation,
    to_dp_event,
    to_opendp_measurement,
    to_privacy_loss_distribution,
)
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
from discretion.privacy.profiles import BestOf, LaplaceDP, PrivacyProfile, SubsampledGaussian
from discretion.privacy.release import Certificate, NotBookable, Release

__all__ = [
    "BestOf",
    "BoundedRange",
    "BudgetExceeded",
    "Certificate",
    "Checked",
    "Composition",
    "Entry",
    "GaussianDP",
    "Guarantee",
    "LaplaceDP",
    "Ledger",
    "LedgerError",
    "Mechanism",
    "MechanismFailed",
    "NeighbourMismatch",
    "Neighbours",
    "NotBookable",
    "PrivacyLoss",
    "PrivacyProfile",
    "PublicError",
    "PureDP",
    "Randomness",
    "Release",
    "RenyiCurve",
    "SeededRandomness",
    "State",
    "SubsampledGaussian",
    "SystemRandomness",
    "Unreachable",
    "from_dp_event",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "largest",
    "largest_integer",
    "neighboring_relation",
    "round_up",
    "round_up_significant",
    "smallest",
    "to_dp_event",
    "to_opendp_measurement",
    "to_privacy_loss_distribution",
]
