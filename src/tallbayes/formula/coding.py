"""Codings: how the right side of a formula makes columns of numbers, learnt from all rows, applied block by block.

    learn(right, table)      levels of every category, states of every stateful transform, names of the columns
    coding.blocks(table)     float64 blocks of consecutive rows, without the intercept, in the order of the rows

formulaic parses, evaluates and codes; here it sees one block at a time, so that what it makes in between never has
the size of the table. A coding is a plain value: text, numbers and nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.expressions import STATEFUL, read_expression, syntax_error
from tallbayes.formula.transforms import calls_of
from tallbayes.rows.columns import is_number, kind_of, levels_of, require

# formulaic takes its time a block, whatever its size; what follows is faster on pieces that fit into the cache.
BLOCK_ROWS = 2**16
PIECE_ROWS = 2**12
BLOCK_BYTES = 2**25
LEVEL_LIMIT = 1000
INTERCEPT = "Intercept"


@dataclass(frozen=True)
class Coding:
    """The columns a formula makes: their names, the kind of every table column read, levels by category, states."""

    right: str
    names: tuple[str, ...]
    intercept: bool
    kinds: dict[str, str]
    categories: dict[str, tuple[Any, ...]]
    states: dict[str, Any]

    def blocks(self, table: Any) -> Iterator[tuple[int, np.ndarray]]:
        """The first row and the numbers (rows, columns) of each block; what is not finite is left to the caller."""
        spec = _specification(terms_of(self.right), self.categories, self.states)
        rows = int(np.clip(BLOCK_BYTES // (8 * (len(self.names) + 1)), 1, BLOCK_ROWS))
        for start in range(0, table.num_rows, rows):
            matrix = _evaluate(spec, table.slice(start, rows))
            spec = matrix.model_spec
            names = tuple(spec.column_names)
            if (INTERCEPT,) * self.intercept + self.names != names:
                raise DataError(explain(f"columns {self.names} as before", f"{names}", "the same types of columns"))
            numbers = np.asarray(matrix)[:, self.intercept :]
            for first in range(0, len(numbers), PIECE_ROWS):
                yield start + first, np.ascontiguousarray(numbers[first : first + PIECE_ROWS], np.float64)

    def unknown_rows(self, table: Any) -> dict[str, np.ndarray]:
        """Which rows have a category that was not there before, by column or expression, those without any left out."""
        found = {}
        for name, levels in self._labels().items():
            if name in self.kinds:
                found[name] = _unknown(table.column(name), levels)
                continue
            numbers = np.asarray(evaluate_expression(name, table))
            # Text that an expression makes is left to formulaic.
            if numbers.shape[1] == 1:
                found[name] = ~np.isin(numbers[:, 0], levels)
        return {name: rows for name, rows in found.items() if rows.any()}

    def known_categories(self, name: str) -> str:
        """The first of those of a column or of an expression within C(), in words."""
        return ", ".join(map(repr, self._labels()[name][:20]))

    def _labels(self) -> dict[str, tuple[Any, ...]]:
        """Levels by the column, or by the expression within C()."""
        names, found = tuple(self.kinds), {}
        for factor, levels in self.categories.items():
            column = read_expression(factor, names).category
            calls = [call for call in calls_of([factor], names) if call.function == "C" and call.alone]
            if column is not None or len(calls) == 1:
                found[column or calls[0].argument] = levels
        return found

    def require_kinds(self, table: Any) -> None:
        """Refuse columns of another kind."""
        for name, kind in self.kinds.items():
            if kind_of(table.column(name)) != kind:
                got = kind_of(table.column(name))
                raise DataError(explain(f"{kind} in column {name!r}, as before", got, "convert the column"))

    def require_known(self, table: Any) -> None:
        """Refuse columns of another kind, and categories that were not there before."""
        self.require_kinds(table)
        for factor, levels in self.categories.items():
            column = read_expression(factor, tuple(self.kinds)).category
            if column is None:
                continue
            unknown = [level for level in levels_of(table.column(column)) if level not in levels]
            if unknown:
                known = ", ".join(map(repr, levels[:20]))
                hint = f"a fit that has it, or leave these rows out; known are {known}"
                raise DataError(explain(f"a known category in column {column!r}", repr(unknown[0]), hint))


def _unknown(column: Any, levels: tuple[Any, ...]) -> np.ndarray:
    """Which values of a column without missing ones are not among the levels."""
    if kind_of(column) != "categories":
        return ~np.isin(np.asarray(column), levels)
    known = set(levels)
    parts = column.chunks if hasattr(column, "chunks") else [column]
    flags = [np.array([level not in known for level in part.dictionary.to_pylist()], bool) for part in parts]
    return np.concatenate([flag[np.asarray(part.indices)] for flag, part in zip(flags, parts, strict=True)])


def learn(right: str, columns: Sequence[str], table: Any) -> Coding:
    """What all rows say of the terms of a formula that reads these columns, and the names of what it makes."""
    formula = terms_of(right)
    categories: dict[str, tuple[Any, ...]] = {}
    states: dict[str, Any] = {}
    for factor in dict.fromkeys(factor for term in formula for factor in term.factors):
        if factor.eval_method.value == "literal":
            continue
        expression = read_expression(factor.expr, table.column_names)
        column, is_label = expression.category, "C" in expression.functions
        if column and not expression.has_levels and (is_label or kind_of(table.column(column)) == "categories"):
            categories[factor.expr] = _levels(column, table, is_label)
        elif expression.functions & (STATEFUL | {"C"}):
            found = _evaluate(_specification([factor], {}, {}), table.select(expression.columns)).model_spec
            states |= found.transform_state
            if "categories" in found.encoder_state.get(factor.expr, (None, {}))[1]:
                categories[factor.expr] = tuple(found.encoder_state[factor.expr][1]["categories"])
    names = tuple(_evaluate(_specification(formula, categories, states), table.slice(0, 1)).model_spec.column_names)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(explain("columns of different names", f"{twice!r} twice", "rename a column or a category"))
    intercept = "1" in [str(term) for term in formula]
    kinds = {name: kind_of(table.column(name)) for name in columns}
    coding = Coding(right, names[intercept:], intercept, kinds, categories, states)
    coding.require_known(table)
    return coding


def terms_of(side: str) -> Any:
    """formulaic's terms of one side."""
    formulaic, errors = require("formulaic"), require("formulaic.errors")
    try:
        formula = formulaic.Formula(side)
    except errors.FormulaicError as error:
        raise syntax_error(side, error) from error
    if not isinstance(formula, formulaic.SimpleFormula):
        raise InputError(explain("one list of terms", repr(side), "a + b instead of a | b"))
    return formula


def evaluate_response(left: str, table: Any, states: Mapping[str, Any] | None = None) -> np.ndarray:
    """The values of an expression on the left side, as one array of numbers or bools."""
    matrix = evaluate_expression(left, table, states)
    if matrix.shape[1] != 1:
        raise DataError(explain(f"one number a row in {left!r}", f"{matrix.shape[1]} columns", "a single column"))
    return np.asarray(matrix)[:, 0]


def evaluate_expression(text: str, table: Any, states: Mapping[str, Any] | None = None) -> Any:
    """formulaic's columns for an expression by itself; what is not among the states is learnt from these rows."""
    return _evaluate(_specification(terms_of(f"0 + {{{text}}}"), {}, dict(states or {})), table)


def _levels(column: str, table: Any, is_label: bool) -> tuple[Any, ...]:
    levels = levels_of(table.column(column))
    if not is_label:
        _require_labels(column, levels)
    if len(levels) > LEVEL_LIMIT:
        hint = "merge the rare ones, or use the numbers themselves"
        raise DataError(explain(f"at most {LEVEL_LIMIT} categories in {column!r}", f"{len(levels)}", hint))
    return levels


def _require_labels(column: str, levels: tuple[Any, ...]) -> None:
    """Refuse a column of numbers that a few texts made a column of text."""
    other = [level for level in levels if isinstance(level, str) and not is_number(level)]
    if 0 < len(other) <= len(levels) / 2:
        more = f" and {len(other) - 1} others" if len(other) > 1 else ""
        hint = f"mend these values, or C({column}) if all are labels"
        raise DataError(explain(f"numbers in column {column!r}", f"{other[0]!r}{more}", hint))


def _specification(formula: Any, categories: dict[str, tuple[Any, ...]], states: dict[str, Any]) -> Any:
    formulaic, types = require("formulaic"), require("formulaic.parser.types")
    if isinstance(formula, list):
        formula = formulaic.Formula([types.Term([factor]) for factor in formula])
    return formulaic.ModelSpec(
        formula=formula,
        output="numpy",
        na_action="ignore",
        transform_state=dict(states),
        encoder_state={
            factor: (types.Factor.Kind.CATEGORICAL, {"categories": list(levels)})
            for factor, levels in categories.items()
        },
    )


def _evaluate(spec: Any, table: Any) -> Any:
    """formulaic's matrix for these rows; all it objects to is about the data, since the text was checked before."""
    errors = require("formulaic.errors")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error", errors.DataMismatchWarning)
        try:
            return spec.get_model_matrix(_frame(table))
        except Exception as error:
            message = " ".join(str(error).split())
            text = [name for name in table.column_names if kind_of(table.column(name)) == "categories"]
            hint = f"look at the columns of text: {', '.join(text)}" if text else "look at the values of its columns"
            expected = f"columns that the formula {str(spec.formula)!r} can be worked out from"
            raise DataError(explain(expected, f"{message.rstrip('.')[:300]}", hint)) from error


def _frame(table: Any) -> Any:
    """A pandas frame with the widest types, since arithmetic in narrow ones would overflow unseen."""
    arrow = require("pyarrow")
    types = arrow.types

    def widest(kind: Any) -> Any:
        if types.is_floating(kind) or types.is_uint64(kind):
            return arrow.float64()
        return arrow.int64() if types.is_integer(kind) else kind

    schema = arrow.schema([(field.name, widest(field.type)) for field in table.schema])
    return table.cast(schema).to_pandas(split_blocks=True)
