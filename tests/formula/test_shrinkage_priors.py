"""Shrinkage priors stated by a formula, a command or an estimator: of all coefficients, on standardised columns.

A z-score is a difference in stated standard errors of either side; 6.5 is passed by chance once in a million, of the
twenty numbers that a test looks at.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import digamma, polygamma

import tallbayes as tb
from tallbayes.commands.cli import main
from tallbayes.errors import ModelError
from tallbayes.estimation.shrunk import _first_centre
from tallbayes.formula.priors.predictive import prior_predictive
from tallbayes.results.run_folder import read_run
from tallbayes.weighing.regression import plain_regression

P = tb.priors
LIMIT = 6.5
ROWS = 1_000
FORMULA = "delay ~ hour + metres + carrier"
PRIOR = P.horseshoe(0.1)
TOLD: dict[str, Any] = {"coefficients": PRIOR, "Intercept": P.normal(30, 20), "sigma": P.exponential(0.2)}
# E and var of log|z| of a normal number.
LOG_NORMAL = -(np.euler_gamma + np.log(2)) / 2, np.pi**2 / 8


@pytest.fixture(scope="module")
def table() -> dict[str, np.ndarray]:
    """Columns in large and small units, a category, and one column that is nothing."""
    rng = np.random.default_rng(5)
    hour, metres = 12 + 4 * rng.normal(size=ROWS), 9_000 + 3_000 * rng.normal(size=ROWS)
    carrier = rng.choice(["AA", "DL", "UA"], ROWS)
    delay = 20 + 1.5 * (hour - 12) + 4 * (carrier == "UA") + 6 * rng.normal(size=ROWS)
    late = (rng.random(ROWS) < 1 / (1 + np.exp(-0.3 * (hour - 12)))).astype(int)
    return {"hour": hour, "metres": metres, "carrier": carrier, "delay": delay, "late": late}


@pytest.fixture(scope="module")
def fitted(table: dict[str, np.ndarray]) -> tb.Result:
    return tb.fit(FORMULA, table, "linear", priors=TOLD, tolerance=0.3, seed=1)


def by_hand(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Means, sds and parts kept from `tb.estimate` of columns that are standardised here, with their errors."""
    columns = [table["hour"], table["metres"]]
    means, sds = np.array([[each.mean(), each.std()] for each in columns]).T
    flags = [table["carrier"] == each for each in ("DL", "UA")]
    x = np.column_stack([*((np.array(columns).T - means) / sds).T, *flags]).astype(float)
    shift, unit = table["delay"].mean(), table["delay"].std()
    priors = {
        "coefficients": PRIOR,
        "intercept": P.normal((30 - shift) / unit, 20 / unit),
        "noise_scale": P.exponential(0.2 * unit),
    }
    model = tb.families.linear(intercept_scale=1.0, priors=priors)
    found = tb.estimate(model, {"x": x, "y": (table["delay"] - shift) / unit}, tolerance=0.3, seed=2)
    assert found.converged
    scale = unit / np.array([*sds, 1.0, 1.0])
    weights = np.array([*(-means / sds), 0.0, 0.0, 1.0])
    middle = shift + unit * weights @ found["mean"].flat_value[:5]
    # Of weighed draws, where a posterior is looked at again.
    spread = unit * (weights @ np.linalg.inv(found.anchor.precision)[:5, :5] @ weights) ** 0.5
    slopes, spreads = (found[name].value["coefficients"] * scale for name in ("mean", "sd"))
    noise = [unit * found[name].value["noise_scale"] for name in ("mean", "sd")]
    return {
        "mean": np.array([middle, *slopes, noise[0]]),
        "sd": np.array([spread, *spreads, noise[1]]),
        "kept": found["kept"].value,
    }


def scores(found: tb.Result, other: dict[str, np.ndarray]) -> np.ndarray:
    """Both sides have about the errors of the first."""
    return np.concatenate(
        [np.abs(found[name].flat_value - each) / (2**0.5 * found[name].flat_error) for name, each in other.items()]
    )


def test_a_formula_is_the_family_on_standardised_columns(table: dict[str, np.ndarray], fitted: tb.Result) -> None:
    """Against the same by hand, in the units of the table; the control has normal priors."""
    assert fitted.converged
    assert list(fitted["mean"].value) == [
        "Intercept",
        "hour",
        "metres",
        "carrier[T.DL]",
        "carrier[T.UA]",
        "noise_scale",
    ]
    assert list(fitted["kept"].value) == ["hour", "metres", "carrier[T.DL]", "carrier[T.UA]"]
    assert scores(fitted, by_hand(table)).max() < LIMIT
    normal = tb.fit(
        FORMULA, table, "linear", priors=TOLD | {"coefficients": P.normal(standardised=True)}, tolerance=0.1
    )
    assert scores(fitted, {name: normal[name].flat_value for name in ("mean", "sd")}).max() > LIMIT


def test_such_a_result_answers_as_others_do(table: dict[str, np.ndarray], fitted: tb.Result, tmp_path: Path) -> None:
    text = " ".join(fitted.summary().split())
    assert "coefficients ~ horseshoe(0.1) together, on standardised columns of numbers, and on levels" in text
    assert "in standard deviations of the response" in text
    assert {each.name for each in fitted.coefficients()} >= {"hour", "carrier[T.UA]"}
    assert fitted["kept"].value["hour"] > 0.9 > fitted["kept"].value["metres"]
    few = {name: each[:4] for name, each in table.items()}
    expected = 20 + 1.5 * (few["hour"] - 12) + 4 * (few["carrier"] == "UA")
    assert np.abs(fitted.predict(few).mean - expected).max() < 2
    assert 2 < fitted.compare("carrier", "UA", "AA").mean.value < 6
    assert fitted.draws(50).flat.shape == (50, 6)
    page = fitted.report(tmp_path / "page.html").read_text()
    assert "horseshoe(0.1)" in page
    fitted.save(tmp_path / "result")
    again = tb.load(tmp_path / "result")
    assert again["kept"].value == fitted["kept"].value
    assert np.array_equal(again.predict(few).mean, fitted.predict(few).mean)
    finer = fitted.extend(tolerance=0.29)
    assert finer.converged
    assert any(note.startswith("prior: coefficients ~ horseshoe(0.1)") for note in finer.notes)
    with pytest.raises(tb.InputError, match=r"shrinkage prior \(horseshoe"):
        fitted.sensitivity()


def test_a_table_on_disk_gives_the_same(table: dict[str, np.ndarray], fitted: tb.Result, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(table), tmp_path / "table.parquet")
    stored = tb.ingest(tmp_path / "table.parquet", tmp_path / "stored")
    found = tb.fit(FORMULA, stored, "linear", priors=TOLD, tolerance=0.3, seed=3)
    other = {name: fitted[name].flat_value for name in ("mean", "sd", "kept")}
    assert scores(found, other).max() < LIMIT


ALONE: list[tuple[str, str, dict[str, Any], str]] = [
    ("late ~ hour + metres", "logistic", {"coefficients": PRIOR, "hour": P.normal()}, "one of 'hour'"),
    ("late ~ hour + carrier", "logistic", {"coefficients": PRIOR, "carrier": P.normal()}, "one of 'carrier'"),
    ("late ~ hour + (1 | carrier)", "logistic", {"coefficients": PRIOR}, "without groups under horseshoe"),
    ("late ~ hour + s(metres)", "logistic", {"coefficients": PRIOR}, "without smooths under horseshoe"),
    ("late ~ hour", "logistic", {"hour": PRIOR}, "for all coefficients together; got one for 'hour'"),
    ("late ~ hour", "logistic", {"Intercept": PRIOR}, "a prior of one number for 'Intercept'; got horseshoe"),
    ("late ~ 1", "logistic", {"coefficients": PRIOR}, "priors can be stated of Intercept"),
    ("carrier ~ hour", "multinomial", {"coefficients": PRIOR}, "a family of one linear predictor under horseshoe"),
    ("late ~ hour", "logistic", {"coefficients": "horseshoe(0)"}, "scale > 0"),
]


@pytest.mark.parametrize(("formula", "family", "priors", "message"), ALONE)
def test_what_such_a_prior_is_not_for_is_refused(
    table: dict[str, np.ndarray], formula: str, family: str, priors: dict[str, Any], message: str
) -> None:
    with pytest.raises(tb.InputError) as caught:
        tb.fit(formula, table, family, priors=priors, tolerance=0.1)
    assert message in str(caught.value)


def test_models_that_were_changed_are_refused() -> None:
    """Whose report or log prior the chains would not see."""
    model = tb.families.linear(noise_scale=1.0, priors={"coefficients": PRIOR})
    rows = {"x": np.random.default_rng(0).normal(size=(20, 2)), "y": np.arange(20.0)}
    with pytest.raises(ModelError, match="report of its own"):
        tb.estimate(replace(model, report=lambda theta, units: 2 * theta), rows, tolerance=0.1)
    with pytest.raises(ModelError, match="the log prior of the family"):
        tb.estimate(replace(model, log_prior=lambda theta: -theta @ theta), rows, tolerance=0.1)


def test_a_first_centre_is_found_of_separated_rows_whatever_else_is_stated() -> None:
    """Of rows that a column tells apart a climb ends under a prior alone."""
    x = np.r_[-np.arange(1, 31), np.arange(1, 31)] / 10
    rows = {"x": np.column_stack([x, np.cos(7 * x)]), "y": (x > 0).astype(float)}
    model = tb.families.logistic(intercept_scale=1.0, priors={"coefficients": PRIOR, "intercept": P.normal(0, 1)})
    centre, covariance, _ = _first_centre(plain_regression(model, rows, np.inf), 2)
    assert 0 < centre[0] < 100
    assert np.all(np.isfinite(covariance))


@pytest.fixture(scope="module")
def file(table: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shrunk") / "flights.csv"
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


@pytest.mark.slow
def test_a_command_and_an_estimator_state_one(
    table: dict[str, np.ndarray], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run keeps it; and both have the same answer, the estimator with no columns beside its own."""
    asked = ["--formula", "late ~ hour + metres", "--prior", "coefficients=horseshoe(0.1)", "--tolerance", "0.3"]
    run = str(file.parent / "run")
    assert main(["fit", str(file), *asked, "--out", run]) == 0
    result, settings = read_run(Path(run))
    assert settings["prior"] == {"coefficients": "horseshoe(0.1)"}
    assert list(result["kept"].value) == ["hour", "metres"]
    columns = np.column_stack([table["hour"], table["metres"]])
    model = tb.TallClassifier(priors={"coefficients": "horseshoe(0.1)"}, tolerance=0.3).fit(columns, table["late"])
    other = {"mean": np.append(model.intercept_, model.coef_), "sd": np.append(model.intercept_sd_, model.coef_sd_)}
    assert scores(result, other | {"kept": model.result_["kept"].value}).max() < LIMIT
    assert "horseshoe(0.1) together, on standardised columns" in model.result_.notes[0]
    assert np.mean(model.predict(columns) == table["late"]) > 0.6
    with pytest.raises(tb.InputError, match="no priors of single columns beside"):
        tb.TallClassifier(priors={"coefficients": PRIOR, "x0": P.normal()}).fit(columns, table["late"])
    capsys.readouterr()
    assert main(["resume", run, "--tolerance", "0.29", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "horseshoe(0.1) together" in json.dumps(shown["notes"])
    assert main(["predict", run, str(file)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == ROWS + 1
    assert main(["fit", str(file), *asked, "--method", "randomised"]) == 2
    assert "no method beside a shrinkage prior" in capsys.readouterr().err
    assert main(["prior", str(file), *asked[:4], "--draws", "50"]) == 0
    assert "horseshoe(0.1) together" in " ".join(capsys.readouterr().out.split())


BEFORE: dict[str, tuple[Any, float, float]] = {
    "horseshoe": (P.horseshoe(0.1), np.log(0.1), np.pi**2 / 2),
    # With scales beyond all bounds the slab alone is left: Student's t.
    "slab": (
        P.regularised_horseshoe(0.7, 5.0, scale=1e12),
        0.5 * (np.log(5 * 0.7**2 / 2) - digamma(2.5)),
        polygamma(1, 2.5) / 4,
    ),
    "R2D2": (
        P.r2d2(0.3, 8.0, 0.5),
        0.5 * (digamma(2.4) - digamma(5.6) + digamma(0.5) - digamma(1.5)),
        0.25 * (polygamma(1, 2.4) + polygamma(1, 5.6) + polygamma(1, 0.5) - polygamma(1, 1.5)),
    ),
}


@pytest.mark.parametrize("name", BEFORE)
def test_draws_before_a_fit_have_the_prior(table: dict[str, np.ndarray], name: str) -> None:
    """Means and variances of log|beta| in closed form, per standard deviation of a column; the control is half of the
    scale. Three columns and two moments, to 5.3 standard errors: a false alarm in a million."""
    prior, mean, variance = BEFORE[name]
    count = 20_000
    found = prior_predictive(
        "late ~ hour + metres + I(hour * metres)", table, priors={"coefficients": prior}, draws=count, rows=5, seed=3
    )
    mean, variance = mean + LOG_NORMAL[0], variance + LOG_NORMAL[1]
    columns = {"hour": table["hour"], "metres": table["metres"]}
    for column, raw in columns.items():
        logs = np.log(np.abs(found[column] * raw.std()))
        kurtosis = np.mean((logs - logs.mean()) ** 4) / logs.var() ** 2
        assert abs(logs.mean() - mean) < 5.3 * (variance / count) ** 0.5
        assert abs(logs.var() / variance - 1) < 5.3 * ((kurtosis - 1) / count) ** 0.5
        assert abs(logs.mean() - np.log(2) - mean) > 5.3 * (variance / count) ** 0.5


def test_r2d2_before_a_fit_is_in_units_of_the_noise_of_each_draw(table: dict[str, np.ndarray]) -> None:
    found = prior_predictive(
        "delay ~ hour + metres",
        table,
        "linear",
        priors={"coefficients": P.r2d2(), "sigma": P.gamma(0.2, 1.0)},
        draws=4_000,
        rows=5,
    )
    slopes, noise = np.log(np.abs(found["hour"])), np.log(found["noise_scale"])
    slope = np.cov(slopes, noise)[0, 1] / noise.var()
    assert abs(slope - 1) < 5 * slopes.std() / (noise.std() * 4_000**0.5)
    assert slope > 10 * slopes.std() / (noise.std() * 4_000**0.5)
