"""The public state of a search as an Optuna study: to look at with Optuna's tools, not to go on from.

Optuna asks a number of every trial that is COMPLETE, and there is none: no loss was released. So each step is a trial
that is PRUNED, which for Optuna means evaluated and given up before it had a value, at the parameters where its
gradient was taken; a step that was lost is one that FAILed. `best_trial` then raises, as it should. What was released
stands in the user attributes. The study has one direction, minimise, because Optuna needs one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discretion.bayesopt.public_path import PublicPath, public_path
from discretion.bayesopt.release import NO_BEST, LocalSearchRelease
from discretion.bayesopt.space import Dimension, Integer, Log
from discretion.bayesopt.study import Study

if TYPE_CHECKING:
    import optuna

__all__ = ["to_optuna"]


def to_optuna(
    source: Study | LocalSearchRelease, *, storage: Any = None, study_name: str | None = None
) -> optuna.Study:
    """Write the public state of a search into a new Optuna study.

    A trial's user attributes: `step`, `gradient` (by parameter, in loss per scaled unit), `gradient_norm`, `noise` (by
    parameter), `noise_norm`, `trace` (fraction of the prior), `evaluations`. The study's: `parameters` (the result),
    `certificate`, `note`.

    Args:
        source: a study, finished or not, or a release.
        storage: as in `optuna.create_study`: a URL, a storage, or None for memory.
        study_name: a name that is new in that storage.

    Raises:
        ImportError: Optuna is not installed: `pip install discretion[optuna]`.
        optuna.exceptions.DuplicatedStudyError: the name is taken.
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError("to_optuna needs Optuna: pip install discretion[optuna].") from error

    release = source.result() if isinstance(source, Study) else source
    path = public_path(source)
    study = optuna.create_study(storage=storage, study_name=study_name, direction="minimize")
    study.set_user_attr("note", NO_BEST)
    study.set_user_attr("parameters", dict(release.parameters))
    study.set_user_attr("certificate", release.certificate.data())
    distributions = {name: _distribution(each, optuna) for name, each in path.space.dimensions.items()}
    states = optuna.trial.TrialState
    for step in range(len(path)):
        study.add_trial(
            optuna.trial.create_trial(
                state=states.PRUNED if path.known[step] else states.FAIL,
                params=path.space.parameters(path.thetas[step]),
                distributions=distributions,
                user_attrs=_attributes(path, step),
            )
        )
    return study


def _attributes(path: PublicPath, step: int) -> dict[str, Any]:
    names = path.space.names
    attributes: dict[str, Any] = {
        "step": step,
        "noise": dict(zip(names, path.spread[step].tolist(), strict=True)),
        "noise_norm": float(path.noise_norms[step]),
        "trace": float(path.traces[step]),
        "evaluations": int(path.evaluations[step]),
    }
    if path.known[step]:
        attributes["gradient"] = dict(zip(names, path.gradients[step].tolist(), strict=True))
        attributes["gradient_norm"] = float(path.norms[step])
    return attributes


def _distribution(dimension: Dimension, optuna: Any) -> Any:
    """Optuna has no logit scale: such a parameter is on the plain one."""
    if isinstance(dimension, Integer):
        return optuna.distributions.IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return optuna.distributions.FloatDistribution(dimension.low, dimension.high, log=isinstance(dimension, Log))
