"""Plots show what the result says: intervals, errors of their ends, Laplace's approximation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from named_results import as_fitted, awkward_run, named, reshaped

import tallbayes as tb
from tallbayes.structure import Structure
from tallbayes.views import plots
from tallbayes.views.report.effects import effects_of


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return awkward_run()


@pytest.fixture(scope="module")
def fitted(result: tb.Result) -> tb.Result:
    return as_fitted(result)


@pytest.fixture
def pyplot() -> Iterator[Any]:
    """Without a display, and without a figure left open, before or after."""
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")
    yield pyplot
    pyplot.close("all")


def labels_of(ax: Any) -> list[str]:
    ax.figure.canvas.draw()
    return [label.get_text() for label in ax.get_yticklabels()]


def test_a_plot_shows_ratios_of_slopes_where_the_family_has_them(fitted: tb.Result, pyplot: Any) -> None:
    ax = plots.plot(fitted)
    assert labels_of(ax) == ["hour", "a<b", "cost$ in $"]
    assert ax.get_xscale() == "log"
    assert ax.get_xlabel() == "odds ratio"
    intervals = ax.collections[0].get_segments()
    expected = [(np.exp(each.lower.value), np.exp(each.upper.value)) for each in fitted.coefficients()[1:]]
    np.testing.assert_allclose([segment[:, 0] for segment in intervals], expected)
    assert pyplot.get_fignums() == [ax.figure.number]
    assert pyplot.gcf() is ax.figure


def test_a_plot_of_coefficients_shows_errors_and_laplace(fitted: tb.Result, pyplot: Any) -> None:
    """The first two of three, in the caller's own axes."""
    figure, mine = pyplot.subplots()
    ax = plots.plot(fitted, ax=mine, ratios=False, most=2)
    assert ax is mine
    assert pyplot.get_fignums() == [figure.number]
    assert ax.get_xlabel() == "coefficient (the first 2 of 3)"
    whiskers, laplace = (ax.collections[place].get_segments() for place in (1, 2))
    _, hour, other, _ = fitted.coefficients()
    ends = [(n.value - n.error, n.value + n.error) for each in (hour, other) for n in (each.lower, each.upper)]
    np.testing.assert_allclose([segment[:, 0] for segment in whiskers], ends)
    np.testing.assert_allclose(laplace[0][:, 0].mean(), hour.laplace_mean)
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words == ["95% interval", "error of its ends", "Laplace's approximation"]


def test_a_plot_without_the_posterior_is_of_means_and_sds(fitted: tb.Result, pyplot: Any) -> None:
    ax = plots.plot(replace(fitted, posterior=None), ratios=False)
    segments = ax.collections[0].get_segments()
    mean, sd = (fitted[name].flat_value[1] for name in ("mean", "sd"))
    np.testing.assert_allclose(segments[0][:, 0], [mean - 1.96 * sd, mean + 1.96 * sd], atol=1e-4 * sd)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["mean ± 1.96 sd", "error of its ends"]


def test_a_plot_and_a_report_state_the_same_error_of_an_end(fitted: tb.Result, pyplot: Any) -> None:
    """Without the posterior: that of the mean and 1.96 times that of the sd, since both come of the same paths."""
    bare = replace(fitted, posterior=None, encoding=None)
    whiskers = plots.plot(bare, ratios=False).collections[1].get_segments()
    effects = [each for each in effects_of(bare).all if not each.term.is_intercept]
    stated = [(end.value - end.error, end.value + end.error) for each in effects for end in (each.lower, each.upper)]
    np.testing.assert_allclose([segment[:, 0] for segment in whiskers], stated)
    error = fitted["mean"].flat_error[1] + 1.959964 * fitted["sd"].flat_error[1]
    assert effects[0].upper.error == pytest.approx(error, rel=1e-6)


def test_a_plot_of_an_intercept_alone_shows_it(result: tb.Result, pyplot: Any) -> None:
    alone = reshaped(result, named(intercept=Structure.leaf((4,))))
    assert labels_of(plots.plot(alone)) == [f"intercept[{place}]" for place in range(4)]


def test_a_plot_bears_numbers_that_are_not_known(result: tb.Result, pyplot: Any) -> None:
    broken = replace(result["mean"], flat_value=np.array([1.0, np.nan, 1e4, 0.0]), flat_bias_bound=np.full(4, np.inf))
    ax = plots.plot(replace(result, posterior=None, estimates={"mean": broken}))
    assert len(labels_of(ax)) == 4


def test_what_cannot_be_plotted_is_refused(result: tb.Result, pyplot: Any) -> None:
    with pytest.raises(tb.InputError, match="logs of ratios"):
        plots.plot(replace(result, regression=None), ratios=True)
    with pytest.raises(tb.InputError, match="most at least 1"):
        plots.plot(result, most=0)
    with pytest.raises(tb.InputError, match="means and sds"):
        plots.plot(replace(result, posterior=None, estimates={"odds": result["odds"]}))
    assert pyplot.get_fignums() == []
