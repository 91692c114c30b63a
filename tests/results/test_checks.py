"""Checks: responses scatter as their family says, p-values are honest, and what does not fit is far out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenarios import logistic_rows
from scipy.stats import binom

import tallbayes as tb
from tallbayes.model.linear import Layout
from tallbayes.results.checks.batches import RowBatch
from tallbayes.results.checks.check import Check
from tallbayes.results.checks.responses import ResponseDrawer
from tallbayes.results.parts import Regression

DRAWS = 200


def counts(excess: float, seed: int = 0, num_rows: int = 600) -> dict[str, np.ndarray]:
    """Rates of 1 to 4, scattered by a gamma of this variance."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=num_rows), np.ones(num_rows)])
    mean = np.exp(x @ [0.4, 0.5])
    mean = mean * rng.gamma(1 / excess, excess, num_rows) if excess else mean
    return {"x": x, "y": rng.poisson(mean).astype(float)}


@pytest.fixture(scope="module")
def poisson() -> tb.Result:
    return tb.estimate(tb.families.poisson(), counts(0.0), tolerance=0.05)


@pytest.fixture(scope="module")
def scattered() -> tb.Result:
    return tb.estimate(tb.families.poisson(), counts(1.0), tolerance=0.05)


@pytest.fixture(scope="module")
def logistic() -> tb.Result:
    return tb.estimate(tb.families.logistic(), logistic_rows(400, (1.0, 0.3)), tolerance=0.05)


def test_what_fits_is_not_far_out(poisson: tb.Result, logistic: tb.Result) -> None:
    for result in (poisson, logistic):
        for check in result.checks(draws=DRAWS):
            assert np.all((check.p_value > 0.005) & (check.p_value < 0.995))


def test_control_what_the_family_does_not_have_is(scattered: tb.Result) -> None:
    """Gamma-scattered counts held to be Poisson: too many zeros, too wide, too large a maximum; the mean is right."""
    found = {check.name: check for check in scattered.checks(draws=DRAWS)}
    assert list(found) == ["mean", "zeros", "dispersion", "max"]
    assert 0.05 < found["mean"].p_value[0] < 0.95
    for name in ("zeros", "dispersion", "max"):
        assert found[name].p_value[0] == 0
        assert found[name].observed[0] > found[name].replicated.max()
        assert 0 < found[name].p_error[0] < 0.02


def test_sums_are_those_of_a_whole_response(poisson: tb.Result) -> None:
    """A sum over rows, and the same by a function of a whole response, to the last digits."""
    zeros, share = poisson.checks(["zeros", lambda y, rows: float(np.mean(y == 0))], draws=40)
    np.testing.assert_allclose(zeros.observed, np.mean(counts(0.0)["y"] == 0))
    np.testing.assert_allclose(zeros.replicated, share.replicated)
    by_row = poisson.check(lambda y, rows: (y == 0).astype(float), draws=40)
    np.testing.assert_allclose(by_row.replicated, share.replicated)
    names = "mean", "sd", "dispersion", "skewness", "min", "max"
    y = np.concatenate(list(poisson.simulate(draws=40)), axis=1)
    apart = (y - y.mean(axis=1, keepdims=True)) / y.std(axis=1, keepdims=True)
    by_hand = y.mean(axis=1), y.std(axis=1), y.var(axis=1) / y.mean(axis=1), (apart**3).mean(axis=1), y.min(1), y.max(1)
    for check, expected in zip(poisson.checks(names, draws=40), by_hand, strict=True):
        np.testing.assert_allclose(check.replicated[:, 0], expected, rtol=1e-8)


def test_the_error_of_a_p_value_is_that_of_its_draws() -> None:
    """A statistic that is normal: of 2,000 p-values no fewer within two of their errors than 95% less 5 se."""
    rng = np.random.default_rng(3)
    inside = 0
    for _ in range(2_000):
        true, replicated = rng.random(), rng.random((DRAWS, 1))
        check = Check("", "", ("",), np.array([1 - true]), replicated)
        inside += abs(check.p_value[0] - true) <= 2 * check.p_error[0]
    assert inside >= binom.ppf(3e-7, 2_000, 0.95)


def test_the_errors_of_mean_and_sd_are_those_of_draws() -> None:
    rng = np.random.default_rng(4)
    normal = Check("", "", ("",), np.zeros(1), rng.standard_normal((100, 1)))
    many = [replace(normal, replicated=rng.standard_normal((100, 1))) for _ in range(2_000)]
    for name in ("mean", "sd"):
        values = np.array([getattr(each, name)[0] for each in many])
        told = np.mean([getattr(each, f"{name}_error")[0] for each in many])
        # A variance of 2,000 is known to 3.2%, its root to half of it: six of these.
        assert 0.9 < values.std() / told < 1.12


# Responses of every family, at predictors that are known.


def drawer(family: str, extra: Any = None, **options: Any) -> ResponseDrawer:
    regression = Regression(family, 1, False, 0, noise_scale=extra, **options)
    result: Any = type("Bare", (), {"regression": regression, "encoding": None})()
    places = np.full((100, 1), np.log(extra)) if family == "negative_binomial" else np.empty((0, 0))
    return ResponseDrawer(result, None, Layout(), None, extra, places)  # type: ignore[arg-type]


FAMILIES = {
    "logistic": (None, {}, 1 / (1 + np.exp(-0.4)), None),
    "probit": (None, {}, 0.6554217416103242, None),
    "linear": (1.5, {}, 0.4, 1.5**2),
    "student_t": (1.5, {"degrees_of_freedom": 8.0}, 0.4, 1.5**2 * 8 / 6),
    "poisson": (None, {}, np.exp(0.4), np.exp(0.4)),
    "negative_binomial": (0.5, {}, np.exp(0.4), np.exp(0.4) + 0.5 * np.exp(0.8)),
}


# Nothing of them is read by most families.
NO_ROWS = RowBatch(np.empty(0, int), np.empty((0, 1)), np.empty(0))


@pytest.mark.parametrize("family", FAMILIES)
def test_responses_have_the_mean_and_variance_of_their_family(family: str) -> None:
    """Within 5 standard errors: false alarm 6e-7 each."""
    extra, options, mean, variance = FAMILIES[family]
    made = drawer(family, extra, **options)
    eta = np.full((100, 1_000), 0.4)
    y = made.responses(eta, NO_ROWS, np.random.default_rng(1)).ravel()
    variance = mean * (1 - mean) if variance is None else variance
    assert np.allclose(made.means(eta, NO_ROWS), mean)
    assert abs(y.mean() - mean) < 5 * (variance / y.size) ** 0.5
    spread = ((y - mean) ** 2).std() / y.size**0.5
    assert abs(((y - mean) ** 2).mean() - variance) < 5 * spread


def test_classes_come_as_often_as_their_chances() -> None:
    made = drawer("multinomial")
    eta = np.broadcast_to(np.array([0.5, -1.0]), (100, 1_000, 2))
    y = made.responses(eta, NO_ROWS, np.random.default_rng(1))
    chance = np.exp([0.0, 0.5, -1.0]) / np.exp([0.0, 0.5, -1.0]).sum()
    for k in range(3):
        assert abs(np.mean(y == k) - chance[k]) < 5 * (chance[k] * (1 - chance[k]) / y.size) ** 0.5


# Where rows come from.


def test_rows_come_in_their_own_order_and_again_the_same(logistic: tb.Result) -> None:
    rows = logistic_rows(400, (1.0, 0.3))
    replicated = logistic.simulate(draws=DRAWS, seed=2)
    whole = np.concatenate(list(replicated), axis=1)
    np.testing.assert_array_equal(whole, np.concatenate(list(replicated), axis=1))
    seen = np.concatenate([each.batch.observed for each in replicated.batches()])
    np.testing.assert_array_equal(seen, rows["y"])
    given = np.concatenate(list(logistic.simulate({"x": rows["x"]}, draws=DRAWS, seed=2)), axis=1)
    np.testing.assert_array_equal(given, whole)


def test_a_response_is_wanted_to_be_held_against(logistic: tb.Result) -> None:
    with pytest.raises(tb.InputError, match="the response that was seen"):
        logistic.checks(rows={"x": np.ones((5, 2))})
    with pytest.raises(tb.InputError, match="a function, or one of"):
        logistic.check("median")


def test_calibration_is_by_tenths_of_what_is_expected(logistic: tb.Result) -> None:
    check = logistic.check("calibration", draws=DRAWS)
    assert len(check.labels) == 10
    assert np.all(np.diff(check.at) > 0)
    np.testing.assert_allclose(check.mean, check.at, atol=0.1)
    assert check.outside <= 0.3


def test_a_file_has_a_row_a_row(logistic: tb.Result, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert logistic.simulate(draws=5, out=tmp_path / "y.parquet") == 400
    table = parquet.read_table(tmp_path / "y.parquet")
    assert table.column_names == ["row", *(f"draw_{k}" for k in range(5))]


def test_a_page_has_them_where_they_are_asked_for(scattered: tb.Result, logistic: tb.Result, tmp_path: Path) -> None:
    found = [*scattered.checks(draws=50), logistic.check("calibration", draws=50)]
    page = scattered.report(tmp_path / "page.html", checks=found).read_text()
    assert "Does the model fit?" in page
    assert "does not have the share of zeros, variance over mean and largest that was seen" in page
    assert "Does the model fit?" not in scattered.report(tmp_path / "page.html").read_text()
    assert "zeros" in str(found[1])


def test_of_a_model_of_its_owner_there_is_no_response() -> None:
    model = tb.Model(lambda t: -0.5 * t**2, lambda t, row: -0.5 * (row - t) ** 2, 0.0)
    result: Any = tb.estimate(model, np.arange(50.0) / 50, tolerance=0.5)
    with pytest.raises(tb.InputError, match=r"a model with simulate="):
        result.simulate()
