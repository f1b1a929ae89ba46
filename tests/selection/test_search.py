import pickle
import re
import sys
import time
from dataclasses import dataclass, replace
from types import FunctionType, ModuleType

import numpy as np
import pytest
from joblib import parallel_config
from scipy.stats import chisquare
from tests.selection.makers import Forced, Mean, MeanMechanism, forced

from discretion.gp import Box, Matern32
from discretion.posterior import PosteriorMechanism
from discretion.posterior.records import Records
from discretion.privacy import (
    BudgetExceeded,
    GaussianDP,
    LaplaceDP,
    Ledger,
    MechanismFailed,
    Neighbours,
    NotBookable,
    PublicError,
    PureDP,
    SeededRandomness,
    State,
)
from discretion.selection import (
    Capped,
    NegativeBinomial,
    NoisyScore,
    Outcome,
    Poisson,
    PublicScore,
    RunLimit,
    SelectionMechanism,
    select,
)
from discretion.selection.bounds import heterogeneous, selection_loss
from discretion.selection.scores import either
from discretion.selection.search import dyadic
from discretion.selection.streams import KeyedRandomness, SearchKey

PLANTED = 0.12345678912345
RECORDS = np.full(50, PLANTED)
VALUE = PublicScore(lambda release: float(release.value), "the value")
MEAN = MeanMechanism()
LAW = NegativeBinomial.of_mean(2.0, 5.0)


def search(candidates=(MEAN,), score=VALUE, law=LAW, **more):
    return SelectionMechanism(tuple(candidates), score, law, 1e-6, **more)


# --- price


def test_the_price_is_that_of_the_bounds():
    one = GaussianDP(0.5, neighbours="replace")
    assert search().run_loss(50) == one
    assert search().privacy_loss(50).epsilon(1e-6) == selection_loss(one, LAW).epsilon(1e-6)
    # as it is stored: a table
    stored = search(rule="renyi").privacy_loss(50).epsilon(1e-6)
    assert stored == pytest.approx(selection_loss(one, LAW, rule="renyi").epsilon(1e-6), rel=1e-11)


def test_candidates_are_averaged_by_their_weights():
    losses = [GaussianDP(mu, neighbours="replace") for mu in (0.2, 0.6)]
    three = [MeanMechanism(0.2), MeanMechanism(0.6), MeanMechanism(0.6, shift=1.0)]
    mixed = search(three, weights=(0.5, 0.25, 0.25)).run_loss(50)
    assert mixed.epsilon(1e-6) == heterogeneous(losses, (0.5, 0.5)).epsilon(1e-6)
    assert losses[0].epsilon(1e-6) < mixed.epsilon(1e-6) < losses[1].epsilon(1e-6)


def test_a_noisy_score_adds_up_or_takes_the_larger():
    values = lambda release, records: np.asarray(records)  # noqa: E731
    same = NoisyScore(values, 0.0, 1.0, mu=1.2)
    apart = replace(same, fraction=0.5)
    assert search(score=same).run_loss(50).epsilon(1e-6) == pytest.approx(
        GaussianDP(1.3, neighbours="replace").epsilon(1e-6), rel=1e-9
    )
    assert search(score=apart).run_loss(50) == GaussianDP(1.2, neighbours="replace", rule="noisy score")
    gaussian, pure = GaussianDP(0.5, neighbours="replace"), PureDP(1.0, neighbours="replace")
    for order in (1.5, 4.0, 30.0):
        assert either(gaussian, pure).renyi(order) == max(gaussian.renyi(order), pure.renyi(order))


def test_weights_are_the_chances_of_the_draws():
    assert sum(dyadic((0.1, 0.2, 0.7), 3)) == 1.0
    assert dyadic((1, 0, 3, 0), 4) == (0.25, 0.0, 0.75, 0.0)
    assert sum(dyadic(None, 7)) == 1.0
    for bad in ((1.0,), (-1.0, 2.0), (0.0, 0.0), (np.nan, 1.0)):
        with pytest.raises(ValueError, match=r"weights|Weights"):
            dyadic(bad, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": ()}, "at least one"),
        ({"score": float}, "an order needs a price"),
        ({"law": 3}, "Repetitions"),
        ({"pad": True}, "limit per run"),
        ({"candidates": (MeanMechanism(), MeanMechanism(neighbours=Neighbours.ADD_REMOVE))}, "same neighbours"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(ValueError, match=message):
        search(**change)


# --- the winner


def test_best_of_all_runs_by_score():
    candidates = [MeanMechanism(shift=float(j), exact=True) for j in range(4)]
    release = search(candidates, law=forced(60)).run(RECORDS, SeededRandomness(1))
    assert release.outcome is Outcome.CHOSEN
    assert (release.candidate, release.score, float(release.winner.value)) == (3, 3.0, 3.0)
    assert release.choice == {"shift": 3.0}


def test_the_law_of_the_winner(monkeypatch):
    """P[winner is j] under equal scores is the chance of j; under an order it is that of the best of K."""
    certificate = MeanMechanism().run(RECORDS, SeededRandomness(0)).certificate
    monkeypatch.setattr(SelectionMechanism, "_certificate", lambda *_: certificate)
    monkeypatch.setattr(MeanMechanism, "_certificate", lambda *_: certificate)
    monkeypatch.setattr(SelectionMechanism, "run_loss", lambda *_: PureDP(1.0, neighbours="replace"))
    candidates = [MeanMechanism(shift=float(j), exact=True) for j in range(3)]
    equal = search(candidates, PublicScore(lambda release: 0.0), law=forced(4), weights=(0.5, 0.3, 0.2))
    ordered = search(candidates, law=Poisson(1.0), weights=(0.5, 0.3, 0.2))
    found = {"equal": np.zeros(3), "ordered": np.zeros(4)}
    randomness = SeededRandomness(7)
    for _ in range(700):
        found["equal"][equal.run(RECORDS[:2], randomness).candidate] += 1
        release = ordered.run(RECORDS[:2], randomness)
        found["ordered"][3 if release.is_default else release.candidate] += 1
    assert chisquare(found["equal"], 700 * np.array([0.5, 0.3, 0.2])).pvalue > 1e-4
    below = np.exp(np.array([0.0, 0.5, 0.8, 1.0]) - 1.0)  # P[all runs among the first j]
    assert chisquare(found["ordered"], 700 * np.append(np.diff(below), below[0])).pvalue > 1e-4


def test_failing_and_unscored_runs_rank_last():
    bad = [MeanMechanism(fails="error"), MeanMechanism(fails="nan")]
    good = MeanMechanism(shift=-9.0, exact=True)
    release = search([*bad, good], law=forced(40)).run(RECORDS, SeededRandomness(0))
    assert (release.outcome, release.candidate, release.score) == (Outcome.CHOSEN, 2, -9.0)
    none = search(bad, law=forced(9)).run(RECORDS, SeededRandomness(0))
    assert (none.outcome, none.winner, none.candidate, none.score) == (Outcome.FAILED, None, None, None)
    failing_score = search(score=PublicScore(lambda release: 1 / 0), law=forced(2)).run(RECORDS, SeededRandomness(0))
    assert failing_score.outcome is Outcome.FAILED


def test_a_score_of_minus_infinity_is_above_a_failure():
    pair = [MeanMechanism(fails="error"), MeanMechanism(exact=True)]
    lowest = PublicScore(lambda release: -np.inf)
    assert search(pair, lowest, law=forced(30)).run(RECORDS, SeededRandomness(0)).candidate == 1


def test_no_run_gives_the_default():
    default = MeanMechanism(exact=True, shift=0.25).run(RECORDS, SeededRandomness(0))
    release = search(law=forced(0), default=default).run(RECORDS, SeededRandomness(0))
    assert release.is_default
    assert release.outcome is Outcome.DEFAULT
    assert (float(release.winner.value), release.candidate, release.score) == (0.25, None, None)
    assert release.winner.certificate == release.certificate
    assert search(law=forced(0)).run(RECORDS, SeededRandomness(0)).winner is None


def test_the_certificate_is_that_of_the_search_everywhere():
    release = search(law=forced(3)).run(RECORDS, SeededRandomness(0))
    total = search().privacy_loss(50).epsilon(1e-6)
    assert release.certificate.epsilon == release.winner.certificate.epsilon
    assert release.certificate.epsilon >= 0.99 * selection_loss(release_base(), forced(3)).epsilon(1e-6)
    assert release.one_run == release_base().epsilon(1e-6) < total
    assert release.certificate.mechanism == release.winner.certificate.mechanism == "private-selection"
    assert "Numbers lie in [0, 1]." in release.certificate.enforced
    assert release.certificate.unit == "one number"
    (said,) = (line for line in release.certificate.declared if "nothing checked" in line)
    assert said.startswith("Each row of the table is one number; nothing checked this")


def release_base():
    return GaussianDP(0.5, neighbours="replace")


# --- what does not leave


def everything(value, seen=None):
    """Every number, text and container that hangs on a value, its functions included."""
    seen = {} if seen is None else seen
    if id(value) in seen or isinstance(value, type | ModuleType):
        return []
    seen[id(value)] = value
    found = [value]
    for name in ("__dict__", "__closure__"):
        if getattr(value, name, None):
            found += everything(getattr(value, name), seen)
    if isinstance(value, dict):
        for key, each in value.items():
            found += everything(key, seen) + everything(each, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            found += everything(each, seen)
    elif isinstance(value, FunctionType):
        found += everything(value.__defaults__ or (), seen)
    return found


@pytest.mark.parametrize("jobs", [1, 2])
def test_nothing_depends_on_the_number_of_runs(jobs, capfd, recwarn, caplog, tmp_path, monkeypatch):
    monkeypatch.setattr("discretion.privacy.certificate.utc_now", lambda: "2026-01-01T00:00:00Z")
    monkeypatch.chdir(tmp_path)
    candidates = [MeanMechanism(shift=1.0, exact=True, loud=True), MeanMechanism(fails="error", loud=True)]
    seen = set()
    for drawn in (12, 13, 45):
        with parallel_config("threading"):
            mechanism = search(candidates, law=forced(drawn), jobs=jobs)
            release = mechanism.run(RECORDS, SeededRandomness(drawn))
        hanging = sorted(
            f"{type(each).__name__} {each}" for each in everything(release) if isinstance(each, int | float | str)
        )
        seen.add((repr(release), str(release), release.text(), pickle.dumps(release), "\n".join(hanging)))
        assert release.candidate == 0
    assert len(seen) == 1
    captured = capfd.readouterr()
    assert (captured.out, captured.err, list(recwarn), caplog.text) == ("", "", [], "")
    assert list(tmp_path.iterdir()) == []


def test_silence_ends_with_the_search(capsys):
    before = sys.stdout, sys.stderr
    search(law=forced(3)).run(RECORDS, SeededRandomness(0))
    assert (sys.stdout, sys.stderr) == before
    print("heard")
    assert capsys.readouterr().out == "heard\n"


def test_no_record_leaves():
    release = search([MeanMechanism(), MeanMechanism(fails="error")], law=forced(20)).run(RECORDS, SeededRandomness(0))
    text = pickle.dumps(release) + repr(release).encode() + release.certificate.to_json().encode()
    assert str(PLANTED)[2:12].encode() not in text
    assert np.float64(PLANTED).tobytes() not in text


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_the_order_of_runs_does_not_matter(backend):
    mechanism = search([MeanMechanism(shift=s) for s in (0.0, 0.01)], law=forced(17))
    key = SearchKey(b"k" * 32, False)
    alone = mechanism.replay(key, RECORDS)
    with parallel_config(backend, n_jobs=2):
        together = mechanism.replay(key, RECORDS)
    assert (alone.score, alone.candidate) == (together.score, together.candidate)
    assert float(alone.winner.value) == float(together.winner.value)


def test_runs_have_streams_of_their_own():
    key = SearchKey(b"k" * 32, True)
    numbers = [key.stream(f"run {k}").uniform(100) for k in range(5)]
    assert len({round(float(each), 12) for row in numbers for each in row}) == 500
    np.testing.assert_array_equal(key.stream("run 3").uniform(100), numbers[3])
    long = key.stream("run 3").uniform(20_000)
    np.testing.assert_array_equal(long[:100], numbers[3])
    assert abs(long.mean() - 0.5) < 0.01
    assert "PRIVATE" in repr(key)
    assert "PRIVATE" in repr(key.stream("a"))
    assert isinstance(key.stream("a"), KeyedRandomness)


# --- time


def test_a_run_beyond_its_limit_ranks_last():
    slow, quick = MeanMechanism(shift=5.0, exact=True, seconds=600.0), MeanMechanism(shift=1.0, exact=True)
    limit = RunLimit(0.4, "runs sleep for a public time")
    start = time.monotonic()
    release = search([slow, quick], law=forced(6), limit=limit).run(RECORDS, SeededRandomness(0))
    assert release.candidate == 1
    assert time.monotonic() - start < 300.0
    assert "runs sleep for a public time" in release.certificate.declared[-1]


def test_a_padded_release_comes_at_its_deadline(monkeypatch):
    monkeypatch.setattr("discretion.selection.search.OPEN_END", 0.1)
    limit = RunLimit(0.05, "public")
    times = []
    for seed in (0, 1):
        mechanism = search(law=Capped(Poisson(2.0), 4), limit=limit, pad=True)
        mechanism.privacy_loss(50)
        start = time.monotonic()
        release = mechanism.run(RECORDS, SeededRandomness(seed))
        times.append(time.monotonic() - start)
    # never early; late as a busy machine makes it
    assert min(times) >= 0.3 - 1e-3
    assert max(times) < 60.0
    assert not any("How long the search took" in limit for limit in release.certificate.limits)


def test_a_limit_says_why_it_is_public():
    with pytest.raises(ValueError, match="Say why"):
        RunLimit(1.0, " ")
    with pytest.raises(ValueError, match="positive"):
        RunLimit(0.0, "public")


# --- scores


def test_noisy_scores_have_the_stated_law():
    score = NoisyScore(lambda _, records: records, 0.0, 1.0, mu=2.0)
    records, randomness = np.linspace(-1.0, 2.0, 50), SeededRandomness(3)
    exact = np.clip(records, 0.0, 1.0)
    public = [score(None, records, Neighbours.REPLACE, randomness) for _ in range(4000)]
    assert np.mean(public) == pytest.approx(exact.mean(), abs=4 * 0.01 / np.sqrt(4000))
    assert np.std(public) == pytest.approx(1.0 / (50 * 2.0), rel=0.05)
    private = [score(None, records, Neighbours.ADD_REMOVE, randomness) for _ in range(4000)]
    assert np.mean(private) == pytest.approx((exact - 0.5).sum(), abs=4 * 0.25 / np.sqrt(4000))
    assert np.std(private) == pytest.approx(0.25, rel=0.05)


def test_sensitivity_of_a_noisy_score_is_attained():
    score = NoisyScore(lambda _, records: records, -2.0, 3.0, mu=1e300)
    low, high = np.full(9, -2.0), np.full(9, -2.0)
    high[4] = np.nan
    assert score(None, low, Neighbours.REPLACE, SeededRandomness(0)) == score(
        None, high, Neighbours.REPLACE, SeededRandomness(0)
    )
    high[4] = 1e9
    changed = score(None, high, Neighbours.REPLACE, SeededRandomness(0)) + 2.0
    assert changed == pytest.approx(score.sensitivity(9), rel=1e-12)
    added = score(None, high, Neighbours.ADD_REMOVE, SeededRandomness(0)) - score(
        None, np.delete(high, 4), Neighbours.ADD_REMOVE, SeededRandomness(0)
    )
    assert added == pytest.approx(score.sensitivity(None), rel=1e-12)


def test_records_are_parted_by_position_or_by_coin():
    score = NoisyScore(lambda _, records: records, 0.0, 1.0, mu=1.0, fraction=0.3)
    records = np.arange(100.0)
    one, two = score.split(records, Neighbours.REPLACE, SeededRandomness(0))
    again = score.split(records[::-1].copy(), Neighbours.REPLACE, SeededRandomness(9))[1]
    np.testing.assert_array_equal(np.sort(np.concatenate([one, two])), records)
    np.testing.assert_array_equal(again, 99.0 - two)  # the same positions, whatever lies there
    assert (len(two), score.training_size(100)) == (30, 70)
    assert score.training_size(None) is None
    sizes = [len(score.split(records, Neighbours.ADD_REMOVE, SeededRandomness(s))[1]) for s in range(40)]
    assert len(set(sizes)) > 5
    assert np.mean(sizes) == pytest.approx(30.0, abs=3.0)
    with pytest.raises(ValueError, match="leaves no record"):
        score.split(records[:2], Neighbours.REPLACE, SeededRandomness(0))


def test_disjoint_validation_end_to_end():
    score = NoisyScore(lambda release, records: np.abs(records - release.value) < 0.2, 0.0, 1.0, mu=3.0, fraction=0.2)
    release = search([MeanMechanism(shift=s) for s in (0.0, 0.5)], score, law=forced(12)).run(
        np.full(100, 0.5), SeededRandomness(0)
    )
    assert release.candidate == 0
    assert release.score == pytest.approx(1.0, abs=0.2)


def test_units_of_several_records_are_refused_under_a_score_that_hides_one():
    several = replace(MEAN)
    several.__dict__["contributions"] = 10
    for fraction in (None, 0.5):
        with pytest.raises(ValueError, match="up to 10 records"):
            search([MEAN, several], NoisyScore(lambda _, records: records, 0.0, 1.0, 1.0, fraction))
    assert search([several]).run_loss(50) == release_base()


def test_an_empty_part_to_score_by_has_noise_only():
    def never(artefact, records):
        raise AssertionError

    score = NoisyScore(never, 0.0, 1.0, mu=2.0)
    found = [score(None, np.zeros(0), Neighbours.ADD_REMOVE, SeededRandomness(s)) for s in range(400)]
    assert np.mean(found) == pytest.approx(0.0, abs=4 * 0.25 / 20)
    assert np.std(found) == pytest.approx(0.25, rel=0.2)


@dataclass(frozen=True, eq=False)
class Sum(MeanMechanism):
    """The sum, which no records have too."""

    name = "sum"

    def run(self, records, randomness):
        value = float(np.sum(records)) + float(randomness.standard_normal()) / self.mu
        return Mean(self._certificate(len(records), randomness), np.array(value))


def test_an_empty_part_to_learn_from_is_never_told():
    score = NoisyScore(lambda _, records: records, 0.0, 1.0, mu=1.0, fraction=0.7)
    private = {"neighbours": Neighbours.ADD_REMOVE}
    able = search([Sum(**private)], score, forced(1))
    for n in (0, 1, 2, 3):
        assert {able.run(np.full(n, 0.5), SeededRandomness(s)).outcome for s in range(12)} == {Outcome.CHOSEN}
    unable = search([MeanMechanism(**private, fails="error")], score, forced(1))
    for n in (0, 1, 30):  # a public fact, and so it is told whatever the records are
        with pytest.raises(PublicError, match="can't be run on no records"):
            unable.check(np.full(n, 0.5))


def test_records_are_checked_before_a_run_without_a_ledger():
    with pytest.raises(PublicError, match="finite"):
        search(law=forced(0)).run(np.array([np.nan]), SeededRandomness(0))


def test_either_looks_at_all_that_is_known():
    """A larger epsilon is not a larger loss where the smaller one is of another kind."""
    laplace, pure = LaplaceDP(1.0, neighbours="replace"), PureDP(0.9, neighbours="replace")
    both = either(laplace, pure)
    x = np.array([1e-3, 0.1, 1.0, 10.0, np.inf])
    assert (both.renyi_excess(x) >= np.maximum(laplace.renyi_excess(x), pure.renyi_excess(x))).all()
    assert both.renyi_excess(0.1) >= pure.renyi_excess(0.1) > laplace.renyi_excess(0.1)
    assert either(PureDP(1.0, neighbours="replace"), pure).epsilon(0.0) == 1.0


def test_candidates_of_weight_zero_are_allowed():
    dear = MeanMechanism(mu=3.0)
    one = search([MEAN, dear, MeanMechanism(mu=0.6)], weights=(0.5, 0.0, 0.5)).run_loss(50)
    assert one.epsilon(1e-6) == search([MEAN, MeanMechanism(mu=0.6)]).run_loss(50).epsilon(1e-6)
    assert search([MEAN, dear], weights=(1.0, 0.0)).run_loss(50) == release_base()


# --- through the ledger


def book(path, epsilon=20.0):
    return Ledger.create(path / "l.ledger", dataset="numbers", epsilon=epsilon, delta=1e-6)


def test_select_spends_once_and_books(tmp_path):
    ledger = book(tmp_path)
    release = select([MeanMechanism(), MeanMechanism(shift=1.0)], VALUE, LAW, RECORDS, 50, ledger=ledger)
    (entry,) = ledger.entries()
    assert entry.state is State.BOOKED
    assert entry.description["mechanism"] == "private-selection"
    assert release.certificate.ledger_entry == release.winner.certificate.ledger_entry == f"{ledger.id}#{entry.id}"
    assert isinstance(release.winner, Mean)
    assert release.certificate.bookable
    assert ledger.spent().epsilon == pytest.approx(release.certificate.epsilon, rel=1e-3)


def test_a_budget_too_small_reads_nothing(tmp_path):
    with pytest.raises(BudgetExceeded):
        select([MeanMechanism()], VALUE, LAW, RECORDS, 50, ledger=book(tmp_path, 1.0))
    with pytest.raises(NotBookable):
        select([MeanMechanism()], VALUE, LAW, RECORDS, 50, ledger=tmp_path / "l.ledger", randomness=SeededRandomness(0))


def test_an_interrupt_returns_nothing_and_stays_spent(tmp_path):
    ledger = book(tmp_path)
    with pytest.raises(KeyboardInterrupt) as raised:
        select([MeanMechanism(fails="interrupt")], VALUE, LAW, RECORDS, 50, ledger=ledger)
    (words,) = raised.value.args
    assert words.startswith("Interrupted; nothing was released. What it reserved stays paid for")
    (entry,) = ledger.entries()
    assert entry.state is State.FAILED
    assert ledger.spent().epsilon > 0


def test_errors_outside_a_run_quote_nothing(tmp_path):
    class Broken(Forced):
        def sample(self, randomness):
            raise RuntimeError(str(PLANTED))

    ledger = book(tmp_path)
    with pytest.raises(MechanismFailed) as raised:
        select([MeanMechanism()], VALUE, Broken(3.0), RECORDS, 50, ledger=ledger)
    assert not re.search(str(PLANTED)[:8], str(raised.value))


def test_a_map_with_tuned_length_scale_and_ridge(tmp_path):
    """One release whose certificate covers tuning and release."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = np.sign(X[:, 0] - 0.5)
    box = Box((0.0, 0.0), (1.0, 1.0))

    def public(release):
        return -float(np.mean((np.sign(release.values[0]) - np.sign(release.locations[:, 0] - 0.5)) ** 2))

    candidates = [
        PosteriorMechanism(
            Matern32(length), box, (-1.0, 1.0), ridge, 0.5, box.grid((6, 6)), 1e-4, grid=(6, 6), unit="one sale"
        )
        for length in (0.05, 0.4)
        for ridge in (10.0, 30.0)
    ]
    ledger = Ledger.create(tmp_path / "l", dataset="sales", epsilon=50.0, delta=1e-4)
    release = select(
        candidates, PublicScore(public, "agreement with public data"), Poisson(6.0), Records(X, y), 300, ledger=ledger
    )
    assert release.outcome in set(Outcome)
    if release.outcome is Outcome.CHOSEN:
        assert release.winner.on_grid().shape == (1, 6, 6)
        assert release.winner.certificate.epsilon == release.certificate.epsilon > release.one_run
    assert len(ledger.entries()) == 1
    assert release.certificate.unit == "one sale"
