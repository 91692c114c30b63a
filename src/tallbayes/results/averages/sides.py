"""Sides: the rows of a table with one column changed in two ways, as a family's linear predictor reads them.

    an effect      the column is `high` in every row, against `low`
    a slope        the column is x + h against x - h, h a hundred-thousandth of its sd, within the column's range

The column is changed in the table, and the table is encoded again: interactions, splines and transforms follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.moments import Floats, Moments
from tallbayes.results.fitted import FitTable, fitted_of
from tallbayes.results.new_rows import Asked, NewRows, encoded_rows
from tallbayes.results.result import Result
from tallbayes.rows.columns import BATCH_ROWS, is_number, is_text, missing_rows, require
from tallbayes.rows.sources import Source, no_such_column, open_source

if TYPE_CHECKING:
    from tallbayes.formula.encoding import Encoding

STEP = 1e-5
WEIGHT = "__weight__"


class Sides(NamedTuple):
    """A batch of rows: x (2, rows, d) and offsets (2, rows) as changed to low and to high, the weight of every row,
    what its difference is divided by, and its level of `by`."""

    x: Floats
    offsets: Floats
    weights: Floats
    divisors: Floats
    levels: np.ndarray


@dataclass(frozen=True)
class Change:
    """What is changed: a column, by name or number; to which values, or for a slope by no more than a step; by what
    column rows are told apart."""

    column: Any
    low: Any = None
    high: Any = None
    is_slope: bool = False
    by: Any = None

    def sides(self, column: Floats, reach: Reach | None) -> tuple[Any, Any, Floats]:
        """Its low and high values, and what a difference is divided by."""
        if reach is None:
            ones = np.ones(len(column))
            return self.low, self.high, ones
        low, high = np.maximum(column - reach.step, reach.least), np.minimum(column + reach.step, reach.most)
        return low, high, high - low


@dataclass(frozen=True, eq=False)
class ChangedRows:
    """A batch of rows as any kind of model reads them: a pytree of (rows, 2, ...), low and high side by side, with
    weights, divisors and levels as in `Sides`; and where the groups of the rows are among those that are known."""

    rows: Any
    weights: Floats
    divisors: Floats
    levels: np.ndarray
    places: np.ndarray | None = None


class Reach(NamedTuple):
    """The range of a column, and the step of a slope in it."""

    least: float
    most: float
    step: float


class ChangedBatch(NamedTuple):
    """Rows of a table changed to low and to high, as an encoding reads them."""

    low: NewRows
    high: NewRows
    weights: Floats
    divisors: Floats
    levels: np.ndarray


def sides_of(result: Result, change: Change, rows: Any = None) -> Iterator[Sides]:
    """Of the rows that were fitted, or of others, batch by batch."""
    if result.encoding is None:
        return _numeric(result, change, rows)
    return (_side_by_side(batch) for batch in batches_of(result, change, rows))


def batches_of(result: Result, change: Change, rows: Any = None) -> Iterator[ChangedBatch]:
    """The same of a fit by a formula, as its encoding reads them."""
    from tallbayes.formula.encoding import Encoding

    assert result.encoding is not None
    encoding = Encoding.from_plain(result.encoding)
    kept = result.fit_table
    if rows is None and kept is None:
        got = "a result that does not know it any longer, as one read from a file"
        raise InputError(explain("the table that was fitted", got, "rows=table, or a run whose table is in its place"))
    return _encoded(encoding, change, FitTable(rows) if rows is not None or kept is None else kept, kept)


def _side_by_side(batch: ChangedBatch) -> Sides:
    x, offsets = (np.stack(each) for each in zip(batch.low.inputs, batch.high.inputs, strict=True))
    return Sides(x, offsets, *batch[2:])


def _encoded(encoding: Encoding, change: Change, table: FitTable, fitted: FitTable | None) -> Iterator[ChangedBatch]:
    source = open_source(table.data)
    offset, weights = encoding.offset, table.weights
    if table is not fitted and fitted is not None and isinstance(fitted.weights, str):
        # Of other rows weights are those of the same column, if there is one.
        weights = fitted.weights if fitted.weights in source.names else None
    _require_read(encoding, change.column)
    grouped = [name for group in encoding.groups for name in group.columns]
    read = [*encoding.coding.kinds, *encoding.offset_columns, *grouped, *([offset] if offset else [])]
    beside = [each for each in (change.by, weights) if isinstance(each, str)]
    for each in beside:
        if each not in source.names:
            raise no_such_column(each, source.names, source.label)
    if encoding.response in source.names:
        # Rows without a response were left out of the fit.
        beside.append(encoding.response)
    wanted = list(dict.fromkeys([*read, *beside]))
    reach = _reach(source, change.column) if change.is_slope else None
    start = 0
    for piece in source.pieces(wanted):
        stays = ~np.any([np.zeros(piece.num_rows, bool), *missing_rows(piece).values()], axis=0)
        places = start + np.flatnonzero(stays)
        start += piece.num_rows
        if not len(places):
            continue
        kept = piece.filter(require("pyarrow").array(stays)).combine_chunks()
        asked = Asked(offset=_given_offset(encoding, table, places), precise=True)
        own = _values(kept, change.column) if reach is not None else np.zeros(len(places))
        low, high, divisors = change.sides(own, reach)
        first, second = (_with_column(encoding, _changed(kept, change.column, each), asked) for each in (low, high))
        w = np.ones(len(places)) if weights is None else _weights(kept, weights, places)
        by = np.zeros(len(places), np.int64) if change.by is None else _labels(kept, change.by)
        yield ChangedBatch(first, second, w, divisors, by)


def _require_read(encoding: Encoding, column: Any) -> None:
    effects = [name for group in encoding.groups for name in group.coding.kinds]
    read = tuple(dict.fromkeys([*encoding.coding.kinds, *effects]))
    if column in (*read, *encoding.offset_columns):
        return
    among = f"one of {', '.join(read)}" if read else "there is none"
    if any(column in group.term.by for group in encoding.groups):
        among += f"; of two groups result.compare({column!r}, a, b)"
    raise InputError(explain("a column that the formula reads", repr(column), among))


def _given_offset(encoding: Encoding, table: FitTable, places: np.ndarray) -> Any:
    if encoding.offset != "" or table.offset is None:
        return None
    return np.asarray(table.offset, np.float64)[places]


def _with_column(encoding: Encoding, rows: Any, asked: Asked) -> NewRows:
    """Rows that are complete."""
    parts = list(encoded_rows(encoding, rows, asked))
    if len(parts) == 1:
        return parts[0]
    x, offsets = (np.concatenate(each) for each in zip(*(part.inputs for part in parts), strict=True))
    groups = [
        replace(each[0], codes=np.concatenate([g.codes for g in each]), z=np.concatenate([g.z for g in each]))
        for each in zip(*(part.groups for part in parts), strict=True)
    ]
    return replace(parts[0], inputs=(x, offsets), groups=tuple(groups))


def _changed(rows: Any, name: str, values: Any) -> Any:
    """The table with other values in a column, of its own type where they are of it."""
    arrow = require("pyarrow")
    kind = rows.schema.field(name).type
    kind = kind.value_type if arrow.types.is_dictionary(kind) else kind
    if np.ndim(values):
        column = arrow.array(values)
    else:
        plain = values.item() if isinstance(values, np.generic) else values
        if isinstance(plain, str) and is_number(plain) and not is_text(kind):
            plain = float(plain)
        try:
            column = arrow.repeat(arrow.scalar(plain, kind), rows.num_rows)
        except (arrow.ArrowException, TypeError, ValueError):
            column = arrow.repeat(arrow.scalar(plain), rows.num_rows)
    return rows.set_column(rows.column_names.index(name), name, column)


def _values(rows: Any, name: str) -> Floats:
    try:
        return np.asarray(rows.column(name).to_numpy(zero_copy_only=False), np.float64)
    except (TypeError, ValueError) as error:
        hint = f"average_effect({name!r}, a, b) of two of its values"
        raise DataError(explain("a column of numbers for a slope", repr(name), hint)) from error


def _weights(rows: Any, weights: Any, places: np.ndarray) -> Floats:
    return _values(rows, weights) if isinstance(weights, str) else np.asarray(weights, np.float64)[places]


def _labels(rows: Any, name: str) -> np.ndarray:
    column = rows.column(name)
    if require("pyarrow").types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return np.array(column.to_pylist(), object)


def _reach(source: Source, name: str) -> Reach:
    """One pass over the column."""
    return reach_of(name, (_values(piece.drop_null(), name) for piece in source.pieces([name])))


def reach_of(name: Any, parts: Iterator[Floats]) -> Reach:
    """Of values that come in parts."""
    found, least, most = None, np.inf, -np.inf
    for values in parts:
        if len(values):
            own = Moments.of(values[:, None])
            found = own if found is None else found.merge(own)
            least, most = min(least, float(values.min())), max(most, float(values.max()))
    if not most > least:
        raise DataError(explain(f"a column {name!r} that varies", "one value alone", "average_effect of two values"))
    assert found is not None
    # About a large number a step is no smaller than that number's rounding.
    return Reach(least, most, max(STEP * float(np.sqrt(found.variance[0])), 2.0**-30 * max(abs(least), abs(most))))


def _numeric(result: Result, change: Change, rows: Any) -> Iterator[Sides]:
    """Of arrays, a column by its number, in the units of the owner."""
    x, offset, weights = _arrays(result, rows)
    count, columns = x.shape[0], x.shape[1]
    for name in (change.column, *([] if change.by is None else [change.by])):
        if isinstance(name, bool) or not isinstance(name, int | np.integer) or not 0 <= name < columns:
            raise InputError(explain(f"a column by its number, 0 to {columns - 1}", repr(name), "0"))
    means, scales = np.zeros(columns), np.ones(columns)
    regression = result.regression
    if regression is not None and regression.scales is not None and regression.means is not None:
        means, scales = np.asarray(regression.means), np.asarray(regression.scales)
    reach = _array_reach(x, change.column, means, scales) if change.is_slope else None
    for start in range(0, count, BATCH_ROWS):
        part = np.asarray(x[start : start + BATCH_ROWS], np.float64)
        own = means[change.column] + scales[change.column] * part[:, change.column]
        low, high, divisors = change.sides(own, reach)
        both = np.stack([part, part])
        for side, value in enumerate((low, high)):
            both[side, :, change.column] = (value - means[change.column]) / scales[change.column]
        offsets, w = (
            np.full(len(part), default) if each is None else np.asarray(each[start : start + BATCH_ROWS], np.float64)
            for each, default in ((offset, 0.0), (weights, 1.0))
        )
        by = np.zeros(len(part), np.int64)
        if change.by is not None:
            by = np.round(means[change.by] + scales[change.by] * part[:, change.by], 9).astype(object)
        yield Sides(both, np.stack([offsets, offsets]), w, divisors, by)


def _arrays(result: Result, rows: Any) -> tuple[Any, Any, Any]:
    """x as it was fitted, offsets and weights: of the fit, or of rows that are given in their owner's units."""
    if rows is None:
        table = fitted_of(result).table
        fields = {name: np.asarray(leaf)[: table.num_rows] for name, leaf in table.rows.items()}
        return fields["x"], fields.get("offset"), fields.get(WEIGHT)
    given = rows if isinstance(rows, Mapping) else {"x": rows}
    x, regression = np.asarray(given["x"], np.float64), result.regression
    if x.ndim != 2 or not np.all(np.isfinite(x)):
        raise DataError(explain("x of shape (N, d), of finite numbers", f"shape {x.shape}", "one row an observation"))
    if regression is not None and regression.scales is not None and regression.means is not None:
        x = (x - regression.means) / regression.scales
    return x, given.get("offset"), None


def _array_reach(x: Any, column: int, means: Floats, scales: Floats) -> Reach:
    parts = (np.asarray(x[start : start + BATCH_ROWS, column], np.float64) for start in range(0, len(x), BATCH_ROWS))
    return reach_of(column, (means[column] + scales[column] * part for part in parts))
