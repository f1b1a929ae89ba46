"""How much memory there is, and a refusal before anything is computed where it would not do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

BUDGET = "DISCRETION_MEMORY"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_CGROUPS = (  # limit, use: versions 2 and 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


class NotEnoughMemory(MemoryError):
    """A computation of this size does not fit; the message is made of public sizes."""


def available() -> int | None:
    """Bytes that may be used: ``$DISCRETION_MEMORY`` (such as ``6GiB``), or what the system and its cgroup have left.

    None where neither is known.
    """
    given = os.environ.get(BUDGET)
    if given:
        return parsed(given)
    return min(_left(), default=None)


def parsed(text: str) -> int:
    """Bytes from a text such as 500MB, 6GiB or 1000000; units count in powers of 1,024."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if found is None:
        raise ValueError(f"{BUDGET} must be an amount of memory such as 6GiB; it is {text!r}.")
    return int(float(found[1]) * _UNITS[found[2]])


def check(needed: int, what: str) -> None:
    """Raise `NotEnoughMemory` where `needed` bytes are more than are available."""
    free = available()
    if free is not None and needed > free:
        raise NotEnoughMemory(
            f"{what} need {_gib(needed)} of memory, and {_gib(free)} are free. Nothing was computed. Ask for fewer, "
            f"or, where the system is wrong about what is free, set {BUDGET}={needed / 2**30 + 1:.0f}GiB."
        )


def _left() -> Iterator[int]:
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        yield 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    with suppress(AttributeError, OSError, ValueError):
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, use in _CGROUPS:
        with suppress(OSError, ValueError):  # "max" is no number: no limit
            yield max(0, int(Path(limit).read_text()) - int(Path(use).read_text()))


def _gib(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"
