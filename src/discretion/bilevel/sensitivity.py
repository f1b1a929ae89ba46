"""How far one record moves the inner solution, the outer value and the hypergradient.

Notation of `constants.py`; n records enter the loss in question. Every bound is proved in
`docs/proofs/bilevel-sensitivity.md`; the constants that Lowy and Liu (2025) print for the regularised mechanism leave
out the change of the inner curvature and are not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from discretion.bilevel.constants import Constants, MissingConstant
from discretion.bilevel.counts import Counts

__all__ = [
    "Bound",
    "batch_shift",
    "hypergradient_error",
    "hypergradient_sensitivity",
    "inexactness",
    "inner_shift",
    "lipschitz",
    "penalty_bias",
    "range_bound",
    "smoothness",
    "value_change",
]


@dataclass(frozen=True)
class Bound:
    """A bound and its break-down.

    Attributes:
        value: at least 0, possibly inf.
        parts: what it is made of, by name, in the same unit.
        rule: how the parts make the value: "sum", "largest of the record types", "least"; or the part that it is.
    """

    value: float
    parts: dict[str, float] = field(hash=False)
    rule: str = "sum"

    def __post_init__(self) -> None:
        if math.isnan(self.value):  # such as 0 times inf
            object.__setattr__(self, "value", math.inf)


def inner_shift(c: Constants, counts: Counts) -> float:
    """|y_Z(x) - y_Z'(x)| <= D_g / (mu_g n), n training records. Also for a constrained inner problem. Attained.

    `c` and `counts` as in `hypergradient_sensitivity`; MissingConstant for D_g or mu_g.
    """
    return c.get("D_g") / (c.get("mu_g") * counts.training)


def batch_shift(c: Constants, counts: Counts) -> float:
    """Root of E |y_B(x) - y_Z(x)|^2, B a random subset of m training records of Z: at most D_g / (mu_g sqrt(2 m)).

    `docs/proofs/bilevel-descent.md`, section 4.
    """
    return c.get("D_g") / (c.get("mu_g") * math.sqrt(2.0 * counts.training))


def value_change(c: Constants, counts: Counts) -> Bound:
    """|Phi_Z(x) - Phi_Z'(x)| at one x, from constants at that x.

        joint   B_f / n + L_fy D_g / (mu_g n)
        split   the larger of L_fy D_g / (mu_g n_training) and B_f / n_validation
        both    S_f, where it is known: few records and small penalties exceed it

    Under add/remove B_f is the bound of |f|, and S_f holds 0 too. `c` and `counts` as in `hypergradient_sensitivity`.
    """
    parts = {
        "shift of the inner solution": c.get("L_fy") * inner_shift(c, counts),
        "the record's own outer loss": c.get("B_f") / counts.outer,
    }
    found = _over(counts, parts, training=("shift of the inner solution",))
    if c.S_f is None or found.value <= c.S_f:
        return found
    return Bound(c.S_f, parts | {"range of the outer loss": c.S_f}, "range of the outer loss")


def range_bound(c: Constants, counts: Counts, diameter: float) -> Bound:
    """sup - inf over x of Phi_Z(x) - Phi_Z'(x): the least of the bounds whose constants are known.

        joint   (2/n) (L_fx D_x + L_fy min(D_y, l D_x)) + 2 ((n-1)/n) L_fy D_g / (mu_g n)
        split   the larger of 2 L_fy D_g / (mu_g n_training) and
                (1/n_validation) min(2 (L_fx D_x + L_fy min(D_y, l D_x)), 2 B_f)
        both    2 sup_x |Phi_Z - Phi_Z'|, `value_change`
        both    D_x times `hypergradient_sensitivity`, where that holds

    Under add/remove the first bracket is counted once instead of twice. The range, not twice the change at an anchor,
    is what the exponential mechanism pays for.

    Args:
        c: suprema over the convex hull of the outer domain.
        counts: public.
        diameter: D_x of the outer domain, possibly inf.

    Raises:
        MissingConstant: no bound can be made of the constants that are known.
    """
    shift = 2.0 * c.get("L_fy") * inner_shift(c, counts)
    routes: dict[str, float] = {}
    missing: MissingConstant | None = None
    try:
        along = _least(lambda: c.get("D_y"), lambda: c.l * diameter)
        own = (1.0 if c.single else 2.0) * (_product(c.get("L_fx"), diameter) + c.get("L_fy") * along)
        if counts.validation is None:
            shared = 1.0 if c.single else (counts.training - 1) / counts.training
            routes["path of the inner solution"] = own / counts.training + shared * shift
        else:
            routes["path of the inner solution"] = max(shift, own / counts.validation)
    except MissingConstant as error:
        missing = error
    for name, route in (
        ("twice the change at a point", lambda: 2.0 * value_change(c, counts).value),
        ("hypergradient times diameter", lambda: diameter * hypergradient_sensitivity(c, counts).value),
    ):
        if name == "hypergradient times diameter" and not c.differentiable:
            continue
        try:
            routes[name] = route()
        except MissingConstant as error:
            missing = missing or error
    if not routes:
        raise missing or MissingConstant("No bound of the range can be made of these constants.")
    return Bound(min(math.inf if math.isnan(value) else value for value in routes.values()), routes, "least")


def hypergradient_sensitivity(c: Constants, counts: Counts) -> Bound:
    """|grad Phi_Z(x) - grad Phi_Z'(x)| at one x, from constants at that x: 2K/n.

        2K = D_fx + b_fxy D_g/mu_g + w (D_gxy + r_xy D_g/mu_g)
             + l [D_fy + b_fyy D_g/mu_g + w (D_gyy + r_yy D_g/mu_g)]

    In the split layout validation records have D_fx + l D_fy over their number, training records the rest over theirs,
    and the larger counts. `c` holds the constants, `counts` the public numbers of records.

    Raises:
        Refused: a constrained inner problem or a kink.
        MissingConstant: a constant is unknown.
    """
    c.need_differentiable("The sensitivity of the hypergradient")
    l, w, moved, n, m = c.l, c.w, c.get("D_g") / c.get("mu_g"), counts.training, counts.outer
    parts = {
        "outer gradient in x, own record": c.get("D_fx") / m,
        "outer gradient in x, shift of y": c.get("b_fxy") * moved / n,
        "mixed Hessian": w * (c.get("D_gxy") + c.get("r_xy") * moved) / n,
        "outer gradient in y, own record": l * c.get("D_fy") / m,
        "outer gradient in y, shift of y": l * c.get("b_fyy") * moved / n,
        "inner curvature": l * w * (c.get("D_gyy") + c.get("r_yy") * moved) / n,
    }
    return _over(counts, parts, training=tuple(name for name in parts if "own record" not in name))


def inexactness(c: Constants) -> float:
    """C = b_fxy + w r_xy + l (b_fyy + w r_yy): an inner error alpha moves the computed hypergradient by C alpha.

    Raises:
        Refused: a constrained inner problem or a kink.
    """
    c.need_differentiable("The error of the hypergradient")
    return c.get("b_fxy") + c.w * c.get("r_xy") + c.l * (c.get("b_fyy") + c.w * c.get("r_yy"))


def hypergradient_error(c: Constants, alpha: float, tau: float) -> float:
    """C alpha + l tau: error of a hypergradient from |y - y(x)| <= alpha and a linear solve with residual tau.

    Between two data sets it counts twice: the sensitivity is 2K/n + 2 C alpha + 2 l tau.
    """
    return inexactness(c) * alpha + c.l * tau


def smoothness(c: Constants) -> float:
    """b_Phi, a Lipschitz constant of grad Phi_Z, for every Z, from suprema over the domain.

        b_fxx + b_fxy l + w (r_xy^x + r_xy l) + l [b_fxy + b_fyy l + w (r_yy^x + r_yy l)]

    `c` as in `hypergradient_sensitivity`.

    Raises:
        Refused: a constrained inner problem or a kink.
    """
    c.need_differentiable("The smoothness of the outer objective")
    l, w = c.l, c.w
    first = c.get("b_fxx") + c.get("b_fxy") * l + w * (c.get("r_xy_x") + c.get("r_xy") * l)
    return first + l * (c.get("b_fxy") + c.get("b_fyy") * l + w * (c.get("r_yy_x") + c.get("r_yy") * l))


def lipschitz(c: Constants) -> float:
    """L_Phi = L_fx + l L_fy, a Lipschitz constant of Phi_Z."""
    return c.get("L_fx") + c.l * c.get("L_fy")


def penalty_bias(c: Constants, weight: float) -> float:
    """How far the penalty method's gradient can be from grad Phi, at penalty weight `weight` (lambda).

        (L_fy / (lambda mu_g)) [b_fxy + l b_fyy + (L_fy / (2 mu_g)) (r_xy + l r_yy)]

    Raises:
        Refused: a constrained inner problem or a kink.
    """
    c.need_differentiable("The bias of the penalty method")
    first = c.get("b_fxy") + c.l * c.get("b_fyy")
    return c.w / weight * (first + 0.5 * c.w * (c.get("r_xy") + c.l * c.get("r_yy")))


def _over(counts: Counts, parts: dict[str, float], training: tuple[str, ...]) -> Bound:
    """Parts added up, or in the split layout the larger of the training parts and the others."""
    if counts.validation is None:
        return Bound(sum(parts.values()), parts)
    inner = sum(value for name, value in parts.items() if name in training)
    outer = sum(value for name, value in parts.items() if name not in training)
    total = math.inf if math.isnan(inner) or math.isnan(outer) else max(inner, outer)
    return Bound(total, parts, "largest of the record types")


def _product(slope: float, diameter: float) -> float:
    """slope times diameter, 0 where the slope is 0, whatever the diameter."""
    return 0.0 if slope == 0 else slope * diameter


def _least(*routes: Callable[[], float]) -> float:
    """The least of those that are known."""
    found, missing = [], None
    for route in routes:
        try:
            found.append(route())
        except MissingConstant as error:
            missing = error
    if not found:
        assert missing is not None
        raise missing
    return min(found)
