"""Streaming: from a formula and a table on disk to a design on disk, in memory that does not grow with the rows.

    survey    levels, bounds and the memory of transforms            none or one pass over the columns that are used
    measure   means and scales of columns and response, rank         one pass
    write     x, y, offset and weights, as the other door makes them one pass
              group_0 and effects_0, ..., of the terms with bars

Rows are in random order already, and stay in it; those of a table that has grown are put in one. The design is kept,
and found when the same is asked again. A design grows with its table: `appended` reads the new rows alone, and makes of
them what was learnt of the first ones, so that a prior means what it did.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, TableError, explain
from tallbayes.formula.coding import LEVEL_LIMIT, Coding, SecondCoding
from tallbayes.formula.design_folder import Place, size_of
from tallbayes.formula.design_steps import (
    Design,
    Request,
    describe,
    in_units,
    read_formula,
    read_part,
    require_terms,
    right_of,
)
from tallbayes.formula.encoding import Encoding, refuse_missing, states_from_plain, states_to_plain
from tallbayes.formula.expressions import Parsed
from tallbayes.formula.groups.design import GroupDesign, GroupEncoding, GroupSurvey, effects_side
from tallbayes.formula.response.left import call_of
from tallbayes.formula.response.outcomes import CLASSES, response_numbers
from tallbayes.formula.second import joined, second_formula
from tallbayes.formula.standardising import Standardiser, is_centred, require_rows, standardised_blocks
from tallbayes.formula.survey import CompleteRows, Learnt, survey, with_levels
from tallbayes.model.weights import WEIGHT, require_weights
from tallbayes.rows.columns import cut_levels, kind_of, levels_of
from tallbayes.rows.on_disk import MADE_OF, Stored, open_table
from tallbayes.rows.segments.withdrawal import withdraw
from tallbayes.rows.sources import Source, open_source
from tallbayes.rows.statistics import ColumnStatistics
from tallbayes.rows.writing import write_behind
from tallbayes.watch import begin

log = logging.getLogger("tallbayes")


def stored_design(request: Request, parsed: Parsed, source: Source) -> Design:
    """The design of a table on disk: weights and offset are names of its columns."""
    assert source.stored is not None
    _require_names(request)
    place = Place(source.stored, asdict(request))
    found = place.find()
    if found is None:
        columns = dict.fromkeys([*parsed.columns, *filter(None, request.beside.values())])
        source.require(list(columns))
        rows = CompleteRows(source.stored, tuple(columns))
        if request.missing == "error":
            refuse_missing(rows.missing)
        learnt = survey(parsed, rows, request.indexes)
        if parsed.second is not None:
            second = survey(second_formula(parsed), learnt.rows, indexing=False)
            both = joined(learnt.coding, SecondCoding(parsed.second.parameter, second.coding))
            learnt = replace(learnt, coding=both, notes=tuple(dict.fromkeys((*learnt.notes, *second.notes))))
        effects = [survey(effects_side(term, rows.columns), learnt.rows, indexing=False) for term in parsed.groups]
        measured = _measure(request, parsed, learnt, effects)
        log.info("design: writing %s rows of %d columns", f"{measured.count:,}", len(measured.coding.names))
        begin("encoding columns", f"writing {len(measured.coding.names)} of them")
        document = measured.document()
        found = place.keep(document, measured.chunks()), document
    return _designed(*found)


def appended(design: Design, source: Stored) -> Design:
    """The design of a table that has grown since: its new rows are read, coded as the first ones were, and put behind
    the rows of the design; nothing is learnt from them. Found again when it is asked for again.

    Refused by name are missing values, unless rows with them are dropped, categories and classes that were not there,
    and a table whose rows have been withdrawn without their going from the design (see `withdrawn`).
    """
    rows, document = _of_a_table(design)
    now = open_table(rows.path)
    digest, covered, withdrawals = _state(now, document)
    asked = source.digest
    if (digest, withdrawals) == (asked, source.withdrawals):
        return _grown(design, source, now)
    before = [] if now.withdrawals else [segment.parts[-1].path for segment in now.segments[:-1]]
    if asked in before:
        return _grown(design, source, now.as_of(before.index(asked) + 1))
    if source.withdrawals != withdrawals or source.num_rows <= covered:
        got = f"one of {source.num_rows:,} rows and {source.withdrawals} withdrawals at {str(source.path)!r}"
        expected = f"a table of more than {covered:,} rows and {withdrawals} withdrawals, which has grown"
        raise TableError(explain(expected, got, "the table that the design was made of, or tb.fit again"))
    request, parsed = _asked(design, document, source)
    rows_to_come = _Arrived(request, parsed, design.encoding, document["left"], source, covered)
    begin("encoding new rows", f"{source.num_rows - covered:,} of them")
    stamp = (asked, source.num_rows, source.withdrawals)
    return _grown(design, source, write_behind(now, rows_to_come.chunks(), stamp))


def withdrawn(design: Design, places: np.ndarray, source: Stored) -> Design:
    """The design without the rows at these places of it; `source` is the table after they were taken out of it."""
    rows, _ = _of_a_table(design)
    return _grown(design, source, withdraw(rows, places, (source.digest, source.num_rows, source.withdrawals)))


def made_of(rows: Stored) -> tuple[str, int, int]:
    """Of the table whose rows a design holds: its digest where that is known, how many rows it had, and how many
    withdrawals there had been."""
    return _state(rows, Place.document_of(rows))


def encoding_of(rows: Stored) -> dict[str, Any]:
    """The encoding of a design, as it is kept beside it."""
    return dict(Place.document_of(rows)["encoding"])


def asked_of(rows: Stored) -> dict[str, Any]:
    """What was asked of a design, by the names of a `Request`."""
    return dict(Place.document_of(rows)["asked"])


def _of_a_table(design: Design) -> tuple[Stored, dict[str, Any]]:
    if not isinstance(design.rows, Stored):
        got = "one in memory"
        raise InputError(explain("a design of a table on disk", got, "arrays grow in memory, as tb.fit made them"))
    return design.rows, Place.document_of(design.rows)


def _state(rows: Stored, document: dict[str, Any]) -> tuple[str, int, int]:
    """Of the table whose rows a design is made of: digest where it is known, rows and withdrawals."""
    last, source = rows.parts[-1], rows.source or {}
    if rows.withdrawals and MADE_OF in source:
        digest, covered, withdrawals = source[MADE_OF]
        return str(digest), int(covered), int(withdrawals)
    if len(rows.segments) > 1 or len(rows.parts) > 1:
        return last.stamp
    return "", rows.num_rows + int(document["dropped"]), int(document["withdrawals"])


def _asked(design: Design, document: dict[str, Any], source: Stored) -> tuple[Request, Parsed]:
    request = Request(**document["asked"])
    return request, read_formula(request, open_source(source))


def _grown(design: Design, source: Stored, rows: Stored) -> Design:
    return replace(
        design,
        rows=rows,
        dropped=source.num_rows - rows.num_rows,
        groups=tuple(_mapped(place, group, rows) for place, group in enumerate(design.encoding.groups)),
    )


def _require_names(request: Request) -> None:
    for name, given in request.beside.items():
        if given is not None and not isinstance(given, str):
            hint = f"a column of it: {name}='{name}'"
            raise InputError(explain(f"{name} by name, for a table on disk", f"a {type(given).__name__}", hint))


def _designed(rows: Stored, document: dict[str, Any]) -> Design:
    note = f"design: {size_of(rows)} in {str(rows.path)!r}, found again when the same is asked; it may be removed"
    log.info("%s", note)
    fields = [field.name for field in rows.fields]
    encoding = Encoding.from_plain(document["encoding"])
    return Design(
        rows=rows,
        weights=WEIGHT if WEIGHT in fields else None,
        dropped=int(document["dropped"]),
        encoding=encoding,
        notes=(*document["notes"], note),
        groups=tuple(_mapped(place, group, rows) for place, group in enumerate(encoding.groups)),
    )


def _mapped(place: int, group: GroupEncoding, rows: Stored) -> GroupDesign:
    """A group term whose arrays are files; an intercept alone is a column of ones that takes no room."""
    arrays = rows.rows()
    ones = np.broadcast_to(np.ones((1, 1), np.float32), (rows.num_rows, 1))
    return group.design(arrays[f"group_{place}"], arrays.get(f"effects_{place}", ones))


def _group_fields(groups: Sequence[GroupEncoding], batch: Any) -> dict[str, np.ndarray]:
    fields = {}
    for place, group in enumerate(groups):
        fields[f"group_{place}"] = group.levels.codes(batch)
        if group.coding.names:
            fields[f"effects_{place}"] = group.effects(batch)
    return fields


@dataclass(frozen=True, eq=False)
class Measured:
    """All that has to be known before the rows of a design can be written one batch after the other."""

    request: Request
    parsed: Parsed
    learnt: Learnt
    encoding: Encoding
    levels: np.ndarray | None
    count: int
    notes: tuple[str, ...]

    @property
    def coding(self) -> Coding:
        return self.encoding.coding

    def document(self) -> dict[str, Any]:
        """What is kept beside the rows."""
        stored, learnt = self.learnt.rows.stored, self.learnt
        texts = {name: list(levels) for name, levels in learnt.rows.levels.items() if name in self.parsed.left_columns}
        left = {
            "states": states_to_plain(learnt.states),
            "texts": texts,
            "classes": None if self.levels is None else self.levels.tolist(),
        }
        return {
            "encoding": self.encoding.to_plain(),
            "rows": self.count,
            "dropped": stored.num_rows - self.count,
            "notes": list(self.notes),
            "withdrawals": stored.withdrawals,
            "left": left,
        }

    def chunks(self) -> Iterator[dict[str, np.ndarray]]:
        """The rows of the design."""
        for batch in self.learnt.rows:
            yield from _fields(self.request, self.parsed, self.encoding, batch, self.learnt.states, self.levels)


@dataclass(frozen=True, eq=False)
class _Arrived:
    """Rows of a table from `start` on, in the coding of those before; `left` is what is known of the left side."""

    request: Request
    parsed: Parsed
    encoding: Encoding
    left: dict[str, Any]
    source: Stored
    start: int

    def chunks(self) -> Iterator[dict[str, np.ndarray]]:
        columns = dict.fromkeys([*self.parsed.columns, *filter(None, self.request.beside.values())])
        states = states_from_plain(self.left["states"])
        classes = None if self.left["classes"] is None else np.array(self.left["classes"])
        rows = CompleteRows(self.source, tuple(columns), start=self.start)
        if self.request.missing == "error":
            # Those before had none.
            refuse_missing(rows.missing)
        for batch in rows:
            yield from _fields(self.request, self.parsed, self.encoding, self._known(batch), states, classes)

    def _known(self, batch: Any) -> Any:
        """The same rows, refused where they have a category, class or group that is new."""
        cut = cut_levels(batch)
        right = right_of(self.parsed, cut)
        self.encoding.coding.require_known(right)
        unknown = self.encoding.coding.unknown_rows(right)
        for name in unknown:
            hint = f"tb.fit again; known are {self.encoding.coding.known_categories(name)}"
            raise DataError(explain(f"known categories in {name!r}", "a row of another one", hint))
        for name, levels in self.left["texts"].items():
            new = [level for level in levels_of(cut.column(name)) if level not in levels]
            if new:
                expected = f"a known class in column {name!r}, of {', '.join(map(repr, levels[:20]))}"
                raise DataError(explain(expected, repr(new[0]), "tb.fit again"))
        for group in self.encoding.groups:
            codes = group.levels.codes(cut)
            if np.any(codes < 0):
                got = f"{int(np.sum(codes < 0)):,} rows of others"
                raise DataError(explain(f"rows of known groups of {':'.join(group.term.by)!r}", got, "tb.fit again"))
        return with_levels(cut, {name: tuple(levels) for name, levels in self.left["texts"].items()})


def _fields(
    request: Request, parsed: Parsed, encoding: Encoding, batch: Any, states: Any, levels: np.ndarray | None
) -> Iterator[dict[str, np.ndarray]]:
    """What a design has of some rows, a block at a time."""
    outcome, offset, weights = read_part(request, parsed, batch, states, levels)
    if weights is not None:
        require_weights(weights)
    y, offset = in_units(request, encoding, outcome.y, offset)
    rest = {name: array for name, array in (("y", y), ("offset", offset), (WEIGHT, weights)) if array is not None}
    rest |= outcome.beside | _group_fields(encoding.groups, batch)
    for start, stop, columns in _columns(request, parsed, encoding, batch):
        yield {**columns, **{name: array[start:stop] for name, array in rest.items()}}


def _columns(
    request: Request, parsed: Parsed, encoding: Encoding, batch: Any
) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
    """Blocks of x and codes, as there are any; an intercept alone is a column of ones."""
    coding = encoding.coding
    if not coding.names:
        yield 0, batch.num_rows, {"x": np.ones((batch.num_rows, 1), np.float32)}
        return
    means, scales = np.array(encoding.means), np.array(encoding.scales)
    centred = is_centred(coding, request.rule)
    for start, block in standardised_blocks(coding, right_of(parsed, batch), means, scales):
        x = block.x.astype(np.float32) if centred else block.x
        both = {"x": x, "codes": block.codes}
        yield start, start + len(x), {name: array for name, array in both.items() if array.shape[1]}


def _measure(request: Request, parsed: Parsed, learnt: Learnt, effects: Sequence[Learnt]) -> Measured:
    """One pass: the checks of the other door, and the means and scales that it finds."""
    coding, total = learnt.coding, learnt.rows.stored.num_rows
    require_terms(coding, request.formula)
    log.info("design: means and scales of %d columns over %s rows", len(coding.names), f"{total:,}")
    begin("encoding columns", f"means and scales of {len(coding.names)}")
    levels = _class_levels(parsed, learnt, request.response)
    standardiser, response, count, outcome = Standardiser(coding), ColumnStatistics(), 0, None
    groups = [GroupSurvey(term, each.coding) for term, each in zip(parsed.groups, effects, strict=True)]
    for batch in learnt.rows:
        outcome, _, weights = read_part(request, parsed, batch, learnt.states, levels)
        if weights is not None:
            require_weights(weights)
        if request.standardise_response:
            response.add(outcome.y[:, None])
        if coding.names:
            for _, block in coding.blocks(right_of(parsed, batch)):
                standardiser.add(block)
        for group in groups:
            group.add(batch)
        count += batch.num_rows
    assert outcome is not None
    require_rows(coding, count)
    units, about = (np.empty(0), np.empty(0)), None
    if coding.names:
        units = standardiser.units(request.rule)
    if request.standardise_response:
        about = float(response.centre[0]), float(np.sqrt(response.squares[0] / count))
    encoding, notes = describe(parsed, coding, units, outcome, (count, total), about)
    encoding = replace(encoding, groups=tuple(group.encoding(encoding.units, request.rule) for group in groups))
    noted = dict.fromkeys((*notes, *learnt.notes, *(note for each in effects for note in each.notes)))
    return Measured(request, parsed, learnt, encoding, levels, count, tuple(noted))


def _class_levels(parsed: Parsed, learnt: Learnt, kind: str) -> np.ndarray | None:
    """The numbers that stand for classes, from a pass over the response alone; no more than are refused anyway."""
    call = call_of(parsed.left)
    if kind not in CLASSES or (call is not None and "levels" in call.options):
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
