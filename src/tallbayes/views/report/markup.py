"""Markup: elements of a page, numbers as they are set in it, and tables of both.

    element("p", "a < b", class_="note")      <p class="note">a &lt; b</p>

Text is escaped on its way into an element; only what `element` itself returned is not escaped again. Numbers are those
of `numbers`, with a minus as wide as a digit; in a column the points stand below one another.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tallbayes.views import numbers
from tallbayes.views.advice import TYPED
from tallbayes.views.tables import Grid

VOID = ("meta", "link", "br", "hr", "col")
MINUS = "\N{MINUS SIGN}"
# Characters that no page may hold, whatever a column is called.
FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Piece = str | float | None


def escape(text: object) -> Markup:
    """Text as markup, quotes included."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(text))))


def element(tag: str, *children: Piece, **attributes: Any) -> Markup:
    """An element; attributes that are None are left out, and `class_`, `aria_label` are written as HTML has them.

    >>> element("a", "x", href="#y", aria_label=None)
    '<a href="#y">x</a>'
    """
    written = "".join(
        f' {_attribute(name)}="{escape(_short(value))}"' for name, value in attributes.items() if value is not None
    )
    if tag in VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{join(children)}</{tag}>")


def join(children: Iterable[Piece], between: str = "") -> Markup:
    """Several pieces as one."""
    return Markup(escape(between).join(escape(child) for child in children if child is not None))


def folded(summary: str, parts: Iterable[Piece]) -> Markup:
    """What is shown to those who ask for it, and on paper."""
    return element("details", element("summary", summary), join(parts))


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _short(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def in_page(text: str) -> str:
    """A number with a minus as wide as a digit."""
    return text.replace("-", MINUS)


def figures(value: float, error: float, rough: bool = False) -> tuple[str, str]:
    """A value and its error as text, both to the second digit of the error.

    >>> figures(-12345.6, 120.0), figures(0.5, 0.2, rough=True)
    (('−12350', '120'), ('~0.50', '0.20'))
    """
    shown, beside = numbers.figures(value, error, rough)
    return in_page(shown), in_page(beside)


def alone(value: float, error: float, width: float = 0.0) -> str:
    return in_page(numbers.alone(value, error, width))


def typed(sentence: str) -> Markup:
    """With what is to be typed, between backticks, in type of its own.

    >>> typed("see `a < b`")
    'see <code>a &lt; b</code>'
    """
    return Markup(TYPED.sub(r"<code>\1</code>", escape(sentence)))


def fixed(value: float, decimals: int) -> str:
    return in_page(numbers.fixed(value, decimals))


def plain(value: float, digits: int = 2) -> str:
    return in_page(numbers.plain(value, digits))


def neat(value: float) -> str:
    return in_page(numbers.neat(value))


def share(value: float) -> str:
    return in_page(numbers.share(value))


def counted(number: int, noun: str, several: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "category", "categories")
    ('1 row', '1,200 rows', '2 categories')
    """
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def listed(parts: Sequence[str]) -> str:
    """Parts in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def noted(note: str) -> Markup:
    """A note with the word it begins with set apart, if it does.

    >>> noted("prior: N(0, 1)")
    '<strong>Prior</strong>: N(0, 1)'
    """
    word, colon, rest = note.partition(": ")
    return join([element("strong", word.capitalize()), f": {rest}"]) if colon and word.isalpha() else escape(note)


@dataclass(frozen=True)
class PageColumn:
    """A column of a table: its head, its cells, and whether they are set as numbers."""

    head: Piece
    cells: Sequence[Piece]
    numeric: bool = True


def measured(head: Piece, pairs: Sequence[tuple[float, float]], rough: Sequence[bool] = ()) -> PageColumn:
    """A column of values with their errors, points below points and errors below errors; rough ones are marked."""
    marks = rough or [False] * len(pairs)
    texts = [figures(value, error, mark) for (value, error), mark in zip(pairs, marks, strict=True)]
    values = aligned([value for value, _ in texts])
    width = max((len(error) for _, error in texts), default=0) + 2
    cells = [join([value, _error(error, width)]) for value, (_, error) in zip(values, texts, strict=True)]
    return PageColumn(head, cells)


def columns_of(grid: Grid, **heads: str) -> list[PageColumn]:
    """Those of a table, some of them under other heads."""
    return [
        column(heads.get(head, head), [in_page(str(cell)) for cell in cells]) for head, cells in grid.columns.items()
    ]


def column(head: Piece, texts: Sequence[str]) -> PageColumn:
    """A column of numbers without errors, points below points."""
    return PageColumn(head, aligned(texts))


def aligned(texts: Sequence[str]) -> list[Markup]:
    """With room behind those that have fewer places than others."""
    after = [len(text) - text.index(".") if "." in text else 0 for text in texts]
    widest = max(after, default=0)
    return [
        text if text == numbers.UNKNOWN else join([text, _room(widest - places, places == 0)])
        for text, places in zip(map(escape, texts), after, strict=True)
    ]


def _room(places: int, with_point: bool) -> Markup | None:
    """A gap as wide as so many characters, of which a point is half as wide as a digit."""
    width = places - 0.5 * with_point
    return element("i", style=f"width:{width:g}ch") if places > 0 else None


def _error(error: str, width: int) -> Markup:
    return element("span", f"± {error}" if error else "", class_="error", style=f"min-width:{width}ch")


def table(
    caption: Piece,
    head: Piece,
    names: Sequence[Piece],
    columns: Sequence[PageColumn],
    groups: Sequence[str] | None = None,
    label: str | None = None,
) -> Markup:
    """A table in a box of its own: a row a name, under its group where there are any.

    Where it is narrow a row becomes a card, so every cell knows the head of its column; paper and desks that are too
    narrow for it scroll. `label` is what the box is called for those who cannot see it.
    """
    titles = [element("th", head, scope="col")]
    titles += [element("th", each.head, scope="col", class_="number" if each.numeric else None) for each in columns]
    rows: list[Markup] = []
    for place, name in enumerate(names):
        group, before = (groups[place] if groups else "", groups[place - 1] if groups and place else "")
        if group and group != before:
            wide = element("th", element("span", group), colspan=len(columns) + 1, scope="rowgroup")
            rows.append(element("tr", wide, class_="group"))
        cells = [
            element(
                "td", each.cells[place], class_="number" if each.numeric else None, data_head=_words(each.head or "")
            )
            for each in columns
        ]
        first = element("th", name, scope="row", class_="member" if group else None)
        rows.append(element("tr", first, *cells, class_="alone" if before and not group else None))
    body = element("tbody", join(rows, "\n"))
    inner = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", *titles)),
        body,
        style=f"--abreast:{_abreast(columns)}",
    )
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=label or _words(caption))


def _abreast(columns: Sequence[PageColumn]) -> int:
    """How many cells stand beside one another in a card: words need room, and four are two by two."""
    if any(not each.numeric for each in columns) and len(columns) < 4:
        return 1
    return min(len(columns), 2 if len(columns) == 4 else 3)


def _words(caption: Piece) -> str:
    """The text of a caption, without its elements."""
    return html.unescape(re.sub("<[^>]*>", "", caption)) if isinstance(caption, Markup) else str(caption)
