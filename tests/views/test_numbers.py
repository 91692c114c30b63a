"""One rounding: a number looks the same wherever it is shown, and what is not known is said in words."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from reports import made

from tallbayes.results.coefficients import Number
from tallbayes.results.comparisons import Comparison
from tallbayes.results.result import Result
from tallbayes.views.notebook.tables import html
from tallbayes.views.numbers import alone, figures
from tallbayes.views.report import render_report

CASES = {
    (12345.6, 120.0): "12350 ± 120",
    (-0.123456, 0.0012): "-0.1235 ± 0.0012",
    (1e-7, 2e-11): "1.00000e-7 ± 2.0e-11",
    (3.2e12, 5e9): "3.2000e12 ± 5.0e9",
    (0.5, 0.0996): "0.50 ± 0.10",
    (2.0, 0.0): "2 ± 0",
    (1.5, np.inf): "~1.5 ± unknown",
    (np.nan, 1.0): "unknown",
}


def shown_everywhere(result: Result) -> dict[str, str]:
    """Every view as text, its gaps single spaces, with a plain minus."""
    number = Number(result["mean"].flat_value[0], result["mean"].flat_error[0])
    texts = {
        "text": str(result),
        "summary": result.summary(),
        "notebook": html(result),
        "report": render_report(result),
        "comparison": str(Comparison("a", "b", *[number] * 6)),
    }
    plain = {
        name: unescape(re.sub("<[^>]*>", " ", text)).replace("\N{MINUS SIGN}", "-") for name, text in texts.items()
    }
    return {name: " ".join(text.split()) for name, text in plain.items()}


@pytest.mark.parametrize("pair", CASES, ids=str)
@np.errstate(all="ignore")
def test_a_number_looks_the_same_in_every_view(pair: tuple[float, float]) -> None:
    value, error = pair
    result = made(["only"], kept=False)
    parts = {"flat_value": value, "flat_standard_error": error, "flat_bias_bound": 0.0, "flat_tolerance": np.inf}
    mean = replace(result["mean"], **{name: np.array([part]) for name, part in parts.items()})
    # Of the sd the same, so that no other number can be taken for it.
    both = {"mean": mean, "sd": replace(mean, name="sd")}
    views = shown_everywhere(replace(result, estimates=both))
    text, beside = figures(value, error)
    for name in ("notebook", "report", "comparison"):
        assert CASES[pair] in views[name]
    # With columns of their own for errors.
    assert f"only {text} {beside or 'unknown'}" in views["summary"]
    assert f"mean.only {text} {beside or '1.0'}" in views["text"]
    for name, view in views.items():
        assert not re.search(r"\b(nan|inf)\b", view), name


def test_a_number_without_its_error_shows_no_digit_that_is_not_known() -> None:
    rng = np.random.default_rng(1)
    for value, power in zip(rng.normal(size=2000), rng.uniform(-6, 0, 2000), strict=True):
        error = 10**power
        shown = alone(value, error)
        decimals = len(shown.partition(".")[2])
        # The error moves the last digit by three at most, and would move one more by over three.
        assert error <= 3.05 * 10.0**-decimals
        assert error > 2.95 * 10.0 ** -(decimals + 1)
        assert abs(float(shown) - value) <= 0.51 * 10.0**-decimals


@pytest.mark.parametrize("error", [np.nan, np.inf])
def test_a_number_of_unknown_error_is_rough(error: float) -> None:
    assert figures(12345.6, error) == ("~12000", "unknown")
    assert alone(12345.6, error) == "~12000"
    assert figures(12345.6, 120.0, rough=True) == ("~12350", "120")
    assert figures(np.nan, error, rough=True) == ("unknown", "")


def test_every_rounding_shows_the_value_within_its_error() -> None:
    rng = np.random.default_rng(0)
    for power, known in zip(rng.uniform(-30, 30, 2000), rng.uniform(-1, 12, 2000), strict=True):
        value = float(rng.choice([-1, 1]) * 10**power)
        error = abs(value) * 10**-known
        shown, beside = figures(value, error)
        # Half a unit of the error's second digit is a twentieth of an error at most; of twelve decimals the last.
        assert abs(float(shown) - value) <= max(0.051 * error, 0.51e-12)
        assert abs(float(beside) / error - 1) <= 0.051
        assert figures(-value, error)[0] == (shown[1:] if value < 0 else f"-{shown}") or not float(shown)
