"""Standardising: every column of a design centred and divided by its standard deviation, in one array, block by block.

    z_ij = (x_ij - mean_j) / sd_j,     without an intercept only  x_ij / sd_j

Blocks are stored at once as deviations from the first block's mean, in units of the first block's spread, and are put
right in place when all rows are known. From the sums of their products come columns that never change or that are
combinations of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.formula.coding import INTERCEPT, Coding
from tallbayes.rows.statistics import Covariance, affine, needs_float64, over_rows

# A column is a combination of others where they leave less than this part of its variance.
COLLINEAR = 1e-10


@dataclass(frozen=True, eq=False)
class Standardised:
    """Columns, and the mean and scale of each: x = (raw - mean) / scale."""

    x: np.ndarray
    means: np.ndarray
    scales: np.ndarray


def standardise(coding: Coding, table: Any, scaled: bool = True) -> Standardised:
    """The columns of all rows, centred if there is an intercept and scaled, or raw with means 0 and scales 1.

    float32, unless columns are not centred and float32 would blur one of them. Raises DataError for a value that is
    not finite, a column that never changes, one that is a combination of others, and more columns than rows.
    """
    count, width = table.num_rows, len(coding.names)
    require_rows(coding, count)
    if width == 0:
        return Standardised(np.empty((count, 0), np.float32), np.empty(0), np.empty(0))
    centred = scaled and coding.intercept
    x = np.empty((count, width), np.float32 if centred else np.float64)
    moments = Standardiser(coding)
    for start, block in coding.blocks(table):
        if not centred:
            x[start : start + len(block)] = block
        deviation = moments.add(block)
        if centred:
            x[start : start + len(block)] = deviation
    mean, spread = moments.settle()
    means, scales = moments.units(mean, spread, scaled)
    if centred:
        affine(x, 1 / spread, -mean / spread)
        return Standardised(x, means, scales)
    if scaled:
        x /= scales
    return Standardised(x if needs_float64(x) else x.astype(np.float32), means, scales)


def require_rows(coding: Coding, count: int) -> None:
    """Refuse as many columns as rows."""
    width = len(coding.names) + coding.intercept
    if width >= count:
        hint = "more rows, or fewer terms and categories"
        raise DataError(explain("fewer columns than rows", f"{width} columns, {count} rows", hint))


class Standardiser:
    """Means and spreads of the columns of a coding, whose blocks are added one after the other."""

    def __init__(self, coding: Coding) -> None:
        self.coding, self.sums = coding, Covariance(len(coding.names))

    def add(self, block: np.ndarray) -> np.ndarray:
        """The deviations from an origin, in place of the block."""
        try:
            return self.sums.add(block)
        except FloatingPointError:
            raise _not_finite(self.coding, block, self.sums.count) from None

    def settle(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and spread of the deviations, once columns are known to vary and to be of their own."""
        mean, covariance = self.sums.moments()
        _require_rank(self.coding, mean + self.sums.origin / self.sums.unit, covariance)
        return mean, np.sqrt(np.maximum(np.diag(covariance), 0.0))

    def units(self, mean: np.ndarray, spread: np.ndarray, scaled: bool) -> tuple[np.ndarray, np.ndarray]:
        """Means and scales of the columns themselves: 0 where they are not centred, 1 where they are not scaled."""
        centred = scaled and self.coding.intercept
        means = self.sums.origin + self.sums.unit * mean if centred else np.zeros_like(mean)
        return means, self.sums.unit * spread if scaled else np.ones_like(spread)


def standardised_blocks(
    coding: Coding, table: Any, means: np.ndarray, scales: np.ndarray, finite: bool = True
) -> Iterator[tuple[int, np.ndarray]]:
    """The first row and the columns of each block of rows, with means and scales that are known.

    What is not finite is refused, unless that is left to the caller.
    """
    for start, block in coding.blocks(table):
        if finite and not np.all(np.isfinite(over_rows(np.add, block))):
            raise _not_finite(coding, block, start)
        yield start, (block - means) / scales


def apply(coding: Coding, table: Any, means: np.ndarray, scales: np.ndarray, finite: bool = True) -> np.ndarray:
    """The columns of new rows, with the means and scales of old ones; what is not `finite` is NaN, or refused."""
    x = np.empty((table.num_rows, len(coding.names)), np.float32 if np.any(means) else np.float64)
    if not coding.names:
        return x
    for start, block in standardised_blocks(coding, table, means, scales, finite):
        x[start : start + len(block)] = block
    lost = None if finite or np.all(np.isfinite(over_rows(np.add, x))) else ~np.isfinite(x)
    if lost is not None:
        x[lost] = 0.0
    x = x if needs_float64(x) else x.astype(np.float32, copy=False)
    if lost is not None:
        x[lost] = np.nan
    return x


def _not_finite(coding: Coding, block: np.ndarray, start: int) -> DataError:
    wrong, got = ~np.isfinite(block), "one that is not"
    if not wrong.any():
        wrong, got = np.abs(block) == np.abs(block).max(), "one too large to square"
    row, column = np.argwhere(wrong)[0]
    hint = "leave out such rows, or take another function of the column"
    return DataError(explain(f"finite numbers in {coding.names[column]!r}", f"{got} at row {start + row}", hint))


def _require_rank(coding: Coding, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Eliminate column after column of the correlations; what is left of a combination of earlier ones is nothing.

    Without an intercept, combinations are sought among the columns as they are, not about their means.
    """
    variance = np.diag(covariance)
    if np.any(variance <= 0):
        name = coding.names[int(np.argmax(variance <= 0))]
        raise DataError(explain(f"a column {name!r} that varies", "the same value in all rows", "leave it out"))
    moments = covariance if coding.intercept else covariance + np.outer(mean, mean)
    size = np.sqrt(np.diag(moments))
    correlation = moments / np.outer(size, size)
    left = correlation.copy()
    for column in range(len(left)):
        pivot = left[column, column]
        if pivot < COLLINEAR:
            raise _combination(coding, correlation, column)
        left[column:, column:] -= np.outer(left[column:, column], left[column, column:]) / pivot
        left[column, column] = pivot


def _combination(coding: Coding, correlation: np.ndarray, column: int) -> DataError:
    weights = np.linalg.solve(correlation[:column, :column], correlation[:column, column])
    others = [coding.names[place] for place in np.flatnonzero(np.abs(weights) > 1e-4)]
    named = ", ".join(map(repr, others[:5])) + (", ..." if len(others) > 5 else "")
    got = f"a combination of {named}" + (f" and the {INTERCEPT.lower()}" if coding.intercept else "")
    name = coding.names[column]
    return DataError(explain(f"a column {name!r} of its own", got, f"leave out {name!r} or one of the others"))
