"""Streaming: from a formula and a table on disk to a design on disk, in memory that does not grow with the rows.

    survey    levels, bounds and the memory of transforms            none or one pass over the columns that are used
    measure   means and scales of columns and response, rank         one pass
    write     x, y, offset and weights, as the other door makes them one pass

Rows are in random order already, and stay in it. The design is kept, and found when the same is asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.formula.coding import LEVEL_LIMIT, Coding
from tallbayes.formula.designs import Place, size_of
from tallbayes.formula.encoding import Encoding, refuse_missing
from tallbayes.formula.expressions import Parsed
from tallbayes.formula.formula import (
    in_units,
    notes_of,
    numbers_beside,
    read_formula,
    require_terms,
    response_units,
)
from tallbayes.formula.outcomes import Outcome, read_outcome, response_numbers
from tallbayes.formula.standardising import Standardiser, require_rows
from tallbayes.formula.survey import CompleteRows, Learnt, survey
from tallbayes.model.weights import WEIGHT, require_weights
from tallbayes.rows.columns import kind_of
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.sources import Source
from tallbayes.rows.statistics import ColumnStatistics
from tallbayes.watch import begin

log = logging.getLogger("tallbayes")


@dataclass(frozen=True, eq=False)
class StoredDesign:
    """A design on disk: like `Design`, with a table for the arrays, in which `weights` names a field."""

    rows: Stored
    weights: str | None
    dropped: int
    encoding: Encoding
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.encoding.coding.names

    @property
    def intercept(self) -> bool:
        return self.encoding.coding.intercept


def build_stored_design(
    formula: str,
    source: Source,
    *,
    standardise: bool = True,
    missing: str = "error",
    weights: Any = None,
    offset: Any = None,
    response: str = "binary",
    standardise_response: bool = False,
) -> StoredDesign:
    """What `build_design` does, for a table on disk: weights and offset are names of its columns."""
    assert source.stored is not None
    beside = {"weights": weights, "offset": offset}
    parsed = read_formula(formula, source, beside, missing)
    _require_names(beside)
    asked = {
        "formula": formula,
        "standardise": standardise,
        "missing": missing,
        "weights": weights,
        "offset": offset,
        "response": response,
        "standardise_response": standardise_response,
    }
    place = Place(source.stored, asked)
    found = place.find()
    if found is None:
        columns = dict.fromkeys([*parsed.left_columns, *parsed.right_columns, *filter(None, beside.values())])
        source.require(list(columns))
        rows = CompleteRows(source.stored, tuple(columns))
        if missing == "error":
            refuse_missing({each.name: each.missing for each in _used(rows) if each.missing})
        measured = _measure(formula, parsed, survey(parsed, rows), asked)
        log.info("design: writing %s rows of %d columns", f"{measured.count:,}", len(measured.coding.names))
        begin("encoding columns", f"writing {len(measured.coding.names)} of them")
        document = measured.document()
        found = place.keep(document, measured.chunks()), document
    return _designed(*found)


def _require_names(beside: dict[str, Any]) -> None:
    for name, given in beside.items():
        if given is not None and not isinstance(given, str):
            hint = f"a column of it: {name}='{name}'"
            raise InputError(explain(f"{name} by name, for a table on disk", f"a {type(given).__name__}", hint))


def _used(rows: CompleteRows) -> list[Any]:
    columns = {column.name: column for column in rows.stored.columns}
    return [columns[name] for name in rows.columns]


def _designed(rows: Stored, document: dict[str, Any]) -> StoredDesign:
    note = f"design: {size_of(rows)} in {str(rows.path)!r}, found again when the same is asked; it may be removed"
    log.info("%s", note)
    fields = [field.name for field in rows.fields]
    return StoredDesign(
        rows=rows,
        weights=WEIGHT if WEIGHT in fields else None,
        dropped=int(document["dropped"]),
        encoding=Encoding.from_plain(document["encoding"]),
        notes=(*document["notes"], note),
    )


@dataclass(frozen=True, eq=False)
class Measured:
    """All that has to be known before the rows of a design can be written one batch after the other."""

    parsed: Parsed
    learnt: Learnt
    asked: dict[str, Any]
    encoding: Encoding
    levels: np.ndarray | None
    count: int
    notes: tuple[str, ...]

    @property
    def coding(self) -> Coding:
        return self.encoding.coding

    def document(self) -> dict[str, Any]:
        """What is kept beside the rows."""
        dropped = self.learnt.rows.stored.num_rows - self.count
        return {"encoding": self.encoding.to_plain(), "dropped": dropped, "notes": list(self.notes)}

    def chunks(self) -> Iterator[dict[str, np.ndarray]]:
        """The rows of the design."""
        for batch in self.learnt.rows:
            outcome = _outcome(self.parsed, self.learnt, batch, self.asked["response"], self.levels)
            rest = {"y": in_units(outcome.y, self.encoding) if self.asked["standardise_response"] else outcome.y}
            for field, name in (("offset", "offset"), (WEIGHT, "weights")):
                numbers = numbers_beside(name, self.asked[name], batch)
                if numbers is not None:
                    rest[field] = numbers / self.encoding.response_scale if field == "offset" else numbers
            for start, x in self._columns(batch):
                yield {"x": x, **{name: array[start : start + len(x)] for name, array in rest.items()}}

    def _columns(self, batch: Any) -> Iterator[tuple[int, np.ndarray]]:
        """Blocks of x; an intercept alone is a column of ones."""
        if not self.coding.names:
            yield 0, np.ones((batch.num_rows, 1), np.float32)
            return
        means, scales = np.array(self.encoding.means), np.array(self.encoding.scales)
        centred = self.asked["standardise"] and self.coding.intercept
        for start, block in self.coding.blocks(_right(self.parsed, batch)):
            x = (block - means) / scales if self.asked["standardise"] else block
            yield start, x.astype(np.float32) if centred else x


def _measure(formula: str, parsed: Parsed, learnt: Learnt, asked: dict[str, Any]) -> Measured:
    """One pass: the checks of the other door, and the means and scales that it finds."""
    coding, total = learnt.coding, learnt.rows.stored.num_rows
    require_terms(coding, formula)
    log.info("design: means and scales of %d columns over %s rows", len(coding.names), f"{total:,}")
    begin("encoding columns", f"means and scales of {len(coding.names)}")
    levels = _class_levels(parsed, learnt, asked["response"])
    moments, response, count = Standardiser(coding), ColumnStatistics(), 0
    outcome = None
    for batch in learnt.rows:
        outcome = _outcome(parsed, learnt, batch, asked["response"], levels)
        numbers_beside("offset", asked["offset"], batch)
        weights = numbers_beside("weights", asked["weights"], batch)
        if weights is not None:
            require_weights(weights)
        if asked["standardise_response"]:
            response.add(outcome.y[:, None])
        if coding.names:
            for _, block in coding.blocks(_right(parsed, batch)):
                moments.add(block)
        count += batch.num_rows
    assert outcome is not None
    require_rows(coding, count)
    means = scales = np.empty(0)
    if coding.names:
        means, scales = moments.units(*moments.settle(), asked["standardise"])
    encoding = Encoding(coding, tuple(means.tolist()), tuple(scales.tolist()), parsed.left, outcome.classes)
    notes = notes_of(parsed, outcome, total - count, total)
    if asked["standardise_response"]:
        mean = float(response.centre[0]) if coding.intercept else 0.0
        spread = float(np.sqrt(response.squares[0] / count))
        note = response_units(parsed.left, mean, spread, coding.intercept)
        encoding, notes = replace(encoding, response_mean=mean, response_scale=spread), (*notes, note)
    return Measured(parsed, learnt, asked, encoding, levels, count, (*notes, *learnt.notes))


def _right(parsed: Parsed, batch: Any) -> Any:
    return batch.select(parsed.right_columns or parsed.left_columns)


def _outcome(parsed: Parsed, learnt: Learnt, batch: Any, kind: str, levels: np.ndarray | None) -> Outcome:
    return read_outcome(parsed, batch, kind, learnt.states, levels)


def _class_levels(parsed: Parsed, learnt: Learnt, kind: str) -> np.ndarray | None:
    """The numbers that stand for classes, from a pass over the response alone; no more than are refused anyway."""
    if kind != "class":
        return None
    found = np.empty(0)
    for batch in learnt.rows:
        if parsed.is_column and kind_of(batch.column(parsed.left_columns[0])) == "categories":
            return None
        values = response_numbers(parsed, batch, learnt.states)
        found = np.union1d(found, values) if len(found) else np.unique(values)
        if len(found) > LEVEL_LIMIT:
            break
    return found
