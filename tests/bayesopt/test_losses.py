"""Losses in the forms in which people have them: one table, chunks, and what is refused and costs nothing."""

from itertools import chain

import numpy as np
import pytest

from discretion.bayesopt import Linear, LocalSearch, Study, clamped_mean, minimize, select_candidate
from discretion.privacy import Ledger, MechanismFailed, PublicError, SeededRandomness

N = 7
RECORDS = np.linspace(-1, 1, N)
SPACE = {"x": Linear(-1, 1)}


def started(**changes):
    study = Study(
        LocalSearch(SPACE, **({"mu": 1.0, "steps": 2, "clip": 1.0} | changes)), n=N, randomness=SeededRandomness(1)
    )
    return study, np.column_stack([(point["x"] - RECORDS) ** 2 for point in study.ask()])


class Frame:
    """What a data frame or a tensor looks like: iterating over it gives something else than its rows."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __iter__(self):
        return iter(["x0", "x1"])


FORMS = {
    "lists": lambda table: table.tolist(),
    "tuples": lambda table: tuple(map(tuple, table.tolist())),
    "rows": list,
    "frame": Frame,
    "list of chunks": lambda table: np.array_split(table, 3),
    "iterator of chunks": lambda table: iter(np.array_split(table, 3)),
    "chunks of one record": lambda table: [row[None] for row in table],
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_the_same_table(form):
    study, table = started()
    expected = study.tell(table).gradient
    other, table = started()
    np.testing.assert_allclose(other.tell(FORMS[form](table)).gradient, expected, rtol=1e-12)


def test_rows_of_a_sample_may_be_lists():
    study, table = started(sample_rate=0.5)
    expected = study.tell(table[study.sample()]).gradient
    other, table = started(sample_rate=0.5)
    assert other.tell(table[other.sample()].tolist()).gradient == expected


UNFIT = {
    "one list too few": lambda table: table.tolist()[1:],
    "ragged": lambda table: [*table.tolist()[:-1], [0.0]],
    "words": lambda table: [["0.5", "secret"]] * N,
    "nothing in a place": lambda table: [[0.5, None]] * N,
    "numbers": lambda table: table[:, 0].tolist(),
    "columns": lambda table: list(table.T),
    "single precision": lambda table: list(table.astype(np.float32)),
    "no rows": lambda table: [],
    "chunks too few": lambda table: np.array_split(table, 3)[1:],
    "a chunk of columns": lambda table: [table[:, :1]],
    "no chunks": lambda table: iter([]),
    "an iterator of rows": lambda table: iter(table.tolist()),
    "an iterator of wide chunks": lambda table: iter([np.hstack([table, table])]),
    "a dictionary": lambda table: {"x": table},
    "a word": lambda table: "secret",
}


@pytest.mark.parametrize("form", UNFIT)
def test_what_is_no_table_costs_nothing(form):
    study, table = started()
    with pytest.raises(PublicError) as caught:
        study.tell(UNFIT[form](table))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert study.spent == 0.0
    assert not study.steps
    assert study.tell(table).gradient is not None


def test_what_an_iterator_gives_later_is_lost():
    study, table = started()
    with pytest.raises(PublicError, match="float64"):
        study.tell(chain([table[:3]], [table[3:].astype(np.float32)]))
    assert study.steps[0].gradient is None


# --- means


def test_a_mean_of_any_form():
    table = np.random.default_rng(0).normal(1.0, 1.0, (N, 2))
    expected = clamped_mean(table, 2.0)
    assert expected.shape == (2,)
    for form in FORMS:
        np.testing.assert_array_equal(clamped_mean(FORMS[form](table), 2.0), expected)
    for column in (table[:, 0], table[:, 0].tolist()):
        assert clamped_mean(column, 2.0).shape == ()
        assert clamped_mean(column, 2.0) == expected[0]
    with pytest.raises(PublicError, match="equally many"):
        clamped_mean([[1.0], [1.0, 2.0]], 2.0)


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_minimize_takes_a_clamped_mean(shape):
    """Of losses (n,) and (n, 1)."""

    def mean(x):
        return clamped_mean(((x - RECORDS) ** 2).reshape(shape), 1.0)

    def plain(x):
        return float(np.clip((x - RECORDS) ** 2, 0.0, 1.0).mean())

    fields = {"n": N, "steps": 2, "clip": 1.0, "mu": 1.0, "largest_loss": 1.0}
    found = [minimize(each, SPACE, randomness=SeededRandomness(0), **fields).thetas for each in (mean, plain)]
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_minimize_says_that_one_mean_is_wanted():
    def losses(x):
        return (x - RECORDS) ** 2

    with pytest.raises(PublicError, match="one mean, as clamped_mean"):
        minimize(losses, SPACE, n=N, steps=2, clip=1.0, mu=1.0, largest_loss=1.0)
    with pytest.raises(MechanismFailed):
        minimize(lambda x: "secret", SPACE, n=N, steps=2, clip=1.0, mu=1.0, largest_loss=1.0)


def test_minimize_takes_columns():
    def column(x):
        return ((x - RECORDS) ** 2)[:, None]

    fields = {"n": N, "steps": 2, "clip": 1.0, "mu": 1.0}
    flat = minimize(lambda x: column(x)[:, 0], SPACE, randomness=SeededRandomness(0), **fields)
    found = minimize(column, SPACE, randomness=SeededRandomness(0), **fields)
    np.testing.assert_array_equal(found.thetas, flat.thetas)


# --- a ledger by its path


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_ledger_by_its_path(tmp_path, kind):
    place = tmp_path / "ledger"
    book = Ledger.create(place, dataset="tests", epsilon=50.0, delta=1e-5)
    release = minimize(lambda x: (x - RECORDS) ** 2, SPACE, n=N, steps=1, clip=1.0, mu=1.0, ledger=kind(place))
    with Study(LocalSearch(SPACE, mu=1.0, steps=1, clip=1.0), n=N, path=tmp_path / "s", ledger=kind(place)):
        pass
    choice = select_candidate(
        np.eye(N)[:, :2], [{"x": 0.0}, {"x": 1.0}], largest_loss=1.0, epsilon=0.5, ledger=kind(place)
    )
    assert [each.certificate.ledger_entry for each in (release, choice)] == [f"{book.id}#1", f"{book.id}#3"]
    book.verify(certificates=[release.certificate, choice.certificate])


def test_a_ledger_that_is_not_there_makes_no_file(tmp_path):
    with pytest.raises(ValueError, match="no ledger at"):
        Study(LocalSearch(SPACE, mu=1.0, steps=1, clip=1.0), n=N, path=tmp_path / "s", ledger=tmp_path / "none")
    assert not list(tmp_path.iterdir())
