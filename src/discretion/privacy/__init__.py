"""What a release costs: privacy losses as values, conversions, the ledger. Nothing here ever sees a record."""

from discretion.privacy.calibration import Unreachable, largest, largest_integer, smallest
from discretion.privacy.conversion import gaussian_delta, gaussian_epsilon, gaussian_mu, round_up, round_up_significant
from discretion.privacy.discrete import LatticeGaussian, LatticeLaplace
from discretion.privacy.fingerprint import fingerprint
from discretion.privacy.fixed_size import FixedSizeGaussian
from discretion.privacy.group import group_loss
from discretion.privacy.interchange import (
    from_dp_event,
    neighboring_relation,
    to_dp_event,
    to_opendp_measurement,
    to_privacy_loss_distribution,
)
from discretion.privacy.ledger import (
    BudgetExceeded,
    Composing,
    Entry,
    Ledger,
    LedgerError,
    MechanismFailed,
    NewerVersion,
    State,
    Tampered,
    UnitMismatch,
    ledgers,
)
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
from discretion.privacy.noise import Randomness, RepeatedNoise, SeededRandomness, SystemRandomness
from discretion.privacy.profiles import BestOf, LaplaceDP, PrivacyProfile, SubsampledGaussian
from discretion.privacy.quiet import quiet
from discretion.privacy.release import Certificate, NotBookable, Release
from discretion.privacy.signing import BadSignature, SignedCertificate
from discretion.privacy.verification import Sentences, Verification, verify

__all__ = [
    "BadSignature",
    "BestOf",
    "BoundedRange",
    "BudgetExceeded",
    "Certificate",
    "Checked",
    "Composing",
    "Composition",
    "Entry",
    "FixedSizeGaussian",
    "GaussianDP",
    "Guarantee",
    "LaplaceDP",
    "LatticeGaussian",
    "LatticeLaplace",
    "Ledger",
    "LedgerError",
    "Mechanism",
    "MechanismFailed",
    "NeighbourMismatch",
    "Neighbours",
    "NewerVersion",
    "NotBookable",
    "PrivacyLoss",
    "PrivacyProfile",
    "PublicError",
    "PureDP",
    "Randomness",
    "Release",
    "RenyiCurve",
    "RepeatedNoise",
    "SeededRandomness",
    "Sentences",
    "SignedCertificate",
    "State",
    "SubsampledGaussian",
    "SystemRandomness",
    "Tampered",
    "UnitMismatch",
    "Unreachable",
    "Verification",
    "fingerprint",
    "from_dp_event",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "group_loss",
    "largest",
    "largest_integer",
    "ledgers",
    "neighboring_relation",
    "quiet",
    "round_up",
    "round_up_significant",
    "smallest",
    "to_dp_event",
    "to_opendp_measurement",
    "to_privacy_loss_distribution",
    "verify",
]
