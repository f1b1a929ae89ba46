"""Privacy losses: what a release costs, as values that add, convert and say which rule gave the number.

A loss knows nothing of records. It carries its neighbour relation, and losses of different relations do not
add. It fails closed: NaN, overflow or an order out of range is infinite or an error, never 0.
"""

from discretion.privacy.loss.base import Guarantee, NeighbourMismatch, Neighbours, PrivacyLoss, UnknownLoss
from discretion.privacy.loss.composition import Composition
from discretion.privacy.loss.curve import RenyiCurve
from discretion.privacy.loss.parametric import BoundedRange, GaussianDP, PureDP

__all__ = [
    "BoundedRange",
    "Composition",
    "GaussianDP",
    "Guarantee",
    "NeighbourMismatch",
    "Neighbours",
    "PrivacyLoss",
    "PureDP",
    "RenyiCurve",
    "UnknownLoss",
]
