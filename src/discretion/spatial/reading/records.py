"""Private records: what a table becomes once it was read, or what a program hands over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.posterior.units import bounded_contributions
from discretion.privacy import Randomness
from discretion.privacy.frames import cleared
from discretion.spatial.reading.table import rows_in_words

__all__ = ["ONE_ROW", "Records"]

Floats = NDArray[np.float64]

ONE_ROW = "one row of the table"


@dataclass(frozen=True, repr=False, eq=False)
class Records:
    """Private records: `covariates` (n, d) and `response` (n,), float64 and read-only.

    `covariate_names` (d of them) and `response_name` are public: the table's columns, or words for them.  `notes` tell
    the custodian what the stated rules did (how many rows were dropped, clamped, clipped); they depend on private
    values and are not for publication.  `unit` says in words what one record is, and `units` (n,), whole numbers, whose
    each record is, where the table says so.  Printing shows n and the column names, never a value.

    Raises ValueError when shapes disagree, there is no record, or a value is not finite.
    """

    covariates: Floats
    response: Floats
    covariate_names: tuple[str, ...]
    response_name: str
    notes: tuple[str, ...] = ()
    unit: str = ONE_ROW
    units: NDArray[np.intp] | None = None

    def __post_init__(self) -> None:
        covariates = np.array(self.covariates, dtype=np.float64)
        response = np.array(self.response, dtype=np.float64)
        if covariates.ndim != 2 or response.shape != covariates.shape[:1]:
            raise ValueError(
                f"covariates must be (n, d) and response (n,), not {covariates.shape} and {response.shape}."
            )
        if len(self.covariate_names) != covariates.shape[1]:
            raise ValueError(f"{covariates.shape[1]} covariate columns have {len(self.covariate_names)} names.")
        if not response.size:
            raise ValueError("There is no record; at least one is needed.")
        if not (np.isfinite(covariates).all() and np.isfinite(response).all()):
            raise ValueError("Records hold a value that is not finite; read them with read_table, which says where.")
        arrays: dict[str, NDArray[Any]] = {"covariates": covariates, "response": response}
        if self.units is not None:
            arrays["units"] = np.array(self.units, dtype=np.intp)
            if arrays["units"].shape != response.shape:
                raise ValueError("units must name the owner of each record: one for one.")
        for name, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def n(self) -> int:
        """Number of records; public under the replace-one relation."""
        return self.response.size

    @property
    def dimension(self) -> int:
        """Number of covariates."""
        return self.covariates.shape[1]

    @cleared
    def bounded(self, most: int, randomness: Randomness | None = None) -> Records:
        """These records, of each unit at most `most`: a random pick that looks at no value (`bounded_contributions`).

        Raises ValueError when it is not known whose each record is, or `most` is not a whole number of at least 1.
        """
        if self.units is None:
            raise ValueError("Whose each record is was not read: name the column, unit_id=... .")
        kept = bounded_contributions(self.units, most, randomness)
        left = f"{rows_in_words(~kept)} left out, so that each of {len(np.unique(self.units))} units has at most {most}"
        return replace(
            self,
            covariates=self.covariates[kept],
            response=self.response[kept],
            units=self.units[kept],
            notes=(*self.notes, left),
        )

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        names = ", ".join(self.covariate_names)
        return f"Records(n={self.n}, covariates=({names}), response={self.response_name})"
