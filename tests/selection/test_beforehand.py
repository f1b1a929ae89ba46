"""What a search refuses before it is paid for, and what a rehearsal shows."""

import warnings

import numpy as np
import pytest
from tests.selection.makers import MeanMechanism, forced

from discretion import RBF, Box
from discretion.posterior import KernelSumMechanism, PosteriorMechanism, Records
from discretion.privacy import GaussianDP, Ledger, NeighbourMismatch, Neighbours, PublicError, SeededRandomness
from discretion.privacy.fits import UNREMEMBERED
from discretion.selection import (
    DensityBox,
    Fixed,
    LabelledRecords,
    NoisyScore,
    Outcome,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
    Proposals,
    PublicScore,
    geometric,
    rehearse,
    select,
)
from discretion.selection.charged import FAILED

RECORDS = np.random.default_rng(3).uniform(size=50)
VALUE = PublicScore(lambda release: float(release.value), "value")


def table(n=120):
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (n, 3))
    return X, (X[:, 0] > 0).astype(int)


def classifier(**more):
    X, y = table()
    options = {"validation": (X[:20], y[:20])} | more
    return PrivateSearchCV(PrivateLogisticRegression((0, 1), noise=5.0), {"alpha": [1.0, 10.0]}, forced(2), **options)


def book_of(path, **more):
    return Ledger.create(path / "book", dataset="x", **({"epsilon": 50.0, "delta": 1e-6} | more))


# --- refused, and nothing spent


@pytest.mark.parametrize(
    ("validation", "words"),
    [
        (lambda X, y: (X[:20, :2], y[:20]), r"shape \(m, 3\)"),
        (lambda X, y: (X[:20], y[:19]), "length m"),
        (lambda X, y: (X[:20], y[:20].astype(str)), "declared classes"),
        (lambda X, y: (X[:20], y[:20] + 1), "declared classes"),
        (lambda X, y: X, "is a pair"),
    ],
)
def test_validation_data_that_score_no_fit_are_refused(validation, words, tmp_path):
    book, (X, y) = book_of(tmp_path), table()
    search = classifier(validation=validation(X, y), ledger=book)
    for attempt in (search.fit, search.rehearse):
        with pytest.raises(ValueError, match=words):
            attempt(X, y)
    assert not book.entries()


class Bare:
    name, neighbours = "bare", Neighbours.REPLACE

    def parameters(self):
        return {}

    def privacy_loss(self, n):
        return GaussianDP(0.3, neighbours=self.neighbours)


class Forgetful(Bare):
    def run(self, records):
        return 0.0


class Cheap(Bare):
    def privacy_loss(self, n):
        return 0.3

    def run(self, records, randomness):
        return 0.0


class Arrayed(Cheap):
    privacy_loss = Bare.privacy_loss

    def parameters(self):
        return {"grid": np.arange(3)}


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (len, "has no name, neighbours"),
        (Bare(), "has no run"),
        (Cheap, "is a class"),
        (Forgetful(), r"run is called with \(records, randomness\)"),
        (Cheap(), "must return a PrivacyLoss"),
        (Arrayed(), "tolist"),
    ],
)
def test_what_is_no_mechanism_is_refused_in_words(candidate, words, tmp_path):
    book = book_of(tmp_path)
    with pytest.raises(ValueError, match=words):
        select([candidate], PublicScore(float), geometric(3), RECORDS, 50, delta=1e-6, ledger=book)
    assert not book.entries()


def test_functions_that_cannot_be_called_as_they_will_be_are_refused():
    with pytest.raises(ValueError, match=r"called with \(artefact\)"):
        PublicScore(lambda model, records: 0.0)
    with pytest.raises(ValueError, match=r"called with \(artefact, records\)"):
        NoisyScore(lambda records: 0.0, 0.0, 1.0, 0.3)
    with pytest.raises(ValueError, match=r"called with \(history\)"):
        Proposals(DensityBox(0.5, 2.0), lambda: (), "none")


@pytest.mark.parametrize("propose", [lambda history: (1.0, 1.0, 1.0), lambda history: "x", lambda history: history[0]])
def test_proposals_that_propose_nothing_are_refused(propose, tmp_path):
    book, two = book_of(tmp_path), [MeanMechanism(), MeanMechanism(shift=1.0)]
    proposals = Proposals(DensityBox(0.9, 1.1), propose, "bad")
    with pytest.raises(ValueError, match=r"[Pp]roposals"):
        select(two, VALUE, geometric(3), RECORDS, 50, ledger=book, proposals=proposals)
    assert not book.entries()


def test_a_price_that_is_infinite_is_refused():
    box = Proposals(DensityBox(0.8, 1.25), lambda history: (1.0, 1.0), "even")
    with pytest.raises(ValueError, match="no finite epsilon"):
        select([MeanMechanism(), MeanMechanism(shift=1.0)], VALUE, Fixed(4), RECORDS, 50, proposals=box)


class Uncounted(MeanMechanism):
    check = None

    def __getattribute__(self, name):
        if name == "check":
            raise AttributeError(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("records", [RECORDS, RECORDS.tolist(), (RECORDS, RECORDS)])
def test_another_number_of_records_is_refused(records):
    with pytest.raises(PublicError, match="not the number"):
        select([Uncounted()], VALUE, geometric(3), records, 5000)


def test_records_that_a_mechanism_cannot_read_are_refused():
    X, y = table()
    box = Box((-1.0,) * 3, (1.0,) * 3)
    common = {"domain": box, "delta": 1e-3, "scale": 1.0, "locations": X[:3]}
    sums = KernelSumMechanism(kernels=RBF(0.5), response_ranges=(0.0, 1.0), centres=(0.5,), **common)
    paths = PosteriorMechanism(kernel=RBF(0.5), ridge=9.0, response_range=(0.0, 1.0), centre=0.5, **common)
    ridge = PrivateRidge(mu=0.3).mechanism(120, 3)
    for mechanism in (sums, paths, ridge):
        for records in ((X, y), [X], X, None):
            with pytest.raises(PublicError, match="covariates"):
                mechanism.check(records)
        kind = LabelledRecords if mechanism is ridge else Records
        assert mechanism.check(kind(X, y.astype(float))) == 120


# --- told of


def test_a_fit_without_a_ledger_is_said(tmp_path):
    X, y = np.eye(40, 3), np.arange(40) % 2
    Ledger.create(tmp_path / "b.ledger", dataset="made up", epsilon=9.0, delta=1e-5)
    for model in (PrivateRidge(epsilon=1.0), PrivateLogisticRegression((0, 1), epsilon=1.0)):
        with pytest.warns(UserWarning, match="No ledger"):
            model.fit(X, y)
        model.set_params(ledger=tmp_path / "b.ledger", unit="one pupil")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert model.fit(X, y).release_.certificate.unit == "one pupil"


def test_an_alpha_that_no_noise_pays_for_is_named():
    data = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    model = PrivateLogisticRegression((0, 1))
    search = PrivateSearchCV(model, {"alpha": [0.1, 1.0, 10.0]}, epsilon=2.0, validation=data)
    with pytest.raises(ValueError, match=r"alpha = 0\.1 costs epsilon 1\.25 .* alpha must be at least 0\.108"):
        search.privacy_loss(6000)


def test_a_ledger_of_another_relation_is_refused_before_the_noise_is_searched(tmp_path, monkeypatch):
    book = Ledger.create(tmp_path / "b.ledger", dataset="made up", epsilon=9.0, delta=1e-5, neighbours="add-remove")
    X, y = table()
    search = PrivateSearchCV(
        PrivateLogisticRegression((0, 1)), {"alpha": [1.0, 10.0]}, epsilon=2.0, validation=(X[:9], y[:9]), ledger=book
    )
    monkeypatch.setattr("discretion.selection.model_selection.search_within", None)
    with pytest.raises(NeighbourMismatch, match=r"add-remove.*replace"):
        search.fit(X, y)


def test_a_search_that_failed_says_what_to_do(tmp_path):
    X, y = table()
    broken = classifier(validation=None, scoring=PublicScore(lambda model: 1 / 0), ledger=book_of(tmp_path))
    with pytest.warns(UserWarning, match="rehearse") as told:
        broken.fit(X, y)
    assert [str(each.message) for each in told] == [FAILED]
    assert broken.outcome_ is Outcome.FAILED
    with pytest.raises(ValueError, match="made-up"):
        broken.predict(X)


def test_without_a_ledger_it_is_said_once(tmp_path):
    X, y = table()
    with pytest.warns(UserWarning, match="No ledger") as told:
        classifier().fit(X, y)
    assert [str(each.message) for each in told] == [UNREMEMBERED]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier(ledger=book_of(tmp_path)).fit(X, y)
        classifier(randomness=SeededRandomness(0)).fit(X, y)  # which can't be published


@pytest.mark.parametrize("journal", [False, True])
def test_an_interrupt_says_what_stays_paid_for(journal, tmp_path):
    path = tmp_path / "kept" if journal else None
    with pytest.raises(KeyboardInterrupt, match="stays paid for") as raised:
        select(
            [MeanMechanism(fails="interrupt")],
            VALUE,
            forced(2),
            RECORDS,
            50,
            ledger=book_of(tmp_path),
            journal=path,
        )
    assert ("no second price" in str(raised.value)) is journal


# --- rehearsed


def test_a_rehearsal_runs_every_candidate_and_charges_nothing(tmp_path):
    book, (X, y) = book_of(tmp_path), table()
    scores = classifier(ledger=book).rehearse(X, y)
    assert len(scores) == 2
    assert all(0 <= each <= 1 for each in scores)
    assert not book.entries()
    assert rehearse([MeanMechanism(exact=True, shift=2.0)], VALUE, RECORDS) == [2.0]


def test_a_rehearsal_shows_every_error():
    X, y = table()
    fields = classifier(scoring=NoisyScore(lambda model, records: records.X, 0.0, 1.0, 0.3, 0.2))
    with pytest.raises(AttributeError, match="'X'") as raised:
        fields.rehearse(X, y)
    assert "candidate 0 (PrivateLogisticRegression, {'alpha': 1.0})" in raised.value.__notes__[0]
    with pytest.raises(ValueError, match="one value for each record"):
        rehearse([MeanMechanism()], NoisyScore(lambda mean, records: 0.5, 0.0, 1.0, 0.3), RECORDS)
    with pytest.raises(ValueError, match="NaN"):
        rehearse([MeanMechanism()], PublicScore(lambda mean: np.nan), RECORDS)
    with pytest.raises(RuntimeError):
        rehearse([MeanMechanism(), MeanMechanism(fails="error")], VALUE, RECORDS)


# --- a total epsilon


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_a_search_meets_a_total_epsilon(neighbours):
    X, y = table()
    search = PrivateSearchCV(
        PrivateRidge(neighbours=neighbours),
        {"alpha": [1.0, 10.0]},
        geometric(4),
        validation=(X[:20], y[:20]),
        epsilon=2.0,
        delta=1e-5,
        randomness=SeededRandomness(0),
    )
    assert 0.999 * 2.0 <= search.privacy_loss(120).epsilon(1e-5) <= 2.0
    certificate = search.fit(X, y).release_.certificate
    assert 0.999 * 2.0 <= certificate.epsilon <= 2.0
    assert search.release_.one_run < certificate.epsilon
    assert set(search.best_params_) == {"alpha"}


def test_a_total_epsilon_needs_one_budget_to_set():
    X, y = table()
    options = {"law": geometric(4), "validation": (X[:20], y[:20]), "epsilon": 2.0}
    with pytest.raises(ValueError, match="not searched"):
        PrivateSearchCV(PrivateRidge(), {"epsilon": [1.0]}, **options).privacy_loss(120)
    with pytest.raises(ValueError, match="Give either mu"):
        PrivateSearchCV(PrivateRidge(mu=0.3), {"alpha": [1.0]}, **options).privacy_loss(120)


def test_mechanisms_meet_a_total_epsilon():
    def candidates(one):
        return [MeanMechanism(mu=one / 4), MeanMechanism(mu=one / 4, shift=0.1)]

    release = select(candidates, VALUE, geometric(4), RECORDS, 50, epsilon=2.0, randomness=SeededRandomness(0))
    assert 0.999 * 2.0 <= release.certificate.epsilon <= 2.0
    for given, epsilon in ((candidates, None), (candidates(1.0), 2.0)):
        with pytest.raises(ValueError, match="function from epsilon"):
            select(given, VALUE, geometric(4), RECORDS, 50, epsilon=epsilon)


def test_a_penalty_beyond_double_precision_has_no_price():
    with pytest.raises(PublicError, match="Double precision"):
        PrivateLogisticRegression((0, 1), alpha=1e-12, noise=3.0).privacy_loss(500)


# --- the certificate


def test_a_certificate_says_what_was_released_and_what_was_declared(tmp_path):
    X, y = table()
    search = classifier(ledger=book_of(tmp_path)).fit(X, y)
    text = search.release_.certificate.text()
    assert f"PrivateLogisticRegression with alpha = {search.best_params_['alpha']}: the best of" in " ".join(
        text.split()
    )
    declared = " ".join(search.release_.certificate.declared)
    assert "public: score on public data" in declared
    assert "without looking at these records" in declared
    none = select([MeanMechanism()], VALUE, forced(0), RECORDS, 50, randomness=SeededRandomness(0))
    assert "That no run was drawn on 50 records" in none.certificate.text()
