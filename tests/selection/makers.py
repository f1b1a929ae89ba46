"""Small mechanisms and laws for the tests of private selection."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from dataclasses import dataclass

import numpy as np

from discretion.privacy import Certificate, GaussianDP, Neighbours, PublicError, Release
from discretion.selection import Poisson


@dataclass(frozen=True, eq=False, repr=False)
class Mean(Release):
    value: np.ndarray


@dataclass(frozen=True, eq=False)
class MeanMechanism:
    """The mean of numbers of [0, 1], rounded by `digits` after noise; noisy, loud and sometimes failing."""

    mu: float = 0.5
    shift: float = 0.0
    fails: str = ""
    loud: bool = False
    exact: bool = False
    seconds: float = 0.0
    delta: float = 1e-6
    neighbours: Neighbours = Neighbours.REPLACE

    name = "mean"
    unit = "one number"

    def privacy_loss(self, n):
        return GaussianDP(self.mu, neighbours=self.neighbours)

    def parameters(self):
        return {"mu": self.mu, "shift": self.shift}

    def check(self, records):
        if not np.isfinite(records).all():
            raise PublicError("Records must be finite.")
        return len(records) if self.neighbours is Neighbours.REPLACE else None

    def run(self, records, randomness):
        if self.loud:
            print("RUN")
            print("RUN", file=sys.stderr)
            warnings.warn("RUN", stacklevel=1)
            logging.getLogger("run").error("RUN")
        if self.fails == "error":
            raise RuntimeError(f"{records[0]}")
        if self.fails == "interrupt":
            raise KeyboardInterrupt
        if self.fails == "nan":
            return Mean(self._certificate(len(records), randomness), np.array(np.nan))
        if self.seconds:
            time.sleep(self.seconds)
        noise = 0.0 if self.exact else float(randomness.standard_normal()) / (len(records) * self.mu)
        value = self.shift if self.exact else float(np.mean(records)) + self.shift + noise
        return Mean(self._certificate(len(records), randomness), np.array(value))

    def _certificate(self, n, randomness):
        return Certificate.issue(
            self,
            n=n if self.neighbours is Neighbours.REPLACE else None,
            delta=self.delta,
            unit=self.unit,
            randomness=randomness,
            loss=self.privacy_loss(n),
            enforced=("Numbers lie in [0, 1].",),
        )


@dataclass(frozen=True)
class Forced(Poisson):
    """A Poisson law that draws what it is told, and looks like any other from outside."""

    def sample(self, randomness):
        return self.__dict__["drawn"]


def forced(drawn, mean=3.0):
    law = Forced(mean)
    law.__dict__["drawn"] = drawn
    return law
