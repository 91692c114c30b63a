"""The formula door: answers in the table's own units, equal to closed forms and to `estimate` on columns made by hand.

Errors of estimates are held to 6 of their standard errors, beside their bias bounds: a false alarm in 1e-6 of the
runs of one component for 40 and more degrees of freedom.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from written_out import written_out

import tallbayes as tb
from tallbayes.errors import DataError, InputError, PosteriorError, TallbayesError, ToleranceError
from tallbayes.formula.design import build_design
from tallbayes.formula.encoding import Encoding
from tallbayes.formula.units import in_own_units
from tallbayes.model.catalogue import ALIASES, CATALOGUE

NUM_ROWS = 2000
FAR = 6.0
GENERATOR = np.random.default_rng(2)
HOUR = GENERATOR.normal(14.0, 5.0, NUM_ROWS)
CARRIER = np.array(["AA", "DL", "UA"])[GENERATOR.integers(0, 3, NUM_ROWS)]
RAW = np.stack([np.ones(NUM_ROWS), HOUR, CARRIER == "DL", CARRIER == "UA"], axis=1)
DELAY = RAW @ np.array([5.0, 0.8, 3.0, -2.0]) + GENERATOR.normal(0.0, 8.0, NUM_ROWS)
ROWS: dict[str, Any] = {
    "hour": HOUR,
    "carrier": CARRIER,
    "delay": DELAY,
    "late": np.where(GENERATOR.random(NUM_ROWS) < 1 / (1 + np.exp(3.0 - 0.2 * HOUR)), "yes", "no"),
    "count": GENERATOR.poisson(2.0, NUM_ROWS),
    "weight": GENERATOR.uniform(0.5, 2.0, NUM_ROWS),
    "known": GENERATOR.normal(0.0, 2.0, NUM_ROWS),
}
# Hours are standardised; the levels of a category are not.
UNITS_OF_RAW = np.array([HOUR.mean(), 0.0, 0.0]), np.array([HOUR.std(), 1.0, 1.0])
NAMES = ["Intercept", "hour", "carrier[T.DL]", "carrier[T.UA]"]


def far_apart(estimate: tb.Estimate, value: np.ndarray, error: Any = 0.0) -> float:
    """The largest distance from a value, in the standard errors of both, beyond the bias bound."""
    beyond = np.abs(estimate.flat_value - value) - estimate.flat_bias_bound
    return float(np.max(beyond / np.hypot(estimate.flat_standard_error, error)))


@pytest.fixture(scope="module")
def logistic() -> tb.Result:
    return tb.fit("late ~ hour + carrier", ROWS, prior_scale=0.5, intercept_scale=2.0, tolerance=0.05, seed=1)


def test_a_logistic_fit_equals_an_estimate_on_columns_made_by_hand(logistic: tb.Result) -> None:
    """The prior, stated per standard deviation and at the means, written out for the raw coefficients."""
    means, scales = UNITS_OF_RAW

    def log_prior(raw: jax.Array) -> jax.Array:
        at_means = raw[0] + raw[1:] @ means
        return -0.5 * jnp.sum((raw[1:] * scales / 0.5) ** 2) - 0.5 * (at_means / 2.0) ** 2

    def log_likelihood(raw: jax.Array, row: Any) -> jax.Array:
        eta = row["x"] @ raw
        return row["y"] * eta - jax.nn.softplus(eta)

    model = tb.Model(log_prior, log_likelihood, np.zeros(4), log_concave=True)
    other = tb.estimate(model, {"x": RAW, "y": ROWS["late"] == "yes"}, tolerance=0.05, seed=2)
    assert logistic.converged
    assert other.converged
    for quantity in ("mean", "sd"):
        error = other[quantity].flat_standard_error + other[quantity].flat_bias_bound
        assert far_apart(logistic[quantity], other[quantity].flat_value, error) < FAR


def test_a_result_has_names_in_the_formula_s_order_and_says_what_was_done(logistic: tb.Result) -> None:
    assert list(logistic["mean"].value) == list(logistic["sd"].interval[0]) == NAMES
    prior, response, *_ = logistic.notes
    assert "N(0, 0.5^2) on standardised columns" in prior
    assert "N(0, 2^2)" in prior
    assert response == "response: late = 'yes' is 1, 'no' is 0"


def test_an_extension_keeps_notes_and_encoding(logistic: tb.Result) -> None:
    further = logistic.extend(tolerance=0.04).extend(tolerance=0.03)
    assert further["mean"].met
    assert further.notes[:2] == logistic.notes[:2]
    assert further.encoding == logistic.encoding
    assert list(further["mean"].value) == NAMES


def test_a_saved_result_can_encode_new_rows(logistic: tb.Result, tmp_path: Path) -> None:
    logistic.save(tmp_path / "fit.tallbayes")
    loaded = tb.load(tmp_path / "fit.tallbayes")
    encoding = Encoding.from_plain(loaded.encoding)
    design = build_design("late ~ hour + carrier", ROWS)
    assert encoding == design.encoding
    np.testing.assert_allclose(encoding.encode({"hour": HOUR, "carrier": CARRIER}), written_out(design), atol=2e-6)
    assert list(loaded["mean"].value) == NAMES


def test_a_linear_fit_equals_the_closed_form() -> None:
    """With weights and an offset: raw b = T theta + shift, theta Gaussian with a precision that can be written down."""
    result = tb.fit(
        "delay ~ hour + carrier",
        ROWS,
        "linear",
        family_options={"noise_scale": 8.0},
        weights="weight",
        offset="known",
        tolerance=0.05,
    )
    assert result.converged
    means, scales = UNITS_OF_RAW
    centre, spread = DELAY.mean(), DELAY.std()
    z = np.column_stack([np.ones(NUM_ROWS), (RAW[:, 1:] - means) / scales])
    weighted = z.T * ROWS["weight"] * (spread / 8.0) ** 2
    precision = weighted @ z + np.diag([1 / 10.0**2, 1, 1, 1])
    theta = np.linalg.solve(precision, weighted @ ((DELAY - centre - ROWS["known"]) / spread))
    back = spread * np.block([[np.ones((1, 1)), -(means / scales)[None]], [np.zeros((3, 1)), np.diag(1 / scales)]])
    raw = back @ theta + np.array([centre, 0, 0, 0])
    sd = np.sqrt(np.diag(back @ np.linalg.inv(precision) @ back.T))
    # float32 columns and posterior sds that are exact up to them.
    assert far_apart(result["mean"], raw, 1e-4 * sd) < FAR
    assert far_apart(result["sd"], sd, 1e-4 * sd) < FAR
    assert f"sd {spread:.6g}" in " ".join(result.notes)
    # The control: a prior in other units would be seen.
    assert far_apart(result["mean"], raw + 0.5 * sd, 1e-4 * sd) > FAR


UNITS = [
    ("logistic", "late ~ hour + carrier", True),
    ("logistic", "late ~ hour + carrier", False),
    ("logistic", "late ~ 0 + hour + carrier", True),
    ("logistic", "late ~ 1", True),
    ("linear", "delay ~ hour + carrier", True),
    ("student_t", "delay ~ 0 + hour + carrier", True),
    ("negative_binomial", "count ~ hour", True),
    ("multinomial", "carrier ~ hour", True),
]


@pytest.mark.parametrize(("family", "formula", "standardise"), UNITS)
def test_the_predictor_is_the_same_in_both_units(family: str, formula: str, standardise: bool) -> None:
    """b_0 + raw . b = m_y + s_y (theta_0 + x . theta) for any theta, at every row."""
    record = CATALOGUE[family]
    design = build_design(formula, ROWS, standardise=standardise, response=record.response)
    raw = written_out(build_design(formula, ROWS, standardise=False, response=record.response))
    generator, classes = np.random.default_rng(0), design.encoding.classes if family == "multinomial" else None
    shape = () if classes is None else (len(classes) - 1,)
    width = max(len(design.names), 1)
    theta = {"coefficients": generator.normal(size=(*shape, width)), "intercept": generator.normal(size=shape)}
    extra = None if record.extra is None else record.extra.name
    if extra:
        theta[extra] = np.float64(0.7)
    if not (design.intercept and design.names):
        del theta["intercept"]
    response_mean, response_scale = (3.0 if design.intercept else 0.0, 2.0) if extra == "noise_scale" else (0.0, 1.0)
    encoding = replace(design.encoding, response_mean=response_mean, response_scale=response_scale)
    model = in_own_units(tb.families.logistic(), encoding, record.extras, classes is not None)
    with jax.enable_x64(True):
        given = theta if len(theta) > 1 else theta["coefficients"]
        reported = jax.tree.map(np.asarray, model.report(given, model.units))
        flat = np.asarray(model.flat_report(given, model.units))
    np.testing.assert_array_equal(flat, np.stack(list(model.structure.leaves(reported))))
    eta = response_mean + response_scale * (written_out(design) @ theta["coefficients"].T + theta.get("intercept", 0.0))
    by_class = [reported] if classes is None else [reported[str(each)] for each in classes[1:]]
    for place, own in enumerate(by_class):
        slopes = np.array([own[name] for name in design.names])
        again = own.get("Intercept", 0.0) + raw[:, : len(slopes)] @ slopes
        np.testing.assert_allclose(again, eta if classes is None else eta[:, place], atol=1e-4)
        assert set(own) == {*design.names, *(["Intercept"] * design.intercept), *([extra] if extra else [])}
    if extra:
        assert reported[extra] == pytest.approx(0.7 * response_scale)


def test_the_table_goes_by_both_names_and_by_its_place() -> None:
    question = {"formula": "late ~ hour", "tolerance": 0.5}
    by_place = tb.fit("late ~ hour", ROWS, "logistic", tolerance=0.5)
    for name in ("data", "table"):
        np.testing.assert_array_equal(
            tb.fit(**question, **{name: ROWS})["mean"].flat_value, by_place["mean"].flat_value
        )


@pytest.mark.parametrize(
    ("alias", "name", "response"),
    [("binomial", "logistic", "late"), pytest.param("gaussian", "linear", "delay", marks=pytest.mark.slow)],
)
def test_a_family_may_go_by_its_name_in_r(alias: str, name: str, response: str) -> None:
    other, own = (tb.fit(f"{response} ~ hour", ROWS, family, tolerance=0.5) for family in (alias, name))
    np.testing.assert_array_equal(other["mean"].flat_value, own["mean"].flat_value)
    assert other.regression is not None
    assert other.regression.family == name
    assert other.notes[0].startswith(f"family: {alias} is {name} here")
    assert own.notes == other.notes[1:]


def test_every_alias_means_a_family() -> None:
    assert set(ALIASES.values()) <= set(CATALOGUE)
    assert not set(ALIASES) & set(CATALOGUE)


def test_successes_out_of_trials_are_two_rows_with_weights() -> None:
    """The same posterior as that of the trials one by one, held to 6 standard errors of both."""
    with pytest.raises(DataError, match=r"k successes in n trials: cbind\(k, n - k\)"):
        tb.fit("count ~ hour", ROWS, "binomial")
    generator = np.random.default_rng(5)
    x, trials = generator.normal(size=60), generator.integers(5, 40, 60)
    successes = generator.binomial(trials, 1 / (1 + np.exp(0.5 - x)))
    each = np.concatenate([np.arange(n) < k for k, n in zip(successes, trials, strict=True)])
    one_by_one = {"y": each.astype(float), "x": np.repeat(x, trials)}
    two_rows = {"y": np.repeat([1.0, 0.0], 60), "x": np.tile(x, 2), "w": np.append(successes, trials - successes)}
    options = {"standardise": False, "tolerance": 0.05}
    rows, pairs = tb.fit("y ~ x", one_by_one, **options), tb.fit("y ~ x", two_rows, weights="w", **options)
    assert far_apart(rows["mean"], pairs["mean"].flat_value, pairs["mean"].flat_standard_error) < FAR


def test_a_posterior_without_a_mode_is_told_by_the_names_of_columns() -> None:
    rows = {**ROWS, "sure": np.where(HOUR.mean() < HOUR, 1.0, 0.0)}
    with pytest.raises(PosteriorError, match=r"keeps rising as .hour. grows .* the data are separated") as caught:
        tb.fit("sure ~ hour", rows, prior_scale=float("inf"), tolerance=0.1)
    assert "theta" not in str(caught.value)


BAD: dict[str, tuple[type[TallbayesError], dict[str, Any], str]] = {
    "a family's name": (InputError, {"family": "logit"}, "'logistic'"),
    "no family": (InputError, {"family": tb.families.logistic()}, "one of logistic"),
    "a family's option by itself": (
        InputError,
        {"family": "quantile", "level": 0.9},
        "family_options={'level': 0.9}",
    ),
    "a family's option": (InputError, {"family": "student_t", "family_options": {"freedom": 3}}, "degrees_of_freedom"),
    "an option of the estimate": (InputError, {"max_second": 3}, "'max_seconds'"),
    "two tolerances": (ToleranceError, {"absolute_tolerance": 0.1}, "tolerance=0.01"),
    "no table": (InputError, {"table": None}, "got neither"),
    "two tables": (InputError, {"data": ROWS}, "got both"),
    "a prior by an unknown name": (InputError, {"prior_scale": {"Hour": 2.0}}, "'hour'"),
    "too few priors": (InputError, {"prior_scale": [1.0, 2.0]}, "2 for 1 columns"),
    "a name that is taken": (InputError, {"formula": "late ~ Intercept"}, "'Intercept'"),
    "a response that never changes": (DataError, {"formula": "flat ~ hour", "family": "linear"}, "3 in all rows"),
    "an offset of several predictors": (
        DataError,
        {"formula": "carrier ~ hour", "family": "multinomial", "offset": "known"},
        "no offset in a multinomial regression",
    ),
    "a file that is not there": (DataError, {"table": "nowhere.parquet"}, "nothing at"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    error, changes, part = BAD[name]
    table = {**ROWS, "Intercept": HOUR, "flat": np.full(NUM_ROWS, 3.0)}
    with pytest.raises(TallbayesError) as caught:
        tb.fit(**{"formula": "late ~ hour", "table": table, "tolerance": 0.1, **changes})
    assert type(caught.value) is error
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
