"""Bounds of the two losses and their derivatives, from which every sensitivity of a bilevel problem follows.

All are suprema over every record that could be held and over a public convex set Y that contains every inner solution,
never over the records that are held; either at one outer point x, or over the whole outer domain. For f(x, y, z), the
outer loss of a record, and g(x, y, z), the inner one:

    L_fx, L_fy              norms of grad_x f, grad_y f
    b_fxx, b_fxy, b_fyy     Lipschitz constants of grad_x f in x, of grad_x f in y (and grad_y f in x), of grad_y f in y
    mu_g                    strong convexity of g(x, ., z)
    L_gy                    norm of grad_y g
    b_gxy, b_gyy            norms of the mixed Hessian and of the yy Hessian of g
    r_xy, r_yy              Lipschitz constants of these two in y;   r_xy_x, r_yy_x   in x
    D_fx, D_fy, D_g,        largest difference between two records at one point of grad_x f, grad_y f, grad_y g and the
      D_gxy, D_gyy            two Hessians: by default 2 L_fx, 2 L_fy, 2 L_gy, 2 b_gxy, b_gyy - mu_g
    D_y                     largest distance of the inner solutions of one data set at two outer points: by default
                            L_gy / mu_g
    B_f                     largest difference of f between two records at one point
    S_f                     largest difference of any two values of f at one x, whatever the records and the y of Y

Proof notes: `docs/proofs/bilevel-sensitivity.md`. Source: Lowy and Liu (2025), whose constants are replaced by proved
ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

__all__ = ["Constants", "MissingConstant", "Refused"]

_DEFAULTS = {
    "D_fx": "L_fx",
    "D_fy": "L_fy",
    "D_g": "L_gy",
    "D_gxy": "b_gxy",
    "D_gyy": "b_gyy and mu_g",
    "D_y": "L_gy and mu_g",
}
_SINGLE = {"D_fx": "L_fx", "D_fy": "L_fy", "D_g": "one_g", "D_gxy": "one_gxy", "D_gyy": "one_gyy", "B_f": "one_f"}


class MissingConstant(ValueError):
    """A bound needs a constant that was not given. It is never guessed."""


class Refused(ValueError):
    """A bound does not hold for this problem, so it is not given."""


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The constants above; None is unknown. Those that are needed and unknown raise `MissingConstant`.

    Attributes:
        L_fx, ..., S_f: see the module. All at least 0, mu_g positive.
        one_g, one_gxy, one_gyy, one_f: for add/remove neighbours, where G = R(x, y) + (1/N) sum of up to N terms: norms
            of the gradient and the two Hessians of one term, and the largest |f|. There may be few terms: L_gy, b_gxy,
            b_gyy and the r_* are then bounds of R alone *and* of R with any one term added, mu_g of R alone.
        inner_unconstrained: whether the inner minimiser is a stationary point, in every data set.
        smooth: whether f is differentiable and g twice, with these Lipschitz constants: no kink (Huber, hinge, a
            clipped loss).
        single: whether the difference constants are bounds of one term, as `single_terms` makes them.

    Raises:
        ValueError: a constant that is negative or NaN, or mu_g that is not positive, not finite or above b_gyy.
    """

    L_fx: float | None = None
    L_fy: float | None = None
    b_fxx: float | None = None
    b_fxy: float | None = None
    b_fyy: float | None = None
    mu_g: float | None = None
    L_gy: float | None = None
    b_gxy: float | None = None
    b_gyy: float | None = None
    r_xy: float | None = None
    r_yy: float | None = None
    r_xy_x: float | None = None
    r_yy_x: float | None = None
    D_fx: float | None = None
    D_fy: float | None = None
    D_g: float | None = None
    D_gxy: float | None = None
    D_gyy: float | None = None
    D_y: float | None = None
    B_f: float | None = None
    S_f: float | None = None
    one_g: float | None = None
    one_gxy: float | None = None
    one_gyy: float | None = None
    one_f: float | None = None
    inner_unconstrained: bool = True
    smooth: bool = True
    single: bool = False

    def __post_init__(self) -> None:
        for name, value in self.known().items():
            number = float(value)
            if math.isnan(number) or number < 0 or (name == "mu_g" and number == 0):
                least = "positive" if name == "mu_g" else "at least 0"
                raise ValueError(f"The constant {name} must be {least}, not {value!r}.")
            object.__setattr__(self, name, number)
        if self.mu_g is not None and not self.mu_g < math.inf:
            raise ValueError("The constant mu_g must be finite.")
        if self.mu_g is not None and self.b_gyy is not None and self.mu_g > self.b_gyy * (1.0 + 1e-9):
            raise ValueError("mu_g and b_gyy contradict each other: the least curvature exceeds the largest.")
        for name in ("inner_unconstrained", "smooth", "single"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False.")

    def known(self) -> dict[str, float]:
        """The constants that were given, by name."""
        return {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) is not None and not isinstance(value, bool)
        }

    def described(self) -> dict[str, Any]:
        """What was given, as JSON data: infinity is "inf", and what holds by default is left out."""
        values = {name: "inf" if math.isinf(value) else value for name, value in self.known().items()}
        usual = {"inner_unconstrained": True, "smooth": True, "single": False}
        return values | {name: not default for name, default in usual.items() if getattr(self, name) is not default}

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Self:
        """The constants that `described` described."""
        given: dict[str, Any] = {name: math.inf if value == "inf" else value for name, value in description.items()}
        return cls(**given)

    def get(self, name: str) -> float:
        """One constant, or its default if it has one.

        Raises:
            MissingConstant: it is unknown, and so is what its default is made of.
        """
        value = getattr(self, name)
        if value is not None:
            return value
        parts = () if self.single or name not in _DEFAULTS else _DEFAULTS[name].split(" and ")
        if not parts or any(getattr(self, part) is None for part in parts):
            wanted = _SINGLE.get(name, name) if self.single else name
            instead = f", or {_DEFAULTS[name]} for its default" if parts else ""
            raise MissingConstant(
                f"The constant {wanted} is not known: give Constants({wanted}=...){instead}. It is a bound over every "
                "record that could be held; no value computed from the records at hand will do."
            )
        if name == "D_gyy":
            return max(self.get("b_gyy") - self.get("mu_g"), 0.0)
        if name == "D_y":
            return self.get("L_gy") / self.get("mu_g")
        return 2.0 * self.get(_DEFAULTS[name])

    @property
    def l(self) -> float:  # noqa: E743  (the usual name)
        """b_gxy / mu_g: how far the inner solution moves with x, at most, per unit."""
        return self.get("b_gxy") / self.get("mu_g")

    @property
    def w(self) -> float:
        """L_fy / mu_g: the longest solution v of H v = grad_y F."""
        return self.get("L_fy") / self.get("mu_g")

    @property
    def differentiable(self) -> bool:
        """Whether implicit differentiation is valid: the inner problem is unconstrained and nothing has a kink."""
        return self.inner_unconstrained and self.smooth

    def need_differentiable(self, what: str) -> None:
        """Refuse `what` where the hypergradient formula does not hold.

        Raises:
            Refused: a constrained inner problem, a clipped outer loss or a loss with a kink.
        """
        if not self.differentiable:
            reason = "the inner problem is constrained" if not self.inner_unconstrained else "a loss has a kink"
            raise Refused(
                f"{what} rests on implicit differentiation, which is false here: {reason}. What remains is the range "
                "of differences: the exponential mechanism on a finite list."
            )

    def single_terms(self) -> Self:
        """The constants for add/remove neighbours: a record is one term of a sum of at most N terms, divided by N.

        Every difference constant becomes the bound of one term, mu_g is that of R, and D_y has no default. S_f becomes
        that of f and 0, as an absent term is 0.
        """
        around = None if self.one_f is None else 2.0 * self.one_f if self.S_f is None else max(self.S_f, self.one_f)
        terms: dict[str, Any] = {"D_fx": self.L_fx, "D_fy": self.L_fy, "D_g": self.one_g, "D_gxy": self.one_gxy}
        terms |= {"D_gyy": self.one_gyy, "B_f": self.one_f, "S_f": around, "single": True}
        return replace(self, **terms)
