"""What is said of a release that no ledger pays for."""

from __future__ import annotations

import warnings
from typing import Any

__all__ = ["UNREMEMBERED", "warn_unbooked"]

UNREMEMBERED = "No ledger: nothing remembers this release, so nothing stops the budget being spent twice."


def warn_unbooked(ledger: Any, randomness: Any, stacklevel: int = 5) -> None:
    """Warn of a fit without a ledger; not of tests and of runs within a search, which give their `randomness`."""
    if ledger is None and randomness is None:
        warnings.warn(UNREMEMBERED, stacklevel=stacklevel)
