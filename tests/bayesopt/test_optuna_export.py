"""A search in Optuna: its public state, no number that was not released, and no best trial."""

import json
import math

import numpy as np
import pytest

from discretion.bayesopt import SGD, Integer, Linear, LocalSearch, Log, Logit, Study, to_optuna
from discretion.privacy import Ledger

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)

N = 40
SPACE = {
    "x": Linear(-2.0, 2.0),
    "rate": Log(1e-4, 1.0),
    "dropout": Logit(0.01, 0.9),
    "depth": Integer(1, 500),
    "width": Integer(8, 512, log=True),
}
RNG = np.random.default_rng(4)
SECRET = RNG.normal(size=N)


def losses(points):
    return np.column_stack([(point["x"] - SECRET) ** 2 + math.log(point["rate"]) ** 2 / 50 for point in points])


def study(steps=4, **kwargs):
    return Study(LocalSearch(SPACE, mu=1.0, steps=steps, clip=1.0, update=SGD(0.1), metric={"x": 4.0}), n=N, **kwargs)


def finished(found):
    while not found.done:
        found.tell(losses(found.ask()))
    return found


def test_a_trial_is_a_step_where_its_gradient_was_taken():
    found = finished(study())
    for source in (found, found.result()):
        exported = to_optuna(source, study_name="one")
        assert exported.study_name == "one"
        assert len(exported.trials) == 4
        for trial, step in zip(exported.trials, found.steps, strict=True):
            assert trial.state is optuna.trial.TrialState.PRUNED
            assert trial.params == found.search.space.parameters(step.theta)
            assert list(trial.user_attrs["gradient"].values()) == step.gradient.tolist()
            np.testing.assert_allclose(list(trial.user_attrs["noise"].values()), step.spread)
            assert trial.user_attrs["gradient_norm"] == pytest.approx(np.linalg.norm(step.gradient))
            assert trial.user_attrs["trace"] == pytest.approx(step.trace / step.prior)
            assert trial.user_attrs["evaluations"] == 6
        distributions = exported.trials[0].distributions
        assert distributions["rate"] == optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)
        assert distributions["depth"] == optuna.distributions.IntDistribution(1, 500)
        assert distributions["width"] == optuna.distributions.IntDistribution(8, 512, log=True)
        assert exported.user_attrs["parameters"] == found.result().parameters
        assert exported.user_attrs["certificate"]["n"] == N


def test_no_number_is_invented():
    exported = to_optuna(finished(study()))
    for trial in exported.trials:
        assert trial.values is None
        assert trial.intermediate_values == {}
    for best in ("best_trial", "best_value", "best_params"):
        with pytest.raises(ValueError, match="completed"):
            getattr(exported, best)
    assert "no best trial" in exported.user_attrs["note"]
    assert exported.trials_dataframe()["value"].isna().all()


def test_nothing_of_length_n_and_no_loss_is_exported():
    found = finished(study())
    mean = float(losses([found.result().parameters]).mean())
    text = json.dumps([[t.params, t.user_attrs] for t in to_optuna(found).trials] + [to_optuna(found).user_attrs])
    assert f"{mean:.6f}"[:7] not in text

    def longest(value):
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return max([len(value) if isinstance(value, list) else 0, *(longest(each) for each in values)])

    assert longest(json.loads(text)) < N


def breaking_off(chunk):
    yield chunk[:1]
    raise RuntimeError


def test_a_lost_step_is_a_failed_trial():
    found = study()
    found.tell(losses(found.ask()))
    found.ask()
    with pytest.raises(RuntimeError):
        found.tell(breaking_off(losses(found.ask())))
    found.tell(losses(found.ask()))
    states = [trial.state.name for trial in to_optuna(found).trials]
    assert states == ["PRUNED", "FAIL", "PRUNED"]
    assert "gradient" not in to_optuna(found).trials[1].user_attrs


def test_a_storage_keeps_it(tmp_path):
    ledger = Ledger.create(tmp_path / "l.sqlite", dataset="x", epsilon=6, delta=1e-5)
    url = f"sqlite:///{tmp_path}/optuna.sqlite"
    found = finished(study(ledger=ledger))
    to_optuna(found, storage=url, study_name="tuning")
    read = optuna.load_study(study_name="tuning", storage=url)
    assert len(read.trials) == 4
    assert read.user_attrs["certificate"]["ledger_entry"] == f"{ledger.id}#1"
    with pytest.raises(optuna.exceptions.DuplicatedStudyError):
        to_optuna(found, storage=url, study_name="tuning")


def test_a_study_that_never_stepped_is_an_empty_one():
    assert to_optuna(study()).trials == []
    with pytest.raises(TypeError, match="Study"):
        to_optuna(3)
