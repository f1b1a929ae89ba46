"""One hypergradient of this library and of its peers on the same work, in turn: nothing private, no noise.

Regularised logistic regression, 4,000 training and 4,000 validation records, d_y = 400, the log penalties of four
groups of coefficients as x. From y = 0, an inner solution with a gradient of 1e-8 and a linear solve with a residual of
1e-8.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.bilevel.backends import JaxBackend
from discretion.bilevel.certified import certified_inner
from discretion.bilevel.counts import Counts, SplitRecords
from discretion.bilevel.hypergradient import implicit_gradient
from discretion.bilevel.losses import Problem
from discretion.gp import Box

__all__ = ["hypergradients", "seconds"]

Floats = NDArray[np.float64]

N, D_Y, GROUPS, ACCURACY, MOST = 4000, 400, 4, 1e-8, 2000


def _data() -> tuple[Floats, Floats, Floats, Floats, Floats]:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2 * N, D_Y)) * 2.0 / np.sqrt(D_Y)
    b = np.sign(A @ rng.normal(size=D_Y) + rng.normal(size=2 * N))
    return A[:N], b[:N], A[N:], b[N:], np.full(GROUPS, -5.0)


def hypergradients() -> dict[str, Callable[[], Floats]]:
    """By library: ours, jaxopt, optimistix and torchopt, as far as they are installed."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    A, b, V, c, x = _data()
    group = np.repeat(np.arange(GROUPS), D_Y // GROUPS)

    def loss(x: Any, y: Any, z: Any) -> Any:
        return jnp.logaddexp(0.0, -z[1] * (z[0] @ y))

    def reg(x: Any, y: Any) -> Any:
        return 0.5 * jnp.sum(jnp.exp(x)[group] * y * y)

    problem = Problem(
        outer=loss,
        inner=loss,
        inner_reg=reg,
        backend=JaxBackend(),
        x_domain=Box((-9.0,) * GROUPS, (9.0,) * GROUPS),
        counts=Counts(N, N),
        layout="split",  # pyright: ignore[reportArgumentType]
        y_init=np.zeros(D_Y),
    )
    held = problem.ingest(SplitRecords((A, b), (V, c)))

    def ours() -> Floats:
        y = certified_inner(problem, x, held, ACCURACY, None)
        return implicit_gradient(problem, x, y, held, ACCURACY, "cg")

    found: dict[str, Callable[[], Floats]] = {"discretion": ours}
    At, bt, Vt, ct = map(jnp.asarray, (A, b, V, c))
    nought = jnp.zeros(D_Y)

    def inner(y: Any, x: Any) -> Any:
        return jnp.mean(jnp.logaddexp(0.0, -bt * (At @ y))) + reg(x, y)

    def outer(y: Any) -> Any:
        return jnp.mean(jnp.logaddexp(0.0, -ct * (Vt @ y)))

    def compiled(solve: Callable[[Any], Any]) -> Callable[[], Floats]:
        gradient = jax.jit(jax.grad(lambda x: outer(solve(x))))
        return lambda: np.asarray(gradient(jnp.asarray(x)))

    with suppress(ImportError):
        import jaxopt  # pyright: ignore[reportMissingImports]
        from jaxopt.linear_solve import solve_cg  # pyright: ignore[reportMissingImports]

        linear = partial(solve_cg, tol=ACCURACY, maxiter=MOST)
        lbfgs = jaxopt.LBFGS(inner, tol=ACCURACY, maxiter=MOST, implicit_diff=True, implicit_diff_solve=linear)
        found["jaxopt, L-BFGS"] = compiled(lambda x: lbfgs.run(nought, x).params)
    with suppress(ImportError):
        import lineax  # pyright: ignore[reportMissingImports]
        import optimistix  # pyright: ignore[reportMissingImports]

        cg = lineax.CG(rtol=ACCURACY, atol=ACCURACY)
        solver = optimistix.Newton(rtol=ACCURACY, atol=ACCURACY, linear_solver=cg)
        tags = frozenset({lineax.positive_semidefinite_tag, lineax.symmetric_tag})
        adjoint = optimistix.ImplicitAdjoint(linear_solver=cg)

        def root(x: Any) -> Any:
            return optimistix.root_find(
                lambda y, x: jax.grad(inner)(y, x), solver, nought, args=x, tags=tags, adjoint=adjoint, max_steps=MOST
            ).value

        found["optimistix, Newton"] = compiled(root)
    with suppress(ImportError):
        found["torchopt, L-BFGS"] = _torchopt()
    return found


def _torchopt() -> Callable[[], Floats]:
    """torchopt differentiates; the inner solver is torch's L-BFGS."""
    import torch  # pyright: ignore[reportMissingImports]
    import torchopt as library  # pyright: ignore[reportMissingImports]

    torchopt: Any = library

    A, b, V, c, x = map(torch.as_tensor, _data())
    group = torch.as_tensor(np.repeat(np.arange(GROUPS), D_Y // GROUPS))

    def inner(y: Any, x: Any) -> Any:
        return torch.nn.functional.softplus(-b * (A @ y)).mean() + 0.5 * (torch.exp(x)[group] * y * y).sum()

    solve_cg = torchopt.linear_solve.solve_cg(rtol=0.0, atol=ACCURACY, maxiter=MOST)

    @torchopt.diff.implicit.custom_root(torch.func.grad(inner, argnums=0), argnums=1, solve=solve_cg)
    def solved(start: Any, x: Any) -> Any:
        y = start.clone().detach().requires_grad_(True)
        step = torch.optim.LBFGS([y], max_iter=MOST, tolerance_grad=ACCURACY / 20, tolerance_change=0.0,
                                 history_size=10, line_search_fn="strong_wolfe")  # fmt: skip

        def closure() -> Any:
            step.zero_grad()
            value = inner(y, x.detach())
            value.backward()
            return value

        step.step(closure)
        return y.detach().requires_grad_(True)

    def gradient() -> Floats:
        at = x.clone().requires_grad_(True)
        y: Any = solved(torch.zeros(D_Y, dtype=torch.float64), at)
        value = torch.nn.functional.softplus(-c * (V @ y)).mean()
        return torch.autograd.grad(value, at)[0].numpy()

    return gradient


def seconds(methods: dict[str, Callable[[], Floats]], rounds: int = 25) -> dict[str, float]:
    """The least CPU time of each over rounds in which all run once, after one to compile."""
    best = dict.fromkeys(methods, np.inf)
    for turn in range(rounds + 1):
        for name, method in methods.items():
            begun = time.process_time()
            method()
            if turn:
                best[name] = min(best[name], time.process_time() - begun)
    return best
