"""Bijectors onto the spaces of parameters: inverses, Jacobians, and where they must not be handed a value."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallbayes.errors import ModelError
from tallbayes.model import constraints
from tallbayes.model.constraints import Constraint

CONSTRAINTS: dict[str, Constraint] = {
    "real": constraints.real,
    "positive": constraints.positive,
    "unit interval": constraints.unit_interval,
    "interval": constraints.interval(-2, 3.5),
    "simplex": constraints.simplex,
    "ordered": constraints.ordered,
    "half-normal": constraints.half_normal(0.7),
    "correlation": constraints.correlation,
}
SHAPES = [(3,), (3, 2, 4)]
SCALARS = ["real", "positive", "unit interval", "interval", "half-normal", "correlation"]

every = pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def free_values(constraint: Constraint, shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(1).normal(0.0, scale, constraint.free_shape(shape))


@partial(jax.jit, static_argnums=0)
def numerical_log_jacobian(constraint: Constraint, free: jax.Array) -> jax.Array:
    """log |det| of the derivative, on the first K - 1 of K coordinates where they sum to one."""

    def coordinates(vector: jax.Array) -> jax.Array:
        value = constraint.constrain(vector.reshape(free.shape))
        return jnp.ravel(value[..., : free.shape[-1]] if free.ndim else value)

    return jnp.linalg.slogdet(jax.jacobian(coordinates)(jnp.ravel(free)))[1]


@every
@shapes
def test_constrain_and_unconstrain_are_inverse(constraint: Constraint, shape: tuple[int, ...]) -> None:
    free = free_values(constraint, shape, scale=2.0)
    with jax.enable_x64(True):
        value = np.asarray(constraint.constrain(jnp.asarray(free)))
        again = constraint.unconstrain(jnp.asarray(value))
        assert isinstance(again, jax.Array)
    assert value.shape == shape
    constraint.require("theta", value)
    np.testing.assert_allclose(constraint.unconstrain(value), free, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(again, free, rtol=1e-10, atol=1e-10)


@every
@shapes
def test_the_jacobian_is_the_determinant_of_the_derivative(constraint: Constraint, shape: tuple[int, ...]) -> None:
    with jax.enable_x64(True):
        free = jnp.asarray(free_values(constraint, shape))
        stated = jax.jit(constraint.log_jacobian)(free)
        assert stated.shape == ()
        assert float(stated) == pytest.approx(float(numerical_log_jacobian(constraint, free)), abs=1e-10)


def test_a_jacobian_with_a_dropped_term_is_found_out() -> None:
    """The control: the determinant tells the stick's first break from all of them."""
    with jax.enable_x64(True):
        free = jnp.asarray(free_values(constraints.simplex, (4,)))
        dropped = constraints.simplex.log_jacobian(free) - jax.nn.log_sigmoid(-(free[-1] - jnp.log(1.0)))
        assert abs(float(dropped) - numerical_log_jacobian(constraints.simplex, free)) > 1e-2


@pytest.mark.parametrize("name", SCALARS)
def test_a_single_number_has_no_axes(name: str) -> None:
    constraint = CONSTRAINTS[name]
    assert constraint.free_shape(()) == ()
    with jax.enable_x64(True):
        free = jnp.asarray(0.3)
        assert constraint.constrain(free).shape == ()
        slope = jax.grad(lambda each: constraint.constrain(each))(free)
        assert float(constraint.log_jacobian(free)) == pytest.approx(float(jnp.log(slope)))


@pytest.mark.parametrize(("name", "size"), [("simplex", 3), ("simplex", 7), ("unit interval", 2)])
def test_the_origin_is_the_middle(name: str, size: int) -> None:
    constraint = CONSTRAINTS[name]
    middle = 1 / size if name == "simplex" else 0.5
    with jax.enable_x64(True):
        value = constraint.constrain(jnp.zeros(constraint.free_shape((size,))))
    np.testing.assert_allclose(value, middle, rtol=1e-14)
    np.testing.assert_allclose(constraint.unconstrain(np.asarray(value)), 0.0, atol=1e-14)


@every
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_types_go_through(constraint: Constraint, dtype: Any) -> None:
    with jax.enable_x64(True):
        free = jnp.zeros(constraint.free_shape((3,)), dtype)
        assert constraint.constrain(free).dtype == dtype
        assert constraint.log_jacobian(free).dtype == dtype
        assert constraint.unconstrain(constraint.constrain(free)).dtype == dtype
        assert constraint.unconstrain(np.asarray(constraint.constrain(free))).dtype == dtype


@every
@pytest.mark.parametrize("size", [30.0, -30.0])
def test_two_derivatives_are_finite_far_out(constraint: Constraint, size: float) -> None:
    # Beyond, a correlation is 1 in float64.
    size = np.clip(size, -7.0, 7.0) if constraint == constraints.correlation else size
    with jax.enable_x64(True):
        free = jnp.full(constraint.free_shape((4,)), size).at[1].set(-size)
        functions = (constraint.constrain, constraint.log_jacobian)
        values = jax.jit(lambda u: [(f(u), jax.jacobian(f)(u), jax.hessian(f)(u)) for f in functions])(free)
        numerical = float(numerical_log_jacobian(constraint, free))
    assert all(np.isfinite(each).all() for each in jax.tree.leaves(values))
    assert float(values[1][0]) == pytest.approx(numerical, rel=1e-3)


@pytest.mark.parametrize("name", ["unit interval", "interval"])
@pytest.mark.parametrize("size", [30.0, -30.0])
def test_an_interval_is_not_left_in_float32(name: str, size: float) -> None:
    constraint = CONSTRAINTS[name]
    value = np.asarray(constraint.constrain(jnp.full(1, size)))
    assert value.dtype == np.float32
    constraint.require("theta", value)
    # The control: the plain map does leave it.
    assert size < 0 or float(jax.nn.sigmoid(jnp.float32(size))) == 1.0


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_the_maps_are_those_of_numpyro(name: str) -> None:
    numpyro = pytest.importorskip("numpyro.distributions")
    theirs = {
        "real": numpyro.constraints.real_vector,
        "positive": numpyro.constraints.independent(numpyro.constraints.positive, 1),
        "unit interval": numpyro.constraints.independent(numpyro.constraints.unit_interval, 1),
        "interval": numpyro.constraints.independent(numpyro.constraints.interval(-2.0, 3.5), 1),
        "simplex": numpyro.constraints.simplex,
        "ordered": numpyro.constraints.ordered_vector,
    }
    if name not in theirs:
        assert name in ("half-normal", "correlation")
        return
    constraint, transform = CONSTRAINTS[name], numpyro.transforms.biject_to(theirs[name])
    with jax.enable_x64(True):
        free = jnp.asarray(free_values(constraint, (4,)))
        value = transform(free)
        np.testing.assert_allclose(constraint.constrain(free), value, rtol=1e-12)
        stated = transform.log_abs_det_jacobian(free, value)
        np.testing.assert_allclose(constraint.log_jacobian(free), stated, rtol=1e-10, atol=1e-12)


OUTSIDE = {
    "real": ("real", [0.0, np.nan]),
    "zero": ("positive", [1.0, 0.0]),
    "negative": ("positive", -1.0),
    "infinite": ("positive", np.inf),
    "bound": ("unit interval", 1.0),
    "beyond": ("interval", [0.0, 4.0]),
    "not a number": ("interval", np.nan),
    "sum": ("simplex", [0.5, 0.6]),
    "negative part": ("simplex", [1.5, -0.5]),
    "one part": ("simplex", [1.0]),
    "no axis": ("simplex", 1.0),
    "falling": ("ordered", [[0.0, 1.0], [1.0, 0.0]]),
    "equal": ("ordered", [1.0, 1.0]),
    "no axis to order": ("ordered", 1.0),
}


@pytest.mark.parametrize(("name", "value"), OUTSIDE.values(), ids=OUTSIDE)
def test_a_value_outside_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ModelError, match=r"expected .*sigma.* got .* Try"):
        CONSTRAINTS[name].require("sigma", np.asarray(value))


@pytest.mark.parametrize(("lower", "upper"), [(1, 1), (2, 1), (0, np.inf), (np.nan, 1), ("a", 1), ([0, 0], 1)])
def test_an_interval_has_two_finite_bounds(lower: Any, upper: Any) -> None:
    with pytest.raises(ModelError, match=r"expected .* got .* Try"):
        constraints.interval(lower, upper)


def test_constraints_are_values() -> None:
    assert constraints.interval(0, 1) == constraints.unit_interval
    assert hash(constraints.interval(0, 1)) == hash(constraints.unit_interval)
    assert constraints.interval(0, 2) != constraints.unit_interval
    assert len({*CONSTRAINTS.values(), constraints.Simplex(), constraints.Positive()}) == len(CONSTRAINTS)


def test_a_correlation_is_normal() -> None:
    def rest(free: jax.Array) -> jax.Array:
        value = constraints.correlation.constrain(free)
        return jnp.sum(jnp.log1p(-(value**2))) + constraints.correlation.log_jacobian(free) + jnp.sum(free**2) / 2

    def another(free: jax.Array) -> jax.Array:
        """The control: of another shape."""
        return rest(free) + jnp.sum(jnp.log1p(-(constraints.correlation.constrain(free) ** 2)))

    with jax.enable_x64(True):
        values, others = (jax.vmap(each)(jnp.linspace(-5.0, 5.0, 41)[:, None]) for each in (rest, another))
    np.testing.assert_allclose(values, values[0], atol=1e-9)
    assert np.ptp(others) > 1


@pytest.mark.parametrize(
    ("constraint", "normal"), [(constraints.half_normal(0.7), True), (constraints.positive, False)]
)
def test_what_is_half_normal_is_nearly_normal(constraint: Constraint, normal: bool) -> None:
    """By the curvature of its log density; with the log of a scale, the control, it is not."""

    def log_density(free: jax.Array) -> jax.Array:
        value = constraint.constrain(free)
        return -0.5 * jnp.sum((value / 0.7) ** 2) + constraint.log_jacobian(free)

    with jax.enable_x64(True):
        points = jnp.linspace(-6.0, 6.0, 241)
        bend = -np.asarray(jax.jit(jax.vmap(lambda u: jax.hessian(log_density)(u[None])[0, 0]))(points))
    assert ((bend > 0.92) & (bend < 1.08)).all() == normal
