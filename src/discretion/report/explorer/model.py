"""What the explorer answers: prices of a setting, and a simulated map beside its private version. Reads no record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from discretion.gp import Ball, Box, Kernel, kernel
from discretion.posterior import (
    Bounded,
    Diagonal,
    Exponential1D,
    KernelSumMechanism,
    PosteriorMechanism,
    ResponseOnly,
    path_budget,
    posterior_epsilon,
    posterior_loss,
)
from discretion.posterior.assumptions import Assumption, RecordAssumption
from discretion.posterior.confidence import threshold_field
from discretion.posterior.kernel_sum import sensitivity
from discretion.posterior.records import Records
from discretion.posterior.rules import posterior_price, published_epsilon
from discretion.privacy import (
    GaussianDP,
    Neighbours,
    PrivacyLoss,
    SeededRandomness,
    gaussian_epsilon,
    gaussian_mu,
    html,
)
from discretion.privacy.conversion import round_up
from discretion.privacy.power import attack_power, guessing
from discretion.report.scene import RAMP, Layer, Scene

__all__ = ["CHOICES", "RANGES", "Range", "Setting", "certified", "prices", "world"]

Floats = NDArray[np.float64]

SECONDS = 4.0
"""Time limit of a certified search."""
GRID = 32
MOST_SIMULATED = {"posterior": 1_000, "kernel-sum": 20_000}
"""Records of a simulated world: what a computer draws while somebody waits."""
NOISE = 0.3


class Range(NamedTuple):
    """Ends and first position of a slider, by equal factors; whole numbers or not."""

    low: float
    high: float
    first: float
    whole: bool
    label: str


RANGES = {
    "n": Range(10, 1_000_000, 4_000, True, "Records n"),
    "length_scale": Range(0.01, 2.0, 0.1, False, "Length scale of the kernel, in sides of the domain"),
    "ridge": Range(0.5, 5_000, 200, False, "Ridge r"),
    "scale": Range(1e-6, 1e4, 5e-5, False, "Scale of the noise"),
    "paths": Range(1, 100, 1, True, "Paths"),
    "delta": Range(1e-12, 0.1, 1e-5, False, "Delta"),
    "bound": Range(0.01, 1e6, 1.0, False, "Largest |response - centre|, M"),
    "budget": Range(0.01, 50, 3, False, "Budget: epsilon"),
}
"""Numbers that are set by sliders."""

CHOICES = {
    "mechanism": ("posterior", "kernel-sum"),
    "dimension": ("1", "2", "3"),
    "kernel": ("rbf", "exponential", "matern32", "matern52", "diagonal"),
    "assumption": ("bounded", "exponential-1d", "diagonal", "response-only"),
}
"""What is chosen from a list."""

LABELS = {"mechanism": "Release", "dimension": "Covariates", "kernel": "Kernel", "assumption": "Assumed of responses"}
_ASSUMED: dict[str, type[Any]] = {each.name: each for each in (Bounded, Exponential1D, Diagonal, ResponseOnly)}


@dataclass(frozen=True)
class Setting:
    """Public parameters of a release that might be made, on a domain scaled to a unit box.

    `mechanism`, `dimension`, `kernel` and `assumption` are among `CHOICES`; the other numbers lie in `RANGES`, which
    also says what they are: `n`, `length_scale`, `ridge`, `scale`, `paths`, `delta`, `bound` (M) and `budget` (an
    epsilon).
    """

    mechanism: str = "posterior"
    n: int = 4_000
    dimension: int = 2
    kernel: str = "rbf"
    length_scale: float = 0.1
    ridge: float = 200.0
    scale: float = 5e-5
    paths: int = 1
    delta: float = 1e-5
    bound: float = 1.0
    budget: float = 3.0
    assumption: str = "bounded"

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        """The setting that a query names; what it leaves out has its first value.

        Raises:
            ValueError: a name or a value that is out of range, in words.
        """
        found: dict[str, Any] = {}
        known = {item.name for item in fields(cls)}
        for name, text in query.items():
            if name not in known:
                raise ValueError(f"{name[:40]!r} is no setting; there are {', '.join(sorted(known))}.")
            if name in CHOICES:
                if text not in CHOICES[name]:
                    raise ValueError(f"{LABELS[name]}: {', '.join(CHOICES[name])}.")
                found[name] = int(text) if name == "dimension" else text
                continue
            limits = RANGES[name]
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not limits.low <= value <= limits.high or (limits.whole and value != int(value)):
                kind = "a whole number" if limits.whole else "a number"
                raise ValueError(f"{limits.label}: {kind} from {limits.low:g} to {limits.high:g}.")
            found[name] = int(value) if limits.whole else value
        return cls(**found)

    @cached_property
    def shape(self) -> Kernel:
        """The kernel."""
        return kernel(self.kernel, 1.0 if self.kernel == "diagonal" else self.length_scale)

    @cached_property
    def least_kernel(self) -> float:
        """A lower bound of the kernel: its value at the diameter of the unit box."""
        return self.shape.least_value(Ball((0.0,), 0.5 * math.sqrt(self.dimension)))

    @cached_property
    def assumed(self) -> Assumption:
        """What is assumed of the records.

        Raises:
            ValueError: it does not fit the kernel.
        """
        assumed = _ASSUMED[self.assumption](self.bound)
        assumed.check(self.shape, self.dimension)
        return assumed

    def account(self) -> dict[str, Any]:
        """Arguments of the posterior's prices."""
        return {
            "n": self.n,
            "ridge": self.ridge,
            "scale": self.scale,
            "assumption": self.assumed,
            "least_kernel": self.least_kernel,
        }

    def loss(self) -> PrivacyLoss:
        """What the release would cost, by the closed forms."""
        if self.mechanism == "kernel-sum":
            mu = sensitivity(Neighbours.REPLACE) * self.bound / self.scale
            return self.paths * GaussianDP(mu, neighbours=Neighbours.REPLACE, rule="kernel sum, exact Gaussian DP")
        return posterior_loss(paths=self.paths, **self.account())

    def command(self) -> str:
        """A command that prints the same price."""
        if self.mechanism == "kernel-sum":
            # L sums with noise s are one with noise s / sqrt(L).
            return f"{self._sums} --scale {_typed(self.scale / math.sqrt(self.paths))}"
        return f"discretion cost posterior --scale {_typed(self.scale)} {self._posterior}"

    def calibration(self) -> str:
        """A command that finds the smallest scale within the budget."""
        if self.mechanism == "kernel-sum":
            return f"{self._sums} --epsilon {_typed(self.budget)}"
        return f"discretion calibrate posterior --solve scale --epsilon {_typed(self.budget)} {self._posterior}"

    @property
    def _sums(self) -> str:
        bound, delta = _typed(self.bound), _typed(self.delta)
        return f"discretion cost kernel-sum --response-bound {bound} --delta {delta}"

    @property
    def _posterior(self) -> str:
        scale = "" if self.kernel == "diagonal" else f" --length-scale {_typed(self.length_scale)}"
        return (
            f"--n {self.n} --kernel {self.kernel}{scale} --diameter {math.sqrt(self.dimension)!r} "
            f"--ridge {_typed(self.ridge)} --paths {self.paths} --response-bound {_typed(self.bound)} "
            f"--assumption {self.assumption} --delta {_typed(self.delta)}"
        )


def _typed(value: float) -> str:
    """A number as one types it; it reads back as the same double."""
    return repr(float(value)).removesuffix(".0")


# --- prices


def prices(setting: Setting) -> dict[str, Any]:
    """Epsilon of a `setting` by each quick rule, releases within its budget, and the most an attack could reach."""
    loss = setting.loss()
    rules = _quick(setting, loss)
    return {
        "rules": [{"name": name, "epsilon": _words(epsilon), "value": _plain(epsilon)} for name, epsilon in rules],
        "within": _within(setting),
        "attack": [list(pair) for pair in html.attack_facts(loss)],
        "power": attack_power(loss, 0.05),
        "guessing": guessing(loss),
        "least_kernel": setting.least_kernel,
        "chart": _chart(setting),
        "command": setting.command(),
        "calibration": setting.calibration(),
        "searches": setting.mechanism == "posterior" and isinstance(setting.assumed, RecordAssumption),
    }


def certified(setting: Setting) -> dict[str, Any]:
    """Epsilon of a `setting` by the certified searches, within `SECONDS`."""
    if setting.mechanism != "posterior" or not isinstance(setting.assumed, RecordAssumption):
        return {"rules": [], "complete": True}
    price = posterior_price(delta=setting.delta, paths=setting.paths, time_limit=SECONDS, **setting.account())
    kept = [(name, price.compared[name]) for name in ("renyi", "profile") if name in price.compared]
    rules = [{"name": f"certified: {name}", "epsilon": _words(each), "value": _plain(each)} for name, each in kept]
    return {"rules": rules, "complete": price.complete}


def _quick(setting: Setting, loss: PrivacyLoss) -> list[tuple[str, float]]:
    if setting.mechanism == "kernel-sum":
        return [("exact Gaussian DP", loss.epsilon(setting.delta))]
    if not isinstance(setting.assumed, RecordAssumption):
        return [("response-only, exact Gaussian DP", loss.epsilon(setting.delta))]
    published, _ = published_epsilon(delta=setting.delta, paths=setting.paths, **setting.account())
    return [("as published", float(published)), ("closed forms", loss.epsilon(setting.delta))]


def _within(setting: Setting) -> str:
    """How many such paths, or sums, the budget pays for: L_max."""
    if setting.mechanism == "kernel-sum":
        mu = sensitivity(Neighbours.REPLACE) * setting.bound / setting.scale
        count = float(np.square(gaussian_mu(setting.budget, setting.delta) / mu))
    else:
        count = path_budget(epsilon=setting.budget, delta=setting.delta, **setting.account())
    return "any number" if not count < 1e15 else f"{math.floor(count * (1 - 1e-12)):,}"


def _chart(setting: Setting) -> str:
    """Epsilon at scales around the one chosen: all at once, by the vectorised account."""
    scales = np.geomspace(0.1, 10.0, 41) * setting.scale
    if setting.mechanism == "kernel-sum":
        unit = sensitivity(Neighbours.REPLACE) * setting.bound
        values = gaussian_epsilon(unit * math.sqrt(setting.paths) / scales, setting.delta).tolist()
        lines = [("exact", scales.tolist(), values)]
    else:
        account = setting.account() | {"scale": scales, "delta": setting.delta, "paths": setting.paths}
        lines = [("closed forms", scales.tolist(), posterior_epsilon(**account).epsilon.tolist())]
        if isinstance(setting.assumed, RecordAssumption):
            lines.append(("as published", scales.tolist(), published_epsilon(**account)[0].tolist()))
    epsilon = setting.loss().epsilon(setting.delta)
    lines.append(("budget", [scales[0], scales[-1]], [setting.budget, setting.budget]))
    return html.line_chart(
        lines,
        x_label="scale",
        y_label="epsilon",
        words=f"Epsilon at scales from a tenth of the chosen one to ten times it; at the chosen one {_words(epsilon)}.",
        log_x=True,
        log_y=True,
        marks=[(setting.scale, epsilon)],
    )


def _words(epsilon: float) -> str:
    return "no bound" if math.isinf(epsilon) else round_up(epsilon, 3)


def _plain(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


# --- a simulated world


def world(setting: Setting, seed: int) -> dict[str, Any]:
    """A map drawn from a public prior, and the private version of it that the setting would release.

    The world is a Gaussian process with the setting's kernel on the unit square, squeezed into [-M, M]; records lie
    anywhere in it, with noise; one `seed`, one world. The private map comes from the library's own mechanism with
    replayable noise, which is fit for made-up records only. At most `MOST_SIMULATED` records are made up, and the
    answer says how many.
    """
    rng = np.random.default_rng(seed)
    box = Box((0.0, 0.0), (1.0, 1.0))
    shape = setting.shape if setting.kernel != "diagonal" else kernel("matern32", 0.1)
    truth = _draw(shape, rng)
    n = min(setting.n, MOST_SIMULATED[setting.mechanism])
    X = rng.uniform(size=(n, 2))
    y = setting.bound * np.clip(_at(truth, X) + NOISE * rng.standard_normal(n), -1.0, 1.0)
    ranges = (-setting.bound, setting.bound)
    common: dict[str, Any] = {"domain": box, "grid": (GRID, GRID), "scale": setting.scale, "delta": setting.delta}
    if setting.mechanism == "kernel-sum":
        mechanism = KernelSumMechanism(shape, response_ranges=ranges, **common)
        release = mechanism.run(Records(X, y), SeededRandomness(seed))
        private = threshold_field(release, 0.0)[0]
        what = "Sum of the responses near, with noise"
    else:
        drawn = PosteriorMechanism(
            shape,
            response_range=ranges,
            ridge=setting.ridge,
            paths=min(setting.paths, 20),
            locations=box.grid((GRID, GRID)),
            **common,
        ).run(Records(X, y), SeededRandomness(seed))
        private, what = drawn.values.mean(axis=0).reshape(GRID, GRID), "Mean of the released paths"
    right = float(np.mean((truth >= 0.0) == (private >= 0.0)))
    layers = (
        Layer("The world", setting.bound * np.clip(truth, -1.0, 1.0).T, "response"),
        Layer(what, private.T, "as released, in colours of its own"),
    )
    data = Scene((0.0, 0.0, 1.0, 1.0), (GRID, GRID), layers).data()
    fewer = "" if n == setting.n else f" Drawn with {n:,} records of the {setting.n:,}, to be quick: more show more."
    wide = "" if setting.dimension == 2 else " The picture has two covariates, whatever is chosen for the price."
    return {
        "ramp": list(RAMP),
        "grid": data["grid"],
        "layers": data["layers"],
        "right": right,
        "words": f"Above or below the centre is right at {100 * right:.0f} % of the places; by chance it is at about "
        f"half of them.{fewer}{wide}",
    }


def _draw(shape: Kernel, rng: np.random.Generator) -> Floats:
    """A field on the grid with the kernel's covariance, of standard deviation 0.6, (GRID, GRID)."""
    root = _root(shape)
    return 0.6 * (root @ rng.standard_normal(len(root))).reshape(GRID, GRID)


@lru_cache(maxsize=4)
def _root(shape: Kernel) -> Floats:
    """A root of the kernel's covariance on the grid."""
    places = Box((0.0, 0.0), (1.0, 1.0)).grid((GRID, GRID))
    return np.asarray(np.linalg.cholesky(shape(places) + 1e-8 * np.eye(len(places))), dtype=np.float64)


def _at(field: Floats, X: Floats) -> Any:
    """The field at places between the grid's, linear in each coordinate."""
    at = np.clip(X * (GRID - 1), 0.0, GRID - 1 - 1e-9)
    i, j = at.astype(int).T
    u, v = (at - np.floor(at)).T
    low = field[i, j] * (1 - v) + field[i, j + 1] * v
    return low * (1 - u) + (field[i + 1, j] * (1 - v) + field[i + 1, j + 1] * v) * u
