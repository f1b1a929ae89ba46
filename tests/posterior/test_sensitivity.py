import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reference.posterior import ROWS
from discretion.gp.kernels import (
    RBF,
    Diagonal,
    Exponential,
    Kernel,
    Matern32,
    Matern52,
    RationalQuadratic,
)
from discretion.posterior import sensitivity as sn
from discretion.posterior.assumptions import Separated


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_reference_figures(row):
    assert float(row["compute"]()) == pytest.approx(row["expected"], rel=row["rtol"], abs=0.0)


def test_variance_bound_keeps_its_digits():
    assert sn.posterior_variance_bound(2, 1e-9, 1.0) / 1e-18 == pytest.approx(1.0, rel=1e-12)
    assert sn.posterior_variance_bound(1, 0.3, 0.7) == 1.0
    assert sn.posterior_variance_bound(10, 0.3, -0.4) == 1.0


@given(
    n=st.integers(1, 10_000),
    r=st.floats(1e-3, 1e3),
    kappa=st.floats(0, 1),
)
def test_variance_bound_lies_where_it_must(n, r, kappa):
    v = float(sn.posterior_variance_bound(n, r, kappa))
    assert r**2 / (n - 1 + r**2) * (1 - 1e-12) <= v <= 1.0
    assert v >= (1 - kappa**2) * (1 - 1e-12)


def test_coupled_supremum_against_a_dense_grid():
    rng = np.random.default_rng(1)
    n = np.floor(10 ** rng.uniform(0, 6, 120))
    r = 10 ** rng.uniform(-4, 4, 120)
    v = np.where(rng.uniform(size=120) < 0.2, 1.0, rng.uniform(size=120) ** 3)
    found = sn.mean_sensitivity_coupled(n, v, r)
    c, q = np.sqrt(n - 1)[:, None] / r[:, None], r[:, None] ** 2
    grid = np.sort(np.concatenate([np.logspace(-14, 0, 20_001), np.linspace(0, 1, 20_001)]))
    u = grid * v[:, None]
    dense = np.zeros_like(r)
    for _ in range(2):  # the whole interval, then the neighbourhood of the best node
        ratio = 2 * (np.sqrt(u) + c * u * np.sqrt(1 - u)) / (q + u)
        best = np.clip(np.argmax(ratio, axis=1)[:, None], 1, u.shape[1] - 2)
        dense = np.max(ratio, axis=1)
        assert np.all(found >= dense)
        low, high = np.take_along_axis(u, best - 1, axis=1), np.take_along_axis(u, best + 1, axis=1)
        u = np.minimum(low + (high - low) * np.linspace(0, 1, 20_001), v[:, None])
    assert np.all(found <= dense * (1 + 1e-9))


@given(n=st.integers(1, 10**6), r=st.floats(1e-3, 1e3), v=st.floats(1e-6, 1.0), m=st.floats(0.01, 100.0))
def test_bounds_are_ordered_and_homogeneous(n, r, v, m):
    lower = sn.mean_sensitivity_lower(v, r, m)
    operator, coupled = sn.mean_sensitivity_operator(n, v, r, m), sn.mean_sensitivity_coupled(n, v, r, m)
    generic = sn.mean_sensitivity_generic(n, v, r, m)
    assert lower <= generic * (1 + 1e-12)
    assert generic <= operator <= sn.mean_sensitivity_simple(n, v, r, m) * (1 + 1e-12)
    assert generic <= coupled
    assert generic == pytest.approx(m * float(sn.mean_sensitivity_generic(n, v, r)), rel=1e-12)
    assert sn.mean_sensitivity_exponential_1d(v, r, m) >= lower / math.sqrt(2) * (1 - 1e-12)
    rkhs = sn.mean_sensitivity_rkhs(n, v, r, m, 0.5 * m)
    assert rkhs == pytest.approx(float(m * v / (r**2 + v) + 0.5 * generic), rel=1e-12)


def test_bounds_do_not_decrease_in_the_variance():
    v = np.linspace(1e-3, 1.0, 300)
    for r in (0.05, 0.4, 1.0, 3.0, 40.0):
        for n in (1, 2, 30, 5000):
            for bound in (
                sn.mean_sensitivity_operator(n, v, r),
                sn.mean_sensitivity_coupled(n, v, r),
                sn.mean_bound(n, v, r),
                sn.phi(v, r),
                sn.mean_sensitivity_rkhs(n, v, r, 1.0, 0.3),
            ):
                assert np.all(np.diff(bound) >= -1e-12 * bound[1:])


def test_one_record_is_alone():
    v, r = 0.8, np.array([0.1, 1.0, 5.0])
    alone = 2 * np.sqrt(sn.phi(v, r))
    for bound in (sn.mean_sensitivity_simple, sn.mean_sensitivity_operator, sn.mean_sensitivity_coupled):
        assert bound(1, v, r) == pytest.approx(alone, rel=1e-11)


def test_separation_bound_is_void_beyond_the_ridge():
    assert sn.mean_sensitivity_separated(2.0, 1.0, 1.0) == math.inf
    assert sn.mean_sensitivity_separated(math.inf, 1.0, 1.0) == math.inf
    assert sn.mean_sensitivity_separated(0.0, 1.0, 1.0) == pytest.approx(1.0)
    assert sn.separated_mean_bound(2.5, 1.0) == math.inf


@pytest.mark.parametrize(
    "kernel", [Exponential(0.3), Matern32(0.5), Matern52(0.4), RBF(0.6), RationalQuadratic(0.2, 2.5)]
)
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_packing_sum_covers_real_packings(kernel: Kernel, dimension: int):
    """Lattices, the densest packing of the plane among them, stay below the sum; in one dimension it is
    attained.
    """
    half = 60 if dimension == 1 else 12 if dimension == 2 else 5
    axes = np.stack(np.meshgrid(*[np.arange(-half, half + 1.0)] * dimension, indexing="ij"), -1).reshape(-1, dimension)
    if dimension == 2:
        axes = axes @ np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)]])
    if dimension == 3:
        axes = axes @ (np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]) / math.sqrt(2.0))
    distance = np.linalg.norm(axes, axis=1)
    distance = distance[distance > 1e-9]
    assert distance.min() == pytest.approx(1.0)
    reached = float(np.sum(kernel(distance[:, None], np.zeros((1, 1)))))
    cumulative = sn.packing_sum(kernel, 1.0, dimension)
    assert reached <= cumulative * (1 + 1e-12)
    assert cumulative <= sn.packing_sum(kernel, 1.0, dimension, counts="shell") * (1 + 1e-9)
    if dimension == 1 and not isinstance(kernel, RationalQuadratic):
        assert reached == pytest.approx(cumulative, rel=1e-9)


def test_packing_sum_edges():
    assert sn.packing_sum(Diagonal(1.0), 1.0, 2) == 0.0
    assert sn.packing_sum(RationalQuadratic(1.0, 0.9), 1.0, 2) == math.inf
    assert 0.0 < sn.packing_sum(RBF(1e-3), 1.0, 2) < 1e-299
    # one axis may be shorter: the largest length scale is the safe one
    assert sn.packing_sum(Exponential((0.1, 0.4)), 1.0, 2) == sn.packing_sum(Exponential(0.4), 1.0, 2)
    exponential = sn.packing_sum(Exponential(0.25), 1.0, 1)
    z = math.exp(-4.0)
    assert exponential >= 2 * z / (1 - z)

    class Unknown(Kernel):
        name = "unknown"

        def _apply(self, s):
            s[...] = 1.0

        def _slope(self, s):
            return s

    with pytest.raises(ValueError, match="No packing sum"):
        sn.packing_sum(Unknown(1.0), 1.0, 2)


def test_separated_checks_its_packing_sum():
    good = Separated.for_kernel(Exponential(0.25), 1.0, 1.0, 2)
    good.check(Exponential(0.25), 2)
    with pytest.raises(ValueError, match="packing"):
        good.check(Exponential(0.4), 2)
    with pytest.raises(ValueError, match="covariate"):
        good.check(Exponential(0.25), 1)


def test_amplitude_must_be_normalised():
    """A kernel of amplitude s^2 is the unit kernel at ridge r / s: the raw ridge would understate the
    shift.
    """
    s, r = 3.0, 20.0
    v = s**2  # n = 1, x = x': posterior kernel of an empty core
    shift = 2.0 * math.sqrt(v) / (r**2 + v)  # in the Hilbert space of s^2 k0, for responses +-1
    normalised = 2.0 * math.sqrt(float(sn.phi(1.0, r / s)))
    assert shift * s == pytest.approx(normalised)  # scale s sigma: the same ratio to the noise
    assert shift > 2.0 * math.sqrt(float(sn.phi(1.0, r)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sn.posterior_variance_bound(0, 1.0), "n must be"),
        (lambda: sn.posterior_variance_bound(2.5, 1.0), "whole number"),
        (lambda: sn.posterior_variance_bound(2, 0.0), "ridge"),
        (lambda: sn.posterior_variance_bound(2, math.nan), "ridge"),
        (lambda: sn.posterior_variance_bound(2, 1e200), "ridge"),
        (lambda: sn.posterior_variance_bound(2, 1.0, 1.1), "least_kernel"),
        (lambda: sn.posterior_variance_bound(2, 1.0, math.nan), "least_kernel"),
        (lambda: sn.mean_sensitivity_operator(2, 0.0, 1.0), "variance"),
        (lambda: sn.mean_sensitivity_operator(2, 1.0, 1.0, -1.0), "response_bound"),
        (lambda: sn.packing_sum(RBF(1.0), 0.0, 1), "separation"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("origin", "spacing"), [(0.0, 1e-3), (1.7e9, 2.0**-10), (1e16, 4096.0)])
@pytest.mark.parametrize("scale", [1.0, 3.3, 0.5])
def test_packing_holds_for_divided_coordinates(origin, spacing, scale):
    """Far from 0 neighbouring records come nearer by what division rounds."""
    x = origin + spacing * np.arange(41.0)
    kernel, apart = Exponential(spacing * scale), float(np.diff(x).min())
    assumption = Separated.for_kernel(kernel, 1.0, apart, 1)
    held = assumption.rounded(kernel, abs(x[-1]) / kernel.length_scale)
    scaled = x / kernel.length_scale
    sums = np.exp(-np.abs(scaled[:, None] - scaled)).sum(1) - 1.0
    assert assumption.packing <= held.packing
    assert sums.max() <= held.packing * (1.0 + 1e-12)
    if origin == 0.0:
        assert held.packing == pytest.approx(assumption.packing, rel=1e-9)
    with pytest.raises(ValueError, match="public origin"):
        assumption.rounded(kernel, 1e16 / scale)
