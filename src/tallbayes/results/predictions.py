"""Predictions for new rows, in the terms of the fit: from a table, from arrays, or from one file into another.

result.predict(rows)                      posterior mean of the response (or of every class), its sd, its errors
result.predict("new.parquet", out="predictions.parquet")      a batch at a time, in memory that does not grow

What is read of the rows is in `new_rows`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.model.catalogue import Family
from tallbayes.model.links import Wanted
from tallbayes.model.noise import Noise
from tallbayes.model.parts.laws import LAWS
from tallbayes.posterior.observations import make_observer
from tallbayes.posterior.prediction import ARRAYS, ROW, Observation, Prediction, Unpredicted
from tallbayes.posterior.predictor import FamilyResponse, OfTheta, OwnResponse, Predictor, make_predictor
from tallbayes.results.draws.observations import drawn_observer
from tallbayes.results.fitted import excess_width, family_of, has_smooths, kept_posterior
from tallbayes.results.groups.predictions import mixed_stream, own_stream
from tallbayes.results.new_rows import Asked, NewRows, array_rows, encoded_rows, kept_arrays, notes_of, stored_parts
from tallbayes.results.result import Result
from tallbayes.results.smooths.predictions import smooth_stream
from tallbayes.rows.atomic import replacing
from tallbayes.rows.columns import one_line, require
from tallbayes.rows.formats import WRITERS
from tallbayes.rows.on_disk import Stored


def predict(
    result: Result,
    rows: Any,
    *,
    at_least: int | Sequence[int] | None = None,
    offset: Any = None,
    out: str | os.PathLike[str] | None = None,
    keep: str | Sequence[str] = (),
    missing: str = "error",
    unknown: str = "error",
    interval: float | None = 0.95,
) -> Any:
    """See `Result.predict`."""
    asked: dict[str, Any] = {"keep": keep, "missing": missing, "unknown": unknown, "interval": interval}
    parts = predict_batches(result, rows, at_least=at_least, offset=offset, **asked)
    if out is not None:
        return _write(parts, Path(out))
    found = list(parts)
    if not found:
        raise DataError(explain("at least one row", "0 rows", "check the table"))
    return Prediction.joined(found)


def predict_batches(
    result: Result,
    rows: Any,
    *,
    at_least: Any = None,
    offset: Any = None,
    keep: str | Sequence[str] = (),
    missing: str = "error",
    unknown: str = "error",
    interval: float | None = 0.95,
) -> Iterator[Prediction]:
    """Predictions a batch of rows at a time, in order."""
    ks = () if at_least is None else tuple(int(k) for k in np.atleast_1d(at_least))
    asked = Asked((keep,) if isinstance(keep, str) else tuple(keep), missing, unknown, offset)
    if interval is not None and not 0 < interval < 1:
        raise InputError(explain("interval between 0 and 1", repr(interval), "0.95, or None for no interval"))
    grouped = _grouped(result, rows, asked, ks, interval)
    if grouped is not None:
        return (_of_batch(_named(result, found, seen, ks), batch) for batch, found, seen in grouped)
    kind = _kind(result, ks)
    return _stream(result, kind, _inputs(result, kind, rows, asked), ks, interval)


def _grouped(result: Result, rows: Any, asked: Asked, ks: tuple[int, ...], interval: float | None) -> Any:
    """The stream of a model with groups or smooths; None of one without."""
    if result.encoding is not None:
        if "groups" not in result.encoding and not has_smooths(result):
            return None
        from tallbayes.formula.encoding import Encoding

        kept_posterior(result)
        _require_counts(family_of(result), ks)
        encoding = Encoding.from_plain(result.encoding)
        if not encoding.groups:
            return smooth_stream(result, encoded_rows(encoding, rows, asked), ks, _noise(result), interval)
        return mixed_stream(result, encoding, encoded_rows(encoding, rows, asked), ks, interval)
    live = kept_posterior(result).live
    if live is None or live[0].integrated is None:
        return None
    if ks:
        raise InputError(explain("at_least for counts of a family", "a model of its own", "predict P(y >= k) itself"))
    return own_stream(result, rows, asked)


def _require_counts(family: Family | None, ks: tuple[int, ...]) -> None:
    if ks and family is not None and family.tail is None:
        raise InputError(explain("at_least for counts", f"family {family.name!r}", "leave it out"))


def _kind(result: Result, ks: tuple[int, ...]) -> FamilyResponse | OwnResponse:
    live = kept_posterior(result).live
    regression, family = result.regression, family_of(result)
    if regression is not None and family is not None:
        _require_counts(family, ks)
        layout = regression.layout
        return FamilyResponse(Wanted(family.name, ks, excess_width(result)), layout)
    if live is None or live[0].predict is None:
        hint = "tb.Model(..., predict=lambda theta, row: ...), in the process that made the result"
        raise InputError(explain("a model that says what to predict", "one that does not", hint))
    if ks:
        raise InputError(explain("at_least for counts of a family", "a model of its own", "predict P(y >= k) itself"))
    return OwnResponse(OfTheta(live[0], live[0].predict))


def _stream(
    result: Result, kind: Any, batches: Iterator[NewRows], ks: tuple[int, ...], interval: float | None
) -> Iterator[Prediction]:
    predictor: Predictor | None = None
    posterior = kept_posterior(result)
    observer = _observer(result, kind, interval)
    for batch in batches:
        if batch.usable.any():
            predictor = predictor or make_predictor(posterior, kind, batch.inputs)
            found = predictor.all(batch.inputs)
        else:
            found = _nothing(kind)
        observation = None if observer is None else observer(found, batch.inputs)
        yield _of_batch(_named(result, found, observation, ks), batch)


def _observer(result: Result, kind: Any, interval: float | None) -> Callable[[Prediction, Any], Observation] | None:
    """What tells of new observations; nothing of classes, and of a loss."""
    family = family_of(result)
    if family is None or (family.is_plain and family.name not in LAWS):
        return make_observer(kept_posterior(result), kind, _noise(result), interval)
    return None if family.pseudo or family.has_classes else drawn_observer(result, kind.layout, interval)


def _nothing(kind: FamilyResponse) -> Prediction:
    """Of no row at all."""
    arrays: list[Any] = [np.empty((0, kind.outputs + len(kind.wanted.at_least)))] * len(ARRAYS)
    return Prediction(*arrays)


def _noise(result: Result) -> Noise | None:
    """How y scatters in a family; files of before do not say which degrees of freedom there were."""
    regression = result.regression
    if regression is None or (regression.family == "student_t" and regression.degrees_of_freedom is None):
        return None
    return Noise(regression.family, regression.noise_scale, regression.degrees_of_freedom)


def _of_batch(found: Prediction, batch: NewRows) -> Prediction:
    """With what belongs to the rows, and NaN for those that could not be predicted."""
    twice = [name for name in batch.kept if name in (ROW, *found.numbers())]
    if twice:
        got = f"{twice[0]!r}, which a prediction has itself"
        raise InputError(explain("columns of other names to keep", got, "rename it in the table"))
    whole = found if batch.usable.all() else found.spread_out(batch.usable)
    lost, notes = batch.unpredicted, batch.notes
    return replace(whole, rows=batch.numbers, kept=batch.kept, unpredicted=lost, notes=notes)


def _inputs(result: Result, kind: Any, rows: Any, asked: Asked) -> Iterator[NewRows]:
    """What the kind reads, part by part of the rows."""
    if result.encoding is not None:
        from tallbayes.formula.encoding import Encoding

        yield from encoded_rows(Encoding.from_plain(result.encoding), rows, asked)
        return
    if isinstance(kind, OwnResponse):
        import jax

        own = {name: each for name, each in rows.items() if name not in asked.keep} if asked.keep else rows
        inputs = jax.tree.map(np.asarray, own)
        count = len(jax.tree.leaves(inputs)[0])
        kept = kept_arrays(asked.keep, rows, count)
        yield NewRows(inputs, np.ones(count, bool), np.arange(count), kept, Unpredicted())
        return
    if isinstance(rows, Stored):
        for start, numbers, x, given in stored_parts(rows, asked):
            found = _numeric(result, x, given if asked.offset is None else asked.offset, numbers, asked, start)
            yield replace(found, notes=notes_of(rows))
        return
    x = np.asarray(rows["x"] if isinstance(rows, Mapping) else rows)
    given = rows.get("offset", asked.offset) if isinstance(rows, Mapping) else asked.offset
    found = _numeric(result, x, given, np.arange(len(x)) if x.ndim else None, asked, 0)
    yield replace(found, kept=kept_arrays(asked.keep, rows, len(x)))


def _numeric(
    result: Result, x: np.ndarray, offset: Any, numbers: np.ndarray | None, asked: Asked, start: int
) -> NewRows:
    columns, regression = _columns_of(result), result.regression
    if x.ndim != 2 or x.shape[1] != columns:
        raise DataError(explain(f"x of shape (N, {columns})", f"shape {x.shape}", "one row a prediction: x[None]"))
    found = array_rows(x, offset, numbers, asked, start)
    if regression is None or regression.scales is None:
        return found
    left, offsets = found.inputs
    return replace(found, inputs=((left - regression.means) / regression.scales, offsets))


def _columns_of(result: Result) -> int:
    regression, size = result.regression, len(kept_posterior(result).anchor.mode)
    assert regression is not None
    return (size - regression.extras) // regression.heads - regression.intercept


def _named(result: Result, found: Prediction, observation: Observation | None, ks: tuple[int, ...]) -> Prediction:
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
    observed = None if observation is None else observation.scaled(scale, shift)
    return replace(answer, classes=classes, at_least=tails, observation=observed)


class RowCount(int):
    """The number of rows that were written: an int, which it has always been, that knows how many of them are NaN."""

    unpredicted: Unpredicted
    remarks: tuple[str, ...]


def _write(parts: Iterator[Prediction], path: Path) -> RowCount:
    """Into a file, a batch at a time; the number of rows."""
    if path.suffix not in WRITERS:
        raise InputError(explain(f"out ending in {' or '.join(WRITERS)}", repr(path.name), "predictions.parquet"))
    count, unpredicted = 0, Unpredicted()
    remarks: tuple[str, ...] = ()
    schema, writer = None, None
    with replacing(path) as partial:
        try:
            for part in parts:
                table = _as_written(part, schema)
                if writer is None:
                    schema, writer = table.schema, WRITERS[path.suffix](partial, table.schema)
                writer.write_table(table)
                count, unpredicted = count + len(part), unpredicted + part.unpredicted
                remarks = replace(part, unpredicted=unpredicted).remarks
        finally:
            if writer is not None:
                writer.close()
        if not count:
            raise DataError(explain("at least one row", "0 rows", "check the table"))
    found = RowCount(count)
    found.unpredicted, found.remarks = unpredicted, remarks
    return found


def _as_written(part: Prediction, schema: Any) -> Any:
    """An Arrow table with the types of the first one; categories as the text that they are."""
    arrow = require("pyarrow")
    columns: dict[str, Any] = dict(part.columns())
    for name in part.kept:
        values = columns[name] if isinstance(columns[name], arrow.ChunkedArray) else arrow.array(columns[name])
        if arrow.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        columns[name] = values.cast(arrow.string()) if arrow.types.is_null(values.type) else values
    table = arrow.table(columns)
    if schema is None or table.schema == schema:
        return table
    try:
        return table.cast(schema)
    except arrow.ArrowInvalid as error:
        hint = "the same type in all rows, e.g. text; Parquet tells it beforehand"
        raise DataError(explain("columns to keep that are of one type", one_line(error), hint)) from error
