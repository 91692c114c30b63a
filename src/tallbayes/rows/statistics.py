"""Statistics of columns whose rows come in blocks, and whether float32 holds them.

    ColumnStatistics   least, largest, mean m and sum of squares s about it, merged by Chan's formulas:
                       m = m_a + (m_b - m_a) n_b / n,   s = s_a + s_b + (m_b - m_a)^2 n_a n_b / n
    Covariance         mean and covariance, from sums of deviations and of their products

The former are about the first row, so that an entry that never changes has a spread of exactly zero. The latter are
about the first block's mean, in units of its spread, and lose at most a factor (rows / rows of the first block) of the
digits of float64: the first block's own part of a variance is at least that share of the squared distance between the
two means.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallbayes.programs.later import jax
from tallbayes.rows.table import by_blocks

# Rows side by side make inner loops long: five times as fast at 20 columns.
FOLD = 64
# Products of so few rows, and of so few numbers, stay on one thread; several, waiting for busy cores, took a hundred
# times as long.
PRODUCT_ROWS = 512
PRODUCT_SIZE = 2**18
FEWEST_ROWS = 64


def _nothing() -> np.ndarray:
    return np.zeros(0)


def _plainly(operation: np.ufunc, block: np.ndarray) -> np.ndarray:
    return operation.reduce(block, axis=0)


@dataclass
class ColumnStatistics:
    """Of every entry of a row: over the `count` rows so far."""

    count: int = 0
    least: np.ndarray = field(default_factory=_nothing)
    largest: np.ndarray = field(default_factory=_nothing)
    origin: np.ndarray = field(default_factory=_nothing)
    mean: np.ndarray = field(default_factory=_nothing)
    squares: np.ndarray = field(default_factory=_nothing)

    @staticmethod
    def of(
        block: np.ndarray, origin: np.ndarray, reduce: Callable[[np.ufunc, np.ndarray], np.ndarray] = _plainly
    ) -> ColumnStatistics:
        """Of a block (rows, entries) of finite numbers, as deviations from an origin."""
        least, largest = (reduce(each, block).astype(np.float64) for each in (np.minimum, np.maximum))
        # A thread has its own error state.
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = block - origin
            mean = reduce(np.add, deviation) / len(block)
            deviation -= mean
            squares = reduce(np.add, np.square(deviation, out=deviation))
        return ColumnStatistics(len(block), least, largest, origin, mean, squares)

    def add(self, block: np.ndarray) -> None:
        """A block (rows, entries) of finite numbers."""
        if len(block):
            self.merge(ColumnStatistics.of(block, self.origin if self.count else block[0].astype(np.float64)))

    def merge(self, other: ColumnStatistics) -> None:
        """Take in those of further rows, about the same origin."""
        if not self.count:
            vars(self).update(vars(other))
            return
        with np.errstate(over="ignore", invalid="ignore"):
            share, apart = other.count / (self.count + other.count), other.mean - self.mean
            self.least, self.largest = np.minimum(self.least, other.least), np.maximum(self.largest, other.largest)
            self.squares = self.squares + other.squares + apart**2 * self.count * share
            self.mean = self.mean + apart * share
        self.count += other.count

    @property
    def centre(self) -> np.ndarray:
        """The mean, not as a deviation."""
        return self.origin + self.mean

    @property
    def size(self) -> np.ndarray:
        return np.maximum(np.abs(self.least), np.abs(self.largest))

    def needs_float64(self) -> bool:
        """Whether float32 would blur an entry by more than 1e-4 of its own spread, or not hold sums of its squares."""
        with np.errstate(over="ignore", invalid="ignore"):
            size, spread = self.size, np.sqrt(self.squares / max(self.count, 1))
            blur = (spread > 0) & (size * 2.0**-24 > 1e-4 * spread)
            return bool(np.any(blur | ((size > 0) & ((size < 1e-12) | (size > 1e12)))))

    def to_json(self) -> dict[str, Any]:
        return {name: value if name == "count" else value.tolist() for name, value in vars(self).items()}

    @staticmethod
    def from_json(found: dict[str, Any]) -> ColumnStatistics:
        entries = ("least", "largest", "origin", "mean", "squares")
        return ColumnStatistics(found["count"], *(np.array(found[name]) for name in entries))


def needs_float64(arrays: Any) -> bool:
    """Whether that is so of a column of arrays of float64 in memory; blocks that fit into the cache go to threads."""

    def blurred(array: np.ndarray) -> bool:
        def of_rows(start: int, stop: int) -> ColumnStatistics:
            return ColumnStatistics.of(array[start:stop].reshape(stop - start, -1), array[0].reshape(-1), over_rows)

        total = ColumnStatistics()
        for part in by_blocks(of_rows, array):
            total.merge(part)
        return total.needs_float64()

    return any(blurred(array) for array in jax.tree.leaves(arrays) if array.dtype == np.float64)


def blurred(more: ColumnStatistics, before: np.ndarray) -> bool:
    """Whether float32 would blur an entry of more rows by more than 1e-4 of its spread, in them or in rows before
    (rows, entries), whichever is the larger; or not hold sums of its squares."""
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        old = np.nan_to_num(np.nanstd(np.asarray(before, np.float64), axis=0))
        spread = np.maximum(old, np.sqrt(more.squares / max(more.count, 1)))
        blur = (spread > 0) & (more.size * 2.0**-24 > 1e-4 * spread)
        return bool(np.any(blur | (more.size > 1e12)))


def over_rows(operation: np.ufunc, block: np.ndarray) -> np.ndarray:
    """operation.reduce(block, axis=0) of a block (rows, entries), many rows side by side."""
    folded = len(block) // FOLD * FOLD
    if not folded:
        return operation.reduce(block, axis=0)
    side_by_side = operation.reduce(block[:folded].reshape(folded // FOLD, -1), axis=0)
    head = operation.reduce(side_by_side.reshape(FOLD, -1), axis=0)
    return head if folded == len(block) else operation(head, operation.reduce(block[folded:], axis=0))


def affine(x: np.ndarray, factor: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """x * factor + shift, in place of x, whose rows must be contiguous."""
    if not x.size:
        return x
    folded = len(x) // FOLD * FOLD
    for part, times in ((x[:folded].reshape(-1, FOLD * x.shape[1]), FOLD), (x[folded:], 1)):
        part *= np.tile(factor, times).astype(x.dtype)
        part += np.tile(shift, times).astype(x.dtype)
    return x


class Covariance:
    """Sums over blocks of deviations and of their products, from the first block's mean in units of its spread."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self.sums, self.products = np.zeros(width), np.zeros((width, width))
        self.origin = self.unit = np.zeros(width)

    def add(self, block: np.ndarray) -> np.ndarray:
        """The deviations, in place of the block; a FloatingPointError where they are not finite."""
        if self.count == 0:
            self.origin, self.unit = _first_look(block)
        deviation = affine(block, 1 / self.unit, -self.origin / self.unit)
        self.sums += _require_finite(over_rows(np.add, deviation))
        self.products += _products(deviation)
        self.count += len(block)
        return deviation

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the deviations."""
        mean = self.sums / self.count
        return mean, self.products / self.count - np.outer(mean, mean)


def _first_look(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An origin and a unit for every column; of one that never changes, exactly its value and 1."""
    with np.errstate(all="ignore"):
        mean, spread = block.mean(axis=0), _require_finite(block.std(axis=0))
    constant = np.all(block == block[0], axis=0)
    return np.where(constant, block[0], mean), np.where(constant | (spread == 0), 1.0, spread)


def _require_finite(numbers: np.ndarray) -> np.ndarray:
    if not np.all(np.isfinite(numbers)):
        raise FloatingPointError("a number that is not finite, or too large to square")
    return numbers


def _products(block: np.ndarray) -> np.ndarray:
    """block^T block."""
    if not block.shape[1]:
        return np.zeros((0, 0))
    rows = min(PRODUCT_SIZE // block.shape[1] ** 2, PRODUCT_ROWS)
    # Of a wide block one thread could take too few rows at a time to be any faster.
    rows = rows if rows >= FEWEST_ROWS else PRODUCT_ROWS
    folded = len(block) // rows * rows
    parts, rest = block[:folded].reshape(-1, rows, block.shape[1]), block[folded:]
    return np.asarray(np.matmul(parts.transpose(0, 2, 1), parts).sum(axis=0) + rest.T @ rest)
