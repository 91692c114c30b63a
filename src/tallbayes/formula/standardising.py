"""Standardising: every column of numbers centred and divided by its standard deviation, in one array, block by block.

    z_ij = (x_ij - mean_j) / sd_j,     without an intercept only  x_ij / sd_j

A column of zeros and ones, as a flag or a level of a category has, stays as it is: its coefficient is the difference
that the level makes, whatever the number of its rows. A column that a category has a part in, such as its product with
a number, is divided by the root of its mean square over the rows where it is not 0. With rule "all" these columns are
standardised like all others; with "nothing" none is.

Blocks are stored at once as deviations from the first block's mean, in units of the first block's spread, and are put
right in place when all rows are known. From the sums of their products come columns that never change or that are
combinations of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.coding import Block, Coding
from tallbayes.formula.collinearity import LevelSums, require_rank
from tallbayes.rows.statistics import Covariance, affine, needs_float64, over_rows

RULES = ("numbers", "all", "nothing")


def read_rule(given: bool | str) -> str:
    """What `standardise` asks for: True is "numbers", False is "nothing"."""
    rule = {True: "numbers", False: "nothing"}.get(given, given) if isinstance(given, bool | np.bool_) else given
    if rule not in RULES:
        hint = "True for columns of numbers, 'all' for the levels of categories too, False for none"
        raise InputError(explain("standardise True, False or 'all'", repr(given), hint))
    return str(rule)


@dataclass(frozen=True, eq=False)
class Standardised:
    """Columns and codes of all rows, and the mean and scale of every column: x = (raw - mean) / scale."""

    x: np.ndarray
    codes: np.ndarray
    means: np.ndarray
    scales: np.ndarray


def standardise(coding: Coding, table: Any, rule: str = "numbers") -> Standardised:
    """The columns of all rows, centred if there is an intercept and scaled, or raw with means 0 and scales 1.

    float32, unless columns are not centred and float32 would blur one of them. Raises DataError for a value that is
    not finite, a column that never changes, one that is a combination of others, and more columns than rows.
    """
    count, dense = table.num_rows, list(coding.dense)
    require_rows(coding, count)
    codes = np.empty((count, len(coding.indexed)), np.int32)
    if not coding.names:
        return Standardised(np.empty((count, 0), np.float32), codes, np.empty(0), np.empty(0))
    centred = is_centred(coding, rule)
    x = np.empty((count, len(dense)), np.float32 if centred else np.float64)
    moments = Standardiser(coding)
    for start, block in coding.blocks(table):
        rows = slice(start, start + len(block.x))
        codes[rows] = block.codes
        if not centred:
            x[rows] = block.x
        deviation = moments.add(block)
        if centred:
            x[rows] = deviation
    means, scales = moments.units(rule)
    own = means[dense], scales[dense]
    if centred:
        affine(x, moments.sums.unit / own[1], (moments.sums.origin - own[0]) / own[1])
        flags = moments.flags & (own[0] == 0)
        x[:, flags] = np.rint(x[:, flags])
        return Standardised(x, codes, means, scales)
    if rule != "nothing":
        affine(x, 1 / own[1], -own[0] / own[1])
    return Standardised(x if needs_float64(x) else x.astype(np.float32), codes, means, scales)


def is_centred(coding: Coding, rule: str) -> bool:
    """Whether every column is centred, or of zeros and ones: then float32 blurs none of them."""
    return rule != "nothing" and coding.intercept and not (rule == "numbers" and coding.mixes)


def require_rows(coding: Coding, count: int) -> None:
    """Refuse as many columns as rows."""
    width = len(coding.names) + coding.intercept
    if width >= count:
        hint = "more rows, or fewer terms and categories"
        raise DataError(explain("fewer columns than rows", f"{width} columns, {count} rows", hint))


class Standardiser:
    """Means and spreads of the columns of a coding, whose blocks are added one after the other."""

    def __init__(self, coding: Coding) -> None:
        width = len(coding.dense)
        self.coding, self.sums, self.levels = coding, Covariance(width), LevelSums(coding)
        self.flags, self.present = np.ones(width, bool), np.zeros(width)

    def add(self, block: Block) -> np.ndarray:
        """The deviations from an origin, in place of the block."""
        self.present += np.count_nonzero(block.x, axis=0)
        self.flags[self.flags] = np.all((block.x[:, self.flags] == 0) | (block.x[:, self.flags] == 1), axis=0)
        try:
            deviation = self.sums.add(block.x)
        except FloatingPointError:
            raise _not_finite(self.coding, block.x, self.sums.count) from None
        self.levels.add(deviation, block.codes)
        return deviation

    def units(self, rule: str) -> tuple[np.ndarray, np.ndarray]:
        """Means and scales of all columns, once they are known to vary and to be of their own.

        Means are 0 where columns are not centred, scales 1 where they are not scaled.
        """
        sums, count, coding = self.sums, self.sums.count, self.coding
        mean, covariance = sums.moments()
        _require_variation(coding, np.diag(covariance), self.levels, count)
        shift = np.zeros_like(mean) if coding.intercept else sums.origin / sums.unit
        _require_ranks(coding, *_about(sums, shift), count, _shifted(self.levels, shift))
        means, scales = np.zeros(len(coding.names)), np.ones(len(coding.names))
        if rule == "nothing":
            return means, scales
        dense = list(coding.dense)
        spread = sums.unit * np.sqrt(np.maximum(np.diag(covariance), 0.0))
        centre = sums.origin + sums.unit * mean
        switches = (
            np.isin(dense, coding.of_categories) | self.flags if rule == "numbers" else np.zeros(len(dense), bool)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.sqrt((spread**2 + centre**2) * count / self.present)
        # Columns of a smooth are about their means already, with the spreads that its prior gives them.
        curved = np.isin(dense, coding.of_smooths)
        scales[dense] = np.where(curved, 1.0, np.where(switches, np.where(self.flags, 1.0, size), spread))
        if coding.intercept:
            means[dense] = np.where(switches | curved, 0.0, centre)
        return means, scales


def _require_ranks(coding: Coding, products: np.ndarray, sums: np.ndarray, count: int, levels: LevelSums) -> None:
    """Formula by formula: a column may well be in both."""
    if coding.second is None:
        require_rank(coding, products, sums, count, levels)
        return
    first, second = coding.parts
    own = len(first.dense)
    levels.sums = [total[:, :own] for total in levels.sums]
    require_rank(first, products[:own, :own], sums[:own], count, levels)
    require_rank(second, products[own:, own:], sums[own:], count, LevelSums(second))


def _about(sums: Covariance, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of products of x about another origin, and of x."""
    moved = sums.sums + sums.count * shift
    cross = np.outer(shift, sums.sums)
    return sums.products + cross + cross.T + sums.count * np.outer(shift, shift), moved


def _shifted(levels: LevelSums, shift: np.ndarray) -> LevelSums:
    for total, count in zip(levels.sums, levels.counts, strict=True):
        total += np.outer(count, shift)
    return levels


def standardised_blocks(
    coding: Coding, table: Any, means: np.ndarray, scales: np.ndarray, finite: bool = True
) -> Iterator[tuple[int, Block]]:
    """The first row and the columns of each block of rows, with means and scales that are known.

    What is not finite is refused, unless that is left to the caller.
    """
    dense = list(coding.dense)
    for start, block in coding.blocks(table):
        if finite and not np.all(np.isfinite(over_rows(np.add, block.x))):
            raise _not_finite(coding, block.x, start)
        yield start, Block((block.x - means[dense]) / scales[dense], block.codes)


def apply(
    coding: Coding, table: Any, means: np.ndarray, scales: np.ndarray, finite: bool = True, precise: bool = False
) -> np.ndarray:
    """All columns of new rows, with the means and scales of old ones, those of levels written out.

    What is not `finite` is NaN, or refused. What is `precise` is float64, for differences of rows that are close.
    """
    width = len(coding.names)
    x = np.zeros((table.num_rows, width), np.float32 if np.any(means) and not precise else np.float64)
    if not coding.names:
        return x
    for start, block in standardised_blocks(coding, table, means, scales, finite):
        rows = x[start : start + len(block.x)]
        rows[:, list(coding.dense)] = block.x
        for code in block.codes.T:
            named = np.flatnonzero(code < width)
            rows[named, code[named]] = 1.0
    lost = None if finite or np.all(np.isfinite(over_rows(np.add, x))) else ~np.isfinite(x)
    if lost is not None:
        x[lost] = 0.0
    x = x if precise or needs_float64(x) else x.astype(np.float32, copy=False)
    if lost is not None:
        x[lost] = np.nan
    return x


def _not_finite(coding: Coding, block: np.ndarray, start: int) -> DataError:
    wrong, got = ~np.isfinite(block), "one that is not"
    if not wrong.any():
        wrong, got = np.abs(block) == np.abs(block).max(), "one too large to square"
    row, column = np.argwhere(wrong)[0]
    name = coding.names[coding.dense[column]]
    hint = "leave out such rows, or take another function of the column"
    return DataError(explain(f"finite numbers in {name!r}", f"{got} at row {start + row}", hint))


def _require_variation(coding: Coding, variance: np.ndarray, levels: LevelSums, count: int) -> None:
    same = [place for place, each in zip(coding.dense, variance, strict=True) if each <= 0]
    same += [int(np.argmax(each)) for each in levels.counts if each[:-1].max(initial=0) == count]
    if same:
        name = coding.names[min(same)]
        raise DataError(explain(f"a column {name!r} that varies", "the same value in all rows", "leave it out"))
