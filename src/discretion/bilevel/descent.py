"""Noisy hypergradient descent: private bilevel optimisation in any dimension, without convexity of the outer objective.

    x_{t+1} = Proj_X(x_t - eta (q_t + sigma_t g_t)),    sigma_t = (2K(x_t)/n + 2 C alpha + 2 l tau) / mu_t

q_t the hypergradient at x_t from a certified inner solution (alpha) and a certified linear solve (tau), g_t standard
normal, mu_t fixed in advance with sum mu_t^2 = mu^2. Constants are those of the public point x_t. The whole run is
mu-GDP, whatever the dimension of y. Proof: `docs/proofs/bilevel-descent.md`. Source: Lowy and Liu (2025), Algorithm 1,
with constants that hold and the exact account.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.batches import SUBSETS, Batches
from discretion.bilevel.budget import RULE, gaussian_budget, step_budgets
from discretion.bilevel.certified import certified_inner
from discretion.bilevel.constants import MissingConstant, Refused
from discretion.bilevel.counts import Counts, Layout
from discretion.bilevel.descent_report import DescentReport, Step
from discretion.bilevel.domains import Grid
from discretion.bilevel.first_order import gradient_descent, lbfgs
from discretion.bilevel.hypergradient import LinearSolver, implicit_gradient
from discretion.bilevel.losses import Problem
from discretion.bilevel.mechanism import ProblemMechanism, run_on
from discretion.bilevel.outputs import Output, check_output, public_output
from discretion.bilevel.problem import BilevelProblem
from discretion.bilevel.sensitivity import batch_shift, hypergradient_sensitivity, inexactness, lipschitz, smoothness
from discretion.bilevel.solvers import InnerSolver, newton
from discretion.gp import Ball, Box
from discretion.privacy import (
    GaussianDP,
    Ledger,
    PrivacyLoss,
    PublicError,
    Randomness,
    Release,
)
from discretion.privacy.frames import cleared
from discretion.privacy.lattice import lattice_spacing, to_lattice
from discretion.privacy.quiet import silent
from discretion.privacy.verification import Sentences

__all__ = [
    "Descent",
    "DescentRelease",
    "default_steps",
    "noisy_hypergradient",
]

Floats = NDArray[np.float64]

_SOLVERS: dict[str, InnerSolver] = {"newton": newton, "lbfgs": lbfgs, "gd": gradient_descent}
_ROUNDING = 1e-6  # of the sensitivity: sums and products of double precision in a hypergradient
_MOST_STEPS = 1000
_MOST_RATIO = 2.0**40  # of gradient and noise: the rounding of their sum is then at most 2^-12 of the noise

TOO_LONG = (
    "A gradient is so long that double precision would absorb its noise. Nothing is released; that this happened is an "
    "output that no guarantee covers."
)
LIMITS = (
    "Every iterate and every noisy hypergradient is public; the inner solution is not released.",
    "Run time depends on the records; so would a refusal: an accuracy not reached, a gradient too long.",
    "Floating point: the noise is a continuous Gaussian in double precision, whose last bits a public lattice hides.",
)


@dataclass(frozen=True, eq=False, repr=False)
class DescentRelease(Release):
    """The path of a private descent, and the point to use.

    Attributes:
        certificate: what it cost.
        x: the chosen point, (d,).
        path: x_0, ..., x_T, (T + 1, d).
        gradients: as released, (T, d).
        noise, sensitivities: of each step, (T,).
        facts: what it rests on.
    """

    x: Floats
    path: Floats
    gradients: Floats
    noise: Floats
    sensitivities: Floats
    facts: DescentReport

    def report(self) -> DescentReport:
        """Constants, break-down of sensitivity and cost, accuracies, and whether the run could be informative."""
        return self.facts


@dataclass(frozen=True, eq=False, kw_only=True)
class Descent(ProblemMechanism):
    """Noisy hypergradient descent, mu-GDP.

    Parameters
    ----------
    problem : BilevelProblem
        On a Box or Ball; joint or split. Its constants must allow implicit differentiation: no constrained inner
        problem, no clipped outer loss, no kink.
    mu, epsilon : float
        One of the two: what the run costs, ``epsilon`` at ``delta``.
    steps : int, optional
        T, by default `default_steps`.
    rate : float, optional
        eta; 1/(2 b_Phi) by default, which needs the constants of the smoothness.
    start : array (d_x,), optional
        Public; the middle of the domain by default.
    solver : {"newton", "lbfgs", "gd"} or callable, optional
        Inner solver; the problem's own by default. A callable is an `InnerSolver`; it is not believed but checked.
    linear : {"cg", "neumann", "dense"}, optional
        By default "cg" for problems given by losses, "dense" for families, which have their Hessian.
    accuracy : float
        Share of 2K/n that the errors of inner solution and linear solve may add, each: C alpha = l tau = accuracy 2K/n.
    batch : Counts or int, optional
        Each step solves and differentiates on a secret subset of so many of the records (split: of both parts), drawn
        anew: less work, and more noise for each step, which costs less; the gradient is biased. Replace neighbours
        only. ``steps`` is needed, ``mu`` is before sampling.
    contraction : float
        Of the schedule: more of the budget later, `budget.step_budgets`.
    output : {"tail", "window", "uniform"}
        The point to use, see `public_output`.
    delta : float
        At which the certificate states epsilon.
    unit : str
        The unit of privacy in words.

    Raises
    ------
    Refused
        The sensitivity does not hold or is not finite for this problem.
    MissingConstant
        A constant is needed that nobody declared.
    ValueError
        A parameter out of range.
    """

    problem: BilevelProblem
    mu: float | None = None
    epsilon: float | None = None
    steps: int | None = None
    rate: float | None = None
    start: Floats | None = None
    solver: str | InnerSolver | None = None
    linear: LinearSolver | None = None
    batch: Counts | int | None = None
    accuracy: float = 0.0025
    contraction: float = 0.0
    output: Output = "tail"
    delta: float = 1e-6
    unit: str = "one record"

    name = "private-hypergradient-descent"

    def __post_init__(self) -> None:
        self.problem.need_inner_domain()
        domain = self.problem.x_domain
        if isinstance(domain, Grid):
            raise ValueError("The domain is a finite list: use ExponentialMechanism, or give a Box or a Ball.")
        if self.problem.layout is Layout.SEPARABLE:
            raise ValueError("Every record has an inner problem of its own: use SeparableDescent.")
        if isinstance(self.solver, str) and self.solver not in _SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(_SOLVERS)}, or a callable; got {self.solver!r}.")
        if self.linear not in (None, "cg", "neumann", "dense"):
            raise ValueError(f'linear must be "cg", "neumann" or "dense"; got {self.linear!r}.')
        check_output(self.output)
        if not (0 < self.accuracy <= 1 and 0 <= self.contraction < 1):
            raise ValueError("accuracy must lie in (0, 1], contraction in [0, 1).")
        if self.steps is not None and (isinstance(self.steps, bool) or int(self.steps) != self.steps or self.steps < 1):
            raise ValueError(f"steps must be a whole number of at least 1; got {self.steps!r}.")
        _ = self.batches
        if not (math.isfinite(self.eta) and self.eta > 0):
            raise ValueError(f"rate must be a positive finite number; got {self.rate!r}.")
        if self.first.shape != (domain.dimension,) or not domain.contains(self.first[None])[0]:
            raise ValueError("start must be a point of the outer domain.")
        most = self.step(self.first).sensitivity / max(float(np.min(self.budgets)), 1e-300)
        if not most < 1e100:
            raise ValueError("A step has next to no budget, so that its noise is beyond all bounds: raise mu.")

    # --- public

    @cached_property
    def batches(self) -> Batches | None:
        """What steps see of the records, and cost, if not all."""
        if self.batch is None:
            return None
        return Batches.for_steps(self.batch, self.problem, self.steps, self.contraction, self.given(SUBSETS))

    @cached_property
    def scope(self) -> BilevelProblem:
        """The problem that a step solves: that of all records, or of a batch."""
        return self.problem if self.batches is None else self.problem.batched(self.batches.size)

    @cached_property
    def price(self) -> float:
        """mu of the run; with a batch, before sampling."""
        full = gaussian_budget(self.mu, self.epsilon, self.delta)
        if self.batches is None or self.epsilon is None:
            return full
        return self.batches.mu_within(self.epsilon, self.delta, full)

    @property
    def loss(self) -> PrivacyLoss:
        """mu-GDP for the whole run, by adaptive composition; less with a batch."""
        if self.batches is not None:
            return self.batches.loss(self.price)
        return GaussianDP(self.price, neighbours=self.neighbours, rule=self.given(RULE))

    @cached_property
    def first(self) -> Floats:
        """x_0."""
        if self.start is not None:
            return np.atleast_1d(np.asarray(self.start, dtype=np.float64))
        domain = self.problem.x_domain
        if isinstance(domain, Ball):
            return np.array(domain.center, dtype=np.float64)
        assert isinstance(domain, Box)
        return 0.5 * (np.array(domain.lower) + np.array(domain.upper))

    @cached_property
    def eta(self) -> float:
        """Step size."""
        if self.rate is not None:
            return float(self.rate)
        try:
            smooth = smoothness(self.problem.constants())
        except MissingConstant as error:
            raise MissingConstant(
                f"Give rate; without one 1/(2 b_Phi) would be used, which is not known. {error}"
            ) from None
        if not 0 < smooth < math.inf:
            raise Refused("b_Phi is 0 or not finite, so that it gives no step size: give rate.")
        return 0.5 / smooth

    @cached_property
    def budgets(self) -> Floats:
        """mu_t, (T,)."""
        steps = self.steps
        if steps is None:
            steps = default_steps(self.problem, self.price, self.step(self.first).sensitivity)
        return step_budgets(self.price, int(steps), self.contraction)

    def step(self, x: Floats) -> Step:
        """Sensitivity and accuracies at a public point x (d,).

        Raises:
            Refused: the bound does not hold, is not finite, or double precision does not reach the accuracy.
        """
        problem = self.scope
        c = problem.constants(x)
        exact, C = hypergradient_sensitivity(c, problem.counts), inexactness(c)
        if exact.value == 0.0:
            raise Refused("No record can move the hypergradient: descend without noise, on any public records.")
        if not math.isfinite(exact.value):
            raise Refused(
                "What one record does to the hypergradient has no finite bound here: bound the domain, or raise the "
                "least strong convexity."
            )
        allowed = self.accuracy * exact.value
        alpha = allowed / C if C > 0 else allowed  # any distance would do where C = 0
        tau = allowed / c.l if c.l > 0 else allowed
        tolerance = c.get("mu_g") * alpha
        if tolerance < 2.0 * problem.least_tolerance(x):
            raise Refused("Double precision does not reach the accuracy that this needs: raise accuracy or mu_g.")
        sensitivity = (exact.value + 2.0 * C * alpha + 2.0 * c.l * tau) * (1.0 + _ROUNDING)
        return Step(exact, C, alpha, tau, tolerance, sensitivity, c)

    def parameters(self) -> dict[str, Any]:
        """The public parameters as JSON data; of constants and sensitivity those of the first step."""
        first = self.step(self.first)
        return {
            "released": "All iterates and all noisy hypergradients, run",
            "problem": self.problem.parameters(),
            "mu": self.price,
            "steps": len(self.budgets),
            "rate": self.eta,
            "start": self.first.tolist(),
            "solver": self._solver_name,
            "linear": self.linear,
            "batch": None if self.batches is None else list(self.batches.size.parts),
            "constants": self.stated(first.constants),
            "sensitivity": first.sensitivity,
            "noise": first.sensitivity / float(self.budgets[0]),
            "accuracy": self.accuracy,
            "contraction": self.contraction,
            "output": self.output,
        }

    @property
    def _solver_name(self) -> str:
        """A public name: that of a callable from outside is not told."""
        if self.solver is None:
            return "own"
        return next((name for name, each in _SOLVERS.items() if self.solver in (name, each)), "user")

    def report(self) -> DescentReport:
        """What the run rests on, before any record is read."""
        first = self.step(self.first)
        steepest = expected = drift = fastest = longest = unknown = None
        with suppress(MissingConstant):
            longest = lipschitz(first.constants)
        try:
            c = self.problem.constants()
            steepest, smooth = lipschitz(c), smoothness(c)
            fastest = 1.0 / smooth if smooth > 0 else math.inf
            if self.batches is None:
                expected = math.sqrt(self._bound(steepest))
        except (MissingConstant, Refused) as error:
            unknown = str(error)
        if self.batches is not None:
            drift = first.inexactness * batch_shift(first.constants, self.scope.counts)
        return DescentReport(
            start=first,
            steps=len(self.budgets),
            mu=self.price,
            epsilon=self.loss.epsilon(self.delta),
            delta=self.delta,
            rate=self.eta,
            noise=first.sensitivity / float(self.budgets[0]),
            share=float((self.budgets[0] / self.price) ** 2),
            longest=longest,
            steepest=steepest,
            expected=expected,
            fastest=fastest,
            unknown=unknown,
            verified=self.problem.verified,
            batch=None if self.batches is None else self.scope.counts.total,
            drift=drift,
        )

    def _bound(self, steepest: float) -> float:
        """2 D0/(eta T) + B^2 + b_Phi eta d mean sigma^2, suprema over the domain; D0 <= L_Phi D_x."""
        c, domain = self.problem.constants(), self.problem.x_domain
        smooth, T = smoothness(c), len(self.budgets)
        if self.eta * smooth > 1.0 + 1e-12:
            return math.inf
        most = hypergradient_sensitivity(c, self.problem.counts).value * (1.0 + 4.0 * self.accuracy)
        spread = float(np.mean((most / self.budgets) ** 2))
        bias = 2.0 * self.accuracy * most
        fall = 2.0 * steepest * domain.diameter() / (self.eta * T)
        return fall + bias**2 + smooth * self.eta * domain.dimension * spread

    # --- with records

    @property
    def sentences(self) -> Sentences:
        """What its certificates state in words."""
        sampled = self.batches is not None
        return Sentences(
            enforced=(
                *self.problem.enforcements,
                "Every inner solution and linear solve has the accuracy that the noise allows for.",
                "The noise is a function of public parameters and of earlier releases.",
                *(("Which records a step sees is drawn anew, in secret, and it starts from public values.",) * sampled),
            ),
            declared=(
                *self.problem.declarations,
                *(("The inner solver keeps nothing from one step to the next.",) * (sampled and self._foreign)),
            ),
            limits=LIMITS,
        )

    @cleared
    @silent()
    def run(self, records: Any, randomness: Randomness) -> DescentRelease:
        """The run. Called by the ledger after the loss is reserved.

        Raises:
            InnerNotCertified: an accuracy was not reached.
        """
        held = self.problem.ingest(records)
        x, y, path, gradients, noise, moved = self.first, None, [self.first], [], [], []
        for mu in self.budgets:
            step = self.step(x)
            some = held if self.batches is None else self.problem.take(held, self.batches.draw(randomness))
            gradient, y = self._gradient(x, y, some, step)
            sigma = step.sensitivity / float(mu)
            if not np.linalg.norm(gradient) < _MOST_RATIO * sigma:
                raise PublicError(TOO_LONG)
            noisy = gradient + sigma * randomness.standard_normal(x.shape)
            gradients.append(to_lattice(noisy, lattice_spacing(sigma)))
            noise.append(sigma)
            moved.append(step.sensitivity)
            x = self.problem.x_domain.clamp((x - self.eta * gradients[-1])[None])[0]
            path.append(x)
        certificate = self.certificate(randomness)
        released = np.array(gradients)
        x = public_output(self.output, np.array(path), released, randomness)
        return DescentRelease(certificate, x, np.array(path), released, np.array(noise), np.array(moved), self.report())

    def _gradient(self, x: Floats, y: Floats | None, held: Any, step: Step) -> tuple[Floats, Floats | None]:
        """PRIVATE. The hypergradient at x, and the inner solution, where the next solve starts if it sees the same."""
        solver = _SOLVERS[self.solver] if isinstance(self.solver, str) else self.solver
        y = certified_inner(self.scope, x, held, step.tolerance, y, solver)
        linear = self.linear or ("cg" if isinstance(self.problem, Problem) else "dense")
        gradient = implicit_gradient(self.scope, x, y, held, step.tau, linear)
        if not np.isfinite(gradient).all():
            raise PublicError("A hypergradient is not finite: the problem or its constants are wrong.")
        return gradient, y if self.batches is None else None

    @property
    def _foreign(self) -> bool:
        """Whether an inner solver is from outside."""
        return callable(self.solver) or getattr(self.problem, "solver", None) is not None


def default_steps(problem: BilevelProblem, mu: float, sensitivity: float) -> int:
    """T = sqrt(8 b_Phi D0 / d) mu / Delta, at least 1 and at most 1000: the best for the bound, D0 = L_Phi D_x.

    Raises:
        MissingConstant: b_Phi or L_Phi is unknown; give steps.
    """
    c = problem.constants()
    try:
        gap = lipschitz(c) * problem.x_domain.diameter()
        best = math.sqrt(8.0 * smoothness(c) * gap / problem.x_domain.dimension) * mu / sensitivity
    except MissingConstant as error:
        raise MissingConstant(f"Without steps, their best number would be used. {error}") from None
    return max(1, min(_MOST_STEPS, math.floor(best + 0.5))) if math.isfinite(best) else _MOST_STEPS


@cleared
def noisy_hypergradient(
    problem: BilevelProblem,
    records: Any,
    *,
    ledger: Ledger | str | Path | None = None,
    randomness: Randomness | None = None,
    **options: Any,
) -> DescentRelease:
    """Descend privately along noisy hypergradients: see `Descent` for the options.

    `ledger` pays and books, one that exists or its path; `randomness` is the operating system's by default.
    """
    return run_on(Descent(problem=problem, **options), records, ledger, randomness)
