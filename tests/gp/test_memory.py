import pytest

from discretion.gp import memory
from discretion.gp.engine import DenseEngine, LineEngine
from discretion.gp.memory import NotEnoughMemory


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("6GiB", 6 * 2**30), ("500 MB", 500 * 2**20), ("1.5g", 3 * 2**29), (" 2kb ", 2048), ("0", 0)],
)
def test_amounts_of_memory(text, size):
    assert memory.parsed(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1e9", "6 GiB free", "GiB"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match="such as 6GiB"):
        memory.parsed(text)


def test_what_the_system_has_is_a_number_or_unknown(monkeypatch):
    monkeypatch.delenv(memory.BUDGET, raising=False)
    found = memory.available()
    assert found is None or found > 10 * 2**20


def test_the_least_of_system_and_cgroup_counts(monkeypatch, tmp_path):
    monkeypatch.delenv(memory.BUDGET, raising=False)
    limit, use = tmp_path / "max", tmp_path / "current"
    limit.write_text("1000000\n")
    use.write_text("400000\n")
    monkeypatch.setattr(memory, "_CGROUPS", ((str(limit), str(use)),))
    assert memory.available() == 600_000
    limit.write_text("max\n")
    assert memory.available() != 600_000


def test_what_does_not_fit_is_refused_in_figures(monkeypatch):
    monkeypatch.setenv(memory.BUDGET, "1GiB")
    DenseEngine().check(5000, 1000, 1)
    LineEngine().check(1_000_000, 10_000, 1)
    with pytest.raises(NotEnoughMemory, match=r"2,000 points given 30,000 records need 3.94 GiB.*1 GiB are free"):
        DenseEngine().check(30_000, 2000, 1)
    monkeypatch.setenv(memory.BUDGET, "6GiB")
    DenseEngine().check(30_000, 2000, 1)


def test_nothing_is_refused_where_nothing_is_known(monkeypatch):
    monkeypatch.setattr(memory, "_left", lambda: iter(()))
    monkeypatch.delenv(memory.BUDGET, raising=False)
    memory.check(2**60, "These")
