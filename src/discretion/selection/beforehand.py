"""What is looked at before a search is paid for, all of it public; and a rehearsal on made-up records.

Within a search a mistake of a program is a run that failed like any other: it is paid for, and nobody is told of it. So
what can be found out without the records is found out here, and the rest by rehearsing.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from discretion.privacy import Neighbours, PublicError, SystemRandomness

__all__ = [
    "check_call",
    "check_candidate",
    "check_number",
    "check_price",
    "check_proposals",
    "check_validation",
    "pair_of",
    "rehearse",
]

_NEEDED = ("name", "neighbours", "privacy_loss", "parameters", "run")


def check_call(function: Any, takes: Sequence[str], what: str) -> None:
    """Refuse what can't be called with so many arguments.

    Raises:
        ValueError: it names what is wanted.
    """
    wanted = f"{what} is called with ({', '.join(takes)})"
    if not callable(function):
        raise ValueError(f"{wanted}; {type(function).__name__} can't be called.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled code may have none to show
        return
    try:
        signature.bind(*takes)
    except TypeError:
        raise ValueError(f"{wanted}; this one takes {signature}.") from None


def check_candidate(candidate: Any) -> None:
    """Refuse what is no mechanism.

    Raises:
        ValueError: it says what a candidate has.
    """
    kind = candidate.__name__ if isinstance(candidate, type) else type(candidate).__name__
    missing = [each for each in _NEEDED if not hasattr(candidate, each)]
    if isinstance(candidate, type) or missing:
        lacks = "is a class, not an object" if not missing else f"has no {', '.join(missing)}"
        raise ValueError(
            f"A candidate is a mechanism with {', '.join(_NEEDED[:-1])} and {_NEEDED[-1]}; {kind} {lacks}. Estimators "
            "are searched with PrivateSearchCV."
        )
    check_call(candidate.run, ("records", "randomness"), f"{kind}.run")
    check_call(candidate.privacy_loss, ("n",), f"{kind}.privacy_loss")


def check_price(epsilon: float, delta: float) -> None:
    """Refuse a search that promises nothing.

    Raises:
        ValueError: its epsilon is infinite.
    """
    if not math.isfinite(epsilon):
        raise ValueError(
            f"At delta = {delta:g} this search has no finite epsilon: it would promise nothing. Take another law of "
            "the number of runs, a larger delta, or candidates that cost less."
        )


def check_number(records: Any, n: int | None) -> None:
    """Refuse records that are not n in number, where n is public and the records tell theirs.

    Raises:
        PublicError: they are not.
    """
    if n is not None and _number(records) not in (n, None):
        raise PublicError(f"n = {n:,} is not the number of the records. Nothing was spent.")


def _number(records: Any) -> int | None:
    """The number of records of an array, a table, a list of records, or a tuple or dataclass of columns."""
    named = getattr(records, "__dataclass_fields__", None)
    columns = [getattr(records, each) for each in named] if named else [records]
    columns = list(records) if isinstance(records, tuple) else columns
    lengths = {len(each) for each in columns if isinstance(each, np.ndarray) and each.ndim}
    if lengths:
        return lengths.pop() if len(lengths) == 1 else None
    plain = isinstance(records, list) or hasattr(records, "iloc")
    return len(records) if plain else None


def check_proposals(propose: Callable[[Any], Any], candidates: int) -> None:
    """Refuse a function that does not propose one chance for each candidate where nothing has run yet.

    Raises:
        ValueError: it fails, or proposes something else.
    """
    try:
        wanted = np.asarray(propose(()), dtype=np.float64)
    except Exception as error:
        raise ValueError(f"The proposals fail where nothing has run yet, history = (): {error!r}.") from error
    if wanted.shape != (candidates,) or not (np.isfinite(wanted).all() and (wanted >= 0).all() and wanted.max() > 0):
        raise ValueError(
            f"Proposals are {candidates} chances, one for each candidate, not negative and not all zero; where nothing "
            f"has run yet these have the shape {wanted.shape}."
        )


def pair_of(validation: Any) -> tuple[Any, Any]:
    """Public X and y.

    Raises:
        ValueError: it is no pair.
    """
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise ValueError("validation is a pair (X, y) of public data.")
    return validation[0], validation[1]


def check_validation(validation: Any, records: Any, classes: Any) -> None:
    """Refuse public X and y that have not the form of the records, or labels that are not among those declared.

    Args:
        validation: (X, y), public.
        records: with covariates (n, d) and response (n,); of them only d and the kind of labels is looked at.
        classes: that were declared, or None.

    Raises:
        ValueError: it names what differs.
    """
    X, y = (np.asarray(each) for each in pair_of(validation))
    width = records.covariates.shape[1]
    if X.ndim != 2 or X.shape[1] != width or y.shape[:1] != X.shape[:1]:
        raise ValueError(
            f"Validation data are X of shape (m, {width}) and y of length m, as the records have {width} covariates; "
            f"got shapes {X.shape} and {y.shape}."
        )
    if classes is not None:
        known = np.asarray(classes).ravel().tolist()
        strange = [each for each in dict.fromkeys(y.ravel().tolist()) if each not in known]
        if strange:
            raise ValueError(f"Validation labels {strange[:3]} are not among the declared classes {known}.")
    elif _text(y) != _text(np.asarray(records.response)):
        raise ValueError("The labels of validation data and records are not of one kind: some are text, some numbers.")


def _text(labels: Any) -> bool:
    return labels.dtype.kind in "USOT"


def rehearse(candidates: Sequence[Any], score: Any, records: Any) -> list[float]:
    """Run and score every candidate once on MADE-UP records, and let every error be seen.

    Nothing is charged and nothing is promised: what comes back depends on these records without any bound. Never give
    it the private ones.

    Args:
        candidates, score: as for `select`.
        records: made up, in the form of the private ones.

    Returns:
        The score of each candidate.

    Raises:
        ValueError: a score is NaN, which a search takes for a run that failed.
        Exception: whatever a run or a score raises, with a note which candidate it was.
    """
    return [_rehearsed(place, each, score, records) for place, each in enumerate(candidates)]


def _rehearsed(place: int, candidate: Any, score: Any, records: Any) -> float:
    check_candidate(candidate)
    neighbours, randomness = Neighbours(candidate.neighbours), SystemRandomness()
    try:
        if hasattr(candidate, "check"):
            candidate.check(records)
        training, validation = score.split(records, neighbours, randomness)
        artefact = candidate.run(training, randomness)
        value = float(score(artefact, validation, neighbours, randomness))
        if math.isnan(value):
            raise ValueError("The score is NaN, and a search takes such a run for one that failed.")
        getattr(candidate, "publish", lambda artefact: artefact)(artefact)
    except Exception as error:
        settings = getattr(candidate, "choice", None)
        which = f", {dict(settings)}" if isinstance(settings, Mapping) else ""
        error.add_note(f"This was the rehearsal of candidate {place} ({candidate.name}{which}).")
        raise
    return value
