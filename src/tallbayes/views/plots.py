"""Plots: intervals of all coefficients beside one another, with the errors of their ends.

plot(result)    a bar from end to end of every 95% interval; at each end a whisker, end +- its Monte Carlo error;
                below it, faint, what Laplace's approximation says
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import InputError, explain, require_extra
from tallbayes.progress import shorten
from tallbayes.results.coefficients import (
    NORMAL_END,
    Coefficient,
    Number,
    are_ratios,
    coefficients,
    is_slope,
    own_parameters,
    ratio_name,
)
from tallbayes.results.export import readable
from tallbayes.results.result import Result
from tallbayes.views.numbers import neat

# Colours that stand out on white and on black alike; all others are those of the figure's own style.
INTERVAL = "#2f8fd3"
LAPLACE = "#8f969e"
LONGEST_NAME = 44


class Bar(NamedTuple):
    """One row, in the units of the coefficient."""

    name: str
    middle: float
    lower: Number
    upper: Number
    laplace: tuple[float, float]


def plot(result: Result, ax: Any = None, ratios: bool | None = None, most: int = 40) -> Any:
    """Draw the 95% intervals of the first `most` coefficients; returns matplotlib's Axes.

    With `ratios` they are odds or rate ratios, on a logarithmic axis, of all coefficients that are ratios by themselves
    (no piece of a polynomial or of an interaction is); None means wherever there are any. Of a regression only slopes
    are shown, unless there are none. Without `ax` there is a new figure, pyplot's current one,
    which a notebook shows once.
    """
    if most < 1:
        raise InputError(explain("most at least 1", repr(most), "most=40"))
    kind, known = ratio_name(result), coefficients(readable(result), first=own_parameters(result))
    are = are_ratios([each.name for each in known], result)
    if ratios and not any(are):
        got = "another family" if kind is None else "none whose column can change by itself"
        raise InputError(explain("coefficients that are logs of ratios", got, "ratios=False"))
    as_ratios = any(are) if ratios is None else ratios
    kept = readable(result).posterior is not None
    found = _bars(result, [each for each, is_one in zip(known, are, strict=True) if is_one or not as_ratios], as_ratios)
    bars = found[:most]
    ax = _new_axes(len(bars)) if ax is None else ax
    if as_ratios:
        ax.set_xscale("log")
    _draw(ax, bars, np.exp if as_ratios else np.asarray, kept)
    _label(ax, bars, len(found) - len(bars), _quantity(result, kind if as_ratios else None))
    return ax


def _bars(result: Result, known: Sequence[Coefficient], ratios: bool) -> list[Bar]:
    if not known:
        hint = 'quantities=("mean", "sd"), which is the default'
        raise InputError(explain("a result with means and sds of its parameters", "neither", hint))
    slopes = [each for each in known if result.regression is None or is_slope(each.name)]
    kept = readable(result).posterior is not None
    return [_bar(each, ratios, kept) for each in slopes or known]


def _bar(one: Coefficient, ratios: bool, kept: bool) -> Bar:
    """Of the quantiles, or of mean and sd where the run kept no more."""
    spread = NORMAL_END * one.laplace_sd
    laplace = one.laplace_mean - spread, one.laplace_mean + spread
    middle = one.median.value if ratios and np.isfinite(one.median.value) else one.mean.value
    lower, upper = (one.lower, one.upper) if kept else one.normal_ends
    return Bar(one.name, middle if np.isfinite(middle) else one.median.value, lower, upper, laplace)


def _new_axes(rows: int) -> Any:
    pyplot = require_extra("matplotlib.pyplot", "plot", "plots")
    _, ax = pyplot.subplots(figsize=(7.0, 1.1 + 0.27 * max(rows, 3)), layout="constrained")
    return ax


@np.errstate(over="ignore", invalid="ignore")
def _draw(ax: Any, bars: list[Bar], shown: Callable[[Any], Any], kept: bool) -> None:
    places = np.arange(len(bars))
    ends = np.array([(bar.lower, bar.upper) for bar in bars], np.float64)
    value, error = ends[..., 0], np.where(np.isfinite(ends[..., 1]), ends[..., 1], np.nan)
    words = "95% interval" if kept else "mean ± 1.96 sd"
    ax.hlines(places, *shown(value).T, color=INTERVAL, linewidth=3.0, alpha=0.75, label=words)
    rows, low, high = np.repeat(places, 2), shown(value - error).ravel(), shown(value + error).ravel()
    ax.hlines(rows, low, high, color=INTERVAL, linewidth=1.0, label="error of its ends")
    for edge in (low, high):
        ax.plot(edge, rows, linestyle="", marker="|", color=INTERVAL, markersize=7, markeredgewidth=1.0)
    ax.plot(shown(np.array([bar.middle for bar in bars])), places, "o", color=INTERVAL, markersize=4.5)
    laplace = np.array([bar.laplace for bar in bars])
    if np.isfinite(laplace).any():
        ax.hlines(places + 0.24, *shown(laplace).T, color=LAPLACE, linewidth=1.2, label="Laplace's approximation")


def _label(ax: Any, bars: list[Bar], hidden: int, quantity: str) -> None:
    names = [shorten(bar.name, LONGEST_NAME) for bar in bars]
    ax.set_yticks(np.arange(len(bars)), names, parse_math=False)
    ax.set_ylim(len(bars) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.grid(axis="x", linewidth=0.5, alpha=0.35)
    ax.set_axisbelow(True)
    more = f" (the first {len(bars)} of {len(bars) + hidden})" if hidden else ""
    ax.set_xlabel(quantity + more)
    if ax.get_xscale() == "log":
        _set_plain_ticks(ax.xaxis, *ax.get_xlim())
    neutral = 1.0 if ax.get_xscale() == "log" else 0.0
    if ax.get_xlim()[0] < neutral < ax.get_xlim()[1]:
        ax.axvline(neutral, color=ax.xaxis.label.get_color(), linewidth=0.9, alpha=0.6, zorder=0)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, fontsize="small", borderaxespad=0.2)


def _quantity(result: Result, kind: str | None) -> str:
    if kind is not None:
        return kind
    return "parameter" if result.regression is None else "coefficient"


def _set_plain_ticks(axis: Any, low: float, high: float) -> None:
    """At 0.5, 1, 2, 5, and evenly where the range is short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]) if high < 10 * low else LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: neat(value, 6)))
    axis.set_minor_locator(NullLocator())
