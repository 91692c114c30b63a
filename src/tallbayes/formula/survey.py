"""Surveys: the coding of a formula from the rows of a table on disk, of which only a part is ever held.

A table on disk is shuffled: its first rows are a random sample. A coding is learnt from these, and from the few rows
beside them that hold the least or the largest argument of a spline, or a label that is not among them. So levels and
bounds are those of all rows; means and polynomials follow from sums over all. What is left to the sample are quantiles,
the knots of splines; notes say so.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from tallbayes.formula.coding import Coding, learn
from tallbayes.formula.encoding import none_complete
from tallbayes.formula.expressions import Parsed, read_expression
from tallbayes.formula.functions.evaluation import evaluate_expression, terms_of
from tallbayes.formula.functions.names import INDEXED_LIMIT
from tallbayes.formula.transforms import Call, TransformSums, calls_of, sums_for
from tallbayes.rows.columns import complete_rows, cut_levels, kind_of, levels_of, require
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.packing import column_of, packed_batches
from tallbayes.watch import begin_pass, count_rows

SAMPLE_ROWS = 2**18
THOROUGH = 64
# What float32 may have changed in an expression, as a part of its value.
ROUNDING = 2.0**-22

log = logging.getLogger("tallbayes")


@dataclass(frozen=True)
class CompleteRows:
    """The rows of a table on disk that miss nothing in some columns, a batch at a time, as often as they are wanted.

    `levels` are those that are left of a text; rows before the `start` are left out.
    """

    stored: Stored
    columns: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    start: int = 0

    @property
    def missing(self) -> dict[str, int]:
        """Missing values by column, those without any left out."""
        counts = {name: column_of(self.stored, name).missing for name in self.columns}
        return {name: count for name, count in counts.items() if count}

    @property
    def drops(self) -> bool:
        return bool(self.missing)

    def __iter__(self) -> Iterator[Any]:
        begin_pass(self.stored.num_rows - self.start)
        for number, batch in enumerate(packed_batches(self.stored, self.columns, first=self.start), start=1):
            count_rows(batch.num_rows)
            whole = complete_rows(batch) if self.drops else batch
            if whole.num_rows:
                yield with_levels(whole, self.levels)
            # What formulaic leaves behind of a batch refers to itself, and would pile up. It is young, so that this is
            # quick; what has been taken for old in the meantime waits for a thorough look.
            gc.collect(2 if number % THOROUGH == 0 else 1)

    def first(self, count: int) -> Any:
        """At least so many of the first rows in one table, or all that there are."""
        parts, found = [], 0
        for batch in self:
            parts.append(batch)
            found += batch.num_rows
            if found >= count:
                break
        if not parts:
            raise none_complete(self.stored.num_rows)
        return require("pyarrow").concat_tables(parts)


@dataclass(frozen=True)
class Learnt:
    """What all rows say of a formula: the coding of its right side, the memory of its left side, and the rows to read.

    `notes` say what only a sample has told.
    """

    coding: Coding
    states: dict[str, Any]
    rows: CompleteRows
    notes: tuple[str, ...] = ()


def survey(parsed: Parsed, rows: CompleteRows, indexing: bool = True) -> Learnt:
    """Learn a formula from rows, in one pass over them if its terms ask for that, else from the first."""
    factors = dict.fromkeys(factor for term in terms_of(parsed.right) for factor in term.factors)
    right = [factor.expr for factor in factors if factor.eval_method.value != "literal"]
    texts = [*right, *parsed.left_parts]
    names = rows.columns
    calls = calls_of([text for text in texts if text not in names], names)
    if rows.stored.num_rows <= SAMPLE_ROWS:
        return _learn(parsed, rows, calls, cut_levels(rows.first(SAMPLE_ROWS)), indexing)
    if not calls and not rows.drops:
        return _learn(parsed, rows, calls, rows.first(1), indexing)
    log.info("design: surveying %s rows", f"{rows.stored.num_rows:,}")
    sample = rows.first(SAMPLE_ROWS)
    looks = _look_at_all(rows, calls, sample, _remembered(calls, texts, sample))
    extra = [part for look in looks.values() for part in look.kept]
    table = cut_levels(require("pyarrow").concat_tables([sample, *extra]))
    exact = {key: look.sums.memory() for key, look in looks.items() if isinstance(look, _Total)}
    learnt = _learn(parsed, rows, calls, table, indexing, exact)
    quantiles = [call.key for call in calls if call.needs_all_rows]
    if not quantiles:
        return learnt
    note = f"transforms: {', '.join(quantiles)} learnt from {sample.num_rows:,} rows drawn at random, and all extremes"
    return replace(learnt, notes=(note,))


def _learn(
    parsed: Parsed,
    rows: CompleteRows,
    calls: tuple[Call, ...],
    table: Any,
    indexing: bool,
    exact: Mapping[str, Any] | None = None,
) -> Learnt:
    """The coding that a table tells, with what is known exactly in place of what the table tells."""

    def put_right(states: dict[str, Any]) -> dict[str, Any]:
        return _widened({key: (exact or {}).get(key, state) for key, state in states.items()}, calls, rows)

    right = table.select(parsed.right_columns or parsed.left_columns)
    coding = learn(parsed.right, parsed.right_columns, right, indexing)
    states: dict[str, Any] = {}
    for part in parsed.left_parts:
        states |= evaluate_expression(part, table.select(parsed.left_columns)).model_spec.transform_state
    texts = [name for name in table.column_names if kind_of(table.column(name)) == "categories"]
    return Learnt(
        replace(coding, states=put_right(coding.states)),
        put_right(states),
        replace(rows, levels={name: levels_of(table.column(name)) for name in texts}),
    )


def _widened(states: dict[str, Any], calls: tuple[Call, ...], rows: CompleteRows) -> dict[str, Any]:
    """Splines whose ends leave room for what float32 has rounded: new rows may hold the same values unrounded."""
    fields = {field.name: field.dtype for field in rows.stored.fields}
    single = {column.name for column in rows.stored.columns if fields[column.field] == "float32"}
    found = dict(states)
    for call in calls:
        state = states.get(call.key, {})
        given = {"lower_bound", "upper_bound"} & set(call.options)
        if "knots" in state and not given and single & set(read_expression(call.argument, rows.columns).columns):
            low, high = state["lower_bound"], state["upper_bound"]
            ends = {low: low - ROUNDING * abs(low), high: high + ROUNDING * abs(high)}
            knots = [ends.get(knot, knot) for knot in state["knots"]]
            found[call.key] = {**state, "lower_bound": ends[low], "upper_bound": ends[high], "knots": knots}
    return found


def _remembered(calls: tuple[Call, ...], texts: list[str], sample: Any) -> dict[str, Any]:
    """What a sample tells of the transforms that remember."""
    states: dict[str, Any] = {}
    if any(call.function != "C" for call in calls):
        for text in texts:
            if text not in sample.column_names:
                states |= evaluate_expression(text, sample).model_spec.transform_state
    return {key: state for key, state in states.items() if key in {call.key for call in calls}}


class _Look(Protocol):
    """What is looked for among the values of an argument, and the rows that are kept of them."""

    @property
    def kept(self) -> list[Any]: ...

    def add(self, values: np.ndarray, batch: Any) -> None: ...


def _look_at_all(rows: CompleteRows, calls: tuple[Call, ...], sample: Any, states: dict[str, Any]) -> dict[str, _Look]:
    """One pass over all rows, a look for every call, and one for every text of which rows are dropped."""
    texts = [name for name in sample.column_names if kind_of(sample.column(name)) == "categories"]
    arguments = {call.key: call.argument for call in calls if call.argument.strip("`") not in texts}
    looks: dict[str, _Look] = {call.key: _look_for(call, states) for call in calls if call.key in arguments}
    texts = texts if rows.drops else []
    looks |= {f"`{name}`": _Labels(_most_levels(rows.stored, name)) for name in texts}
    for batch in rows:
        for key, argument in arguments.items():
            values = np.asarray(evaluate_expression(argument, batch, states))
            # Text that an expression makes is known from the sample alone.
            if values.shape[1] == 1:
                looks[key].add(values[:, 0], batch)
        for name in texts:
            column = batch.column(name)
            looks[f"`{name}`"].add(np.concatenate([np.asarray(chunk.indices) for chunk in column.chunks]), batch)
    return looks


def _look_for(call: Call, states: dict[str, Any]) -> _Look:
    if call.function == "C":
        return _Labels(INDEXED_LIMIT + 1)
    return _Total(sums_for(call, states[call.key])) if call.has_sums else _Extremes()


def _most_levels(stored: Stored, name: str) -> int:
    return len(column_of(stored, name).levels)


@dataclass
class _Total:
    """Sums, for which no row is kept."""

    sums: TransformSums
    kept: list[Any] = field(default_factory=list)

    def add(self, values: np.ndarray, batch: Any) -> None:
        self.sums.add(values)


@dataclass
class _Extremes:
    """The rows with the least and the largest value."""

    least: float = np.inf
    largest: float = -np.inf
    rows: dict[str, Any] = field(default_factory=dict)

    @property
    def kept(self) -> list[Any]:
        return list(self.rows.values())

    def add(self, values: np.ndarray, batch: Any) -> None:
        finite = np.flatnonzero(np.isfinite(values))
        if not len(finite):
            return
        low, high = finite[np.argmin(values[finite])], finite[np.argmax(values[finite])]
        if values[low] < self.least:
            self.least, self.rows["least"] = float(values[low]), batch.slice(low, 1)
        if values[high] > self.largest:
            self.largest, self.rows["largest"] = float(values[high]), batch.slice(high, 1)


@dataclass
class _Labels:
    """A row for every value, up to so many."""

    most: int
    seen: set[Any] = field(default_factory=set)
    kept: list[Any] = field(default_factory=list)

    def add(self, values: np.ndarray, batch: Any) -> None:
        if len(self.seen) >= self.most:
            return
        distinct, first = np.unique(values, return_index=True)
        new = [int(row) for value, row in zip(distinct.tolist(), first, strict=True) if value not in self.seen]
        self.seen |= set(distinct.tolist())
        if new:
            self.kept.append(batch.take(new[: self.most]))


def with_levels(table: Any, levels: Mapping[str, tuple[str, ...]]) -> Any:
    """The same rows, their texts as codes of these levels, which are among the ones they have."""
    arrow = require("pyarrow")
    for name, kept in levels.items():
        place, column = table.column_names.index(name), table.column(name)
        known = levels_of(column)
        if known == kept:
            continue
        ranked = {level: rank for rank, level in enumerate(kept)}
        rank = np.array([ranked.get(level, -1) for level in known], np.int32)
        codes = rank[np.concatenate([np.asarray(chunk.indices) for chunk in column.chunks])]
        dictionary = arrow.array(kept, arrow.string())
        table = table.set_column(place, name, arrow.DictionaryArray.from_arrays(arrow.array(codes), dictionary))
    return table
