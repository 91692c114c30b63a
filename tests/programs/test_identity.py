"""Functions are known by what they compute, and handing one over does not change how its owner can use it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import logistic_rows

import tallbayes as tb
from tallbayes.errors import ModelError
from tallbayes.model.model import bind
from tallbayes.programs import identity
from tallbayes.programs.identity import NotByValueError, identify, output_of, value_of

THETA = np.zeros(2)


def scaled_sum(scale: Any) -> Callable[[Any], Any]:
    return lambda theta: jnp.sum(scale * theta**2)


def fingerprint(function: Callable[..., Any], **options: Any) -> str:
    return identify(function, THETA, **options).fingerprint


@pytest.mark.parametrize("derivatives", [False, True])
def test_equal_functions_defined_anew_are_one(derivatives: bool) -> None:
    one = identify(lambda theta: jnp.sum(theta**2), THETA, derivatives=derivatives)
    two = identify(lambda value: jnp.sum(value**2), THETA, derivatives=derivatives)
    assert one.fingerprint == two.fingerprint
    assert one == two
    assert hash(one) == hash(two)


def test_an_equal_function_is_not_traced_again() -> None:
    traces = []

    def apply(function: Any, theta: Any) -> Any:
        traces.append(function)
        return function(theta)

    compiled = jax.jit(apply, static_argnums=0)
    for _ in range(3):
        compiled(identify(lambda theta: jnp.sum(theta**2), THETA), jnp.ones(2))
    assert len(traces) == 1
    compiled(identify(lambda theta: jnp.sum(theta**4), THETA), jnp.ones(2))
    assert len(traces) == 2


LONG = np.linspace(0.0, 1.0, 10_000)
CONSTANTS = {
    "number": (1.0, 1.0 + 1e-12),
    "short array": (np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-12])),
    "jax array": (jnp.array([1.0, 2.0]), jnp.array([1.0, 2.0 + 1e-6])),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("derivatives", [False, True])
def test_other_constants_make_another_function(name: str, derivatives: bool) -> None:
    first, second = CONSTANTS[name]
    assert fingerprint(scaled_sum(first), derivatives=derivatives) == fingerprint(
        scaled_sum(first), derivatives=derivatives
    )
    assert fingerprint(scaled_sum(first), derivatives=derivatives) != fingerprint(
        scaled_sum(second), derivatives=derivatives
    )


def test_one_entry_of_a_long_constant_makes_another_function() -> None:
    changed = LONG.copy()
    changed[5_000] += 1e-12
    prints = [fingerprint(lambda theta, c=c: jnp.sum(theta) * jnp.sum(c**2)) for c in (LONG, LONG.copy(), changed)]
    assert prints[0] == prints[1] != prints[2]


def test_the_shape_of_the_argument_is_part_of_the_identity() -> None:
    assert identify(jnp.sum, np.zeros(2)).fingerprint != identify(jnp.sum, np.zeros(3)).fingerprint


def with_slope(slope: float) -> Callable[[Any], Any]:
    """theta -> sum theta^2, with a derivative rule that says `slope` times the true one."""

    @jax.custom_jvp
    def square(theta: Any) -> Any:
        return jnp.sum(theta**2)

    @square.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return square(*primals), slope * 2 * jnp.vdot(primals[0], tangents[0])

    return square


def test_another_derivative_rule_makes_another_function() -> None:
    assert fingerprint(with_slope(1.0), derivatives=True) == fingerprint(with_slope(1.0), derivatives=True)
    assert fingerprint(with_slope(1.0), derivatives=True) != fingerprint(with_slope(2.0), derivatives=True)
    # The control: by the values alone the two are the same function.
    assert fingerprint(with_slope(1.0)) == fingerprint(with_slope(2.0))


def test_a_derivative_rule_survives_identification() -> None:
    gradient = jax.grad(identify(with_slope(3.0), THETA, derivatives=True).call)
    np.testing.assert_allclose(gradient(jnp.ones(2)), 6.0)


def test_pytrees_go_through() -> None:
    def function(theta: Any) -> Any:
        return {"b": theta["x"] * 2, "a": (theta["y"], None)}

    theta = {"x": jnp.ones(2), "y": jnp.float32(3.0)}
    out = identify(function, theta)(theta)
    assert jax.tree.structure(out) == jax.tree.structure(function(theta))
    np.testing.assert_array_equal(out["b"], [2.0, 2.0])
    assert output_of(function, theta)["b"].shape == (2,)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list that grows by one whenever a function is traced to find out what it computes; nothing is known before."""
    seen: list[Any] = []
    plain = identity._twice
    monkeypatch.setattr(identity, "_twice", lambda call, trace: (seen.append(trace), plain(call, trace))[1])
    monkeypatch.setattr(identity, "_KNOWN", {})
    return seen


def test_a_function_of_the_package_is_lowered_once_and_keeps_its_name(traces: list[Any]) -> None:
    names = [fingerprint(tb.families.logistic(prior_scale=2.0).log_prior, derivatives=True) for _ in range(3)]
    assert len(traces) == 1
    prior = tb.families.logistic(prior_scale=2.0).log_prior
    assert {fingerprint(lambda theta: prior(theta), derivatives=True), *names} == {names[0]}
    assert fingerprint(tb.families.logistic(prior_scale=2.5).log_prior, derivatives=True) != names[0]
    assert identify(prior, np.zeros(3), derivatives=True).fingerprint != names[0]
    assert fingerprint(prior) != names[0]


def test_a_family_is_bound_again_without_a_trace(traces: list[Any]) -> None:
    row = {"x": np.zeros(2), "y": np.float64(0.0)}
    first = bind(tb.families.student_t(intercept_scale=3.0), row)[0]
    assert traces
    traces.clear()
    assert bind(tb.families.student_t(intercept_scale=3.0), row)[0] == first
    assert traces == []
    assert bind(tb.families.student_t(intercept_scale=3.5), row)[0] != first


SCALE = {"now": 2.0}


def scaled_by_a_global(theta: Any) -> Any:
    return SCALE["now"] * jnp.sum(theta**2)


def test_a_users_function_is_traced_every_time(monkeypatch: pytest.MonkeyPatch, traces: list[Any]) -> None:
    """It may read what has changed since."""
    before = fingerprint(scaled_by_a_global)
    monkeypatch.setitem(SCALE, "now", 3.0)
    assert fingerprint(scaled_by_a_global) != before
    assert len(traces) == 2


@pytest.mark.parametrize(
    "constant",
    [np.ones(2), np.float64(1.0), jnp.ones(2), scaled_by_a_global, [np.ones(2)], {"a": object()}],
    ids=["array", "numpy number", "jax array", "function", "array in a list", "object"],
)
def test_what_is_not_known_by_value(constant: Any) -> None:
    with pytest.raises(NotByValueError):
        value_of(partial(value_of, constant))


def test_values_are_told_apart() -> None:
    values: list[Any] = [1, 1.0, True, "1", 0.0, -0.0, None, (1,), [1], {1: 2}, {2: 1}, {1: 2, 3: 4}, {3: 4, 1: 2}]
    assert len({value_of(each) for each in values}) == len(values)
    assert value_of(partial(value_of, 1)) != value_of(partial(value_of, 2)) != value_of(partial(identify, 2))
    assert value_of(float("nan")) == value_of(float("nan"))


def test_processes_agree_on_fingerprints() -> None:
    program = (
        "import numpy as np, jax.numpy as jnp\n"
        "from tallbayes.programs.identity import identify\n"
        "c = np.array([1.0, 2.0])\n"
        "print(identify(lambda t: jnp.sum(c * t**2), np.zeros(2), derivatives=True).fingerprint)"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == fingerprint(scaled_sum(np.array([1.0, 2.0])), derivatives=True)


def test_a_function_that_cannot_be_differentiated_is_refused_in_words() -> None:
    def looping(theta: Any) -> Any:
        return jax.lax.while_loop(lambda x: x < 10.0, lambda x: 2 * x, jnp.sum(theta) + 1.0)

    assert fingerprint(looping)
    with pytest.raises(ModelError, match=r"expected .* got .* Try"):
        fingerprint(looping, derivatives=True)


def traced_in_32_bits(how: str) -> Callable[[Any], Any]:
    """A function with a captured float64 array that its owner has used with JAX's default types."""
    weights = np.array([1.0, 2.0])

    def weighted(theta: Any) -> Any:
        return jnp.sum(weights * theta**2)

    if how == "decorated":
        weighted = jax.jit(weighted)
    uses = {
        "eager": lambda: weighted(jnp.ones(2)),
        "compiled": lambda: jax.jit(weighted)(jnp.ones(2)),
        "decorated": lambda: weighted(jnp.ones(2)),
        "gradient": lambda: jax.jit(jax.grad(weighted))(jnp.ones(2)),
        "vectorised": lambda: jax.jit(jax.vmap(weighted))(jnp.ones((3, 2))),
    }
    uses[how]()
    return weighted


@pytest.mark.parametrize("how", ["eager", "compiled", "decorated", "gradient", "vectorised"])
@pytest.mark.parametrize("derivatives", [False, True])
def test_a_function_traced_before_in_32_bits_still_works(how: str, derivatives: bool) -> None:
    function = identify(traced_in_32_bits(how), THETA, derivatives=derivatives)
    with jax.enable_x64(True):
        assert float(jax.jit(function.call)(jnp.ones(2, jnp.float64))) == 3.0
        assert float(jax.jit(function.call)(jnp.ones(2, jnp.float32))) == 3.0


def test_jax_does_stumble_over_a_function_traced_before_in_32_bits() -> None:
    """The control: without the care taken in `identity`, JAX 0.10 fails here."""
    weighted = traced_in_32_bits("compiled")
    with jax.enable_x64(True), pytest.raises(ValueError, match="verifier"):
        jax.jit(weighted).lower(jax.ShapeDtypeStruct((2,), jnp.float64))


def test_its_owner_can_still_use_a_function_handed_to_estimate() -> None:
    rows = logistic_rows(100, (0.5, -0.5))
    weighted = traced_in_32_bits("compiled")
    result = tb.estimate(tb.families.logistic(), rows, {"g": weighted}, tolerance=0.5)
    assert result.converged
    assert np.isfinite(result["g"].value)
    assert float(weighted(jnp.ones(2))) == 3.0
    assert float(jax.jit(weighted)(jnp.ones(2))) == 3.0
    np.testing.assert_allclose(jax.grad(weighted)(jnp.ones(2)), [2.0, 4.0])
