"""What is found before anything is reserved; and where something was, that the message says what has become of it."""

import warnings

import numpy as np
import pytest

from discretion.bayesopt import Linear, LocalSearch, Study, check_loss, minimize, select_candidate
from discretion.privacy import Ledger, MechanismFailed, PublicError, SeededRandomness
from discretion.privacy.ledger import State

N = 7
RECORDS = np.linspace(-1, 1, N)
SPACE = {"x": Linear(-1, 1)}
FIELDS = {"n": N, "steps": 2, "clip": 1.0, "mu": 1.0}


def good(x):
    return (x - RECORDS) ** 2


@pytest.fixture
def book(tmp_path):
    return Ledger.create(tmp_path / "ledger", dataset="tests", epsilon=50.0, delta=1e-6)


# --- before


def test_chunks_that_can_be_read_once_are_refused_before_anything_is_reserved(book, tmp_path):
    parts = [RECORDS[:3], RECORDS[3:]]

    def loss(chunk, x):
        return (x - chunk) ** 2

    for chunks in (iter(parts), (part for part in parts), map(np.asarray, parts), 5):
        with pytest.raises(ValueError, match=r"chunks.*Nothing was spent"):
            minimize(loss, SPACE, **FIELDS, chunks=chunks, ledger=book, path=tmp_path / "s")
    assert book.entries() == []
    assert not (tmp_path / "s").exists()
    for chunks in (parts, lambda: iter(parts)):
        minimize(loss, SPACE, **FIELDS, chunks=chunks, ledger=book)


@pytest.mark.parametrize("bad", [3, "3", np.random.default_rng(3), SeededRandomness])
def test_a_seed_is_no_source_of_noise(book, bad):
    calls = [
        lambda: minimize(good, SPACE, **FIELDS, randomness=bad, ledger=book),
        lambda: Study(LocalSearch(SPACE, mu=1.0, steps=1, clip=1.0), n=N, randomness=bad),
        lambda: select_candidate(
            np.eye(N)[:, :2], [{"x": 0}, {"x": 1}], largest_loss=1.0, epsilon=1.0, randomness=bad, ledger=book
        ),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"SeededRandomness\(3\)"):
            call()
    assert book.entries() == []


WRONG = {
    "a mean": (lambda x: 0.5, "one a record"),
    "too few": (lambda x: np.zeros(N - 1), "one a record"),
    "single precision": (lambda x: np.zeros(N, dtype=np.float32), "float64"),
    "words": (lambda x: np.full(N, "a"), "float64"),
    "no losses": (lambda x: np.full(N, np.nan), "no loss is finite"),
    "another name": (lambda rate: np.zeros(N), "cannot be called"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_loss_is_tried_on_made_up_records(kind):
    wrong, says = WRONG[kind]
    with pytest.raises(ValueError, match=says):
        check_loss(wrong, SPACE, n=N)


def test_a_loss_that_is_right_passes_and_one_that_raises_is_heard():
    check_loss(good, SPACE, n=N)
    check_loss(lambda x: x - RECORDS > 0, SPACE, n=N)  # errors of a classifier, which minimize takes, too
    check_loss(lambda x: None if x < 0 else good(x), SPACE, n=N)
    check_loss(lambda chunk, x: (x - chunk) ** 2, SPACE, RECORDS[:2], n=2)
    check_loss(lambda rows, x: good(x)[rows], SPACE, np.arange(N), n=N)
    check_loss(lambda x: 0.5, SPACE, n=N, largest_loss=1.0)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        check_loss(lambda x: 1.5, SPACE, n=N, largest_loss=1.0)
    with pytest.raises(KeyError, match="quoted whole"):
        check_loss(lambda x: {}["quoted whole"], SPACE, n=N)


def test_truth_values_and_counts_are_losses():
    def flat(x):
        return (x > RECORDS).astype(float)

    expected = minimize(flat, SPACE, randomness=SeededRandomness(0), **FIELDS)
    for kind in (bool, int):
        found = minimize(lambda x, kind=kind: flat(x).astype(kind), SPACE, randomness=SeededRandomness(0), **FIELDS)
        np.testing.assert_array_equal(found.thetas, expected.thetas)


# --- after


def fails_later(error):
    """Right in the first step, wrong in the second."""
    calls = []

    def loss(x):
        calls.append(x)
        if len(calls) <= 2:
            return good(x)
        if isinstance(error, Exception):
            raise error
        return error

    return loss


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(np.zeros(3), PublicError), (np.zeros(N, np.float32), PublicError), (KeyError("secret"), MechanismFailed)],
)
def test_without_a_path_the_entry_ends_and_the_message_says_so(book, wrong, kind):
    for loss in (fails_later(wrong), lambda x: good(x)[1:]):
        with pytest.raises((PublicError, MechanismFailed)) as caught:
            minimize(loss, SPACE, **FIELDS, ledger=book)
        entry = book.entries()[-1]
        assert entry.state is State.FAILED
        assert f"entry {entry.id} of the ledger, which stays spent: without path nothing can" in str(caught.value)
        assert "Nothing was spent" not in str(caught.value)
        assert "secret" not in f"{caught.value}{entry.reason}"
        assert caught.value.__cause__ is caught.value.__context__ is None
    assert book.entries()[0].reason.startswith(kind.__name__)
    book.verify()


@pytest.mark.parametrize("ledger", [False, True])
def test_with_a_path_the_same_call_goes_on(book, tmp_path, ledger):
    where = {"path": tmp_path / "s", "private": tmp_path / "p"} | ({"ledger": book} if ledger else {})
    with pytest.raises(PublicError, match=r"has 1 of 2 steps.*mend the loss, and the same call goes on") as caught:
        minimize(fails_later(np.zeros(3)), SPACE, **FIELDS, **where)
    assert ("entry 1 of the ledger" in str(caught.value)) is ledger
    assert "Nothing was spent" not in str(caught.value)
    release = minimize(good, SPACE, **FIELDS, **where)
    assert np.isfinite(release.gradients).all()
    assert [entry.state for entry in book.entries()] == ([State.BOOKED] if ledger else [])
    book.verify(certificates=[release.certificate] if ledger else [])


def test_without_a_ledger_nothing_is_said_of_one():
    with pytest.raises(PublicError) as caught:
        minimize(lambda x: good(x)[1:], SPACE, **FIELDS)
    assert "ledger" not in str(caught.value)
    assert "spent" not in str(caught.value)


# --- delta


def test_delta_is_the_ledgers_where_nobody_said_one(book, tmp_path):
    fields = {"n": N, "steps": 1, "clip": 1.0}
    release = minimize(good, SPACE, **fields, epsilon=2.0, ledger=book)
    assert (release.certificate.delta, release.certificate.epsilon) == (1e-6, pytest.approx(2.0, rel=1e-6))
    assert book.spent().epsilon == pytest.approx(2.0, rel=1e-6)
    with Study(LocalSearch(SPACE, mu=0.1, steps=1, clip=1.0), n=N, ledger=book, path=tmp_path / "s") as study:
        study.tell(good(np.array([point["x"] for point in study.ask()])[:, None]).T)
        assert study.result().certificate.delta == 1e-6
    assert minimize(good, SPACE, **fields, mu=0.1).certificate.delta == 1e-5
    pure = Ledger.create(tmp_path / "pure", dataset="tests", epsilon=50.0, delta=0.0)
    with pytest.raises(ValueError, match="budget"):
        minimize(good, SPACE, **fields, mu=0.1, ledger=pure)


def test_another_delta_is_told(book):
    fields = {"n": N, "steps": 1, "clip": 1.0}
    with pytest.warns(UserWarning, match=r"delta = 0.001 is not the ledger's, 1e-06"):
        release = minimize(good, SPACE, **fields, mu=0.1, delta=1e-3, ledger=book)
    assert release.certificate.delta == 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        minimize(good, SPACE, **fields, mu=0.1, delta=1e-6, ledger=book)
        minimize(good, SPACE, **fields, mu=0.1, delta=1e-3)
