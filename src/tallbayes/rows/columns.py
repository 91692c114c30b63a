"""Columns: what Arrow holds, as numbers or as codes of the sorted levels of a text; and which values are missing.

normalised_table(table)         numbers as they are, text and categories as codes; anything else is refused
count_missing, drop_missing     null and NaN alike; `missing_rows` tells where
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain

BATCH_ROWS = 2**17


def require(package: str, purpose: str = "formulas and tables", install: str = "'tallbayes[data]'") -> Any:
    """Import a package that is needed for one purpose only."""
    try:
        return import_module(package)
    except ImportError as error:
        name = package.split(".")[0]
        got = f"{name} not installed" if isinstance(error, ModuleNotFoundError) else str(error)
        raise InputError(explain(f"{name}, for {purpose}", got, f"pip install {install}")) from error


def one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")[:200]


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_text(kind: Any) -> bool:
    types = require("pyarrow").types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def normalised_table(table: Any) -> Any:
    """An Arrow table with every column normalised."""
    return table_of({name: normalised(name, table.column(name), False) for name in table.column_names})


def table_of(columns: dict[str, Any]) -> Any:
    """The Arrow table of columns that must be of one length."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(explain("columns with the same number of rows", f"{lengths}", "check how they were cut"))
    return require("pyarrow").table(columns)


def normalised(name: str, column: Any, keep_order: bool) -> Any:
    """Numbers as they are, text and categories as codes of their levels in order; anything else is refused."""
    arrow = require("pyarrow")
    types, kind = arrow.types, column.type
    # The first value tells in most cases that not all are missing.
    if len(column) and _missing(column[:1]).all() and _missing(column).all():
        raise DataError(explain(f"values in column {name!r}", "all of them missing", "leave the column out"))
    if is_text(kind) or types.is_dictionary(kind):
        encoded = column if types.is_dictionary(kind) else column.dictionary_encode()
        return _in_order(encoded, keep_order=types.is_dictionary(kind) and (keep_order or kind.ordered))
    if types.is_decimal(kind) or types.is_float16(kind):
        return column.cast(arrow.float64())
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or len(column) == 0:
        return column
    raise unusable(f"column {name!r}", kind)


def unusable(column: str, kind: Any) -> DataError:
    """What to say of dates, lists and the like."""
    hint = "numbers or text, e.g. the hour of a time, or text in UTF-8"
    return DataError(explain(f"numbers or text in {column}", f"{kind}", hint))


def _in_order(encoded: Any, keep_order: bool) -> Any:
    """A dictionary column without unused levels, the levels sorted unless they have an order of their own."""
    arrow = require("pyarrow")
    chunked = encoded if isinstance(encoded, arrow.ChunkedArray) else arrow.chunked_array([encoded])
    if len(chunked) == 0:
        return encoded
    whole = arrow.concat_arrays(chunked.unify_dictionaries().chunks)
    levels = whole.dictionary.to_pylist()
    codes = whole.indices.cast(arrow.int32()).fill_null(-1).to_numpy()
    present = np.bincount(codes + 1, minlength=len(levels) + 1)[1:] > 0
    used = [code for code, level in enumerate(levels) if present[code] and level is not None]
    order = used if keep_order else sorted(used, key=lambda code: levels[code])
    if order == list(range(len(levels))):
        return whole
    place = np.full(len(levels) + 1, -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    moved = place[codes]
    indices = arrow.array(moved, mask=moved < 0 if whole.null_count or None in levels else None)
    return arrow.DictionaryArray.from_arrays(indices, arrow.array([levels[code] for code in order]))


def count_missing(table: Any) -> dict[str, int]:
    """Missing values by column, those without any left out."""
    return {name: int(rows.sum()) for name, rows in missing_rows(table).items()}


def missing_rows(table: Any) -> dict[str, np.ndarray]:
    """Which rows miss a value, by column, those without any left out."""
    found = {name: _missing(table.column(name)) for name in table.column_names}
    return {name: rows for name, rows in found.items() if rows.any()}


def drop_missing(table: Any) -> Any:
    """The rows without a missing value, and without the levels that these no longer have."""
    return cut_levels(complete_rows(table))


def complete_rows(table: Any) -> Any:
    """The rows without a missing value, with all levels."""
    keep = np.ones(table.num_rows, bool)
    for name in table.column_names:
        keep &= ~_missing(table.column(name))
    return table.filter(require("pyarrow").array(keep))


def cut_levels(table: Any) -> Any:
    """The same rows without the levels that none of them has."""
    arrow = require("pyarrow")
    for place, column in enumerate(table.columns):
        if arrow.types.is_dictionary(column.type):
            table = table.set_column(place, table.field(place).name, _in_order(column, keep_order=True))
    return table


def _missing(column: Any) -> np.ndarray:
    if not column.null_count and not require("pyarrow").types.is_floating(column.type):
        return np.zeros(len(column), bool)
    return np.asarray(column.is_null(nan_is_null=True))


def levels_of(column: Any) -> tuple[Any, ...]:
    """The distinct values: of text in the order of its levels, of numbers in their own."""
    arrow = require("pyarrow")
    if arrow.types.is_dictionary(column.type):
        whole = column.chunk(0) if isinstance(column, arrow.ChunkedArray) else column
        return tuple(whole.dictionary.to_pylist())
    return tuple(np.unique(np.asarray(column.unique())).tolist())


def known_codes(column: Any, levels: Sequence[Any]) -> np.ndarray:
    """Where each value stands among the levels; -1 for one that is not among them."""
    arrow = require("pyarrow")
    chunks = column.chunks if isinstance(column, arrow.ChunkedArray) else [column]
    if arrow.types.is_dictionary(column.type):
        rank = {level: place for place, level in enumerate(levels)}
        parts = []
        for chunk in chunks:
            places = np.array([rank.get(level, -1) for level in chunk.dictionary.to_pylist()] or [-1])
            parts.append(places[np.asarray(chunk.indices)])
        return np.concatenate(parts) if parts else np.empty(0, int)
    values, known = np.asarray(column), np.asarray(levels)
    order = np.argsort(known, kind="stable")
    codes = order[np.minimum(np.searchsorted(known[order], values), len(known) - 1)]
    return np.where(known[codes] == values, codes, -1)


def level_codes(column: Any, levels: Sequence[Any]) -> np.ndarray:
    """The same, but that all values must be known."""
    codes = known_codes(column, levels)
    if np.any(codes < 0):
        unknown = column[int(np.argmax(codes < 0))].as_py()
        raise DataError(explain(f"one of {len(levels)} known categories", repr(unknown), "leave such rows out"))
    return codes


def kind_of(column: Any) -> str:
    return "categories" if require("pyarrow").types.is_dictionary(column.type) else "numbers"
