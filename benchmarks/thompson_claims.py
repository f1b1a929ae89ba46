"""Figures stated about Thompson sampling."""

from __future__ import annotations

import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.harness import Measured, claim
from benchmarks.thompson_truth import worst_record, worst_response
from discretion.gp import Exponential, Kernel, Matern52
from discretion.gp.candidates import CandidatePaths
from discretion.posterior import ThompsonMechanism, ThompsonSampler
from discretion.posterior.thompson_account import Draws, response_loss
from discretion.privacy import Ledger, SeededRandomness
from discretion.studies.thompson_growth import growths, on_a_line
from studies.thompson_regret import DELTA, mechanism, regrets

Floats = NDArray[np.float64]
Objective = Callable[[np.ndarray, np.random.Generator], Floats]

CANDIDATES, RECORDS = 10_000, 1_000

# r, sigma, draws that read records, delta, exact epsilon
FIGURES = (
    (1.0, 5.0, 10, 1e-3, 2.735408),
    (1.0, 5.0, 100, 1e-3, 12.069668),
    (1.0, 5.0, 1000, 1e-3, 66.782780),
    (1.0, 20.0, 10, 1e-5, 0.819728),
    (1.0, 20.0, 100, 1e-5, 2.943225),
    (1.0, 20.0, 1000, 1e-5, 11.480023),
    (3.0, 10.0, 10, 1e-3, 0.120270),
    (3.0, 10.0, 1000, 1e-3, 1.911911),
)


def square(count: int) -> np.ndarray:
    """Candidates of the unit square."""
    return np.random.default_rng(0).uniform(size=(count, 2))


@claim(
    "posterior",
    "Thompson sampling, responses private: exact epsilon of 8 runs; of r = 1, sigma = 20, 1000 rounds, delta = 1e-5",
    "all 8 to 1e-6; 11.480023 where every round reads records",
)
def thompson_figures() -> Measured:
    worst = max(
        abs(response_loss(Draws.constant(rounds, scale, ridge=ridge, history=1)).epsilon(delta) - epsilon)
        for ridge, scale, rounds, delta, epsilon in FIGURES
    )
    whole = response_loss(Draws.constant(1000, 20.0, ridge=1.0, history=1)).epsilon(1e-5)
    cold = response_loss(Draws.constant(1000, 20.0, ridge=1.0)).epsilon(1e-5)
    text = f"off by at most {worst:.1e}; {whole:.6f}, and {cold:.6f} from nothing, where the first round is free"
    return Measured(text, worst <= 1e-6 and abs(whole - 11.480023) <= 5e-7 and cold < whole)


@claim(
    "posterior",
    "What the rounding of the means adds to that epsilon, 10,000 candidates, nugget 1e-6",
    "<= 1e-5",
)
def thompson_rounding() -> Measured:
    run = ThompsonMechanism(
        Matern52(0.05), square(CANDIDATES), (-1.0, 1.0), rounds=1001, schedule=20.0, ridge=1.0, delta=1e-5
    )
    added = run.loss.epsilon(1e-5) - response_loss(Draws.constant(1001, 20.0, ridge=1.0)).epsilon(1e-5)
    return Measured(f"{added:.1e}", 0.0 <= added <= 1e-5)


@claim(
    "posterior",
    "Thompson sampling brute force, 2 actions: exact delta (responses) and Renyi divergence (records) over the stated",
    "<= 1",
)
def thompson_brute_force() -> Measured:
    ratios = worst_response(), worst_record()
    return Measured(f"{ratios[0]:.3f}, {ratios[1]:.3f}", max(ratios) <= 1.0)


@claim(
    "posterior",
    "Law of 40,000 draws on candidates: largest deviation of mean and covariance from the formulas, in standard errors",
    "<= 4.5 over 9 + 81",
)
def thompson_law() -> Measured:
    rng, kernel, ridge, nugget, scale, count = np.random.default_rng(0), Exponential(0.3), 0.7, 1e-3, 1.7, 40_000
    points, places, y = rng.uniform(size=(9, 2)), rng.integers(0, 9, 6), rng.uniform(-1, 1, 6)
    paths = CandidatePaths(kernel, points, ridge, nugget, 6)
    paths.append(places, y)
    values = paths.draw(scale, rng.standard_normal, count)
    K = (kernel(points) + nugget * np.eye(9)) / (1.0 + nugget)
    weights = np.linalg.solve(K[np.ix_(places, places)] + ridge**2 * np.eye(6), K[places])
    covariance = scale**2 * (K - K[places].T @ weights + nugget * np.eye(9))
    variance, centred = np.diag(covariance), values - weights.T @ y
    errors = centred.mean(axis=0) / np.sqrt(variance / count)
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
    worst = max(np.abs(errors).max(), np.abs((centred.T @ centred / count - covariance) / spread).max())
    return Measured(f"{worst:.2f}", bool(worst <= 4.5))


@claim(
    "posterior",
    "A round (ask and tell) over 10,000 candidates with 1,000 records, CPU seconds, over a draw of BoTorch's exact "
    "posterior at 4,000 in the same process",
    "<= 1/10",
    slow=True,
)
def thompson_step() -> Measured:
    if find_spec("botorch") is None:
        return Measured("not measured: pip install torch==2.13.0 botorch first", False)
    points, rng = square(CANDIDATES), np.random.default_rng(1)
    places = rng.integers(0, CANDIDATES, RECORDS)
    y = np.sin(9.0 * points[places]).sum(axis=1) / 2.0
    with threadpool_limits(1):
        made = time.process_time()
        run = ThompsonMechanism(Matern52(0.2), points, (-1, 1), rounds=6, schedule=20.0, ridge=1.0, history=RECORDS)
        sampler = ThompsonSampler(run)
        sampler.start(points[places], y)
        made, ours = time.process_time() - made, []
        while not sampler.done:
            ours.append(cpu_seconds(lambda: sampler.tell([float(sampler.ask().sum() > 1.0)])))
        memory = peak()
        theirs = botorch_draws(points, places, y)
    ratio = np.median(ours) / min(theirs)
    text = (
        f"{np.median(ours):.3f} s against {min(theirs):.2f} s: 1/{1 / ratio:.0f}; once {made:.0f} s; "
        f"memory {memory:.1f} GiB, {peak():.1f} GiB with BoTorch"
    )
    return Measured(text, bool(ratio <= 0.1))


def botorch_draws(points: np.ndarray, places: np.ndarray, y: np.ndarray, count: int = 4_000) -> list[float]:
    """CPU seconds of joint draws at `count` candidates from BoTorch's exact posterior, hyperparameters given."""
    import torch  # pyright: ignore[reportMissingImports]
    from botorch.models import SingleTaskGP  # pyright: ignore[reportMissingImports]
    from gpytorch.kernels import MaternKernel  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    X, Y = torch.tensor(points[places]), torch.tensor(y)[:, None]
    kernel = MaternKernel(nu=2.5)
    kernel.lengthscale = 0.2  # pyright: ignore[reportAttributeAccessIssue]
    found = []
    for _ in range(3):  # a model anew each time, as in a round that has learned one record more
        model = SingleTaskGP(X, Y, train_Yvar=torch.ones_like(Y), covar_module=kernel, outcome_transform=None)

        def draw(model=model) -> None:
            with torch.no_grad():
                int(model.posterior(torch.tensor(points[:count])).rsample(torch.Size([1])).argmax())

        found.append(cpu_seconds(draw))
    return found


def cpu_seconds(call: Callable[[], object]) -> float:
    """Of this process."""
    start = time.process_time()
    call()
    return time.process_time() - start


def peak() -> float:
    """Largest memory of this process so far, GiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def gain(doses: Floats) -> Floats:
    """The mean answer of the example in docs/thompson.md, 1 at the best dose."""
    return np.exp(-(((doses - 0.7) / 0.3) ** 2))


def example(seed: int, **files: Any) -> tuple[float, float, float, float]:
    """That example: what is missed in the first quarter and the last, the recommended dose, seconds a round."""
    rng = np.random.default_rng(seed)
    run = ThompsonMechanism.calibrated(
        kernel=Matern52(0.3),
        actions=np.linspace(0, 1, 21)[:, None],
        response_range=(0, 1),
        rounds=60,
        batch=5,
        ridge=20.0,
        epsilon=5.0,
        delta=1e-5,
    )
    with ThompsonSampler(run, **files) as sampler:
        begun = time.perf_counter()
        while not sampler.done:
            doses = sampler.ask()[:, 0]
            sampler.tell(gain(doses) + 0.2 * rng.normal(size=len(doses)))
        seconds = (time.perf_counter() - begun) / run.rounds
    release = sampler.result()
    missed = 1.0 - gain(release.actions[..., 0])
    return float(missed[:15].mean()), float(missed[-15:].mean()), float(release.recommended()[0]), seconds


@claim(
    "posterior",
    "The example of docs/thompson.md, 60 rounds of 5 at epsilon 5, 20 runs: what is missed of the best mean answer in "
    "the first quarter and the last; how far off the recommended dose is at most",
    ">= 0.45, <= 0.2; one candidate of 0.05",
    slow=True,
)
def thompson_example() -> Measured:
    found = np.array([example(seed, randomness=SeededRandomness(seed)) for seed in range(20)])
    first, last = found[:, 0].mean(), found[:, 1].mean()
    off = float(np.abs(found[:, 2] - 0.7).max())
    holds = first >= 0.45 and last <= 0.2 and off <= 0.05 + 1e-9
    return Measured(f"{first:.2f}, {last:.2f} (at most {found[:, 1].max():.2f}); {off:.2f}", bool(holds))


@claim(
    "posterior",
    "Wall time of a round of that example in two files and on a SQLite ledger; in memory",
    "<= 0.5 s; <= a fifth of that",
    slow=True,
)
def thompson_booked_round() -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        book = Ledger.create(f"{folder}/l", dataset="d", epsilon=5, delta=1e-5, neighbours="replace-response")
        booked = example(0, path=f"{folder}/a", private=f"{folder}/b", ledger=book)[3]
    alone = example(0, randomness=SeededRandomness(0))[3]
    return Measured(f"{booked:.3f} s; {alone:.4f} s", booked <= 0.5 and alone <= 0.2 * booked)


def grid(side: int) -> np.ndarray:
    """Candidates of the unit square, in rows."""
    axis = np.linspace(0.0, 1.0, side)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def advice(points: np.ndarray, kernel: Kernel, objective: Objective, seed: int, half: Kernel | None = None) -> Floats:
    """Regret after 300 rounds at epsilon 5: of the action played most often, the recommended one, that with `half`,
    an action of the later half on average, and a candidate on average."""
    rng = np.random.default_rng(seed)
    values = objective(points, rng)
    run = ThompsonMechanism.calibrated(
        epsilon=5.0,
        delta=DELTA,
        kernel=kernel,
        actions=points,
        response_range=(-1.3, 1.3),
        rounds=300,
        ridge=2.0 * math.sqrt(300),
    )
    sampler = ThompsonSampler(run, randomness=SeededRandomness(seed))
    value = dict(zip(map(tuple, points.tolist()), values.tolist(), strict=True))
    while not sampler.done:
        sampler.tell([value[tuple(action)] + rng.uniform(-0.3, 0.3) for action in sampler.ask().tolist()])
    release = sampler.result()
    found = [value[tuple(each.tolist())] for each in (release.most_played, release.recommended())]
    found.append(value[tuple(release.recommended(half).tolist())])
    later = float(np.mean([value[tuple(each)] for each in release.played[150:].tolist()]))
    return float(values.max()) - np.array([*found, later, float(values.mean())])


def bump(points: np.ndarray, rng: np.random.Generator) -> Floats:
    """Values of a bump somewhere inside, from -1 to 1."""
    return 2.0 * np.exp(-0.5 * ((points - rng.uniform(0.15, 0.85, points.shape[1])) ** 2).sum(axis=1) / 0.04) - 1.0


def drawn(kernel: Kernel, points: np.ndarray, rng: np.random.Generator) -> Floats:
    """Values of a draw of the process, scaled to largest absolute value 1."""
    values = np.linalg.cholesky(kernel(points) + 1e-9 * np.eye(len(points))) @ rng.normal(size=len(points))
    return values / np.abs(values).max()


@claim(
    "posterior",
    "Mean regret of `recommended` and of `most_played`, 300 rounds at epsilon 5, 20 bumps: 50 candidates of a line, "
    "144 of a square",
    "<= a fifth on the line, a tenth on the square",
)
def thompson_advice() -> Measured:
    sets = (np.linspace(0.0, 1.0, 50)[:, None], Matern52(0.2)), (grid(12), Matern52(0.3))
    found = [np.mean([advice(X, kernel, bump, seed) for seed in range(20)], axis=0) for X, kernel in sets]
    text = "; ".join(f"{each[1]:.3f} and {each[0]:.3f}" for each in found)
    return Measured(text, all(each[1] <= share * each[0] for share, each in zip((0.2, 0.1), found, strict=True)))


@claim(
    "posterior",
    "The same square, 30 draws of the process itself, Matern 5/2 and exponential of length 0.3: mean regret of "
    "`most_played`, `recommended`, that with half the length, an action of the later half, any candidate",
    "half the length lowest with Matern, none far ahead with exponential; the later half within 25 % of any candidate",
    slow=True,
)
def thompson_advice_rough() -> Measured:
    points, found = grid(12), []
    for kernel, half in ((Matern52(0.3), Matern52(0.15)), (Exponential(0.3), Exponential(0.15))):
        found.append(np.mean([advice(points, kernel, partial(drawn, kernel), s, half) for s in range(30)], axis=0))
    smooth, rough = found
    holds = smooth[2] < 0.9 * min(smooth[:2]) and rough[:3].min() > 0.8 * rough[:3].max()
    holds &= all(each[3] >= 0.75 * each[4] for each in found)
    return Measured("; ".join(", ".join(f"{regret:.2f}" for regret in each) for each in found), bool(holds))


@claim(
    "posterior",
    "Growth of rho_T, Matern 1/2, 3/2, 5/2, d = 1, 2, 3: slope at T = 1e7 less 2 nu/(2 nu + d); epsilon's slope",
    "within 0.01; epsilon's no larger, all below 1",
)
def thompson_growth() -> Measured:
    found = growths()
    off = max(abs(each.slope(each.rho) - each.exponent) for each in found)
    sublinear = all(each.slope(each.epsilon) <= each.slope(each.rho) < 1.0 for each in found)
    return Measured(f"at most {off:.4f}; {'no larger' if sublinear else 'LARGER'}", off <= 0.01 and sublinear)


@claim(
    "posterior",
    "The same on a line with computed gains, 1,500 rounds: slopes of rho_T beside the exponents 0.5, 0.75, 0.833",
    "0.5 within 0.02; the others below",
    slow=True,
)
def thompson_growth_computed() -> Measured:
    found = on_a_line()
    slopes = [each.slope(each.rho) for each in found]
    holds = abs(slopes[0] - 0.5) <= 0.02
    holds &= all(slope <= each.exponent + 0.02 for slope, each in zip(slopes, found, strict=True))
    return Measured(", ".join(f"{slope:.3f}" for slope in slopes), holds)


@claim(
    "posterior",
    "Mean regret of 500 rounds on a line and of the last 100, 20 objectives: not private, epsilon = 10, 3, 1, uniform; "
    "and epsilon = 10 at ridge 1",
    "in this order; of the last 100 epsilon = 10 below 0.1, epsilon = 3 below half of uniform",
    slow=True,
)
def thompson_regret() -> Measured:
    found = regrets()
    last = [each.last for each in found]
    small = regrets(ridge=1.0, epsilons=(10.0,))[0].last
    spent = all(each.epsilon <= target for each, target in zip(found[1:4], (10.0, 3.0, 1.0), strict=True))
    text = "; ".join(f"{each.name} {each.average:.3f}, {each.last:.3f}" for each in found) + f"; at ridge 1 {small:.3f}"
    holds = last == sorted(last) and last[1] < 0.1 and last[2] < 0.5 * last[4] and small > last[1] and spent
    return Measured(text, bool(holds and math.isclose(mechanism(10.0).loss.epsilon(DELTA), 10.0, rel_tol=1e-6)))
