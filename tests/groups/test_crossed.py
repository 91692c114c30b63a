"""Crossed factors: derivatives in what a unit reads, and coordinates that have a mode, against dense algebra."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor.expansion import expand
from tallbayes.anchor.sums import Curvature, _add_general_terms, likelihood_sums
from tallbayes.groups.centre import find_marginal_mode
from tallbayes.groups.nodes import find_nodes, with_nodes
from tallbayes.groups.placing import gather
from tallbayes.model.groups.mixed import with_effects, with_information
from tallbayes.model.groups.terms import EffectTerm
from tallbayes.posterior.reported import reader_of, reading_of
from tallbayes.setup.preparation import place
from tallbayes.watch import watching

GROUPS, LEVELS, OTHERS, ROWS = 12, 20, 3, 60
FAMILIES = {"linear": tb.families.linear, "logistic": tb.families.logistic, "poisson": tb.families.poisson}


def rows(family: str, scale: float = 0.7) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    x, group, level = rng.normal(size=(ROWS, 2)), rng.integers(0, GROUPS, ROWS), rng.integers(0, LEVELS, ROWS)
    eta = x @ [0.4, -0.2] + 0.5 * rng.normal(size=GROUPS)[group] + scale * rng.normal(size=LEVELS)[level]
    y = {"linear": eta + 0.6 * rng.normal(size=ROWS), "poisson": rng.poisson(np.exp(eta))}
    binary = rng.random(ROWS) < 1 / (1 + np.exp(-eta))
    return {
        "x": x,
        "y": np.asarray(y.get(family, binary), float),
        "group": group,
        "z0": np.ones((ROWS, 1)),
        "z1": np.ones((ROWS, 1)),
        "level1": level.astype(np.int32),
        "z2": np.column_stack([np.ones(ROWS), x[:, 0]]),
        "level2": (group % OTHERS).astype(np.int32),
    }


@cache
def placed(family: str, count: int = 3) -> Any:
    """Units of a model with so many factors, of which the third has two correlated effects and holds the groups."""
    terms = EffectTerm("group"), EffectTerm("item", levels=LEVELS), EffectTerm("hall", 2, levels=OTHERS)
    data, own = rows(family), FAMILIES[family]()
    known = [with_information(own, term, place, data) for place, term in enumerate(terms[1:count], 1)]
    kept = {name: each for name, each in data.items() if not name.endswith("2") or count == 3}
    gathered = gather(with_effects(own, terms[0], *known), kept)
    found = place(gathered.model, gathered.units, "float64", False, None, gathered.bound)
    vector = found.start + 0.3 * np.random.default_rng(5).normal(size=len(found.start))
    table = found.table
    if "root" in table.rows:
        table = replace(table, rows=with_nodes(table, find_nodes(found.target, table, vector - 0.05)))
    return found.target, table, vector


@pytest.mark.parametrize(
    ("family", "count"), [("logistic", 2), *(pytest.param(each, 3, marks=pytest.mark.slow) for each in FAMILIES)]
)
def test_sums_in_what_units_read_are_those_of_all_parameters(family: str, count: int) -> None:
    target, table, vector = placed(family, count)
    assert target.integrated.reads is not None
    with jax.enable_x64(True):
        stop, point = np.int32(table.num_rows), jnp.asarray(vector)
        near = likelihood_sums(target, table.rows, np.int32(0), stop, point, curvature=Curvature.DENSE)
        inside = (np.arange(table.capacity) < table.num_rows).astype(float)
        nothing = (0.0, np.zeros(len(vector)), np.zeros((len(vector), len(vector))))
        dense = jax.jit(lambda at: _add_general_terms(target, table.rows, inside, at, Curvature.DENSE, nothing))(point)
    for one, other in zip(near, dense, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def dense_linear(data: dict[str, Any], theta: Any) -> float:
    """log N(y; X beta + effects of the second factor, sigma^2 I + Z D Z^T), but for (2 pi)^(-n/2)."""
    mean = data["x"] @ theta["coefficients"] + theta["effects1"][data["level1"], 0]
    same = data["group"][:, None] == data["group"]
    covariance = theta["noise_scale"] ** 2 * np.eye(ROWS) + theta["scales0"][0] ** 2 * same
    rest = data["y"] - mean
    return float(-0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * rest @ np.linalg.solve(covariance, rest))


def test_a_linear_model_has_its_closed_form_beside_other_factors() -> None:
    target, table, vector = placed("linear", 2)
    assert target.integrated.joint is None
    with jax.enable_x64(True):
        theta = jax.tree.map(np.array, jax.jit(target.space.theta)(vector))
        units = jax.tree.map(lambda leaf: leaf[: table.num_rows], table.rows)
        found = jax.jit(jax.vmap(lambda unit: target.log_likelihood(jnp.asarray(vector), unit)))(units)
        assert abs(float(jnp.sum(found)) - dense_linear(rows("linear"), theta)) < 1e-9
        # The control: without the other factor's effects it is another number.
        theta["effects1"] = 0 * theta["effects1"]
        assert abs(float(jnp.sum(found)) - dense_linear(rows("linear"), theta)) > 0.1


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_coordinates_of_effects_keep_their_law(count: int) -> None:
    """log pi(u) is the density of theta with the Jacobian of all of theta, found by derivatives."""
    target, _, vector = placed("linear", count)
    space = target.space
    with jax.enable_x64(True):
        flat = jax.jacfwd(lambda u: jnp.concatenate([jnp.ravel(each) for each in jax.tree.leaves(space.theta(u))]))
        size = np.linalg.slogdet(jax.jit(flat)(vector))[1]
        assert abs(float(jax.jit(space.log_jacobian)(vector)) - size) < 1e-9


def log_posterior(target: Any, table: Any, vector: np.ndarray) -> float:
    with watching(np.inf, lambda watch: None):
        return expand(target, table, vector, curvature=Curvature.NONE).value


@pytest.mark.slow
def test_the_joint_mode_is_near_that_of_the_scales_alone() -> None:
    """With b for a parameter there is none; with v its scale is that of the integral over all effects, by algebra."""
    target, table, _ = placed("linear", 2)
    start = np.zeros(target.dimension)
    with watching(np.inf, lambda watch: None):
        anchor = find_marginal_mode(target, table, start).anchor
    assert np.linalg.eigvalsh(anchor.precision)[0] > 0
    data, names = rows("linear"), target.space.labels()
    at, sd = names.index("scales1[0]"), anchor.sd
    same = [data[name][:, None] == data[name] for name in ("group", "level1")]

    def marginal(free: float) -> float:
        """The log density of this scale with all effects integrated out, and the rest where it is at the mode."""
        vector = anchor.mode.copy()
        vector[at] = free
        with jax.enable_x64(True):
            theta = jax.tree.map(np.asarray, target.space.theta(vector))
            own = target.space.constraints[names_of(target).index("scales1")]
            prior = float(own.log_jacobian(jnp.asarray(vector[at : at + 1]))) - theta["scales1"][0] ** 2 / 2
        covariance = theta["noise_scale"] ** 2 * np.eye(ROWS) + theta["scales0"][0] ** 2 * same[0]
        covariance = covariance + theta["scales1"][0] ** 2 * same[1]
        rest = data["y"] - data["x"] @ theta["coefficients"]
        return prior - 0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * rest @ np.linalg.solve(covariance, rest)

    grid = anchor.mode[at] + np.linspace(-2, 2, 201) * sd[at]
    best = grid[np.argmax([marginal(each) for each in grid])]
    assert abs(best - anchor.mode[at]) < 0.3 * sd[at]
    # The control: the density of b itself, which has no Jacobian, rises without end.
    lost = anchor.mode.copy()
    lost[at] = -12.0

    def of_b(vector: np.ndarray) -> float:
        with jax.enable_x64(True):
            effects = [each for each in target.space.constraints if hasattr(each, "term")]
            stretch = float(effects[0].log_jacobian(target.space.theta(jnp.asarray(vector))))
        return log_posterior(target, table, vector) - stretch

    assert log_posterior(target, table, lost) < log_posterior(target, table, anchor.mode) - 1
    assert of_b(lost) > of_b(anchor.mode) + 50


def names_of(target: Any) -> list[str]:
    return sorted(target.space.theta(np.zeros(target.dimension)))


@pytest.mark.parametrize("count", [2, 3])
def test_a_stored_posterior_reads_effects_as_its_model_does(count: int) -> None:
    target, _, vector = placed("linear", count)
    reading = reading_of(target, None)
    assert reading is not None
    # Effects are no lines of u; coefficients are.
    assert reading.line(0) is not None
    assert reading.line(target.dimension - 1) is not None or count == 3
    reader, units = reader_of(reading)
    with jax.enable_x64(True):
        own = jax.tree.leaves(jax.jit(target.reported)(vector, None))
        stored = jax.tree.leaves(jax.jit(reader.reported)(vector, units))
    for one, other in zip(own, stored, strict=True):
        np.testing.assert_allclose(one, np.asarray(other).reshape(np.shape(one)), rtol=1e-12, atol=1e-14)
