"""Statistics of a response: sums over rows (or its extremes), and what is made of them, for many draws at once.

T(y) = f(mean_i a(y_i, row_i))        a per row, f of the means

zeros        mean 1[y = 0]                      dispersion   variance / mean
mean, sd, skewness                              min, max     extremes
shares       mean 1[y = k], k a class           calibration  mean of y by tenths of what is expected
groups       mean of y - what is expected, by group
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.moments import Floats

BINS = 10
MOST_GROUPS = 20_000
DEFAULTS = {
    "binary": ("mean", "calibration"),
    "count": ("mean", "zeros", "dispersion", "max"),
    "real": ("mean", "sd", "skewness", "min", "max"),
    "class": ("shares",),
    "ordered": ("shares",),
    **dict.fromkeys(("positive", "share", "survival"), ("mean", "sd", "skewness", "min", "max")),
}


class RowFacts(NamedTuple):
    """What a statistic may read beside the response: the expectation of every row, and its place among bins or groups.

    `centre` is about which powers are taken, so that they do not cancel.
    """

    expected: Floats
    centre: float
    bins: np.ndarray | None = None
    groups: np.ndarray | None = None
    columns: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Statistic:
    """`features` (draws, rows) -> sums over rows (draws, m), joined over batches by `join`; `value` of these and the
    number of rows is (draws, k), with `labels` for its numbers."""

    name: str
    title: str
    features: Callable[[Floats, RowFacts], Floats]
    value: Callable[[Floats, int, float], Floats]
    join: Callable[[Floats, Floats], Floats] = np.add
    labels: tuple[str, ...] = ("",)
    at: tuple[float, ...] = field(default=(), compare=False)


def _stack(*parts: Floats) -> Floats:
    return np.stack(parts, axis=-1)


def _powers(count: int) -> Callable[[Floats, RowFacts], Floats]:
    def features(y: Floats, rows: RowFacts) -> Floats:
        apart = y - rows.centre
        return _stack(*[np.sum(apart**k, axis=1) for k in range(1, count + 1)])

    return features


def _mean(sums: Floats, count: int, centre: float) -> Floats:
    return centre + sums[:, :1] / count


def _moments(sums: Floats, count: int) -> tuple[Floats, Floats]:
    mean = sums[:, 0] / count
    return mean, np.maximum(sums[:, 1] / count - mean**2, 0.0)


def _sd(sums: Floats, count: int, centre: float) -> Floats:
    return np.sqrt(_moments(sums, count)[1])[:, None]


def _dispersion(sums: Floats, count: int, centre: float) -> Floats:
    mean, variance = _moments(sums, count)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(variance / (centre + mean))[:, None]


def _skewness(sums: Floats, count: int, centre: float) -> Floats:
    mean, variance = _moments(sums, count)
    third = sums[:, 2] / count - 3 * mean * sums[:, 1] / count + 2 * mean**3
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(third / variance**1.5)[:, None]


def _share(sums: Floats, count: int, centre: float) -> Floats:
    return sums / count


def _as_is(sums: Floats, count: int, centre: float) -> Floats:
    return sums


PLAIN = {
    each.name: each
    for each in (
        Statistic("zeros", "Share of zeros", lambda y, rows: _stack(np.sum(y == 0, axis=1).astype(float)), _share),
        Statistic("mean", "Mean", _powers(1), _mean),
        Statistic("sd", "Standard deviation", _powers(2), _sd),
        Statistic("dispersion", "Variance over mean", _powers(2), _dispersion),
        Statistic("skewness", "Skewness", _powers(3), _skewness),
        Statistic("min", "Smallest", lambda y, rows: _stack(y.min(axis=1)), _as_is, np.minimum),
        Statistic("max", "Largest", lambda y, rows: _stack(y.max(axis=1)), _as_is, np.maximum),
    )
}


def shares(classes: tuple[str, ...]) -> Statistic:
    """Of every class."""

    def features(y: Floats, rows: RowFacts) -> Floats:
        return _stack(*[np.sum(y == k, axis=1).astype(float) for k in range(len(classes))])

    return Statistic("shares", "Shares of classes", features, _share, labels=classes)


def _by(y: Floats, places: np.ndarray, count: int) -> Floats:
    """Sums by place, (draws, count)."""
    out = np.zeros((len(y), count))
    order = np.argsort(places, kind="stable")
    found, first = np.unique(places[order], return_index=True)
    out[:, found] = np.add.reduceat(y[:, order], first, axis=1)
    return out


def calibration(edges: Floats) -> Statistic:
    """The mean of y between edges of what is expected."""
    count = len(edges) + 1

    def features(y: Floats, rows: RowFacts) -> Floats:
        places = np.searchsorted(edges, rows.expected)
        ones = np.broadcast_to(np.bincount(places, minlength=count), (len(y), count))
        expected = np.broadcast_to(np.bincount(places, rows.expected, count), (len(y), count))
        return np.concatenate([_by(y, places, count), ones, expected], axis=1)

    def value(sums: Floats, _: int, centre: float) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums[:, :count] / sums[:, count : 2 * count]

    # Of chances, or of numbers that have no largest.
    last = [1.0] if not len(edges) or edges[-1] <= 1 else []
    labels = tuple(f"{low:.2g} to {high:.2g}" for low, high in pairwise([0.0, *edges, *last]))
    labels = labels if last else (*labels, f"above {edges[-1]:.2g}")
    return Statistic("calibration", "Calibration: the mean by what is expected", features, value, labels=labels)


def by_group(names: tuple[str, ...], by: str) -> Statistic:
    """The mean of y less what is expected, of every group."""
    count = len(names)
    if count > MOST_GROUPS:
        got, hint = f"{count:,} by {by}", "a statistic of your own over fewer of them"
        raise InputError(explain(f"at most {MOST_GROUPS:,} groups for residuals by group", got, hint))

    def features(y: Floats, rows: RowFacts) -> Floats:
        assert rows.groups is not None
        ones = np.broadcast_to(np.bincount(rows.groups, minlength=count), (len(y), count))
        return np.concatenate([_by(y - rows.expected, rows.groups, count), ones], axis=1)

    def value(sums: Floats, _: int, centre: float) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums[:, :count] / sums[:, count:]

    return Statistic("groups", f"Residuals by {by}", features, value, labels=names)


def of_rows(function: Callable[[Floats, Any], Any], name: str) -> Statistic:
    """The mean over rows of a function of (y, rows) that returns a number a row."""

    def features(y: Floats, rows: RowFacts) -> Floats:
        columns = {**rows.columns, "mean": rows.expected}
        return _stack(np.array([np.sum(np.asarray(function(each, columns), np.float64)) for each in y]))

    return Statistic(name, f"Mean of {name}", features, _share)
