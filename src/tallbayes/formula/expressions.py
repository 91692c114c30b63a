"""Formulas as text: cut at the tilde, the dot written out, every expression held to functions of its own row.

    "late ~ . - carrier"             ->   left "late",   right "(hour + carrier) - carrier"
    "late ~ hour + offset(log(n))"   ->   left "late",   right "hour",   offset "log(n)"
    "late ~ weekday(time)"           ->   left "late",   right "`weekday(time)`", a column that sources make

An expression is made of columns, numbers, operators, NumPy's elementwise functions and the functions named here, and
of nothing else. So its value depends on its own row and on what a stateful transform remembers: rows can be encoded
block by block, and new rows as the old ones. And a formula that comes out of a file can run nothing else.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.formula.functions.dots import unusable
from tallbayes.formula.functions.names import ELEMENTWISE, ELSEWHERE, with_categories
from tallbayes.formula.response.left import call_of, without_bar
from tallbayes.formula.smooths.basis import require_call
from tallbayes.model.catalogue import TRIALS
from tallbayes.rows.columns import PARTS, not_a_part, parts_in, quote_parts, require
from tallbayes.rows.sources import Source, no_such_column

if TYPE_CHECKING:
    from tallbayes.formula.groups.terms import GroupTerm

SMOOTH = "s"
STATEFUL = frozenset({"bs", "cc", "center", "cr", "cs", "ns", "poly", SMOOTH, "scale", "standardize"})
CONTRASTS = frozenset({"Diff", "Helmert", "Poly", "Sum", "Treatment"})
ROWWISE = frozenset({"I", "C", "abs", "exp", "exp2", "log", "log10", "log2"}) | frozenset(ELEMENTWISE)
FUNCTIONS = STATEFUL | CONTRASTS | ROWWISE
ONE_ARGUMENT = frozenset({"exp", "exp2", "log", "log10", "log2"})
ARITHMETIC = frozenset({"<", "<=", ">", ">=", "==", "!=", "//", "&"})
NUMPY_VALUES = frozenset({"clip", "e", "pi", "round", "where"})
NODES = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Load, ast.Constant, ast.BinOp, ast.operator,
    ast.UnaryOp, ast.unaryop, ast.Compare, ast.cmpop, ast.List, ast.Tuple, ast.Dict,
)  # fmt: skip


@dataclass(frozen=True)
class Expression:
    """What a piece of a formula reads: columns and functions; and the column that it is itself, or C(...) of it.

    `is_plain` says that it is nothing but that, without levels or contrasts of its own.
    """

    columns: tuple[str, ...]
    functions: frozenset[str]
    category: str | None = None
    has_levels: bool = False
    is_plain: bool = False


class SecondSide(NamedTuple):
    """The right side of a formula of a parameter beside the coefficients, and the columns that it reads."""

    parameter: str
    right: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Parsed:
    """The two sides of a formula, as text without dots, and the columns of each in their order.

    `offset` is what is added to the linear predictor as it is; `left_out` are the dates that a dot does not stand for,
    `unusable` says why of other columns that it does not. `groups` are the terms with bars, and `group_columns` all
    that these read.
    """

    left: str
    right: str
    left_columns: tuple[str, ...]
    right_columns: tuple[str, ...]
    offset: str = ""
    offset_columns: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()
    groups: tuple[GroupTerm, ...] = ()
    group_columns: tuple[str, ...] = ()
    second: SecondSide | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All that are read, each once."""
        own = (*self.left_columns, *self.both_columns, *self.offset_columns)
        return tuple(dict.fromkeys((*own, *self.group_columns)))

    @property
    def both_columns(self) -> tuple[str, ...]:
        """Of the right side, and of that of a second formula."""
        return self.right_columns if self.second is None else (*self.right_columns, *self.second.columns)

    @property
    def is_column(self) -> bool:
        """Whether the left side is a column as it is."""
        return (quoted_name(self.left) or self.left,) == self.left_columns

    @property
    def left_parts(self) -> tuple[str, ...]:
        """The expressions of the left side that have to be worked out."""
        call = call_of(self.left)
        parts = (self.left,) if call is None else call.parts
        return tuple(part for part in parts if (quoted_name(part) or part) not in self.left_columns)


def parse(formula: str, source: Source, apart: Iterable[str] = (), groups: tuple[GroupTerm, ...] = ()) -> Parsed:
    """Check a formula against the columns of a source; a dot stands for all columns but the left side's and `apart`.

    `groups` are the terms that its bars were.
    """
    left, right = (quote_parts(side) for side in cut(formula))
    left = without_bar(left)
    _refuse_bar(left)
    right, offset = _take_offsets(right)
    names = (*source.names, *parts_in(f"{left} {right} {offset}"))
    if not left:
        raise InputError(explain("a response on the left of ~", repr(formula), "'late ~ hour + carrier'"))
    response = _columns_on_left(left, names, formula)
    right, left_out, useless = _write_out_dots(right, {*response, *apart}, source)
    added = read_expression(offset, names) if offset else Expression((), frozenset())
    if offset and (added.functions & (STATEFUL | {"C"}) or not added.columns):
        raise _no_offset(f"offset({offset})")
    columns = response, read_side(right, names)
    within = [_columns_of(group, source.names) for group in groups]
    return Parsed(left, right, *columns, offset, added.columns, left_out, useless, groups, tuple(chain(*within)))


def _columns_on_left(left: str, names: Sequence[str], formula: str) -> tuple[str, ...]:
    """What a response reads."""
    call = call_of(left) if left not in names else None
    read = [read_expression(quoted_name(part) or part, names) for part in ((left,) if call is None else call.parts)]
    if any(SMOOTH in each.functions for each in read):
        raise InputError(explain("a response on the left of ~", repr(formula), "'late ~ hour + carrier'"))
    return tuple(dict.fromkeys(column for each in read for column in each.columns))


def _columns_of(group: GroupTerm, names: Sequence[str]) -> tuple[str, ...]:
    """What a term with a bar reads."""
    names = (*names, *parts_in(" ".join((group.effects, *map(as_term, group.by)))))
    own = (column for name in group.by for column in _require_column(name, names))
    return (*own, *read_side(group.effects, names))


def read_side(side: str, names: Sequence[str]) -> tuple[str, ...]:
    """The columns that one side of a formula reads, in the order of its text; everything in it is checked."""
    columns: list[str] = []
    for token in tokens_of(side):
        if token.kind.value == "name":
            columns += _require_column(token.token, names)
        elif token.kind.value == "python":
            columns += read_expression(token.token, names).columns
    return tuple(dict.fromkeys(columns))


def read_expression(text: str, names: Sequence[str]) -> Expression:
    """What an expression reads, or an error if it is more than columns, numbers, operators and known functions."""
    if text in names:
        return Expression((text,), frozenset(), category=text, is_plain=True)
    aliases: dict[str, str] = {}

    def alias(match: re.Match[str]) -> str:
        return aliases.setdefault(match[1], f"column_in_backticks_{len(aliases)}")

    try:
        tree = ast.parse(re.sub("`([^`]*)`", alias, text).strip(), mode="eval")
    except SyntaxError as error:
        where = f"{error.msg} at character {error.offset} of {text!r}"
        raise InputError(
            explain("Python expressions in a formula", where, "I(hour**2), np.log(distance), C(carrier)")
        ) from error
    quoted = {short: name for name, short in aliases.items()}
    columns, functions = [], set()
    callables = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, NODES):
            raise _refused(ast.unparse(node), text)
        if isinstance(node, ast.Call):
            functions.add(_function(node, text))
        elif isinstance(node, ast.Attribute) and id(node) not in callables:
            _require_known_attribute(node, text)
        elif isinstance(node, ast.Name) and id(node) not in callables and not _is_namespace(node, names):
            columns += _require_column(quoted.get(node.id, node.id), names)
    return Expression(tuple(dict.fromkeys(columns)), frozenset(functions), *_category(tree.body, quoted))


def quoted_name(text: str) -> str | None:
    """The name within backticks, if the text is nothing else."""
    match = re.fullmatch("`([^`]*)`", text)
    return match[1] if match else None


def quote_names(formula: str) -> str:
    """Backticks in place of Q("a name"), which formulaic does not know within other functions, and R's factor as C."""
    return with_categories(re.sub(r"""\bQ\(\s*(["'])(.*?)\1\s*\)""", r"`\2`", formula))


def as_term(name: str) -> str:
    """The name of a column as it is written in a formula."""
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"`{name}`"


def syntax_error(formula: str, error: Exception) -> InputError:
    """What formulaic says over several coloured lines, on one."""
    message, _, shown = re.sub("\x1b\\[[0-9;]*m", "", str(error)).partition("\n\n")
    where = re.search("⧛(.*?)⧚", shown, re.DOTALL)
    got = " ".join(message.split()).rstrip(".")
    if where:
        got += f" at character {where.start() + 1}, {where[1]!r}, of {shown.replace('⧛', '').replace('⧚', '')!r}"
    is_arithmetic = where is not None and where[1] in ARITHMETIC
    hint = "I(...) around comparisons and arithmetic, as in I(x > 3)" if is_arithmetic else "mend it there"
    return InputError(explain("a formula such as 'late ~ hour + carrier'", got or repr(formula), hint))


def tokens_of(side: str) -> list[Any]:
    """formulaic's tokens of a formula or of one side."""
    errors = require("formulaic.errors")
    try:
        return list(require("formulaic.parser.algos.tokenize").tokenize(side))
    except errors.FormulaicError as error:
        raise syntax_error(side, error) from error


def powers(side: str) -> tuple[str, ...]:
    """What is to be said of powers that are no powers: among terms x**2 is x crossed with itself."""
    tokens = tokens_of(side)
    for before, sign, power in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if sign.token in ("**", "^") and sign.kind.value == "operator" and before.token != ")":
            name, text = before.token, f"{before.token}{sign.token}{power.token}"
            power_of = f"I({name}**{power.token})"
            return (f"formula: {text} is {name} crossed with itself, which is {name}; {power_of} is its power",)
    return ()


def cut(formula: str) -> tuple[str, str]:
    """The two sides of a formula."""
    if not isinstance(formula, str):
        raise InputError(explain("a formula as text", f"a {type(formula).__name__}", "'late ~ hour + carrier'"))
    formula = quote_names(formula)
    tildes = [token for token in tokens_of(formula) if is_operator(token, "~")]
    if len(tildes) != 1 or tildes[0].token.count("~") != 1:
        raise InputError(explain("one ~ between response and terms", repr(formula), "'late ~ hour + carrier'"))
    place = formula.index("~", tildes[0].source_start)
    left, right = formula[:place].strip(), formula[place + 1 :].strip()
    if not right:
        raise InputError(explain("terms on the right of ~", repr(formula), "'late ~ hour + carrier', or 'late ~ 1'"))
    return left, right


def _refuse_bar(left: str) -> None:
    """On the left a bar tells the trials of a binomial response, in other packages."""
    if any(is_operator(token, "|") for token in tokens_of(left)):
        raise InputError(explain("a response without a bar", repr(left), TRIALS))


def _take_offsets(right: str) -> tuple[str, str]:
    """The terms without those that are offset(...), and the sum of what is in these."""
    tokens, depth, cuts, found = tokens_of(right), 0, [], []
    for place, token in enumerate(tokens):
        depth += (token.token == "(") - (token.token == ")")
        if token.kind.value != "python" or not re.match(r"offset\s*\(", token.token):
            continue
        before, after = (tokens[at] if 0 <= at < len(tokens) else None for at in (place - 1, place + 1))
        is_term = (before is None or is_operator(before, "+")) and (after is None or after.token in ("+", "-"))
        inside = re.fullmatch(r"offset\s*\((.*)\)", token.token, re.DOTALL)
        if depth or not is_term or inside is None or not inside[1].strip():
            raise _no_offset(token.token)
        found.append(inside[1].strip())
        start = token.source_start if before is None else before.source_start
        cuts.append((start, token.source_end + 1))
    for start, stop in reversed(cuts):
        right = right[:start] + right[stop:]
    # What follows a first term that is gone begins with its sign.
    right = re.sub(r"^\s*\+", "", right).strip()
    right = f"1 {right}".strip() if not right or right.startswith("-") else right
    return right, found[0] if len(found) == 1 else " + ".join(f"({each})" for each in found)


def _no_offset(text: str) -> InputError:
    hint = "y ~ x + offset(log(exposure)), with columns, numbers and functions of a row inside"
    return InputError(explain("offset(...) as a term by itself", repr(text), hint))


def is_operator(token: Any, sign: str) -> bool:
    """Whether a token is one with this sign; signs that follow one another are one token."""
    return token.kind.value == "operator" and sign in token.token


def _write_out_dots(right: str, apart: set[str], source: Source) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The terms with columns in place of dots, the dates that these do not stand for, and why other columns are not
    among them; a column that is named beside the dot stays."""
    tokens = tokens_of(right)
    dots = [token for token in tokens if token.token == "."]
    if not dots:
        return right, (), ()
    rest = [name for name in source.names if name not in apart]
    dates = source.dates(rest)
    named = {token.token for token in tokens}
    reasons = unusable(source, [name for name in rest if name not in dates and name not in named])
    names = [name for name in rest if name not in dates and name not in reasons]
    useless = tuple(f"{name} ({reason})" for name, reason in reasons.items())
    if not names:
        got = f"none but the response{' and ' if useless else ''}{', '.join(useless)}"
        raise InputError(explain("columns for the . to stand for", got, "name the terms"))
    plain = [as_term(name) for name in names]
    for token in reversed(dots):
        right = f"{right[: token.source_start]}({' + '.join(plain)}){right[token.source_start + 1 :]}"
    return right, dates, useless


def written_out(right: str, apart: set[str], source: Source) -> str:
    """A right side without dots."""
    return _write_out_dots(right, apart, source)[0]


def _require_column(name: str, names: Sequence[str]) -> list[str]:
    if name not in names:
        raise no_such_column(name, names, "the table")
    return [name]


def _is_namespace(node: ast.Name, names: Sequence[str]) -> bool:
    return node.id not in names and node.id in {"np", "contr"} | CONTRASTS


def _function(node: ast.Call, text: str) -> str:
    if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        if node.func.id in ONE_ARGUMENT and len(node.args) + len(node.keywords) != 1:
            got = f"{len(node.args) + len(node.keywords)} in {ast.unparse(node)!r}"
            raise InputError(
                explain(f"one argument of {node.func.id}", got, "log2(x), log10(x), or I(log(x) / log(3))")
            )
        if node.func.id == SMOOTH:
            require_call(node)
        return node.func.id
    if isinstance(node.func, ast.Attribute):
        return _require_known_attribute(node.func, text)
    raise _refused(ast.unparse(node.func), text)


def _require_known_attribute(node: ast.Attribute, text: str) -> str:
    """np.log, and contrasts such as contr.treatment: elementwise, so that no row is seen by another."""
    home = node.value.id if isinstance(node.value, ast.Name) else None
    elementwise = isinstance(getattr(np, node.attr, None), np.ufunc) or node.attr in NUMPY_VALUES
    if not ((home == "np" and elementwise) or (home == "contr" and not node.attr.startswith("_"))):
        raise _refused(ast.unparse(node), text)
    return node.attr


def _refused(what: str, text: str) -> InputError:
    known = sorted((FUNCTIONS - CONTRASTS - set(ELEMENTWISE)) | set(PARTS))
    hint = f"np.log and the like, sqrt and the like, {', '.join(known)}; or a column of the table"
    if what in PARTS:
        return not_a_part(text)
    if what == "offset":
        return _no_offset(text)
    elsewhere = ELSEWHERE.get(what, f"np.{what}" if isinstance(getattr(np, what, None), np.ufunc) else None)
    hint = hint if elsewhere is None else elsewhere
    return InputError(explain("functions of a row by itself in a formula", f"{what!r} in {text!r}", hint))


def _category(node: ast.expr, quoted: dict[str, str]) -> tuple[str | None, bool, bool]:
    """The column of C(column, ...), whether its levels are given, and whether nothing is."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "C" and node.args):
        return None, False, False
    first, given = node.args[0], any(each.arg == "levels" for each in node.keywords)
    if not isinstance(first, ast.Name):
        return None, given, False
    return quoted.get(first.id, first.id), given, len(node.args) == 1 and not node.keywords
