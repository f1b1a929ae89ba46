"""Words on the command line and in configuration files, turned into public values."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import typer

from discretion.gp import Box, Kernel, kernel
from discretion.posterior.assumptions import (
    RKHS,
    Assumption,
    Bounded,
    Diagonal,
    Exponential1D,
    ResponseOnly,
    Separated,
)

ASSUMPTIONS = "bounded | rkhs:B | separated:Q:DIM | exponential-1d | diagonal | response-only"


def number(text: str, what: str) -> float:
    """A finite number, or ValueError naming `what`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{what}: {text!r} is not a number.")
    return value


def interval(text: str, what: str) -> tuple[float, float]:
    """``low:high`` with low < high."""
    parts = text.split(":")
    if len(parts) != 2:
        raise ValueError(f"{what} is written low:high, such as 12:14; got {text!r}.")
    low, high = (number(part, what) for part in parts)
    if not low < high:
        raise ValueError(f"{what}: {low:g} is not below {high:g}.")
    return low, high


def box(text: str) -> Box:
    """``low:high`` for each covariate, separated by commas."""
    lower, upper = zip(*(interval(part, "--domain") for part in text.split(",")), strict=True)
    return Box(lower, upper)


def numbers(text: str, what: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    return tuple(number(part, what) for part in text.split(","))


def per_axis(text: str, what: str) -> float | tuple[float, ...]:
    """One number, or one for each axis."""
    values = numbers(text, what)
    return values[0] if len(values) == 1 else values


def counts(text: str, dimension: int) -> tuple[int, ...]:
    """Grid points along each axis: one whole number for all, or one for each."""
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) == 1:
        values *= dimension
    if len(values) != dimension or min(values) < 2:
        raise ValueError(f"--grid takes whole numbers >= 2, one or {dimension}, such as 60 or 60,40; got {text!r}.")
    return values


def delta_of(text: str, n: int) -> float:
    """A delta in (0, 1): a number, or ``n^-A`` of the public number of records."""
    power = text.replace(" ", "").removeprefix("n^")
    value = float(n) ** number(power, "--delta") if text.startswith("n^") else number(text, "--delta")
    if not 0 < value < 1:
        raise ValueError(
            f"--delta {text} is {value:g} for n = {n}; it must lie strictly between 0 and 1. Give a smaller number."
        )
    return value


def hexagon_size(text: str) -> float:
    """``hexagons:SIZE``, SIZE the distance between opposite sides."""
    kind, _, size = text.partition(":")
    if kind != "hexagons" or not size:
        raise ValueError(f"--aggregate is written hexagons:SIZE, such as hexagons:600; got {text!r}.")
    value = number(size, "--aggregate")
    if value <= 0:
        raise ValueError(f"--aggregate: a hexagon needs a positive size; got {value:g}.")
    return value


def conditions(texts: list[str]) -> dict[str, str]:
    """``column=value`` pairs."""
    pairs = [text.partition("=") for text in texts]
    if not all(column and sign for column, sign, _ in pairs):
        raise ValueError("--where is written column=value, such as new_build=0.")
    return {column.strip(): value.strip() for column, _, value in pairs}


def covariance(name: str, length_scale: str | None, alpha: float | None) -> Kernel:
    """The kernel of these options."""
    scale = 1.0 if length_scale is None else per_axis(length_scale, "--length-scale")
    if length_scale is None and name != "diagonal":
        raise ValueError(f"--kernel {name} needs --length-scale.")
    return kernel(name, scale, **({} if alpha is None else {"alpha": alpha}))


def assumption_of(text: str, bound: float, shape: Kernel | None) -> Assumption:
    """What is assumed of the responses, from its words; `bound` is M, and `shape` the kernel where one is needed."""
    name, *arguments = text.split(":")
    values = [number(argument, "--assumption") for argument in arguments]
    if name == "bounded" and not values:
        return Bounded(bound)
    if name == "exponential-1d" and not values:
        return Exponential1D(bound)
    if name == "diagonal" and not values:
        return Diagonal(bound)
    if name == "response-only" and not values:
        return ResponseOnly(bound)
    if name == "rkhs" and len(values) in (1, 2):
        return RKHS(*values)
    if name == "separated" and len(values) == 2 and values[1] == int(values[1]):
        if shape is None:
            raise ValueError(
                "--assumption separated needs --kernel and --length-scale, to sum the kernel over a packing."
            )
        return Separated.for_kernel(shape, bound, values[0], int(values[1]))
    raise ValueError(f"--assumption is one of {ASSUMPTIONS}; got {text!r}.")


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults for a command from a TOML file; keys are the option names, and an unknown key is an error."""
    if path is None:
        return None
    try:
        settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"{path} can't be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} is not TOML: {error}.") from None
    known = {_word(parameter): parameter.name for parameter in context.command.params}
    known = {word: name for word, name in known.items() if name and word not in ("config", "help")}
    settings = {key.replace("_", "-"): value for key, value in settings.items()}
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise typer.BadParameter(f"{path} has unknown keys: {', '.join(unknown)}. Known: {', '.join(sorted(known))}.")
    for key, value in settings.items():
        if isinstance(value, dict) or (isinstance(value, list) and key != "where"):
            raise typer.BadParameter(f"{path}: {key} takes one value, written as on the command line.")
    context.default_map = {
        **(context.default_map or {}),
        **{known[key]: value for key, value in settings.items()},
    }
    return path


def _word(parameter: Any) -> str:
    """What a parameter is called by people: its first option without dashes, or its name."""
    return str(parameter.opts[0]).lstrip("-") if parameter.param_type_name == "option" else str(parameter.name)


def refuse_given(context: typer.Context, names: tuple[str, ...], why: str) -> None:
    """Refuse options that were given and would have no effect."""
    given = [name for name in names if str(context.get_parameter_source(name)).rpartition(".")[2] != "DEFAULT"]
    if given:
        words = ", ".join("--" + name.strip("_").replace("_", "-") for name in given)
        raise ValueError(f"{words}: {why}.")
