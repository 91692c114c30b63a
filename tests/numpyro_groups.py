"""NumPyro models with plates of groups, on the rows of `numpyro_models`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro_models import GROUP, D, G, N, dist, handlers, normal, numpyro, observe

OTHER = (3 * np.arange(N) + 1) % 7
LEVEL = np.arange(G) / 3.0


def scale(name: str = "scale", **options: Any) -> Any:
    return numpyro.sample(name, dist.HalfNormal(2.0), **options)


def along(law: Any, name: str = "effect", plate: str = "groups", size: int = G) -> Any:
    with numpyro.plate(plate, size):
        return numpyro.sample(name, law)


def centred(group, y):
    mean, spread = normal(), scale()
    effect = along(dist.Normal(mean, spread))
    with numpyro.plate("data", len(y)) as index:
        numpyro.sample("y", dist.StudentT(4.0, effect[group[index]], 1.0), obs=y[index])


def slopes(x, group, y):
    """Two sites, and a plate that goes by the name of the argument."""
    mean, spread = normal(), scale(sample_shape=(2,))
    with numpyro.plate("group", G):
        level = numpyro.sample("level", dist.Normal(mean, spread[0]))
        slope = numpyro.sample("slope", dist.Normal(0.0, spread[1]))
    observe(level[group] + slope[group] * x[:, 0], y)


def root() -> Any:
    spread = scale(sample_shape=(2,))
    return spread[:, None] * numpyro.sample("root", dist.LKJCholesky(2, 2.0))


def correlated(x, group, y):
    """What is used is a deterministic of the site; another reads all groups, and is used by nothing."""
    raw = along(dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    effect = numpyro.deterministic("scaled", raw @ root().T)
    numpyro.deterministic("average", effect.mean(0))
    observe(effect[group, 0] + jnp.sum(effect[group] * x[:, :2], axis=1), y)


def vectors(x, group, y):
    mean = normal(sample_shape=(2,))
    effect = along(dist.MultivariateNormal(mean, scale_tril=root()))
    observe(effect[group][:, 0] + effect[group][:, 1] * x[:, 0], y)


def by_level(level, group, y):
    """Groups whose means differ by something known of each."""
    slope, spread = normal("slope"), scale()
    observe(along(dist.Normal(slope * level, spread))[group], y)


def by_level_not_centred(level, group, y):
    slope, spread = normal("slope"), scale()
    raw = along(dist.Normal(0.0, 1.0))
    observe((slope * level + spread * raw)[group], y)


def positive(group, y):
    rate = along(dist.Gamma(1.0 + scale(), 1.0))
    observe(jnp.take(jax.nn.softplus(rate), group), y)


def heavy(group, y):
    observe(along(dist.StudentT(4.0, 0.0, scale()))[group], y)


def with_factor(group, y):
    spread = scale()
    with numpyro.plate("groups", G):
        effect = numpyro.sample("effect", dist.Normal(0.0, spread))
        numpyro.factor("belief", -0.1 * effect**4)
    observe(effect[group], y)


def of_two_plates(group, y):
    spread = scale()
    with numpyro.plate("kinds", 2, dim=-2), numpyro.plate("groups", G, dim=-1):
        effect = numpyro.sample("effect", dist.Normal(0.0, spread))
    observe(effect[0, group] - 0.5 * effect[1, group], y)


def one_from_another(group, y):
    """The spread of a group is an effect of its own."""
    common = scale()
    with numpyro.plate("groups", G):
        spread = numpyro.sample("spread", dist.LogNormal(0.0, common))
        effect = numpyro.sample("effect", dist.Normal(0.0, spread))
    observe(effect[group], y)


def crossed(group, other, y):
    spread = scale()
    first = along(dist.Normal(0.0, spread), "first")
    second = along(dist.Normal(0.0, 1.0), "second", "others", 7)
    observe(first[group] + spread * second[other], y)


not_centred_by_handler = handlers.reparam(centred, config={"effect": numpyro.infer.reparam.LocScaleReparam(0)})


def about_their_mean(group, y):
    effect = along(dist.Normal(0.0, scale()))
    observe((effect - effect.mean())[group], y)


def of_neighbours(group, y):
    effect = along(dist.Normal(0.0, scale()))
    observe(effect[group] - effect[(group + 1) % G], y)


def beside_the_first(group, y):
    effect = along(dist.Normal(0.0, scale()))
    observe(effect[group] - effect[0], y)


def walking(group, y):
    effect = along(dist.Normal(0.0, scale()))
    observe(jnp.cumsum(effect)[group], y)


def by_columns(group, y):
    effect = along(dist.Normal(0.0, scale()))
    observe(jax.nn.one_hot(group, G) @ effect, y)


def by_a_parameter(group, y):
    effect, spread = along(dist.Normal(0.0, 1.0)), scale()
    observe(effect[jnp.where(spread > 1.0, group, (group + 1) % G)], y)


def of_four(x, group, y):
    effect = along(dist.Normal(0.0, scale()).expand([4]).to_event(1))
    observe(effect[group, 0] + jnp.sum(effect[group, 1:] * x, axis=1), y)


def alone(group, y):
    observe(along(dist.Normal(0.0, 1.0))[group], y)


def summed_up(group, y):
    effect = along(dist.Normal(0.0, scale()))
    numpyro.factor("sum", -((effect.sum() / 0.1) ** 2))
    observe(effect[group], y)


def unequal(group, y):
    spread = scale()
    observe(along(dist.StudentT(4.0, 0.0, spread * jnp.asarray(LEVEL + 1)))[group], y)


def unused(y):
    along(dist.Normal(0.0, scale()))
    observe(normal(), y)


def of_rows(y):
    spread = scale()
    with numpyro.plate("data", len(y)):
        hidden = numpyro.sample("hidden", dist.Normal(0.0, spread))
        numpyro.sample("y", dist.Normal(hidden, 1.0), obs=y)


def of_rows_by_columns(x, group, y):
    """Effects of rows about what is known of each, and of groups beside them."""
    slope, spread = normal("slope", sample_shape=(D,)), scale()
    effect = along(dist.Normal(0.0, 1.0))
    with numpyro.plate("data", N):
        hidden = numpyro.sample("hidden", dist.Normal(x @ slope + effect[group], spread))
        numpyro.sample("y", dist.StudentT(4.0, hidden, 1.0), obs=y)


def of_rows_positive(y):
    shape = scale("shape")
    with numpyro.plate("data", N):
        numpyro.sample("y", dist.Poisson(numpyro.sample("rate", dist.Gamma(1.0 + shape, 1.0))), obs=y)


def of_rows_in_a_chain(y):
    spread = scale()
    with numpyro.plate("data", len(y)):
        hidden = numpyro.sample("hidden", dist.Normal(0.0, spread))
        numpyro.sample("y", dist.Normal(jnp.cumsum(hidden), 1.0), obs=y)


def of_rows_all_together(y):
    spread = scale()
    with numpyro.plate("data", len(y)):
        hidden = numpyro.sample("hidden", dist.Normal(0.0, spread))
        numpyro.sample("y", dist.Normal(hidden, 1.0), obs=y)
    numpyro.factor("sum", -(hidden.sum() ** 2))


def four_of_rows(y):
    spread = scale()
    with numpyro.plate("data", len(y)):
        hidden = numpyro.sample("hidden", dist.Normal(0.0, spread).expand([4]).to_event(1))
        numpyro.sample("y", dist.Normal(hidden.sum(-1), 1.0), obs=y)


def rows_alone(y):
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(numpyro.sample("hidden", dist.Normal(0.0, 1.0)), 1.0), obs=y)


__all__ = ["GROUP", "LEVEL", "OTHER"]
