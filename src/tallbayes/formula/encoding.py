"""Encodings: what a fit remembers of its formula, enough to make the same columns of new rows in another process.

    x = (coding(rows) - means) / scales

An encoding is written as JSON-able data and read back without unpickling anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.formula.coding import Coding, IndexedTerm, SecondCoding, SmoothColumns
from tallbayes.formula.expressions import read_expression, read_side
from tallbayes.formula.functions.evaluation import evaluate_response
from tallbayes.formula.groups.design import GroupDesign, GroupEncoding
from tallbayes.formula.groups.levels import GroupLevels
from tallbayes.formula.groups.terms import GroupTerm
from tallbayes.formula.standardising import apply
from tallbayes.rows.columns import count_missing
from tallbayes.rows.sources import open_source

FORMAT = 1


@dataclass(frozen=True)
class Encoding:
    """How columns were made: the coding of the right side, means and scales, the response and its classes.

    Where a fit standardised the response too, y = (response - response_mean) / response_scale. `offset` is the column
    that was added to the linear predictor, or "" where that was an array; `offset_terms` is what offset(...) in the
    formula adds to it, of `offset_columns`. `groups` are its terms with bars.
    """

    coding: Coding
    means: tuple[float, ...]
    scales: tuple[float, ...]
    response: str
    classes: tuple[Any, ...] | None = None
    response_mean: float = 0.0
    response_scale: float = 1.0
    offset: str | None = None
    offset_terms: str = ""
    offset_columns: tuple[str, ...] = ()
    groups: tuple[GroupEncoding, ...] = ()

    @property
    def formula(self) -> str:
        terms = f" + offset({self.offset_terms})" if self.offset_terms else ""
        bars = "".join(f" + {group.term.text}" for group in self.groups)
        second = (
            "" if self.coding.second is None else f"; {self.coding.second.name} ~ {self.coding.second.coding.right}"
        )
        return f"{self.response} ~ {self.coding.right}{terms}{bars}{second}"

    @property
    def units(self) -> dict[str, tuple[float, float]]:
        """Mean and scale of every column, by its name."""
        return dict(zip(self.coding.names, zip(self.means, self.scales, strict=True), strict=True))

    def encode(self, table: Any) -> np.ndarray:
        """The columns (N, d) of new rows, which need no response, from anything that `open_source` opens.

        A category that was not there before, a missing value or a column of another kind is a DataError.
        """
        source = open_source(table)
        rows = source.read(list(self.coding.kinds) or source.names[:1])
        require_complete(rows)
        self.coding.require_known(rows)
        return self.transform(rows)

    def encode_groups(self, table: Any) -> tuple[GroupDesign, ...]:
        """The group terms over new rows; a group that was not there before has the code -1."""
        columns = list(dict.fromkeys(name for group in self.groups for name in group.columns))
        if not columns:
            return ()
        rows = open_source(table).read(columns)
        require_complete(rows)
        return tuple(group.encode(rows) for group in self.groups)

    def transform(self, rows: Any, finite: bool = True, precise: bool = False) -> np.ndarray:
        """The columns of a normalised Arrow table that is complete and known; what is not `finite`, such as the
        logarithm of 0, is NaN, or refused. What is `precise` is float64."""
        return apply(self.coding, rows, np.array(self.means), np.array(self.scales), finite, precise)

    def to_plain(self) -> dict[str, Any]:
        """Text, numbers, lists and dicts."""
        plain = asdict(replace(self, groups=())) | {"coding": _plain_coding(self.coding)}
        del plain["groups"]
        groups = {"groups": [_plain_group(group) for group in self.groups]} if self.groups else {}
        return {"format": FORMAT, **_plain(plain), **groups}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Encoding:
        """The same encoding; its formula is checked as if it had just been written."""
        if plain.get("format") != FORMAT:
            got = f"format {plain.get('format')!r}"
            raise InputError(explain(f"an encoding of format {FORMAT}", got, "fit again with this version"))
        coding = _read_coding(plain["coding"])
        for each in coding.parts:
            read_side(each.right, tuple(coding.kinds))
        classes = None if plain["classes"] is None else tuple(plain["classes"])
        units = plain["response_mean"], plain["response_scale"]
        numbers = tuple(plain["means"]), tuple(plain["scales"])
        terms, columns = plain.get("offset_terms", ""), tuple(plain.get("offset_columns", ()))
        if terms:
            read_expression(terms, columns)
        groups = tuple(_read_group(group) for group in plain.get("groups", ()))
        return cls(coding, *numbers, plain["response"], classes, *units, plain.get("offset"), terms, columns, groups)


def offset_of(terms: str, columns: Sequence[str], rows: Any) -> np.ndarray:
    """What offset(...) in a formula makes of rows."""
    values = evaluate_response(terms, rows.select(columns or rows.column_names[:1])).astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        got = f"{values[bad[0]]} at row {bad[0]}"
        raise DataError(explain(f"finite numbers in offset({terms})", got, "look at zeros: log(0) is not finite"))
    return values


def require_complete(table: Any) -> None:
    """Refuse missing values, with their number by column."""
    refuse_missing(count_missing(table))


def refuse_missing(missing: Mapping[str, int]) -> None:
    """Refuse so many missing values by column, unless there are none."""
    if missing:
        counts = ", ".join(f"{count} in {name!r}" for name, count in missing.items())
        hint = "missing='drop' for a fit without these rows, or fill them in"
        raise DataError(explain("no missing values", counts, hint))


def none_complete(total: int) -> DataError:
    """What to say where every row misses a value."""
    hint = "leave out the columns where most is missing"
    return DataError(explain("rows without a missing value", f"none of {total}", hint))


def _plain_coding(coding: Coding) -> dict[str, Any]:
    plain = asdict(replace(coding, second=None))
    del plain["second"]
    if coding.second is not None:
        plain["second"] = {"name": coding.second.name, "coding": _plain_coding(coding.second.coding)}
    return plain | {"categories": _items(plain["categories"]), "states": _items(plain["states"])}


def _read_coding(plain: Mapping[str, Any]) -> Coding:
    stored = dict(plain)
    stored["names"] = tuple(stored["names"])
    stored["categories"] = {factor: tuple(levels) for factor, levels in _restored(stored["categories"]).items()}
    stored["states"] = _restored(stored["states"])
    stored["indexed"] = tuple(IndexedTerm(**term) for term in stored.get("indexed", ()))
    stored["of_categories"] = tuple(stored.get("of_categories", ()))
    stored["smooths"] = tuple(SmoothColumns(**smooth) for smooth in stored.get("smooths", ()))
    if stored.get("second") is not None:
        stored["second"] = SecondCoding(stored["second"]["name"], _read_coding(stored["second"]["coding"]))
    return Coding(**stored)


def _plain_group(group: GroupEncoding) -> dict[str, Any]:
    own = {"term": asdict(group.term), "coding": _plain_coding(group.coding)}
    # Levels are plain, and may be a million.
    return _plain(own | {"centre": group.centre, "scale": group.scale}) | {"levels": group.levels.to_plain()}


def _read_group(plain: Mapping[str, Any]) -> GroupEncoding:
    """The same group term; its effects are checked as if they had just been written."""
    coding, term = _read_coding(plain["coding"]), dict(plain["term"])
    read_side(coding.right, tuple(coding.kinds))
    return GroupEncoding(
        GroupTerm(**(term | {"by": tuple(term["by"])})),
        coding,
        GroupLevels.from_plain(plain["levels"]),
        tuple(plain["centre"]),
        tuple(plain["scale"]),
    )


def _items(value: Any) -> Any:
    """Dicts as lists of pairs, since the keys of a state are whole numbers, which JSON makes text."""
    if isinstance(value, dict):
        return {"items": [[key, _items(each)] for key, each in value.items()]}
    if isinstance(value, np.ndarray) and value.ndim:
        return {"array": value.tolist()}
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if "array" in value:
            return np.array(value["array"])
        return {key: _restored(each) for key, each in value["items"]}
    return value


def states_to_plain(states: Mapping[str, Any]) -> Any:
    """The memory of transforms, as JSON-able data."""
    return _plain(_items(dict(states)))


def states_from_plain(plain: Any) -> dict[str, Any]:
    return dict(_restored(plain))


def _plain(value: Any) -> Any:
    """The same without tuples and NumPy's numbers."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic | np.ndarray):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    hint = "poly, bs, cr, cc, scale, center or C, whose memory is numbers and text"
    raise InputError(explain("transforms that remember numbers and text", f"a {type(value).__name__}", hint))
