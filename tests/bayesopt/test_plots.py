"""Tables and plots of the public state, from a study and from its release."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from discretion.bayesopt import (
    SGD,
    Integer,
    Linear,
    LocalSearch,
    Log,
    Logit,
    PublicPath,
    Space,
    Study,
    StudyError,
    plots,
    public_path,
)
from discretion.gp import RBF
from discretion.privacy import SeededRandomness

N = 2000
SPACE = {"x": Linear(-2.0, 2.0), "rate": Log(1e-4, 1.0), "dropout": Logit(0.01, 0.9)}
SPACE["width"] = Integer(8, 512, log=True)
SECRET = np.random.default_rng(4).normal(size=N) * 0.1


def loss(point):
    return (point["x"] - 1.0 - SECRET) ** 2 + 0.2 * (math.log10(point["rate"]) + 1.0) ** 2


def finished(steps=12, mu=4.0, **changes):
    fields = {"clip": 2.0, "update": SGD(0.06), "kernel": RBF(0.5)} | changes
    study = Study(LocalSearch(SPACE, mu=mu, steps=steps, **fields), n=N, randomness=SeededRandomness(5))
    while not study.done:
        study.tell(np.column_stack([loss(point) for point in study.ask()]))
    return study


@pytest.fixture(scope="module")
def study():
    return finished()


def drawn(axes):
    """The picture, which must not be blank."""
    figure = axes if isinstance(axes, Figure) else axes.figure
    figure.canvas.draw()
    assert np.asarray(figure.canvas.buffer_rgba()).std() > 1


def test_the_path_is_the_same_from_a_study_and_its_release(study):
    one, other = public_path(study), public_path(study.result())
    assert one.space == other.space or one.space.describe() == other.space.describe()
    for name in ("thetas", "last", "gradients", "spread", "evaluations", "traces"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_allclose(one.spread, [step.spread for step in study.steps])
    np.testing.assert_array_equal(one.thetas, [step.theta for step in study.steps])
    np.testing.assert_array_equal(one.last, study.theta)
    with pytest.raises(TypeError, match="LocalSearchRelease"):
        public_path(3)


def test_a_space_is_read_back_from_its_description():
    space = Space(SPACE | {"y": Linear(0, 3, unit=0.5), "k": Integer(1, 9)})
    again = Space.described(space.describe())
    assert again.describe() == space.describe()
    theta = np.random.default_rng(0).uniform(-0.5, 0.5, 6)
    assert again.parameters(theta) == space.parameters(theta)


def test_a_path_in_a_metric_has_its_noise():
    metric = finished(steps=2, metric={"rate": 16.0})
    np.testing.assert_allclose(public_path(metric.result()).spread, [step.spread for step in metric.steps])


def test_the_table_has_no_value(study):
    rows = plots.trials(study)
    assert len(rows) == 12
    assert rows[3]["x"] == study.search.space.parameters(study.steps[3].theta)["x"]
    assert rows[3]["gradient_norm"] == pytest.approx(np.linalg.norm(study.steps[3].gradient))
    assert rows[3]["noise_norm"] == pytest.approx(study.steps[3].noise_norm)
    assert not any(word in key for key in rows[0] for word in ("value", "loss", "best", "objective"))


def test_importance_finds_what_matters(study):
    shares = public_path(study).importance()
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["x"] > shares["rate"] > max(shares["dropout"], shares["width"])
    assert shares["dropout"] < 0.02


def test_importance_of_noise_is_unbiased():
    spread = np.full((4000, 2), 0.5)
    noise = np.random.default_rng(1).normal(size=(4000, 2)) * 0.5
    base = {"last": np.zeros(2), "thetas": np.zeros((4000, 2)), "spread": spread}
    base |= {"evaluations": np.zeros(4000, dtype=int), "traces": np.zeros(4000)}
    space = Space({"a": Linear(0, 1), "b": Linear(0, 1)})
    shares = PublicPath(space=space, gradients=noise + np.array([0.3, 0.1]), **base).importance()
    assert shares["a"] == pytest.approx(0.9, abs=0.1)
    silent = PublicPath(space=space, gradients=np.zeros((4000, 2)), **base)
    assert all(np.isnan(share) for share in silent.importance().values())
    drawn(plots.importance(silent))


def test_the_surrogate_has_its_minimum_near_the_true_one(study):
    for source in (study, study.result()):
        surrogate = public_path(source).surrogate(RBF(0.5))
        found = study.search.space.parameters(surrogate.minimum(study.search.space.bounds))
        assert found["x"] == pytest.approx(1.0, abs=0.5)


@pytest.mark.parametrize("draw", [plots.path, plots.gradients, plots.traces, plots.importance, plots.overview])
def test_every_plot_is_drawn_from_both(study, draw):
    drawn(draw(study))
    drawn(draw(study.result()))


def test_plots_say_what_they_show(study):
    axes = plots.gradients(study)
    released, noise = axes.get_lines()
    np.testing.assert_allclose(released.get_ydata(), [np.linalg.norm(step.gradient) for step in study.steps])
    np.testing.assert_allclose(noise.get_ydata(), [step.noise_norm for step in study.steps])
    lines = plots.path(study).get_lines()
    assert [line.get_label() for line in lines] == list(SPACE)
    assert all(((line.get_ydata() >= 0) & (line.get_ydata() <= 1)).all() for line in lines)
    assert len(lines[0].get_ydata()) == 13


def test_contours_are_in_the_units_of_the_parameters(study):
    axes = plots.contour(study, "rate", "x")
    drawn(axes)
    assert axes.get_xscale() == "log"
    assert axes.get_ylim() == pytest.approx((-2, 2), abs=0.1)
    for x, y in (("dropout", "width"), ("x", "dropout")):
        drawn(plots.contour(study.result(), x, y))
    for x, y in (("x", "x"), ("x", "nothing")):
        with pytest.raises(ValueError, match="two different parameters"):
            plots.contour(study, x, y)


def breaking_off(Z):
    """A chunk, after which the computation of losses fails."""
    yield np.zeros((1, len(Z)))
    raise RuntimeError


def test_lost_steps_are_marked_and_nothing_is_needed():
    study = Study(LocalSearch(SPACE, mu=1.0, steps=3, clip=1.0), n=N)
    drawn(plots.overview(study))
    with pytest.raises(StudyError, match="released"):
        plots.contour(study, "x", "rate")
    study.ask()
    with pytest.raises(RuntimeError):
        study.tell(breaking_off(study.asked))
    axes = plots.gradients(study)
    drawn(axes)
    assert len(axes.get_lines()) == 3
    assert plots.trials(study)[0]["lost"] is True
