"""The anchor is the mode with its exact curvature, and where there is no such point it says why."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import gaussian_posterior, gaussian_rows, logistic_by_hand, logistic_rows, paper_rows
from scipy.optimize import minimize_scalar

import tallbayes as tb
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import expand
from tallbayes.anchor.mode import find_anchor
from tallbayes.errors import (
    ImproperPosteriorError,
    NonFiniteError,
    PosteriorError,
    RankDeficientError,
)
from tallbayes.model.model import Target, bind
from tallbayes.rows.statistics import needs_float64
from tallbayes.rows.table import CHUNK_ROWS, Table, make_table

FLAT = float("inf")


def bound(model: tb.Model, data: Any, precision: str = "float64") -> tuple[Target, Table, np.ndarray]:
    arrays = model.check(data) if model.check is not None else data
    first = {name: array[0] for name, array in arrays.items()} if isinstance(arrays, dict) else arrays[0]
    target, start = bind(model, first)
    return target, make_table(arrays, precision), start


def anchor_of(model: tb.Model, data: Any, precision: str = "float64") -> Anchor:
    return find_anchor(*bound(model, data, precision))


@pytest.mark.parametrize(("num_rows", "num_columns"), [(1, 1), (40, 4), (700, 3)])
def test_linear_regression_has_its_closed_form(num_rows: int, num_columns: int) -> None:
    rows = gaussian_rows(num_rows, num_columns, noise_scale=0.5, seed=1)
    mean, precision = gaussian_posterior(rows, noise_scale=0.5, prior_scale=2.0)
    anchor = anchor_of(tb.families.linear(noise_scale=0.5, prior_scale=2.0), rows)
    np.testing.assert_allclose(anchor.mode, mean, rtol=1e-10)
    np.testing.assert_allclose(anchor.precision, precision, rtol=1e-10)
    np.testing.assert_allclose(anchor.covariance, np.linalg.inv(precision), rtol=1e-9)
    np.testing.assert_allclose(anchor.sd, np.sqrt(np.diag(np.linalg.inv(precision))), rtol=1e-9)
    np.testing.assert_allclose(anchor.curvatures, np.linalg.eigvalsh(precision), rtol=1e-9)
    assert anchor.num_rows == num_rows


def test_sums_are_float64_on_float32_rows() -> None:
    rows = gaussian_rows(5_000, 3, noise_scale=0.5, seed=2)
    rounded = {name: array.astype(np.float32) for name, array in rows.items()}
    mean, precision = gaussian_posterior(rounded, noise_scale=0.5, prior_scale=1.0)
    anchor = anchor_of(tb.families.linear(noise_scale=0.5), rows, "float32")
    np.testing.assert_allclose(anchor.mode, mean, rtol=1e-10)
    np.testing.assert_allclose(anchor.precision, precision, rtol=1e-10)


def test_a_family_and_the_same_model_by_hand_agree() -> None:
    rows = paper_rows(1_000, seed=3)
    family = anchor_of(tb.families.logistic(prior_scale=1.5), rows)
    by_hand = anchor_of(logistic_by_hand(3, prior_scale=1.5), rows)
    np.testing.assert_allclose(family.mode, by_hand.mode, rtol=1e-12)
    np.testing.assert_allclose(family.precision, by_hand.precision, rtol=1e-12)
    np.testing.assert_allclose(family.likelihood_hessian, by_hand.likelihood_hessian, rtol=1e-12)
    scale = np.sqrt(np.diag(family.precision))
    assert np.all(np.abs(family.likelihood_gradient - by_hand.likelihood_gradient) < 1e-9 * scale)


def test_the_gradient_of_likelihood_and_prior_vanishes_at_the_mode() -> None:
    rows = paper_rows(1_000, seed=3)
    anchor = anchor_of(tb.families.logistic(prior_scale=1.5), rows)
    total = anchor.likelihood_gradient - anchor.mode / 1.5**2
    assert np.all(np.abs(total) < 1e-7 * np.sqrt(np.diag(anchor.precision)))


@pytest.mark.parametrize("by_hand", [False, True])
def test_sums_over_several_chunks_equal_numpy(by_hand: bool) -> None:
    rows = logistic_rows(CHUNK_ROWS + 300, (0.8, -0.3), seed=4)
    model = logistic_by_hand(2, FLAT) if by_hand else tb.families.logistic(FLAT)
    target, table, _ = bound(model, rows)
    assert len(table.chunks()) == 2
    theta = np.array([0.4, 0.1])
    here = expand(target, table, theta)
    eta = rows["x"] @ theta
    chance = 1 / (1 + np.exp(-eta))
    np.testing.assert_allclose(here.value, np.sum(rows["y"] * eta - np.logaddexp(0, eta)), rtol=1e-12)
    np.testing.assert_allclose(here.gradient, rows["x"].T @ (rows["y"] - chance), rtol=1e-10)
    hessian = rows["x"].T @ ((chance * (1 - chance))[:, None] * rows["x"])
    np.testing.assert_allclose(here.hessian, hessian, rtol=1e-10, atol=1e-10 * hessian.max())


@pytest.mark.parametrize("num_rows", [1, 255, 256, 257])
def test_padding_is_never_summed(num_rows: int) -> None:
    rows = gaussian_rows(num_rows, 2, noise_scale=1.0, seed=5)
    target, table, start = bound(tb.families.linear(noise_scale=1.0), rows)
    here = expand(target, table, start)
    np.testing.assert_allclose(here.value, -0.5 * np.sum(rows["y"] ** 2), rtol=1e-12)
    np.testing.assert_allclose(here.gradient, rows["x"].T @ rows["y"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-60, 1e-20, 1e20, 1e60])
def test_columns_of_any_scale_are_fine_in_the_precision_chosen_for_them(scale: float) -> None:
    rows = paper_rows(300, seed=6)
    plain = anchor_of(tb.families.logistic(FLAT), rows)
    scaled = {"x": rows["x"] * [scale, 1.0, 1.0], "y": rows["y"]}
    precision = "float64" if needs_float64(scaled) else "float32"
    anchor = anchor_of(tb.families.logistic(FLAT), scaled, precision)
    np.testing.assert_allclose(anchor.mode * [scale, 1.0, 1.0], plain.mode, rtol=1e-4)


def test_draws_have_the_covariance_of_laplace() -> None:
    anchor = anchor_of(tb.families.logistic(), paper_rows(300, seed=7))
    count = 20_000
    draws = anchor.draws(count, seed=8)
    whitened = draws @ anchor.factor
    # Entries of a sample covariance have sd at most sqrt(2 / n); 9 of them, 5.2 sds: one false alarm in a million.
    np.testing.assert_allclose(whitened.T @ whitened / count, np.eye(3), rtol=0, atol=5.2 * np.sqrt(2 / count))


def assert_explains(error: BaseException) -> None:
    assert all(part in str(error) for part in ("expected", "got", "Try"))


@pytest.mark.parametrize("family", ["logistic", "linear"])
def test_collinear_columns_under_a_flat_prior_are_named(family: str) -> None:
    rows = logistic_rows(200, (0.5, 0.3, -0.2), seed=9)
    x = np.insert(rows["x"], 1, 2 * rows["x"][:, 0], axis=1)
    model = tb.families.logistic(FLAT) if family == "logistic" else tb.families.linear(1.0, FLAT)
    with pytest.raises(RankDeficientError, match=r"\[0, 1\]") as caught:
        anchor_of(model, {"x": x, "y": rows["y"]})
    assert_explains(caught.value)
    proper = tb.families.logistic() if family == "logistic" else tb.families.linear(1.0)
    assert np.all(anchor_of(proper, {"x": x, "y": rows["y"]}).curvatures > 0)


def test_a_column_of_zeros_under_a_flat_prior_is_named() -> None:
    rows = logistic_rows(200, (0.5, 0.3, -0.2), seed=9)
    x = rows["x"] * [1.0, 0.0, 1.0]
    with pytest.raises(RankDeficientError, match=r"\[1\]"):
        anchor_of(tb.families.logistic(FLAT), {"x": x, "y": rows["y"]})


def separated_rows(kind: str) -> dict[str, np.ndarray]:
    """y = 1 wherever the first column is positive; quasi-completely: both classes at zero."""
    column = np.linspace(-1, 1, 40)
    y = (column > 0).astype(float)
    if kind == "quasi-complete":
        column, y = np.append(column, [0.0, 0.0]), np.append(y, [0.0, 1.0])
    return {"x": np.column_stack([column, np.ones(len(column))]), "y": y}


@pytest.mark.parametrize("kind", ["complete", "quasi-complete"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_separated_data_under_a_flat_prior_have_no_mode(kind: str, by_hand: bool) -> None:
    rows = separated_rows(kind)
    with pytest.raises(ImproperPosteriorError, match="separated") as caught:
        anchor_of(logistic_by_hand(2, FLAT) if by_hand else tb.families.logistic(FLAT), rows)
    assert_explains(caught.value)


@pytest.mark.parametrize("kind", ["complete", "quasi-complete"])
def test_separated_data_under_a_proper_prior_have_one(kind: str) -> None:
    anchor = anchor_of(tb.families.logistic(prior_scale=2.5), separated_rows(kind))
    assert np.all(np.isfinite(anchor.mode))
    assert anchor.curvatures[0] >= 0.99 / 2.5**2


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_separation_is_seen_whatever_the_units(scale: float) -> None:
    rows = separated_rows("complete")
    with pytest.raises(ImproperPosteriorError):
        anchor_of(tb.families.logistic(FLAT), {"x": rows["x"] * [scale, 1.0], "y": rows["y"]})


def test_large_coefficients_are_not_taken_for_separation() -> None:
    rows = logistic_rows(2_000, (12.0, 3.0), seed=10)
    anchor = anchor_of(tb.families.logistic(FLAT), rows)
    assert anchor.mode[0] == pytest.approx(12.0, abs=5 * anchor.sd[0])


ROWS = np.linspace(-1.0, 1.0, 30)


def quadratic(theta: Any, row: Any) -> Any:
    return -0.5 * (row - theta) ** 2


NOT_FINITE = {
    "prior is NaN": (lambda theta: jnp.nan * theta, quadratic, 0.0),
    "prior is -inf at the start": (lambda theta: jnp.where(theta > 0, -theta, -jnp.inf), quadratic, -1.0),
    "likelihood is NaN at the start": (lambda theta: -(theta**2), lambda theta, row: jnp.log(theta) * row, -1.0),
    "likelihood is -inf at the start": (lambda theta: -(theta**2), lambda theta, row: jnp.log(theta), 0.0),
    "slope is infinite at the start": (lambda theta: -jnp.sqrt(theta), quadratic, 0.0),
}


@pytest.mark.parametrize("name", NOT_FINITE)
def test_a_density_that_is_not_finite_is_refused(name: str) -> None:
    with pytest.raises(NonFiniteError) as caught:
        anchor_of(tb.Model(*NOT_FINITE[name]), ROWS)
    assert_explains(caught.value)


def constant(theta: Any, row: Any) -> Any:
    return 0.0 * theta


NO_MODE = {
    "a slope without end": (lambda theta: theta, constant, 0.0),
    "a slope that flattens": (lambda theta: -jnp.exp(-theta), constant, 0.0),
    "a pole": (lambda theta: 1 / (1 - theta), constant, 0.5),
    "a trough": (lambda theta: theta**2, constant, 0.1),
    "a saddle": (lambda theta: -((theta**2 - 1) ** 2), constant, 0.0),
    "nothing at all": (lambda theta: 0.0 * theta, constant, 0.0),
}


@pytest.mark.parametrize("name", NO_MODE)
def test_a_model_without_a_mode_is_refused(name: str) -> None:
    with pytest.raises(PosteriorError) as caught:
        anchor_of(tb.Model(*NO_MODE[name]), ROWS)
    assert_explains(caught.value)


@pytest.mark.parametrize("start", [-1e3, 50.0])
def test_a_unimodal_density_that_is_not_log_concave_is_climbed_from_afar(start: float) -> None:
    rows = np.random.default_rng(11).standard_t(3, 200) + 2.0

    def log_likelihood(theta: Any, row: Any) -> Any:
        return -2.0 * jnp.log1p((row - theta) ** 2 / 3)

    def negative(theta: float) -> float:
        return 2.0 * np.sum(np.log1p((rows - theta) ** 2 / 3)) + 0.5 * (theta / 100) ** 2

    model = tb.Model(lambda theta: -0.5 * (theta / 100) ** 2, log_likelihood, start)
    anchor = anchor_of(model, rows)
    truth = minimize_scalar(negative, bounds=(0, 4), method="bounded", options={"xatol": 1e-10}).x
    assert anchor.mode[0] == pytest.approx(truth, abs=1e-5 * anchor.sd[0])
    assert anchor.curvatures[0] > 0


def test_a_mode_far_from_zero_is_found_to_rounding() -> None:
    rows = 1e10 + np.random.default_rng(12).standard_normal(100)
    anchor = anchor_of(tb.Model(lambda theta: 0.0 * theta, quadratic, 0.0), rows)
    assert anchor.mode[0] == pytest.approx(rows.mean(), abs=4 * np.spacing(1e10))
    assert anchor.precision[0, 0] == pytest.approx(100.0)


def test_whole_numbers_beyond_float32_keep_their_digits() -> None:
    """Days written as 20240131 differ in digits that float32 does not have."""
    day = 20_240_100 + np.arange(1, 31)
    rows = {"x": day[:, None], "y": np.arange(30) % 2}
    converted = tb.families.linear(1.0).check(rows)
    np.testing.assert_array_equal(converted["x"].astype(np.int64), rows["x"])
    assert needs_float64(converted)


def flat_model(log_likelihood: Any) -> tb.Model:
    start = {"slope": np.zeros(4), "level": 0.0}
    return tb.Model(lambda theta: 0.0 * jnp.sum(theta["slope"]), log_likelihood, start)


FLAT_DIRECTIONS = {
    "one that nothing reads": (
        lambda theta, row: -0.5 * (row["y"] - theta["slope"][:3] @ row["x"] - theta["level"]) ** 2,
        ['theta["slope"][3]'],
        "a model without it",
    ),
    "two that only add up": (
        lambda theta, row: -0.5 * (row["y"] - theta["slope"][1:] @ row["x"] - theta["level"] - theta["slope"][0]) ** 2,
        ['theta["level"]', 'theta["slope"][0]'],
        "a model with fewer",
    ),
    "both": (
        lambda theta, row: (
            -0.5 * (row["y"] - theta["slope"][1:3] @ row["x"][:2] - theta["level"] - theta["slope"][0]) ** 2
        ),
        ['theta["level"]', 'theta["slope"][0]', 'theta["slope"][3]'],
        "a model with fewer",
    ),
}


@pytest.mark.parametrize("name", FLAT_DIRECTIONS)
def test_flat_directions_of_ones_own_model_go_by_its_own_names(name: str) -> None:
    log_likelihood, names, hint = FLAT_DIRECTIONS[name]
    rows = {"x": np.random.default_rng(9).normal(size=(200, 3)), "y": np.arange(200.0) % 3}
    with pytest.raises(RankDeficientError) as caught:
        tb.estimate(flat_model(log_likelihood), rows, tolerance=0.5)
    message = str(caught.value)
    assert f"flat along {', '.join(names)}. Try: " in message
    assert hint in message
    assert "column" not in message


def test_flat_directions_of_a_family_are_columns() -> None:
    rows = logistic_rows(200, (0.5, 0.3, -0.2), seed=9)
    x = np.column_stack([rows["x"], rows["x"][:, 0]])
    with pytest.raises(
        RankDeficientError, match=r"flat along theta\[0\], theta\[3\]. Try: drop collinear .*columns of x"
    ):
        tb.estimate(tb.families.logistic(FLAT), {**rows, "x": x}, tolerance=0.5)


def test_what_runs_off_in_ones_own_model_goes_by_its_own_name() -> None:
    rows = separated_rows("complete")
    model = tb.Model(
        lambda theta: 0.0 * theta["b"][0],
        lambda theta, row: row["y"] * (eta := row["x"] @ theta["b"]) - jax.nn.softplus(eta),
        {"b": np.zeros(2)},
    )
    with pytest.raises(
        ImproperPosteriorError, match=r'rising as theta\["b"\]\[0\] grows .*neither rows nor prior'
    ) as caught:
        tb.estimate(model, rows, tolerance=0.5)
    assert "separated" not in str(caught.value)
