"""The rows: checked once, then held in one copy with a fixed number of spare places.

Arrays are padded with copies of their first row to a power of two, and beyond one chunk to a multiple of a
chunk, so that tables of nearby sizes share one compiled program; no draw ever sees the padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.model import CHUNK_ROWS, TILE_ROWS

SHUFFLE_SEED = 20170617


@dataclass(frozen=True, eq=False)
class Table:
    """Rows on the device: a pytree of arrays with a leading axis of `capacity` >= `num_rows`."""

    rows: Any
    num_rows: int

    @property
    def capacity(self) -> int:
        return int(jax.tree.leaves(self.rows)[0].shape[0])

    def widened(self) -> Table:
        """The same numbers in float64."""

        def widen(leaf: jax.Array) -> jax.Array:
            return leaf.astype(np.float64) if leaf.dtype == np.float32 else leaf

        with jax.enable_x64(True):
            return Table(jax.tree.map(widen, self.rows), self.num_rows)

    def chunks(self) -> list[tuple[int, int]]:
        """Row ranges of the set-up sums, in their order."""
        starts = range(0, self.num_rows, CHUNK_ROWS)
        return [(start, min(start + CHUNK_ROWS, self.num_rows)) for start in starts]


def check_rows(data: Any) -> Any:
    """The same pytree as NumPy arrays, or a DataError: shared leading axis, numeric, finite, not empty."""
    paths = jax.tree_util.tree_leaves_with_path(data)
    if not paths:
        raise DataError(explain("a pytree of arrays", repr(data), '{"x": X, "y": y} with a row per entry'))
    lengths = {}
    for path, leaf in paths:
        name = jax.tree_util.keystr(path) or "data"
        array = np.asarray(leaf)
        if array.dtype.kind not in "biuf":
            raise DataError(
                explain(
                    f"numbers in {name}",
                    f"dtype {array.dtype}",
                    "encode categories as integers or dummy columns and convert with astype(float)",
                )
            )
        if array.ndim == 0:
            raise DataError(explain(f"{name} with one entry a row", "a single number", "pass an array"))
        lengths[name] = len(array)
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            where = np.argwhere(~np.isfinite(array))[0]
            raise DataError(
                explain(
                    f"finite numbers in {name}",
                    f"{array[tuple(where)]} at row {where[0]}",
                    "drop or impute the rows with missing values",
                )
            )
    if len(set(lengths.values())) > 1:
        raise DataError(explain("arrays with the same number of rows", f"{lengths}", "check how they were cut"))
    if 0 in lengths.values():
        raise DataError(explain("at least one row", "0 rows", "check the filter that made the data"))
    return jax.tree.map(np.asarray, data)


def make_table(arrays: Any, dtype: str, shuffle: bool = False) -> Table:
    """Put checked arrays on the device in `dtype` (integers as int32), padded; shuffled once if asked.

    The shuffle is fixed: blocks of consecutive rows then have one law for all levels, seeds and resumes.
    """
    num_rows = len(jax.tree.leaves(arrays)[0])
    capacity = _capacity(num_rows)
    order = np.random.default_rng(SHUFFLE_SEED).permutation(num_rows) if shuffle else None

    def place(path: Any, array: np.ndarray) -> jax.Array:
        if array.dtype.kind in "iu":
            _require_int32(jax.tree_util.keystr(path) or "data", array)
        kind = np.dtype(dtype if array.dtype.kind == "f" else np.int32)
        padded = np.empty((capacity, *array.shape[1:]), kind)
        padded[:num_rows] = array if order is None else array[order]
        padded[num_rows:] = padded[0]
        return jax.device_put(padded)

    with jax.enable_x64(True):
        return Table(jax.tree_util.tree_map_with_path(place, arrays), num_rows)


def _require_int32(name: str, array: np.ndarray) -> None:
    largest = max(int(array.max()), -int(array.min()))
    if largest >= 2**31:
        raise DataError(
            explain(
                f"whole numbers below 2^31 in {name}",
                f"{largest}",
                "astype(float), or codes 0, 1, 2, ... if they are labels",
            )
        )


def needs_float64(arrays: Any) -> bool:
    """Whether float32 would blur a column by more than 1e-4 of its own spread, or not hold sums of its squares."""

    def blurred(array: np.ndarray) -> bool:
        if array.dtype != np.float64:
            return False
        size, spread = np.abs(array).max(axis=0), array.std(axis=0)
        blur = (spread > 0) & (size * 2.0**-24 > 1e-4 * spread)
        outside = (size > 0) & ((size < 1e-12) | (size > 1e12))
        return bool(np.any(blur | outside))

    return any(blurred(array) for array in jax.tree.leaves(arrays))


def _capacity(num_rows: int) -> int:
    if num_rows > CHUNK_ROWS:
        return -(-num_rows // CHUNK_ROWS) * CHUNK_ROWS
    return max(TILE_ROWS, 1 << (num_rows - 1).bit_length())
