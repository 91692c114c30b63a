"""Left sides: every way to write a response of more than one number a row is the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln

import tallbayes as tb
from tallbayes.errors import DataError, InputError
from tallbayes.formula.response.left import call_of, left_of, times_of, trials_of, without_bar

N = np.array([3.0, 5.0, 9.0, 2.0])
K = np.array([1.0, 5.0, 0.0, 1.0])


def reader(**columns: Any) -> Any:
    def read(text: str) -> np.ndarray:
        return np.asarray(columns[text]) if text in columns else np.asarray(eval(text, {}, columns))

    return read


@pytest.mark.parametrize("left", ["cbind(k, n - k)", "cbind(k, f)", "p(k, n)", without_bar("k | trials(n)")])
def test_trials(left: str) -> None:
    call = call_of(left)
    assert call is not None
    y, beside = trials_of(call, reader(k=K, n=N, f=N - K))
    np.testing.assert_array_equal(y, K)
    np.testing.assert_array_equal(beside["trials"], N)


SEEN = np.array([True, False, True])
TIME = np.array([2.0, 3.0, 4.0])
LOW, HIGH = np.array([2.0, 1.0, 0.0, 5.0]), np.array([2.0, 4.0, 3.0, np.inf])


@pytest.mark.parametrize(
    ("left", "columns", "y", "censored", "upper"),
    [
        ("Surv(t, e)", {"t": TIME, "e": SEEN}, TIME, [0, 1, 0], None),
        ("Surv(t, e, type='left')", {"t": TIME, "e": SEEN.astype(int)}, TIME, [0, -1, 0], None),
        ('Surv(a, b, type="interval2")', {"a": LOW, "b": HIGH}, [2, 1, 3, 5], [0, 2, -1, 1], [2, 4, 3, 5]),
        (
            'Surv(a, b, s, type="interval")',
            {"a": LOW[:2], "b": HIGH[:2], "s": [1, 3]},
            LOW[:2],
            [0, 2],
            HIGH[:2],
        ),
        ("censored(t, s)", {"t": TIME, "s": ["none", "right", "left"]}, TIME, [0, 1, -1], None),
        ("censored(t, s)", {"t": TIME, "s": [0, 1, -1]}, TIME, [0, 1, -1], None),
        (
            without_bar("a | cens(s, b)"),
            {"a": LOW[:2], "b": HIGH[:2], "s": ["right", "interval"]},
            LOW[:2],
            [1, 2],
            [2, 4],
        ),
    ],
)
def test_censoring(left: str, columns: dict[str, Any], y: Any, censored: Any, upper: Any) -> None:
    call = call_of(left)
    assert call is not None
    found, beside = times_of(call, reader(**columns))
    np.testing.assert_array_equal(found, y)
    np.testing.assert_array_equal(beside["censored"], censored)
    if upper is not None:
        np.testing.assert_array_equal(beside["upper"], upper)
    else:
        assert "upper" not in beside


@pytest.mark.parametrize(
    ("left", "columns", "said"),
    [
        ("Surv(t, e)", {"t": TIME, "e": [1, 2, 1]}, "one of 0, 1 in 'e'; got 2 at row 1"),
        ("censored(t, s)", {"t": TIME, "s": ["none", "dead", "none"]}, "'dead' at row 1"),
        ("censored(t, s)", {"t": TIME, "s": [2, 0, 0]}, "an upper bound"),
        ('Surv(a, b, type="interval2")', {"a": [0.0], "b": [np.inf]}, "none at row 0"),
        ("cbind(k, f)", {"k": ["a"], "f": [1]}, "text such as 'a'"),
    ],
)
def test_what_is_no_response(left: str, columns: dict[str, Any], said: str) -> None:
    call = call_of(left)
    assert call is not None
    with pytest.raises(DataError, match=said):
        (trials_of if call.function == "cbind" else times_of)(call, reader(**columns))


@pytest.mark.parametrize("left", ["cbind(k)", "Surv(a, b, e)", "Surv(a, type='x')", "p(k, n, scale=2)", "ordered()"])
def test_unknown_forms(left: str) -> None:
    with pytest.raises(InputError, match="in a known form"):
        call_of(left)


def test_columns_of_new_rows() -> None:
    assert left_of("p(k, n)", ["n", "x"]).columns == ("n",)
    assert left_of("cbind(k, n - k)", ["n", "x"]).columns == ()
    assert left_of("cbind(k, n - k)", ["n", "k"]).is_whole
    assert left_of("late", ["late"]).columns == ("late",)


@pytest.fixture(scope="module")
def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    n, x = rng.integers(1, 20, 200), rng.normal(size=200)
    k = rng.binomial(n, 1 / (1 + np.exp(-(0.3 + 0.8 * x))))
    return {"k": k, "n": n, "x": x}


def test_trials_are_rows_with_weights(table: dict[str, np.ndarray]) -> None:
    """The same posterior, by the same draws; evidence and leave-one-out count what the densities leave out."""
    k, n, x = table["k"], table["n"], table["x"]
    found = tb.fit("cbind(k, n - k) ~ x", table, family="binomial", tolerance=0.05)
    both = {"y": np.repeat([1, 0], 200), "x": np.r_[x, x], "w": np.r_[k, n - k]}
    alone = tb.fit("y ~ x", both, weights="w", tolerance=0.05)
    for name in ("Intercept", "x"):
        assert found["mean"].value[name] == pytest.approx(alone["mean"].value[name], rel=1e-6)
    ways = float(np.sum(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)))
    one, other = found.evidence(), alone.evidence()
    assert one.value - ways == pytest.approx(other.value, abs=5 * (one.standard_error + other.standard_error) + 1e-3)
    assert any("family: binomial is logistic here" in note for note in found.notes)
    assert any("predicted is the chance of one success" in note for note in found.notes)


def test_simulated_successes_are_of_the_trials(table: dict[str, np.ndarray]) -> None:
    result = tb.fit("p(k, n) ~ x", table, tolerance=0.1)
    mean, calibration = result.checks(draws=100)
    assert 0.001 < float(mean.p_value[0]) < 0.999
    assert mean.observed[0] == pytest.approx(table["k"].mean())
    assert calibration.labels[-1].startswith("above")
    drawn = np.concatenate(list(result.simulate({"x": [3.0, 3.0], "n": [1, 40]}, draws=100)), axis=1)
    assert drawn[:, 0].max() <= 1
    assert 30 < drawn[:, 1].mean() < 40


@pytest.mark.parametrize(
    ("formula", "family", "error", "said"),
    [
        ("cbind(k, n - k) ~ x", "poisson", InputError, "family='logistic'"),
        ("cbind(n, k - n) ~ x", "logistic", DataError, "whole numbers of trials"),
        ("p(n, k) ~ x", "binomial", DataError, "trials"),
        ("Surv(k, n) ~ x", "logistic", InputError, "a response that is binary"),
    ],
)
def test_a_response_of_another_family(
    formula: str, family: str, error: type[Exception], said: str, table: dict[str, np.ndarray]
) -> None:
    with pytest.raises(error, match=said):
        tb.fit(formula, table, family=family, tolerance=0.1)


def test_trials_that_a_family_does_not_read() -> None:
    rows = {"x": np.ones((4, 1)), "y": K, "trials": N}
    with pytest.raises(DataError, match="'trials' among them"):
        tb.estimate(tb.families.poisson(), rows, tolerance=0.1)
    with pytest.raises(DataError, match="successes"):
        tb.estimate(tb.families.binomial(), rows | {"y": N + 1}, tolerance=0.1)
