"""What a public docstring owes its reader: every parameter by name, every error by name, and proofs that are there."""

import ast
import builtins
import enum
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import discretion

ROOT = Path(__file__).parents[1]
PROOFS = ROOT / "docs" / "proofs"
HOME = Path(discretion.__file__).parent

# "as in `f`", "see `F`", "those of `f`", :func:`f`: the docstring of f goes on this one.
_REFERENCE = re.compile(r"(?:(?:as in|as for|as of|see|those of)\s+|:\w+:)`{1,2}([\w.]+)`")


# --- what is public


def referenced() -> list[tuple[str, str]]:
    """Module and name of everything that the reference documents; a package stands for itself, with an empty name."""
    pages = (page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    names = [full for page in pages for full in re.findall(r"^::: (\S+)", page, re.MULTILINE)]
    return [(full, "") if is_module(full) else tuple(full.rsplit(".", 1)) for full in names]


def is_module(name: str) -> bool:
    """By its file: to look for it would import what its parent needs, which may be missing here."""
    place = HOME.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def modules() -> Iterator[Any]:
    """Packages, and modules of which the reference has names; without those whose optional dependency is missing."""
    names = {each.name for each in pkgutil.walk_packages(discretion.__path__, "discretion.") if each.ispkg}
    for name in sorted({"discretion", *names, *(module for module, _ in referenced())} - {"discretion.cli"}):
        try:
            yield importlib.import_module(name)
        except ImportError as error:
            if "pip install discretion[" not in str(error) and (error.name or "discretion").startswith("discretion"):
                raise


def public() -> dict[str, Any]:
    """Public classes and functions by their first full name."""
    found: dict[int, tuple[str, Any]] = {}
    for module in modules():
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isroutine(thing):
                found.setdefault(id(thing), (f"{module.__name__}.{name}", thing))
    return dict(found.values())


def members(thing: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that a class itself defines, as functions."""
    for name, member in vars(thing).items():
        if isinstance(member, property):
            member = member.fget
        elif isinstance(member, cached_property):
            member = member.func
        function = inspect.unwrap(getattr(member, "__func__", member)) if member is not None else None
        if inspect.isfunction(function) and not name.startswith("_"):
            yield name, function


# --- what a docstring says


def own(thing: Any) -> str:
    """A docstring; of a class also those of its constructor and of the classes it inherits from."""
    if not inspect.isclass(thing):
        return inspect.getdoc(thing) or ""
    family = [each for each in thing.__mro__ if each.__module__.startswith(("discretion", thing.__module__))]
    parts = [part for each in family for part in (each.__doc__, getattr(vars(each).get("__init__"), "__doc__", None))]
    return "\n".join(part for part in parts if part)


def said(thing: Any) -> str:
    """A docstring with those it refers to: "as in `f`", "see the module"."""
    text, around = own(thing), scope(thing)
    for name in _REFERENCE.findall(text):
        other = around.get(name)
        if callable(other) and other is not thing:
            text += "\n" + own(other)
    if re.search(r"\b(?:see|of) the module\b", text):
        text += "\n" + (sys.modules[thing.__module__].__doc__ or "")
    return text


def scope(thing: Any) -> dict[str, Any]:
    """The names that the thing's source may use."""
    return vars(builtins) | vars(sys.modules[inspect.unwrap(thing).__module__])


def parameters(thing: Any) -> list[str]:
    """Names that a caller may give; *args and **options stand for those of something else."""
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        return []
    try:
        given = inspect.signature(thing).parameters.values()
    except ValueError:  # no signature: an exception that takes any arguments
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in given if each.kind not in variable and not each.name.startswith("_")]


def named(words: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(words)}\b", text) is not None


def raised(function: Any) -> set[type]:
    """ValueErrors and TypeErrors that the function's own body raises by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    found, around = set(), scope(function)
    todo = list(ast.iter_child_nodes(tree)) if isinstance(tree, ast.FunctionDef) else []
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = around.get(ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc))
            if inspect.isclass(error) and issubclass(error, ValueError | TypeError):
                found.add(error)
        todo.extend(ast.iter_child_nodes(node))
    return found


def told(error: type, text: str, around: dict[str, Any]) -> bool:
    """Whether a text names the error, by any name it has there, or one that it is a kind of, or the reverse."""
    kin = [
        name
        for name, other in around.items()
        if inspect.isclass(other)
        and issubclass(other, Exception)
        and other is not Exception
        and (issubclass(error, other) or issubclass(other, error))
    ]
    return any(named(name, text) for name in kin)


def missing_docstrings(things: dict[str, Any]) -> list[str]:
    found = [
        name for name, thing in things.items() if not thing.__doc__ or thing.__doc__.startswith(f"{thing.__name__}(")
    ]
    for name, thing in things.items():
        if inspect.isclass(thing):
            found += [f"{name}.{member}" for member, _ in members(thing) if not inspect.getdoc(getattr(thing, member))]
    return found


def missing_parameters(things: dict[str, Any]) -> list[str]:
    found = []
    for name, thing in things.items():
        text = said(thing)
        if lost := [each for each in parameters(thing) if not named(each, text)]:
            found.append(f"{name}: {', '.join(lost)}")
    return found


def missing_errors(things: dict[str, Any]) -> list[str]:
    """A constructor's errors are told by its class; a method's by itself or its class."""
    found = []
    for name, thing in things.items():
        parts: list[tuple[str, Any, str]] = []
        if inspect.isclass(thing):
            text = said(thing)
            made = [inspect.unwrap(vars(thing)[each]) for each in ("__init__", "__post_init__") if each in vars(thing)]
            parts += [(name, each, text) for each in made]
            parts += [
                (f"{name}.{member}", each, text + "\n" + (inspect.getdoc(getattr(thing, member)) or ""))
                for member, each in members(thing)
            ]
        elif inspect.isfunction(inspect.unwrap(thing)):
            parts.append((name, inspect.unwrap(thing), said(thing)))
        for label, function, text in parts:
            if not Path(function.__code__.co_filename).is_relative_to(HOME) and function.__module__ != __name__:
                continue  # made by dataclasses or typing
            lost = [error.__name__ for error in raised(function) if not told(error, text, scope(function))]
            if lost:
                found.append(f"{label}: {', '.join(sorted(lost))}")
    return found


# --- the library


@pytest.fixture(scope="module")
def things():
    return public()


def test_there_are_many(things):
    assert len(things) > 300


def test_what_the_reference_documents_is_declared_public():
    loaded = {module.__name__: module for module in modules()}
    hidden = [f"{m}.{name}" for m, name in referenced() if m in loaded and name and name not in loaded[m].__all__]
    assert not hidden


def test_everything_public_has_a_docstring(things):
    assert not (missing := missing_docstrings(things)), "\n".join(missing)


def test_every_parameter_is_named(things):
    assert not (missing := missing_parameters(things)), "\n".join(missing)


def test_every_error_is_named(things):
    assert not (missing := missing_errors(things)), "\n".join(missing)


def test_proof_notes_and_source_name_each_other():
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    cited = set(re.findall(r"docs/proofs/([\w-]+)\.md", source))
    written = {path.stem for path in PROOFS.glob("*.md")} - {"index"}
    assert not cited - written, "named, but not written"
    assert not written - cited, "written, but named by no docstring"


# --- the check itself


def _silent(count: int, width: int) -> None:
    """Of a count."""
    if count < 0:
        raise ValueError("negative")

    def inner() -> None:
        raise TypeError


def _complete(count: int, width: int) -> None:
    """Of `count` and `width`; ValueError if one is negative."""
    if count < 0:
        raise UnicodeError("a kind of ValueError")


def _referring(count: int, width: int) -> None:
    """As for two: `count` and the rest as in `_complete`."""
    raise ValueError


class _Bare:
    """It takes a `size`."""

    def __init__(self, size: int, colour: str) -> None:
        if size < 0:
            raise ValueError(colour)

    def grow(self):
        raise TypeError("no")

    @property
    def area(self) -> float:
        return 0.0


def test_the_check_finds_what_is_missing():
    functions = {"silent": _silent, "complete": _complete, "referring": _referring}
    assert missing_parameters(functions) == ["silent: width"]
    assert missing_errors(functions) == ["silent: ValueError"]
    assert missing_docstrings({"f": lambda: None, "Bare": _Bare}) == ["f", "Bare.grow", "Bare.area"]
    assert missing_parameters({"Bare": _Bare}) == ["Bare: colour"]
    assert missing_errors({"Bare": _Bare}) == ["Bare: ValueError", "Bare.grow: TypeError"]
