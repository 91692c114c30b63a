"""Readings: how what is reported is made of u, as plain numbers, so that a stored posterior needs no model.

    reported = offset + A theta,   theta = c(u) part by part (see `constraints`),   A sparse, or the identity

but for the scales and correlations of group effects in the units of a table, which are curved (`ScaleCurve`).

A reported number is a line where it is g(direction . u), with g the identity or a monotone function: then its law
under a Gaussian is known, and its quantiles are g of those of direction . u.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from tallbayes.model.constraints import correlation, half_normal
from tallbayes.moments import Floats
from tallbayes.structure import Structure

# Effects by level, which hang on their scales too (`model.groups.terms`).
STRETCHED = "stretched"
ELEMENTWISE = ("real", "positive", "interval", "half_normal", "correlation")


@dataclass(frozen=True)
class Part:
    """A stretch of u: the name of its constraint, that one's numbers, and the shape of the stretch."""

    kind: str
    numbers: tuple[float, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def theta_size(self) -> int:
        """How many numbers of theta it makes."""
        return prod((*self.shape[:-1], self.shape[-1] + 1)) if self.kind == "simplex" else self.size


@dataclass(frozen=True, eq=False)
class Entries:
    """A sparse matrix: values at (row, column)."""

    row: np.ndarray
    column: np.ndarray
    value: Floats


@dataclass(frozen=True, eq=False)
class ScaleCurve:
    """Scales and correlations of correlated group effects, reported from a `row` on, as those of (B L)(B L)^T.

    L is made of the scales and the partial correlations that stand in theta from these columns on; see `model.mixed`.
    """

    row: int
    scales: int
    correlations: int
    matrix: Floats

    @property
    def size(self) -> int:
        """Effects a group."""
        return len(self.matrix)

    @property
    def rows(self) -> range:
        return range(self.row, self.row + self.size * (self.size + 1) // 2)


class ReportedLine(NamedTuple):
    """A reported number offset + factor c(x) of x = direction . u; without a `curve` c is the identity."""

    direction: Floats
    offset: float
    factor: float = 1.0
    curve: Part | None = None

    @property
    def is_straight(self) -> bool:
        return self.curve is None

    @property
    def increasing(self) -> bool:
        return self.factor > 0

    def at(self, x: Floats) -> Floats:
        return self.offset + self.factor * self._curved(x)[0]

    def slope(self, x: Floats) -> Floats:
        """Of the reported number in x."""
        return self.factor * self._curved(x)[1]

    def where(self, value: Floats) -> Floats:
        """x at which the reported number has a value; infinite beyond its range."""
        inside = (np.asarray(value, np.float64) - self.offset) / self.factor
        if self.curve is None:
            return inside
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.curve.kind == "positive":
                return np.log(np.maximum(inside, 0.0))
            if self.curve.kind == "half_normal":
                return np.asarray(half_normal(*self.curve.numbers).unconstrain(np.maximum(inside, 0.0)))
            if self.curve.kind == "correlation":
                return np.asarray(correlation.unconstrain(np.clip(inside, -1.0, 1.0)))
            lower, upper = self.curve.numbers
            return np.log(np.maximum(inside - lower, 0.0)) - np.log(np.maximum(upper - inside, 0.0))

    def _curved(self, x: Floats) -> tuple[Floats, Floats]:
        if self.curve is None:
            return x, np.ones_like(x)
        if self.curve.kind == "positive":
            return np.exp(x), np.exp(x)
        if self.curve.kind == "half_normal":
            return half_normal(*self.curve.numbers).curve(x)
        if self.curve.kind == "correlation":
            return _correlation(x)
        lower, upper = self.curve.numbers
        share, rest = 0.5 * (1 + np.tanh(0.5 * x)), 0.5 * (1 - np.tanh(0.5 * x))
        return lower + (upper - lower) * share, (upper - lower) * share * rest


def _correlation(x: Floats) -> tuple[Floats, Floats]:
    """c(x) and c'(x), as `constraints.correlation` has them."""
    from scipy.special import erf, erfc

    sine, far = erf(x / 2**0.5), erfc(np.abs(x) / 2**0.5)
    value = 2 * np.sin(np.arctan2(sine, np.sqrt(far * (1 + np.abs(sine)))) / 3)
    rest = np.maximum(1 - value**2, np.finfo(float).tiny)
    return value, 4 / 3 * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) / rest


@dataclass(frozen=True, eq=False)
class Reading:
    """The parts of u, and the map from theta to what is reported; without `entries` it is theta itself."""

    structure: Structure
    parts: tuple[Part, ...]
    entries: Entries | None = None
    offset: Floats | None = None
    curves: tuple[ScaleCurve, ...] = ()

    @property
    def dimension(self) -> int:
        return sum(part.size for part in self.parts)

    def line(self, component: int) -> ReportedLine | None:
        """A reported number as a line; None where it is none."""
        if any(component in curve.rows for curve in self.curves):
            return None
        if self.entries is None:
            columns, values, offset = np.array([component]), np.ones(1), 0.0
        else:
            mine = self.entries.row == component
            columns, values = self.entries.column[mine], self.entries.value[mine]
            offset = 0.0 if self.offset is None else float(self.offset[component])
        places = [self._place(int(column)) for column in columns]
        if any(part.kind not in ELEMENTWISE for part, _ in places):
            return None
        direction = np.zeros(self.dimension)
        if all(part.kind == "real" for part, _ in places):
            direction[[place for _, place in places]] = values
            return ReportedLine(direction, offset)
        if len(places) > 1:
            return None
        ((part, place),) = places
        direction[place] = 1.0
        return ReportedLine(direction, offset, float(values[0]), part)

    def _place(self, column: int) -> tuple[Part, int]:
        """The part that a number of theta is of, and where it stands in u if it stands there alone."""
        first, start = 0, 0
        for part in self.parts:
            if column < first + part.theta_size:
                return part, start + column - first
            first, start = first + part.theta_size, start + part.size
        raise IndexError(column)

    @property
    def excess_width(self) -> float | None:
        """Of the coordinates of an overdispersion, if there is one."""
        found = (part.numbers[0] for part in self.parts if part.kind == "half_normal" and part.shape == ())
        return next(found, None)

    def combination(self, weights: Floats) -> ReportedLine | None:
        """The line of a weighted sum of reported numbers; None where one of them is not straight."""
        direction, offset = np.zeros(self.dimension), 0.0
        for place in np.flatnonzero(weights):
            line = self.line(int(place))
            if line is None or not line.is_straight:
                return None
            direction += weights[place] * line.direction
            offset += weights[place] * line.offset
        return ReportedLine(direction, offset)
