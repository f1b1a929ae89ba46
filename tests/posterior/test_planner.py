"""The planner: its simulated worlds, its scores, and whether real releases then get what it forecast."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from discretion.gp import RBF, Box, DensePosterior, Matern32, engine
from discretion.gp.kernels import KERNELS
from discretion.posterior import Bounded, Exponential1D, posterior_loss
from discretion.posterior.confidence import excursion_sets
from discretion.posterior.excursion import intersection_over_union
from discretion.posterior.kernel_sum import KernelSumMechanism
from discretion.posterior.lattice_account import LatticeAccount
from discretion.posterior.planner import GaussianPrior, PublicTable, plan_map, priors
from discretion.posterior.planner.lattices import Hexagons, LatticePaths
from discretion.posterior.planner.map_plan import planned_mechanism
from discretion.posterior.planner.priors import clipped_moments
from discretion.posterior.planner.setting import Setting, checked_problem, path_kernels
from discretion.posterior.planner.simulation import Score, Simulation, _Scored, candidate, overlap
from discretion.posterior.planner.usefulness import trivial_cause
from discretion.privacy import SeededRandomness
from discretion.spatial import Records

DOMAIN = Box((0.0, 0.0), (60.0, 40.0))
QUICK: dict[str, Any] = {
    "domain": DOMAIN,
    "response_range": (12.0, 14.0),
    "grid": (20, 20),
    "worlds": 60,
    "posterior": False,
    "lattice": False,
}


def setting(n: int = 500, grid: tuple[int, ...] = (20, 20), **changes: Any) -> Setting:
    return replace(Setting(n, DOMAIN, (12.0, 14.0), 13.0, 13.1, grid, "unit"), **changes)


def simulation(n: int = 500, worlds: int = 40) -> Simulation:
    model = GaussianPrior().on(setting(n), np.random.default_rng(0))
    return Simulation(model, n**-1.1, 20.0, worlds, worlds, 0)


def table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose mean response rises from 12.5 on the left to 13.5 on the right."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(DOMAIN.lower, DOMAIN.upper, (rows, 2))
    return X, 12.5 + X[:, 0] / 60.0 + 0.2 * rng.standard_normal(rows)


def test_a_prior_has_its_length_in_the_units_of_the_covariates():
    """On a domain of 60 by 40: a length of 9 in every direction is 9/60 and 9/40 of the unit box."""
    rng, here = np.random.default_rng(0), setting()
    for given, unit, seen, in_data in (
        (0.15, "domain", 0.15, [9.0, 6.0]),
        (9.0, "data", [9.0 / 60.0, 9.0 / 40.0], [9.0, 9.0]),
        ((9.0, 12.0), "data", [0.15, 0.3], [9.0, 12.0]),
        ((0.15, 0.3), "domain", [0.15, 0.3], [9.0, 12.0]),
    ):
        prior = GaussianPrior(given, length_unit=unit)
        model = prior.on(here, rng)
        assert np.asarray(model.gaussian.kernel.length_scale) == pytest.approx(np.asarray(seen))
        assert prior.describe(model)["length_scale_in_data_units"] == pytest.approx(in_data)
    # in data coordinates the field of one length in data units is the same
    data = replace(here, coordinates="data")
    one, other = (GaussianPrior(9.0, length_unit="data").on(each, rng) for each in (here, data))
    np.testing.assert_allclose(one.gaussian.root @ one.gaussian.root.T, other.gaussian.root @ other.gaussian.root.T)
    assert np.isfinite(Simulation(one, 1e-3, 20.0, 20, 20, 0).water_filling(3.0).error)
    with pytest.raises(ValueError, match=r"one for each of 2 covariates; got 3\."):
        GaussianPrior((1.0, 2.0, 3.0)).on(here, rng)
    with pytest.raises(ValueError, match=r"length_unit must be 'domain' or 'data'"):
        GaussianPrior(1.0, length_unit="km").on(here, rng)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("mean", "sd"), [(13.2, 0.3), (11.0, 0.5), (14.5, 2.0), (13.0, 0.0)])
def test_moments_of_a_clipped_normal(mean, sd):
    found = [float(each[0]) for each in clipped_moments(np.array([mean]), sd, 12.0, 14.0)]
    if sd == 0:
        assert found == [mean, 0.0]
        return
    raw = [
        quad(lambda y, p=p: y**p * norm.pdf(y, mean, sd), 12.0, 14.0, epsabs=1e-13)[0]
        + 12.0**p * norm.cdf(12.0, mean, sd)
        + 14.0**p * norm.sf(14.0, mean, sd)
        for p in (1, 2)
    ]
    np.testing.assert_allclose(found, [raw[0], raw[1] - raw[0] ** 2], rtol=1e-8, atol=1e-9)


def test_many_records_have_the_law_of_records_drawn_one_by_one(monkeypatch):
    model = GaussianPrior(noise_sd=0.8).on(setting(20_000), np.random.default_rng(0))

    def standardised() -> np.ndarray:
        worlds = model.simulate(20, np.random.default_rng(1))
        mean, variance = clipped_moments(worlds.fields, 0.8, 12.0, 14.0)
        return ((worlds.sums - worlds.counts * (mean - 13.0)) / np.sqrt(worlds.counts * variance)).ravel()

    one_by_one = standardised()
    monkeypatch.setattr(priors, "MOST_DRAWN", 0)
    for values in (one_by_one, standardised()):
        assert abs(values.mean()) < 5.0 / math.sqrt(values.size)
        assert abs(values.var() - 1.0) < 5.0 * math.sqrt(2.0 / values.size)


def test_worlds_hold_n_records_inside_the_region():
    left = setting(700, region=lambda X: X[:, 0] < 20.0)
    model = GaussianPrior().on(left, np.random.default_rng(0))
    worlds = model.simulate(5, np.random.default_rng(0))
    assert (worlds.counts.sum(axis=1) == 700).all()
    assert (worlds.counts[:, ~model.mask] == 0).all()
    assert 0.2 < model.mask.mean() < 0.4
    with pytest.raises(ValueError, match="holds no point"):
        GaussianPrior().on(setting(region=lambda X: X[:, 0] < -1.0), np.random.default_rng(0))


def test_grids_are_odd_and_of_a_size_that_can_be_simulated():
    for grid in ((60, 40), (8, 8), (236, 184), (60,), (5_000,), (10, 10, 10)):
        domain = Box((0.0,) * len(grid), (1.0,) * len(grid))
        found = setting(grid=grid, domain=domain)
        assert all(count % 2 for count in found.counts)
        assert 300 <= math.prod(found.counts) <= 2_600
        shape, kept = found.half
        np.testing.assert_array_equal(found.places.points[kept], domain.grid(shape))


# --- public tables ----------------------------------------------------------------------------------------------------


def test_a_large_public_table_is_resampled_and_its_field_recovered():
    X, y = table(4_000)
    model = PublicTable(X, y).on(setting(1_000), np.random.default_rng(0))
    worlds = model.simulate(50, np.random.default_rng(0))
    assert (worlds.counts.sum(axis=1) == 1_000).all()
    # the sum over all places is 1,000 draws from the table's clipped responses
    values = np.clip(y, 12.0, 14.0) - 13.0
    total = worlds.sums.sum(axis=1)
    assert abs(total.mean() - 1_000 * values.mean()) < 5.0 * math.sqrt(1_000 * values.var() / 50)
    truth = 12.5 + DOMAIN.grid(model.setting.counts)[:, 0] / 60.0
    assert np.sqrt(np.mean((worlds.fields[0] - truth) ** 2)) < 0.05
    assert model.gaussian.noise_sd == pytest.approx(0.2, rel=0.15)


def test_a_small_public_table_gives_fields_that_differ_about_their_posterior_mean():
    X, y = table(60)
    model = PublicTable(X, y).on(setting(1_000), np.random.default_rng(0))
    worlds = model.simulate(200, np.random.default_rng(0))
    spread = worlds.fields.std(axis=0)
    assert (spread > 0).all()
    at = model.setting.places.points
    posterior = DensePosterior(
        model.gaussian.kernel,
        model.gaussian.noise_sd / model.gaussian.amplitude,
        _moved(DOMAIN.unit(X), at),
        np.clip(y, 12.0, 14.0) - model.gaussian.mean,
    )
    mean, covariance = posterior.mean(at) + model.gaussian.mean, posterior.covariance(at)
    sd = model.gaussian.amplitude * np.sqrt(np.diagonal(covariance))
    assert (np.abs(worlds.fields.mean(axis=0) - mean) < 5.0 * sd / math.sqrt(200)).all()
    np.testing.assert_allclose(spread / sd, 1.0, atol=0.3)


def _moved(X: np.ndarray, places: np.ndarray) -> np.ndarray:
    return places[np.argmin(np.linalg.norm((X[:, None] - places), axis=2), axis=1)]


def test_public_tables_that_do_not_fit_are_refused():
    X, y = table(30)
    for covariates, response in ((X[:5], y[:5]), (X[:, :1], y), (X, y[:-1])):
        with pytest.raises(ValueError, match="at least 10 rows"):
            plan_map(n=100, epsilon=1.0, prior=PublicTable(covariates, response), **QUICK)
    with pytest.raises(ValueError, match="not finite"):
        plan_map(n=100, epsilon=1.0, prior=PublicTable(X, np.where(y > 13.4, np.nan, y)), **QUICK)
    with pytest.raises(ValueError, match="all the same"):
        plan_map(n=100, epsilon=1.0, prior=PublicTable(X, np.full(30, 13.5)), **QUICK)


# --- scores -----------------------------------------------------------------------------------------------------------


def test_overlap_is_intersection_over_union():
    rng = np.random.default_rng(0)
    A, B = rng.uniform(size=(2, 30, 12)) < rng.uniform(size=(2, 30, 1))
    A[0] = B[0] = False
    wanted = [intersection_over_union(a, b) if (a | b).any() else 1.0 for a, b in zip(A, B, strict=True)]
    np.testing.assert_array_equal(overlap(A, B), wanted)


def test_simulated_kernel_sums_are_those_of_the_mechanism():
    run, kernel = simulation(), RBF(0.1)
    mechanism = KernelSumMechanism(
        kernel,
        DOMAIN,
        (12.0, 14.0),
        scale=1.0,
        delta=1e-3,
        locations=DOMAIN.grid(run.setting.counts),
        grid=run.setting.counts,
    )
    # one record at each place with records, whose response is their mean: the value sum without its counts
    used = run.data.counts[0] == 1
    X = DOMAIN.from_unit(run.model.nodes[used])
    part = mechanism.partial(Records(X, 13.0 + run.data.sums[0, used], ("x", "y"), "z"))
    alone = replace(run.data, counts=run.data.counts * used, sums=run.data.sums * used)
    sums = run._summed(kernel, run.model.nodes, alone, np.random.default_rng(0))
    np.testing.assert_allclose(sums.values[0], part.sums[0, 0], atol=1e-10)
    np.testing.assert_allclose(sums.density[0], part.sums[1, 0], atol=1e-10)
    for field in (sums.first, sums.second):
        assert field.shape == run.data.fields.shape
        assert field.var() == pytest.approx(1.0, abs=0.1)


def test_simulated_posteriors_are_exact_where_records_stand_at_the_places():
    run = simulation(worlds=20)
    kept = run.setting.half[1]
    counts, sums = np.zeros_like(run.data.counts), np.zeros_like(run.data.sums)
    counts[:, kept], sums[:, kept] = run.data.counts[:, kept], run.data.sums[:, kept]
    run.__dict__["data"] = replace(run.data, counts=counts, sums=sums)
    ridges = [0.5, 3.0]
    number = counts[0].astype(int)
    used = np.flatnonzero(number)
    X = np.repeat(run.model.nodes[used], number[used], axis=0)
    y = np.repeat(sums[0, used] / number[used], number[used])
    points = run.model.nodes[kept]
    means, noises = next(run.path_data.posteriors(RBF(0.2), ridges, 4_000))
    assert noises.shape == (2, 4_000, len(points))
    for row, ridge in enumerate(ridges):
        dense = DensePosterior(RBF(0.2), ridge, X, y)
        np.testing.assert_allclose(means[row], dense.mean(points), atol=1e-6)
        covariance = dense.covariance(points)
        np.testing.assert_allclose(noises[row].T @ noises[row] / 4_000, covariance, atol=6.0 * covariance.max() / 60.0)


def test_a_control_that_is_the_same_on_few_and_many_changes_nothing():
    rng = np.random.default_rng(0)
    scored = _Scored(*rng.uniform(size=(5, 20)))
    flat = _Scored(*np.full((5, 20), 0.3))
    words: dict[str, Any] = {"kernel": RBF(0.1), "epsilon": 1.0, "scale": 1.0}
    plain, controlled = candidate(scored, **words), candidate(scored, (flat, flat), **words)
    assert plain.merit == pytest.approx(controlled.merit)
    assert plain.iou.mean == pytest.approx(controlled.iou.mean)
    assert plain.iou == Score.of(scored.iou[10:])
    assert plain.merit == pytest.approx(scored.iou[:10].mean())
    perfect = candidate(scored, (scored, flat), **words)
    assert (perfect.iou.mean, perfect.iou.se) == (pytest.approx(0.3), pytest.approx(0.0, abs=1e-12))


def test_the_length_of_a_declared_prior_is_a_share_of_each_side_or_of_the_shortest():
    prior, rng = GaussianPrior(0.2), np.random.default_rng(0)
    for coordinates, lengths in (("unit", [12.0, 8.0]), ("data", [8.0, 8.0])):
        model = prior.on(setting(coordinates=coordinates), rng)
        assert prior.describe(model)["length_scale_in_data_units"] == pytest.approx(lengths)
        # correlation of the field at places one length apart along each axis
        one, *others = model.setting.coordinates_of(np.array([[20.0, 20.0], [20.0 + lengths[0], 20.0], [20.0, 12.0]]))
        found = model.gaussian.kernel(one[None], np.array(others))
        np.testing.assert_allclose(found, Matern32(1.0)(np.array([[0.0]]), np.array([[1.0]]))[0, 0], rtol=1e-12)


def test_releases_leave_undecided_what_was_forecast():
    run, kernel = simulation(2_000), RBF(0.3)
    counts, worlds = run.setting.counts, range(20, 40)
    mechanism = KernelSumMechanism(
        kernel, DOMAIN, (12.0, 14.0), scale=run.noise(3.0), delta=1e-3, locations=DOMAIN.grid(counts), grid=counts
    )
    found = []
    for world in worlds:
        used = run.data.counts[world].astype(int)
        X = np.repeat(DOMAIN.from_unit(run.model.nodes), used, axis=0)
        y = np.repeat(13.0 + run.data.sums[world] / np.maximum(used, 1), used)
        release = mechanism.run(Records(X, y, ("x", "y"), "z"), SeededRandomness(world))
        sets = excursion_sets(release, 13.1, simulations=199, randomness=np.random.default_rng(world))
        assert not (sets.inner & ~sets.outer).any()
        found.append(np.mean(sets.outer & ~sets.inner))
    forecast = run.undecided(kernel, 3.0)
    assert np.mean(found) == pytest.approx(forecast.mean, abs=0.03)
    assert forecast.mean < run.undecided(kernel, 1.0).mean


# --- plans ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_plan_repeats_itself_and_is_json():
    plan, again = (plan_map(n=2_000, epsilon=1.0, epsilons=(1.0, 9.0), **QUICK) for _ in range(2))
    said = json.dumps(plan.to_dict(), allow_nan=False)
    assert said == json.dumps(again.to_dict(), allow_nan=False)
    other = plan_map(n=2_000, epsilon=1.0, epsilons=(1.0,), seed=1, **QUICK)
    assert other.forecast.iou != plan.forecast.iou
    assert {each.epsilon for each in plan.frontier} == {1.0, 9.0}
    assert {each.label for each in plan.frontier} == {"kernel sum", "kernel sum with decoder"}
    assert plan.useful
    assert plan.not_useful_below is not None
    assert plan.not_useful_below <= 1.0
    assert "Useful at epsilon 1. Not useful below epsilon" in plan.verdict
    assert plan.water_filling["least_error"] <= plan.water_filling["error"] <= 1.0
    for name in ("all places", "no places"):
        assert 0.0 <= plan.trivial[name].mean < plan.forecast.iou.mean


def test_the_recommended_mechanism_meets_the_target():
    plan = plan_map(n=2_000, epsilon=1.0, epsilons=(1.0,), threshold=13.1, **QUICK)
    run, chosen = plan.mechanism(), plan.recommended
    assert run.privacy_loss(2_000).epsilon(chosen.delta) <= 1.0
    assert (run.scale, chosen.delta) == (chosen.scale, pytest.approx(2_000**-1.1))
    # the simulation leaves out the rounding of the sums, which is public and small
    assert plan.forecast.scale <= run.scale <= 1.01 * plan.forecast.scale


@pytest.mark.slow
def test_data_coordinates_scale_with_the_domain():
    square: dict[str, Any] = {
        **QUICK,
        "domain": Box((0.0, 0.0), (50.0, 50.0)),
        "n": 2_000,
        "epsilon": 1.0,
        "epsilons": (1.0,),
    }
    unit, data = (plan_map(coordinates=each, **square) for each in ("unit", "data"))
    assert data.recommended.kernel.length_scale == pytest.approx(
        50.0 * np.asarray(unit.recommended.kernel.length_scale)
    )
    assert data.forecast.iou.mean == pytest.approx(unit.forecast.iou.mean, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("decoded", [False, True])
def test_releases_of_records_from_the_prior_get_what_was_forecast(decoded):
    many: dict[str, Any] = {**QUICK, "worlds": 300}
    plan = plan_map(n=1_500, epsilon=2.0, epsilons=(2.0,), threshold=13.1, **many)
    best = next(each for each in plan.candidates if each.decoder is decoded)
    plan = replace(plan, recommended=replace(plan.recommended, kernel=best.kernel, decoder=decoded))
    counts = plan.setting.counts
    run = plan.mechanism(grid=counts, locations=DOMAIN.grid(counts))
    assert isinstance(run, KernelSumMechanism)
    decoder = plan.decoder(run) if decoded else None
    rng, found = np.random.default_rng(11), []
    nodes = DOMAIN.grid((25, 25))
    root = np.linalg.cholesky(Matern32(0.2)(DOMAIN.unit(nodes)) + 1e-9 * np.eye(625))
    for world in range(150):
        site = rng.integers(625, size=1_500)
        X = np.clip(nodes[site] + rng.uniform(-0.5, 0.5, (1_500, 2)) * (60.0 / 24, 40.0 / 24), 0.0, DOMAIN.upper)
        y = 13.0 + ((root @ rng.standard_normal(625))[site] + rng.standard_normal(1_500)) / 3.0
        release = run.run(Records(X, y, ("x", "y"), "z"), SeededRandomness(world))
        sums = run.partial(Records(X, y, ("x", "y"), "z")).sums[:, 0]
        assert release.density is not None
        if decoder is not None:
            assert decoder.cut is not None
            shown, clear = decoder.excursion_set(release).ravel(), decoder.decode((sums[0], sums[1])) >= decoder.cut
        else:
            shown, clear = (h - 0.1 * d >= 0 for h, d in ((release.value_sums[0, 0], release.density[0]), sums))
        found.append(float(overlap(shown, clear.ravel())))
    assert np.mean(found) == pytest.approx(best.agreement.mean, abs=0.05)


@pytest.mark.slow
def test_few_records_and_noisy_responses_are_of_no_use():
    small = plan_map(n=100, epsilon=0.5, epsilons=(0.5,), **QUICK)
    assert not small.useful
    assert small.not_useful_below is not None
    assert small.not_useful_below > 0.5
    assert "NOTHING USEFUL can be published at epsilon 0.5" in small.verdict
    hopeless = plan_map(n=60, epsilon=1.0, epsilons=(1.0,), prior=GaussianPrior(0.03, 0.05, 3.0), **QUICK)
    assert hopeless.not_useful_below == math.inf
    assert hopeless.to_dict()["not_useful_below"] == "inf"
    assert "any epsilon up to 1000" in hopeless.verdict
    assert hopeless.cause == ""


def test_where_the_prior_alone_leaves_nothing_to_learn_the_plan_says_so():
    score = SimpleNamespace
    said = trivial_cause({"all places": score(mean=0.97), "no places": score(mean=0.02), "rmse": score(mean=9.0)})
    assert "'all places' already has IoU 0.97" in said
    assert "--prior-mean" in said
    assert trivial_cause({"all places": score(mean=0.9), "no places": score(mean=0.02)}) == ""
    assert trivial_cause({"best constant (RMSE)": score(mean=9.0)}) == ""


@pytest.mark.slow
def test_posterior_paths_stand_beside_kernel_sums():
    quick: dict[str, Any] = {**QUICK, "posterior": True, "path_worlds": 16}
    plan = plan_map(n=400, epsilon=3.0, epsilons=(3.0,), **quick)
    labels = {each.label: each for each in plan.frontier}
    published, certified = (labels[f"posterior path, {name} account"] for name in ("published", "certified"))
    assert certified.merit >= published.merit - 0.02
    assert published.ridge is not None
    assert all(each.scale > 0 for each in plan.candidates)
    many = plan_map(n=20_001, epsilon=3.0, epsilons=(3.0,), **quick)
    assert {each.mechanism for each in many.candidates} == {"kernel-sum"}
    assert any("Posterior paths of kernels are left out" in each for each in many.notes)


@pytest.mark.slow
def test_on_a_line_paths_of_linear_engines_are_planned_for_any_number_of_records():
    paths = 4
    line: dict[str, Any] = {"domain": Box((0.0,), (1.0,)), "response_range": (12.0, 14.0), "grid": (40,)}
    quick: dict[str, Any] = {"epsilon": 3.0, "epsilons": (3.0,), "worlds": 20, "path_worlds": 8, "paths": paths}
    plan = plan_map(n=50_000, **(line | quick))
    found = [each for each in plan.candidates if each.mechanism == "posterior"]
    assert {each.kernel.name for each in found} == {"exponential", "matern32"}
    for each in [each for each in found if each.account == "published"][:3]:
        words: dict[str, Any] = {"scale": each.scale, "ridge": each.ridge, "paths": paths, "n": 50_000}
        words |= {"assumption": Exponential1D(1.0) if each.kernel.name == "exponential" else Bounded(1.0)}
        loss = posterior_loss(least_kernel=each.kernel.least_value(line["domain"]), **words)
        assert 2.9 < loss.epsilon(plan.recommended.delta) <= 3.0
    with pytest.raises(ValueError, match="paths must be a whole number from 1 to 100"):
        plan_map(n=100, **(line | quick | {"paths": 101}))


def test_kernels_of_paths_are_those_that_a_release_can_compute():
    assert path_kernels(20_000, 1) == ("exponential", "rbf")
    assert path_kernels(20_001, 1) == ("exponential", "matern32")
    assert path_kernels(20_000, 2) == ("rbf",)
    assert path_kernels(20_001, 2) == ()
    assert all(engine(KERNELS[name](1.0), 1).name != "dense" for name in path_kernels(20_001, 1))


def test_paths_are_centred_at_the_threshold_and_sums_in_the_middle_of_the_range(monkeypatch):
    words: dict[str, Any] = {"coordinates": "unit", "region": None, "epsilons": (3.0,), "delta": None}
    public = (500, DOMAIN, (12.0, 14.0), (20, 20))
    given, delta = checked_problem(*public, threshold=13.6, centre=13.6, **words)
    left, _ = checked_problem(*public, threshold=13.6, centre=None, **words)
    assert delta == 500**-1.1
    assert (left.centre, left.of_paths.centre, left.of_paths.bound) == (13.0, 13.6, pytest.approx(1.6))
    assert (given.centre, given.of_paths.centre) == (13.6, 13.6)
    assert checked_problem(*public, threshold=13.6, centre=12.9, **words)[0].of_paths.centre == 12.9
    assert checked_problem(*public, threshold=None, centre=None, **words)[0].of_paths.centre == 13.0
    # the same worlds, and the same paths at the same scales, as if the centre had been given
    one, other = (
        Simulation(GaussianPrior().on(each, np.random.default_rng(0)), 500**-1.1, 20.0, 20, 20, 0)
        for each in (left, given)
    )
    np.testing.assert_allclose(one.path_data.sums, other.path_data.sums, atol=1e-9)
    monkeypatch.setattr(Simulation, "_certified", lambda *_: None)
    scales = [list(each._path_scales(RBF(0.4), 30.0, (3.0,))) for each in (one, other)]
    assert scales[0] == scales[1]
    lattices = [LatticePaths(each) for each in (one, other)]
    hexagons = Hexagons(lattices[0].spacing, 0.3).lattice(left)
    means = [each.posteriors(hexagons, 3.0, np.arange(4))[0] for each in lattices]
    np.testing.assert_allclose(means[0], means[1], atol=1e-9)
    for name, kernel in (("posterior", RBF(0.4)), ("lattice", Hexagons(3.0, 0.3))):
        made = planned_mechanism(name, kernel, 30.0, 3.0, 1e-4, left)
        assert made.parameters()["centre"] == 13.6
    sums = planned_mechanism("kernel-sum", RBF(0.4), None, 3.0, 1e-4, left)
    assert isinstance(sums, KernelSumMechanism)
    assert sums.centres == (13.0,)


@pytest.mark.slow
def test_a_path_centred_at_a_rare_threshold_beats_one_centred_in_the_middle():
    quick: dict[str, Any] = {**QUICK, "posterior": True, "path_worlds": 24, "threshold": 13.5}
    best = []
    for centre in (None, 13.0):
        plan = plan_map(n=1_000, epsilon=9.0, epsilons=(9.0,), centre=centre, **quick)
        best.append(max(each.iou.mean for each in plan.frontier if each.mechanism == "posterior"))
    assert best[0] > best[1] + 0.1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n": 1}, "n must be"),
        ({"epsilon": 0.0}, "Every epsilon"),
        ({"epsilon": math.nan}, "Every epsilon"),
        ({"delta": 1.0}, "delta must"),
        ({"threshold": 15.0}, "threshold must lie"),
        ({"response_range": (14.0, 12.0)}, "response_range"),
        ({"grid": (20,)}, "grid needs 2"),
        ({"worlds": 5}, "at least 20 worlds"),
        ({"floor": -1.0}, "floor must"),
        ({"coordinates": "miles"}, "coordinates must"),
        ({"prior": GaussianPrior(length_scale=-1.0)}, "length_scale"),
    ],
)
def test_parameters_out_of_range_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        plan_map(**({**QUICK, "n": 100, "epsilon": 1.0} | changes))


def test_paths_on_a_lattice_are_compared_in_the_plane():
    setting = {"n": 1500, "domain": Box((0.0, 0.0), (60.0, 40.0)), "response_range": (12.0, 14.0), "grid": (16, 16)}
    quick = {"epsilon": 3.0, "epsilons": (3.0,), "worlds": 30, "posterior": False}
    plan = plan_map(**setting, **quick)
    (lattice,) = (each for each in plan.frontier if each.mechanism == "lattice")
    assert lattice.iou.mean > plan.trivial["all places"].mean
    assert plan.best.keys() == {3.0}
    assert json.loads(json.dumps(plan.to_dict()))["best"]["3"] == plan.best[3.0]
    made = lattice.kernel.lattice(plan.setting)
    assert made.dimension == 2
    assert lattice.ridge is not None
    account = LatticeAccount(made, 1500, lattice.ridge)
    assert account.guarantee(lattice.scale, plan.recommended.delta).epsilon <= 3.0
    assert not [each for each in plan_map(**setting, **quick, lattice=False).frontier if each.mechanism == "lattice"]
