"""Losses to and from dp-accounting and OpenDP: agreement, and where the other side fails open."""

import builtins
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discretion.gp import RBF, Box
from discretion.posterior import KernelSumMechanism
from discretion.privacy import (
    BoundedRange,
    FixedSizeGaussian,
    GaussianDP,
    LaplaceDP,
    Ledger,
    NeighbourMismatch,
    Neighbours,
    PrivacyProfile,
    PureDP,
    RenyiCurve,
    SubsampledGaussian,
    from_dp_event,
    gaussian_epsilon,
    neighboring_relation,
    to_dp_event,
    to_opendp_measurement,
    to_privacy_loss_distribution,
)

AR, R, RESPONSE = Neighbours.ADD_REMOVE, Neighbours.REPLACE, Neighbours.REPLACE_RESPONSE
WHY = "the extra 'accounting' (dp-accounting) is not installed"
events = pytest.importorskip("dp_accounting.dp_event", reason=WHY)
PLDAccountant = pytest.importorskip("dp_accounting.pld").PLDAccountant
RdpAccountant = pytest.importorskip("dp_accounting.rdp").RdpAccountant
Relation = pytest.importorskip("dp_accounting").NeighboringRelation


def curve(scale=0.1, supremum=3.0, neighbours=R):
    return RenyiCurve(lambda x: scale * (1 + x) / (1 - x / supremum), supremum, neighbours=neighbours, rule="a curve")


def accounted(event, delta, relation=Relation.ADD_OR_REMOVE_ONE):
    return PLDAccountant(neighboring_relation=relation).compose(event).get_epsilon(delta)


# --- Agreement


@settings(max_examples=8, deadline=None)
@given(st.floats(0.05, 1), st.integers(1, 20), st.sampled_from([1e-3, 1e-5, 1e-8]))
def test_gaussian_events_agree_and_come_back(mu, count, delta):
    loss = count * GaussianDP(mu, neighbours=AR)
    event = to_dp_event(loss)
    assert accounted(event, delta) == pytest.approx(loss.epsilon(delta), rel=1e-3)
    again = from_dp_event(event, AR)
    assert loss.epsilon(delta) * (1 - 1e-12) <= again.epsilon(delta) <= loss.epsilon(delta) * (1 + 1e-12)


def test_composed_events_agree_and_come_back():
    loss = (
        GaussianDP(0.5, neighbours=AR)
        + 3 * LaplaceDP(0.25, neighbours=AR)
        + 100 * SubsampledGaussian(0.01, 1.0, neighbours=AR)
    )
    event = to_dp_event(loss)
    assert isinstance(event, events.ComposedDpEvent)
    assert from_dp_event(event, AR) == loss
    for delta in (1e-3, 1e-6):
        assert accounted(event, delta) == pytest.approx(loss.epsilon(delta), rel=1e-3)


def test_full_batch_gaussian_steps_are_exact():
    # 50 steps at noise ratio 10
    loss = from_dp_event(events.SelfComposedDpEvent(events.GaussianDpEvent(10.0), 50), AR)
    assert loss.epsilon(1e-5) == pytest.approx(2.94323, abs=1e-5)
    assert "Gaussian DP" in loss.guarantee(1e-5).rule
    # a sampled run is not Gaussian DP
    sampled = events.SelfComposedDpEvent(events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(10.0)), 50)
    assert "Gaussian DP" not in from_dp_event(sampled, AR).guarantee(1e-5).rule


def test_a_training_run_and_a_map_share_one_ledger(tmp_path):
    step = events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.0))
    training = from_dp_event(events.SelfComposedDpEvent(step, 1000), AR)
    path = RenyiCurve(lambda x: 0.01 * (1 + x) / (1 - x / 5), 5.0, neighbours=AR, rule="a map")
    ledger = Ledger.create(tmp_path / "ledger.db", dataset="d", epsilon=3.0, delta=1e-5, neighbours=AR)
    ledger.reserve(training, {"what": "training"})
    ledger.reserve(path, {"what": "map"})
    spent = ledger.spent().epsilon
    assert training.epsilon(1e-5) < spent < training.epsilon(5e-6) + path.epsilon(5e-6)
    assert spent == pytest.approx((training + path).epsilon(1e-5), rel=1e-3)
    alone = accounted(events.SelfComposedDpEvent(step, 1000), 1e-5)
    assert training.epsilon(1e-5) == pytest.approx(alone, rel=1e-4)
    # orders are continuous: better than the grid of the other accountant, and never below its distributions
    assert alone < training._renyi_guarantee(1e-5).epsilon
    rdp = RdpAccountant().compose(events.SelfComposedDpEvent(step, 1000)).get_epsilon(1e-5)
    assert training._renyi_guarantee(1e-5).epsilon <= rdp * (1 + 1e-9)


# --- Relations


def test_the_relation_decides_the_sensitivity():
    for event, kind in ((events.GaussianDpEvent(4.0), "mu"), (events.LaplaceDpEvent(4.0), "epsilon_value")):
        assert getattr(from_dp_event(event, AR), kind) == 0.25
        assert getattr(from_dp_event(event, R), kind) == 0.5
        assert getattr(from_dp_event(event, RESPONSE), kind) == 0.5
        assert getattr(from_dp_event(event, R, sensitivity=1.0), kind) == 0.25
    with pytest.raises(NeighbourMismatch):
        from_dp_event(events.GaussianDpEvent(4.0), R) + from_dp_event(events.GaussianDpEvent(4.0), AR)
    sampled = events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(1.0))
    assert from_dp_event(sampled, R).epsilon(1e-5) > from_dp_event(sampled, AR).epsilon(1e-5)
    with pytest.raises(ValueError, match="no sensitivity to be given"):
        from_dp_event(sampled, R, sensitivity=1.0)
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="sensitivity must be"):
            from_dp_event(sampled, R, sensitivity=bad)


def test_relations_have_their_namesakes():
    assert neighboring_relation(AR) is Relation.ADD_OR_REMOVE_ONE
    assert neighboring_relation(R) is Relation.REPLACE_ONE
    with pytest.raises(ValueError, match="one response"):
        neighboring_relation(RESPONSE)


@pytest.mark.parametrize("relation", [Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE])
def test_no_accountant_reads_less_than_was_written(relation):
    for neighbours in (AR, R):
        loss = GaussianDP(0.8, neighbours=neighbours)
        for accountant in (PLDAccountant, RdpAccountant):
            found = accountant(neighboring_relation=relation).compose(to_dp_event(loss)).get_epsilon(1e-5)
            assert found >= loss.epsilon(1e-5) * (1 - 1e-6)


# --- What has no event


def test_other_losses_become_one_statement_that_accountants_refuse():
    loss = GaussianDP(1.0, neighbours=R) + 2 * curve() + PureDP(0.1, neighbours=R)
    with pytest.raises(ValueError, match="Give delta"):
        to_dp_event(loss)
    event = to_dp_event(loss, delta=1e-6)
    gauss, stated = event.events
    assert gauss == events.GaussianDpEvent(1.0)
    assert stated.epsilon == (2 * curve() + PureDP(0.1, neighbours=R)).epsilon(1e-6)
    assert not PLDAccountant().supports(event)
    assert not RdpAccountant().supports(event)
    assert events.DpEvent.from_named_tuple(stated.to_named_tuple()) == stated
    assert stated.neighbours is R
    with pytest.raises(ValueError, match="is about replace neighbours, not add-remove"):
        from_dp_event(stated, Neighbours.ADD_REMOVE)
    again = from_dp_event(event, R, sensitivity=1.0)
    assert again == GaussianDP(1.0, neighbours=R) + PrivacyProfile((stated.epsilon,), (1e-6,), neighbours=R)
    # pure losses need no delta
    pure = to_dp_event(3 * PureDP(0.1, neighbours=R) + BoundedRange(0.2, neighbours=R))
    assert (pure.epsilon, pure.delta) == (0.5, 0.0)
    assert from_dp_event(pure, R) == PureDP(0.5, neighbours=R)
    with pytest.raises(ValueError, match="no finite epsilon"):
        to_dp_event(PrivacyProfile((1.0,), (0.1,), neighbours=R), delta=1e-5)


def test_a_sampled_run_under_replacement_is_a_statement_too():
    event = to_dp_event(SubsampledGaussian(0.1, 1.0, neighbours=R), delta=1e-5)
    assert type(event).__name__ == "EpsilonDeltaDpEvent"


def test_any_loss_enters_as_a_distribution():
    asymmetric = 20 * SubsampledGaussian(0.1, 1.0, neighbours=AR) + curve(neighbours=AR) + LaplaceDP(0.2, neighbours=AR)
    for loss, tolerance in ((curve(), 1e-3), (3 * GaussianDP(0.5, neighbours=R), 1e-3), (asymmetric, 1e-3)):
        found = to_privacy_loss_distribution(loss).get_epsilon_for_delta(1e-6)
        assert found == pytest.approx(loss.epsilon(1e-6), rel=tolerance)


def test_nothing_and_everything():
    assert to_dp_event(GaussianDP(0.0, neighbours=R)) == events.NoOpDpEvent()
    assert to_dp_event(GaussianDP(math.inf, neighbours=R)) == events.NonPrivateDpEvent()
    assert to_dp_event(LaplaceDP(math.inf, neighbours=R)) == events.NonPrivateDpEvent()
    assert from_dp_event(events.NoOpDpEvent(), R).epsilon(0.0) == 0
    assert from_dp_event(events.ComposedDpEvent([]), R).epsilon(0.0) == 0
    assert from_dp_event(events.SelfComposedDpEvent(events.GaussianDpEvent(1.0), 0), R).epsilon(0.0) == 0
    for event in (
        events.NonPrivateDpEvent(),
        events.GaussianDpEvent(0.0),
        events.LaplaceDpEvent(0.0),
        events.PoissonSampledDpEvent(0.5, events.GaussianDpEvent(0.0)),
        events.ComposedDpEvent([events.GaussianDpEvent(1.0), events.NonPrivateDpEvent()]),
    ):
        assert from_dp_event(event, AR).epsilon(1e-5) == math.inf
    assert from_dp_event(events.PoissonSampledDpEvent(0.0, events.GaussianDpEvent(1.0)), AR).epsilon(0.0) == 0


@pytest.mark.parametrize(
    "event",
    [
        events.UnsupportedDpEvent(),
        events.SampledWithoutReplacementDpEvent(100, 10, events.GaussianDpEvent(1.0)),  # n is private here
        events.SingleEpochTreeAggregationDpEvent(1.0, [3]),
        events.RepeatAndSelectDpEvent(events.GaussianDpEvent(1.0), 3.0, 1.0),
        events.PoissonSampledDpEvent(0.1, events.LaplaceDpEvent(1.0)),
        events.ComposedDpEvent([events.GaussianDpEvent(1.0), events.UnsupportedDpEvent()]),
        events.GaussianDpEvent(-1.0),
        events.GaussianDpEvent(math.nan),
        events.PoissonSampledDpEvent(1.5, events.GaussianDpEvent(1.0)),
        events.SelfComposedDpEvent(events.GaussianDpEvent(1.0), -1),
        events.SelfComposedDpEvent(events.GaussianDpEvent(1.0), 1.5),
        "GaussianDpEvent(1.0)",
    ],
    ids=repr,
)
def test_other_events_are_refused_in_plain_words(event):
    with pytest.raises(ValueError, match=r"imported|must|integer|times"):
        from_dp_event(event, AR)


def test_sampled_compositions_are_one_gaussian():
    two = events.ComposedDpEvent([events.GaussianDpEvent(3.0), events.GaussianDpEvent(4.0)])
    loss = from_dp_event(events.PoissonSampledDpEvent(0.1, two), AR)
    assert isinstance(loss, SubsampledGaussian)
    assert loss.noise_multiplier == pytest.approx(2.4, rel=1e-12)


def test_a_sample_without_replacement_is_a_subset_of_fixed_size():
    for n, m in ((3, 1), (7, 2), (49, 7), (1000, 10)):
        thirds = from_dp_event(
            events.SampledWithoutReplacementDpEvent(n, m, events.GaussianDpEvent(1.5)), "replace", sensitivity=1.0
        )
        again = to_dp_event(thirds)
        assert again.sample_size * n == m * again.source_dataset_size
    step = events.SampledWithoutReplacementDpEvent(1000, 10, events.GaussianDpEvent(1.5))
    loss = from_dp_event(events.SelfComposedDpEvent(step, 50), R, sensitivity=1.0)
    assert loss == 50 * FixedSizeGaussian(0.01, 1.5, neighbours=R)
    # replacing a record moves a sum of contributions by up to twice the norm that the multiplier is relative to
    assert from_dp_event(step, R) == FixedSizeGaussian(0.01, 0.75, neighbours=R)
    # their bound, which takes the multiplier as relative to the replacement, is above ours at every order
    orders = [1.5, 2, 3, 8, 32]
    theirs = RdpAccountant(orders, Relation.REPLACE_ONE).compose(step)._rdp
    ours = from_dp_event(step, R, sensitivity=1.0).renyi(np.array(orders))
    assert np.all(ours <= theirs * (1 + 1e-9))
    assert ours[1] < 0.6 * theirs[1]


def test_a_subset_of_fixed_size_goes_there_and_back():
    for q in (0.01, 1 / 3, 0.7, 256 / 60_000, 1.0):
        loss = FixedSizeGaussian(q, 1.3, neighbours=R)
        event = to_dp_event(loss)
        assert event.sample_size / event.source_dataset_size == q
        back = from_dp_event(event, R, sensitivity=1.0)
        assert loss.epsilon(1e-6) * (1 - 1e-12) <= back.epsilon(1e-6) <= loss.epsilon(1e-6) * (1 + 1e-9)
        with pytest.raises(ValueError, match="cannot be imported under add-remove"):
            from_dp_event(event, AR)
    # no quotient of ordinary numbers: stated instead
    odd = FixedSizeGaussian(0.3 * (1 + 1e-14), 1.3, neighbours=R)
    assert to_dp_event(odd, delta=1e-6).epsilon == odd.epsilon(1e-6)


@pytest.mark.parametrize(
    ("event", "epsilon"),
    [
        (events.SampledWithoutReplacementDpEvent(10, 0, events.GaussianDpEvent(1.0)), 0.0),
        (events.SampledWithoutReplacementDpEvent(10, 5, events.NoOpDpEvent()), 0.0),
        (events.SampledWithoutReplacementDpEvent(10, 5, events.GaussianDpEvent(0.0)), math.inf),
        (events.SampledWithoutReplacementDpEvent(7, 7, events.GaussianDpEvent(2.0)), gaussian_epsilon(1.0, 1e-6)),
    ],
)
def test_samples_of_none_and_of_all(event, epsilon):
    assert from_dp_event(event, R).epsilon(1e-6) == epsilon


@pytest.mark.parametrize(
    "event",
    [
        events.SampledWithoutReplacementDpEvent(10, 11, events.GaussianDpEvent(1.0)),
        events.SampledWithoutReplacementDpEvent(10, -1, events.GaussianDpEvent(1.0)),
        events.SampledWithoutReplacementDpEvent(10, 2.5, events.GaussianDpEvent(1.0)),
        events.SampledWithoutReplacementDpEvent(10, 5, events.LaplaceDpEvent(1.0)),
    ],
)
def test_other_samples_without_replacement_are_refused(event):
    with pytest.raises(ValueError, match=r"must be of so many|Only Gaussian events"):
        from_dp_event(event, R)


# --- Where the other side fails open


def test_infinite_orders_do_not_make_a_loss_free():
    event = events.GaussianDpEvent(0.1)
    with np.errstate(all="ignore"):
        other = RdpAccountant(orders=[2, 8, np.inf]).compose(event).get_epsilon(1e-5)
    ours = from_dp_event(event, AR)
    assert other == 0  # infinity less infinity, there
    assert ours.epsilon(1e-5) == pytest.approx(gaussian_epsilon(10.0, 1e-5), rel=1e-12)
    assert (ours + LaplaceDP(0.1, neighbours=AR)).epsilon(1e-5) > 90


def test_nan_and_negative_curves_do_not_make_a_loss_free():
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    assert rdp.compute_epsilon(np.array([2.0]), np.array([math.nan]), 1e-5)[0] == 0
    missing = RenyiCurve(lambda x: np.full(x.shape, math.nan), neighbours=AR, rule="nan")
    assert missing.epsilon(1e-5) == math.inf
    together = missing + LaplaceDP(0.1, neighbours=AR)
    assert together.epsilon(1e-5) == math.inf
    assert together.delta(3.0) == 1.0
    negative = RenyiCurve(lambda x: np.where(x < 1, -1e-12, 50.0), neighbours=AR, rule="negative")
    assert (negative + LaplaceDP(0.1, neighbours=AR)).epsilon(1e-5) > 5
    with pytest.raises(ValueError, match="never negative"):
        (RenyiCurve(lambda x: x - 1, neighbours=AR, rule="r") + LaplaceDP(0.1, neighbours=AR)).epsilon(1e-5)


def test_small_ranges_of_orders_are_finite():
    # The default orders start at 1.1: infinite there for a supremum of 0.09
    path = curve(1.0, 0.09, AR)
    orders = [1.1, 1.5, 2, 8, 64]
    assert not any(np.isfinite(path.renyi(np.array(orders))))
    assert math.isfinite((path + LaplaceDP(0.1, neighbours=AR)).epsilon(1e-5))


@pytest.mark.skipif(not hasattr(events, "RandomizedResponseDpEvent"), reason="dp-accounting before 0.5 has none")
def test_repeated_randomised_response_is_counted_every_time():
    response = events.RandomizedResponseDpEvent(2 / (1 + math.exp(0.7)), 2)
    three = events.SelfComposedDpEvent(response, 3)
    ours = from_dp_event(three, R)
    assert ours.epsilon(0.0) == pytest.approx(2.1, rel=1e-12)
    assert ours.guarantee(1e-3, numerical=True).epsilon == pytest.approx(
        accounted(events.ComposedDpEvent([response] * 3), 1e-3, Relation.REPLACE_ONE), rel=1e-3
    )
    with pytest.raises(ValueError, match="add-remove"):
        from_dp_event(response, AR)


@pytest.mark.parametrize("delta", [0.0, 1e-300, 1 - 1e-12])
def test_extreme_deltas(delta):
    imported = from_dp_event(events.ComposedDpEvent([events.GaussianDpEvent(1.0), events.LaplaceDpEvent(2.0)]), AR)
    epsilon = imported.epsilon(delta)
    assert epsilon == math.inf if delta == 0 else epsilon >= 0


# --- OpenDP


class Sum:
    """A mechanism as small as can be."""

    name = "sum"

    def __init__(self, loss):
        self.loss, self.neighbours = loss, loss.neighbours

    def privacy_loss(self, n):
        return self.loss

    def parameters(self):
        return {}

    def run(self, records, randomness):
        assert randomness.bookable
        return {"sum": float(np.sum(records))}


@pytest.fixture
def dp():
    prelude = pytest.importorskip("opendp.prelude", reason="the extra 'opendp' is not installed")
    prelude.enable_features("contrib", "honest-but-curious")
    return prelude


def test_opendp_measures(dp):
    gaussian = to_opendp_measurement(Sum(GaussianDP(0.5, neighbours=R)), n=3)
    assert gaussian([1, 2, 3]) == {"sum": 6.0}
    assert gaussian.map(1) == pytest.approx(0.125, rel=1e-12)
    assert gaussian.map(2) == pytest.approx(0.5, rel=1e-12)
    assert (gaussian.input_metric, gaussian.output_measure) == (
        dp.change_one_distance(),
        dp.zero_concentrated_divergence(),
    )
    pure = to_opendp_measurement(Sum(2 * PureDP(0.3, neighbours=AR) + PureDP(0.1, neighbours=AR)), n=3, delta=1e-9)
    assert pure.input_metric == dp.symmetric_distance()
    single = to_opendp_measurement(Sum(BoundedRange(0.3, neighbours=AR)), n=3)
    assert single.output_measure == dp.max_divergence()
    assert 0.9 <= single.map(3) <= 0.9 * (1 + 1e-12)
    loss = curve(0.01)
    fixed = to_opendp_measurement(Sum(loss), n=3, delta=1e-6)
    epsilon, delta = fixed.map(1)
    assert (epsilon, delta) == (loss.epsilon(1e-6), 1e-6)
    assert fixed.check(1, (epsilon, delta))
    assert not fixed.check(1, (epsilon * 0.999, delta))
    twice = fixed.map(2)
    assert twice == pytest.approx((2 * epsilon, delta * (1 + math.exp(epsilon))), rel=1e-9)
    assert fixed.map(0) == (0.0, 0.0)
    assert fixed.map(100_000)[1] == 1.0


def test_opendp_groups_hold_for_gaussians(dp):
    mu, delta = 0.3, 1e-6
    measurement = to_opendp_measurement(Sum(GaussianDP(mu, neighbours=R)), n=3, delta=delta)
    for size, _ in itertools.product((1, 2, 5), (None,)):
        epsilon, found = measurement.map(size)
        assert GaussianDP(size * mu, neighbours=R).delta(epsilon) <= found


def test_opendp_refusals(dp):
    with pytest.raises(ValueError, match="Give delta"):
        to_opendp_measurement(Sum(curve()), n=3)
    with pytest.raises(ValueError, match="no metric"):
        to_opendp_measurement(Sum(GaussianDP(0.5, neighbours=RESPONSE)), n=3)


def test_missing_extras_are_named(monkeypatch):
    real = builtins.__import__
    import importlib

    def absent(name, *arguments):
        if name.split(".")[0] in ("dp_accounting", "opendp"):
            raise ImportError(f"No module named {name!r}", name=name)
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"discretion\[accounting\]"):
        to_dp_event(GaussianDP(0.5, neighbours=R))
    with pytest.raises(ImportError, match=r"discretion\[opendp\]"):
        to_opendp_measurement(Sum(GaussianDP(0.5, neighbours=R)), n=3)


def test_an_opendp_measurement_takes_no_other_number_of_records():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib", "honest-but-curious")
    mechanism = KernelSumMechanism(RBF(0.1), Box((0.0,), (1.0,)), (-1.0, 1.0), scale=10.0, delta=1e-5, grid=(4,))
    measurement = to_opendp_measurement(mechanism, n=3, delta=1e-5)
    few = SimpleNamespace(covariates=np.full((3, 1), 0.5), response=np.zeros(3))
    many = SimpleNamespace(covariates=np.full((300, 1), 0.5), response=np.zeros(300))
    assert measurement(few).certificate.n == 3
    assert measurement.map(0) == (0.0, 0.0)
    with pytest.raises(Exception, match=r"."):
        measurement(many)


@pytest.mark.parametrize("noise", [1e-150, 1e-155, 1e-200])
def test_next_to_no_noise_is_next_to_no_privacy(noise):
    loss = SubsampledGaussian(0.5, noise, neighbours=Neighbours.REPLACE)
    assert loss.delta(1.0) >= 0.49
    assert (2 * loss).epsilon(1e-6) > 1e100
    assert not math.isnan(SubsampledGaussian(1e-10, 1.0, neighbours=Neighbours.REPLACE).delta(700.0))
