"""A bare seed, which other libraries take, is no source of noise: every fit says so before a record is read."""

import numpy as np
import pytest

from discretion.bilevel import HuberRidgeCV, LogisticRegressionCV, RidgeCV
from discretion.gp import RBF, Box
from discretion.posterior import KernelSum, PosteriorSampler
from discretion.selection.learners import PrivateRidge

BOX = Box((0.0, 0.0), (1.0, 1.0))


@pytest.mark.parametrize(
    "estimator",
    [
        KernelSum(domain=BOX, response_range=(0, 1), kernel=RBF(0.2), epsilon=1.0, delta=1e-5, grid=(5, 5)),
        PosteriorSampler(domain=BOX, response_range=(0, 1), kernel=RBF(0.2), ridge=5.0, scale=1.0, grid=(5, 5)),
        RidgeCV(),
        HuberRidgeCV(),
        LogisticRegressionCV(classes=[0.0, 1.0]),
        PrivateRidge(mu=1.0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_seed_is_refused(estimator):
    X, y = np.full((40, 2), 0.5), np.tile([0.0, 1.0], 20)
    with pytest.raises(TypeError, match="randomness must be a source of noise, not int"):
        estimator.set_params(randomness=3).fit(X, y)
