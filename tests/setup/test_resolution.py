"""A quantity whose variation is lost in the paths' rounding is computed in float64, or refused; never wrong in silence.

The rows are float32, so that paths are too unless something asks for more.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import by_ladder

import tallbayes as tb


def small_rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, size=(200, 1)) / np.float32(8)
    return {"x": x.astype(np.float32), "y": (rng.random(200) < 0.6).astype(np.float32)}


ROWS = small_rows()
MODEL = tb.families.logistic()


def lifted(by: float):
    return lambda theta: 1 + by * theta[0]


@pytest.mark.slow
def test_a_quantity_is_resolved_beside_its_own_size() -> None:
    """1 + 1e-9 theta was 1 with a standard error of 0, 4.75 tolerances off."""
    quantities = {"lifted": lifted(1e-9), "theta": lambda theta: theta[0]}
    result = by_ladder(MODEL, ROWS, quantities, tolerance=0.02)
    assert result.settings["precision"] == "float64"
    part, whole = result["lifted"], result["theta"]
    assert part.standard_error > 0
    # Both are read off the same paths: they differ by the rounding of float64 alone, 1e-7 of theta's unit.
    assert (part.value - 1) / 1e-9 == pytest.approx(whole.value, abs=5e-7)


def test_what_float32_resolves_stays_there() -> None:
    result = by_ladder(MODEL, ROWS, {"lifted": lifted(1.0)}, tolerance=0.1)
    assert result.settings["precision"] == "float32"


@pytest.mark.parametrize(
    ("quantity", "tolerances", "precision"),
    [
        (lifted(1e-3), {"tolerance": 0.2}, "float32"),
        (lifted(1e-3), {"tolerance": 0.002}, "float64"),
        pytest.param(lifted(1.0), {"absolute_tolerance": 1e-2}, "float32", marks=pytest.mark.slow),
        pytest.param(lifted(1e-9), {"absolute_tolerance": 1e-2}, "float32", marks=pytest.mark.slow),
        (lifted(1e-9), {"relative_tolerance": 1e-2}, "float32"),
        pytest.param(lambda theta: jnp.exp(100 + theta[0]), {"tolerance": 0.1}, "float64", marks=pytest.mark.slow),
        pytest.param(
            lambda theta: jnp.exp(jnp.log(1e6 + theta[0])) - 1e6, {"tolerance": 0.1}, "float64", marks=pytest.mark.slow
        ),
        (lambda theta: theta[0] > 0.1, {"tolerance": 0.2}, "float32"),
    ],
    ids=["coarse", "fine", "absolute", "absolute and small", "relative", "overflow", "cancels", "event"],
)
def test_precision_looks_at_the_tolerance_in_the_quantitys_units(quantity, tolerances, precision: str) -> None:
    result = by_ladder(MODEL, ROWS, {"g": quantity}, **tolerances, max_evaluations=3e5)
    assert result.settings["precision"] == precision


def test_what_float64_does_not_resolve_is_refused() -> None:
    with pytest.raises(
        tb.InputError, match=r"'g' to be resolved by float64; got rounding .* the part of it that varies"
    ):
        by_ladder(MODEL, ROWS, {"g": lifted(1e-14)}, tolerance=0.02)


def test_float32_that_was_asked_for_is_refused_where_it_is_too_coarse() -> None:
    with pytest.raises(tb.InputError, match="'g' to be resolved by float32"):
        by_ladder(MODEL, ROWS, {"g": lifted(1e-9)}, tolerance=0.02, method=tb.Anchored(precision="float32"))


def test_an_extension_asks_the_same() -> None:
    result = by_ladder(MODEL, ROWS, {"g": lifted(1e-3)}, tolerance=0.3)
    assert result.settings["precision"] == "float32"
    with pytest.raises(tb.InputError, match="too fine for their float32"):
        result.extend(tolerance=1e-3)
    whole = by_ladder(
        MODEL, {name: part.astype(float) for name, part in ROWS.items()}, {"g": lifted(1e-9)}, tolerance=1
    )
    with pytest.raises(tb.InputError, match="float64"):
        whole.extend(absolute_tolerance=1e-17)


def test_a_question_asked_afterwards_is_answered_in_float64() -> None:
    """The points of a float32 run are displacements: a function of theta is resolved as float64 resolves it, and its
    error says so where that is not enough."""
    result = by_ladder(MODEL, ROWS, tolerance=0.1)
    assert result.settings["precision"] == "float32"
    theta = result.posterior.expectation(lambda theta: theta[0])
    part = result.posterior.expectation(lifted(1e-9))
    assert (part.value - 1) / 1e-9 == pytest.approx(theta.value, abs=5e-7)
    assert part.standard_error / 1e-9 == pytest.approx(theta.standard_error, rel=1e-3)
    lost = result.posterior.expectation(lifted(1e-17))
    assert lost.standard_error >= 2.0**-53
