"""Second formulas: of a parameter beside the coefficients, as bambi and brms have them.

    "y ~ x; sigma ~ z"      log sigma = sigma:Intercept + sigma:z z
    ["y ~ x", "sigma ~ z"]  the same, and so is a bambi.Formula

Its columns stand after those of the first formula, under names that begin with the parameter's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tallbayes.errors import InputError, explain
from tallbayes.formula.coding import Coding, SecondCoding, learn
from tallbayes.formula.expressions import (
    Parsed,
    SecondSide,
    cut,
    is_operator,
    read_side,
    tokens_of,
    written_out,
)
from tallbayes.rows.columns import parts_in, quote_parts
from tallbayes.rows.sources import Source

EXAMPLE = '"y ~ x; sigma ~ z"'
# A semicolon in quotes or backticks is none of ours.
PIECE = re.compile(r"""(?:"[^"]*"|'[^']*'|`[^`]*`|[^;"'`])+""")


def formula_text(formula: Any) -> Any:
    """One text of a formula, of several in a list, or of bambi's; what is none of these is left to be refused."""
    if hasattr(formula, "main") and hasattr(formula, "additionals"):
        formula = [formula.main, *formula.additionals]
    if isinstance(formula, list | tuple) and formula and all(isinstance(each, str) for each in formula):
        return "; ".join(formula)
    return formula


def split(formula: Any) -> tuple[Any, tuple[str, ...]]:
    """The formula of the response, and those behind it."""
    if not isinstance(formula, str) or ";" not in formula:
        return formula, ()
    first, *others = (each.strip() for each in PIECE.findall(formula))
    others = [each for each in others if each]
    return (first, tuple(others)) if all("~" in each for each in others) else (formula, ())


def read_second(
    texts: Sequence[str], parameter: str, parsed: Parsed, source: Source, apart: Iterable[str] = ()
) -> SecondSide | None:
    """That of the one `parameter` that a family has a formula for; a dot stands for what it does in the first."""
    if not texts:
        return None
    named = [cut(text) for text in texts]
    for name, _ in named:
        if name != parameter:
            known = (
                f"a formula of {parameter}" if parameter else "none: families linear and student_t have one, of sigma"
            )
            raise InputError(explain(f"beside the formula of the response {known}", f"one of {name!r}", EXAMPLE))
    if len(named) > 1:
        raise InputError(explain(f"one formula of {parameter}", f"{len(named)}", "all of its terms in one"))
    right = quote_parts(named[0][1])
    if any(is_operator(token, "|") for token in tokens_of(right)) or parsed.groups:
        got = f"groups beside a formula of {parameter}"
        raise InputError(explain("columns alone", got, "C(g) in place of (1 | g), or the formula without the other"))
    if re.search(r"\b(offset|s)\s*\(", right):
        hint = "poly(x, 3) or bs(x, df=6) for a curve"
        raise InputError(explain(f"no offset and no smooth in the formula of {parameter}", repr(right), hint))
    right = written_out(right, {*parsed.left_columns, *apart}, source)
    return SecondSide(parameter, right, read_side(right, (*source.names, *parts_in(right))))


def learn_both(parsed: Parsed, table: Any, indexing: bool) -> Coding:
    """What all rows say of the terms; those of a second formula are all written down."""
    first, second = learn(parsed.right, parsed.right_columns, table, indexing), None
    if parsed.second is not None:
        name, right, columns = parsed.second
        second = SecondCoding(name, learn(right, columns, table, indexing=False))
    return joined(first, second)


def second_formula(parsed: Parsed) -> Parsed:
    """The second formula as one by itself."""
    assert parsed.second is not None
    return Parsed(parsed.left, parsed.second.right, parsed.left_columns, parsed.second.columns)


def joined(first: Coding, second: SecondCoding | None) -> Coding:
    """One coding of both, the second's columns behind the first's; an intercept alone is none."""
    if second is None or not (second.coding.names or not second.coding.intercept):
        return first
    own = second.coding
    if not (own.intercept and first.intercept):
        got = f"{second.name} ~ {own.right}" if not own.intercept else first.right
        raise InputError(explain(f"intercepts beside a formula of {second.name}", got, "leave out the 0"))
    if first.smooths:
        hint = "poly(x, 3) or bs(x, df=6) in its place"
        raise InputError(explain(f"no smooth beside a formula of {second.name}", repr(first.smooths[0].factor), hint))
    names = (*first.names, *(f"{second.name}:{name}" for name in own.names))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            explain("columns of different names", f"{twice!r} twice", f"rename the column {second.name!r}")
        )
    of_categories = (*first.of_categories, *(len(first.names) + place for place in own.of_categories))
    kinds = {**first.kinds, **own.kinds}
    return replace(first, names=names, kinds=kinds, of_categories=of_categories, second=second)
