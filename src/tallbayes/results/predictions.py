"""Predictions for new rows, in the terms of the fit: from a table, from arrays, or from one file into another.

result.predict(rows)                      posterior mean of the response (or of every class), its sd, its errors
result.predict("new.parquet", out="predictions.parquet")      a batch at a time, in memory that does not grow
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.model.linear import Layout
from tallbayes.model.links import Wanted
from tallbayes.moments import Floats
from tallbayes.posterior.prediction import Prediction
from tallbayes.posterior.predictor import FamilyResponse, OwnResponse, Predictor, make_predictor
from tallbayes.results.result import Result, family_of, kept_posterior

if TYPE_CHECKING:
    from tallbayes.formula.encoding import Encoding


def predict(
    result: Result,
    rows: Any,
    *,
    at_least: int | Sequence[int] | None = None,
    offset: Any = None,
    out: str | os.PathLike[str] | None = None,
) -> Any:
    """See `Result.predict`."""
    ks = () if at_least is None else tuple(int(k) for k in np.atleast_1d(at_least))
    kind = _kind(result, ks)
    if out is not None:
        return _write(predict_batches(result, rows, at_least=at_least, offset=offset), Path(out))
    parts = list(_stream(result, kind, rows, offset))
    if not parts:
        raise DataError(explain("at least one row", "0 rows", "check the table"))
    return _named(result, kind, Prediction.joined(parts), ks)


def _kind(result: Result, ks: tuple[int, ...]) -> FamilyResponse | OwnResponse:
    live = kept_posterior(result).live
    regression, family = result.regression, family_of(result)
    if regression is not None and family is not None:
        if ks and family.tail is None:
            raise InputError(explain("at_least for counts", f"family {family.name!r}", "leave it out"))
        layout = Layout(regression.heads, regression.intercept, regression.extras)
        return FamilyResponse(Wanted(family.name, ks), layout)
    if live is None or live[0].predict is None:
        hint = "tb.Model(..., predict=lambda theta, row: ...), in the process that made the result"
        raise InputError(explain("a model that says what to predict", "one that does not", hint))
    if ks:
        raise InputError(explain("at_least for counts of a family", "a model of its own", "predict P(y >= k) itself"))
    return OwnResponse(live[0], live[0].predict)


def _stream(result: Result, kind: Any, rows: Any, offset: Any) -> Iterator[Prediction]:
    predictor: Predictor | None = None
    for part in _inputs(result, kind, rows, offset):
        predictor = predictor or make_predictor(kept_posterior(result), kind, part)
        yield predictor.all(part)


def _inputs(result: Result, kind: Any, rows: Any, offset: Any) -> Iterator[Any]:
    """What the kind reads, part by part of the rows."""
    if result.encoding is not None:
        from tallbayes.formula.encoding import Encoding

        yield from _encoded(Encoding.from_plain(result.encoding), rows, offset)
        return
    if isinstance(kind, OwnResponse):
        import jax

        yield jax.tree.map(np.asarray, rows)
        return
    x = np.asarray(rows["x"] if isinstance(rows, Mapping) else rows)
    columns = _columns_of(result)
    if x.ndim != 2 or x.shape[1] != columns:
        raise DataError(explain(f"x of shape (N, {columns})", f"shape {x.shape}", "one row a prediction: x[None]"))
    if not np.all(np.isfinite(x)):
        row = int(np.argmin(np.isfinite(x).all(axis=1)))
        raise DataError(explain("finite numbers in x", f"others in row {row}", "leave such rows out"))
    given = rows.get("offset", offset) if isinstance(rows, Mapping) else offset
    regression = result.regression
    if regression is not None and regression.scales is not None:
        x = (x - regression.means) / regression.scales
    yield x, _offsets(given, len(x))


def _columns_of(result: Result) -> int:
    regression, size = result.regression, len(kept_posterior(result).anchor.mode)
    assert regression is not None
    return (size - regression.extras) // regression.heads - regression.intercept


def _encoded(encoding: Encoding, rows: Any, offset: Any) -> Iterator[Any]:
    from tallbayes.formula.encoding import offset_of
    from tallbayes.rows.sources import open_source

    wanted = list(encoding.coding.kinds)
    column = offset if isinstance(offset, str) else encoding.offset if offset is None else None
    if column == "":
        raise InputError(explain("offset=, since the fit had one", "none", "an array, or the name of a column"))
    start = 0
    beside = [*encoding.offset_columns, *([column] if column else [])]
    for batch in open_source(_as_table(rows)).batches([*wanted, *beside] or None):
        x = encoding.encode(batch.select(wanted) if wanted else batch)
        x = np.ones((len(x), 1)) if x.shape[1] == 0 else x
        given = np.asarray(batch.column(column), np.float64) if column else None
        if column is None and offset is not None:
            given = np.asarray(offset, np.float64)[start : start + len(x)]
        start += len(x)
        offsets = _offsets(given, len(x))
        if encoding.offset_terms:
            offsets = offsets + offset_of(encoding.offset_terms, encoding.offset_columns, batch)
        yield x, offsets / encoding.response_scale


def _as_table(rows: Any) -> Any:
    """One row may be given as a dict of values, several as a list of such dicts."""
    if isinstance(rows, Mapping) and rows and all(np.ndim(value) == 0 for value in rows.values()):
        rows = [rows]
    if isinstance(rows, list | tuple) and rows and all(isinstance(row, Mapping) for row in rows):
        return {name: [row.get(name) for row in rows] for name in rows[0]}
    return rows


def _offsets(given: Any, count: int) -> Floats:
    if given is None:
        return np.zeros(count)
    offsets = np.broadcast_to(np.asarray(given, np.float64), (count,)) if np.ndim(given) == 0 else np.asarray(given)
    if offsets.shape != (count,) or not np.all(np.isfinite(offsets)):
        raise DataError(
            explain(f"a finite offset for each of {count} rows", f"shape {offsets.shape}", "one number a row")
        )
    return offsets.astype(np.float64)


def _named(result: Result, kind: Any, found: Prediction, ks: tuple[int, ...]) -> Prediction:
    """In the units of the response, with classes and P(y >= k) by their names."""
    scale, shift, classes = 1.0, 0.0, None
    if result.regression is not None:
        scale, shift = result.regression.response_scale, result.regression.response_mean
    if result.encoding is not None:
        scale, shift = result.encoding["response_scale"], result.encoding["response_mean"]
        classes = None if result.encoding["classes"] is None else tuple(result.encoding["classes"])
    count = found.mean.shape[1] - len(ks)
    answer = found.outputs(slice(count)) if count > 1 else found.outputs(0).scaled(scale, shift)
    tails = {k: found.outputs(count + place) for place, k in enumerate(ks)}
    return replace(answer, classes=classes, at_least=tails)


def predict_batches(result: Result, rows: Any, *, at_least: Any = None, offset: Any = None) -> Iterator[Prediction]:
    """Predictions a batch of rows at a time, in order."""
    ks = () if at_least is None else tuple(int(k) for k in np.atleast_1d(at_least))
    kind = _kind(result, ks)
    for found in _stream(result, kind, rows, offset):
        yield _named(result, kind, found, ks)


def _write(parts: Iterator[Prediction], path: Path) -> int:
    """Into a file, a batch at a time; the number of rows."""
    from tallbayes.rows.atomic import replacing
    from tallbayes.rows.columns import require
    from tallbayes.rows.formats import WRITERS

    arrow = require("pyarrow")
    if path.suffix not in WRITERS:
        raise InputError(explain(f"out ending in {' or '.join(WRITERS)}", repr(path.name), "predictions.parquet"))
    count, writer = 0, None
    with replacing(path) as partial:
        try:
            for part in parts:
                table = arrow.table(part.columns())
                writer = writer or WRITERS[path.suffix](partial, table.schema)
                writer.write_table(table)
                count += table.num_rows
        finally:
            if writer is not None:
                writer.close()
        if not count:
            raise DataError(explain("at least one row", "0 rows", "check the table"))
    return count
