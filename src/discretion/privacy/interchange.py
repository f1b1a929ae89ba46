"""Losses to and from other tools: dp-accounting (extra `accounting`) and OpenDP (extra `opendp`).

An event of dp-accounting names no neighbour relation; its accountant does. Here the relation is always said, and
whatever has no faithful counterpart is refused or becomes a plain (epsilon, delta) statement. See
`docs/interchange.md`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from fractions import Fraction
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from .composition import dominating_pair
from .fixed_size import FixedSizeGaussian
from .loss import BoundedRange, Composition, GaussianDP, Neighbours, PrivacyLoss, PureDP, RenyiCurve
from .loss.composition import compose
from .mechanism import Checked, Mechanism, PublicError
from .noise import SystemRandomness
from .profiles import LaplaceDP, PrivacyProfile, SubsampledGaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent, NeighboringRelation
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from opendp.mod import Measurement

__all__ = [
    "from_dp_event",
    "neighboring_relation",
    "to_dp_event",
    "to_opendp_measurement",
    "to_privacy_loss_distribution",
]

_UNIT = 2.0**-52


# --- dp-accounting ----------------------------------------------------------------------------------


def neighboring_relation(neighbours: Neighbours) -> NeighboringRelation:
    """The relation of dp-accounting that means the same.

    Raises:
        ValueError: there is none for neighbours that differ in one response only.
        ImportError: dp-accounting is not installed.
    """
    relations = _module("dp_accounting").NeighboringRelation
    match Neighbours(neighbours):
        case Neighbours.ADD_REMOVE:
            return relations.ADD_OR_REMOVE_ONE
        case Neighbours.REPLACE:
            return relations.REPLACE_ONE
        case _:
            raise ValueError(
                "dp-accounting has no relation for data sets that differ in one response at the same public "
                "covariates; REPLACE_ONE would promise more than this loss does."
            )


def to_dp_event(loss: PrivacyLoss, *, delta: float | None = None) -> DpEvent:
    """An event of dp-accounting that describes at least this loss.

    Gaussian DP, Laplace noise, Poisson-subsampled Gaussian noise under add-remove and Gaussian noise on a subset of
    fixed size have their own events; so have sums of them. All other parts of a sum together become one
    `EpsilonDeltaDpEvent` at `delta`, which the accountants refuse. (The event of randomised response, which would fit
    pure DP, is counted once by the PLD accountant of dp-accounting 0.6.0 however often it is composed; so it is not
    used.)

    The noise multiplier is the standard deviation over the sensitivity *under the loss's own relation*. Read it with
    ADD_OR_REMOVE_ONE, where the accountants take the sensitivity to be 1: their epsilon is then this loss's, about
    this loss's relation. (With REPLACE_ONE the PLD accountant takes it to be 2 and the RDP accountant takes it to be
    1; so the event of a subset, which needs REPLACE_ONE, is for the RDP accountant.)

    Args:
        loss: any.
        delta: of the (epsilon, delta) statement; only needed where one is made.

    Raises:
        ValueError: a statement is needed and `delta` is missing or gives no finite epsilon.
        ImportError: dp-accounting is not installed.
    """
    events = _module("dp_accounting.dp_event")
    parts = loss.parts if isinstance(loss, Composition) else ((loss, 1),)
    found, others = [], []
    for part, count in parts:
        event = _own_event(part, events)
        if event is None:
            others.append((part, count))
        else:
            found.append(event if count == 1 else events.SelfComposedDpEvent(event, count))
    if others:
        found.append(_stated(compose(others), delta))
    return found[0] if len(found) == 1 else events.ComposedDpEvent(found)


def _own_event(loss: PrivacyLoss, events: Any) -> Any:
    """The event that is this loss; None where there is none."""
    match loss:
        case GaussianDP(mu=0.0):
            return events.NoOpDpEvent()
        case GaussianDP(mu=math.inf) | PureDP(epsilon_value=math.inf) | BoundedRange(epsilon_value=math.inf):
            return events.NonPrivateDpEvent()
        case GaussianDP():
            return events.GaussianDpEvent(_down(1.0, loss.mu))
        case LaplaceDP() if loss.epsilon_value > 0:
            return events.LaplaceDpEvent(_down(1.0, loss.epsilon_value))
        case SubsampledGaussian(neighbours=Neighbours.ADD_REMOVE):
            return events.PoissonSampledDpEvent(loss.probability, events.GaussianDpEvent(loss.noise_multiplier))
        case FixedSizeGaussian() if (share := _quotient(loss.probability)) is not None:
            gaussian = events.GaussianDpEvent(loss.noise_multiplier)
            return events.SampledWithoutReplacementDpEvent(share.denominator, share.numerator, gaussian)
    return None


def _quotient(q: float) -> Fraction | None:
    """m/n with n at most 10^9, which is q in double precision, or what an import rounded up to q; None without one."""
    share = Fraction(q).limit_denominator(10**9)
    nearest = share.numerator / share.denominator
    return share if q in (nearest, math.nextafter(nearest, 2.0)) else None


def _stated(loss: PrivacyLoss, delta: float | None) -> Any:
    if delta is None and not (delta := 0.0) and math.isinf(loss.epsilon(0.0)):
        raise ValueError(
            f"dp-accounting has no event for {loss!r}. Give delta, and it becomes an (epsilon, delta) statement."
        )
    epsilon = loss.epsilon(delta)
    if math.isinf(epsilon):
        raise ValueError(f"The loss has no finite epsilon at delta {delta!r}; give a larger one.")
    return _module("discretion.privacy.dp_events").EpsilonDeltaDpEvent(
        epsilon, delta, tuple(Neighbours).index(loss.neighbours)
    )


def from_dp_event(event: DpEvent, neighbours: Neighbours, *, sensitivity: float | None = None) -> PrivacyLoss:
    """The loss of an event of dp-accounting, under a relation that you name.

    Gaussian, Laplace, Poisson-sampled Gaussian, Gaussian sampled without replacement, randomised response, zCDP, no-op,
    non-private and (epsilon, delta) events, composed and self-composed. By dp-accounting's definition a noise
    multiplier is the noise over the largest norm of one record's contribution to a sum. So adding or removing a record
    moves the sum by at most 1 in its unit, and replacing one by at most 2.

    Args:
        event: what was done.
        neighbours: the relation that the loss is to be about.
        sensitivity: how far neighbours move the sum, in units of that norm; by default 1 under add-remove and 2
            otherwise. Give 1 for an event whose noise multiplier is relative to the sensitivity under this very
            relation, such as one that `to_dp_event` wrote.

    Raises:
        ValueError: an event that has no loss here, a parameter out of range, or a subsampled event with a
            sensitivity of its own.
        ImportError: dp-accounting is not installed.
    """
    events = _module("dp_accounting.dp_event")
    neighbours = Neighbours(neighbours)
    moved = (1.0 if neighbours is Neighbours.ADD_REMOVE else 2.0) if sensitivity is None else float(sensitivity)
    if not 0 < moved < math.inf:
        raise ValueError(f"The sensitivity must be positive and finite, not {moved!r}.")

    def read(event: Any) -> PrivacyLoss:
        # by name: `RandomizedResponseDpEvent` and `ZCDpEvent` are missing in older versions
        match type(event).__name__ if isinstance(event, events.DpEvent) else "":
            case "NoOpDpEvent":
                return GaussianDP(0.0, neighbours=neighbours)
            case "NonPrivateDpEvent":
                return GaussianDP(math.inf, neighbours=neighbours)
            case "GaussianDpEvent":
                return GaussianDP(_up(moved, _noise(event)), neighbours=neighbours)
            case "LaplaceDpEvent":
                return LaplaceDP(_up(moved, _noise(event)), neighbours=neighbours)
            case "PoissonSampledDpEvent":
                return _sampled(event, neighbours, sensitivity)
            case "SampledWithoutReplacementDpEvent" if neighbours is Neighbours.REPLACE:
                return _subset(event, read(event.event), moved)
            case "SelfComposedDpEvent":
                return event.count * read(event.event)
            case "ComposedDpEvent":
                return sum((read(each) for each in event.events), GaussianDP(0.0, neighbours=neighbours))
            case "EpsilonDeltaDpEvent" if event.neighbours is not neighbours:
                raise ValueError(f"This statement is about {event.neighbours} neighbours, not {neighbours}.")
            case "EpsilonDeltaDpEvent" if event.delta == 0:
                return PureDP(event.epsilon, neighbours=neighbours)
            case "EpsilonDeltaDpEvent" if math.isfinite(event.epsilon):
                return PrivacyProfile((event.epsilon,), (event.delta,), neighbours=neighbours)
            case "ZCDpEvent" if 0 <= event.rho < math.inf and 0 <= event.xi < math.inf:
                rho, xi = float(event.rho), float(event.xi)
                bound = lambda x: (xi + rho * (1 + x)) * (1 + 4 * _UNIT)  # noqa: E731
                return RenyiCurve(bound, neighbours=neighbours, rule=f"zCDP with rho = {rho!r}, xi = {xi!r}")
            case "RandomizedResponseDpEvent" if neighbours is Neighbours.REPLACE:
                return _randomised_response(event, neighbours)
            case _:
                raise ValueError(
                    f"{type(event).__name__} cannot be imported under {neighbours} neighbours. Events with a loss "
                    "here: Gaussian, Laplace, Poisson-sampled Gaussian, zCDP, (epsilon, delta), no-op, non-private, "
                    "compositions of them and, under replace, randomised response and Gaussian noise on a sample "
                    "without replacement."
                )

    return read(event)


def _sampled(event: Any, neighbours: Neighbours, sensitivity: float | None) -> PrivacyLoss:
    q = float(event.sampling_probability)
    if not 0 <= q <= 1:
        raise ValueError(f"The sampling probability must lie in [0, 1], not {q!r}.")
    if sensitivity is not None:
        raise ValueError(
            "A Poisson-sampled event has no sensitivity to be given: what a record moves when it joins the sample and "
            "when it is replaced in it both count. Its noise multiplier is relative to the norm of a contribution."
        )
    inner = from_dp_event(event.event, Neighbours.ADD_REMOVE)
    if not isinstance(inner, GaussianDP):
        raise ValueError(
            "Only Gaussian events, and compositions of them, can be imported inside a Poisson-sampled event, not "
            f"{type(event.event).__name__}."
        )
    if q == 0 or inner.mu == 0:
        return GaussianDP(0.0, neighbours=neighbours)
    if inner.mu == math.inf:
        return GaussianDP(math.inf, neighbours=neighbours)
    plain = type(event.event).__name__ == "GaussianDpEvent"
    noise = float(event.event.noise_multiplier) if plain else _down(1.0, inner.mu)
    return SubsampledGaussian(q, noise, neighbours=neighbours)


def _subset(event: Any, inner: PrivacyLoss, moved: float) -> PrivacyLoss:
    """Of m of n records, where n is public: the loss on the sample, `inner`, acts with chance m/n."""
    n, m = event.source_dataset_size, event.sample_size
    if not all(isinstance(each, Integral) for each in (n, m)) or not 0 <= m <= n:
        raise ValueError(f"A sample without replacement must be of so many of the records, not {m!r} of {n!r}.")
    if not isinstance(inner, GaussianDP):
        raise ValueError(
            "Only Gaussian events, and compositions of them, can be imported inside a sample without replacement, not "
            f"{type(event.event).__name__}."
        )
    if m == 0 or inner.mu == 0:
        return GaussianDP(0.0, neighbours=inner.neighbours)
    if m == n or inner.mu == math.inf:
        return inner
    plain = type(event.event).__name__ == "GaussianDpEvent"
    noise = _down(float(event.event.noise_multiplier), moved) if plain else _down(1.0, inner.mu)
    return FixedSizeGaussian(_up(int(m), int(n)), noise, neighbours=inner.neighbours)


def _randomised_response(event: Any, neighbours: Neighbours) -> PrivacyLoss:
    p, buckets = float(event.noise_parameter), int(event.num_buckets)
    if not (0 <= p <= 1 and buckets >= 1):
        raise ValueError(f"Randomised response needs a noise parameter in [0, 1] and a bucket, not {p!r}, {buckets}.")
    if buckets == 1:
        return GaussianDP(0.0, neighbours=neighbours)
    epsilon = math.inf if p == 0 else math.log1p((1 - p) * buckets / p) * (1 + 8 * _UNIT)
    return PureDP(epsilon, neighbours=neighbours, rule="randomised response")


def to_privacy_loss_distribution(loss: PrivacyLoss, *, step: float = 1e-3) -> PrivacyLossDistribution:
    """A pessimistic privacy-loss distribution of dp-accounting: composes there with any other, whatever the loss.

    Parts of a composition are composed by dp-accounting. Its relation is that of the loss: no mixing is noticed there.

    Args:
        loss: any; a Renyi curve enters with the profile that it implies.
        step: distance of the lattice; more nodes than 200,000 are not made, the rest is an infinite loss.

    Raises:
        ImportError: dp-accounting is not installed.
    """
    pmf = _module("dp_accounting.pld.pld_pmf")
    pld = _module("dp_accounting.pld.privacy_loss_distribution")

    def one(part: PrivacyLoss) -> Any:
        coarse = np.geomspace(step, 2e5 * step, 256)
        bounds = np.maximum(*part._profiles(coarse))
        last = math.ceil(coarse[np.argmax(bounds <= max(1e-30, float(bounds[-1]) * (1 + 1e-9)))] / step)
        index = np.arange(1, last + 1)
        nodes = step * np.arange(last + 1.0)
        there, back = dominating_pair(nodes, *part._profiles(nodes * (1 - 2 * _UNIT)))
        ways = []
        for hull, other in ((there, back), (back, there)):
            reflected = -np.expm1(-nodes[1:]) + np.exp(-nodes[1:]) * other(nodes[1:])
            deltas = np.concatenate([reflected[::-1], hull(nodes)])
            rounded = np.concatenate([-index[::-1], [0], index])
            ways.append(pmf.create_pmf_pessimistic_connect_dots(step, rounded, deltas))
        return pld.PrivacyLossDistribution(ways[0], None if there is back else ways[1])

    parts = loss.parts if isinstance(loss, Composition) else ((loss, 1),)
    total = pld.identity(step)
    for part, count in parts:
        total = total.compose(one(part).self_compose(count))
    return total


# --- OpenDP -----------------------------------------------------------------------------------------


def to_opendp_measurement(mechanism: Mechanism, *, n: int, delta: float | None = None) -> Measurement:
    """A mechanism as an OpenDP measurement, by OpenDP's constructor for measurements of one's own.

    It takes the records as any Python object and returns the release. Its privacy map takes the distance of two data
    sets, counted in records (symmetric distance, or changed records under replacement), and gives: with `delta`, the
    (epsilon, delta) of a group of so many records; without it, the rho of zero-concentrated DP for Gaussian DP and
    epsilon for pure DP and bounded range. It runs outside any ledger: OpenDP then keeps the account, and you vouch for
    the map, which is why OpenDP wants its features "contrib" and "honest-but-curious" to be enabled.

    Args:
        mechanism: public parameters only.
        n: the number of records.
        delta: in `(0, 1)`, of one changed record, or None.

    Raises:
        ValueError: neighbours that differ in one response, for which OpenDP has no metric; or `delta` is needed.
        ImportError: OpenDP is not installed.
    """
    dp = _module("opendp.prelude")
    loss = mechanism.privacy_loss(n)
    match loss.neighbours:
        case Neighbours.ADD_REMOVE:
            metric = dp.symmetric_distance()
        case Neighbours.REPLACE:
            metric = dp.change_one_distance()
        case _:
            raise ValueError("OpenDP has no metric for data sets that differ in one response only.")
    measure, privacy_map = _privacy_map(dp, loss, delta)
    randomness = SystemRandomness()

    def belongs(records: Any) -> bool:
        """Whether the map speaks of these records: as many as it was made for, where their number is public."""
        return not isinstance(mechanism, Checked) or mechanism.check(records) in (n, None)

    def run(records: Any) -> Any:
        if not belongs(records):
            raise PublicError("The records are not n in number; make the measurement for their number.")
        return mechanism.run(records, randomness)

    domain = dp.user_domain(f"records of {mechanism.name}, n = {n}", belongs)
    return dp.m.make_user_measurement(domain, metric, measure, run, privacy_map)


def _privacy_map(dp: Any, loss: PrivacyLoss, delta: float | None) -> tuple[Any, Callable[[int], Any]]:
    if delta is not None:
        guarantee = loss.guarantee(delta)
        return dp.fixed_smoothed_max_divergence(), lambda records: _group(guarantee.epsilon, guarantee.delta, records)
    if isinstance(loss, GaussianDP):
        # k records at most: k mu
        rho = loss.mu * (loss.mu / 2) * (1 + 4 * _UNIT)
        return dp.zero_concentrated_divergence(), lambda records: rho * records * records * (1 + 2 * _UNIT)
    if isinstance(loss, PureDP | BoundedRange):
        epsilon = loss.epsilon_value
        return dp.max_divergence(), lambda records: epsilon * records * (1 + 2 * _UNIT)
    raise ValueError(f"Give delta: {loss!r} is neither Gaussian nor pure DP, the measures that need none.")


def _group(epsilon: float, delta: float, records: int) -> tuple[float, float]:
    """(epsilon, delta) of a group: k epsilon and delta (e^(k epsilon) - 1)/(e^epsilon - 1)."""
    if records <= 1:
        return (epsilon, delta) if records == 1 else (0.0, 0.0)
    total = sum(math.exp(min(i * epsilon, 700.0)) for i in range(min(records, 10_000)))
    inside = records <= 10_000 and records * epsilon < 700
    return epsilon * records * (1 + 2 * _UNIT), min(delta * total * (1 + 1e-9), 1.0) if inside else 1.0


# --- Inside -----------------------------------------------------------------------------------------


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        extra = "opendp" if name.startswith("opendp") else "accounting"
        raise ImportError(
            f"This needs the extra {extra!r}: pip install 'discretion[{extra}]' ({error.name} is missing)."
        ) from error


def _noise(event: Any) -> float:
    noise = float(event.noise_multiplier)
    if not noise >= 0:
        raise ValueError(f"The noise multiplier of a {type(event).__name__} must be at least 0, not {noise!r}.")
    return noise


def _up(a: float, b: float) -> float:
    """a / b rounded up; inf where b is 0."""
    if b == 0 or math.isinf(b):
        return 0.0 if b else math.inf
    ratio = a / b
    exact = math.isinf(ratio) or Fraction(ratio) * Fraction(b) >= Fraction(a)
    return ratio if exact else math.nextafter(ratio, math.inf)


def _down(a: float, b: float) -> float:
    """a / b rounded down."""
    ratio = min(a / b, 1.7976931348623157e308)
    return ratio if Fraction(ratio) * Fraction(b) <= Fraction(a) else math.nextafter(ratio, 0.0)
