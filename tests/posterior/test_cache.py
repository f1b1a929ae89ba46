"""Results kept on disk: found again exactly, never used when torn, altered, unfinished or of another version."""

import json
import math

import pytest

from discretion.posterior import cache


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DISCRETION_CACHE", str(tmp_path / "cache"))


class Work:
    def __init__(self, **result):
        self.result, self.times = result, 0

    def __call__(self):
        self.times += 1
        return dict(self.result)


def test_the_same_question_is_computed_once_and_comes_back_exactly():
    work = Work(epsilon=0.1 + 0.2, infinite=math.inf, rule="a rule")
    first = cache.kept("test", {"n": 3, "scale": 1e-300}, work)
    assert cache.kept("test", {"scale": 1e-300, "n": 3}, work) == first == work.result
    assert work.times == 1
    cache.kept("test", {"n": 3, "scale": math.nextafter(1e-300, 1.0)}, work)
    cache.kept("another", {"n": 3, "scale": 1e-300}, work)
    assert work.times == 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace("0.75", "0.25"),
        lambda text: json.dumps({"result": {"epsilon": 0.25}}),
        lambda text: "[]",
    ],
)
def test_a_file_that_is_torn_or_altered_is_not_used(spoil):
    work = Work(epsilon=0.75)
    cache.kept("test", {}, work)
    (path,) = cache.folder().iterdir()
    path.write_text(spoil(path.read_text()))
    assert cache.kept("test", {}, work) == {"epsilon": 0.75}
    assert work.times == 2


def test_a_file_under_the_name_of_another_question_is_not_used():
    small, large = Work(epsilon=0.1), Work(epsilon=9.0)
    cache.kept("test", {"ridge": 9}, small)
    (path,) = cache.folder().iterdir()
    cheap = path.read_text()
    cache.kept("test", {"ridge": 1}, large)
    (other,) = set(cache.folder().iterdir()) - {path}
    other.write_text(cheap)
    assert cache.kept("test", {"ridge": 1}, large)["epsilon"] == 9.0


def test_what_a_time_limit_stopped_is_not_kept():
    work = Work(epsilon=2.0, complete=False)
    cache.kept("test", {}, work)
    cache.kept("test", {}, work)
    assert work.times == 2


def test_another_source_is_another_answer(monkeypatch):
    work = Work(epsilon=1.0)
    cache.kept("test", {}, work)
    monkeypatch.setattr(cache, "_source", lambda: "1.0 changed")
    cache.kept("test", {}, work)
    assert work.times == 2


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DISCRETION_CACHE", str(tmp_path / "file" / "cache"))
    work = Work(epsilon=1.0)
    assert cache.kept("test", {}, work) == cache.kept("test", {}, work)
    assert work.times == 2
