"""Packed rows: the columns of a table on disk as Arrow's, a batch of rows at a time.

    numbers   float32 or float64; what is missing is NaN          codes   int32; what is missing is -1

A column comes back as it was read from its file: text as codes of the table's sorted levels, whole numbers and bools as
such, and what is missing as null. Numbers stored in float32 come back as the shortest decimals that stand for them
where they are few, since they may be labels then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.rows.columns import BATCH_ROWS, require
from tallbayes.rows.on_disk import Column, Stored

PROBE_ROWS = 2**12
MOST_LABELS = 1000


def require_columns(stored: Stored) -> None:
    """Refuse a table of arrays, which has no columns that a formula could name."""
    if not stored.columns:
        fields = ", ".join(field.name for field in stored.fields)
        hint = "tb.estimate(tb.families.logistic(), table, ...), or a table made by tb.ingest"
        raise DataError(explain("a table of columns", f"one of the arrays {fields} at {str(stored.path)!r}", hint))


def packed_batches(stored: Stored, wanted: Sequence[str], size: int | None = None) -> Iterator[Any]:
    """Arrow tables of these columns in this order."""
    arrow, size = require("pyarrow"), size or BATCH_ROWS
    arrays = stored.rows()
    columns = {column.name: column for column in stored.columns}
    levels = {name: arrow.array(columns[name].levels, arrow.string()) for name in wanted}
    labels = [name for name in wanted if _may_be_labels(arrays[columns[name].field][:PROBE_ROWS, columns[name].place])]
    for start in range(0, stored.num_rows, size):
        parts = {}
        for name in wanted:
            column = columns[name]
            values = arrays[column.field][start : start + size, column.place]
            parts[name] = _as_arrow(column, _shortest(values) if name in labels else values, levels[name])
        yield arrow.table(parts)


def read_packed(stored: Stored, wanted: Sequence[str]) -> Any:
    """All rows in one Arrow table."""
    return next(packed_batches(stored, wanted, stored.num_rows))


def _as_arrow(column: Column, values: np.ndarray, levels: Any) -> Any:
    arrow = require("pyarrow")
    blank = None
    if column.missing:
        blank = np.isnan(values) if values.dtype.kind == "f" else values < 0
    if column.kind == "number":
        return arrow.array(np.ascontiguousarray(values), mask=blank)
    if column.kind == "bool":
        return arrow.array(values > 0, mask=blank)
    if column.kind == "text":
        indices = arrow.array(np.ascontiguousarray(values), mask=blank)
        return arrow.DictionaryArray.from_arrays(indices, levels)
    whole = values if blank is None else np.where(blank, 0, values)
    return arrow.array(whole.astype(np.int64), mask=blank)


def _may_be_labels(values: np.ndarray) -> bool:
    """Whether these first numbers of a column are few."""
    return values.dtype == np.float32 and len(np.unique(values)) <= MOST_LABELS


def _shortest(values: np.ndarray) -> np.ndarray:
    """0.1 instead of 0.10000000149: float64 numbers with the digits that tell one float32 from the next."""
    distinct, places = np.unique(values, return_inverse=True)
    return np.array([float(str(each)) for each in distinct])[places]
