"""Rows for which responses are drawn, a batch at a time: those of the fit, in their own order, or given ones.

Of a mixed model the rows of the fit come group by group, as it holds them; given ones in the order in which they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.model.catalogue import BESIDE
from tallbayes.model.linear import Layout
from tallbayes.model.weights import WEIGHT
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.results.draws.drawn import known_groups
from tallbayes.results.fitted import fitted_of
from tallbayes.results.groups.predictions import Mixed
from tallbayes.results.new_rows import IN_ORDER_BYTES, Asked, NewRows, array_rows, encoded_rows, stored_parts
from tallbayes.results.result import Result
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.table import Table, shuffled_order


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Some rows in fitted units: x, an offset, codes of columns that are not written down; the response that was seen
    in the units of the table, if it is known, and their numbers. Of a mixed model `effects` are what its terms read;
    `beside` is what rows tell of a response beside itself.

    Of a model of one's own rows are as its functions read them, `own`, and `places` where their groups are."""

    numbers: np.ndarray
    x: Floats
    offset: Floats
    observed: Floats | None = None
    codes: np.ndarray | None = None
    effects: Mapping[str, Any] = field(default_factory=dict)
    groups: np.ndarray | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    places: np.ndarray | None = None
    beside: Mapping[str, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)


def mixed_of(result: Result) -> Mixed | None:
    """The group terms of a fit by a formula; None of one without."""
    if result.encoding is None or "groups" not in result.encoding:
        return None
    from tallbayes.formula.encoding import Encoding

    return Mixed.of(result, Encoding.from_plain(result.encoding))


def response_units(result: Result) -> tuple[float, float]:
    """Scale and shift from a fitted response to one of the table."""
    if result.encoding is not None:
        return result.encoding["response_scale"], result.encoding["response_mean"]
    regression = result.regression
    return (1.0, 0.0) if regression is None else (regression.response_scale, regression.response_mean)


def row_batches(result: Result, rows: Any, size: int) -> Iterator[RowBatch]:
    """Batches of so many rows."""
    if rows is not None:
        return _split(_given(result, rows), size)
    if result.factors:
        return _of_units(result, size)
    return _of_table(result, size)


def layout_of(result: Result, rows: Any) -> Layout:
    """Where coefficients stand: those of rows of the fit may be indexed."""
    if rows is None and not result.factors:
        return fitted_of(result).target.layout
    regression = result.regression
    assert regression is not None
    return regression.layout


def _of_table(result: Result, size: int) -> Iterator[RowBatch]:
    table = fitted_of(result).table
    scale, shift = response_units(result)
    order = _places(table)
    for start in range(0, table.num_rows, size):
        numbers = np.arange(start, min(start + size, table.num_rows))
        places = numbers if order is None else order[numbers]
        own = {name: np.asarray(leaf)[places] for name, leaf in _arrays(table).items()}
        count = len(numbers)
        x = own.get("x", np.zeros((count, 0)))
        offset = np.asarray(own.get("offset", np.zeros(count)), np.float64)
        seen = shift + scale * np.asarray(own["y"], np.float64)
        beside = beside_of(own)
        yield RowBatch(numbers, np.asarray(x, np.float64), offset, seen, own.get("codes"), beside=beside)


def _arrays(table: Table) -> dict[str, Any]:
    rows = table.rows
    if not isinstance(rows, Mapping) or "y" not in rows:
        raise InputError(
            explain("rows of a family of tb.families", "rows of another model", "rows={'x': ..., 'y': ...}")
        )
    return dict(rows)


def _places(table: Table) -> np.ndarray | None:
    """Where each row of the source lies; None where it is in its place, or where to look it up would take too long."""
    if table.stored is not None:
        stored: Stored = table.stored
        return stored.source_order() if stored.numbered and stored.num_bytes <= IN_ORDER_BYTES else None
    if not table.shuffled:
        return None
    return np.argsort(shuffled_order(table.num_rows))


def _of_units(result: Result, size: int) -> Iterator[RowBatch]:
    """Rows of groups, as many groups as have about so many rows."""
    mixed, known = mixed_of(result), known_groups(result)
    if mixed is None or "rows" not in known.units:
        got = "a mixed model of one's own" if mixed is None else "a model that is fitted by sums over its groups' rows"
        raise InputError(explain("rows of a mixed model by a formula", got, "rows=table, the one that was fitted"))
    scale, shift = response_units(result)
    start = 0
    for levels in _together(np.ravel(known.units["count"])[known.order], size):
        units = known.take(np.asarray(known.order)[levels])
        inside = np.arange(jax.tree.leaves(units["rows"])[0].shape[1]) < units["count"][:, None]
        own = {name: leaf[inside] for name, leaf in units["rows"].items()}
        groups = np.repeat(known.levels[levels], inside.sum(axis=1))
        count = len(groups)
        effects = {name: own[name] for name in own if name[0] == "z" or name.startswith("level")}
        offset = np.asarray(own.get("offset", np.zeros(count)), np.float64)
        seen = shift + scale * np.asarray(own["y"], np.float64)
        numbers = np.arange(start, start + count)
        x = np.asarray(own["x"], np.float64)
        yield RowBatch(numbers, x, offset, seen, None, effects, groups, beside=beside_of(own))
        start += count


def _together(counts: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Groups in their order, as many as have so many rows when padded to the largest of them."""
    first, most = 0, 0
    for number, count in enumerate(counts):
        most = max(most, int(count))
        if number > first and (number + 1 - first) * most > size:
            yield np.arange(first, number)
            first, most = number, int(count)
    yield np.arange(first, len(counts))


def require_unweighted(result: Result) -> None:
    """A row that stands for several has no one response."""
    rows = fitted_of(result).table.rows if result.fitted_source is not None and not result.factors else {}
    if isinstance(rows, Mapping) and WEIGHT in rows:
        hint = "rows=table with a row for every observation"
        raise InputError(explain("rows without weights, to be held against replicated ones", "weighted rows", hint))


def _given(result: Result, rows: Any) -> Iterator[RowBatch]:
    asked = Asked()
    if result.encoding is None:
        yield from _given_arrays(result, rows, asked)
        return
    from tallbayes.formula.encoding import Encoding
    from tallbayes.formula.response.left import left_of
    from tallbayes.rows.sources import open_source

    encoding, mixed = Encoding.from_plain(result.encoding), mixed_of(result)
    response = left_of(encoding.response, open_source(rows).names)
    for batch in encoded_rows(encoding, rows, Asked(keep=response.columns)):
        seen, beside = response.read(batch.kept)
        seen = _seen(encoding, seen) if seen is not None else None
        yield _as_batch(batch, seen, mixed, beside)


def _given_arrays(result: Result, rows: Any, asked: Asked) -> Iterator[RowBatch]:
    regression = result.regression
    parts: Iterator[tuple[int, Any, Any, Any]]
    if isinstance(rows, Stored):
        parts = stored_parts(rows, asked)
        seen_of = None
    else:
        x = np.asarray(rows["x"] if isinstance(rows, Mapping) else rows)
        offset = rows.get("offset") if isinstance(rows, Mapping) else None
        parts = iter([(0, np.arange(len(x)), x, offset)])
        seen_of = rows.get("y") if isinstance(rows, Mapping) else None
    for start, numbers, x, offset in parts:
        if regression is not None and regression.scales is not None:
            x = (x - regression.means) / regression.scales
        numbers = np.arange(start, start + len(x)) if numbers is None else numbers
        seen = None if seen_of is None else np.asarray(seen_of, np.float64)
        batch = array_rows(np.asarray(x, np.float64), offset, numbers, asked, start)
        yield _as_batch(batch, seen, None, beside_of(rows) if isinstance(rows, Mapping) else {})


def beside_of(rows: Mapping[str, Any]) -> dict[str, Floats]:
    """What rows tell of a response beside itself."""
    return {name: np.asarray(rows[name], np.float64) for name in BESIDE if name in rows}


def _as_batch(batch: NewRows, seen: Floats | None, mixed: Mixed | None, beside: Mapping[str, Floats]) -> RowBatch:
    x, offset = batch.inputs
    numbers = np.arange(len(x)) if batch.numbers is None else batch.numbers
    if mixed is None:
        return RowBatch(numbers, np.asarray(x, np.float64), offset, seen, beside=beside)
    own, codes = mixed.rows(batch)
    effects = {name: own[name] for name in own if name not in ("x", "offset")}
    return RowBatch(numbers, own["x"], np.asarray(offset, np.float64), seen, None, effects, codes, beside=beside)


def _seen(encoding: Any, column: Any) -> Floats:
    """A response of the table as numbers: a class by its place."""
    values = column.to_pylist() if hasattr(column, "to_pylist") else np.asarray(column).tolist()
    if encoding.classes is None:
        found: Floats = np.array([np.nan if each is None else each for each in values], np.float64)
    else:
        places = {each: place for place, each in enumerate(encoding.classes)}
        texts = {str(each): place for each, place in places.items()}
        found = np.array([places.get(each, texts.get(str(each), np.nan)) for each in values], np.float64)
    if np.any(np.isnan(found)):
        row = int(np.argmax(np.isnan(found)))
        got = f"{values[row]!r} in row {row} of a batch"
        raise DataError(explain(f"a response {encoding.response!r} as in the fit", got, "leave such rows out"))
    return found


def _split(batches: Iterator[RowBatch], size: int) -> Iterator[RowBatch]:
    for batch in batches:
        for start in range(0, len(batch), size):
            part = slice(start, start + size)
            yield RowBatch(
                batch.numbers[part],
                batch.x[part],
                batch.offset[part],
                None if batch.observed is None else batch.observed[part],
                None,
                {name: each[part] for name, each in batch.effects.items()},
                None if batch.groups is None else batch.groups[part],
                beside={name: each[part] for name, each in batch.beside.items()},
            )
