"""Ratios of peers' times to ours, each in one run. A peer that is missing is named, and counts against nothing."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Measured, claim
from benchmarks.peers import compared, number

_PLANE = ("discretion, dense", "scikit-learn", "GPyTorch", "BoTorch", "tinygp, dense")
_LINE = ("discretion, linear", "tinygp, quasi-separable", "celerite2")
_MATERN = ("discretion, linear", "tinygp, dense", "tinygp, quasi-separable, nugget by hand")


def ratios(name: str, peers: tuple[str, ...], least: float) -> Measured:
    """Cpu time of each peer over that of the first; all of them that ran must be at least so many times slower."""
    return judged(compared(name, peers, reference=False), least)


def judged(size: dict[str, Any], least: float) -> Measured:
    """The same of a size that has been measured."""
    ours, *rows = size["rows"]
    if "seconds" not in ours or ours.get("failure"):
        return Measured(f"ours: {ours.get('failure', 'no time')}", False)
    said, holds = [f"ours {number(ours['seconds'])} s"], True
    for row in rows:
        if "seconds" in row:
            ratio = row["seconds"] / ours["seconds"]
            holds &= ratio >= least
            said.append(f"{row['peer']} {number(ratio)} x")
        else:
            said.append(f"{row['peer']} {row['failure']}")
    return Measured("; ".join(said), holds)


@claim("speed", "Peers' exact path at (1,000, 1,000) in the plane: cpu time over ours, one run", ">= 1.5", slow=True)
def peers_small() -> Measured:
    return ratios("plane-1000", _PLANE, 1.5)


@claim("speed", "The same at (4,390, 3,600)", ">= 1.5", slow=True)
def peers_map() -> Measured:
    return ratios("plane-4390", _PLANE, 1.5)


@claim("speed", "The same at (10,000, 2,000)", ">= 1.2", slow=True)
def peers_large() -> Measured:
    return ratios("plane-10000", _PLANE, 1.2)


@claim(
    "speed",
    "tinygp (quasi-separable) and celerite2, exponential kernel on the line at (100,000, 1,000): cpu time over ours",
    ">= 20",
    slow=True,
)
def peers_line() -> Measured:
    return ratios("line-100000", _LINE, 20.0)


@claim("speed", "tinygp, Matern 5/2 on the line at (4,390, 3,600): cpu time over ours", ">= 20", slow=True)
def peers_matern() -> Measured:
    return ratios("matern-4390", _MATERN, 20.0)


@claim(
    "speed",
    "Matern 5/2 on the line, 200 records, ridge 0.01: largest difference of our means and covariances from 50 digits",
    "<= 1e-13",
    slow=True,
)
def markov_to_fifty_digits() -> Measured:
    row = compared("digits-matern", _MATERN[:1])["rows"][0]
    worst = max(row["mean_error"], row["covariance_error"])
    return Measured(f"{worst:.0e}", worst <= 1e-13)
