"""The rows: checked once, then held in one copy with a fixed number of spare places.

Arrays are padded with copies of their first row to a power of two, and beyond one chunk to a multiple of a
chunk, so that tables of nearby sizes share one compiled program; no draw ever sees the padding. Checks and the
one copy go block by block, on as many threads as there are cores: nothing else of the table's size is made.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.programs.later import jax, named_leaves
from tallbayes.threads import num_cores

TILE_ROWS = 256
CHUNK_ROWS = 2**18

SHUFFLE_SEED = 20170617
BLOCK_BYTES = 2**21
MAX_THREADS = 8
# XLA takes over a host buffer that starts at such an address, and copies any other.
ALIGNMENT = 64


@dataclass(frozen=True, eq=False)
class Table:
    """Rows on the device: a pytree of arrays with a leading axis of `capacity` >= `num_rows`.

    Where they are `shuffled`, the first m rows are a random sample of all. `units` are what a model needs to report its
    parameters in other terms than those of these rows. `stored` is the table on disk that holds the rows, if there is
    one, and `names` a pytree like the rows of the names of its fields, or of arrays that are beside it.
    """

    rows: Any
    num_rows: int
    shuffled: bool = False
    units: Any = None
    stored: Any = None
    names: Any = None

    @property
    def capacity(self) -> int:
        return int(jax.tree.leaves(self.rows)[0].shape[0])

    def chunks(self, stop: int | None = None) -> list[tuple[int, int]]:
        """Row ranges of the sums over all rows, or over those before `stop`, in their order."""
        stop = self.num_rows if stop is None else stop
        return [(start, min(start + CHUNK_ROWS, stop)) for start in range(0, stop, CHUNK_ROWS)]


def check_rows(data: Any) -> Any:
    """The same pytree as NumPy arrays, or a DataError: shared leading axis, numeric, finite, not empty."""
    leaves = named_leaves(data)
    if not leaves:
        raise DataError(explain("a pytree of arrays", repr(data), '{"x": X, "y": y} with a row per entry'))
    lengths = {}
    for path, leaf in leaves:
        name = path or "data"
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
        if array.dtype.kind == "f" and not _all_finite(array):
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
    return data if all(isinstance(leaf, np.ndarray) for _, leaf in leaves) else jax.tree.map(np.asarray, data)


def make_table(arrays: Any, dtype: str, shuffle: bool = False, units: Any = None, least: int = TILE_ROWS) -> Table:
    """Put checked arrays on the device in `dtype` (integers as int32), padded, to `least` rows at the least; shuffled
    once if asked.

    The shuffle is fixed: blocks of consecutive rows then have one law for all levels, seeds and resumes.
    """
    num_rows = len(jax.tree.leaves(arrays)[0])
    capacity = capacity_for(num_rows, least)
    order = shuffled_order(num_rows) if shuffle else None

    def place(path: Any, array: np.ndarray) -> jax.Array:
        if array.dtype.kind in "iu":
            require_int32(jax.tree_util.keystr(path) or "data", array)
        kind = np.dtype(dtype if array.dtype.kind == "f" else np.int32)
        padded = aligned((capacity, *array.shape[1:]), kind)
        _copy_rows(array, padded, order)
        padded[num_rows:] = padded[0]
        return jax.device_put(padded)

    with jax.enable_x64(True):
        units = jax.tree.map(lambda array: jax.device_put(np.asarray(array, np.float64)), units)
        return Table(jax.tree_util.tree_map_with_path(place, arrays), num_rows, shuffle, units)


def shuffled_order(num_rows: int) -> np.ndarray:
    """The permutation of `Generator.permutation`, held in half the memory."""
    order = np.arange(num_rows, dtype=np.int32 if num_rows < 2**31 else np.int64)
    np.random.default_rng(SHUFFLE_SEED).shuffle(order)
    return order


def _copy_rows(array: np.ndarray, out: np.ndarray, order: np.ndarray | None) -> None:
    """out[i] = array[order[i]], converted, in blocks that fit into the cache."""

    def copy(start: int, stop: int) -> None:
        block = array[start:stop] if order is None else np.take(array, order[start:stop], axis=0)
        out[start:stop] = block

    by_blocks(copy, array)


def aligned(shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    size = int(np.prod(shape)) * kind.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + size].view(kind).reshape(shape)


def _all_finite(array: np.ndarray) -> bool:
    return all(by_blocks(lambda start, stop: bool(np.isfinite(array[start:stop]).all()), array))


def by_blocks(task: Callable[[int, int], Any], array: np.ndarray) -> list[Any]:
    """task(start, stop) of consecutive blocks of rows that fit into the cache, in their order, on threads if many."""
    row_bytes = max(array[:1].nbytes, 1)
    size = max(BLOCK_BYTES // row_bytes, 1)
    starts = range(0, len(array), size)
    stops = [min(start + size, len(array)) for start in starts]
    if len(starts) < 4:
        return list(map(task, starts, stops))
    with ThreadPoolExecutor(min(num_cores(), MAX_THREADS)) as threads:
        return list(threads.map(task, starts, stops))


def require_int32(name: str, array: np.ndarray) -> None:
    largest = max(int(array.max()), -int(array.min()))
    if largest >= 2**31:
        raise DataError(
            explain(
                f"whole numbers below 2^31 in {name}",
                f"{largest}",
                "astype(float), or codes 0, 1, 2, ... if they are labels",
            )
        )


def capacity_for(num_rows: int, least: int = TILE_ROWS) -> int:
    chunks = -(-num_rows // CHUNK_ROWS) * CHUNK_ROWS
    return max(least, chunks if num_rows > CHUNK_ROWS else 1 << (num_rows - 1).bit_length())


def tile_rows(rows: Any) -> int:
    """How many rows of a table are added up together: all, where there are fewer than in a tile."""
    return min(TILE_ROWS, int(jax.tree.leaves(rows)[0].shape[0]))
