"""Standardising: every column of a design centred and divided by its standard deviation, in one array, block by block.

    z_ij = (x_ij - mean_j) / sd_j,     without an intercept only  x_ij / sd_j

Blocks are stored at once as deviations from the first block's mean, in units of the first block's spread, and are put
right in place when all rows are known. The sums of products about that mean are in float64, and lose at most a factor
(rows / rows of the first block) of its digits: the first block's own part of the variance is at least that share of
the squared distance between the two means. From the same sums come columns that never change or that are combinations
of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.adapters.coding import INTERCEPT, Coding
from tallbayes.errors import DataError, explain
from tallbayes.table import needs_float64

# A column is a combination of others where they leave less than this part of its variance.
COLLINEAR = 1e-10
# Rows side by side make inner loops long: five times as fast at 20 columns.
FOLD = 64
# Products of so few rows stay on one thread; several, waiting for busy cores, took a hundred times as long.
PRODUCT_ROWS = 512


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
    if width + coding.intercept >= count:
        hint = "more rows, or fewer terms and categories"
        got = f"{width + coding.intercept} columns, {count} rows"
        raise DataError(explain("fewer columns than rows", got, hint))
    if width == 0:
        return Standardised(np.empty((count, 0), np.float32), np.empty(0), np.empty(0))
    centred = scaled and coding.intercept
    x = np.empty((count, width), np.float32 if centred else np.float64)
    sums, products = np.zeros(width), np.zeros((width, width))
    origin = unit = np.zeros(width)
    for start, block in coding.blocks(table):
        if start == 0:
            origin, unit = _first_look(coding, block)
        if not centred:
            x[start : start + len(block)] = block
        deviation = _affine(block, 1 / unit, -origin / unit)
        if centred:
            x[start : start + len(block)] = deviation
        part = _over_rows(deviation)
        if not np.all(np.isfinite(part)):
            raise _not_finite(coding, deviation, start)
        sums += part
        products += _products(deviation)
    mean = sums / count
    covariance = products / count - np.outer(mean, mean)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    _require_rank(coding, mean + origin / unit, covariance)
    if centred:
        _affine(x, 1 / spread, -mean / spread)
        return Standardised(x, origin + unit * mean, unit * spread)
    scales = unit * spread if scaled else np.ones(width)
    if scaled:
        x /= scales
    return Standardised(x if needs_float64(x) else x.astype(np.float32), np.zeros(width), scales)


def apply(coding: Coding, table: Any, means: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The columns of new rows, with the means and scales of old ones."""
    x = np.empty((table.num_rows, len(coding.names)), np.float32 if np.any(means) else np.float64)
    if not coding.names:
        return x
    for start, block in coding.blocks(table):
        if not np.all(np.isfinite(_over_rows(block))):
            raise _not_finite(coding, block, start)
        x[start : start + len(block)] = (block - means) / scales
    return x if needs_float64(x) else x.astype(np.float32, copy=False)


def _first_look(coding: Coding, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An origin and a unit for every column; of one that never changes, exactly its value and 1."""
    with np.errstate(all="ignore"):
        mean, spread = block.mean(axis=0), block.std(axis=0)
    if not np.all(np.isfinite(spread)):
        raise _not_finite(coding, block, 0)
    constant = np.all(block == block[0], axis=0)
    return np.where(constant, block[0], mean), np.where(constant | (spread == 0), 1.0, spread)


def _affine(x: np.ndarray, factor: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """x * factor + shift, in place of x, whose rows must be contiguous."""
    folded = len(x) // FOLD * FOLD
    for part, times in ((x[:folded].reshape(-1, FOLD * x.shape[1]), FOLD), (x[folded:], 1)):
        part *= np.tile(factor, times).astype(x.dtype)
        part += np.tile(shift, times).astype(x.dtype)
    return x


def _over_rows(block: np.ndarray) -> np.ndarray:
    folded = len(block) // FOLD * FOLD
    head = block[:folded].reshape(-1, FOLD * block.shape[1]).sum(axis=0).reshape(FOLD, -1).sum(axis=0)
    return np.asarray(head + block[folded:].sum(axis=0))


def _products(block: np.ndarray) -> np.ndarray:
    """block^T block."""
    folded = len(block) // PRODUCT_ROWS * PRODUCT_ROWS
    parts, rest = block[:folded].reshape(-1, PRODUCT_ROWS, block.shape[1]), block[folded:]
    return np.asarray(np.matmul(parts.transpose(0, 2, 1), parts).sum(axis=0) + rest.T @ rest)


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
