"""Every table and figure of Maciazek 2026 from one command each: ``discretion study NAME``.

Worlds are simulated or public; nothing here reads a private record. `STUDIES` maps names to what makes their reports.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from discretion.studies.running import BACKENDS, SCALES, Report, Run, backend

__all__ = ["BACKENDS", "SCALES", "STUDIES", "Report", "Run", "backend", "reports"]

STUDIES = {
    "bounds": ("bounds", "Figures 1 and 5: epsilon of a path, and how many paths a budget buys"),
    "membership": ("membership", "Figures 2 and 3: membership attacks against epsilon and the number of paths"),
    "excursions-1d": ("excursions_1d", "Tables 1, 2 and 4: excursion sets on the line"),
    "excursions-2d": ("excursions_2d", "Table 3: excursion sets on the square"),
    "thompson-growth": ("thompson_growth", "growth of epsilon with the rounds of GP Thompson sampling"),
    "london": ("london", "London, and three other surveys: what account and mechanism buy on real maps"),
    "large-n": ("large_n", "privacy for free: epsilon falls and IoU rises with n"),
}
"""Module and subject by name."""


def reports(name: str, run: Run) -> list[Report]:
    """The tables of the study `name`, computed as `run` says.

    ValueError for an unknown name.
    """
    if name not in STUDIES:
        raise ValueError(f"A study is one of {', '.join(STUDIES)}; got {name!r}.")
    make: Callable[[Run], list[Report]] = import_module(f"discretion.studies.{STUDIES[name][0]}").reports
    return make(run)
