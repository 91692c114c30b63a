"""NumPyro models, unchanged: the log density, its parts and the expectations are the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro_models import (
    CLICK,
    GRADE,
    GROUP,
    USED,
    WEIGHT,
    D,
    G,
    N,
    X,
    Y,
    densities,
    dist,
    handlers,
    hierarchical,
    linear,
    logistic,
    moved,
    numpyro,
    observe,
)

import tallbayes as tb
from tallbayes.doors.numpyro import programs
from tallbayes.doors.numpyro.model import from_numpyro
from tallbayes.doors.numpyro.supports import Support, constraint_of
from tallbayes.errors import ModelError
from tallbayes.model import constraints


def centred(group, y):
    mean = numpyro.sample("mean", dist.Cauchy(0, 5))
    spread = numpyro.sample("spread", dist.Exponential(1.0))
    with numpyro.plate("groups", G):
        effect = numpyro.sample("effect", dist.Normal(mean, spread))
    with numpyro.plate("data", y.shape[0]) as index:
        numpyro.sample("y", dist.StudentT(4.0, effect[group[index]], 1.0), obs=y[index])


def grades(x, y):
    slope = numpyro.sample("slope", dist.Normal(0, 1).expand([D]))
    ascending = dist.TransformedDistribution(dist.Normal(0, 2).expand([3]), dist.transforms.OrderedTransform())
    cuts = numpyro.sample("cuts", ascending)
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.OrderedLogistic(x @ slope, cuts), obs=y)


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    inside = numpyro.sample("inside", dist.Beta(2, 2))
    scale = numpyro.sample("scale", dist.Uniform(0.1, 10.0))
    parts = dist.Normal(jnp.array([-2.0, 0.0, 2.0]) * inside, scale)
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=y)


def outputs(table, offsets):
    """Two plates around a site, bounds that differ, an argument that is a pytree with a constant."""
    mean = numpyro.sample("mean", dist.Uniform(jnp.array([-9.0, -8.0, -7.0]), 9.0).to_event(1))
    tail = numpyro.sample("tail", dist.TruncatedNormal(3.0, 1.0, low=2.5))
    sums = numpyro.sample("sums", dist.ZeroSumNormal(1.0, (D,)))
    with numpyro.plate("data", len(table["y"]), dim=-2), numpyro.plate("repeats", D, dim=-1):
        centre = mean + sums + offsets[table["group"]][:, None]
        numpyro.sample("y", dist.StudentT(tail, centre, table["scale"]), obs=table["y"])


def factors(y, weight, used):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.factor("belief", -jnp.abs(mean))
    numpyro.sample("pilot", dist.Normal(mean, 0.1), obs=jnp.array([0.3, 0.4]))
    with numpyro.plate("data", N), handlers.scale(scale=weight):
        numpyro.factor("penalty", -0.1 * jnp.cos(y * mean))
        with handlers.mask(mask=used), handlers.scale(scale=0.5):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


class Case(NamedTuple):
    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    theta: dict[str, Any]
    rows: list[str]


REAL, POSITIVE = constraints.real, constraints.positive
TABLE = {"y": X, "group": GROUP, "scale": jnp.float32(2.0)}
CASES = {
    "logistic": Case(logistic, (X, CLICK), {}, {"slope": REAL}, ["x", "y"]),
    "linear": Case(linear, (jnp.asarray(X),), {"y": Y}, {"scale": POSITIVE, "slope": REAL}, ["x", "y"]),
    "hierarchical": Case(
        hierarchical,
        (X, GROUP, Y, N),
        {"num_groups": G},
        {"mean": REAL, "raw": REAL, "scale": POSITIVE, "slope": REAL, "spread": POSITIVE},
        ["group", "x", "y"],
    ),
    "centred": Case(
        centred,
        (jnp.asarray(GROUP), jnp.asarray(Y)),
        {},
        {"effect": REAL, "mean": REAL, "spread": POSITIVE},
        ["group", "y"],
    ),
    "ordered": Case(grades, (X, GRADE), {}, {"cuts": constraints.ordered, "slope": REAL}, ["x", "y"]),
    "simplex": Case(
        mixture,
        (Y,),
        {},
        {
            "inside": constraints.unit_interval,
            "scale": constraints.interval(0.1, 10.0),
            "weights": constraints.simplex,
        },
        ["y"],
    ),
    "outputs": Case(
        outputs, (TABLE, np.arange(G) / 3), {}, {"mean": Support, "sums": Support, "tail": Support}, ["table"]
    ),
    "factors": Case(factors, (Y, WEIGHT, USED), {}, {"mean": REAL}, ["used", "weight", "y"]),
    "reparametrised": Case(
        handlers.reparam(centred, config={"effect": numpyro.infer.reparam.LocScaleReparam(0)}),
        (jnp.asarray(GROUP), jnp.asarray(Y)),
        {},
        {"effect_decentered": REAL, "mean": REAL, "spread": POSITIVE},
        ["group", "y"],
    ),
    "conditioned": Case(handlers.condition(linear, {"scale": 1.5}), (X, Y), {}, {"slope": REAL}, ["x", "y"]),
    "conditioned on rows": Case(
        handlers.condition(linear, {"y": Y}), (X,), {}, {"scale": POSITIVE, "slope": REAL}, ["x", "y"]
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_log_density_is_that_of_numpyro(case: Case) -> None:
    model, data = from_numpyro(case.model, *case.args, integrate=False, **case.kwargs)
    assert sorted(data) == case.rows
    assert sorted(model.initial) == sorted(case.theta)
    for name, constraint in model.constraints.items():
        assert constraint == case.theta[name] or isinstance(constraint, Support) == (case.theta[name] is Support)
        constraint.require(name, model.initial[name])

    with jax.enable_x64(True):
        theta = moved(model)
        ours, theirs = densities(model, data, theta, case.model, *case.args, **case.kwargs)
        assert ours == pytest.approx(theirs, rel=1e-8)
        # The control: a single row is not beneath notice.
        last = jax.tree.map(lambda leaf: leaf[-1], data)
        assert abs(float(jax.jit(model.log_likelihood)(theta, last))) > 1e-6 * abs(theirs)


def test_a_row_is_differentiated_twice_in_either_precision() -> None:
    case = CASES["hierarchical"]
    model, data = from_numpyro(case.model, *case.args, integrate=False, **case.kwargs)
    row = jax.tree.map(lambda leaf: leaf[7], data)
    with jax.enable_x64(True):
        theta, derivatives = moved(model), {}
        for dtype in (jnp.float32, jnp.float64):
            cast = {name: jnp.asarray(value, dtype) for name, value in theta.items()}
            first = jax.tree.map(lambda leaf, d=dtype: jnp.asarray(leaf, d if leaf.dtype.kind == "f" else None), row)
            value, gradient = jax.jit(jax.value_and_grad(model.log_likelihood))(cast, first)
            hessian = jax.jit(jax.hessian(model.log_likelihood))(cast, first)
            assert value.dtype == dtype
            derivatives[dtype] = jax.tree.leaves((gradient, hessian))
        for single, double in zip(*derivatives.values(), strict=True):
            np.testing.assert_allclose(single, double, rtol=2e-3, atol=2e-3)


def test_the_prior_looks_at_no_more_than_a_row() -> None:
    model, _ = from_numpyro(linear, X, Y)
    with jax.enable_x64(True):
        text = jax.jit(model.log_prior).lower(model.initial).compile().as_text()
        assert f"[{N}" not in text
        # The control: the model itself does.
        whole = jax.jit(lambda theta: numpyro.infer.util.log_density(linear, (X, Y), {}, theta)[0])
        assert f"[{N}" in whole.lower(model.initial).compile().as_text()


def test_a_start_is_the_mean_of_the_prior_or_the_middle_of_its_support() -> None:
    model, _ = from_numpyro(hierarchical, X, GROUP, Y, N, num_groups=G, integrate=False)
    assert {name: np.mean(value) for name, value in model.initial.items()} == {
        "mean": 20.0,
        "raw": 0.0,
        "scale": 1.0,
        "slope": 0.0,
        "spread": 1.0,
    }


def test_a_length_that_is_ambiguous_is_told_by_name() -> None:
    def square(x, centre, y):
        slope = numpyro.sample("slope", dist.Normal(centre, 1.0).to_event(1))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(x @ slope, 1.0), obs=y)

    x, centre, y = X[:D], np.arange(D) / 2, Y[:D]
    with pytest.raises(ModelError, match="rows="):
        from_numpyro(square, x, centre, y)
    model, data = from_numpyro(square, x, centre, y, rows=("x", "y"))
    assert sorted(data) == ["x", "y"]
    np.testing.assert_array_equal(model.initial["slope"], centre)
    with jax.enable_x64(True):
        ours, theirs = densities(model, data, model.initial, square, x, centre, y)
    assert ours == pytest.approx(theirs, rel=1e-8)


def test_observations_of_groups_are_prior_where_rows_are_named() -> None:
    def surveyed(y, polls):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("polls", G):
            numpyro.sample("poll", dist.Normal(mean, 1), obs=polls)
        with numpyro.plate("data", N):
            numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    with pytest.raises(ModelError, match=r"'data' of 300, 'polls' of 5.*rows="):
        from_numpyro(surveyed, Y, np.ones(G))
    model, data = from_numpyro(surveyed, Y, np.ones(G), rows=["y"])
    assert sorted(data) == ["y"]
    with jax.enable_x64(True):
        expected = 6 * -0.5 * np.log(2 * np.pi) - 0.5 * G
        assert float(model.log_prior({"mean": np.zeros(())})) == pytest.approx(expected)


def test_nothing_is_left_behind_in_jax_or_for_its_owner() -> None:
    # Copies: JAX keeps a typed copy of every NumPy constant that was traced, and the other tests trace in float64.
    x, y, scales = X.copy(), Y.copy(), np.array([1.0, 2.0, 3.0])

    def scaled(x, y, scales):
        slope = numpyro.sample("slope", dist.Normal(0, scales).to_event(1))
        observe(x @ slope, y)

    def joint(theta: Any) -> jax.Array:
        return numpyro.infer.util.log_density(scaled, (x, y, scales), {}, theta)[0]

    theta = {"slope": jnp.ones(D)}
    before = jax.jit(joint)(theta)
    from_numpyro(scaled, x, y, scales)
    assert not jax.config.jax_enable_x64
    assert jnp.ones(1).dtype == jnp.float32
    assert float(jax.jit(joint)(theta)) == float(before)


def test_other_bounds_are_another_support() -> None:
    def support(lower: float) -> Any:
        return constraint_of(dist.constraints.greater_than(np.array([lower, 0.0])))

    assert support(1.0) == support(1.0)
    assert hash(support(1.0)) == hash(support(1.0))
    assert support(1.0) != support(2.0)
    free = jnp.zeros(2, jnp.float32)
    assert support(1.0).constrain(free).dtype == support(1.0).log_jacobian(free).dtype == jnp.float32
    with pytest.raises(ModelError, match=r"expected .*sigma.* got .* Try"):
        support(1.0).require("sigma", np.array([0.5, 0.5]))


@pytest.mark.parametrize("locked", [True, False])
def test_threads_take_turns_at_the_handlers_of_numpyro(locked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        time.sleep(0.01)
        observe(mean, y)

    model, data = from_numpyro(slow, Y)
    row = jax.tree.map(lambda leaf: leaf[0], data)
    if not locked:
        # The control: NumPyro by itself does not hold out.
        monkeypatch.setattr(programs, "_handlers_in_use", nullcontext())

    def trace(_: int) -> str:
        return str(jax.make_jaxpr(lambda theta: model.log_likelihood(theta, row))(model.initial))

    with ThreadPoolExecutor(4) as threads:
        tasks = [threads.submit(trace, each) for each in range(4)]
    failed = any(task.exception() for task in tasks)
    numpyro.primitives._PYRO_STACK.clear()
    assert failed != locked


@pytest.mark.slow
def test_an_estimate_is_that_of_the_conjugate_posterior() -> None:
    """InverseGamma(a, b) for a variance, Normal(0, variance) for the mean, Dirichlet for shares: all stay so.

    Within five standard errors and the bias: less than one false alarm in a million for each number.
    """

    def conjugate(y, kind, prior):
        variance = numpyro.sample("variance", dist.InverseGamma(3.0, 2.0))
        mean = numpyro.sample("mean", dist.Normal(0.0, jnp.sqrt(variance)))
        share = numpyro.sample("share", dist.Dirichlet(prior))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(mean, jnp.sqrt(variance)), obs=y)
            numpyro.sample("kind", dist.Categorical(share), obs=kind)

    generator, prior = np.random.default_rng(3), np.array([2.0, 1.0, 3.0])
    y, kind = generator.normal(0.7, 1.3, 60), generator.choice(3, 60, p=[0.2, 0.3, 0.5])
    model, data = from_numpyro(conjugate, y, kind, prior)
    quantities = {name: lambda theta, name=name: theta[name] for name in model.initial}
    result = tb.estimate(model, data, quantities, tolerance=0.05)
    assert result.converged

    after, mean = prior + np.bincount(kind, minlength=3), y.sum() / (y.size + 1)
    a, b = 3.0 + y.size / 2, 2.0 + 0.5 * (np.sum(y**2) - (y.size + 1) * mean**2)
    for name, exact in {"mean": mean, "variance": b / (a - 1), "share": after / after.sum()}.items():
        estimate = result[name]
        assert np.all(np.abs(estimate.value - exact) <= 5 * estimate.standard_error + estimate.bias_bound), name
    # The control: the logarithm's Jacobian, left out, would add one to `a`, and be seen.
    estimate = result["variance"]
    assert abs(b / a - estimate.value) > 5 * estimate.standard_error + estimate.bias_bound
