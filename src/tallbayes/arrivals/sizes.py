"""Sizes: how far single rows can push the paths, and how often they are listed for it.

New rows are looked at once, about the anchor of the day that they come on (`anchor.importance` has what a size is). The
sums of sizes, of their squares and of their fourth powers go with the list, so that it is known every day whether the
rows have become uneven; where they have, those that came and matter stand more often,

    c_i = 1 + floor(s_i / (sum_k s_k / N))

The sum over k includes the day itself, so a day lengthens the list by no more places than there are rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.importance import mean_size, row_sizes, sums_of_sizes
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.rows.table import Table


@dataclass(frozen=True, eq=False)
class Sizes:
    """Sums over all rows: of sizes, of their squares and of their fourth powers."""

    num_rows: int = 0
    sums: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def plus(self, found: Floats) -> Sizes:
        return self._with(found, 1)

    def minus(self, found: Floats) -> Sizes:
        return self._with(found, -1)

    def _with(self, found: Floats, sign: int) -> Sizes:
        sums = (max(a + sign * b, 0.0) for a, b in zip(self.sums, sums_of_sizes(found), strict=True))
        first, second, fourth = sums
        return Sizes(self.num_rows + sign * len(found), (first, second, fourth))

    def copies(self, found: Floats) -> np.ndarray:
        """How often rows of these sizes, which are among those of the sums, are to stand in the list."""
        mean = mean_size(self.num_rows, [self.sums])
        if mean is None:
            return np.ones(len(found), np.int64)
        return 1 + np.floor(np.minimum(found / mean, self.num_rows)).astype(np.int64)


def sizes_of(target: Target, table: Table, anchor: Anchor) -> Floats:
    """Of every row of a table: one pass."""
    return row_sizes(target, table, anchor)
