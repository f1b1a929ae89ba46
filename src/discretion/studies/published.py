"""The figures as published, kept as data. Nothing is fitted to them; they are printed beside what is measured."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def published() -> dict[str, Any]:
    """All of `published.json`: medians, then lower and upper quartile where they were given."""
    return json.loads(files("discretion.studies").joinpath("published.json").read_text(encoding="utf-8"))


def beside(study: str, row: str, column: str) -> tuple[float, ...] | None:
    """One published entry, (median,) or (median, lower quartile, upper quartile); None where there is none."""
    table = published()[study]
    if row not in table or column not in table["columns"]:
        return None
    found = table[row][table["columns"].index(column)]
    return None if found is None else tuple(map(float, found))
