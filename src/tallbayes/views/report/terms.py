"""Terms: what the names of coefficients say of them, so that those of one factor stand together.

    carrier[T.EV]        EV, of the factor carrier, against its first category
    late.carrier[T.EV]   the same, for the class late against the first class
    [3], intercept       as they are

All is read off the plain encoding of a formula where there is one, since names alone can be ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tallbayes.model.catalogue import EXTRAS
from tallbayes.progress import shorten
from tallbayes.results.coefficients import INTERCEPTS
from tallbayes.results.result import Result

LONGEST = 44
CODED = re.compile(r"(?P<factor>.+?)\[T\.(?P<level>.*)\]", re.DOTALL)
LABELLED = re.compile(r"C\((?P<column>[^(),]+)(,.*)?\)", re.DOTALL)


@dataclass(frozen=True)
class Term:
    """One coefficient: its full name, its label within its group, and whether it is that of a category.

    `head` is the class of the response it belongs to, where there are several, and `base` the class that is against.
    """

    name: str
    label: str
    factor: str = ""
    reference: str = ""
    head: str = ""
    base: str = ""
    is_category: bool = False

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
        return not self.factor and self.label.split("[")[0].split(".")[-1] in INTERCEPTS

    @property
    def is_extra(self) -> bool:
        return not self.factor and self.label in EXTRAS


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
    """What an encoding says: parts by their names, columns, and the classes of the response."""

    parts: Mapping[str, _Part]
    columns: frozenset[str]
    classes: tuple[str, ...]

    @classmethod
    def of(cls, encoding: Any) -> _Coded:
        if encoding is None:
            return cls({}, frozenset(), ())
        coding, parts = encoding["coding"], {}
        columns = frozenset(coding["names"])
        for factor, levels in coding["categories"]["items"]:
            missing = [level for level in levels if f"{factor}[T.{level}]" not in columns]
            reference = str(missing[0]) if len(missing) == 1 else ""
            for level in levels:
                parts[f"{factor}[{level}]"] = _Part(factor, str(level))
                parts[f"{factor}[T.{level}]"] = _Part(factor, str(level), reference)
        return cls(parts, columns, tuple(map(str, encoding["classes"] or ())))

    def term(self, name: str) -> Term:
        column, head = self._by_class(name)
        base = self.classes[0] if head else ""
        if column in (*EXTRAS, *INTERCEPTS):
            return Term(name, column, head=head, base=base)
        parts = [self._part(each) for each in ([column] if column in self.parts else _factors(column))]
        if all(part.level is None for part in parts):
            return Term(name, column, head=head, base=base)
        return Term(
            name,
            label=" : ".join(part.level for part in parts if part.level is not None),
            factor=" : ".join(_shown(part.factor) for part in parts),
            reference=parts[0].reference if len(parts) == 1 else "",
            head=head,
            base=base,
            is_category=all(part.level is not None for part in parts),
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


def _shown(factor: str) -> str:
    """C(month) is month to a reader."""
    found = LABELLED.fullmatch(factor)
    return found["column"] if found else factor
