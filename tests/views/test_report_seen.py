"""What a reader of a report sees first: base rates, observed against predicted, average effects and effect curves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from page_reader import Reader, cells_of, faults
from reports import encoding_of, made

import tallbayes as tb
from tallbayes.estimator.estimates import Status
from tallbayes.results.checks.check import Check
from tallbayes.results.curves import NUMBERS, ColumnCurve
from tallbayes.views.report import render_report
from tallbayes.views.report.effects import effects_of
from tallbayes.views.report.seen.averages import averages_of
from tallbayes.views.report.seen.curves import ShownCurve, curve_finding, curves_of, effect_curves
from tallbayes.views.report.seen.rates import base_rates


def headings(page: str) -> list[str]:
    return [text for _, text in Reader(page).all("h2")]


# Made up


def a_curve(**changes: object) -> ColumnCurve:
    """f(x) = -(x - 3)^2 / 4, with intervals of +- 0.2."""
    x = np.linspace(0.0, 4.0, 9)
    mean, error = -((x - 3.0) ** 2) / 4, np.full(9, 0.001)
    numbers = dict(zip(NUMBERS, (mean, error, error * 100, error, mean - 0.2, error, mean + 0.2, error), strict=True))
    return ColumnCurve("hour", x, **{**numbers, "probability": 0.95, "terms": ("hour", "I(hour ** 2)"), **changes})


def test_a_curve_says_where_it_is_highest_and_lowest() -> None:
    plain = curve_finding(ShownCurve(a_curve()))
    minus = "\N{MINUS SIGN}"
    assert plain == (
        f"The effect of hour is highest at 3, where it is 0.00 ({minus}0.20 to 0.20) and lowest at 0, where it is "
        f"{minus}2.25 ({minus}2.45 to {minus}2.05)."
    )
    ratio = curve_finding(ShownCurve(a_curve(), a_curve(), 3.0, "odds ratio"))
    assert "The odds ratio, against hour = 3, is highest at 3, where it is 1.00 (0.82 to 1.22)" in ratio
    # exp(-2.25) = 0.1054, exp(-2.45) = 0.0863, exp(-2.05) = 0.1287
    assert "lowest at 0, where it is 0.105 (0.086 to 0.129)" in ratio


def test_a_curve_is_drawn_with_its_band_and_its_numbers() -> None:
    page = str(effect_curves([ShownCurve(a_curve(), a_curve(), 3.0, "odds ratio")]))
    reader = Reader(f"<body>{page}</body>")
    # Two panels, each for a desk and for a phone.
    assert len(reader.all("path", class_="ribbon")) == len(reader.all("path", class_="ribbon-line")) == 4
    assert "odds ratio against hour = 3" in reader.text()
    assert [attributes for attributes, _ in reader.all("details")] == [{}]
    assert effect_curves([]) is None


def test_coefficients_that_a_curve_tells_of_are_not_drawn_one_by_one() -> None:
    columns = ["hour", "I(hour ** 2)", "carrier[T.EV]"]
    result = made(
        ["Intercept", *columns], family="logistic", encoding=encoding_of(columns, {"carrier": ["AA", "EV"]}, [0, 1])
    )
    before, after = effects_of(result), effects_of(result, ("hour", "I(hour ** 2)"))
    assert [each.term.label for each in before.without_ratio] == ["hour", "I(hour ** 2)"]
    assert after.without_ratio == ()
    assert [each.term.name for each in after.plotted] == ["carrier[T.EV]"]
    assert len(after.all) == 4
    assert effects_of(result, columns).plotted == ()


def test_a_check_of_observed_against_predicted_comes_first() -> None:
    at = np.linspace(0.1, 0.9, 10)
    rng = np.random.default_rng(0)
    replicated = at + 0.02 * rng.standard_normal((100, 10))
    observed = at + np.where(np.arange(10) == 3, 0.5, 0.0)
    check = Check("calibration", "Calibration", tuple(map(str, range(10))), observed, replicated, at=at)
    page = render_report(made(["a"], family="logistic"), checks=[check])
    assert faults(page) == []
    assert headings(page) == ["Observed against predicted", "The answer", "How sure", "What it cost"]
    assert "9 of 10 parts of the rows have the response" in Reader(page).text()


def test_the_numerical_half_is_folded_below_a_sentence() -> None:
    page = render_report(made(["a", "b"]))
    reader = Reader(page)
    assert "Every posterior mean is computed to 0.011 posterior sds or better, which is nothing" in reader.text()
    (folded,) = [text for _, text in reader.all("details") if text.startswith("Where the errors come from")]
    assert "Error budget" in folded
    assert all("open" not in attributes for attributes, _ in reader.all("details"))
    assert "is computed to" not in folded
    coarse = made(["a", "b"])
    wide = replace(coarse["mean"], flat_standard_error=np.array([0.05, np.nan]))
    text = Reader(render_report(replace(coarse, estimates=coarse.estimates | {"mean": wide}))).text()
    assert "computed to 0.50 posterior sds or better, beside the uncertainty of 1" in text
    assert "; of 1 mean it is not known." in text
    doubted = Reader(render_report(made(["a"], status=Status.no_contraction))).text()
    assert "is computed to" not in doubted
    assert "The errors that are stated may be too small" in doubted


# A real fit


@pytest.fixture(scope="module")
def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    hour, kind = rng.uniform(0, 4, 500), rng.choice(["a", "b", "c", "d"], 500)
    chance = 1 / (1 + np.exp((hour - 2.5) ** 2 - 0.5 * (kind == "b")))
    return {"late": np.where(rng.random(500) < chance, "yes", "no"), "hour": hour, "kind": kind}


@pytest.fixture(scope="module")
def fitted(table: dict[str, np.ndarray]) -> tb.Result:
    return tb.fit("late ~ hour + I(hour ** 2) + kind", table, tolerance=0.2, seed=1)


@pytest.fixture(scope="module")
def page(fitted: tb.Result) -> str:
    return render_report(fitted)


def test_base_rates_are_shares_of_the_rows(fitted: tb.Result, table: dict[str, np.ndarray]) -> None:
    found = base_rates(fitted)
    assert found is not None
    late = table["late"] == "yes"
    np.testing.assert_allclose(found.mean, late.mean())
    (by,) = found.by
    assert (by.factor, by.levels) == ("kind", ("a", "b", "c", "d"))
    for level, count, mean in zip(by.levels, by.counts, by.means, strict=True):
        own = late[table["kind"] == level]
        assert count == len(own)
        np.testing.assert_allclose(mean, own.mean())


def test_the_page_of_a_fit_with_its_rows_shows_them_first(fitted: tb.Result, page: str) -> None:
    assert faults(page) == []
    assert headings(page) == ["Observed against predicted", "The answer", "How sure", "What it cost"]
    text = Reader(page).text()
    assert "have late = yes." in text
    assert "By kind: from " in text
    assert "Average effects" in text
    assert "Effect curves" in text
    assert "slope of hour" in cells_of(page)
    # The forest is of the levels alone, and what would be said of squares is a curve.
    assert "No odds ratio is given" not in text
    assert "3 odds ratios" in Reader(page).all("p", class_="lead")[0][1]
    assert render_report(fitted) == page


def test_a_curve_is_what_the_result_says_of_the_column(fitted: tb.Result, table: dict[str, np.ndarray]) -> None:
    (shown,) = curves_of(fitted)
    x = shown.curve.x
    np.testing.assert_allclose(x[[0, -1]], np.quantile(table["hour"], [0.01, 0.99]))
    at = {each.name: each.mean.value for each in fitted.coefficients()}
    line = at["hour"] * x + at["I(hour ** 2)"] * x**2
    np.testing.assert_allclose(np.diff(shown.curve.mean), np.diff(line), atol=1e-4)
    assert shown.against is not None
    assert abs(shown.reference - table["hour"].mean()) < 0.05
    own = at["hour"] * shown.reference + at["I(hour ** 2)"] * shown.reference**2
    np.testing.assert_allclose(shown.against.mean, line - own, atol=1e-4)


def test_a_stored_fit_is_reported_without_its_rows(fitted: tb.Result, tmp_path: Path) -> None:
    fitted.save(tmp_path / "result.tallbayes")
    loaded = tb.load(tmp_path / "result.tallbayes")
    page = render_report(loaded)
    assert faults(page) == []
    assert headings(page) == ["The answer", "How sure", "What it cost"]
    assert "Effect curves" in Reader(page).text()
    assert base_rates(loaded) is None
    assert averages_of(loaded, ()) == []
