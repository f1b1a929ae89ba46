"""A local page to choose a budget by looking: prices from public parameters, maps from simulated worlds, no records."""

from discretion.report.explorer.model import RANGES, Setting, certified, prices, world
from discretion.report.explorer.server import Explorer

__all__ = ["RANGES", "Explorer", "Setting", "certified", "prices", "world"]
