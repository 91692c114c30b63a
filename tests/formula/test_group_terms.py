"""The bars of a formula: what each parses to, by a table; and what is refused, with what to write instead."""

from __future__ import annotations

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import InputError, ModelError
from tallbayes.formula.groups.terms import GroupTerm, take_groups

G = ("g",)
# A formula, what is left of it, and effects, columns and correlation of every term.
PARSED: dict[str, tuple[str, list[tuple[str, tuple[str, ...], bool]]]] = {
    "y ~ x": ("y ~ x", []),
    "y ~ I(a | b) + `p|q`": ("y ~ I(a | b) + `p|q`", []),
    "y ~ x + (1 | g)": ("y ~ x", [("1", G, True)]),
    "y ~ x+(1|g)": ("y ~ x", [("1", G, True)]),
    "y ~ (1 | g) + x": ("y ~ x", [("1", G, True)]),
    "y ~ x + ( 1\n + x  |  g )": ("y ~ x", [("1 + x", G, True)]),
    "y ~ (1 | g)": ("y ~ 1", [("1", G, True)]),
    "y ~ 1 + (1 | g)": ("y ~ 1", [("1", G, True)]),
    "y ~ 0 + x + (1 | g)": ("y ~ 0 + x", [("1", G, True)]),
    "y ~ -1 + x + (1 | g)": ("y ~ 1 -1 + x", [("1", G, True)]),
    "y ~ (1 | g) - 1 + x": ("y ~ 1 - 1 + x", [("1", G, True)]),
    "y ~ x + (x | g)": ("y ~ x", [("1 + x", G, True)]),
    "y ~ x + (x + 1 | g)": ("y ~ x", [("1 + x", G, True)]),
    "y ~ x + (0 + x | g)": ("y ~ x", [("0 + x", G, True)]),
    "y ~ x + (x - 1 | g)": ("y ~ x", [("0 + x", G, True)]),
    "y ~ x + (x || g)": ("y ~ x", [("1 + x", G, False)]),
    "y ~ x + (0 + x + z || g)": ("y ~ x", [("0 + x + z", G, False)]),
    "y ~ (x + z | g)": ("y ~ 1", [("1 + x + z", G, True)]),
    "y ~ (0 + x*z | g)": ("y ~ 1", [("0 + x + z + x:z", G, True)]),
    "y ~ (1 + np.log(x) | g)": ("y ~ 1", [("1 + np.log(x)", G, True)]),
    "y ~ (1 + np.log((x + 1) * 2) | g) + z": ("y ~ z", [("1 + np.log((x + 1) * 2)", G, True)]),
    "y ~ (0 + (x + z) | g)": ("y ~ 1", [("0 + x + z", G, True)]),
    "y ~ (0 + {x + 1} | g)": ("y ~ 1", [("0 + {x + 1}", G, True)]),
    "y ~ (0 + C(k) | g)": ("y ~ 1", [("0 + C(k)", G, True)]),
    "y ~ (1 + `air time` | `the group`)": ("y ~ 1", [("1 + `air time`", ("the group",), True)]),
    "y ~ (1 | Q('the group'))": ("y ~ 1", [("1", ("the group",), True)]),
    "y ~ (1 | C(g))": ("y ~ 1", [("1", G, True)]),
    "y ~ (1 | C( `the group` ))": ("y ~ 1", [("1", ("the group",), True)]),
    "y ~ (1 | weekday(day))": ("y ~ 1", [("1", ("weekday(day)",), True)]),
    "y ~ (1 | a) + (1 | b)": ("y ~ 1", [("1", ("a",), True), ("1", ("b",), True)]),
    "y ~ (1 | a) + x + (1 + x | b)": ("y ~ x", [("1", ("a",), True), ("1 + x", ("b",), True)]),
    "y ~ (1 | a:b)": ("y ~ 1", [("1", ("a", "b"), True)]),
    "y ~ (1 | a/b)": ("y ~ 1", [("1", ("a",), True), ("1", ("a", "b"), True)]),
    "y ~ (1 | (a / C(b)))": ("y ~ 1", [("1", ("a",), True), ("1", ("a", "b"), True)]),
    "y ~ (x || a/b)": ("y ~ 1", [("1 + x", ("a",), False), ("1 + x", ("a", "b"), False)]),
    "y ~ (1 | a/b/c)": ("y ~ 1", [("1", ("a",), True), ("1", ("a", "b"), True), ("1", ("a", "b", "c"), True)]),
    "y ~ (1 | a:b/c)": ("y ~ 1", [("1", ("a", "b"), True), ("1", ("a", "b", "c"), True)]),
    "y ~ (1 | g) + (0 + x | g)": ("y ~ 1", [("1 + x", G, False)]),
    "y ~ (0 + x | g) + z + (1 | C(g))": ("y ~ z", [("1 + x", G, False)]),
    "y ~ (x || g) + (0 + z | g)": ("y ~ 1", [("1 + x + z", G, False)]),
    "y ~ (1 | a/b) + (0 + x | a)": ("y ~ 1", [("1 + x", ("a",), False), ("1", ("a", "b"), True)]),
    "y ~ x + offset(log(n)) + (1 | g)": ("y ~ x + offset(log(n))", [("1", G, True)]),
    "y ~ . + (1 | g)": ("y ~ .", [("1", G, True)]),
}


@pytest.mark.parametrize("formula", PARSED)
def test_bars_are_taken_out_of_a_formula(formula: str) -> None:
    bare, terms = take_groups(formula)
    assert (bare, [(term.effects, term.by, term.correlated) for term in terms]) == PARSED[formula]


@pytest.mark.parametrize("formula", PARSED)
def test_the_text_of_a_term_is_the_term(formula: str) -> None:
    """What a result says of its formula can be asked again."""
    bare, terms = take_groups(formula)
    again = take_groups(" + ".join([bare, *(term.text for term in terms)]))
    assert again == (bare, terms)


def test_a_term_says_how_it_is_written() -> None:
    assert take_groups("y ~ x + (1 +  x | g)") == ("y ~ x", (GroupTerm("1 + x", ("g",), True, "(1 + x | g)"),))
    texts = [term.text for term in take_groups("y ~ (x || a/b) + (1|g) + (0 + x|g)")[1]]
    assert texts == ["(x || a)", "(x || a:b)", "(1|g) + (0 + x|g)"]


REFUSED = {
    "y ~ x | g": ("brackets around group effects", "'x | g'", "(1 | g)"),
    "y ~ x + 1 || g": ("brackets around group effects", "'x + 1 || g'", "(1 | g)"),
    "y ~ (1 | )": ("a group behind the bar", "(1 |)", "(1 | g)"),
    "y ~ ( | g)": ("group effects before the bar", "(| g)", "(1 | g)"),
    "y ~ (1 + | g)": ("effects, one bar", "(1 + | g)", "(1 + x | g)"),
    "y ~ (1 | g | h)": ("one bar", "(1 | g | h)", "(1 + x | g)"),
    "y ~ (1 ||| g)": ("one bar", "(1 ||| g)", "(1 + x | g)"),
    "y ~ (0 | g)": ("at least one effect", "(0 | g)", "(1 | g)"),
    "y ~ x:(1 | g)": ("as a term by itself", "(1 | g) within 'x:(1 | g)'", "added"),
    "y ~ x*(1 | g)": ("as a term by itself", "within 'x*(1 | g)'", "added"),
    "y ~ (1 | g):x": ("as a term by itself", "within '(1 | g):x'", "added"),
    "y ~ (x + (1 | g))": ("as a term by itself", "within '(x + (1 | g))'", "added"),
    "y ~ x - (1 | g)": ("as a term by itself", "within 'x - (1 | g)'", "added"),
    "y ~ -(1 | g)": ("as a term by itself", "within '-(1 | g)'", "added"),
    "y ~ (1 | a + b)": ("columns behind the bar", "(1 | a + b)", "(1 | a) + (1 | b) for two groups that cross"),
    "y ~ (1 | a*b)": ("columns behind the bar", "(1 | a*b)", "a/b for b within a"),
    "y ~ (1 | a/)": ("columns behind the bar", "(1 | a/)", "a/b for b within a"),
    "y ~ (1 | np.floor(g))": ("a column behind the bar", "'np.floor(g)'", "whole number"),
    "y ~ (1 | C(g, Sum))": ("a column behind the bar", "'C(g, Sum)'", "name of a column"),
    "y ~ (1 | 2)": ("a column behind the bar", "'2'", "name of a column"),
    "y ~ (1 | a:a)": ("different columns", "(1 | a:a)", "once"),
    "y ~ (1 | g) + (1 | g)": ("the intercept once", "(1 | g) + (1 | g)", "0 takes it out"),
    "y ~ (1 | g) + (x | g)": ("the intercept once", "(1 | g) + (x | g)", "(0 + x | g)"),
    "y ~ (x | g) + (0 + x | g)": ("x once", "(0 + x | g)", "(0 + x | g)"),
    "y ~ (1 | a:b) + (1 | b:a)": ("the intercept once", "(1 | b:a)", "(0 + x | g)"),
    "y ~ (1 | a) + (1 | a/b)": ("the intercept once", "(1 | a) + (1 | a)", "(0 + x | g)"),
    "y ~ (x + z + w | g)": ("at most 3 effects", "4 in (x + z + w | g)", "fixed"),
    "y ~ (x + z || g) + (0 + w | g)": ("at most 3 effects", "4 in", "fixed"),
    "y ~ (x | g) + (0 + z | g)": ("all effects of a group or between none", "(x | g)", "(1 + x + z | g) for all"),
    "y ~ (x +* z | g)": ("a formula", "'+*'", "mend it"),
    "y ~ x ~ (1 | g)": ("one ~", "'y ~ x ~ (1 | g)'", "late"),
    "y ~ (1 | g": ("brackets", "'(1 | g'", "(1 | g)"),
}


@pytest.mark.parametrize("formula", REFUSED)
def test_what_no_group_is_is_told(formula: str) -> None:
    with pytest.raises(InputError) as caught:
        take_groups(formula)
    expected, got = str(caught.value).partition("; got ")[::2]
    for part, text in zip(REFUSED[formula], (expected, *got.split(". Try: ")), strict=True):
        assert part in text


@pytest.mark.parametrize("formula", ["y ~ x + (1 | g)", "y ~ x + (1 | g) + (1 | h)"])
def test_several_classes_are_told_what_to_do_instead(formula: str) -> None:
    rng = np.random.default_rng(0)
    table = {"y": rng.integers(0, 3, 40), "x": rng.normal(size=40), "g": np.arange(40) % 5, "h": np.arange(40) % 4}
    with pytest.raises(
        ModelError, match=r"got multinomial. Try: a logistic fit for each class but one, .* C\(school\)"
    ):
        tb.fit(formula, table, "multinomial")
