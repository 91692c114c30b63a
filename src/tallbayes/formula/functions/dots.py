"""What the dot of a formula stands for: every column that can be a term, the others left out with a reason.

    late ~ .      without dates, without what is the same in all rows or missing in all, without names of single rows

Of a table on disk that is known; of any other the columns are looked at, before they are read as terms are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallbayes.errors import DataError
from tallbayes.formula.functions.names import INDEXED_LIMIT
from tallbayes.rows.columns import kind_of, levels_of, require
from tallbayes.rows.on_disk import Column
from tallbayes.rows.packing import column_of
from tallbayes.rows.sources import Source

SAME, MISSING, NAMES = "the same in all rows", "missing in all rows", "a name for every row"
# Fewer rows than that may well have a category each.
FEW_ROWS = 20


def unusable(source: Source, names: Sequence[str]) -> dict[str, str]:
    """Why some of these columns, of which none is a date, cannot be terms."""
    if source.stored is not None:
        count = source.stored.num_rows
        found = {name: _of_stored(column_of(source.stored, name), count) for name in names}
    else:
        found = _looked_at(source, names)
    return {name: reason for name, reason in found.items() if reason}


def _of_stored(column: Column, rows: int) -> str:
    if column.missing >= rows:
        return MISSING
    if column.kind == "text":
        return _of_levels(len(column.levels), rows)
    is_number = column.kind in ("number", "whole")
    return SAME if is_number and column.least == column.largest and not column.missing else ""


def _looked_at(source: Source, names: Sequence[str]) -> dict[str, str]:
    try:
        table = source.read(list(names))
    except DataError:
        return {name: _alone(source, name) for name in names}
    return {name: _of_column(table.column(name)) for name in names}


def _alone(source: Source, name: str) -> str:
    """Of a column beside which others cannot be read, or which cannot be read itself."""
    try:
        return _of_column(source.read([name]).column(name))
    except DataError as error:
        got = str(error).partition("; got ")[2].partition(". Try: ")[0]
        return MISSING if got.startswith("all of them missing") else got


def _of_column(column: Any) -> str:
    if kind_of(column) == "categories":
        return _of_levels(len(levels_of(column)), len(column) - column.null_count)
    return SAME if _is_constant(column) else ""


def _of_levels(levels: int, rows: int) -> str:
    if levels == 1:
        return SAME
    if levels >= rows > FEW_ROWS:
        return NAMES
    return f"{levels:,} categories" if levels > INDEXED_LIMIT else ""


def _is_constant(column: Any) -> bool:
    ends = require("pyarrow.compute").min_max(column)
    return bool(ends["min"].as_py() == ends["max"].as_py())
