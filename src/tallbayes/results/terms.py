"""Terms: what the names of coefficients say of them, so that those of one factor stand together.

    carrier[T.EV]        EV, of the factor carrier, against its first category
    late.carrier[T.EV]   the same, for the class late against the first class
    [3], intercept       as they are

All is read off the plain encoding of a formula where there is one, since names alone can be ambiguous. It also says
which coefficients stand alone: those whose column can change by one while all others stay as they are, and so can the
dummy of a category, from its reference. No piece of x + I(x**2), poly(x, 2), a spline or a * b can, nor a category
without a reference: exp of one such coefficient is no ratio between any two rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tallbayes.model.catalogue import EXTRAS
from tallbayes.progress import shorten
from tallbayes.results.result import Result

INTERCEPTS = ("intercept", "Intercept")
LONGEST = 44
CODED = re.compile(r"(?P<factor>.+?)\[T\.(?P<level>.*)\]", re.DOTALL)
LABELLED = re.compile(r"C\((?P<column>[^(),]+)(,.*)?\)", re.DOTALL)
# One of the columns that a factor makes: poly(x, 2)[1].
PLACE = re.compile(r"\[[^\[\]]*\]$")
# Scales and correlations of the effects of groups, and scales of smooths.
GROUP_SCALE = re.compile(r"(sd|cor)\(.+\|.+\)|sd\(s\(.+\)\)", re.DOTALL)
WORD = re.compile(r"`[^`]*`|[^\W\d]\w*")


@dataclass(frozen=True)
class Term:
    """One coefficient: its full name, its label within its group, and whether it is that of a category.

    `head` is the class of the response it belongs to, where there are several, and `base` the class that is against.
    `is_alone` says whether its column can change by itself; see the head of this file.
    """

    name: str
    label: str
    factor: str = ""
    reference: str = ""
    head: str = ""
    base: str = ""
    is_category: bool = False
    is_alone: bool = True

    @property
    def group(self) -> str:
        """What stands above it, if anything."""
        against = f"{self.factor}, against {self.reference}" if self.reference else self.factor
        return " · ".join(part for part in (self.head and f"{self.head} rather than {self.base}", against) if part)

    @property
    def full(self) -> str:
        """Its label where nothing stands above it."""
        return " ".join(part for part in (self.head and f"{self.head}:", self.factor, self.label) if part)

    @property
    def short(self) -> str:
        """The same within a sentence, which must stay readable."""
        return shorten(self.full, LONGEST)

    @property
    def is_intercept(self) -> bool:
        return not self.factor and re.split("[.:]", self.label.split("[")[0])[-1] in INTERCEPTS

    @property
    def is_extra(self) -> bool:
        return not self.factor and (self.label in EXTRAS or is_group_scale(self.label))


def is_group_scale(name: str) -> bool:
    """Whether it is the scale or a correlation of effects of groups, or the scale of a smooth: sd(Intercept|school),
    cor(Intercept,x|school), sd(s(hour))."""
    return GROUP_SCALE.fullmatch(name) is not None


def terms_of(result: Result, names: Sequence[str]) -> tuple[Term, ...]:
    """A term for every name, in their order."""
    coded = _Coded.of(result.encoding)
    return tuple(coded.term(name) for name in names)


class _Part(NamedTuple):
    """One factor of a column: the category it stands for, if any, and the one that this is against."""

    factor: str
    level: str | None
    reference: str = ""


@dataclass(frozen=True)
class _Coded:
    """What an encoding says: parts by their names, columns, those that stand alone, and the classes of the response."""

    parts: Mapping[str, _Part]
    columns: frozenset[str]
    classes: tuple[str, ...]
    alone: frozenset[str] | None = None
    # The parameter that a second formula is of, and what is said of its columns.
    second: str = ""
    beside: _Coded | None = None

    @classmethod
    def of(cls, encoding: Any) -> _Coded:
        if encoding is None:
            return cls({}, frozenset(), ())
        coding, second = encoding["coding"], encoding["coding"].get("second")
        if second is None:
            return cls._of_coding(coding, encoding)
        width = len(coding["names"]) - len(second["coding"]["names"])
        first = cls._of_coding({**coding, "names": coding["names"][:width]}, encoding)
        return replace(first, second=second["name"], beside=cls._of_coding(second["coding"], {}))

    @classmethod
    def _of_coding(cls, coding: Any, encoding: Any) -> _Coded:
        parts: dict[str, _Part] = {}
        columns = frozenset(coding.get("names", ()))
        for factor, levels in coding.get("categories", {"items": ()})["items"]:
            missing = [level for level in levels if f"{factor}[T.{level}]" not in columns]
            reference = str(missing[0]) if len(missing) == 1 else ""
            for level in levels:
                parts[f"{factor}[{level}]"] = _Part(factor, str(level))
                parts[f"{factor}[T.{level}]"] = _Part(factor, str(level), reference)
        coded = cls(parts, columns, tuple(map(str, encoding.get("classes") or ())))
        return replace(coded, alone=coded._standing_alone(frozenset(coding.get("kinds", ())))) if columns else coded

    def _standing_alone(self, variables: frozenset[str]) -> frozenset[str]:
        """Columns none of whose variables is read by any other, but for the dummies of one category."""
        made = {column: self._parts_of(column) for column in self.columns}
        factors = {
            column: tuple(PLACE.sub("", part.factor) if part.level is None else part.factor for part in parts)
            for column, parts in made.items()
        }
        read = {factor: _variables(factor, variables) for key in set(factors.values()) for factor in key}
        readers: dict[str, set[tuple[str, ...]]] = {}
        for key in set(factors.values()):
            for variable in {each for factor in key for each in read[factor]}:
                readers.setdefault(variable, set()).add(key)
        columns = Counter(factors.values())
        return frozenset(
            column
            for column, key in factors.items()
            if len(key) == 1
            and all(len(readers[each]) == 1 for each in read[key[0]])
            and (columns[key] == 1 if made[column][0].level is None else bool(made[column][0].reference))
        )

    def _parts_of(self, column: str) -> list[_Part]:
        return [self._part(each) for each in ([column] if column in self.parts else _factors(column))]

    def term(self, name: str) -> Term:
        if self.beside is not None and name.startswith(f"{self.second}:"):
            own = self.beside.term(name.removeprefix(f"{self.second}:"))
            if own.factor:
                return replace(own, name=name, factor=f"{self.second} by {own.factor}", is_alone=False)
            return replace(own, name=name, label=name, is_alone=False)
        column, head = self._by_class(name)
        base = self.classes[0] if head else ""
        if column in (*EXTRAS, *INTERCEPTS) or is_group_scale(column):
            return Term(name, column, head=head, base=base)
        parts = self._parts_of(column)
        alone = self.alone is None or column in self.alone
        if all(part.level is None for part in parts):
            return Term(name, column, head=head, base=base, is_alone=alone)
        return Term(
            name,
            label=" : ".join(part.level for part in parts if part.level is not None),
            factor=" : ".join(_shown(part.factor) for part in parts),
            reference=parts[0].reference if len(parts) == 1 else "",
            head=head,
            base=base,
            is_category=all(part.level is not None for part in parts),
            is_alone=alone,
        )

    def _by_class(self, name: str) -> tuple[str, str]:
        """The column's name, and the class before it."""
        if len(self.classes) < 3 or name in self.columns:
            return name, ""
        for each in self.classes[1:]:
            column = name.removeprefix(f"{each}.")
            if column != name and column in (*self.columns, *INTERCEPTS):
                return column, each
        return name, ""

    def _part(self, part: str) -> _Part:
        found = CODED.fullmatch(part)
        return self.parts.get(part) or (_Part(found["factor"], found["level"]) if found else _Part(part, None))


def _factors(column: str) -> list[str]:
    """The factors of an interaction, split at colons that stand outside brackets."""
    parts, depth = [""], 0
    for character in column:
        depth += (character in "([{") - (character in ")]}")
        if character == ":" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _variables(factor: str, known: frozenset[str]) -> set[str]:
    """Columns of the table that an expression reads; where those are not known, every word of it."""
    words = {word.strip("`") for word in WORD.findall(factor)}
    return words & known or words


def columns_read(name: str, known: Iterable[str]) -> set[str]:
    """Columns of the table that a column of the design seems to be made of, by its name."""
    known = frozenset(known)
    return set().union(*(_variables(factor, known) for factor in _factors(name))) & known


def _shown(factor: str) -> str:
    """C(month) is month to a reader."""
    found = LABELLED.fullmatch(factor)
    return found["column"] if found else factor
