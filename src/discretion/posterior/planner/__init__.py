"""Which release makes the best map, forecast by simulation from public knowledge only."""

from discretion.posterior.planner.map_plan import MapPlan, Recommendation
from discretion.posterior.planner.plan import plan_map
from discretion.posterior.planner.posterior import plan_posterior
from discretion.posterior.planner.posterior_plan import PathChoice, PlannedPath, PosteriorPlan
from discretion.posterior.planner.priors import GaussianPrior, Prior, PublicTable
from discretion.posterior.planner.simulation import Candidate, Score

__all__ = [
    "Candidate",
    "GaussianPrior",
    "MapPlan",
    "PathChoice",
    "PlannedPath",
    "PosteriorPlan",
    "Prior",
    "PublicTable",
    "Recommendation",
    "Score",
    "plan_map",
    "plan_posterior",
]
