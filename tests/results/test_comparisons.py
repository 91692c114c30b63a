"""Comparisons and coefficients: ratios, contrasts and the probability that one is larger, each with its error.

A logistic fit of two groups has a posterior that quadrature knows; five errors, a false alarm in 10^5 or so.
"""

from __future__ import annotations

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.results.coefficients import Number, coefficients, interval_ends


@pytest.fixture(scope="module")
def result() -> tb.Result:
    rng = np.random.default_rng(0)
    carrier = np.repeat(["AA", "DL", "UA"], [200, 150, 12])
    late = np.concatenate([rng.random(200) < 0.3, rng.random(150) < 0.4, np.arange(12) < 6])
    table = {"late": late, "carrier": carrier, "hour": rng.integers(0, 24, 362)}
    return tb.fit("late ~ carrier + hour", table, tolerance=0.05)


def test_a_contrast_is_the_difference_of_its_coefficients(result: tb.Result) -> None:
    found = result.compare("carrier", "UA", "DL")
    mean = result["mean"].value
    assert found.mean.value == pytest.approx(mean["carrier[T.UA]"] - mean["carrier[T.DL]"], abs=5 * found.mean.error)
    assert found.lower.value < found.median.value < found.upper.value
    assert found.kind == "odds ratio"
    assert found.ratio.median.value == pytest.approx(np.exp(found.median.value))
    event = result.posterior.probability(lambda t: t["carrier[T.UA]"] > t["carrier[T.DL]"])
    assert found.probability.value == pytest.approx(
        event.value, abs=5 * np.hypot(found.probability.error, event.flat_error[0])
    )
    square = result.posterior.expectation(lambda t: (t["carrier[T.UA]"] - t["carrier[T.DL]"] - found.mean.value) ** 2)
    assert found.sd.value == pytest.approx(np.sqrt(square.value), abs=5 * found.sd.error + 0.02 * found.sd.value)


def test_the_three_ways_to_compare_agree(result: tb.Result) -> None:
    by_column = result.compare("carrier", "UA", "DL")
    by_name = result.compare("carrier[T.UA]", "carrier[T.DL]")
    by_row = result.compare({"carrier": "UA", "hour": 7}, {"carrier": "DL", "hour": 7})
    for other in (by_name, by_row):
        for field in ("mean", "sd", "median", "lower", "upper", "probability"):
            assert getattr(other, field) == pytest.approx(getattr(by_column, field), rel=1e-4, abs=1e-6)
    against_reference = result.compare("carrier", "UA", "AA")
    single = {each.name: each for each in result.coefficients()}["carrier[T.UA]"]
    assert against_reference.upper.value == pytest.approx(single.upper.value, rel=1e-9)


def test_swapped_comparisons_are_complements(result: tb.Result) -> None:
    one, other = result.compare("carrier", "UA", "DL"), result.compare("carrier", "DL", "UA")
    assert one.probability.value + other.probability.value == pytest.approx(1.0, abs=1e-9)
    assert one.lower.value == pytest.approx(-other.upper.value, rel=1e-6)


def test_ratios_leave_the_intercept_out(result: tb.Result) -> None:
    found = {each.name: each for each in result.ratios()}
    assert set(found) == {"carrier[T.DL]", "carrier[T.UA]", "hour"}
    both = {each.name: each for each in result.coefficients()}
    for name, ratio in found.items():
        assert ratio.lower.value == pytest.approx(np.exp(both[name].lower.value))
        assert ratio.lower.error == pytest.approx(ratio.lower.value * both[name].lower.error)


def test_coefficients_have_laplace_beside_them(result: tb.Result) -> None:
    rare = {each.name: each for each in coefficients(result)}["carrier[T.UA]"]
    line = result.posterior.reading.line(2)
    assert rare.laplace_mean == pytest.approx(float(line.at(line.direction @ result.anchor.laplace.mode)))
    assert rare.shift == pytest.approx((rare.mean.value - rare.laplace_mean) / rare.sd.value)
    wider = {each.name: each for each in coefficients(result, 0.99)}["carrier[T.UA]"]
    assert wider.lower.value < rare.lower.value < rare.upper.value < wider.upper.value


def test_the_summary_shows_interval_ends_and_their_price(result: tb.Result) -> None:
    section = next(part for part in str(result).split("\n\n") if part.startswith("interval"))
    assert section.splitlines()[0].split() == ["interval", "2.5%", "error", "97.5%", "error"]
    assert len(section.splitlines()) == 1 + 4 + 1
    ends = interval_ends(result)
    assert "errors at most" in section
    assert ends.price(0.01) == pytest.approx(4 * ends.price(0.02))
    assert interval_ends(result, 2).lower.flat_value.shape == (2,)


def test_interval_ends_can_have_a_tolerance_of_their_own(result: tb.Result) -> None:
    """Until their errors are within it; the run before stays as it was."""
    before = interval_ends(result)
    sd = result["sd"].flat_value
    worst = np.max(before.upper.flat_error / sd)
    finer = result.extend(interval_tolerance=worst / 2)
    after = interval_ends(finer)
    assert finer.converged
    assert finer.cost.evaluations > result.cost.evaluations
    assert np.all(after.upper.flat_error <= 1.1 * worst / 2 * sd)
    assert np.all(after.lower.flat_error <= 1.1 * worst / 2 * sd)
    assert finer.settings["interval_tolerance"] == worst / 2
    assert interval_ends(result).upper.flat_error.tolist() == before.upper.flat_error.tolist()


@pytest.mark.parametrize(
    ("things", "message"),
    [
        (("carrier", "UA", "XX"), "a category of 'carrier'"),
        (("hour", "UA", "DL"), "a column of categories"),
        (("carrier", "UA", "UA"), "two things that differ"),
        (("carrier[T.UA]", "nobody"), "the name of a parameter"),
        (("carrier",), "two things"),
    ],
)
def test_what_cannot_be_compared(result: tb.Result, things, message: str) -> None:
    with pytest.raises(tb.InputError, match=message):
        result.compare(*things)


@pytest.mark.slow
def test_a_family_without_ratios_says_so() -> None:
    rows = {"x": np.random.default_rng(0).normal(size=(50, 1)), "y": np.arange(50.0)}
    result = tb.estimate(tb.families.linear(10.0), rows, tolerance=0.5)
    with pytest.raises(tb.InputError, match="logs of ratios"):
        result.ratios()
    found = result.coefficients()
    assert isinstance(found[0].mean, Number)


@pytest.mark.parametrize("tolerance", [0, -1, float("nan"), "much"])
def test_an_interval_tolerance_is_a_positive_number(result: tb.Result, tolerance) -> None:
    with pytest.raises(tb.InputError, match="interval_tolerance > 0"):
        result.extend(interval_tolerance=tolerance)
