"""Designs of groups: of every row its group, and the columns of the effects that groups have.

    eta_i = x_i beta + sum_t z_ti b_t[code_ti],     z = (raw - centre) / scale

A column of effects is in the units of the fixed column of its name, and where there is none in its own. It is centred
only where effects are correlated and there is an intercept among them, which takes that up: then (raw - m) / s is the
same model in other coordinates, and with (x || g) or (0 + x | g) it would be another one than is written. Back in the
units of the table:

    b_own = A b,     A = [1, -centre / scale; 0, diag(1 / scale)],     Cov_own = A Cov A^T
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.formula.coding import INTERCEPT, Coding, learn
from tallbayes.formula.expressions import Parsed, as_term, read_side
from tallbayes.formula.functions.evaluation import terms_of
from tallbayes.formula.groups.levels import GroupLevels, LevelCensus
from tallbayes.formula.groups.terms import MOST_EFFECTS, GroupTerm, too_many
from tallbayes.formula.standardising import Standardiser, standardised_blocks
from tallbayes.rows.statistics import needs_float64

Units = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class GroupDesign:
    """A group term over the rows of a design: `codes` (N,) int32 of `levels`, and `z` (N, q) of the effects' `names`.

    z = (raw - centre) / scale; the intercept is a column of ones. A code of -1 is a group that was not there before.
    """

    term: GroupTerm
    levels: GroupLevels
    codes: np.ndarray
    z: np.ndarray
    names: tuple[str, ...]
    centre: np.ndarray
    scale: np.ndarray

    @property
    def to_own(self) -> np.ndarray:
        """A (q, q), by which effects are those of the table's own columns."""
        matrix = np.diag(1 / self.scale)
        if self.names[0] == INTERCEPT:
            matrix[0, 1:] = -self.centre[1:] / self.scale[1:]
        return matrix


@dataclass(frozen=True, eq=False)
class GroupEncoding:
    """What a fit remembers of a group term, enough to make the same columns of new rows."""

    term: GroupTerm
    coding: Coding
    levels: GroupLevels
    centre: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (INTERCEPT,) * self.coding.intercept + self.coding.names

    @property
    def columns(self) -> tuple[str, ...]:
        """Of a table, that the term reads."""
        return tuple(dict.fromkeys((*self.term.by, *self.coding.kinds)))

    def encode(self, table: Any) -> GroupDesign:
        """The term over the rows of a normalised table without missing values."""
        self.coding.require_known(self._effect_rows(table))
        z = self.effects(table)
        return self.design(self.levels.codes(table), z if needs_float64(z) else z.astype(np.float32))

    def effects(self, table: Any, finite: bool = True) -> np.ndarray:
        """z of these rows, in float64; what is not `finite` is left to the caller, or refused."""
        z, first = np.ones((table.num_rows, len(self.names))), int(self.coding.intercept)
        if self.coding.names:
            units = np.array(self.centre[first:]), np.array(self.scale[first:])
            for start, block in standardised_blocks(self.coding, self._effect_rows(table), *units, finite):
                z[start : start + len(block.x), first:] = block.x
        return z

    def design(self, codes: np.ndarray, z: np.ndarray) -> GroupDesign:
        """The same of arrays that are known already."""
        return GroupDesign(self.term, self.levels, codes, z, self.names, np.array(self.centre), np.array(self.scale))

    def _effect_rows(self, table: Any) -> Any:
        return _effect_rows(self.coding, self.term, table)


class GroupSurvey:
    """What all rows say of a group term, whose tables are added one after the other."""

    def __init__(self, term: GroupTerm, coding: Coding) -> None:
        self.term, self.coding = term, coding
        self.census, self.sums = LevelCensus(term.by), Standardiser(coding)
        if coding.smooths:
            got = f"{coding.smooths[0].factor} in {term.text}"
            hint = "(1 + x | g), and s(x) outside the bars"
            raise InputError(explain("effects of groups without a smooth", got, hint))
        width, written = len(coding.names) + coding.intercept, len(list(terms_of(term.effects)))
        if width > MOST_EFFECTS:
            raise too_many(width, term.text)
        if width > written and not term.correlated:
            hint = f"({term.effects} | {':'.join(map(as_term, term.by))}), whose effects are all correlated"
            got = f"{width} columns of {written} terms in {term.text}"
            raise InputError(explain("one column for each of some uncorrelated group effects", got, hint))

    def add(self, table: Any) -> None:
        """Rows of a normalised table without missing values."""
        self.census.add(table)
        if self.coding.names:
            for _, block in self.coding.blocks(_effect_rows(self.coding, self.term, table)):
                self.sums.add(block)

    def encoding(self, fixed: Units, rule: str) -> GroupEncoding:
        """What is remembered, given mean and scale of the fixed columns by name."""
        coding, names = self.coding, self.coding.names
        means, scales = self.sums.units(rule) if names else (np.empty(0), np.empty(0))
        own = {name: (float(mean), float(scale)) for name, mean, scale in zip(names, means, scales, strict=True)}
        units = [fixed.get(name, own[name]) for name in names]
        is_centred = coding.intercept and self.term.correlated
        centre = (0.0,) * coding.intercept + tuple(mean if is_centred else 0.0 for mean, _ in units)
        scale = (1.0,) * coding.intercept + tuple(scale for _, scale in units)
        return GroupEncoding(self.term, coding, self.census.levels(), centre, scale)


def group_encoding(term: GroupTerm, table: Any, fixed: Units, rule: str) -> GroupEncoding:
    """What all rows of a table say of a group term."""
    side = effects_side(term, table.column_names)
    survey = GroupSurvey(
        term, learn(side.right, side.right_columns, table.select(side.right_columns or side.left_columns), False)
    )
    survey.add(table)
    return survey.encoding(fixed, rule)


def effects_side(term: GroupTerm, names: tuple[str, ...] | list[str]) -> Parsed:
    """The effects as the right side of a formula, whose left one is a column of the groups."""
    return Parsed(as_term(term.by[0]), term.effects, term.by[:1], read_side(term.effects, names))


def _effect_rows(coding: Coding, term: GroupTerm, table: Any) -> Any:
    """The columns that effects read; an intercept alone reads none, and a table of no columns has no rows."""
    return table.select(list(coding.kinds) or list(term.by[:1]))
