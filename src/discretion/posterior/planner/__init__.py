"""Which release makes the best map, forecast by simulation from public knowledge only."""

from discretion.posterior.planner.plan import MapPlan, Recommendation, plan_map
from discretion.posterior.planner.priors import GaussianPrior, Prior, PublicTable
from discretion.posterior.planner.simulation import Candidate, Score

__all__ = ["Candidate", "GaussianPrior", "MapPlan", "Prior", "PublicTable", "Recommendation", "Score", "plan_map"]
