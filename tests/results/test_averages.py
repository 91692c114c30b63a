"""Average effects: against brute force over a million weighted draws in NumPy, and in closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from averaged import departure, weighted_draws

import tallbayes as tb
from tallbayes.errors import DataError
from tallbayes.moments import Floats

# Two-sided false alarms of a normal error at so many standard errors: 6e-7.
FAR = 5.0


def table(count: int = 100) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    age, treated = rng.normal(0.0, 1.0, count), rng.integers(0, 2, count)
    kind = np.array(["a", "b"])[rng.integers(0, 2, count)]
    eta = -0.3 + 0.9 * treated - 0.8 * treated * age + 0.4 * age
    y = (rng.random(count) < 1 / (1 + np.exp(-eta))).astype(int)
    return {"y": y, "age": age, "treated": treated, "kind": kind, "w": 1.0 + (np.arange(count) % 3 == 0)}


def columns(rows: dict[str, Any], treated: Any = None, interacting: Any = None) -> Floats:
    """1, treated, age, treated * age, with treated set to a value; where `interacting`, the last column forgets it."""
    t = rows["treated"] if treated is None else np.full(len(rows["age"]), float(treated))
    last = t if interacting is None else interacting
    return np.column_stack([np.ones(len(t)), t, rows["age"], last * rows["age"]])


@pytest.fixture(scope="module")
def fitted() -> tb.Result:
    formula = "y ~ treated * age"
    return tb.fit(formula, table(), family="logistic", standardise=False, weights="w", tolerance=0.03)


@pytest.fixture(scope="module")
def exact(fitted: tb.Result) -> tuple[Floats, Floats]:
    """Draws of the posterior of `fitted` by its definition; the proposal alone is taken from the fit."""
    rows = table()
    x, scales = columns(rows), np.array([10.0, 1.0, 1.0, 1.0])

    def log_density(theta: Floats) -> Floats:
        out = -0.5 * np.sum((theta / scales) ** 2, axis=1)
        for part in np.array_split(np.arange(len(x)), 4):
            eta = theta @ x[part].T
            out += (rows["y"][part] * eta - np.logaddexp(0, eta)) @ rows["w"][part]
        return np.asarray(out)

    order = ["Intercept", "treated", "age", "treated:age"]
    mean = np.array([fitted["mean"].value[name] for name in order])
    sd = np.array([fitted["sd"].value[name] for name in order])
    return weighted_draws(log_density, mean, np.diag(sd**2) * 1.5)


def averages(rows: dict[str, Any], theta: Floats, some: Any = slice(None), **sides: Any) -> tuple[Floats, Floats]:
    """A_high and A_low at draws, over some rows."""
    w = rows["w"][some] / rows["w"][some].sum()
    both = []
    for value in (1, 0):
        eta = theta @ columns(rows, value, **sides)[some].T
        both.append((1 / (1 + np.exp(-eta))) @ w)
    return both[0], both[1]


def test_an_effect_is_what_brute_force_says(fitted: tb.Result, exact: tuple[Floats, Floats]) -> None:
    theta, weights = exact
    high, low = averages(table(), theta)
    assert departure(fitted.average_effect("treated", 1, 0), high - low, weights) < FAR
    assert departure(fitted.average_effect("treated", 1, 0, ratio=True), high / low, weights) < FAR


def test_controls_the_other_sign_and_an_interaction_that_forgot(
    fitted: tb.Result, exact: tuple[Floats, Floats]
) -> None:
    theta, weights = exact
    found = fitted.average_effect("treated", 1, 0, by="kind")["a"]
    high, low = averages(table(), theta, table()["kind"] == "a")
    assert departure(found, low - high, weights) > 10 * FAR
    forgot = table()
    high, low = averages(forgot, theta, forgot["kind"] == "a", interacting=forgot["treated"])
    assert departure(found, high - low, weights) > 4 * FAR


def test_by_level_and_their_contrast(fitted: tb.Result, exact: tuple[Floats, Floats]) -> None:
    (theta, weights), rows = exact, table()
    found = fitted.average_effect("treated", 1, 0, by="kind")
    assert tuple(found) == ("a", "b")
    moved = {}
    for level in found:
        high, low = averages(rows, theta, rows["kind"] == level)
        moved[level] = high - low
        assert departure(found[level], moved[level], weights) < FAR
        assert found[level].rows == int(np.sum(rows["kind"] == level))
    assert departure(found.contrast("a", "b"), moved["a"] - moved["b"], weights) < FAR
    assert found.contrast("a", "b").mean.value == pytest.approx(
        found["a"].mean.value - found["b"].mean.value, abs=1e-12
    )
    with pytest.raises(tb.InputError, match="a level of 'kind'"):
        found["c"]


def test_a_slope_is_that_of_the_mean_response(fitted: tb.Result, exact: tuple[Floats, Floats]) -> None:
    (theta, weights), rows = exact, table()
    p = 1 / (1 + np.exp(-theta @ columns(rows).T))
    slopes = theta[:, 2:3] + theta[:, 3:4] * rows["treated"]
    values = (p * (1 - p) * slopes) @ (rows["w"] / rows["w"].sum())
    assert departure(fitted.average_slope("age"), values, weights) < FAR


def test_over_other_rows_and_in_every_form(fitted: tb.Result, exact: tuple[Floats, Floats]) -> None:
    (theta, weights), rows = exact, {name: each[:20] for name, each in table().items()}
    found = fitted.average_effect("treated", 1, 0, rows=rows)
    high, low = averages(rows, theta)
    assert departure(found, high - low, weights) < FAR
    assert found.rows == 20
    assert "treated: 1 - 0" in str(found)
    assert "treated: 1 - 0" in found._repr_html_()
    assert found.to_pandas()["mean"].iloc[0] == found.mean.value
    frame = fitted.average_effect("treated", 1, 0, by="kind", rows=rows).to_pandas()
    assert list(frame["kind"]) == ["a", "b"]


def test_a_sample_of_rows_knows_what_it_misses(fitted: tb.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of copies of the table with ages of their own, far out so that what is beyond second order matters."""
    rng = np.random.default_rng(5)
    rows = {name: np.tile(each, 40) for name, each in table().items()}
    rows["age"] = 2.5 * rng.standard_normal(len(rows["age"]))
    whole = fitted.average_effect("treated", 1, 0, rows=rows)
    monkeypatch.setattr("tallbayes.results.averages.answers.MOST_EVALUATIONS", 0)
    seen = []
    for seed in range(12):
        monkeypatch.setattr("tallbayes.results.averages.sums.SEED", seed)
        some = fitted.average_effect("treated", 1, 0, rows=rows)
        own = np.sqrt(np.maximum(some.standard_errors**2 - whole.standard_errors**2, 0))[:2]
        assert np.all(own > 0)
        seen.append((some.values[:2] - whole.values[:2]) / own)
    # Twelve samples of each: the largest of 24 errors, and their mean square, chi-square with false alarms of 1e-6.
    assert np.abs(seen).max() < FAR
    assert np.mean(np.square(seen)) < 3.2


def test_of_a_linear_model_an_effect_is_its_coefficient() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 2)) * [3.0, 0.5]
    rows = {"a": x[:, 0], "b": x[:, 1], "y": 5 + 2 * x[:, 0] - x[:, 1] + rng.normal(size=60)}
    result = tb.fit("y ~ a + b", rows, family="linear", tolerance=0.05)
    for found in (result.average_effect("a", 3.0, 1.0), result.average_slope("a")):
        factor = 2.0 if found.name.endswith("1.0") else 1.0
        assert found.mean.value == pytest.approx(factor * result["mean"].value["a"], rel=1e-6)
        # Read off the same draws, but for where squares of weights are divided.
        assert found.sd.value == pytest.approx(factor * result["sd"].value["a"], rel=0.01)


def test_of_counts_with_an_offset_and_arrays() -> None:
    rng = np.random.default_rng(2)
    x, offset = rng.normal(size=(80, 2)), rng.normal(size=80)
    rows = {"x": x, "y": rng.poisson(np.exp(0.5 * x[:, 0] + offset)), "offset": offset}
    result = tb.estimate(tb.families.poisson(intercept_scale=1.0), rows, tolerance=0.03)

    def log_density(theta: Floats) -> Floats:
        eta = theta[:, :2] @ x.T + theta[:, 2:] + offset
        return np.asarray((rows["y"] * eta - np.exp(eta)).sum(axis=1) - 0.5 * np.sum(theta**2, axis=1))

    means, sds = (result[name].value for name in ("mean", "sd"))
    mean, sd = (np.append(each["coefficients"], each["intercept"]) for each in (means, sds))
    theta, weights = weighted_draws(log_density, mean, np.diag(1.3 * sd**2))

    def average(value: float) -> Floats:
        return np.asarray(np.exp(theta[:, :1] * value + theta[:, 1:2] * x[:, 1] + theta[:, 2:] + offset).mean(axis=1))

    assert departure(result.average_effect(0, 1.0, -1.0), average(1.0) - average(-1.0), weights) < FAR
    slope = (theta[:, :1] * np.exp(theta[:, :2] @ x.T + theta[:, 2:] + offset)).mean(axis=1)
    assert departure(result.average_slope(0), slope, weights) < FAR
    with pytest.raises(tb.InputError, match="a column by its number"):
        result.average_slope(2)


@pytest.mark.slow
def test_paths_say_what_brute_force_says(exact: tuple[Floats, Floats]) -> None:
    theta, weights = exact
    asked: dict[str, Any] = {"standardise": False, "weights": "w", "tolerance": 0.05}
    result = tb.fit("y ~ treated * age", table(), family="logistic", method=tb.Anchored(), **asked)
    high, low = averages(table(), theta)
    assert departure(result.average_effect("treated", 1, 0), high - low, weights) < FAR


def test_what_cannot_be_asked(fitted: tb.Result) -> None:
    with pytest.raises(tb.InputError, match="a column that the formula reads"):
        fitted.average_effect("kind", "a", "b")
    with pytest.raises(tb.InputError, match="the table that was fitted"):
        replace(fitted, fit_table=None).average_effect("treated", 1, 0)
    with pytest.raises(DataError, match="no such column"):
        fitted.average_effect("treated", 1, 0, by="nothing")
    with pytest.raises(tb.InputError, match="a mixed model for groups='new'"):
        fitted.average_effect("treated", 1, 0, groups="new")
    with pytest.raises(tb.InputError, match="groups one of"):
        fitted.average_effect("treated", 1, 0, groups="all")
    with pytest.raises(tb.InputError, match="response= for a model of one's own"):
        fitted.average_effect("treated", 1, 0, response=lambda theta, row: 0.0)
