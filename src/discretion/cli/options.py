"""Words on the command line and in configuration files, turned into public values."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Annotated, Any

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
from discretion.privacy import Neighbours

MOST_POINTS = 4_000_000
"""Points of the largest grid: of each point several numbers are kept and written."""

ASSUMPTIONS = "bounded | rkhs:B | separated:Q:DIM | exponential-1d | diagonal | response-only"
KERNEL_OF = {"exponential-1d": "exponential", "diagonal": "diagonal"}
"""The kernel of the assumptions that are for one kernel alone: there it need not be named."""

_WHOLE = (Neighbours.REPLACE.value, Neighbours.ADD_REMOVE.value)


def relation(words: str, panel: str | None = None) -> Any:
    """``--neighbours`` of a command that has an account for whole records only: replace or add-remove."""
    return typer.Option(
        help=words,
        parser=_whole,
        metavar=f"<{'|'.join(_WHOLE)}>",
        autocompletion=lambda: list(_WHOLE),
        rich_help_panel=panel,
    )


def _whole(text: str) -> Neighbours:
    if text not in _WHOLE:
        raise typer.BadParameter(f"{text!r} is neither replace nor add-remove.")
    return Neighbours(text)


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


def choices(text: str, what: str) -> tuple[float, ...]:
    """Positive numbers separated by commas, or ``LOW:HIGH:COUNT``, spaced by equal factors."""
    if ":" not in text:
        found = numbers(text, what)
    else:
        low, high, count = ([*text.split(":"), "", ""])[:3]
        if text.count(":") != 2 or not count.strip().isdecimal() or int(count) < 2:
            raise ValueError(f"{what}: a range is written LOW:HIGH:COUNT, such as 600:2400:5; got {text!r}.")
        ends = number(low, what), number(high, what)
        if not 0 < ends[0] < ends[1]:
            raise ValueError(f"{what}: a range goes from a positive number to a larger one; got {text!r}.")
        factor = (ends[1] / ends[0]) ** (1.0 / (int(count) - 1))
        found = (*(ends[0] * factor**i for i in range(int(count) - 1)), ends[1])
    if min(found) <= 0:
        raise ValueError(f"{what} takes positive numbers; got {text!r}.")
    if len(set(found)) < len(found):
        raise ValueError(f"{what} names a candidate twice: {text!r}.")
    return found


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
    if math.prod(values) > MOST_POINTS:
        raise ValueError(f"--grid {text} has {math.prod(values):,} points; a release has at most {MOST_POINTS:,}.")
    return values


def delta_of(text: str, n: int) -> float:
    """A delta in (0, 1): a number, or ``n^-A`` of the public number of records."""
    power = text.replace(" ", "").removeprefix("n^")
    value = float(n) ** number(power, "--delta") if text.startswith("n^") else number(text, "--delta")
    if not 0 < value < 1:
        which = f"is {value:g} for n = {n}; it" if text.startswith("n") else "is no probability: it"
        raise ValueError(
            f"--delta {text} {which} must lie strictly between 0 and 1. A number such as 1e-6 does, well below 1/n; or "
            "n^-1.1, the default, where n is 2 or more."
        )
    return value


def check_delta(text: str) -> None:
    """Refuse a delta that would be wrong for every number of records."""
    delta_of(text, 2)


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
    except RecursionError:
        raise typer.BadParameter(f"{path} is not TOML of these options: it is nested too deeply.") from None
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


Config = Annotated[
    Path | None,
    typer.Option(
        help="TOML file of these options; the command line wins.",
        callback=read_config,
        is_eager=True,
        rich_help_panel="Output",
    ),
]
GridPoints = Annotated[
    str, typer.Option(help="Grid points along each axis, such as 60 or 60,40.", rich_help_panel="The map")
]
Delta = Annotated[str, typer.Option(help="A number, or n^-1.1 of the number of records.", rich_help_panel="Privacy")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
OutputJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel="Output")]


def given(context: typer.Context) -> list[str]:
    """The options that somebody gave, on the command line or in a file."""
    names = [name for each in context.command.params if (name := each.name)]
    return [name for name in names if getattr(context.get_parameter_source(name), "name", "DEFAULT") != "DEFAULT"]


def refuse_given(context: typer.Context, names: tuple[str, ...], why: str) -> None:
    """Refuse options that were given and would have no effect."""
    useless = [name for name in given(context) if name in names]
    if useless:
        words = ", ".join("--" + name.strip("_").replace("_", "-") for name in useless)
        raise ValueError(f"{words}: {why}.")
