"""Moments of a row given theta, held against sums over a grid of its effects that NumPy writes out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import poisson

from tallbayes.groups.nodes import find_nodes, with_nodes
from tallbayes.groups.placing import gather
from tallbayes.model.families import linear, negative_binomial
from tallbayes.model.families import poisson as poisson_family
from tallbayes.model.groups.mixed import with_effects
from tallbayes.model.groups.terms import EffectTerm
from tallbayes.model.links import Wanted
from tallbayes.model.model import Model
from tallbayes.model.noise import Noise
from tallbayes.posterior.group_predictions import NEW_NODES, MixedOutcome, OfRows, _items
from tallbayes.setup.preparation import place

GROUPS, EACH, YEARS = 3, 5, 2
TERMS = EffectTerm("school", 2), EffectTerm("year", 1, levels=YEARS)
FAMILIES: dict[str, Model] = {
    "linear": linear(intercept_scale=5.0),
    "poisson": poisson_family(intercept_scale=5.0),
    "negative_binomial": negative_binomial(intercept_scale=5.0),
}


def rows(family: str) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    count = GROUPS * EACH
    y = rng.normal(size=count) if family == "linear" else rng.poisson(2.0, count).astype(float)
    return {
        "x": rng.normal(size=(count, 1)),
        "y": y,
        "school": np.repeat(np.arange(GROUPS), EACH),
        "z0": np.column_stack([np.ones(count), rng.normal(size=count)]),
        "z1": np.ones((count, 1)),
        "level1": rng.integers(0, YEARS, count).astype(np.int32),
    }


class Case(NamedTuple):
    """A model of a family at one theta, with its units."""

    family: str
    target: Any
    units: Any
    vector: np.ndarray
    theta: Any


@cache
def case(family: str) -> Case:
    model = with_effects(FAMILIES[family], *TERMS)
    gathered = gather(model, rows(family))
    placed = place(model, gathered.units, "float64", False, None, gathered.bound)
    vector = placed.start + 0.3 * np.random.default_rng(1).normal(size=len(placed.start))
    table = placed.table
    # Linear groups have their closed form.
    units = with_nodes(table, find_nodes(placed.target, table, vector)) if "root" in table.rows else table.rows
    with jax.enable_x64(True):
        theta = jax.tree.map(np.asarray, placed.target.space.theta(vector))
    return Case(family, placed.target, jax.tree.map(np.asarray, units), vector, theta)


def extra_of(family: str) -> str | None:
    return {"linear": "noise_scale", "negative_binomial": "overdispersion"}.get(family)


def log_density(family: str, y: Any, eta: Any, extra: Any) -> Any:
    if family == "linear":
        return -0.5 * ((y - eta) / extra) ** 2
    if family == "poisson":
        return y * eta - np.exp(eta)
    size, mean = 1 / extra, np.exp(eta)
    return gammaln(y + size) + y * np.log(mean) - (y + size) * np.log(size + mean)


def by_hand(found: Case, group: int | None, row: dict[str, Any]) -> list[np.ndarray]:
    """Mean and variance of outputs, and mean of Var(y), over grids of (a_1, a_2) and of t."""
    theta, extra = found.theta, extra_of(found.family)
    scale = None if extra is None else float(theta[extra])
    axis = np.linspace(-7, 7, 81)
    a = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    r, (s1, s2) = theta["correlations0"][0], theta["scales0"]
    b = a @ np.array([[s1, 0.0], [s2 * r, s2 * np.sqrt(1 - r**2)]]).T
    log_weight = -0.5 * np.sum(a**2, axis=1)
    table = rows(found.family)
    if group is not None:
        for i in np.flatnonzero(table["school"] == group):
            eta = table["x"][i] @ theta["coefficients"] + theta["intercept"] + b @ table["z0"][i]
            eta = eta + theta["effects1"][table["level1"][i], 0]
            log_weight = log_weight + log_density(found.family, table["y"][i], eta, scale)
    weight = np.exp(log_weight - log_weight.max())
    eta = row["x"] @ theta["coefficients"] + theta["intercept"] + row["offset"] + b @ row["z0"]
    t, chance = np.zeros(1), np.ones(1)
    if row["level1"] >= 0:
        eta = eta + theta["effects1"][row["level1"], 0]
    else:
        t = np.linspace(-8, 8, 61)
        chance = np.exp(-0.5 * t**2)
    eta = eta[:, None] + theta["scales1"][0] * t
    joint = weight[:, None] * chance
    joint /= joint.sum()
    values = [eta] if found.family == "linear" else [np.exp(eta)]
    if found.family == "poisson":
        values.append(poisson.sf(1, np.exp(eta)))
    noise = np.full_like(eta, (scale or 0.0) ** 2) if found.family == "linear" else values[0]
    if found.family == "negative_binomial":
        noise = values[0] + scale * values[0] ** 2
    means = [np.sum(joint * each) for each in values]
    variances = [np.sum(joint * (each - m) ** 2) for each, m in zip(values, means, strict=True)]
    return [np.array(means), np.array(variances), np.array([np.sum(joint * noise)])]


ROW = {"x": np.array([0.4]), "offset": np.array(0.2), "z0": np.array([1.0, -0.7]), "z1": np.array([1.0])}


def moments(found: Case, group: int | None, level: int, nodes: int) -> list[np.ndarray]:
    parts = FAMILIES[found.family].parts
    assert parts is not None
    wanted = Wanted(found.family, (2,) if found.family == "poisson" else ())
    outcome = MixedOutcome(wanted, TERMS, parts.extras, Noise(found.family), group is None, 1)
    if group is None or level < 0:
        outcome = outcome._replace(nodes=NEW_NODES)
    own = found.target.integrated.integral
    integral = None if group is None else replace(own, nodes=nodes)
    item = {"rows": {name: each[None] for name, each in {**ROW, "level1": np.int32(level)}.items()}}
    if group is not None:
        item["unit"] = jax.tree.map(lambda leaf: leaf[group], found.units)
    with jax.enable_x64(True):
        flat = np.asarray(jax.jit(OfRows(found.target.space, outcome, integral).__call__)(found.vector, item))
    size = (len(flat) - 1) // 2
    return [flat[:size], flat[size : 2 * size], flat[2 * size :]]


@pytest.mark.parametrize(
    "family",
    [pytest.param(each, marks=pytest.mark.slow if each == "negative_binomial" else ()) for each in FAMILIES],
)
@pytest.mark.parametrize(("group", "level"), [(1, 0), (2, -1), (None, 1), (None, -1)])
def test_moments_are_those_of_sums_over_a_grid(family: str, group: int | None, level: int) -> None:
    """To what nodes leave: a little of counts, whose squares reach far, and next to nothing of a line."""
    found = case(family)
    here, there = moments(found, group, level, 21), by_hand(found, group, {**ROW, "level1": level})
    tolerance = 1e-4 if family == "linear" else 2e-3
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance)


def test_one_node_is_not_enough() -> None:
    """The control: at the mode of its effect alone a group's row is off, and has no variance."""
    found = case("poisson")
    here, there = moments(found, 1, 0, 1), by_hand(found, 1, {**ROW, "level1": 0})
    assert abs(here[0][0] / there[0][0] - 1) > 0.005
    assert here[1][0] == 0 < there[1][0]


@pytest.mark.parametrize("width", [1, 2, 4])
def test_rows_are_put_together_by_group(width: int) -> None:
    places = np.array([3, 1, 3, 3, 0, 1, 3, 3])
    index, groups, inside = _items(places, width)
    assert sorted(index[inside]) == list(range(len(places)))
    assert np.all(places[index] == groups[:, None])
    assert len(groups) == sum(-(-count // width) for count in (1, 2, 5))
