"""Published and specified experiments, each with its target."""

import numpy as np
import pytest

from studies.bayesopt_gaussian_mean import mean_row
from studies.bayesopt_huber import huber_rows
from studies.bayesopt_kernel_ridge import ridge_rows
from studies.bayesopt_run import NO_NOISE, expected_norm


@pytest.mark.slow
def test_gaussian_mean():
    row = mean_row(2.0, runs=20)
    assert row.distances.mean() == pytest.approx(row.theory, rel=0.15)
    error = row.distances.std(ddof=1) / np.sqrt(20)
    assert abs(row.distances.mean() - expected_norm(5) * row.theory) < 3 * error
    assert row.averages.mean() < 0.6 * row.distances.mean()


def test_gaussian_mean_without_noise():
    """The quadratic kernel knows quadratics once it has seen 21 points."""
    row = mean_row(NO_NOISE, runs=1)
    assert row.distances.max() < 5e-4
    assert row.biases[0] < 0.02
    assert row.biases[5:].max() < 1e-6


@pytest.mark.slow
def test_huber():
    rows = huber_rows()
    assert rows["local search"].mean() <= 1.10 * rows["noisy gradient descent"].mean()
    assert rows["local search, not private"].mean() < 0.003


@pytest.mark.slow
def test_kernel_ridge():
    rows = ridge_rows(3)
    assert rows.start.mean() > 0.25
    assert rows.private.mean() <= 0.06
    assert rows.random.mean() >= 1.5 * rows.private.mean()
