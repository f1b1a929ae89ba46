"""Private input before anything else sees it: what NumPy and scikit-learn say of input they refuse quotes it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from discretion.privacy.mechanism import PublicError
from discretion.privacy.quiet import quiet

__all__ = ["check_labelled", "numbers"]


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
