"""Private input before anything else sees it: what NumPy and scikit-learn say of input they refuse quotes it."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from discretion.privacy.mechanism import PublicError
from discretion.privacy.quiet import quiet

__all__ = [
    "asked_table",
    "check_labelled",
    "check_shapes",
    "keep_columns",
    "numbers",
    "plain_table",
    "regression_table",
]


def check_labelled(records: Any) -> None:
    """Return if the records have covariates and a response.

    Raises
    ------
    PublicError
        They are of another type, which is named.
    """
    if not (hasattr(records, "covariates") and hasattr(records, "response")):
        raise PublicError(
            "Records are an object with covariates (n, d) and response (n,), such as discretion.posterior.Records(X, "
            f"y); this one is of type {type(records).__name__}."
        )


@quiet()
def numbers(values: Any, what: str) -> NDArray[np.float64]:
    """`values` as float64, in whatever shape they have.

    Raises
    ------
    PublicError, TypeError
        If they are not real numbers; names `what`, never a value.
    """
    problem: type[Exception] | None = None
    array = np.empty(0)
    try:
        if issparse(values):
            raise PublicError(f"Sparse data not supported: give {what} as a dense array.")
        raw = np.asarray(values)
        if raw.dtype.kind == "c":
            raise PublicError(f"Complex data not supported: {what} must be real numbers.")
        array = np.asarray(raw, dtype=np.float64)
    except PublicError:
        raise
    except Exception as error:
        problem = TypeError if isinstance(error, TypeError) else PublicError
    if problem is not None:
        # Outside the handler, so that the original does not hang on as __context__.
        raise problem(f"{what}: every argument must be a string or a number that converts to a real number.")
    return array


def plain_table(X: Any) -> NDArray[np.float64]:
    """X as float64 of two dimensions or more, as `numbers` says: scikit-learn quotes what has fewer."""
    table = numbers(X, "X")
    if table.ndim < 2:
        found = "1D array" if table.ndim else "scalar array"
        raise PublicError(f"Expected 2D array, got {found} instead. Reshape your data: one row for each record.")
    return table


def regression_table(
    estimator: Any, X: Any, y: Any, *, multi_output: bool = False, fewest: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """X and y of a regression as scikit-learn checks them, once they are numbers; the columns are kept.

    Args:
        fewest: least number of records; 0 where it is private.

    Raises:
        PublicError, TypeError, ValueError: what is not numbers, or does not fit; no value is named.
    """
    from sklearn.utils.validation import validate_data

    table: Any = plain_table(X)
    response: Any = None if y is None else numbers(y, "y")
    if response is not None:
        check_shapes(table.shape, response.shape, multi_output)
    checked: Any = validate_data(
        estimator,
        table,
        response,  # pyright: ignore[reportArgumentType]
        dtype=np.float64,
        y_numeric=True,
        multi_output=multi_output,
        ensure_min_samples=fewest,
    )
    keep_columns(estimator, X, table)
    return checked[0], np.asarray(checked[1], dtype=np.float64)


def keep_columns(estimator: Any, X: Any, table: NDArray[np.float64]) -> None:
    """Keep number and names of the columns of X, which are public, as scikit-learn does: ``feature_names_in_``.

    Args:
        table: X as `plain_table` makes it.

    Raises:
        TypeError: some names are strings and some are not.
    """
    _columns(estimator, X, table, reset=True)


def asked_table(estimator: Any, X: Any) -> NDArray[np.float64]:
    """What a fitted estimator is asked about, as float64: by the columns it was fitted with, as scikit-learn checks.

    Raises:
        ValueError: other columns, by number, name or order, or values that are not finite.
    """
    from sklearn.utils import check_array

    table = plain_table(X)
    _columns(estimator, X, table, reset=False)
    return np.asarray(check_array(table, dtype="float64", estimator=estimator, input_name="X"))


def _columns(estimator: Any, X: Any, table: NDArray[np.float64], *, reset: bool) -> None:
    from sklearn.utils.validation import validate_data

    named: Any = X
    names = list(getattr(X, "columns", ()))
    if all(isinstance(name, str) for name in names) and not _are_words(names):
        warnings.warn(
            "Names of columns are kept only where each is a word: of a table that was read without its header line "
            "they are a record. Give the columns names.",
            stacklevel=2,
        )
        named = table
    validate_data(estimator, named, reset=reset, skip_check_array=True)


_WORD = re.compile(r"[^\W\d]\w*([ .-]\w+)*")
_VALUES = {"na", "nan", "null", "none", "true", "false", "inf", "infinity", "yes", "no"}


def _are_words(names: Any) -> bool:
    """Whether all names are words that no number, truth value or missing value is written as."""
    # pandas tells equal names apart by .1, .2, ..., polars by _duplicated_0
    stems = [re.sub(r"(\.\d+|_duplicated_\d+)$", "", name.strip()) for name in names]
    return all(_WORD.fullmatch(stem) and stem.casefold() not in _VALUES for stem in stems)


def check_shapes(X: tuple[int, ...], y: tuple[int, ...], multi_output: bool = False) -> None:
    """What scikit-learn says of the shapes of X and y, without the number of records, which may be private."""
    if y[:1] != X[:1]:
        raise PublicError("Found input variables with inconsistent numbers of samples: X and y must agree.")
    if len(y) > 1 and y[1] != 1 and not multi_output:
        raise PublicError(f"y should be a 1d array, got an array of shape (n, {y[1]}) instead.")
