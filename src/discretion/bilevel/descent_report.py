"""What a noisy hypergradient descent rests on, in numbers and in words: public, and known before a record is read."""

from __future__ import annotations

from dataclasses import dataclass

from discretion.bilevel.constants import Constants
from discretion.bilevel.sensitivity import Bound

__all__ = ["DescentReport", "Step"]


@dataclass(frozen=True)
class Step:
    """What one step at a public point rests on: all public.

    Attributes:
        exact: 2K/n, of the exact hypergradient, with its break-down.
        inexactness: C.
        alpha: distance of the inner solution. tau: residual of the linear solve. tolerance: mu_g alpha.
        sensitivity: 2K/n + 2 C alpha + 2 l tau, rounding included.
        constants: at the point.
    """

    exact: Bound
    inexactness: float
    alpha: float
    tau: float
    tolerance: float
    sensitivity: float
    constants: Constants


@dataclass(frozen=True)
class DescentReport:
    """What a run rests on: all public, and known before a record is read.

    Attributes:
        start: what the first step rests on.
        steps: T. mu: of the run. epsilon, delta: what it costs. rate: eta.
        noise: sigma of the first step in each coordinate.
        share: mu_t^2 / mu^2 of the first step, for the break-down of the cost.
        longest: most that a hypergradient at the start is long; None if unknown.
        steepest: L_Phi, most that a hypergradient is long anywhere; None if unknown.
        expected: root of the bound of the mean squared hypergradient over the steps, where the walls of the domain are
            not met; None where constants are missing. Above `steepest` it promises nothing.
        fastest: 1/b_Phi, the largest rate for which there is such a bound; None if unknown.
        unknown: why there is no bound, in words, where constants are missing.
        verified: whether the constants are facts made true by clipping.
        batch: how many records a step sees, if not all.
        drift: how far the inner solution of a batch alone can lead its hypergradient astray, root mean square.
        certified: whether every accuracy is checked while running.
        start_is_chosen: whether epsilon is also for the choice of the start.
    """

    start: Step
    steps: int
    mu: float
    epsilon: float
    delta: float
    rate: float
    noise: float
    share: float
    longest: float | None
    steepest: float | None
    expected: float | None
    fastest: float | None
    unknown: str | None
    verified: bool
    batch: int | None = None
    drift: float | None = None
    certified: bool = True
    start_is_chosen: bool = False

    @property
    def informative(self) -> bool | None:
        """Whether the bound promises a hypergradient shorter than the constants do; None if unknown."""
        return None if self.expected is None or self.steepest is None else self.expected < self.steepest

    def text(self) -> str:
        """For a person."""
        s = self.start
        parts = ", ".join(f"{name} {value:.3g}" for name, value in s.exact.parts.items() if value)
        choice = ", the choice of the start included" if self.start_is_chosen else ""
        lines = [
            f"{self.steps} steps of rate {self.rate:.4g}, mu = {self.mu:.4g}: epsilon {self.epsilon:.4g} at delta "
            f"{self.delta:g}{choice}; the first step has {100 * self.share:.3g} % of mu^2.",
            f"One record moves the hypergradient at the start by at most {s.sensitivity:.4g}: {s.exact.value:.4g} "
            f"exactly ({s.exact.rule}: {parts}), the rest for inner solutions off by {s.alpha:.3g} and residuals "
            f"of {s.tau:.3g}.",
            f"Noise at the start {self.noise:.4g} in each coordinate"
            + ("." if self.longest is None else f"; no hypergradient is longer than {self.longest:.4g} there."),
        ]
        if self.batch is not None and self.drift is not None:
            lines += [
                f"A step sees {self.batch:,} records, drawn in secret. That its inner solution is not that of all "
                f"leads the hypergradient astray by up to {self.drift:.3g} (root mean square)."
            ]
        if self.expected is not None and self.steepest is not None:
            verdict = "" if self.informative else " It promises nothing: more records, or a larger epsilon, are needed."
            if self.fastest is not None and self.rate > self.fastest * (1.0 + 1e-12):
                verdict = (
                    f" There is no bound at rates above 1/b_Phi = {self.fastest:.3g}; that says nothing of the run."
                )
            lines += [
                f"Bound of the root mean squared hypergradient {self.expected:.3g}; none is longer than "
                f"{self.steepest:.3g}.{verdict}"
            ]
        if self.unknown is not None:
            lines += [f"No bound of the hypergradient. {self.unknown}"]
        lines += ["The constants are facts: records are clipped." if self.verified else "You answer for the constants."]
        lines += ["Inner solutions and linear solves are certified." if self.certified else "NOT CERTIFIED."]
        return "\n".join(lines)

    __str__ = text
