"""Codings: how the right side of a formula makes columns of numbers, learnt from all rows, applied block by block.

    learn(right, table)      levels of every category, states of every stateful transform, names of the columns
    coding.blocks(table)     float64 blocks of consecutive rows, without the intercept, in the order of the rows

formulaic parses, evaluates and codes; here it sees one block at a time, so that what it makes in between never has
the size of the table. A category that is a term by itself is never made into columns: every row has the place of its
level's coefficient, so that ten thousand levels cost what two do. A coding is a plain value: text, numbers and nothing
else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.expressions import SMOOTH, STATEFUL, read_expression
from tallbayes.formula.functions.evaluation import evaluate_expression, matrix_of, specification_of, terms_of
from tallbayes.formula.functions.names import INDEXED_LIMIT
from tallbayes.formula.smooths.basis import LINEAR, is_smooth
from tallbayes.formula.transforms import calls_of
from tallbayes.rows.columns import is_number, kind_of, known_codes, level_codes, levels_of, require

# formulaic takes its time a block, whatever its size; what follows is faster on pieces that fit into the cache.
BLOCK_ROWS = 2**16
PIECE_ROWS = 2**12
BLOCK_BYTES = 2**25
LEVEL_LIMIT = 1000
INTERCEPT = "Intercept"


class Block(NamedTuple):
    """Some rows: the numbers (rows, columns) of all columns that are not indexed, and of each category that is, the
    place of its level's coefficient among the names, or their number for a level that has none."""

    x: np.ndarray
    codes: np.ndarray


@dataclass(frozen=True)
class IndexedTerm:
    """A category that is a term by itself: its factor, the table's column, and where its columns stand."""

    factor: str
    column: str
    first: int
    count: int


@dataclass(frozen=True)
class SmoothColumns:
    """The columns of a smooth whose coefficients share a scale: how it is written, and where they stand."""

    factor: str
    first: int
    count: int

    @property
    def places(self) -> range:
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class SecondCoding:
    """The columns of a second formula, and the name of the parameter that it is of."""

    name: str
    coding: Coding


@dataclass(frozen=True)
class Coding:
    """The columns a formula makes: their names, the kind of every table column read, levels by category, states.

    `indexed` are the terms whose columns are never written down; `of_categories` the places of all columns that a
    category has a part in; `smooths` tell of those that share a scale. The last columns are those of a `second`
    formula.
    """

    right: str
    names: tuple[str, ...]
    intercept: bool
    kinds: dict[str, str]
    categories: dict[str, tuple[Any, ...]]
    states: dict[str, Any]
    indexed: tuple[IndexedTerm, ...] = ()
    of_categories: tuple[int, ...] = ()
    smooths: tuple[SmoothColumns, ...] = ()
    second: SecondCoding | None = None

    @property
    def beside(self) -> int:
        """How many columns are those of the second formula."""
        return 0 if self.second is None else len(self.second.coding.names)

    @property
    def parts(self) -> tuple[Coding, ...]:
        """The codings of both formulas, by the names that the columns have here."""
        if self.second is None:
            return (self,)
        width = len(self.names) - self.beside
        own = tuple(place for place in self.of_categories if place < width)
        first = replace(self, names=self.names[:width], of_categories=own, second=None)
        return first, replace(self.second.coding, names=self.names[width:])

    @property
    def of_smooths(self) -> tuple[int, ...]:
        """The places of all columns whose coefficients share a scale with others."""
        return tuple(place for smooth in self.smooths for place in smooth.places)

    @property
    def dense(self) -> tuple[int, ...]:
        """The places of the columns that are written down."""
        named = {place for term in self.indexed for place in range(term.first, term.first + term.count)}
        return tuple(place for place in range(len(self.names)) if place not in named)

    @property
    def mixes(self) -> bool:
        """Whether a category has a part in a column that is written down, such as a product with a number."""
        return bool(set(self.dense) & set(self.of_categories))

    def blocks(self, table: Any) -> Iterator[tuple[int, Block]]:
        """The first row and the columns of each block; what is not finite is left to the caller."""
        dense = self.dense
        spec = self._dense_specification(table) if len(dense) > self.beside else None
        rows = int(np.clip(BLOCK_BYTES // (8 * (len(dense) + 1)), 1, BLOCK_ROWS))
        for start in range(0, table.num_rows, rows):
            part = table.slice(start, rows)
            codes = np.stack([self._codes(term, part) for term in self.indexed], axis=1) if self.indexed else None
            codes = np.empty((part.num_rows, 0), np.int32) if codes is None else codes
            numbers = np.empty((part.num_rows, 0))
            if spec is not None:
                matrix = matrix_of(spec, part)
                spec = matrix.model_spec
                self._require_names(dense[: len(dense) - self.beside], tuple(spec.column_names))
                numbers = np.asarray(matrix)[:, self.intercept :]
            if self.second is not None:
                beside = [block.x for _, block in self.second.coding.blocks(part)]
                numbers = np.hstack([numbers, np.concatenate(beside)])
            for first in range(0, len(numbers), PIECE_ROWS):
                piece = slice(first, first + PIECE_ROWS)
                yield start + first, Block(np.ascontiguousarray(numbers[piece], np.float64), codes[piece])

    def columns_of(self, column: str, table: Any) -> tuple[tuple[int, ...], np.ndarray, tuple[str, ...]]:
        """The places of all columns that are made of one column of the table alone, as of numbers; what they are in
        these rows; and the other terms that it has a part in."""
        names = tuple(self.kinds)
        kept: list[Any] = []
        left_out: list[Any] = []
        for term in terms_of(self.right):
            factors = [factor.expr for factor in term.factors if factor.eval_method.value != "literal"]
            read = {name for factor in factors for name in read_expression(factor, names).columns}
            if column in read:
                is_number = read == {column} and not set(factors) & set(self.categories)
                (kept if is_number else left_out).append(term)
        if not kept:
            return (), np.empty((table.num_rows, 0)), tuple(map(str, left_out))
        matrix = matrix_of(specification_of(require("formulaic").Formula(kept), {}, self.states), table)
        places = tuple(self.names.index(name) for name in matrix.model_spec.column_names)
        return places, np.asarray(matrix, np.float64), tuple(map(str, left_out))

    def _dense_specification(self, table: Any) -> Any:
        """formulaic's for the terms that are not indexed, coded as they are beside the others."""
        spec = specification_of(terms_of(self.right), self.categories, self.states)
        if not self.indexed:
            return spec
        named = {term.factor for term in self.indexed}
        whole = matrix_of(spec, table.slice(0, 1)).model_spec
        kept = [term for term in whole.formula if len(term.factors) > 1 or term.factors[0].expr not in named]
        return whole.subset(require("formulaic").Formula(kept))

    def _require_names(self, dense: tuple[int, ...], names: tuple[str, ...]) -> None:
        if (INTERCEPT,) * self.intercept + tuple(self.names[place] for place in dense) != names:
            raise DataError(explain(f"columns {self.names} as before", f"{names}", "the same types of columns"))

    def _codes(self, term: IndexedTerm, table: Any) -> np.ndarray:
        """Of every row the place of its level; of a first level without a column, the place of none."""
        levels, width = self.categories[term.factor], len(self.names)
        places = np.arange(term.first, term.first + term.count)
        places = np.append([width] * (len(levels) - term.count), places).astype(np.int32)
        return places[level_codes(table.column(term.column), levels)]

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
        beside = {} if self.second is None else self.second.coding.unknown_rows(table)
        return beside | {name: rows for name, rows in found.items() if rows.any()}

    def known_categories(self, name: str) -> str:
        """The first of those of a column or of an expression within C(), in words."""
        labels = self._labels()
        if name not in labels and self.second is not None:
            return self.second.coding.known_categories(name)
        return ", ".join(map(repr, labels[name][:20]))

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
        if self.second is not None:
            self.second.coding.require_known(table)
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
    return known_codes(column, levels) < 0


def learn(right: str, columns: Sequence[str], table: Any, indexing: bool = True) -> Coding:
    """What all rows say of the terms of a formula that reads these columns, and the names of what it makes.

    Without `indexing` all columns are written down.
    """
    formula = terms_of(right)
    alone = _alone(formula, table.column_names) if indexing else {}
    shared = {factor.expr for term in formula if len(term.factors) > 1 for factor in term.factors}
    categories: dict[str, tuple[Any, ...]] = {}
    transforms: list[tuple[Any, tuple[str, ...]]] = []
    states: dict[str, Any] = {}
    for factor in dict.fromkeys(factor for term in formula for factor in term.factors):
        if factor.eval_method.value == "literal":
            continue
        expression = read_expression(factor.expr, table.column_names)
        column, is_label = expression.category, "C" in expression.functions
        if column and not expression.has_levels and (is_label or kind_of(table.column(column)) == "categories"):
            categories[factor.expr] = _levels(column, table, is_label, factor.expr in set(alone) - shared)
        elif expression.functions & (STATEFUL | {"C"}):
            transforms.append((factor, expression.columns))
    intercept = "1" in [str(term) for term in formula]
    constant = intercept or any(len(term.factors) == 1 and term.factors[0].expr in categories for term in formula)
    for factor, read in transforms:
        found = matrix_of(specification_of([factor], {}, {}), table.select(read), constant).model_spec
        states |= found.transform_state
        if "categories" in found.encoder_state.get(factor.expr, (None, {}))[1]:
            categories[factor.expr] = tuple(found.encoder_state[factor.expr][1]["categories"])
    spec = matrix_of(specification_of(formula, categories, states), table.slice(0, 1)).model_spec
    names = tuple(spec.column_names)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(explain("columns of different names", f"{twice!r} twice", "rename a column or a category"))
    kinds = {name: kind_of(table.column(name)) for name in columns}
    places = {term: [place - intercept for place in found] for term, found in spec.term_indices.items()}
    indexed = tuple(
        IndexedTerm(term.factors[0].expr, alone[term.factors[0].expr], found[0], len(found))
        for term, found in places.items()
        if len(term.factors) == 1 and term.factors[0].expr in set(alone) & set(categories) and found
    )
    mixed = [places[term] for term in places if any(factor.expr in categories for factor in term.factors)]
    of_categories = tuple(sorted(place for each in mixed for place in each))
    smooths = _smooths(formula, names[intercept:], table.column_names)
    coding = Coding(right, names[intercept:], intercept, kinds, categories, states, indexed, of_categories, smooths)
    coding.require_known(table)
    return coding


def _smooths(formula: Any, columns: Sequence[str], names: Sequence[str]) -> tuple[SmoothColumns, ...]:
    """Smooths are terms by themselves; their straight line is a column like any other."""
    found = []
    for term in formula:
        for factor in term.factors:
            if factor.eval_method.value == "literal" or SMOOTH not in read_expression(factor.expr, names).functions:
                continue
            if len(term.factors) > 1 or not is_smooth(factor.expr):
                hint = "s(x) by itself; s(x) + x:g for slopes that differ by category"
                raise InputError(explain("a smooth as a term by itself", repr(str(term)), hint))
            own = [place for place, name in enumerate(columns) if name.startswith(f"{factor.expr}[")]
            bent = [place for place in own if columns[place] != f"{factor.expr}[{LINEAR}]"]
            found.append(SmoothColumns(factor.expr, bent[0], len(bent)))
    return tuple(sorted(found, key=lambda smooth: smooth.first))


def _alone(formula: Any, names: Sequence[str]) -> dict[str, str]:
    """Factors that are columns or C(column) and a term by themselves, with their columns."""
    found: dict[str, str] = {}
    for term in formula:
        for factor in term.factors:
            if factor.eval_method.value == "literal":
                continue
            expression = read_expression(factor.expr, names)
            if len(term.factors) == 1 and expression.category is not None and expression.is_plain:
                found[factor.expr] = expression.category
    return found


def _levels(column: str, table: Any, is_label: bool, is_indexed: bool) -> tuple[Any, ...]:
    levels = levels_of(table.column(column))
    if not is_label:
        _require_labels(column, levels)
    limit = INDEXED_LIMIT if is_indexed else LEVEL_LIMIT
    if len(levels) > limit:
        hint = "merge the rare ones, or use the numbers themselves"
        raise DataError(explain(f"at most {limit:,} categories in {column!r}", f"{len(levels):,}", hint))
    return levels


def _require_labels(column: str, levels: tuple[Any, ...]) -> None:
    """Refuse a column of numbers that a few texts made a column of text."""
    other = [level for level in levels if isinstance(level, str) and not is_number(level)]
    if 0 < len(other) <= len(levels) / 2:
        more = f" and {len(other) - 1} others" if len(other) > 1 else ""
        hint = f"mend these values, or C({column}) if all are labels"
        raise DataError(explain(f"numbers in column {column!r}", f"{other[0]!r}{more}", hint))
