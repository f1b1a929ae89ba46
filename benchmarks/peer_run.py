"""One peer on one piece of work, in a process of its own (`benchmarks.peers` starts it):

    python -m benchmarks.peer_run SETTING PEER REFERENCE     PEER may be "floor" or "reference"

Prints a line of JSON whenever something is known, so that what was measured before a failure is not lost. A call of
more than 120 s of cpu ends the process.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peer_engines import PEERS, Draw, Drawn
from benchmarks.peer_work import SETTINGS, Array, Setting, data, reference

MOST_SECONDS = 120
ENOUGH_SECONDS = 30
"""No further repetition is begun once the timed calls took so long together."""
WARM_SECONDS = 5
"""A first call that takes less is not counted."""
TICKS_SECONDS = 0.3
"""Calls that take less are timed several at once: the clock of some systems is coarse."""


def peak() -> float:
    """Largest resident memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def tell(**found: Any) -> None:
    """Print what is known now."""
    print(json.dumps(found), flush=True)


def timed(draw: Draw) -> tuple[float, Drawn]:
    """Cpu seconds of a call of at most 120; more ends the process (SIGXCPU)."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    start = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(start) + MOST_SECONDS, hard))
    try:
        drawn = draw()
        return time.process_time() - start, drawn
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))


def measure(setting: Setting, draw: Draw) -> Drawn:
    """Time the calls; a few lines of JSON. Work that is there for its digits is done once and not timed."""
    seconds, drawn = timed(draw)
    finite = bool(np.isfinite(drawn.path).all())
    if setting.digits:
        tell(finite=finite)
        return drawn
    times = [seconds] if seconds >= WARM_SECONDS else []
    at_once = max(1, int(TICKS_SECONDS / max(seconds, 1e-3)))
    while len(times) < setting.repetitions and sum(times) < ENOUGH_SECONDS:
        seconds = 0.0
        for _ in range(at_once):
            del drawn
            once, drawn = timed(draw)
            seconds += once / at_once
        times.append(seconds)
    tell(seconds=statistics.median(times), times=times, peak_mib=peak(), finite=finite)
    if drawn.extend is not None and setting.further:
        start = time.process_time()
        drawn.extend()
        tell(further_seconds=time.process_time() - start)
    return drawn


def compare(drawn: Drawn, mean: Array, covariance: Array) -> None:
    """Largest differences from the reference: of the mean, of covariances, and of the path where it can be rebuilt."""
    found_mean, found_covariance = map(np.asarray, drawn.moments())
    columns = min(found_covariance.shape[1], covariance.shape[1])
    off = np.abs(found_covariance[:, :columns] - covariance[:, :columns]).max()
    tell(mean_error=_number(np.abs(found_mean - mean).max()), covariance_error=_number(off))
    if drawn.normals is not None and drawn.nugget > 0:
        C = np.linalg.cholesky(covariance + drawn.nugget * np.eye(len(mean)))
        tell(path_error=_number(np.abs(drawn.path - mean - C @ drawn.normals).max()))


def _number(value: Any) -> float | None:
    """JSON has no NaN."""
    return float(value) if np.isfinite(value) else None


def main() -> None:
    """Measure one."""
    warnings.simplefilter("ignore")
    name, peer, at = sys.argv[1:]
    setting = SETTINGS[name]
    if peer == "floor":
        from benchmarks.floor import floor

        tell(seconds=floor(setting.n, setting.m, 1 if setting.n > 2000 else 5).seconds)
        return
    if peer == "reference":
        mean, covariance = reference(setting)
        np.savez(at, mean=mean, covariance=covariance)
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        draw = PEERS[peer].setup(setting, data(setting))
        tell(setup_mib=peak())
        drawn = measure(setting, draw)
        if Path(at).is_file():
            with np.load(at) as held:
                compare(drawn, held["mean"], held["covariance"])
    except Exception as error:  # a failure is a row
        tell(failure=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200])


if __name__ == "__main__":
    main()
