"""What the fits of all estimators share: one run of a mechanism, booked where there is a ledger."""

from __future__ import annotations

import os
import warnings
from copy import deepcopy
from typing import Any

from discretion.privacy.ledger import Ledger
from discretion.privacy.noise import Randomness, noise_id, source_of
from discretion.privacy.paid import ledger_at
from discretion.privacy.quiet import quiet

__all__ = ["UNREMEMBERED", "run_fit"]

UNREMEMBERED = "No ledger: nothing remembers this release, so nothing stops the budget being spent twice."


def run_fit(
    mechanism: Any,
    records: Any,
    n: int,
    *,
    ledger: Ledger | str | os.PathLike[str] | None,
    randomness: Randomness | None,
    stacklevel: int = 5,
) -> Any:
    """The release of a fit: a run through the ledger, or through the one at that path or URL, which is told of n.

    Without a ledger it warns, but not in tests and runs within a search, which give their `randomness`.

    Raises:
        TypeError: `randomness` is no source of noise.
    """
    if ledger is None and randomness is None:
        warnings.warn(UNREMEMBERED, stacklevel=stacklevel)
    source = source_of(randomness)
    if not source.bookable:
        # A test seed starts anew at every fit, and the parameter stays as it was. Any other source goes on.
        source = deepcopy(source)
    with quiet():
        if ledger is not None:
            return ledger_at(ledger).run(mechanism, records, n=n, randomness=source)
        noise_id(source)  # refuses a source that repeats itself, as a ledger would
        return mechanism.run(records, source)
