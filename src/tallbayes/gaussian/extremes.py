"""Extremes: the ends of the spectrum of a matrix that is known by its products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.moments import Floats

LARGEST_WHOLE = 4_000


def curvatures_between(whitening: Any, diagonals: Floats) -> Floats:
    """Eigenvalues of H, ascending: all of a small one; of a large one the ends, and diagonals in place of what is
    between."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    size = len(diagonals)
    if size <= LARGEST_WHOLE:
        return np.linalg.eigvalsh(whitening.times(np.eye(size)))
    start = np.random.default_rng(0).standard_normal(size)
    largest, smallest = (
        eigsh(LinearOperator((size, size), matvec=product), 1, v0=start, tol=1e-6)[0][0]
        for product in (whitening.times, lambda g: whitening.move(whitening.pull_back(g)))
    )
    between = np.sort(diagonals)[1:-1]
    return np.concatenate([[1 / smallest], np.clip(between, 1 / smallest, largest), [largest]])
