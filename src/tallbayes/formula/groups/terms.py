"""Group terms: the bars of a formula, taken out of its text.

    "y ~ x + (1 + x | g)"          ->  "y ~ x",  GroupTerm("1 + x", ("g",))
    "y ~ (x || g)"                 ->  "y ~ 1",  GroupTerm("1 + x", ("g",), correlated=False)
    "y ~ (1 | a/b)"                ->  "y ~ 1",  GroupTerm("1", ("a",)), GroupTerm("1", ("a", "b"))
    "y ~ (1 | g) + (0 + x | g)"    ->  "y ~ 1",  GroupTerm("1 + x", ("g",), correlated=False)

As in lme4, effects have an intercept unless it is taken out, a:b is the combination of two columns, and several bars
add up. What is before a bar is checked like the right side of a formula, once the columns of a table are known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tallbayes.errors import InputError, explain
from tallbayes.formula.expressions import as_term, cut, is_operator, quote_names, tokens_of
from tallbayes.formula.functions.evaluation import terms_of
from tallbayes.rows.columns import quote_parts

MOST_EFFECTS = 3
BARS = ("|", "||")
EXAMPLE = "y ~ x + (1 + x | g)"


@dataclass(frozen=True)
class GroupTerm:
    """Effects that every group has of its own: a right side, and the columns whose combination is the group.

    With `correlated` the effects of a group have any covariance, without it none between two of them. `text` is the
    term as one would write it.
    """

    effects: str
    by: tuple[str, ...]
    correlated: bool = True
    text: str = ""


@dataclass(frozen=True)
class _Bar:
    """One bar: the effects before it one by one, the columns behind it, and how the whole is written."""

    effects: tuple[str, ...]
    by: tuple[str, ...]
    correlated: bool
    text: str


def take_groups(formula: str) -> tuple[str, tuple[GroupTerm, ...]]:
    """A formula without its bars, and the terms that these were; one without bars comes back as it is.

    >>> take_groups("late ~ hour + (1 | carrier)")
    ('late ~ hour', (GroupTerm(effects='1', by=('carrier',), correlated=True, text='(1 | carrier)'),))
    """
    if not isinstance(formula, str) or "|" not in formula:
        return formula, ()
    left, right = cut(quote_parts(quote_names(formula)))
    tokens = tokens_of(right)
    bars = [place for place, token in enumerate(tokens) if is_operator(token, "|")]
    if not bars:
        return formula, ()
    spans = [_span(tokens, bar, right) for bar in bars]
    found = [each for bar, span in zip(bars, spans, strict=True) for each in _read(tokens, bar, span, right)]
    return f"{left} ~ {_without(tokens, spans, right)}", _merged(found)


def _span(tokens: Sequence[Any], bar: int, right: str) -> tuple[int, int]:
    """The places of the brackets around a bar, which must be a term by itself and have no other bar inside."""
    opening = _matching(tokens, range(bar - 1, -1, -1), ")", "(")
    closing = _matching(tokens, range(bar + 1, len(tokens)), "(", ")")
    if opening is None or closing is None:
        group = right[tokens[bar].source_end + 1 :].strip() or "g"
        raise _refused("brackets around group effects", f"{right!r}", f"(1 | {group})")
    inside = f"({_within(right, tokens[opening], tokens[closing])})"
    signs = [token.token for token in tokens[opening:closing] if is_operator(token, "|")]
    if len(signs) != 1 or signs[0] not in BARS:
        raise _refused("effects, one bar, | or ||, and a group", inside, EXAMPLE)
    depth = sum(_is_bracket(token, "(") - _is_bracket(token, ")") for token in tokens[:opening])
    begins = opening == 0 or tokens[opening - 1].token == "+"
    ends = closing + 1 == len(tokens) or tokens[closing + 1].token[0] in "+-"
    if depth or not begins or not ends:
        hint = f"{EXAMPLE}, where it is added to the others"
        raise _refused("group effects as a term by itself", f"{inside} within {right!r}", hint)
    return opening, closing


def _matching(tokens: Sequence[Any], places: Iterable[int], deeper: str, wanted: str) -> int | None:
    """The next bracket of one kind that is not closed on the way."""
    depth = 0
    for place in places:
        if _is_bracket(tokens[place], wanted) and not depth:
            return place
        depth += _is_bracket(tokens[place], deeper) - _is_bracket(tokens[place], wanted)
    return None


def _read(tokens: Sequence[Any], bar: int, span: tuple[int, int], right: str) -> list[_Bar]:
    """One bar, or those that a nested one stands for."""
    text = f"({_within(right, tokens[span[0]], tokens[span[1]])})"
    correlated = tokens[bar].token == "|"
    written = _within(right, tokens[span[0]], tokens[bar])
    if not written:
        raise _refused("group effects before the bar", text, f"(1 {text[1:].strip()}")
    effects = _effects(written, text)
    nested = _columns(tokens[bar + 1 : span[1]], text)
    if len(nested) == 1:
        return [_Bar(effects, nested[0], correlated, text)]
    sign = tokens[bar].token
    return [_Bar(effects, by, correlated, f"({written} {sign} {':'.join(map(as_term, by))})") for by in nested]


def _effects(written: str, text: str) -> tuple[str, ...]:
    """Term by term, so that those of two bars can be compared; the intercept is "1"."""
    terms = terms_of(written)
    effects = tuple(":".join(_factor(factor) for factor in term.factors) for term in terms)
    if not effects:
        raise _refused("at least one effect of a group", text, "(1 | g) or (0 + x | g)")
    if len(effects) > MOST_EFFECTS:
        raise too_many(len(effects), text)
    return effects


def too_many(count: int, text: str) -> InputError:
    hint = "those that vary most between groups there, and the others as fixed terms alone"
    return _refused(f"at most {MOST_EFFECTS} effects a group", f"{count} in {text}", hint)


def _factor(factor: Any) -> str:
    """A factor as it is written in a formula."""
    expression = str(factor.expr)
    if factor.eval_method.value != "python":
        return as_term(expression) if factor.eval_method.value == "lookup" else expression
    # A call is a token of its own; any other expression is one within braces.
    is_call = isinstance(ast.parse(re.sub("`[^`]*`", "quoted", expression), mode="eval").body, ast.Call)
    return expression if is_call else f"{{{expression}}}"


def _columns(tokens: Sequence[Any], text: str) -> list[tuple[str, ...]]:
    """What stands behind a bar: of a/b the columns of a, and of a and b; brackets around the whole are dropped."""
    tokens = list(tokens)
    while len(tokens) > 1 and _is_bracket(tokens[0], "(") and _is_bracket(tokens[-1], ")"):
        tokens = tokens[1:-1]
    if not tokens:
        raise _refused("a group behind the bar", text, "(1 | g), where g is a column")
    found: list[tuple[str, ...]] = [()]
    signs = [token for token in tokens[1::2] if token.kind.value != "operator" or token.token not in (":", "/")]
    if signs or len(tokens) % 2 == 0:
        hint = "g, a:b for a combination, a/b for b within a; (1 | a) + (1 | b) for two groups that cross"
        raise _refused("columns behind the bar", text, hint)
    for place in range(0, len(tokens), 2):
        if place and tokens[place - 1].token == "/":
            found.append(found[-1])
        found[-1] = (*found[-1], _column(tokens[place], text))
    for by in found:
        if len(set(by)) < len(by):
            raise _refused("a combination of different columns", text, "each column once")
    return found


def _column(token: Any, text: str) -> str:
    """A name, or C(name)."""
    if token.kind.value == "name":
        return str(token.token)
    inside = re.fullmatch(r"C\(\s*(?:`([^`]+)`|([^\W\d]\w*))\s*\)", token.token)
    if token.kind.value != "python" or inside is None:
        hint = "the name of a column, in which each group has a name or a whole number"
        raise _refused("a column behind the bar", f"{token.token!r} in {text}", hint)
    return inside[1] or inside[2]


def _without(tokens: Sequence[Any], spans: Sequence[tuple[int, int]], right: str) -> str:
    """The right side without these spans; what is left without any term is an intercept."""
    for opening, closing in reversed(spans):
        start = tokens[max(opening - 1, 0)].source_start
        right = right[:start] + right[tokens[closing].source_end + 1 :]
    right = re.sub(r"^\s*\+", "", right).strip()
    return f"1 {right}".strip() if not right or right.startswith("-") else right


def _merged(bars: Sequence[_Bar]) -> tuple[GroupTerm, ...]:
    """A term for every combination of columns, in the order in which they came."""
    together: dict[frozenset[str], list[_Bar]] = {}
    for bar in bars:
        together.setdefault(frozenset(bar.by), []).append(bar)
    return tuple(_term(same) for same in together.values())


def _term(bars: Sequence[_Bar]) -> GroupTerm:
    effects = [effect for bar in bars for effect in bar.effects]
    text = " + ".join(bar.text for bar in bars)
    twice = [effect for place, effect in enumerate(effects) if effect in effects[:place]]
    if twice:
        what = "the intercept" if twice[0] == "1" else twice[0]
        hint = "(1 | g) + (0 + x | g): an intercept is there unless 0 takes it out"
        raise _refused(f"{what} once for a group", text, hint)
    if len(effects) > MOST_EFFECTS:
        raise too_many(len(effects), text)
    if len(bars) > 1 and any(bar.correlated and len(bar.effects) > 1 for bar in bars):
        by = ":".join(map(as_term, bars[0].by))
        every = " + ".join(effects if "1" in effects else ["0", *effects])
        hint = f"({every} | {by}) for all of them, or ({every} || {by}) for none"
        raise _refused("correlations between all effects of a group or between none", text, hint)
    ordered = sorted(effects, key=lambda effect: effect != "1")
    joined = " + ".join(ordered if "1" in effects else ["0", *ordered])
    return GroupTerm(joined, bars[0].by, len(bars) == 1 and bars[0].correlated, text)


def _within(right: str, first: Any, last: Any) -> str:
    """What stands between two signs, on one line; where a name in backticks ends, its token does not tell."""
    return " ".join(right[first.source_end + 1 : last.source_start].split())


def _is_bracket(token: Any, sign: str) -> bool:
    return token.kind.value == "context" and token.token == sign


def _refused(expected: str, got: str, hint: str) -> InputError:
    return InputError(explain(expected, got, hint))
