"""What a run of Thompson sampling releases, the actions, and what can be read off them for free."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Box, Kernel
from discretion.gp import kernel as make_kernel
from discretion.privacy import Release

__all__ = ["ThompsonRelease"]

Floats = NDArray[np.float64]

NO_BEST = (
    "There is no best action: which one it is would be read off private responses. The actions themselves are public: "
    "see `recommended()` and `actions`."
)
_BLOCK = 1 << 22  # float64 entries of one block of a kernel matrix, 32 MB


@dataclass(frozen=True, eq=False, repr=False)
class ThompsonRelease(Release):
    """What a run releases.

    Attributes:
        actions: (rounds, batch, d), as played; NaN for a round that was lost or not begun.
    """

    actions: Floats

    @property
    def played(self) -> Floats:
        """The actions that were played, in order, (n, d); ValueError where none was."""
        rows = self.actions.reshape(-1, self.actions.shape[-1])
        rows = rows[~np.isnan(rows).any(axis=1)]
        if not len(rows):
            raise ValueError("No action was played.")
        return rows

    def recommended(self, kernel: Kernel | None = None) -> Floats:
        """The action to go on with, (d,): the played one around which the later half of the run lies closest.

        With U the actions of the later half, argmax over u in U of sum_{a in U} k(u, a), that is the mode of U smoothed
        with the kernel: a path that is highest a little beside the best action counts for it. Free, since it reads
        released actions and public parameters alone. It is not corrected for the edges of the actions, where a kernel
        has less to sum: paths are highest there too often, and the two make up for one another.

        Args:
            kernel: what smooths, in the coordinates that the mechanism's own kernel sees (a box is the unit cube);
                by default that kernel.

        Raises:
            ValueError: nothing was played, or the mechanism's kernel is none of this library's and none is given.
        """
        played, told = self.played, self.certificate.parameters
        late = played[len(played) // 2 :]
        if kernel is None:
            scale = told["length_scale"]
            length = tuple(scale) if isinstance(scale, list | tuple) else scale
            kernel = make_kernel(told["kernel"], 1.0 if length is None else length, **told["kernel_parameters"])
        each, counts = np.unique(late, axis=0, return_counts=True)
        box = told["box"]
        points = each if box is None else Box(tuple(box["lower"]), tuple(box["upper"])).unit(each)
        parts = np.array_split(points, math.ceil(len(points) ** 2 / _BLOCK))
        return each[np.concatenate([kernel(part, points) @ counts for part in parts]).argmax()]

    @property
    def most_played(self) -> Floats:
        """The action played most often, the latest of equals, (d,): a count. See `recommended` for one to go on with.

        Raises:
            ValueError: nothing was played.
        """
        each, first, counts = np.unique(self.played[::-1], axis=0, return_index=True, return_counts=True)
        return each[np.lexsort((first, -counts))[0]]

    @property
    def best_action(self) -> Floats:
        """Refused: the best of the actions is known from responses, which are private."""
        raise AttributeError(NO_BEST)
