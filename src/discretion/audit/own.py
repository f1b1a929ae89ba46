"""An attack on a mechanism of one's own, named as FILE.py:NAME: a function that gives what is to be attacked."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from discretion.audit.membership import Game, MechanismGame, Trainer
from discretion.gp.domain import Array
from discretion.privacy import SeededRandomness

__all__ = ["OwnGame", "numbers_of", "own_game"]

_UNSEEN = ("certificate", "facts", "mechanism")  # of a release: the same whatever the records are


@dataclass(frozen=True)
class OwnGame:
    """A `game`, the `trainer` of its attack, the mechanism's own `delta` (None if it has none), and it in `words`."""

    game: Game
    trainer: Trainer | str
    delta: float | None
    words: str

    def epsilon(self, delta: float) -> float | None:
        """What the mechanism claims at this delta; None where it has no privacy loss."""
        mechanism: Any = getattr(self.game, "mechanism", None)
        if not hasattr(mechanism, "privacy_loss"):
            return None
        records = getattr(self.game, "included", ())
        n = mechanism.check(records) if hasattr(mechanism, "check") else len(records)
        return float(mechanism.privacy_loss(n).epsilon(delta))


def own_game(name: str) -> OwnGame:
    """What ``FILE.py:NAME`` gives: NAME is a function without arguments, or the value it would return.

    That is a game (`MechanismGame`, or anything with `features`), or a tuple of a mechanism, a data set, a neighbouring
    data set and, if the numbers of a release are not what the attacker should look at, a function from a release to
    numbers. The file is run: name none that you would not run yourself.

    ValueError where it gives nothing of that kind.
    """
    file, _, attribute = name.rpartition(":")
    if not file or not attribute:
        raise ValueError(f"--mechanism is written FILE.py:NAME, such as own.py:attacked; got {name!r}.")
    found: Any = _read(Path(file), attribute)
    if callable(found) and not hasattr(found, "features"):
        found = found()
    parts: Any = found if isinstance(found, tuple) else ()
    if len(parts) in (3, 4) and hasattr(parts[0], "run"):
        feature = parts[3] if len(parts) == 4 else numbers_of
        found = MechanismGame(parts[0], parts[1], parts[2], feature, SeededRandomness)
    game: Any = found
    if not hasattr(game, "features"):
        raise ValueError(
            f"{name} gives {type(found).__name__}: return a MechanismGame, or (mechanism, data set, neighbouring data "
            "set), mechanism with run(records, randomness)."
        )
    mechanism = getattr(game, "mechanism", None)
    words = f"{getattr(mechanism, 'name', attribute)}; {getattr(game, 'words', 'two data sets of your own')}"
    return OwnGame(game, getattr(game, "trainer", "online"), getattr(mechanism, "delta", None), words)


def _read(file: Path, attribute: str) -> Any:
    if not file.is_file():
        raise ValueError(f"--mechanism: there is no file {file}.")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"--mechanism: {file} is no file of Python (.py).")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)  # where dataclasses look for their module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"--mechanism: {file} stopped with {type(error).__name__}: {error}") from error
    if not hasattr(module, attribute):
        raise ValueError(f"--mechanism: {file} has no {attribute}.")
    return getattr(module, attribute)


def numbers_of(release: Any) -> Array:
    """Every number of a release: of a number, an array or a list of them itself, else of its fields.

    ValueError where there is none.
    """
    named = [each.name for each in fields(release)] if hasattr(release, "__dataclass_fields__") else None
    values = [release] if named is None else [getattr(release, each) for each in named if each not in _UNSEEN]
    found = []
    for value in values:
        try:
            found.append(np.ravel(np.asarray(value, dtype=np.float64)))
        except (TypeError, ValueError):
            continue
    seen = np.concatenate([np.empty(0), *found])
    if not len(seen):
        raise ValueError(
            f"A release of {type(release).__name__} has no numbers to look at: return a function from a release to "
            "numbers as well."
        )
    return seen
