"""Corners of a prior within the posterior: found where they are, told from bends, and named in the result."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import by_ladder

import tallbayes as tb
from tallbayes.model.model import bind
from tallbayes.setup.corners import find_corners

CENTRE = np.array([0.02, -0.01, 1.0])
SD = np.array([0.05, 0.05, 0.05])


def corners(log_prior: Callable[[Any], Any], **options: Any) -> tuple[Any, ...]:
    model = tb.Model(log_prior, lambda theta, row: 0.0 * row * jnp.sum(theta), np.zeros(3), **options)
    return find_corners(bind(model, np.zeros(()))[0], CENTRE, SD)


def test_a_laplace_prior_has_a_corner_where_the_posterior_reaches_it() -> None:
    """At 1, twenty sds from 0, there is none within reach. The slope jumps by twice the rate."""
    found = corners(lambda theta: -30.0 * jnp.sum(jnp.abs(theta)))
    assert [each.place for each in found] == [0, 1]
    np.testing.assert_allclose([each.at for each in found], 0.0, atol=1e-6)
    np.testing.assert_allclose([each.jump for each in found], 2 * 30.0 * 0.05, rtol=1e-6)


def test_a_corner_elsewhere_is_found_where_it_is() -> None:
    (found,) = corners(lambda theta: -30.0 * jnp.abs(theta[2] - 1.07))
    assert found.place == 2
    assert found.at == pytest.approx(1.07, abs=1e-6)


SMOOTH: dict[str, Callable[[Any], Any]] = {
    "normal": lambda theta: -0.5 * jnp.sum((theta / 0.01) ** 2),
    "Student's t": lambda theta: -2.0 * jnp.sum(jnp.log1p((theta / 0.02) ** 2 / 3)),
    "a rounded Laplace": lambda theta: -60.0 * jnp.sum(jnp.sqrt(theta**2 + 0.001**2)),
    "a softplus, which has abs and max inside": lambda theta: -jnp.sum(jax.nn.softplus(100.0 * theta)),
    "flat": lambda theta: 0.0 * jnp.sum(theta),
    "a corner too small to be felt": lambda theta: -0.1 * jnp.sum(jnp.abs(theta)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_control_bends_are_no_corners(name: str) -> None:
    assert corners(SMOOTH[name]) == ()


def run(log_prior: Any, start: Any, coefficients: Callable[[Any], Any], **options: Any) -> tb.Result:
    def log_likelihood(theta: Any, row: Any) -> Any:
        return -0.5 * (row["y"] - row["x"] @ coefficients(theta)) ** 2

    generator = np.random.default_rng(0)
    x = np.linalg.qr(generator.normal(size=(100, 2)))[0] * 10.0
    rows = {"x": x, "y": x @ [1.0, 0.0] + generator.normal(size=100)}
    model = tb.Model(log_prior, log_likelihood, start, **options)
    return by_ladder(model, rows, {"b": coefficients}, tolerance=0.1, max_seconds=300)


RATE = 40.0


@cache
def kinked_run() -> tb.Result:
    return run(lambda theta: -RATE * jnp.sum(jnp.abs(theta["b"])), {"b": np.zeros(2)}, lambda theta: theta["b"])


def test_a_run_without_a_mode_for_a_kink_names_it_and_says_what_to_write() -> None:
    kinked = kinked_run()
    (note,) = [each for each in kinked.notes if each.startswith("kink: ")]
    assert 'a corner at theta["b"][1] = 0, within the posterior' in note
    assert "b = z * sqrt(2 * tau) / rate" in note
    assert "the log prior has a corner" in " ".join(kinked.summary().split())


@pytest.mark.slow
def test_what_the_note_of_a_kink_says_to_write_has_the_same_mean() -> None:
    """The mixture has a mode; held to 6 standard errors of both."""
    kinked = kinked_run()
    smooth = run(
        lambda theta: -0.5 * jnp.sum(theta["z"] ** 2) - jnp.sum(theta["tau"]),
        {"z": np.zeros(2), "tau": np.ones(2)},
        lambda theta: theta["z"] * jnp.sqrt(2 * theta["tau"]) / RATE,
        constraints={"tau": tb.constraints.positive},
    )
    assert smooth.converged
    assert not [each for each in smooth.notes if each.startswith("kink: ")]
    apart = np.abs(kinked["b"].flat_value - smooth["b"].flat_value)
    beyond = apart - kinked["b"].flat_bias_bound - smooth["b"].flat_bias_bound
    assert np.all(beyond < 6 * np.hypot(kinked["b"].flat_standard_error, smooth["b"].flat_standard_error))
