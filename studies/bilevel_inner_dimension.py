"""What the dimension of the inner variable costs: nothing for noisy hypergradients, much for methods that release it.

f = <u, y>/2 + sqrt(1 + |y|^2), g = |y - B x - c|^2/2 with one private c in the unit ball for each of 1000 records,
orthonormal B (d_y, 2), u = B e: d_x = 2 and every d_y pose the same problem. 60 steps, epsilon = 4 at delta = 1e-6.
Beside it two methods that release the inner variable: all of the budget on noisy inner solutions (exact, as the mean
of the c is all there is to know), and the first-order penalty method.

``python -m studies.bilevel_inner_dimension [FIGURE]`` prints the table, and draws the figure if it has a name.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from discretion.bilevel.constants import Constants
from discretion.bilevel.counts import Counts, Layout
from discretion.bilevel.descent import Descent
from discretion.bilevel.losses import Problem
from discretion.bilevel.penalty import PenaltyDescent
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.solvers import InnerSolution
from discretion.gp import Box
from discretion.privacy import Neighbours, SeededRandomness, gaussian_mu

Floats = NDArray[np.float64]

N, D_X, EPSILON, DELTA, STEPS, RATE = 1000, 2, 4.0, 1e-6, 60, 0.5
DIMENSIONS = (2, 20, 200, 2000)
METHODS = ("noisy hypergradient", "noisy inner solutions", "penalty method")


def instance(d_y: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """B (d_y, 2), u (d_y,) and the records c (1000, d_y)."""
    rng = np.random.default_rng(seed)
    B = np.linalg.qr(rng.normal(size=(d_y, D_X)))[0]
    e = rng.normal(size=D_X)
    c = rng.normal(size=(N, d_y))
    return B, B @ (e / np.linalg.norm(e)), c / np.maximum(1.0, np.linalg.norm(c, axis=1, keepdims=True))


def slope(y: Floats, u: Floats) -> Floats:
    """grad f."""
    return 0.5 * u + y / math.sqrt(1.0 + float(y @ y))


@dataclass(frozen=True, eq=False, kw_only=True)
class Centres(BilevelProblem):
    """The problem in closed form: y(x) = B x + mean of c, and all constants are facts where |c| <= 1."""

    B: Floats
    u: Floats

    layout: ClassVar[Layout] = Layout.JOINT  # pyright: ignore[reportIncompatibleVariableOverride]
    counts: ClassVar[Counts] = Counts(N)  # pyright: ignore[reportIncompatibleVariableOverride]
    neighbours: ClassVar[Neighbours] = Neighbours.REPLACE  # pyright: ignore[reportIncompatibleVariableOverride]
    x_domain: ClassVar[Box] = Box((-10.0,) * D_X, (10.0,) * D_X)  # pyright: ignore[reportIncompatibleVariableOverride]
    inner_domain: ClassVar[str] = "everywhere"  # pyright: ignore[reportIncompatibleVariableOverride]

    @cached_property
    def _facts(self) -> Constants:
        zero: Any = dict.fromkeys(
            ("L_fx", "b_fxx", "b_fxy", "D_fx", "D_fy", "r_xy", "r_yy", "r_xy_x", "r_yy_x", "D_gxy", "D_gyy"), 0.0
        )
        return Constants(**zero, L_fy=1.5, b_fyy=1.0, mu_g=1.0, b_gxy=1.0, b_gyy=1.0, D_g=2.0, L_gy=2.0)

    def constants(self, x: Floats | None = None) -> Constants:
        return self._facts

    def parameters(self) -> dict[str, Any]:
        return {"problem": "centres", "d_y": len(self.u)}

    def ingest(self, records: Any) -> Floats:
        return records.mean(axis=0)

    def solve(self, x: Floats, records: Any, tolerance: float, start: Floats | None = None) -> InnerSolution:
        return InnerSolution(self.B @ x + records, 0.0, True)

    def outer_value(self, x: Floats, y: Floats, records: Any) -> float:
        return 0.5 * float(self.u @ y) + math.sqrt(1.0 + float(y @ y))

    def outer_gradients(self, x: Floats, y: Floats, records: Any) -> tuple[Floats, Floats]:
        return np.zeros(D_X), slope(y, self.u)

    def inner_gradient(self, x: Floats, y: Floats, records: Any) -> Floats:
        return y - self.B @ x - records

    def inner_hvp(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats:
        return v

    def inner_cross(self, x: Floats, y: Floats, v: Floats, records: Any) -> Floats:
        return -self.B.T @ v


def length(x: Floats, B: Floats, u: Floats, mean: Floats) -> float:
    """|grad Phi(x)|: not private, for the table."""
    return float(np.linalg.norm(B.T @ slope(B @ x + mean, u)))


def ours(d_y: int, seed: int) -> float:
    """Noisy hypergradient descent."""
    B, u, c = instance(d_y, seed)
    descent = Descent(problem=Centres(B=B, u=u), epsilon=EPSILON, delta=DELTA, steps=STEPS, rate=RATE, linear="cg")
    return length(descent.run(c, SeededRandomness(seed)).x, B, u, c.mean(axis=0))


def released_inner(d_y: int, seed: int) -> float:
    """A noisy inner solution at every step, sensitivity 2/n; the hypergradient there is free."""
    B, u, c = instance(d_y, seed)
    mean, randomness = c.mean(axis=0), SeededRandomness(seed)
    sigma = 2.0 / N * math.sqrt(STEPS) / float(gaussian_mu(EPSILON, DELTA))
    x, path = np.zeros(D_X), []
    for _ in range(STEPS):
        y = B @ x + mean + sigma * randomness.standard_normal(d_y)
        x = x - RATE * B.T @ slope(y, u)
        path.append(x)
    return length(np.mean(path[STEPS // 2 :], axis=0), B, u, mean)


def penalty(d_y: int, seed: int, weight: float = 1.0, inner_steps: int = 3) -> float:
    """The penalty method, clipped at its natural sizes; the best of 18 settings that were tried on the data."""
    import jax.numpy as jnp

    from discretion.bilevel.backends import JaxBackend

    B, u, c = instance(d_y, seed)
    problem = Problem(
        outer=lambda x, y, z: 0.5 * jnp.dot(u, y) + jnp.sqrt(1.0 + jnp.dot(y, y)),
        inner=lambda x, y, z: 0.5 * jnp.sum((y - B @ x - z) ** 2),
        backend=JaxBackend(),
        x_domain=Centres.x_domain,
        counts=Counts(N),
        y_init=np.zeros(d_y),
    )
    method = PenaltyDescent(
        problem=problem,
        weight=weight,
        clip=2.0,
        inner_clip=1.5,
        steps=STEPS,
        inner_steps=inner_steps,
        rate=RATE,
        inner_rate=0.5,
        outer_share=0.2,
        epsilon=EPSILON,
        delta=DELTA,
    )
    return length(method.run(c, SeededRandomness(seed)).x, B, u, c.mean(axis=0))


def rows(
    runs: tuple[int, int, int] = (100, 100, 3), dimensions: tuple[int, ...] = DIMENSIONS
) -> dict[str, dict[int, float]]:
    """Mean |grad Phi| at the end, by method and d_y."""
    found: dict[str, dict[int, float]] = {}
    for name, method, count in zip(METHODS, (ours, released_inner, penalty), runs, strict=True):
        if count:
            found[name] = {d: float(np.mean([method(d, seed) for seed in range(count)])) for d in dimensions}
    return found


def draw(found: dict[str, dict[int, float]], path: Path) -> None:
    """Length of the hypergradient against the dimension."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    looks = (("o-", "#27607f"), ("s-", "#b5442e"), ("^-", "#7d8491"))
    for (name, values), (style, colour) in zip(found.items(), looks, strict=True):
        axes.loglog(list(values), list(values.values()), style, color=colour, label=name)
    axes.set(xlabel="dimension of the inner variable", ylabel="length of the hypergradient at the end")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the table and draw the figure."""
    found = rows()
    table = Table("method", *(f"d_y = {d}" for d in DIMENSIONS))
    for name, values in found.items():
        table.add_row(name, *(f"{values[d]:.4f}" for d in DIMENSIONS))
    Console().print(table)
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
