"""Every error is prose: what is raised with words ends as a sentence does."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import discretion

ROOT = Path(discretion.__file__).parent
PACKAGES = ("audit", "bayesopt", "bilevel", "cli", "datasets", "posterior", "privacy", "report", "selection", "spatial")


def ends(message: ast.expr) -> str | None:
    """The last literal words of a message; None where they are computed."""
    match message:
        case ast.Constant(value=str(words)):
            return words
        case ast.JoinedStr(values=[*_, last]):
            return ends(last)
        case ast.BinOp(right=right):
            return ends(right)
    return None


def raised(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines where an exception is raised with words, and the words that end it."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[message, *_])):
                words = ends(message)
                # functions that make an exception of pieces have lower-case names
                if words is not None and name[0].isupper() and name != "AttributeError":
                    yield node.lineno, words


@pytest.mark.parametrize("package", PACKAGES)
def test_errors_are_sentences(package):
    found = [(path, *each) for path in (ROOT / package).rglob("*.py") for each in raised(ast.parse(path.read_text()))]
    unfinished = [f"{path}:{line}: {words}" for path, line, words in found if not words.rstrip().endswith((".", "?"))]
    assert not unfinished


def test_unfinished_ones_would_be_found():
    tree = ast.parse("raise ValueError(f'{x} is no number')\nraise a.Odd('Yes.')\nraise ValueError(text)\nraise")
    assert list(raised(tree)) == [(1, " is no number"), (2, "Yes.")]
