"""What the estimators share: how public places are given, how private input is checked, one door to the ledger."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from discretion.gp import Ball, Box
from discretion.posterior.records import Floats, Records, checked_points
from discretion.privacy import Ledger, Mechanism, Randomness, Release
from discretion.privacy.fits import run_fit
from discretion.privacy.frames import cleared
from discretion.privacy.records import asked_table, regression_table

__all__ = ["PrivateEstimator"]


class PrivateEstimator(RegressorMixin, BaseEstimator):
    """A scikit-learn regressor whose records are private and whose fitted state is a release.

    A subclass has the parameters ``domain``, ``response_range``, ``locations``, ``grid``, ``scale``, ``epsilon``,
    ``ledger`` and ``randomness``, and a method ``mechanism(n, dimension)``.
    """

    domain: Box | Ball | tuple[float, float]
    response_range: Any
    locations: ArrayLike | None
    grid: int | tuple[int, ...] | None
    ledger: Ledger | str | Path | None
    randomness: Randomness | None

    @cleared
    def check(self, X: ArrayLike, y: ArrayLike) -> int | None:
        """Refuse what `fit` would refuse in the records, and keep nothing; their number where it is public.

        A search asks all its candidates before it spends anything.

        Raises
        ------
        ValueError
            On bad shapes or values (named by row, never by value), or more than ``most_records``.
        """
        # How much noise there is does not matter here, and need not be solved for.
        apart: Any = copy(self).set_params(scale=1.0, epsilon=None)
        table, response = regression_table(apart, X, y, multi_output=np.ndim(self.response_range) == 2)
        return apart.mechanism(len(table), table.shape[1]).check(Records(table, response))

    def _points(self, X: ArrayLike) -> Floats:
        """Where a fitted estimator is asked, of as many columns as its records had."""
        check_is_fitted(self)
        return asked_table(self, X)

    def _charged(self, mechanism: Mechanism, records: Records, n: int) -> Release:
        """Run the mechanism, through the ledger if there is one, which is told of n records."""
        return run_fit(mechanism, records, n, ledger=self.ledger, randomness=self.randomness)

    def _domain(self, dimension: int | None) -> Any:
        """The public domain; a pair of numbers is a cube of as many dimensions as the records have."""
        if isinstance(self.domain, Box | Ball):
            if dimension is not None and dimension != self.domain.dimension:
                raise ValueError(f"The records have {dimension} covariates, the domain {self.domain.dimension}.")
            return self.domain
        low, high = self.domain
        if dimension is None:
            raise ValueError("The domain is a pair of numbers: say how many covariates there are (dimension=...).")
        return Box((float(low),) * dimension, (float(high),) * dimension)

    def _places(self, domain: Box | Ball) -> tuple[Floats, tuple[int, ...] | None]:
        """The public locations, and the shape of the grid they span, if they do."""
        if self.locations is not None:
            if self.grid is not None:
                raise ValueError("Give locations or grid, not both.")
            return checked_points(self.locations, domain.dimension), None
        side = int(1024 ** (1.0 / domain.dimension) + 1e-9)
        grid = side if self.grid is None else self.grid
        counts = (grid,) * domain.dimension if isinstance(grid, int) else tuple(grid)
        if side < 2 and self.grid is None:
            raise ValueError(f"In {domain.dimension} dimensions there is no default grid; give locations=....")
        if isinstance(domain, Ball):
            center = np.asarray(domain.center)
            domain = Box(tuple(center - domain.radius), tuple(center + domain.radius))
        return domain.grid(counts), counts

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.randomness is None
        tags.regressor_tags.poor_score = True  # the noise that protects the records
        return tags
