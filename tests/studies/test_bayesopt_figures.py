"""Figures and tables of studies of private local search."""

import csv
from functools import partial

import numpy as np
import pytest

from benchmarks.bayesopt_baselines import finite_differences, local_search
from studies import bayesopt_gaussian_mean, bayesopt_huber
from studies.bayesopt_figures import bands, study, summary
from studies.bayesopt_gp_samples import gp_sample
from studies.bayesopt_svr import houses


def test_bands():
    assert summary(np.arange(41.0)) == (1.0, 20.0, 39.0)
    assert bands(np.arange(41.0)) == "20 (1 to 39)"


def test_a_study_draws_and_writes(tmp_path):
    """A row a task and method; figures are those of what was released."""
    methods = {"local search": local_search, "differences": finite_differences}
    tasks = {"two": partial(gp_sample, d=2), "three": partial(gp_sample, d=3)}
    study("draws", tasks, tmp_path, 2, methods=methods, points=3, log=False)
    assert (tmp_path / "draws.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "draws.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["task"], row["method"]) for row in rows] == [(t, m) for t in tasks for m in methods]
    samples = [gp_sample(seed, 3) for seed in range(2)]
    ends = [task.fresh(finite_differences(task, seed).released) for seed, task in enumerate(samples)]
    assert float(rows[3]["mean"]) == pytest.approx(np.mean(ends), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), [(bayesopt_gaussian_mean, "gaussian_mean"), (bayesopt_huber, "huber")])
def test_mains(module, name, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["study", "--out", str(tmp_path), "--runs", "2"])
    module.main()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.csv", f"{name}.png"]


def test_the_table_of_houses():
    X, y = houses()
    assert X.shape == (25357, 8)
    assert np.isfinite(X).all()
    assert (np.exp(y.min()), np.exp(y.max())) == (pytest.approx(2000), pytest.approx(875000))
