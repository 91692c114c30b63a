"""The list: which row stands at each place that batches are read from, so that some are read more often than others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.rows.on_disk import Stored


@dataclass(frozen=True, eq=False)
class Listing:
    """Which row stands at each place of the list, and the weight of that place; padded like a table.

    `stored` is the table on disk that the list is mapped from, if it is.
    """

    rows: np.ndarray
    weights: np.ndarray
    length: int
    stored: Stored | None = None


def mapped_listing(stored: Stored) -> Listing:
    """A list as it lies on disk."""
    arrays = stored.arrays()
    return Listing(arrays["row"], arrays["weight"], stored.num_rows, stored)
