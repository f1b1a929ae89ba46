"""Options that several commands share: a group is a frozen dataclass, each field an annotated option."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import ParameterInfo

__all__ = ["grouped"]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every parameter that is a dataclass replaced by its fields, as Typer wants to see them.

    ``Annotated[Group, "Panel"]`` shows the options of a group in another panel of the help.
    """
    hints = get_type_hints(command, include_extras=True)
    flat: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind, panel = hints[name], None
        if get_origin(kind) is Annotated and is_dataclass(get_args(kind)[0]):
            kind, panel = get_args(kind)
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            flat += [_option(field.name, field.default, annotation, panel) for field, annotation in _fields(kind)]
        else:
            flat.append(_option(name, parameter.default, kind, None))

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    # Commands are called with keywords, so required options may follow others.
    call.__signature__ = inspect.Signature(flat)  # pyright: ignore[reportAttributeAccessIssue]
    call.__annotations__ = {each.name: each.annotation for each in flat}
    return call


def _fields(kind: type) -> list[tuple[Any, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(field, hints[field.name]) for field in fields(kind)]


def _option(name: str, default: Any, annotation: Any, panel: str | None) -> inspect.Parameter:
    if panel is not None:
        kind, *notes = get_args(annotation)
        annotation = Annotated[(kind, *(_moved(note, panel) for note in notes))]  # pyright: ignore[reportInvalidTypeForm]
    default = inspect.Parameter.empty if default in (MISSING, inspect.Parameter.empty) else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _moved(note: Any, panel: str) -> Any:
    if not isinstance(note, ParameterInfo):
        return note
    moved = copy(note)
    moved.rich_help_panel = panel
    return moved
