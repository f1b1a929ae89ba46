"""Certificates of bilevel mechanisms, computed again from their parameters alone."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from discretion.bilevel import (
    AdaptiveClip,
    BiasedRidge,
    ClippedBilevel,
    Constants,
    ConvexExponential,
    Counts,
    Descent,
    ExponentialMechanism,
    Grid,
    HuberPenalty,
    InnerRelease,
    PenaltyDescent,
    Problem,
    QuadraticMean,
    RegularisedExponential,
    RidgePenalty,
    SeparableDescent,
    SplitRecords,
    Table,
    TunedModel,
    WarmStart,
)
from discretion.bilevel.recomputation import LOSSES
from discretion.gp import Ball, Box
from discretion.privacy import Certificate, SystemRandomness, verify

# f = |y - z|^2/2, g = |y - x - z|^2/2 with |z| <= 1, x in [-1, 1]: y = x + mean z, |y| <= 2
FACTS = {"L_fx": 0.0, "L_fy": 3.0, "b_fxx": 0.0, "b_fxy": 0.0, "b_fyy": 1.0, "mu_g": 1.0, "L_gy": 4.0, "b_gxy": 1.0,
         "b_gyy": 1.0, "r_xy": 0.0, "r_yy": 0.0, "r_xy_x": 0.0, "r_yy_x": 0.0, "D_fx": 0.0, "D_g": 2.0, "D_gxy": 0.0,
         "D_gyy": 0.0, "B_f": 4.5, "one_f": 4.5, "one_g": 1.0, "one_gxy": 0.0, "one_gyy": 0.0}  # fmt: skip


class Means:
    """The losses above, by hand."""

    def outer_value(self, x, y, Z):
        return float(0.5 * np.mean((y - Z) ** 2))

    def outer_gradients(self, x, y, Z):
        return 0.0 * x, y - Z.mean(axis=0)

    def inner_gradient(self, x, y, Z):
        return y - x - Z.mean(axis=0)

    def inner_hvp(self, x, y, v, Z):
        return v

    def inner_cross(self, x, y, v, Z):
        return -v

    def inner_rows(self, x, y, v, Z):
        return np.hstack([y - x - Z, np.tile(np.append(v, -v), (len(Z), 1))])

    def outer_first(self, x, y, Z):
        return np.hstack([0.0 * Z, y - Z])

    def inner_first(self, x, y, Z):
        return np.hstack([x + Z - y, y - x - Z])

    def regulariser_first(self, x, y):
        return np.zeros(2)

    def regulariser(self, x, y, v):
        return np.zeros(3)


class Hand:
    name = "by hand"

    def derivatives(self, outer, inner, inner_reg, counts):
        return Means()

    def count(self, records):
        return len(records)

    def place(self, records):
        return records

    def some(self, records, rows):
        return records[rows]


def declared(n=30, **options):
    given = {"declared": Constants(**FACTS), "inner_domain": Box((-2.0,), (2.0,)), "x_domain": Box((-1.0,), (1.0,))}
    return Problem(outer=abs, inner=abs, backend=Hand(), counts=n, y_init=np.zeros(1), **given | options)


def table(n, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return Table(rng.normal(size=(n, d)), rng.uniform(-1, 1, n))


def of(mechanism, records):
    return mechanism.run(records, SystemRandomness()).certificate


@cache
def certificates():
    split, Z = SplitRecords(table(9), table(7, seed=1)), np.random.default_rng(2).uniform(-1, 1, (30, 1))
    sizes = {"training": 9, "validation": 7, "dimension": 2}
    made = {}
    for kind, neighbours in ((RidgePenalty, "replace"), (HuberPenalty, "add-remove")):
        problem = kind(**sizes, candidates=6, neighbours=neighbours)
        made[f"choice {neighbours}"] = of(ExponentialMechanism(problem=problem, epsilon=0.7, spread=0.1), split)
        x = problem.x_domain.array[3]
        made[f"inner {neighbours}"] = of(InnerRelease(problem=problem, x=x, mu=0.4), split)
    for mu in (None, 0.5):
        model = TunedModel(kind="ridge", records=40, dimension=2, choice_epsilon=0.5, mu=mu)
        made[f"tuned {mu}"] = of(model, table(40))
    ridge = BiasedRidge(**sizes, domain=Ball((0.0, 0.0), 1.5), strength=0.5)
    for neighbours in ("replace", "add-remove"):
        one = replace(ridge, neighbours=neighbours)
        made[f"descent {neighbours}"] = of(Descent(problem=one, epsilon=1.0, steps=3, rate=0.1), split)
    made["batch"] = of(Descent(problem=ridge, epsilon=1.0, steps=3, rate=0.1, batch=Counts(4, 3)), split)
    made["convex"] = of(ConvexExponential(problem=ridge, epsilon=1.0), split)
    made["regularised"] = of(RegularisedExponential(problem=ridge, epsilon=1.0), split)
    mean = QuadraticMean(records=30, dimension=1)
    made["regularised mean"] = of(RegularisedExponential(problem=mean, mu=0.5), Z)
    own = declared()
    points = Grid.of([-1.0, 0.3, 1.0])
    made["declared choice"] = of(ExponentialMechanism(problem=own, epsilon=1.0, grid=points, spread=0.1), Z)
    made["declared inner"] = of(InnerRelease(problem=own, x=np.array([0.5]), mu=1.0), Z)
    made["declared convex"] = of(ConvexExponential(problem=own, epsilon=1.0, convex=True), Z)
    descent = {"mu": 0.8, "steps": 3, "rate": 0.1}
    made["declared descent"] = of(Descent(problem=own, solver="gd", **descent), Z)
    at = declared(declared_at=lambda x: Constants(**FACTS | {"L_fy": 2.0 + abs(float(x[0]))}))
    made["declared at x"] = of(Descent(problem=at, start=np.array([0.5]), **descent), Z)
    bounded = declared(neighbours="add-remove", inner_domain="everywhere")
    made["declared bounds"] = of(Descent(problem=bounded, **descent), Z[1:])
    for name, problem, records in (("family", ridge, split), ("declared", own, Z)):
        first = ExponentialMechanism(problem=problem, epsilon=1.0, spread=0.1, grid=grid_of(problem))
        made[f"warm start {name}"] = of(WarmStart(choice=first, descent=Descent(problem=problem, **descent)), records)
    silent = declared(declared=None, inner_domain=None)
    penalty = {"weight": 5.0, "clip": 1.0, "inner_clip": 1.0, "steps": 2, "inner_steps": 2, "inner_rate": 0.1}
    made["penalty"] = of(PenaltyDescent(problem=silent, epsilon=1.0, rate=0.1, **penalty), Z)
    made["clipped"] = of(
        ClippedBilevel(problem=silent, clips=(1.0,) * 3, rates=(0.1,) * 3, steps=2, epsilon=1.0, sample_rate=0.3), Z
    )
    made["separable"] = of(
        SeparableDescent(gradients=lambda x, records: records, domain=Box((-1.0,), (1.0,)), records=30, steps=2,
                         clip=1.0, rate=0.1, mu=1.0, adaptive_clip=AdaptiveClip()), Z)  # fmt: skip
    return made


def grid_of(problem):
    return Grid.of(np.linspace(-1.0, 1.0, 4)[:, None] * np.ones(problem.x_domain.dimension) / 2)


NAMES = (
    *(f"{what} {neighbours}" for what in ("choice", "inner", "descent") for neighbours in ("replace", "add-remove")),
    "tuned None", "tuned 0.5", "batch", "convex", "regularised", "regularised mean", "declared choice",
    "declared inner", "declared convex", "declared descent", "declared at x", "declared bounds", "warm start family",
    "warm start declared", "penalty", "clipped", "separable",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_certificates_verify(name):
    """As read from a file, so that everything a loss follows from is in it."""
    assert set(NAMES) == set(certificates())
    checked = verify(Certificate.from_json(certificates()[name].to_json()), LOSSES)
    assert checked.verified, checked.lines()
    assert not checked.differences
    assert certificates()[name].parameters["released"] in certificates()[name].text().replace("\n  ", " ")
    assert sum("not chosen by looking" in each for each in certificates()[name].declared) == 1


@pytest.mark.parametrize("name", NAMES)
def test_what_is_declared_is_said(name):
    made = certificates()[name]
    verdict = verify(made, LOSSES).lines()
    assert sum("nothing checked" in each for each in made.declared) == 1
    rests = any("The constants hold for every record" in each for each in made.declared)
    assert rests == ("declared" in name)
    assert rests == any("given the declared constants" in line for line in verdict)
    if name == "declared choice":
        assert any("L_fy = 3, " in line for line in verdict)
    if name == "declared at x":
        assert any("at every x that is reached" in line for line in verdict)
    if name in ("penalty", "clipped"):
        assert any("depend on that record" in each for each in made.declared)


@pytest.mark.parametrize("name", NAMES)
def test_false_certificates_are_refused(name):
    made = certificates()[name]
    wrong = [replace(made, epsilon=0.5 * made.epsilon)]
    if made.n is not None and "tuned" not in name:  # whose n is said once
        wrong += [replace(made, n=made.n + 3)]
    figures = ("range", "mu", "k", "noise", "sensitivity")
    stated = [key for key in figures if isinstance(made.parameters.get(key), float)]
    wrong += [replace(made, parameters=made.parameters | {key: 0.5 * made.parameters[key]}) for key in stated]
    for each in wrong:
        found = verify(each, LOSSES)
        # with less of a loss for its model than it states, a tuned model states more than it needs
        assert not found.verified or ("tuned" in name and found.differences)


@pytest.mark.parametrize("name", ["clipped", "separable"])
@pytest.mark.parametrize("change", [{"noise_multiplier": 0.1}, {"steps": 1.5}, {"steps": 9}, {"output": "nonsense"}])
def test_clipped_steps_are_rebuilt(name, change):
    made = certificates()[name]
    assert not verify(replace(made, parameters=made.parameters | change), LOSSES).verified


@pytest.mark.parametrize("change", [{"records": 31}, {"records": 30.5}, {"adaptive_clip": "x"}, {"domain": "here"}])
def test_separable_descents_are_rebuilt(change):
    made = certificates()["separable"]
    assert not verify(replace(made, parameters=made.parameters | change), LOSSES).verified


@pytest.mark.parametrize("name", ["declared descent", "declared at x", "declared inner", "warm start declared"])
def test_the_price_follows_from_declared_constants(name):
    """A larger constant asks for more noise than the certificate has: it does not follow any more."""
    made = certificates()[name]
    data = made.parameters
    place = data.get("choice", data)
    problem = place["problem"] | {"constants": place["problem"]["constants"] | {"D_g": 4.0}}
    forged = place | {"problem": problem}
    if "constants" in place:
        forged |= {"constants": place["constants"] | {"D_g": 4.0}}
    whole = data | {"choice": forged} if "choice" in data else forged
    assert not verify(replace(made, parameters=whole), LOSSES).verified


def test_constants_that_only_a_function_knows_cannot_be_verified():
    at = declared(declared_at=lambda x: Constants(**FACTS))
    points = Grid.of([-1.0, 0.3, 1.0])
    made = of(ExponentialMechanism(problem=at, epsilon=1.0, grid=points, spread=0.1), np.zeros((30, 1)))
    found = verify(made, LOSSES)
    assert (found.verdict, found.refused) == ("NOT CHECKED", ())
    assert "function of x" in found.unchecked[0]


def test_a_warm_start_says_what_it_releases():
    made = certificates()["warm start declared"]
    text = made.text()
    assert "start chosen from a public list, then all iterates" in text.replace("\n  ", " ")
    assert any("inner solution is not released" in each for each in made.limits)
    assert any("start is drawn exactly" in each for each in made.enforced)
    assert made.parameters["choice"]["problem"]["constants"]["D_g"] == 2.0
    own = declared()
    choice = ExponentialMechanism(problem=own, epsilon=1.0, spread=0.1)
    descent = Descent(problem=own, mu=1.0, steps=2, rate=0.1, start=np.zeros(1))
    with pytest.raises(ValueError, match="leave out its start"):
        WarmStart(choice=choice, descent=descent)
