import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discretion.gp.domain import Ball, Box
from discretion.gp.kernels import (
    KERNELS,
    RBF,
    Diagonal,
    Exponential,
    Matern32,
    Matern52,
    RationalQuadratic,
    kernel,
)
from discretion.gp.path import KERNEL_ROUNDING

SMOOTH = [Matern32, Matern52, RBF, RationalQuadratic]
ALL = [Exponential, *SMOOTH, Diagonal]

EXACT = {
    "exponential": lambda s: mpmath.exp(-s),
    "matern32": lambda s: (1 + mpmath.sqrt(3) * s) * mpmath.exp(-mpmath.sqrt(3) * s),
    "matern52": lambda s: (1 + mpmath.sqrt(5) * s + 5 * s**2 / 3) * mpmath.exp(-mpmath.sqrt(5) * s),
    "rbf": lambda s: mpmath.exp(-(s**2) / 2),
    "rational-quadratic": lambda s: 1 / (1 + s**2 / 2),
    "diagonal": lambda s: mpmath.mpf(s == 0),
}


@pytest.mark.parametrize(
    ("k", "value"),
    [
        (Exponential(0.5), 0.1353352832366127),
        (Matern32(0.5), 0.1397313501923147),
        (Matern52(0.5), 0.1386602191385043),
        (RBF(0.5), 0.1353352832366127),
        (RationalQuadratic(0.5, 1.5), 0.2805658588748473),
        (Diagonal(), 0.0),
    ],
)
def test_reference_values_at_distance_one(k, value):
    assert k([[0.0]], [[1.0]])[0, 0] == pytest.approx(value, abs=1e-13)
    assert k([[0.0, 0.6]], [[0.8, 0.0]])[0, 0] == pytest.approx(value, abs=1e-13)
    assert k.profile(2.0 if k.length_scale == 0.5 else 1.0) == pytest.approx(value, abs=1e-13)
    assert isinstance(k.profile(2.0), float)


@pytest.mark.parametrize("cls", ALL)
def test_unit_diagonal_symmetric_and_positive_semidefinite(cls):
    X = np.random.default_rng(0).normal(size=(40, 3))
    K = cls(0.7)(X)
    assert (np.diag(K) == 1).all()
    assert np.array_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() > -1e-12
    np.testing.assert_array_equal(K, cls(0.7)(X, X))
    assert cls()(X, X[:0]).shape == (40, 0)
    assert cls()(X[:0], X).shape == (0, 40)


@pytest.mark.parametrize("cls", ALL)
def test_tiles_agree_with_single_rows(cls):
    rng = np.random.default_rng(1)
    X, Z = rng.normal(size=(57, 2)), rng.normal(size=(3001, 2))
    K = cls((0.7, 1.3))(X, Z)
    rows = np.vstack([cls((0.7, 1.3))(x[None], Z) for x in X])
    assert np.array_equal(K, rows)


@pytest.mark.parametrize("cls", ALL)
def test_values_are_right_to_the_rounding_the_floor_of_noise_assumes(cls):
    rng = np.random.default_rng(2)
    X = np.vstack([rng.normal(size=(12, 3)), rng.normal(size=(12, 3)) * 1e-4 + 1e3, rng.normal(size=(12, 3)) * 5])
    K = cls(1.0)(X)
    with mpmath.workdps(40):
        for i in range(len(X)):
            for j in range(i):
                s = mpmath.sqrt(
                    sum((mpmath.mpf(float(a)) - mpmath.mpf(float(b))) ** 2 for a, b in zip(X[i], X[j], strict=True))
                )
                assert abs(K[i, j] - EXACT[cls.name](s)) <= KERNEL_ROUNDING


def test_length_scale_for_each_axis():
    k = RBF((0.5, 2.0))
    expected = math.exp(-((0.3 / 0.5) ** 2 + (1.0 / 2.0) ** 2) / 2)
    assert k([[0.0, 0.0]], [[0.3, 1.0]])[0, 0] == pytest.approx(expected, rel=1e-14)
    with pytest.raises(ValueError, match="2 length scales for 3"):
        k([[0.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match="length scales"):
        k.input_gradient([[0.0]], [[0.0]])
    with pytest.raises(ValueError, match="length scales"):
        Diagonal((1.0, 2.0))([[0.0]])


def test_distances_do_not_cancel_far_from_the_origin():
    # eastings in metres: a Gram-trick distance in single precision is off by 256 m
    east = np.array([[531979.3], [531979.8]])
    assert Exponential(1.0)(east)[0, 1] == pytest.approx(math.exp(-0.5), rel=1e-9)
    far = np.array([[1e6, 1e6], [1e6 + 1e-3, 1e6]])
    distance = float(far[1, 0] - far[0, 0])
    assert 1 - Exponential(1.0)(far)[0, 1] == pytest.approx(-math.expm1(-distance), rel=1e-9)
    assert Exponential(1.0)(np.float32([[0.5]]), np.float32([[0.25]])).dtype == np.float64


def test_diagonal_kernel_tells_apart_points_whose_squared_distance_underflows():
    X = [[0.0], [1e-200], [-0.0], [5e-324]]
    assert Diagonal()(X).tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
    assert np.array_equal(Diagonal(1e300)([[1.0], [1.0 + 2**-52]]), np.eye(2))


@pytest.mark.parametrize("cls", SMOOTH)
def test_input_gradient_against_extended_precision_differences(cls):
    rng = np.random.default_rng(3)
    X, Z = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    Z[0] = X[0]
    k = cls((0.6, 1.7))
    gradient = k.input_gradient(X, Z)
    assert gradient.shape == (5, 4, 2)
    assert (gradient[0, 0] == 0).all()
    with mpmath.workdps(50):
        h = mpmath.mpf(10) ** -20
        for i, j, axis in np.ndindex(gradient.shape):

            def value(shift, i=i, j=j, axis=axis):
                x = [mpmath.mpf(float(v)) + (shift if a == axis else 0) for a, v in enumerate(X[i])]
                terms = ((x[a] - mpmath.mpf(float(Z[j, a]))) / mpmath.mpf(k.length_scale[a]) for a in range(2))
                return EXACT[cls.name](mpmath.sqrt(sum(t**2 for t in terms)))

            difference = (value(h) - value(-h)) / (2 * h)
            assert gradient[i, j, axis] == pytest.approx(float(difference), rel=1e-9, abs=1e-15)


def test_input_gradient_of_the_kernels_that_are_not_smooth():
    g = Exponential(0.5).input_gradient([[1.0], [0.0]], [[0.0]])
    assert g[0, 0, 0] == pytest.approx(-2 * math.exp(-2), rel=1e-14)
    assert g[1, 0, 0] == 0
    tiny = Exponential(0.5).input_gradient([[1e-300]], [[0.0]])
    assert np.isfinite(tiny).all()
    assert (Diagonal().input_gradient([[1.0], [0.0]], [[0.0]]) == 0).all()


@pytest.mark.parametrize("cls", ALL)
@given(seed=st.integers(0, 2**32 - 1), origin=st.floats(-1e4, 1e4))
def test_least_value_is_never_exceeded_and_attained_on_corners(cls, seed, origin):
    rng = np.random.default_rng(seed)
    sides = rng.uniform(0.01, 4, 2)
    scales = tuple(rng.uniform(0.2, 3, 2))
    k = cls(scales)
    box = Box((origin, 0.0), (origin + sides[0], sides[1]))
    least = k.least_value(box)
    corners = np.array([[a, b] for a in (box.lower[0], box.upper[0]) for b in (box.lower[1], box.upper[1])])
    inside = rng.uniform(box.lower, box.upper, (30, 2))
    assert (k(np.vstack([corners, inside])) >= least).all()
    if cls is not Diagonal:
        assert k(corners).min() == pytest.approx(least, rel=1e-9)
    ball = Ball((origin, 1.0), float(sides[0]))
    least = k.least_value(ball)
    axis = np.eye(2)[int(np.argmin(scales))]
    ends = np.vstack([ball.center + axis * ball.radius, ball.center - axis * ball.radius])
    inside = ball.clamp(rng.normal(ball.center, sides[0], (30, 2)))
    values = k(np.vstack([ball.clamp(ends), inside]))
    assert (values >= least).all()
    if cls is not Diagonal:
        assert values.min() == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("cls", ALL)
def test_least_value_is_below_the_exact_one_also_for_tiny_values(cls):
    for side in (1e-9, 0.1, 1.0, 5.0, 30.0, 300.0, 1e5, 1e200):
        least = cls(1.0).least_value(Box((0.0,), (side,)))
        with mpmath.workdps(40):
            exact = EXACT[cls.name](mpmath.mpf(side))
        assert 0 <= least <= exact
        if exact > 1e-280 and side < 1e100:
            assert least == pytest.approx(float(exact), rel=1e-11)
    assert Exponential(0.135).least_value(Box((0, 0), (1, 1))) == pytest.approx(
        math.exp(-math.sqrt(2) / 0.135), rel=1e-12
    )


def test_factory_and_names():
    names = ["diagonal", "exponential", "exponential-l1", "matern32", "matern52", "rational-quadratic", "rbf"]
    assert sorted(KERNELS) == names
    assert kernel("rational-quadratic", 0.5, alpha=1.5) == RationalQuadratic(0.5, 1.5)
    assert kernel("rbf", [0.5, 1]) == RBF((0.5, 1.0))
    assert kernel("diagonal") == Diagonal()
    with pytest.raises(ValueError, match="Unknown kernel 'matern'; known kernels: exponential, exponential-l1"):
        kernel("matern", 1.0)
    with pytest.raises(ValueError, match="'rbf' has no option 'alpha'; its options: none"):
        kernel("rbf", 1.0, alpha=2.0)
    assert len({RBF(0.5), RBF(0.5), RBF((0.5,))}) == 2


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, (), (1.0, 0.0), "long", None, (1.0, "x")])
def test_bad_length_scales_are_refused(bad):
    with pytest.raises(ValueError, match="length_scale"):
        RBF(bad)


def test_bad_options_and_inputs_are_refused():
    for alpha in (0, -1, math.nan, math.inf, "x"):
        with pytest.raises(ValueError, match="alpha"):
            RationalQuadratic(1.0, alpha)
    for X in ([[math.nan]], [[math.inf]]):
        with pytest.raises(ValueError, match="NaN or infinite"):
            RBF()(X)
    with pytest.raises(ValueError, match="change the unit"):
        RBF(1e-300)([[1e10]])
    with pytest.raises(ValueError, match="coordinate"):
        RBF()([[0.0]], [[0.0, 1.0]])
    for s in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="distances"):
            RBF().profile(s)


@pytest.mark.parametrize("cls", ALL)
def test_far_points_have_value_zero_and_no_overflow(cls):
    K = cls(1.0)([[0.0], [1e140]])
    assert K[0, 1] == pytest.approx(0, abs=1e-200)
    assert np.isfinite(cls(1.0).input_gradient([[0.0]], [[1e140]])).all()
