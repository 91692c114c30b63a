"""A group's integral: against closed forms and dense grids, wherever its nodes were put."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import tallbayes as tb
from tallbayes.groups.nodes import find_nodes, with_nodes
from tallbayes.groups.placing import gather
from tallbayes.groups.units import RowsInMemory, make_grouping
from tallbayes.model.groups.integral import new_unit
from tallbayes.model.groups.linear import Conditional, _log_integral
from tallbayes.model.groups.matrices import cholesky, solve_lower, solve_upper
from tallbayes.model.groups.mixed import with_effects
from tallbayes.model.groups.terms import EffectTerm, root_of
from tallbayes.model.space import make_space
from tallbayes.setup.preparation import place

GROUPS, EACH = 7, 6


def rows(family: str, size: int) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    group = rng.permutation(np.repeat([f"g{k}" for k in range(GROUPS)], EACH))[:-3]
    x = rng.normal(size=(len(group), 2))
    eta = x @ [0.6, -0.3] + rng.normal(size=GROUPS)[np.unique(group, return_inverse=True)[1]]
    y = {"linear": eta + rng.normal(size=len(eta)), "poisson": rng.poisson(np.exp(eta))}
    z = np.column_stack([np.ones(len(group)), x[:, 0]])[:, :size]
    binary = (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
    return {"x": x, "y": y.get(family, binary).astype(float), "z0": z, "g": group}


def placed(family: str, size: int, nodes: int) -> Any:
    """Units with nodes at the start values, which are as good as any."""
    model = with_effects(getattr(tb.families, family)(), EffectTerm("g", size))
    model = replace(model, groups=replace(model.groups, nodes=nodes, closed=None))
    gathered = gather(model, rows(family, size))
    found = place(gathered.model, gathered.units, "float64", False, None, gathered.bound)
    vector = found.start + 0.1
    table = replace(found.table, rows=with_nodes(found.table, find_nodes(found.target, found.table, vector)))
    return found.target, table, vector


def unit_of(table: Any, number: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[number], table.rows)


def by_grid(target: Any, vector: Any, unit: Any, size: int) -> float:
    """log of the integral by the trapezoidal rule."""
    grid = np.linspace(-9.0, 9.0, 721 if size == 1 else 241)
    points = np.stack(np.meshgrid(*[grid] * size, indexing="ij"), axis=-1).reshape(-1, size)
    root = np.asarray(unit["root"])
    points = points @ root.T + np.asarray(unit["centre"] + unit["slope"] @ vector)
    values = jax.jit(jax.vmap(target.integrated.joint, (None, 0, None)))(vector, points, unit)
    return float(logsumexp(values) + size * np.log(grid[1] - grid[0]) + np.log(np.linalg.det(root)))


@pytest.mark.parametrize(
    ("family", "size"),
    [("logistic", 2), ("poisson", 1), ("linear", 1)]
    + [pytest.param(*each, marks=pytest.mark.slow) for each in (("logistic", 1), ("poisson", 2), ("linear", 2))],
)
def test_nodes_integrate_every_group(family: str, size: int) -> None:
    with jax.enable_x64(True):
        target, table, vector = placed(family, size, 15)
        log_likelihood = jax.jit(target.log_likelihood)
        for number in (0, GROUPS - 1):
            unit = unit_of(table, number)
            # Where the nodes were put, and at a distance to which they follow.
            for there in (vector, vector + 0.1):
                exact = by_grid(target, there, unit, size)
                assert abs(float(log_likelihood(there, unit)) - exact) < 1e-6
        # The control: a single node is Laplace's approximation.
        single = replace(target.integrated.integral, nodes=1)
        nearly = jax.jit(lambda u: single(target.space.theta(u), u, unit))(vector)
        assert family == "linear" or abs(float(nearly) - exact) > 1e-3


@pytest.mark.parametrize("size", [1, 2])
def test_linear_groups_have_their_closed_form(size: int) -> None:
    data = rows("linear", size)
    model = with_effects(tb.families.linear(), EffectTerm("g", size))
    closed = gather(model, data)
    assert "sums" in closed.units
    with jax.enable_x64(True):
        target, table, vector = placed("linear", size, 15)
        theta = jax.jit(target.space.theta)(vector)
        own_density, density = jax.jit(closed.bound[0].log_likelihood), jax.jit(target.log_likelihood)
        own_moments, moments = (jax.jit(each.integrated.integral.moments) for each in (closed.bound[0], target))
        for number in range(GROUPS):
            sums = jax.tree.map(lambda leaf, number=number: leaf[number], closed.units)
            own = float(own_density(vector, sums))
            # The law of an effect is without its constant.
            theirs = float(density(vector, unit_of(table, number))) - size / 2 * np.log(2 * np.pi)
            assert abs(own - theirs) < 1e-9
            ours = own_moments(theta, vector, sums)
            nodes = moments(theta, vector, unit_of(table, number))
            np.testing.assert_allclose(ours.mean, nodes.mean, atol=1e-9)
            np.testing.assert_allclose(ours.variance, nodes.variance, rtol=1e-9)
            np.testing.assert_allclose(ours.fourth, nodes.fourth, rtol=1e-6)


def test_a_new_group_has_the_law_of_all_groups() -> None:
    with jax.enable_x64(True):
        target, table, vector = placed("logistic", 2, 15)
        theta, unit = jax.jit(target.space.theta)(vector), new_unit(unit_of(table, 0))
        # The density of a standard normal, without its constant.
        assert abs(float(jax.jit(target.log_likelihood)(vector, unit)) - np.log(2 * np.pi)) < 1e-9
        found = jax.jit(target.integrated.integral.moments)(theta, vector, unit)
        root = np.asarray(jax.jit(lambda theta: root_of(EffectTerm("g", 2), theta, 0))(theta))
        np.testing.assert_allclose(found.mean, 0.0, atol=1e-12)
        np.testing.assert_allclose(found.variance, np.diagonal(root @ root.T), rtol=1e-9)


def test_nodes_are_at_the_mode_and_follow_it() -> None:
    with jax.enable_x64(True):
        target, table, vector = placed("poisson", 2, 7)
        unit = unit_of(table, 3)

        @jax.jit
        def pull(u: Any) -> Any:
            b = unit["centre"] + unit["slope"] @ u
            return jax.grad(lambda each: target.integrated.joint(u, each, unit))(b)

        assert np.abs(pull(vector)).max() < 1e-4
        # To first order: a tenth of the way, a hundredth of the pull.
        move = np.linspace(-1.0, 1.0, len(vector))
        near, far = (np.abs(pull(vector + size * move)).max() for size in (1e-3, 1e-2))
        assert near < 0.03 * far


def test_units_do_not_depend_on_the_order_of_rows() -> None:
    data = rows("logistic", 1)
    order = np.argsort(data["g"], kind="stable")
    groups = with_effects(tb.families.logistic(), EffectTerm("g")).groups
    found = []
    for index in (np.arange(len(order)), order):
        grouping, codes = make_grouping("g", data["g"][index])
        arrays = {name: array[index] for name, array in data.items() if name != "g"}
        found.append(RowsInMemory(arrays, codes, grouping).units(groups, make_space({"x": np.zeros(4)}, None)[0])[0])
    here, there = found
    for one, other in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        np.testing.assert_array_equal(one, other)
    assert here["count"].sum() == len(order)


@pytest.mark.parametrize("column", [np.array([0.5, 1.0]), np.ones((2, 2)), np.array([1j, 2j])])
def test_what_is_no_group_is_refused(column: np.ndarray) -> None:
    with pytest.raises(tb.InputError):
        make_grouping("g", column)


def test_nodes_follow_where_groups_are_few_and_rows_are_many() -> None:
    """A scale is then known to a third of itself, and the effect given it to a tenth: at twice and half the scale the
    nodes must still be where the mass is."""
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(5), 60)
    eta = 1.2 * rng.normal(size=5)[group]
    data = {"x": np.ones((300, 1)), "y": (rng.random(300) < 1 / (1 + np.exp(-eta))).astype(float), "g": group}
    model = with_effects(tb.families.logistic(), EffectTerm("g"))

    def farthest(model: tb.Model) -> float:
        gathered = gather(replace(model, groups=replace(model.groups, nodes=11)), data)
        found = place(gathered.model, gathered.units, "float64", False, None, gathered.bound)
        nodes = find_nodes(found.target, found.table, found.start)
        log_likelihood = jax.jit(found.target.log_likelihood)
        table = replace(found.table, rows=with_nodes(found.table, nodes))
        errors = []
        for scale in (0.25, 1.0):
            there = found.start.copy()
            there[-1] = float(np.asarray(tb.constraints.half_normal(1.0).unconstrain(scale)))
            fresh = replace(table, rows=with_nodes(table, find_nodes(found.target, table, there)))
            for number in range(5):
                pair = [float(log_likelihood(there, unit_of(each, number))) for each in (table, fresh)]
                errors.append(abs(pair[0] - pair[1]))
        return max(errors)

    with jax.enable_x64(True):
        assert farthest(model) < 1e-4
        # The control: effects in units of their scale alone leave their nodes behind.
        assert farthest(replace(model, groups=replace(model.groups, stretch=None))) > 1e-3


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_matrices_are_those_of_lapack(size: int) -> None:
    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size))
    matrix, columns = root @ root.T + np.eye(size), rng.normal(size=(size, 2))
    with jax.enable_x64(True):
        found = cholesky(jnp.asarray(matrix))
        np.testing.assert_allclose(found, np.linalg.cholesky(matrix), atol=1e-12)
        np.testing.assert_allclose(solve_lower(found, columns), np.linalg.solve(found, columns), atol=1e-12)
        np.testing.assert_allclose(solve_upper(found, columns), np.linalg.solve(found.T, columns), atol=1e-12)


def test_a_linear_group_far_out_is_no_place_to_climb_to() -> None:
    """e^2 / sigma^2 and what its effect takes of it are equal to sixteen digits there: their difference is noise."""
    square, spread = 2.0, 1e36
    for sigma in np.geomspace(1e-44, 1e-30, 40):
        with jax.enable_x64(True):
            root = jnp.sqrt(1 + jnp.asarray([[spread**2]]) / sigma**2)
            pull = jnp.asarray([spread * square**0.5 / sigma**2])
            found = float(_log_integral(Conditional(root, pull, square, sigma, 1.0)))
        exact = -0.5 * square / (sigma**2 + spread**2) - np.log(np.hypot(sigma, spread))
        assert found <= exact + 1e-6
