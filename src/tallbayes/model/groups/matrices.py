"""Matrices of up to three rows, written out: a call of LAPACK for each of thousands takes longer than all else."""

from __future__ import annotations

from typing import Any

from tallbayes.programs.later import jnp


def cholesky(matrix: Any) -> Any:
    """The lower L with L L^T = the matrix."""
    size = matrix.shape[-1]
    rows: list[list[Any]] = []
    for i in range(size):
        row: list[Any] = []
        for j in range(i + 1):
            left = matrix[i, j] - sum((row[k] * (row if i == j else rows[j])[k] for k in range(j)), 0.0)
            row.append(jnp.sqrt(left) if i == j else left / rows[j][j])
        rows.append(row)
    zero = jnp.zeros_like(matrix[0, 0])
    return jnp.stack([jnp.stack([*row, *[zero] * (size - len(row))]) for row in rows])


def solve_lower(root: Any, vector: Any) -> Any:
    """L^-1 v, of a vector or of columns."""
    found: list[Any] = []
    for i in range(root.shape[-1]):
        found.append((vector[i] - sum((root[i, k] * found[k] for k in range(i)), 0.0)) / root[i, i])
    return jnp.stack(found)


def solve_upper(root: Any, vector: Any) -> Any:
    """L^-T v, of a vector or of columns."""
    size = root.shape[-1]
    found: dict[int, Any] = {}
    for i in reversed(range(size)):
        found[i] = (vector[i] - sum((root[k, i] * found[k] for k in range(i + 1, size)), 0.0)) / root[i, i]
    return jnp.stack([found[i] for i in range(size)])
