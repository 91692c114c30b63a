"""NumPyro models of several kinds on the same 300 rows, and their log density in two ways."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb

numpyro = pytest.importorskip("numpyro")
dist = pytest.importorskip("numpyro.distributions")
handlers = pytest.importorskip("numpyro.handlers")

N, D, G = 300, 3, 5
rng = np.random.default_rng(0)
X = rng.normal(size=(N, D))
GROUP = rng.integers(0, G, N)
WEIGHT = rng.uniform(0.5, 2.0, N)
USED = rng.uniform(size=N) < 0.7
Y = X @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=G)[GROUP] + rng.normal(size=N)
CLICK = (Y > 0).astype(int)
GRADE = np.digitize(Y, [-1.0, 0.0, 1.0])


def logistic(x, y):
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ slope), obs=y)


def linear(x, y=None):
    slope = numpyro.sample("slope", dist.MultivariateNormal(jnp.zeros(D), 2 * jnp.eye(D)))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", N):
        mean = numpyro.deterministic("mean", x @ slope)
        numpyro.sample("y", dist.Normal(mean, scale), obs=y)


def hierarchical(x, group, y, num_rows, *, num_groups):
    mean = numpyro.sample("mean", dist.Normal(20.0, 5.0))
    slope = numpyro.sample("slope", dist.Normal(0, 1), sample_shape=(D,))
    spread = numpyro.sample("spread", dist.HalfCauchy(1.0))
    with numpyro.plate("groups", num_groups):
        raw = numpyro.sample("raw", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.LogNormal(0, 1))
    with numpyro.plate("data", num_rows):
        numpyro.sample("y", dist.Normal(mean + x @ slope + spread * raw[group], scale), obs=y)


def observe(mean: Any, y: Any, **options: Any) -> None:
    with numpyro.plate("data", N, **options):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def normal(name: str = "mean", **options: Any) -> Any:
    return numpyro.sample(name, dist.Normal(0.0, 1.0), **options)


def moved(model: tb.Model, seed: int = 1) -> dict[str, Any]:
    """Values of the parameters away from the start; call within `jax.enable_x64`."""
    generator = np.random.default_rng(seed)
    free = {name: model.constraints[name].unconstrain(start) for name, start in model.initial.items()}
    step = {name: generator.normal(0.0, 0.3, np.shape(value)) for name, value in free.items()}
    return {name: model.constraints[name].constrain(jnp.asarray(free[name] + step[name])) for name in free}


def densities(model: tb.Model, data: Any, theta: Any, program: Any, *args: Any, **kwargs: Any) -> tuple[float, float]:
    """The log density as the sum over rows and as NumPyro has it on all of them; call within `jax.enable_x64`."""

    def both(theta: Any) -> tuple[jax.Array, jax.Array]:
        rows = jnp.sum(jax.vmap(model.log_likelihood, (None, 0))(theta, data))
        return model.log_prior(theta) + rows, numpyro.infer.util.log_density(program, args, kwargs, theta)[0]

    ours, theirs = jax.jit(both)(theta)
    assert ours.dtype == jnp.float64
    return float(ours), float(theirs)
