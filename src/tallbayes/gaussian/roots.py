"""Roots of matrices of thousands of rows: in the memory of one more matrix, and a third of the time of an inverse.

    H = L L^T,   W = L^-T,   W W^T = H^-1,   2/3 d^3 operations

L is written over a copy of H, and its inverse over L: beside H there is W, and nothing else of that size.
"""

from __future__ import annotations

import numpy as np

from tallbayes.moments import Floats


def inverse_root(precision: Floats) -> Floats:
    """W, upper triangular; a LinAlgError where H is not positive definite."""
    return np.asarray(inverse_factor(np.array(precision, order="C")).T)


def inverse_factor(matrix: Floats) -> Floats:
    """L^-1, written over a symmetric matrix in either of the two precisions."""
    from scipy.linalg.lapack import dpotrf, dtrtri, spotrf, strtri

    factorise, invert = (spotrf, strtri) if matrix.dtype == np.float32 else (dpotrf, dtrtri)
    # The transpose of rows in order is columns in order, which is what LAPACK works on in place.
    lower, failed = factorise(matrix.T, lower=1, clean=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("Matrix is not positive definite")
    inverse, failed = invert(lower, lower=1, overwrite_c=1)
    if failed:
        raise np.linalg.LinAlgError("Singular matrix")
    return np.asarray(inverse)


def row_squares(matrix: Floats) -> Floats:
    """Square lengths of the rows, without a second matrix."""
    return np.asarray(np.einsum("ij,ij->i", matrix, matrix))
