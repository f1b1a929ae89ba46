"""The losses that a study uses again: in memory, and in a private file from which a study that is taken up has them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bayesopt.clipping import ClippedSum
from discretion.bayesopt.journal import StudyError
from discretion.bayesopt.losses import in_parts
from discretion.bayesopt.planning import Plan
from discretion.privacy.quiet import quiet

__all__ = ["KeptLosses"]

Floats = NDArray[np.float64]


class KeptLosses:
    """PRIVATE. Locations that were evaluated and the losses of all records there.

    Args:
        n: how many records. dimension: of the locations.
        path: the private file, for its owner alone; without one they are in memory only.

    Attributes:
        old: (c, d), public. losses: (n, c).
    """

    def __init__(self, n: int, dimension: int, path: str | os.PathLike[str] | None) -> None:
        self._n, self._dimension = n, dimension
        self._path, self._study = None if path is None else Path(path).absolute(), ""
        self.forget()

    def forget(self) -> None:
        """No losses to use again."""
        self.old, self.losses = np.empty((0, self._dimension)), np.empty((self._n, 0))

    def keep(self, old: Floats, losses: Floats) -> None:
        """These from now on."""
        self.old, self.losses = old, losses

    @quiet()
    def summed(
        self, plan: Plan, chunks: Iterable[Any], kept: NDArray[np.intp], *, centre: bool
    ) -> tuple[ClippedSum, Floats]:
        """The sum over all records of a step, and the columns of their losses that are kept after it, (n, kept).

        Where possible those are written in place: rows are read before, and a step that fails forgets them all.
        """
        total = ClippedSum(plan.map, plan.clip, self._n, centre=centre)
        columns = self.losses if self.losses.shape[1] == len(kept) else np.empty((self._n, len(kept)))
        for chunk in in_parts(chunks, len(plan.new)):
            rows = slice(total.seen, total.seen + len(chunk))
            if rows.stop > self._n:
                total.seen = rows.stop
                break
            both = np.hstack([self.losses[rows], chunk]) if len(plan.old) else chunk
            total.add(both)
            columns[rows] = both[:, kept]
        return total, columns

    def claim(self, study: str, public: Path) -> None:
        """Make the file that of this study, by its name.

        Raises:
            StudyError: it is the public file, that of another study, or none of a study.
        """
        self._study = study
        if self._path is None:
            return
        if any(each.exists() and each.samefile(public) for each in (self._path, self._draft)):
            raise StudyError(
                f"private names the public file {public}, or the draft of one is that. Losses would be in it: give "
                "another path."
            )
        if self._path.exists() and self._read().get("study") != study:
            raise StudyError(f"{self._path} holds no losses of this study, and is left as it is: give a new path.")

    def take_up(self, step: int) -> None:
        """Have the losses that were written after this step, if there are any."""
        found = {} if self._path is None or not self._path.exists() else self._read()
        if found.get("step") == step and found["losses"].shape == (self._n, len(found["old"])):
            self.old, self.losses = found["old"], found["losses"]

    def write(self, step: int) -> None:
        """What is kept after this step, whole or not at all."""
        if self._path is None:
            return
        self._draft.unlink(missing_ok=True)
        with os.fdopen(os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            np.savez(file, study=self._study, step=step, old=self.old, losses=self.losses)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._draft, self._path)

    @property
    def _draft(self) -> Path:
        assert self._path is not None
        return self._path.with_name(self._path.name + ".part")

    def _read(self) -> dict[str, Any]:
        """What the file says; nothing where it is no such file."""
        assert self._path is not None
        try:
            with np.load(self._path, allow_pickle=False) as kept:
                arrays = {name: kept[name] for name in ("study", "step", "old", "losses")}
        except Exception:  # whatever it is, its words may quote it
            return {}
        return arrays | {"study": str(arrays["study"]), "step": int(arrays["step"])}
