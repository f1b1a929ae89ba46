"""What leaves a search holds one certificate and one time; what enters it holds no seed, and books no run."""

import io
import itertools
import json
import logging
import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tests.selection.makers import Mean, MeanMechanism, forced

from discretion.privacy import (
    Certificate,
    GaussianDP,
    Ledger,
    Neighbours,
    PublicError,
    PureDP,
    Release,
    SeededRandomness,
    SystemRandomness,
)
from discretion.privacy.quiet import silent
from discretion.selection import (
    Capped,
    Declared,
    Fixed,
    NegativeBinomial,
    NoisyScore,
    PrivateRidge,
    PrivateSearchCV,
    PublicScore,
    RunLimit,
    SelectionMechanism,
    diffprivlib_loss,
    geometric,
    select,
)
from discretion.selection.binding import code_of
from discretion.selection.linear import LabelledRecords
from discretion.selection.model_selection import EstimatorMechanism
from discretion.selection.outcome import under
from discretion.selection.sealed import opened, sealed

pytestmark = pytest.mark.filterwarnings("ignore:No ledger")

RECORDS = np.linspace(0.0, 1.0, 20)
VALUE = PublicScore(lambda release: float(release.value), "value")
LOSS = GaussianDP(0.5, neighbours=Neighbours.REPLACE)


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock is a second later than the one before."""

    def start(second):
        seconds = itertools.count(second)

        def told():
            minutes, rest = divmod(next(seconds), 60)
            return f"2026-01-01T00:{minutes:02}:{rest:02}Z"

        monkeypatch.setattr("discretion.privacy.certificate.utc_now", told)

    return start


def table():
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60)


def same(model):
    return 0.0


# --- One time


def test_a_certificate_tells_when_the_search_began_whatever_its_runs_take(clock):
    told = set()
    for drawn in (3, 20):
        clock(0)
        law = forced(drawn)
        search = SelectionMechanism((MeanMechanism(),), VALUE, law, 1e-6)
        release = search.run(RECORDS, SeededRandomness(1))
        told |= {release.certificate.created, release.winner.certificate.created}
    assert told == {"2026-01-01T00:00:00Z"}


def test_a_padded_search_does_not_tell_when_its_runs_ended(monkeypatch, clock):
    law, told = Capped(geometric(3), 4), set()
    limit = RunLimit(0.01, "they take no time")
    search = SelectionMechanism((MeanMechanism(),), VALUE, law, 1e-6, limit=limit, pad=True)
    monkeypatch.setattr("discretion.selection.search.time.sleep", lambda seconds: None)
    for drawn in (1, 4):
        clock(0)
        monkeypatch.setattr(Capped, "sample", lambda self, randomness, drawn=drawn: drawn)
        told.add(search.run(RECORDS, SeededRandomness(1)).certificate.created)
    assert len(told) == 1


def test_a_search_that_is_taken_up_tells_when_it_was_begun(tmp_path, clock):
    class Stops(MeanMechanism):
        stopped = False

        def run(self, records, randomness):
            if not Stops.stopped:
                Stops.stopped = True
                raise KeyboardInterrupt
            return super().run(records, randomness)

    def go():
        return select(
            [Stops()], VALUE, Fixed(3), RECORDS, 20, journal=tmp_path / "journal", randomness=SeededRandomness(1)
        )

    clock(0)
    with pytest.raises(KeyboardInterrupt):
        go()
    head = json.loads((tmp_path / "journal").read_bytes().split(b"\n")[0].split(b" ", 1)[1])
    clock(1800)
    assert go().certificate.created == head["drawn"] == "2026-01-01T00:00:00Z"


# --- One certificate


@dataclass(frozen=True)
class Both:
    first: Mean
    rest: dict


class Nested(MeanMechanism):
    def run(self, records, randomness):  # pyright: ignore[reportIncompatibleMethodOverride]
        one = super().run(records, randomness)
        return Both(one, {"more": [one, (one,)]})


def certificates(value):
    """Every certificate in what a pickle of the value holds."""
    found = []

    class Finder(pickle.Pickler):
        def persistent_id(self, obj):
            if isinstance(obj, Certificate):
                found.append(obj)

    Finder(io.BytesIO()).dump(value)
    return found


def test_releases_within_a_winner_have_the_certificate_of_the_search(tmp_path):
    book = Ledger.create(tmp_path / "book", dataset="d", epsilon=50, delta=1e-3)
    release = select([Nested()], PublicScore(same), Fixed(2), RECORDS, 20, ledger=book, delta=1e-6)
    held = certificates(release)
    assert len(held) >= 3
    assert {(each.mechanism, each.epsilon, each.ledger_entry) for each in held} == {
        ("private-selection", release.certificate.epsilon, f"{book.id}#1")
    }
    assert isinstance(release.winner.rest["more"][1][0], Release)


def test_what_has_no_certificate_is_left_as_it_is():
    search = SelectionMechanism((MeanMechanism(),), VALUE, Fixed(1), 1e-6)
    certificate = search.run(RECORDS, SeededRandomness(1)).certificate
    value = (1, "a", [2.0], {"b": None}, frozenset({3}), LOSS)
    assert under(certificate, value) == value
    assert under(certificate, LOSS) is LOSS


def declared_loss(estimator, n):
    return estimator.privacy_loss(n)


@pytest.mark.parametrize(
    ("estimator", "key"),
    [
        (PrivateRidge(2.0, mu=0.5), "alpha"),
        (Declared(PrivateRidge(2.0, mu=0.5), declared_loss), "estimator__alpha"),
        (
            Declared(make_pipeline(FunctionTransformer(), PrivateRidge(2.0, mu=0.5)), LOSS),
            "estimator__privateridge__alpha",
        ),
    ],
)
def test_a_fitted_winner_holds_no_certificate_of_its_run(estimator, key, tmp_path):
    book = Ledger.create(tmp_path / "book", dataset="d", epsilon=50, delta=1e-3)
    search = PrivateSearchCV(estimator, {key: [1.0]}, Fixed(3), scoring=PublicScore(same), ledger=book).fit(*table())
    assert b"private-ridge-regression" not in search.release_.winner.model
    for winner in (
        search.best_estimator_,
        search.release_.winner.load(),
        pickle.loads(pickle.dumps(search.release_)).winner.load(),
    ):
        held = certificates(winner)
        assert held
        assert all(each == search.release_.certificate for each in held)
        assert held[0].ledger_entry == f"{book.id}#1"


class Keeps(RegressorMixin, BaseEstimator):
    """An estimator that keeps what it drew from."""

    def __init__(self, source=None):
        self.source = source

    def fit(self, X, y):
        self.own_ = np.random.RandomState()
        self.more_ = {"generator": [np.random.default_rng()]}
        return self

    def predict(self, X):
        return np.zeros(len(X))


def test_a_fitted_winner_holds_no_source_of_noise():
    search = PrivateSearchCV(
        Declared(Keeps(), LOSS), {"estimator__source": [None]}, Fixed(1), scoring=PublicScore(same)
    )
    winner = search.fit(*table()).best_estimator_.estimator_
    assert (winner.own_, winner.more_) == (None, {"generator": [None]})
    np.testing.assert_array_equal(winner.predict(np.zeros((3, 2))), np.zeros(3))
    assert opened(sealed([SystemRandomness(), 1])[0], None) == [None, 1]


class Own(RegressorMixin, BaseEstimator):
    """An estimator that releases by a seed of its own, which nobody can see beforehand."""

    def fit(self, X, y):
        self.inner_ = PrivateRidge(2.0, mu=0.5, randomness=SeededRandomness(3)).fit(X, y)
        return self


class Seeded(MeanMechanism):
    def run(self, records, randomness):  # pyright: ignore[reportIncompatibleMethodOverride]
        return Both(super().run(records, SeededRandomness(3)), {})


def test_a_winner_with_a_release_for_tests_alone_in_it_is_not_bookable():
    search = PrivateSearchCV(Declared(Own(), LOSS), {}, Fixed(1), scoring=PublicScore(same)).fit(*table())
    assert not search.release_.certificate.bookable
    assert not select([Seeded()], PublicScore(same), Fixed(1), RECORDS, 20, delta=1e-6).certificate.bookable
    assert select([Nested()], PublicScore(same), Fixed(1), RECORDS, 20, delta=1e-6).certificate.bookable


# --- What enters


@pytest.mark.parametrize(
    "source", [SeededRandomness(7), np.random.RandomState(7), np.random.default_rng(7), [{"a": SeededRandomness(7)}]]
)
def test_noise_that_can_be_replayed_is_refused_at_any_depth(source, tmp_path):
    book = Ledger.create(tmp_path / "book", dataset="d", epsilon=50, delta=1e-3)
    for estimator in (Keeps(source), make_pipeline(FunctionTransformer(), Keeps(source))):
        search = PrivateSearchCV(Declared(estimator, LOSS), {}, Fixed(2), scoring=PublicScore(same), ledger=book)
        with pytest.raises(ValueError, match=r"holds a source of noise .* among its parameters"):
            search.fit(*table())
    assert book.entries() == []


def test_the_noise_of_declared_learners_is_refused_if_seeded_and_fresh_if_not(tmp_path):
    def search(randomness):
        ridge = Declared(PrivateRidge(2.0, mu=0.5, randomness=randomness), declared_loss)
        return PrivateSearchCV(ridge, {"estimator__alpha": [1.0]}, Fixed(1), scoring=PublicScore(same)).fit(*table())

    with pytest.raises(ValueError, match="source of noise"):
        search(SeededRandomness(7))
    one, two = (search(each).best_estimator_.estimator_.coef_ for each in (SystemRandomness(), None))
    assert not np.array_equal(one, two)


def test_no_ledger_within_an_estimator_books_its_runs(tmp_path):
    Ledger.create(tmp_path / "nested", dataset="d", epsilon=1e6, delta=1e-2)
    for ledger in (tmp_path / "nested", str(tmp_path / "nested"), Ledger.open(tmp_path / "nested")):
        ridge = Declared(PrivateRidge(2.0, mu=0.5, ledger=ledger), declared_loss)
        search = PrivateSearchCV(ridge, {"estimator__alpha": [1.0]}, forced(5), scoring=PublicScore(same)).fit(*table())
        assert "nested" not in search.release_.certificate.to_json()
        assert search.best_estimator_.estimator_.ledger is None
    assert Ledger.open(tmp_path / "nested").entries() == []


def test_a_ledger_that_an_estimator_hides_is_refused(tmp_path):
    hidden = Keeps({"inside": PrivateRidge(mu=0.5, ledger=str(tmp_path / "nested"))})
    with pytest.raises(ValueError, match="a ledger"):
        EstimatorMechanism(Declared(hidden, LOSS), {}, Neighbours.REPLACE)


class Needs(RegressorMixin, BaseEstimator):
    """An estimator that may need a record."""

    def __init__(self, least: int = 0, contributions: int | None = 1):
        self.least = least
        self.contributions = contributions

    def fit(self, X, y):
        if len(X) < self.least:
            raise ValueError
        return self


def test_every_candidate_is_tried_on_no_records():
    score = NoisyScore(lambda model, records: np.zeros(len(records.response)), 0.0, 1.0, 0.1, fraction=0.5)
    loss = PureDP(0.01, neighbours=Neighbours.ADD_REMOVE)
    records = LabelledRecords(np.zeros((4, 2)), np.zeros(4))
    for order in ([0, 1], [1, 0]):
        search = PrivateSearchCV(Declared(Needs(), loss), {"estimator__least": order}, Fixed(3), scoring=score)
        with pytest.raises(PublicError, match="no records"):
            search.mechanism().check(records)
    fine = PrivateSearchCV(Declared(Needs(), loss), {"estimator__least": [0, -1]}, Fixed(3), scoring=score).mechanism()
    assert fine.check(records) is None


def test_the_most_contributions_at_any_depth_count():
    pipeline = make_pipeline(Needs(contributions=5), Needs(contributions=None))
    assert EstimatorMechanism(Declared(pipeline, LOSS), {}, Neighbours.REPLACE).contributions == 5
    assert EstimatorMechanism(Declared(Needs(contributions=None), LOSS), {}, Neighbours.REPLACE).contributions == 1


# --- What else was found beside these


def test_trees_of_diffprivlib_need_their_classes():
    class Tree(BaseEstimator):
        def __init__(self, epsilon=1.0, bounds=(0, 1), classes=None):
            self.epsilon, self.bounds, self.classes = epsilon, bounds, classes

    with pytest.raises(ValueError, match="classes"):
        diffprivlib_loss("replace")(Tree(), 9)
    assert diffprivlib_loss("replace")(Tree(classes=(0, 1)), 9).epsilon(0.0) == 1.0


def test_a_masked_array_is_bound_with_its_mask():
    values = np.arange(3.0)
    codes = {
        code_of(np.ma.array(values, mask=np.array(mask, dtype=bool)), b"k" * 32, whole=True)
        for mask in ([0, 0, 1], [0, 1, 0], [0, 0, 0])
    }
    assert len(codes) == 3


def test_no_level_of_a_log_is_loud_enough(caplog):
    with silent():
        logging.getLogger("run").log(logging.CRITICAL + 10, "RUN")
    assert caplog.text == ""


def test_a_law_is_kept_in_a_search_of_shape_next_to_zero():
    law = NegativeBinomial(5e-324, 0.5)
    search = SelectionMechanism((MeanMechanism(),), VALUE, law, 1e-6)
    assert search.parameters()["law"]["shape"] == 0.0
    assert replace(search, law=NegativeBinomial(0.0, 0.5)).privacy_loss(20).epsilon(1e-6) == search.privacy_loss(
        20
    ).epsilon(1e-6)


class WithSeed(Keeps):
    def __init__(self, seed=None):
        self.seed = seed


@pytest.mark.parametrize("estimator", [Keeps(np.random.SeedSequence(7)), WithSeed(7)])
def test_a_seed_is_refused_by_whatever_name(estimator):
    with pytest.raises(ValueError, match=r"source of noise|estimator__seed is set"):
        EstimatorMechanism(Declared(estimator, LOSS), {}, Neighbours.REPLACE)


def test_a_generator_of_torch_neither_enters_nor_leaves():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="source of noise"):
        EstimatorMechanism(Declared(Keeps(torch.Generator().manual_seed(7)), LOSS), {}, Neighbours.REPLACE)
    assert opened(sealed([torch.Generator(), 1])[0], None) == [None, 1]
