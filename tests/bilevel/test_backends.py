"""Both back ends make the same numbers, in double precision, of losses on vectors, trees and modules."""

import numpy as np
import pytest

from discretion.bilevel.backends import JaxBackend, TorchBackend, separable_gradients
from discretion.bilevel.counts import Counts, SplitRecords
from discretion.bilevel.losses import Problem
from discretion.gp import Box
from discretion.privacy import PublicError

jnp = pytest.importorskip("jax.numpy")

N, D = 23, 4


def losses(np_):
    def f(x, y, z):
        a, t = z
        return np_.log(np_.cosh(a @ y - t)) + 0.1 * (x * x).sum() + 0.3 * x[0] * (a @ y)

    def g(x, y, z):
        a, t = z
        return np_.log(np_.cosh(a @ y - t + x[0]))

    def reg(x, y):
        return 0.5 * np_.exp(x[1]) * (y * y).sum()

    return f, g, reg


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)), rng.normal(size=N)


def numbers(backend, np_, records):
    f, g, reg = losses(np_)
    x, y, v = np.array([0.3, -0.5]), np.linspace(-1, 1, D), np.linspace(2, 1, D)
    made, placed = backend.derivatives(f, g, reg, Counts(N)), backend.place(records)
    return {
        "F": made.outer_value(x, y, placed),
        "G": made.inner_value(x, y, placed),
        "F_x": made.outer_gradients(x, y, placed)[0],
        "F_y": made.outer_gradients(x, y, placed)[1],
        "G_y": made.inner_gradient(x, y, placed),
        "Hv": made.inner_hvp(x, y, v, placed),
        "Mv": made.inner_cross(x, y, v, placed),
        "rows": made.inner_rows(x, y, v, placed),
        "first": made.outer_first(x, y, placed),
        "inner first": made.inner_first(x, y, placed),
        "reg": made.regulariser(x, y, v),
        "reg first": made.regulariser_first(x, y),
        "separable": separable_gradients(backend, f, g, inner_reg=reg, y_init=np.zeros(D))(x, records),
    }


@pytest.fixture(scope="module")
def ours(records):
    return numbers(JaxBackend(), jnp, records)


def test_torch_and_jax_agree(records, ours):
    torch = pytest.importorskip("torch")
    theirs = numbers(TorchBackend(), torch, records)
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
        assert np.asarray(value).dtype == np.float64
        assert np.asarray(theirs[name]).dtype == np.float64


def test_jax_agrees_with_formulas(records, ours):
    A, t = records
    found = ours
    x, y, v = np.array([0.3, -0.5]), np.linspace(-1, 1, D), np.linspace(2, 1, D)
    u, lam = A @ y - t + x[0], np.exp(x[1])
    s, h = np.tanh(u), 1 / np.cosh(u) ** 2
    np.testing.assert_allclose(found["G_y"], A.T @ s / N + lam * y, rtol=1e-12)
    np.testing.assert_allclose(found["Hv"], A.T @ (h * (A @ v)) / N + lam * v, rtol=1e-12)
    np.testing.assert_allclose(found["Mv"], [h @ (A @ v) / N, lam * y @ v], rtol=1e-12)
    np.testing.assert_allclose(found["rows"], np.hstack([A * s[:, None], A * (h * (A @ v))[:, None],
                               np.stack([h * (A @ v), 0 * s], axis=1)]), rtol=1e-11, atol=1e-13)  # fmt: skip
    np.testing.assert_allclose(found["reg"], [*(lam * y), *(lam * v), 0.0, lam * y @ v], rtol=1e-12)


def test_separable_rows_depend_on_their_own_record_alone(records):
    f, g, reg = losses(jnp)
    rows = separable_gradients(JaxBackend(), f, g, inner_reg=reg, y_init=np.zeros(D))
    x = np.array([0.3, -0.5])
    before = rows(x, records)
    A, t = (each.copy() for each in records)
    A[3] = np.nan
    after = rows(x, (A, t))
    assert not np.isfinite(after[3]).any()
    np.testing.assert_array_equal(np.delete(after, 3, axis=0), np.delete(before, 3, axis=0))
    # against the hypergradient of a problem of one record
    problem = Problem(outer=f, inner=g, backend=JaxBackend(), x_domain=Box((-1, -1), (1, 1)), counts=1,
                      y_init=np.zeros(D), inner_reg=reg)  # fmt: skip
    one = problem.ingest((records[0][5:6], records[1][5:6]))
    y = problem.certified(x, one, 1e-13)
    np.testing.assert_allclose(before[5], problem.hypergradient(x, y, one)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["jax", "torch"])
def test_trees(kind):
    if kind == "torch":
        np_, backend = pytest.importorskip("torch"), TorchBackend
    else:
        np_, backend = jnp, JaxBackend
    like = {"w": np.zeros((D, 2)), "b": np.zeros(2)}
    to = backend(y_like=like, x_like=[np.zeros(1), np.zeros(1)])
    vector, _ = to.flatten({"w": np.arange(8.0).reshape(D, 2), "b": np.array([9.0, 8.0])})
    np.testing.assert_array_equal(vector, [9, 8, *range(8)])

    def f(x, y, z):
        return ((z @ y["w"] + y["b"]) ** 2).sum() * x[0][0]

    def g(x, y, z):
        return 0.5 * ((z @ y["w"] - x[1][0]) ** 2).sum() + 0.5 * (y["b"] ** 2).sum()

    Z = np.random.default_rng(1).normal(size=(6, D))
    made = to.derivatives(f, g, None, Counts(6))
    gradient = made.inner_gradient(np.array([2.0, 0.5]), vector, to.place(Z))
    W = vector[2:].reshape(D, 2)
    np.testing.assert_allclose(gradient, [9, 8, *(Z.T @ (Z @ W - 0.5) / 6).ravel()], rtol=1e-12)
    assert made.regulariser(np.zeros(2), vector, vector).shape == (22,)
    assert np_ is not None


def test_torch_module():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(D, 1)
    to = TorchBackend(y_like=module)
    start, _ = to.flatten(module)

    def g(x, y, z):
        return 0.5 * (torch.func.functional_call(module, y, z) ** 2).sum() + torch.exp(x[0]) * sum(
            (each**2).sum() for each in y.values()
        )

    Z = np.random.default_rng(1).normal(size=(6, D))
    made = to.derivatives(g, g, None, Counts(6))
    y = np.concatenate([start[:1], start[1:]])
    b, w = y[0], y[1:]
    gradient = made.inner_gradient(np.array([0.0]), y, to.place(Z))
    r = Z @ w + b
    np.testing.assert_allclose(gradient, [r.mean() + 2 * b, *(Z.T @ r / 6 + 2 * w)], rtol=1e-12)
    assert start.dtype == np.float64


@pytest.mark.parametrize("kind", ["jax", "torch"])
def test_single_precision_and_vectors_are_refused(kind):
    if kind == "torch":
        torch = pytest.importorskip("torch")
        to, single = TorchBackend(), lambda x, y, z: (z * y).sum().to(torch.float32)
    else:
        to, single = JaxBackend(), lambda x, y, z: (z * y).sum().astype("float32")
    for wrong in (single, lambda x, y, z: z * y):
        made = to.derivatives(wrong, wrong, None, Counts(3))
        with pytest.raises(PublicError, match="one float64 number"):
            made.outer_value(np.zeros(1), np.ones(2), to.place(np.ones((3, 2), dtype=np.float32)))


def test_counts_and_layouts():
    to = JaxBackend()
    assert to.count({"a": np.zeros((5, 2)), "b": np.zeros(5)}) == 5
    for wrong in ({"a": np.zeros((5, 2)), "b": np.zeros(4)}, np.array(1.0), ()):
        with pytest.raises(PublicError, match="as many rows"):
            to.count(wrong)
    f, g, reg = losses(jnp)
    problem = Problem(outer=f, inner=g, backend=to, x_domain=Box((-1, -1), (1, 1)), counts=Counts(4, 3),
                      y_init=np.zeros(D), inner_reg=reg, layout="split")  # fmt: skip
    rng = np.random.default_rng(3)
    parts = [(rng.normal(size=(n, D)), rng.normal(size=n)) for n in (4, 3)]
    held = problem.ingest(SplitRecords(*parts))
    x, y = np.zeros(2), np.ones(D)
    value = problem.outer_value(x, y, held)
    A, t = parts[1]
    assert value == pytest.approx(np.mean(np.log(np.cosh(A @ y - t))), rel=1e-12)
    with pytest.raises(PublicError, match="not 4 records"):
        problem.ingest(SplitRecords(parts[1], parts[0]))
