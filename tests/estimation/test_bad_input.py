"""Bad input is refused at the door, in words: what was expected, what came, what to try."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import logistic_rows

import tallbayes as tb
from tallbayes.commands import options as command_options
from tallbayes.errors import (
    DataError,
    InputError,
    MethodError,
    ModelError,
    NonFiniteError,
    TallbayesError,
    ToleranceError,
)
from tallbayes.estimator.estimands import DEFAULT_TOLERANCE

NUM_ROWS = 200
ROWS = logistic_rows(NUM_ROWS, (0.8, -0.2))
LOGISTIC = tb.families.logistic()
# Refused by either method; this one compiles nothing while the mode is being searched.
PAPERS = tb.Multilevel()


def refuse(error: type[TallbayesError], model: Any = LOGISTIC, data: Any = ROWS, *rest: Any, **options: Any) -> str:
    """The message of the one error that `estimate` must raise."""
    if not any("tolerance" in name for name in options):
        options["tolerance"] = 0.5
    with pytest.raises(TallbayesError) as caught:
        tb.estimate(model, data, *rest, **options)
    message = str(caught.value)
    assert type(caught.value) is error, message
    for part in ("expected ", "; got ", "Try: "):
        assert part in message
    return message


def changed(**columns: Any) -> dict[str, Any]:
    return {**ROWS, **columns}


def spoiled(name: str, value: float) -> dict[str, Any]:
    """One entry of one array replaced, in row 7."""
    array = ROWS[name].copy()
    array[(7, 0)[: array.ndim]] = value
    return changed(**{name: array})


def test_nan_in_x_is_located() -> None:
    message = refuse(DataError, data=spoiled("x", np.nan))
    assert "'x'" in message
    assert "row 7" in message


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_x(value: float) -> None:
    assert "row 7" in refuse(DataError, data=spoiled("x", value))


def test_nan_in_y() -> None:
    assert "'y'" in refuse(DataError, data=spoiled("y", np.nan))


def test_y_outside_zero_and_one() -> None:
    message = refuse(DataError, data=spoiled("y", 2.0))
    assert "2.0 at row 7" in message


@pytest.mark.parametrize("kind", [float, int])
def test_y_in_minus_one_and_one_is_told_how_to_recode(kind: type) -> None:
    message = refuse(DataError, data=changed(y=(2 * ROWS["y"] - 1).astype(kind)))
    assert "(y + 1) / 2" in message


def test_x_and_y_of_different_length() -> None:
    message = refuse(DataError, data=changed(y=ROWS["y"][:-1]))
    assert "200" in message
    assert "199" in message


@pytest.mark.parametrize(
    "data",
    [{"x": np.zeros((0, 2)), "y": np.zeros(0)}, {}, None],
    ids=["no rows", "no arrays", "nothing"],
)
def test_empty_data(data: Any) -> None:
    refuse(DataError, data=data)


def test_object_array() -> None:
    message = refuse(DataError, data=changed(x=ROWS["x"].astype(object)))
    assert "object" in message


def test_strings() -> None:
    refuse(DataError, data=changed(y=np.where(ROWS["y"] == 1, "yes", "no")))


def test_whole_numbers_that_32_bits_cannot_hold() -> None:
    """They would wrap around on their way to the device, without a word."""
    model = tb.Model(lambda theta: -(theta**2), lambda theta, row: -((theta - row["n"]) ** 2), 0.0)
    refuse(DataError, model, {"n": np.array([1, 2, 2**31])})


def test_missing_y() -> None:
    assert "y" in refuse(DataError, data={"x": ROWS["x"]})


def test_rows_that_are_not_a_dict() -> None:
    refuse(DataError, data=(ROWS["x"], ROWS["y"]))


def test_one_dimensional_x() -> None:
    assert "(200,)" in refuse(DataError, data=changed(x=ROWS["x"][:, 0]))


def test_two_dimensional_y() -> None:
    assert "ravel" in refuse(DataError, data=changed(y=ROWS["y"][:, None]))


def test_a_single_number() -> None:
    refuse(DataError, data=changed(y=1.0))


def model_with(**changes: Any) -> tb.Model:
    parts: dict[str, Any] = {
        "log_prior": lambda theta: -0.5 * jnp.sum(theta**2),
        "log_likelihood": lambda theta, row: -((row["y"] - row["x"] @ theta) ** 2),
        "initial": np.zeros(2),
    }
    return tb.Model(**{**parts, **changes})


def test_a_likelihood_that_returns_a_vector() -> None:
    message = refuse(ModelError, model_with(log_likelihood=lambda theta, row: row["x"] * theta))
    assert "log_likelihood" in message


def test_a_likelihood_that_raises() -> None:
    def raising(theta: Any, row: Any) -> Any:
        raise ZeroDivisionError("my own mistake")

    message = refuse(ModelError, model_with(log_likelihood=raising))
    assert "ZeroDivisionError: my own mistake" in message


def test_a_likelihood_of_a_missing_column() -> None:
    assert "KeyError" in refuse(ModelError, model_with(log_likelihood=lambda theta, row: row["z"]))


def test_a_likelihood_that_branches_on_theta() -> None:
    refuse(ModelError, model_with(log_likelihood=lambda theta, row: theta[0] if theta[0] > 0 else 0.0))


def test_a_likelihood_that_returns_a_whole_number() -> None:
    refuse(ModelError, model_with(log_likelihood=lambda theta, row: jnp.int32(1)))


def test_a_likelihood_that_cannot_be_differentiated() -> None:
    def looping(theta: Any, row: Any) -> Any:
        return jax.lax.while_loop(lambda x: x < 10.0, lambda x: 2 * x, jnp.sum(theta) + 1.0)

    refuse(ModelError, model_with(log_likelihood=looping))


def test_a_prior_that_returns_a_vector() -> None:
    assert "log_prior" in refuse(ModelError, model_with(log_prior=lambda theta: -(theta**2)))


def test_a_prior_that_returns_nan() -> None:
    refuse(NonFiniteError, model_with(log_prior=lambda theta: jnp.nan * jnp.sum(theta)), method=PAPERS)


@pytest.mark.parametrize("initial", [np.array([0.0, np.nan]), {}, None], ids=["nan", "empty", "nothing"])
def test_start_values_that_are_none(initial: Any) -> None:
    refuse(ModelError, model_with(initial=initial))


@pytest.mark.parametrize("initial", ["zeros", np.array([None, 1.0])], ids=["word", "objects"])
def test_start_values_that_are_no_numbers(initial: Any) -> None:
    refuse(ModelError, model_with(initial=initial))


@pytest.mark.parametrize("model", [None, "logistic", tb.families.logistic])
def test_a_model_of_the_wrong_type(model: Any) -> None:
    refuse(ModelError, model)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan])
def test_a_prior_scale_that_is_not_positive(scale: float) -> None:
    with pytest.raises(ModelError, match=r"expected prior_scale > 0; got .* Try"):
        tb.families.logistic(prior_scale=scale)


@pytest.mark.parametrize("tolerance", [0, 0.0, -0.1, np.nan, np.inf, "0.1", True, [0.1]])
@pytest.mark.parametrize("kind", ["tolerance", "relative_tolerance", "absolute_tolerance"])
def test_a_tolerance_that_is_no_positive_number(kind: str, tolerance: Any) -> None:
    assert kind in refuse(ToleranceError, **{kind: tolerance})


def test_two_tolerances() -> None:
    message = refuse(ToleranceError, tolerance=0.1, absolute_tolerance=0.1)
    assert "tolerance and absolute_tolerance" in message


def test_no_tolerance_is_the_one_of_the_command_line() -> None:
    found = tb.estimate(LOGISTIC, ROWS, max_evaluations=20_000)
    assert found.settings["tolerance"] == DEFAULT_TOLERANCE
    (action,) = [each for each in command_options.ACCURACY[0] if each.name == "--tolerance"]
    assert action.facts["help"].endswith(f"default {DEFAULT_TOLERANCE:g}")


@pytest.mark.parametrize("names", [("mean",), ("mean", "sd", "median"), ("means", "sds"), ()])
def test_tolerances_by_the_wrong_names(names: tuple[str, ...]) -> None:
    refuse(ToleranceError, tolerance=dict.fromkeys(names, 0.1))


def test_one_bad_tolerance_among_several() -> None:
    refuse(ToleranceError, tolerance={"mean": 0.1, "sd": 0.0})


@pytest.mark.parametrize(
    "quantities",
    [{"g": 3.0}, {"g": None}, {"g": [1.0]}, ("mean", "median"), "median", {}, (), 3, lambda theta: theta],
    ids=["number", "none", "list", "unknown", "unknown alone", "no names", "no words", "no mapping", "bare function"],
)
def test_quantities_that_are_not_functions_by_name(quantities: Any) -> None:
    refuse(InputError, LOGISTIC, ROWS, quantities)


def test_a_quantity_that_raises() -> None:
    def raising(theta: Any) -> Any:
        raise ZeroDivisionError("my own mistake")

    message = refuse(ModelError, LOGISTIC, ROWS, {"g": raising})
    assert "'g'" in message
    assert "my own mistake" in message


def test_a_quantity_that_is_nan_at_the_mode() -> None:
    quantities = {"fine": lambda theta: theta[0], "g": lambda theta: theta * jnp.nan}
    message = refuse(ModelError, LOGISTIC, ROWS, quantities, method=PAPERS)
    assert "'g'" in message
    assert "the mode" in message


def test_a_quantity_that_is_nan_away_from_the_mode(anchor: Any) -> None:
    below = anchor.mode[0] - 0.5 * anchor.sd[0]
    message = refuse(ModelError, LOGISTIC, ROWS, {"g": lambda theta: jnp.log(theta[0] - below)})
    assert "near the mode" in message


@pytest.mark.parametrize(
    "quantity", [lambda theta: jnp.zeros(0), lambda theta: None, lambda theta: ()], ids=["array", "none", "tuple"]
)
def test_a_quantity_without_a_number_in_it(quantity: Callable[[Any], Any]) -> None:
    refuse(ModelError, LOGISTIC, ROWS, {"g": quantity})


def test_a_quantity_that_is_complex() -> None:
    """Its imaginary part would be dropped without a word."""
    refuse(ModelError, LOGISTIC, ROWS, {"g": lambda theta: theta[0] * 1j})


@pytest.mark.parametrize("sampling", [tb.WithoutReplacement(), tb.Blocks()])
def test_a_batch_larger_than_the_table(sampling: Any) -> None:
    method = tb.Multilevel(gradient=tb.Taylor(NUM_ROWS + 1, sampling))
    message = refuse(MethodError, method=method)
    assert "201" in message


@pytest.mark.parametrize("estimator", [tb.Plain, tb.ControlVariate, tb.Taylor, tb.Blend])
@pytest.mark.parametrize("size", [0, -1, 2.5, True, None, "10"])
def test_a_batch_size_that_is_no_whole_number(estimator: Any, size: Any) -> None:
    with pytest.raises(MethodError, match=r"expected batch_size .*; got .* Try: "):
        tb.estimate(LOGISTIC, ROWS, tolerance=0.5, method=tb.Multilevel(gradient=estimator(size)))


@pytest.mark.parametrize("sampling", [tb.WithoutReplacement(), tb.Blocks()])
def test_the_union_of_dependent_batches_is_refused_with_its_reason(sampling: Any) -> None:
    method = tb.Multilevel(gradient=tb.Taylor(5, sampling), coupling=tb.Synchronous("union"))
    message = refuse(MethodError, method=method)
    assert "telescop" in message
    assert "coin" in message


def test_a_coupling_of_no_such_name() -> None:
    with pytest.raises(MethodError, match=r"expected pick .*; got 'both'.* Try: "):
        tb.Synchronous("both")


@pytest.mark.parametrize(
    "changes",
    [
        {"window_steps": 6},
        {"first_step": 0.0},
        {"first_step": -1e-3},
        {"first_step": np.nan},
        {"first_step": np.inf},
        {"start_steps": 0},
        {"added_steps": 2.5},
        {"window_steps": -1},
    ],
    ids=str,
)
def test_a_ladder_that_does_not_stand(changes: dict[str, Any]) -> None:
    ladder = {"first_step": 1e-3, "start_steps": 5, "added_steps": 5, "window_steps": 0} | changes
    with pytest.raises(MethodError, match=rf"expected .*{next(iter(changes))}.*; got .* Try: "):
        tb.estimate(LOGISTIC, ROWS, tolerance=0.5, method=tb.Multilevel(ladder=tb.Ladder(**ladder)))


@pytest.mark.parametrize("method", ["multilevel", tb.Multilevel, tb.Taylor(5)], ids=["word", "class", "part"])
def test_a_method_of_the_wrong_type(method: Any) -> None:
    refuse(MethodError, method=method)


@pytest.mark.parametrize(
    "parts",
    [{"gradient": "taylor"}, {"ladder": 0.01}, {"coupling": tb.Antithetic}, {"dynamics": "euler"}],
    ids=["gradient", "ladder", "coupling", "dynamics"],
)
def test_a_method_with_a_part_of_the_wrong_type(parts: dict[str, Any]) -> None:
    with pytest.raises(MethodError, match=r"expected .*; got .* Try: "):
        tb.estimate(LOGISTIC, ROWS, tolerance=0.5, method=tb.Multilevel(**parts))


@pytest.mark.parametrize("budget", ["max_evaluations", "max_seconds"])
@pytest.mark.parametrize("value", [0, -1, np.nan, "many"])
def test_a_budget_that_is_no_positive_number(budget: str, value: Any) -> None:
    assert budget in refuse(InputError, **{budget: value})


def test_fewer_evaluations_than_the_first_look_takes() -> None:
    message = refuse(InputError, max_evaluations=100)
    assert "max_evaluations >=" in message


@pytest.mark.parametrize("value", [2, 0, -1, 3.5, "many"])
def test_fewer_levels_than_the_bias_needs(value: Any) -> None:
    assert "max_levels" in refuse(InputError, max_levels=value)


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, True, "zero", None])
def test_a_seed_that_is_no_whole_number(seed: Any) -> None:
    assert "seed" in refuse(InputError, seed=seed)


@pytest.fixture(scope="module")
def anchor() -> Any:
    return tb.estimate(LOGISTIC, ROWS, tolerance=2.0).anchor


def test_an_anchor_of_more_rows(anchor: Any) -> None:
    refuse(DataError, data=logistic_rows(NUM_ROWS + 1, (0.8, -0.2)), anchor=anchor)


def test_an_anchor_of_fewer_parameters(anchor: Any) -> None:
    refuse(DataError, data=logistic_rows(NUM_ROWS, (0.8, 0.5, -0.2)), anchor=anchor, method=PAPERS)


def test_an_anchor_of_other_rows_of_the_same_shape(anchor: Any) -> None:
    """Its sums enter every step: a bias that no level could see."""
    refuse(DataError, data=logistic_rows(NUM_ROWS, (0.8, -0.2), seed=1), anchor=anchor)


def test_an_anchor_of_another_prior(anchor: Any) -> None:
    refuse(DataError, tb.families.logistic(prior_scale=0.1), anchor=anchor, method=PAPERS)


def test_an_anchor_of_the_wrong_type() -> None:
    refuse(InputError, anchor=np.zeros(2))


def test_a_step_that_diverges_ends_in_a_result(anchor: Any) -> None:
    ladder = tb.Ladder(first_step=float(10 / anchor.curvatures[-1]))
    result = tb.estimate(LOGISTIC, ROWS, tolerance=0.5, method=tb.Multilevel(ladder=ladder))
    assert result.status in (tb.Status.diverged, tb.Status.no_contraction)
    assert not result.converged
    assert not any(result[name].met for name in result)
    assert str(result.status) in str(result)
    assert all(np.all(np.isinf(np.ravel(end))) for name in result for end in result[name].interval)


def test_paths_that_overflow_end_in_a_result(anchor: Any) -> None:
    ladder = tb.Ladder(first_step=float(1e6 / anchor.curvatures[-1]), start_steps=40, added_steps=40)
    result = tb.estimate(LOGISTIC, ROWS, tolerance=0.5, method=tb.Multilevel(ladder=ladder))
    assert result.status is tb.Status.diverged
    assert not any(result[name].met for name in result)
    assert "diverged" in str(result)
    assert len(result["mean"].interval) == 2
