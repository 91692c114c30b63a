"""Means: what a matrix of thousands of parameters takes in memory and in time, said before it begins."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import numpy as np

from tallbayes.model.model import Target
from tallbayes.rows.table import Table

# The precision, its root, and what either is on its way: of a sample, a copy, and two in the precision of the paths.
MATRICES_AT_ONCE = 4
# In float64: X^T diag(w) X by squares, a root and its inverse, and as much for a sample of the rows.
TRIAL = 768


class Means(NamedTuple):
    """Bytes at the most beside the rows, and seconds."""

    bytes: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.bytes / 1e9:.1f} GB and about {self.seconds:.0f} s"


def means_of(target: Target, table: Table) -> Means:
    """By the number of operations, at the speed of a product tried now."""
    d, heads = target.dimension, target.layout.heads
    products = heads * (heads + 1) / 2 * table.num_rows * (d / heads) ** 2
    roots = 2 * (2 / 3) * d**3
    return Means(8.0 * MATRICES_AT_ONCE * d**2, (products / 2 + roots) / _speed())


def fits(dimension: int) -> bool:
    """Whether the machine has the memory, as far as it says."""
    try:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return True
    return 8.0 * MATRICES_AT_ONCE * dimension**2 < 0.8 * free


def _speed() -> float:
    """Operations a second of a product in float64."""
    matrix = np.ones((TRIAL, TRIAL))
    begun = time.perf_counter()
    matrix @ matrix
    return 2 * TRIAL**3 / max(time.perf_counter() - begun, 1e-6)
