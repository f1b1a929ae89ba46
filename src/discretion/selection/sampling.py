"""Exact draws of the number of runs: no rounding enters its law.

K is the k with `P[K <= k - 1] <= U < P[K <= k]`, U a uniform number of which as many random bits are drawn as it takes
to place it between bounds of the running sums. These are computed in decimal arithmetic whose precision grows with the
bits. Expected cost: E K multiplications. Proof: `docs/proofs/selection-sampler.md`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Context, Decimal

from discretion.privacy import Randomness

__all__ = ["BetaBinomialTerms", "BinomialTerms", "FixedTerms", "NegativeBinomialTerms", "PoissonTerms", "Terms"]

_UNDECIDED, _BEYOND = -1, -2


class Terms(ABC):
    """The probabilities of a law of K one after the other, to any precision.

    Operators would round to the precision of the thread's own context, so every operation is one of `context`.
    """

    @abstractmethod
    def start(self, context: Context) -> tuple[int, Decimal]:
        """The least possible k and its probability, to 32 units of the context's precision."""

    @abstractmethod
    def ratio(self, k: int, context: Context) -> Decimal:
        """P[K = k + 1] / P[K = k], to 4 units of the context's precision."""

    def draw(self, randomness: Randomness, most: int | None = None) -> int:
        """K, given that it is at most `most` where there is such a cap."""
        while (drawn := self._once(randomness, most)) == _BEYOND:
            pass
        return drawn

    def _once(self, randomness: Randomness, most: int | None) -> int:
        """K, or `_BEYOND` where it exceeds `most`."""
        bits, count = _bits(randomness), 52
        while True:
            bits, count = (bits << 52) | _bits(randomness), count + 52
            # working precision: that of the bits and six digits more
            context = Context(prec=int(count * 0.30103) + 7)
            low = context.divide(Decimal(bits), Decimal(1 << count))
            high = context.divide(Decimal(bits + 1), Decimal(1 << count))
            found = self._locate(low, high, context, most)
            if found != _UNDECIDED:
                return found

    def _locate(self, low: Decimal, high: Decimal, context: Context, most: int | None) -> int:
        """Where a number of [low, high) lies among the running sums, or `_UNDECIDED`, or `_BEYOND` `most`."""
        unit = Decimal(10) ** (1 - context.prec)
        k, mass = self.start(context)
        total = mass
        while True:
            # relative errors: 32 units at the start, 6 more a step; of the two quotients one unit each
            slack = unit * (40 + 8 * k)
            if high <= context.subtract(total, slack):
                return k
            if low < context.add(total, slack):
                return _UNDECIDED
            if most is not None and k >= most:
                return _BEYOND
            mass = context.multiply(mass, self.ratio(k, context))
            total = context.add(total, mass)
            k += 1


def _bits(randomness: Randomness) -> int:
    """52 random bits: a uniform number is the midpoint of one of 2^52 equal cells."""
    return int(float(randomness.uniform()) * 2.0**52)


@dataclass(frozen=True)
class PoissonTerms(Terms):
    """p_0 = e^(-mean), p_(k+1) / p_k = mean / (k + 1)."""

    mean: float

    def start(self, context: Context) -> tuple[int, Decimal]:
        return 0, context.exp(Decimal(self.mean).copy_negate())

    def ratio(self, k: int, context: Context) -> Decimal:
        return context.divide(Decimal(self.mean), Decimal(k + 1))


@dataclass(frozen=True)
class NegativeBinomialTerms(Terms):
    """p_1 = eta (1 - gamma) / (gamma^(-eta) - 1), p_(k+1) / p_k = (1 - gamma) (k + eta) / (k + 1)."""

    shape: float
    gamma: float

    def start(self, context: Context) -> tuple[int, Decimal]:
        gamma, eta = Decimal(self.gamma), Decimal(self.shape)
        # as many guard digits as the subtractions cancel
        guard = 20 + max(0, -(1 - gamma).adjusted()) if gamma < 1 else 20
        guard += max(0, -eta.adjusted()) if eta else 0
        wide = Context(prec=context.prec + guard)
        rest = wide.subtract(Decimal(1), gamma)
        if not rest:
            return 1, Decimal(1)
        log = wide.ln(gamma).copy_negate()
        if not eta:
            return 1, context.divide(rest, log)
        raised = wide.exp(wide.multiply(eta, log))
        return 1, context.divide(wide.multiply(eta, rest), wide.subtract(raised, Decimal(1)))

    def ratio(self, k: int, context: Context) -> Decimal:
        rest = context.subtract(Decimal(1), Decimal(self.gamma))
        shifted = context.add(Decimal(k), Decimal(self.shape))
        return context.divide(context.multiply(rest, shifted), Decimal(k + 1))


@dataclass(frozen=True)
class BinomialTerms(Terms):
    """p_0 = (1 - p)^n, p_(k+1) / p_k = p (n - k) / ((1 - p) (k + 1))."""

    trials: int
    chance: float

    def start(self, context: Context) -> tuple[int, Decimal]:
        wide = Context(prec=context.prec + 20)
        log = wide.multiply(Decimal(self.trials), wide.ln(wide.subtract(Decimal(1), Decimal(self.chance))))
        return 0, context.exp(log)

    def ratio(self, k: int, context: Context) -> Decimal:
        odds = context.divide(Decimal(self.chance), context.subtract(Decimal(1), Decimal(self.chance)))
        return context.divide(context.multiply(odds, Decimal(self.trials - k)), Decimal(k + 1))


@dataclass(frozen=True)
class FixedTerms(Terms):
    """All mass at one k."""

    count: int

    def start(self, context: Context) -> tuple[int, Decimal]:
        # the whole mass and room to spare: every number below 1 lies here
        return self.count, Decimal(2)

    def ratio(self, k: int, context: Context) -> Decimal:
        return Decimal(0)


@dataclass(frozen=True)
class BetaBinomialTerms(Terms):
    """Binomial with a chance p of law P[p <= v] = v^g: p_0 = product of i / (i + g), i = 1..n, and p_(k+1) / p_k =
    (k + g) / (k + 1).
    """

    trials: int
    exponent: float

    def start(self, context: Context) -> tuple[int, Decimal]:
        # as many guard digits as factors are multiplied
        wide = Context(prec=context.prec + len(str(self.trials)) + 4)
        g, mass = Decimal(self.exponent), Decimal(1)
        for i in range(1, self.trials + 1):
            mass = wide.multiply(mass, wide.divide(Decimal(i), wide.add(Decimal(i), g)))
        return 0, mass

    def ratio(self, k: int, context: Context) -> Decimal:
        if k >= self.trials:
            return Decimal(0)
        return context.divide(context.add(Decimal(k), Decimal(self.exponent)), Decimal(k + 1))
