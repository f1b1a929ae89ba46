"""Private linear models as mechanisms: ridge regression and logistic regression.

Records are scaled to the unit ball first, one by one and by public bounds:

    x -> x / feature_bound, shortened to length 1; with an intercept (x, 1) / sqrt(2)
    y -> (y - centre) / half-range, clipped to [-1, 1]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from discretion.privacy import (
    Certificate,
    GaussianDP,
    Neighbours,
    PrivacyLoss,
    PublicError,
    Randomness,
    Release,
    RenyiCurve,
)
from discretion.privacy.frames import cleared
from discretion.privacy.records import check_labelled
from discretion.privacy.units import whose_rows
from discretion.selection.minimiser import BLOCK, logistic_minimiser

__all__ = [
    "LabelledRecords",
    "LogisticMechanism",
    "ModelRelease",
    "RidgeMechanism",
    "objective_perturbation_loss",
    "ridge_sensitivity",
]

Floats = NDArray[np.float64]

ONE_RECORD = "one record (its covariates and its response)"
"""The unit of privacy, if no other is named."""
_UNIT = 2.0**-53
_TOLERANCE = 1e-8
_FARTHEST = 10.0
"""No standard normal number of a `Randomness` is further from 0: their tails end at 2^-65."""
_POLISH = 0.01
"""Share of the noise's price that covers the inexact minimiser."""
_EXTREME = 1e60
"""Public parameters lie within this of 0, and of 1 over it if positive: then no release overflows."""
_LOWEST = math.log(1e-3)


@dataclass(frozen=True, eq=False, repr=False)
class LabelledRecords:
    """PRIVATE. `covariates` (n, d) and one `response` (n,) each, float64; for classes, their numbers from 0."""

    covariates: Floats
    response: Floats


@dataclass(frozen=True, eq=False, repr=False)
class ModelRelease(Release):
    """A released linear model.

    Attributes:
        certificate: what it cost.
        coefficients: array (problems, d), in the units of the data; a problem is a response, or a class against the
            rest (the second class where there are two).
        intercepts: array (problems,).
    """

    coefficients: Floats
    intercepts: Floats

    def decision(self, X: ArrayLike) -> Floats:
        """X @ coefficients' + intercepts, shape (m, problems)."""
        return np.asarray(X, dtype=np.float64) @ self.coefficients.T + self.intercepts


@dataclass(frozen=True, eq=False, kw_only=True)
class _LinearMechanism:
    """What both models share: public bounds, scaling, the relation, checks.

    Parameters
    ----------
    dimension : int
        Number of covariates d.
    feature_bound : float
        Public bound of their Euclidean length; longer rows are shortened to it.
    alpha : float
        Weight of the penalty alpha |w|^2 / 2 on the scaled problem, intercept included; positive.
    delta : float
        At which the certificate states epsilon, 0 < delta < 1.
    intercept : bool
        Whether the model has one.
    neighbours : Neighbours
        ``"replace"``: n is public. ``"add-remove"``: n is private.
    most_records : int
        Public bound of the number of records where n is private; rounding is accounted for so many.
    unit : str
        The unit of privacy in words.
    """

    dimension: int
    feature_bound: float
    alpha: float
    delta: float
    intercept: bool = True
    neighbours: Neighbours = Neighbours.REPLACE
    most_records: int = 1_000_000
    unit: str = ONE_RECORD

    name: ClassVar[str]
    strength: ClassVar[str]
    """The parameter that sets the noise."""

    def __post_init__(self) -> None:
        for label in ("feature_bound", "alpha", self.strength):
            value = float(getattr(self, label))
            if not 1e-60 <= value <= _EXTREME:
                raise ValueError(f"{label} must be a positive number of [1e-60, 1e60]; got {value!r}.")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1; got {self.delta!r}.")
        if Neighbours(self.neighbours) is Neighbours.REPLACE_RESPONSE:
            raise ValueError("Linear models have an account under 'replace' and 'add-remove' neighbours only.")
        object.__setattr__(self, "neighbours", Neighbours(self.neighbours))
        if self.dimension < 1 or self.most_records < 1:
            raise ValueError("dimension and most_records must be whole numbers of at least 1.")

    @property
    def n_is_public(self) -> bool:
        """Whether the number of records is public: everywhere but under add/remove."""
        return self.neighbours is not Neighbours.ADD_REMOVE

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON-able values."""
        return {
            "dimension": int(self.dimension),
            "feature_bound": float(self.feature_bound),
            "alpha": float(self.alpha),
            self.strength: float(getattr(self, self.strength)),
            "intercept": bool(self.intercept),
            "neighbours": self.neighbours.value,
            "most_records": None if self.n_is_public else int(self.most_records),
        }

    @cleared
    def check(self, records: LabelledRecords) -> int | None:
        """Refuse records of other shapes, not finite, or too many; their number where it is public."""
        check_labelled(records)
        X, y = records.covariates, records.response
        if X.ndim != 2 or X.shape[1] != self.dimension or y.shape != (len(X),):
            raise PublicError(
                f"Records must have covariates of shape (n, {self.dimension}) and response of shape (n,)."
            )
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise PublicError("Records must be finite; mend or remove those that are not by a public rule.")
        if not self.n_is_public and len(X) > self.most_records:
            raise PublicError(f"There are more than the declared {self.most_records:,} records; declare more.")
        return len(X) if self.n_is_public else None

    def privacy_loss(self, n: int | None = None) -> PrivacyLoss:
        raise NotImplementedError

    def _scaled(self, X: Floats) -> Floats:
        """Rows in the unit ball; a little inside, so that rounding does not lead out of it.

        A row is first divided by its largest absolute value, so that no finite row overflows.
        """
        largest = np.max(np.abs(X), axis=1, keepdims=True)
        X = X / np.where(largest > 0, largest, 1.0)
        length = np.linalg.norm(X, axis=1, keepdims=True) * (1 + (X.shape[1] + 16) * _UNIT)
        X = X * np.minimum(np.minimum(largest, self.feature_bound) / self.feature_bound, 1 / np.maximum(length, 1.0))
        return np.column_stack([X, np.ones(len(X))]) / math.sqrt(2.0) if self.intercept else X

    def _unscaled(self, W: Floats) -> tuple[Floats, Floats]:
        """Coefficients and intercepts in the units of the covariates, of rows W of the scaled problem."""
        if not self.intercept:
            return W / self.feature_bound, np.zeros(len(W))
        W = W / math.sqrt(2.0)
        return W[:, :-1] / self.feature_bound, W[:, -1]

    def _count(self, n: int | None) -> int:
        if not self.n_is_public:
            return int(self.most_records)
        if n is None:
            raise ValueError("The number of records is public here: give it as n.")
        return int(n)

    @property
    def response_enforced(self) -> str:
        """What is made of responses that should not be there, in the words of a certificate."""
        raise NotImplementedError

    def certificate(self, n: int | None, randomness: Randomness) -> Certificate:
        """The certificate of a model of n records, which it names where their number is public."""
        told = n if self.n_is_public else None
        cap = () if self.n_is_public else (f"There are at most {self.most_records:,} records.",)
        return Certificate.issue(
            self,  # pyright: ignore[reportArgumentType]
            n=told,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
            loss=self.privacy_loss(told),
            enforced=(
                f"Covariates are shortened to length {self.feature_bound:g}, row by row.",
                self.response_enforced,
                *cap,
            ),
            declared=whose_rows(self.unit),
            limits=("The last bits of the released numbers: the proof is for exact Gaussian noise.",),
        )


# --- Ridge ------------------------------------------------------------------------------------------


def ridge_sensitivity(neighbours: Neighbours) -> float:
    """Most that one record of the unit ball changes (sum x x^T, sum x y), in the Frobenius norm; |y| <= 1.

    3 / sqrt(2) where it is replaced, sqrt(2) where it is added or removed. Both are attained.
    Proof: `docs/proofs/private-ridge.md`.
    """
    return 3.0 / math.sqrt(2.0) if neighbours is Neighbours.REPLACE else math.sqrt(2.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class RidgeMechanism(_LinearMechanism):
    """Ridge regression from noisy sums of products (Vu and Slavkovic 2009; Wang 2018): Gaussian DP.

        A = sum x x^T + s E,   b = sum x y + s e,   s = sensitivity / mu,
        w = (A+ + alpha I)^-1 b

    E is symmetric with N(0, 1) on the diagonal and N(0, 1/2) beside it (a standard Gaussian of the symmetric
    matrices), e ~ N(0, I), and A+ is A with negative eigenvalues set to 0. All after A and b is post-processing: with
    the other parameters fixed, alpha could be tuned on A and b for free. Proof: `docs/proofs/private-ridge.md`.

    Parameters
    ----------
    response_range : (low, high)
        Public; responses are clipped to it, one by one.
    mu : float
        The price in Gaussian DP, positive: sensitivity over the standard deviation of the noise.
    dimension, feature_bound, alpha, delta, intercept, neighbours, most_records, unit
        As for every linear model here: see `LogisticMechanism`.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    response_range: tuple[float, float]
    mu: float

    name: ClassVar[str] = "private-ridge-regression"
    strength: ClassVar[str] = "mu"

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.response_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"response_range must be two finite numbers, low < high; got {low!r}, {high!r}.")
        if max(-low, high) > _EXTREME or high - low < 1e-60:
            raise ValueError("response_range must be within [-1e60, 1e60] and at least 1e-60 wide; rescale responses.")

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"response_range": [float(end) for end in self.response_range]}

    def privacy_loss(self, n: int | None = None) -> GaussianDP:
        """What one run costs: mu, and what rounding of the sums adds."""
        N = self._count(n)
        # |fl(X^T X) - X^T X| <= gamma_N |X|^T |X|, whose norm is at most N; likewise for the second sum; twice
        rounding = 2.0 * math.sqrt(2.0) * N * (N + 32) * _UNIT
        mu = self.mu * (1.0 + rounding / ridge_sensitivity(self.neighbours))
        return GaussianDP(mu, neighbours=self.neighbours, rule="Gaussian noise on sums of products")

    @property
    def response_enforced(self) -> str:
        low, high = self.response_range
        return f"Responses are clipped to [{low:g}, {high:g}]."

    @cleared
    def run(self, records: LabelledRecords, randomness: Randomness) -> ModelRelease:
        """The released model. Called by the ledger after the loss is reserved."""
        self.check(records)
        low, high = self.response_range
        X, centre, half = self._scaled(records.covariates), 0.5 * (low + high), 0.5 * (high - low)
        y = np.clip((np.clip(records.response, low, high) - centre) / half, -1.0, 1.0)
        size, noise = X.shape[1], ridge_sensitivity(self.neighbours) / self.mu
        G = randomness.standard_normal((size, size))
        A = X.T @ X + noise * (G + G.T) / 2.0
        b = X.T @ y + noise * randomness.standard_normal(size)
        values, vectors = np.linalg.eigh(A)
        w = vectors @ ((vectors.T @ b) / (np.maximum(values, 0.0) + self.alpha))
        coefficients, intercepts = self._unscaled(half * w[None, :])
        return ModelRelease(self.certificate(len(X), randomness), coefficients, intercepts + centre)


# --- Logistic ---------------------------------------------------------------------------------------


def objective_perturbation_loss(tau: float, alpha: float, neighbours: Neighbours) -> RenyiCurve:
    """What perturbing the objective of a logistic regression costs, for rows of the unit ball.

    With c = log(1 + 1/(4 alpha)), x = order - 1, and A_t = t U + t^2 / 2, U ~ N(0, 1):

        add/remove:  D <= c + log(E exp(x max(0, A_tau))) / x
        replace:     D <= c + log(1 + 2 E (exp(x A_tau) - 1)+ + E (exp(x A_2tau) - 1)+) / x

    The first is at most log 2 / x above what Gaussian noise on the gradient would cost. Proof, sharper than Redberg,
    Koskela and Wang (2023) because the slope of the logistic loss has one sign:
    `docs/proofs/objective-perturbation.md`.

    Args:
        tau: 1 over the standard deviation of the noise, positive.
        alpha: weight of the penalty alpha |w|^2 / 2, positive.
        neighbours: replace or add-remove.
    """
    determinant = math.log1p(0.25 / alpha)
    shifts = ((1, tau),) if neighbours is Neighbours.ADD_REMOVE else ((2, tau), (1, 2.0 * tau))

    def bound(x: Floats) -> Floats:
        # E (exp(x A_t) - 1)+ = exp(g) Phi((x + 1/2) t) - Phi(t/2),  g = x (x + 1) t^2 / 2, from parts that are positive
        square, parts = 0.5 * x * (x + 1.0), np.zeros(x.shape)
        top = square * shifts[-1][1] ** 2
        for count, t in shifts:
            g, inner, outer = square * t**2, ndtr((x + 0.5) * t), ndtr(0.5 * t)
            parts += count * (-np.expm1(-g) * np.exp(g - top) * inner + np.exp(-top) * (inner - outer))
        # log(1 + sum) with the largest power taken out
        moment = np.where(
            top < 30.0, np.log1p(parts * np.exp(np.minimum(top, 30.0))), top + np.log(parts + np.exp(-top))
        )
        return determinant + moment / x * (1.0 + 1e-12) + 1e-12

    # Where the bound falls with the order, what holds at the higher order is better.
    found: Any = minimize_scalar(
        lambda log: float(bound(np.exp([log]))[0]), bounds=(_LOWEST, -_LOWEST), method="bounded"
    )
    lowest = math.exp(found.x) if neighbours is Neighbours.REPLACE else math.exp(_LOWEST)

    def renyi(excess: Floats) -> Floats:
        x = np.maximum(excess, lowest)
        return np.where(x < 1e150, bound(np.minimum(x, 1e150)), np.inf)

    return RenyiCurve(renyi, neighbours=neighbours, rule="objective perturbation")


def logistic_loss(noise: float, alpha: float, neighbours: Neighbours, problems: int) -> PrivacyLoss:
    """The loss of so many problems: the perturbed objective, and the minimiser that is not quite one."""
    exact = objective_perturbation_loss(1.0 / noise, alpha, neighbours)
    polish = GaussianDP(_POLISH / noise, neighbours=neighbours, rule="inexact minimiser under output noise")
    return problems * (exact + polish)


@dataclass(frozen=True, eq=False, kw_only=True)
class LogisticMechanism(_LinearMechanism):
    """Logistic regression by objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011).

        w = argmin  sum log(1 + exp(-y x.w)) + alpha |w|^2 / 2 + g.w,      g ~ N(0, noise^2 I),   y = -1, 1

    With more than two classes there is one such problem for each class against the rest, with noise of its own, and
    each is paid for. The minimiser is found to a gradient of a public length (`tolerance`), whatever the records, and
    covered by a little noise of the output. Parameters with which double precision can't do so are refused by `check`.
    Proof: `docs/proofs/objective-perturbation.md`.

    Parameters
    ----------
    classes : int
        The number of classes, public, at least 2.
    dimension : int
        Number of covariates d.
    feature_bound : float
        Public bound of their Euclidean length; longer rows are shortened to it.
    alpha : float
        Weight of the penalty, intercept included; positive.
    noise : float
        Standard deviation of the noise g, positive: one record has a gradient of length 1 at most. The price is a
        little above that of Gaussian DP with mu = 1 / noise (add/remove) or 2 / noise (replace).
    delta : float
        At which the certificate states epsilon, 0 < delta < 1.
    intercept : bool
        Whether the model has one.
    neighbours : Neighbours
        ``"replace"``: n is public. ``"add-remove"``: n is private.
    most_records : int
        Public bound of the number of records where n is private; rounding is accounted for so many.
    unit : str
        The unit of privacy in words.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    noise: float
    classes: int = 2

    name: ClassVar[str] = "private-logistic-regression"
    strength: ClassVar[str] = "noise"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes < 2:
            raise ValueError("A logistic regression needs at least 2 classes, declared in public.")

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"classes": int(self.classes)}

    @property
    def problems(self) -> int:
        """One for two classes, else one for each class."""
        return 1 if self.classes == 2 else self.classes

    def privacy_loss(self, n: int | None = None) -> PrivacyLoss:
        """What one run costs: the perturbed objective and the inexact minimiser, for each problem.

        Raises:
            PublicError: double precision does not suffice (`tolerance`), where the number of records is known.
        """
        if n is not None or not self.n_is_public:
            self.tolerance(n)
        return logistic_loss(self.noise, self.alpha, self.neighbours, self.problems)

    def reach(self, n: int | None) -> float:
        """Most that the minimiser can be long, from public facts: 2 |g| / alpha + sqrt(2 n log 2 / alpha)."""
        noise = _FARTHEST * math.sqrt(self._size) * self.noise
        return 2.0 * noise / self.alpha + math.sqrt(2.0 * self._count(n) * math.log(2.0) / self.alpha)

    def tolerance(self, n: int | None) -> float:
        """Length of gradient at which the solver stops: 1e-8, or 16 times what rounding can do to it if that is more.

            rounding = u [N (min(N, 1024) + 32) + (N/4 + alpha) (d + 8) B + 8 N + 8 |g|],     B = `reach`

        Raises:
            PublicError: double precision does not suffice for alpha, noise, d and N, the public (bound of the) number.
        """
        N, d, B = self._count(n), self._size, self.reach(n)
        noise = _FARTHEST * math.sqrt(d) * self.noise
        summed = N * (min(N, BLOCK) + d + 32) * _UNIT
        rounding = summed + _UNIT * ((N / 4 + self.alpha) * (d + 8) * B + 8 * N + 8 * noise)
        # the curvature must be known to a part of alpha, the margins to a hundredth, the gradient to a part of a record
        if not (4 * summed <= self.alpha and (d + 8) * B * _UNIT <= 0.01 and 16 * rounding <= 0.1):
            raise PublicError(
                f"Double precision does not find the minimiser for alpha = {self.alpha:g}, noise = {self.noise:g} and "
                f"up to {N:,} records. Raise alpha, lower noise, or declare fewer records (most_records)."
            )
        return max(_TOLERANCE, 16 * rounding)

    def output_noise(self, n: int | None) -> float:
        """Standard deviation of the noise that covers an inexact minimiser: two lie up to 2 gradient / alpha apart."""
        # the computed gradient and what rounding did to it
        return 2.0 * (1 + 1 / 16) * self.tolerance(n) / self.alpha * self.noise / _POLISH

    @property
    def _size(self) -> int:
        return self.dimension + self.intercept

    @cleared
    def check(self, records: LabelledRecords) -> int | None:
        """As of `Checked`; labels must be among the declared classes too.

        Raises:
            PublicError: for their shape or type, a label, or more records than double precision has a minimiser for.
        """
        found = super().check(records)
        if not np.isin(records.response, np.arange(self.classes)).all():
            raise PublicError("Some records have a label that is not among the declared classes.")
        self.tolerance(len(records.covariates) if self.n_is_public else None)
        return found

    @property
    def response_enforced(self) -> str:
        return "Labels outside the declared classes are refused."

    @cleared
    def run(self, records: LabelledRecords, randomness: Randomness) -> ModelRelease:
        """The released model. Called by the ledger after the loss is reserved."""
        self.check(records)
        X, n = self._scaled(records.covariates), len(records.covariates)
        told = n if self.n_is_public else None
        noise, reach, tolerance = self.output_noise(told), self.reach(told), self.tolerance(told)
        positive = [1] if self.classes == 2 else range(self.classes)
        W = np.stack(
            [
                logistic_minimiser(
                    np.where(records.response == each, 1.0, -1.0)[:, None] * X,
                    self.alpha,
                    np.clip(randomness.standard_normal(X.shape[1]), -_FARTHEST, _FARTHEST) * self.noise,
                    reach,
                    tolerance,
                )
                for each in positive
            ]
        )
        coefficients, intercepts = self._unscaled(W + noise * randomness.standard_normal(W.shape))
        return ModelRelease(self.certificate(n, randomness), coefficients, intercepts)
