"""A certificate that was reissued with smaller numbers, or with a loss made to pass, is refused by what checks it."""

import math
from dataclasses import dataclass, replace

import pytest

from discretion.privacy import (
    BestOf,
    Certificate,
    GaussianDP,
    Ledger,
    Neighbours,
    PrivacyLoss,
    PrivacyProfile,
    Release,
    RenyiCurve,
    SystemRandomness,
    Tampered,
    verify,
)
from discretion.privacy.verification import _DELTAS

REPLACE = Neighbours.REPLACE


@dataclass(frozen=True)
class Mean:
    """A mean of n numbers: ten over n Gaussian DP."""

    name = "mean"
    neighbours = REPLACE

    def privacy_loss(self, n):
        return GaussianDP(10.0 / n, neighbours=REPLACE)

    def parameters(self):
        return {"bound": 1.0}

    def run(self, records, randomness):
        return Release(certificate(len(records), randomness))


def certificate(n, randomness):
    return Certificate.issue(Mean(), n=n, delta=1e-6, unit="one record", randomness=randomness)


LOSSES = {"mean": lambda parameters, n, delta: Mean().privacy_loss(n)}


def test_a_certificate_for_more_records_than_were_charged_is_refused_by_the_ledger(place):
    book = Ledger.create(place(), dataset="numbers", epsilon=9.0, delta=1e-6)
    made = book.run(Mean(), [0.0] * 10, n=10).certificate
    book.verify(certificates=[made])
    smaller = Mean().privacy_loss(1000)
    forged = replace(made, n=1000, epsilon=smaller.epsilon(1e-6), loss=smaller.to_dict(1e-6))
    assert verify(forged, LOSSES).verified  # in itself it is consistent
    with pytest.raises(Tampered, match="number of records"):
        book.verify(certificates=[forged])
    with pytest.raises(Tampered, match="less than was reserved"):
        book.verify(certificates=[replace(made, epsilon=1.0, loss=smaller.to_dict(1e-6))])


def test_a_stored_loss_that_holds_only_where_it_is_looked_at_is_refused():
    """Convex in e^epsilon through the true profile at the deltas that are compared, and far below it elsewhere."""
    made = certificate(10, SystemRandomness())
    true = Mean().privacy_loss(10)
    epsilons = [true.epsilon(delta) * (1.0 + 1e-9) for delta in _DELTAS]
    slope = (_DELTAS[0] - _DELTAS[1]) / (math.exp(epsilons[1]) - math.exp(epsilons[0]))
    start = _DELTAS[0] + slope * math.expm1(epsilons[0])
    deltas = (start, *(delta * (1.0 - 1e-12) for delta in _DELTAS))
    curve = RenyiCurve(lambda x: (1.0 + x) * 0.5, neighbours=REPLACE, rule="Gaussian")
    profile = PrivacyProfile((0.0, *epsilons), deltas, neighbours=REPLACE)
    forged = replace(made, loss=BestOf((curve, profile)).to_dict(1e-6))
    stored = PrivacyLoss.from_dict(forged.loss)
    assert (20 * stored).epsilon(1e-6) < 0.5 * (20 * true).epsilon(1e-6)
    assert not verify(forged, LOSSES).verified
