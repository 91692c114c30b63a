"""The basis of a smooth: a cubic regression spline of k knots, in coordinates in which its prior is plain.

    f(x) = slope x + sum_j b_j z_j(x),     b_j ~ N(0, sd^2),     sum_j mean z_j^2 = 1 over the rows

A natural cubic spline f is told by its values v at the knots: f'' there is F v, and the penalty is integral f''^2 =
v^T S v, nothing for a straight line. With G the Gram matrix of the cardinal splines over the rows, about their means,
the functions v_j of

    S v_j = lambda_j G v_j,     v_j^T G v_j = 1

are of mean 0, uncorrelated over the rows with each other and with x, the smoothest first (Demmler and Reinsch). The
prior exp(-v^T S v / (2 c sd^2)) is z_j = sqrt(c / lambda_j) v_j with coefficients of one common sd; c is such that sd
is the root mean square over the rows, a priori, of what f is beyond its straight line. Beyond the outer knots f is a
straight line. With bs="cc" f and its first two derivatives are the same at both ends, and there is no slope.
"""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.moments import Floats
from tallbayes.rows.columns import require

LINEAR = "linear"
KINDS = ("cr", "cc")
KNOTS, FEWEST, MOST = 10, {"cr": 3, "cc": 4}, 100
# As many rows tell the Gram matrix to a hundredth, and any will do: the prior of f is the same whatever it is.
GRAM_ROWS = 2**17
OPTIONS = ("k", "bs", "lower_bound", "upper_bound")


class Curves(NamedTuple):
    """Functions by their values and second derivatives at knots, (knots, functions)."""

    knots: Floats
    values: Floats
    bends: Floats
    cyclic: bool

    def at(self, x: Floats) -> Floats:
        """(rows, functions)."""
        knots = self.knots
        if self.cyclic:
            x = knots[0] + np.mod(x - knots[0], knots[-1] - knots[0])
        j = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
        width = np.diff(knots)[j]
        left, right = (knots[j + 1] - x) / width, (x - knots[j]) / width
        # Outside, where one of the two is negative, a straight line is left.
        bent = [(np.clip(each, 0.0, 1.0) ** 3 - each) * width**2 / 6 for each in (left, right)]
        parts = (
            (left, self.values[j]),
            (right, self.values[j + 1]),
            (bent[0], self.bends[j]),
            (bent[1], self.bends[j + 1]),
        )
        return np.asarray(sum(weight[:, None] * part for weight, part in parts))


def smooth(
    x: Any,
    k: int = KNOTS,
    bs: str = "cr",
    lower_bound: float | None = None,
    upper_bound: float | None = None,
    _state: Any = None,
) -> Any:
    """The columns of s(x), and in the state what is to be remembered of them."""
    values, state = np.asarray(x, np.float64), {} if _state is None else _state
    if not state:
        state.update(_learnt(values, k, bs, (lower_bound, upper_bound)))
    cyclic = state["bs"] == "cc"
    at, bases, bends = (np.asarray(state[each], np.float64) for each in ("at", "values", "bends"))
    curves = Curves(at, bases, bends, cyclic)
    with np.errstate(all="ignore"):
        columns = curves.at(values) - np.asarray(state["means"])
    found: dict[Any, Any] = {} if cyclic else {LINEAR: values}
    found |= dict(enumerate(columns.T, 1))
    made = require("formulaic.materializers.types").FactorValues
    return made(found, kind="numerical", spans_intercept=False, format="{name}[{field}]", encoded=False)


def _learnt(x: Floats, k: int, bs: str, bounds: tuple[float | None, float | None]) -> dict[str, Any]:
    x = x[np.isfinite(x)]
    for bound, inside in zip(bounds, (x.__ge__, x.__le__), strict=True):
        x = x if bound is None else x[inside(bound)]
    distinct = np.unique(x)
    if len(distinct) < k:
        hint = f"s(x, k={len(distinct)})" if len(distinct) >= FEWEST[bs] else "the column itself, or C(column)"
        raise DataError(explain(f"at least {k} different values, for a smooth of {k} knots", f"{len(distinct)}", hint))
    knots = np.quantile(distinct, np.linspace(0, 1, k))
    ends = (knots[0] if bounds[0] is None else bounds[0], knots[-1] if bounds[1] is None else bounds[1])
    knots[[0, -1]] = ends
    size, cyclic = float(knots[-1] - knots[0]), bs == "cc"
    basis, penalty = _cardinal(knots / size, cyclic)
    some = x[np.unique(np.linspace(0, len(x) - 1, min(len(x), GRAM_ROWS)).astype(int))]
    rows = basis._replace(knots=knots, bends=basis.bends / size**2).at(some)
    means = rows.mean(axis=0)
    gram = (rows - means).T @ (rows - means) / len(rows)
    shapes, lambdas = _eigenfunctions(gram, penalty, straight=not cyclic)
    shapes = shapes * np.sqrt(1 / np.sum(1 / lambdas) / lambdas)
    made = {"values": basis.values @ shapes, "bends": basis.bends @ shapes / size**2, "means": means @ shapes}
    return {"bs": bs, "at": knots, **made}


def _cardinal(knots: Floats, cyclic: bool) -> tuple[Curves, Floats]:
    """The splines that are 1 at one knot and 0 at all others, and the matrix of their penalty."""
    h = np.diff(knots)
    n = len(h) if cyclic else len(knots)
    inner = range(n) if cyclic else range(1, n - 1)
    bending, slopes = np.zeros((len(inner), n)), np.zeros((len(inner), n))
    for row, i in enumerate(inner):
        before, after = h[i - 1], h[i]
        for place, bend, slope in (
            (i - 1, before / 6, 1 / before),
            (i, (before + after) / 3, -1 / before - 1 / after),
            (i + 1, after / 6, 1 / after),
        ):
            bending[row, place % n] += bend
            slopes[row, place % n] += slope
    inside = np.linalg.solve(bending[:, list(inner)], slopes)
    values, bends = np.eye(n), np.zeros((n, n))
    bends[list(inner)] = inside
    if cyclic:
        values, bends = (np.concatenate([each, each[:1]]) for each in (values, bends))
    return Curves(knots, values, bends, cyclic), slopes.T @ inside


def _eigenfunctions(gram: Floats, penalty: Floats, straight: bool) -> tuple[Floats, Floats]:
    """v_j and lambda_j but for those without a penalty; constants, which have no Gram matrix, are left out."""
    from scipy.linalg import eigh

    others = np.linalg.qr(np.ones((len(gram), 1)), mode="complete")[0][:, 1:]
    lambdas, shapes = eigh(others.T @ penalty @ others, others.T @ gram @ others)
    shapes, lambdas = (others @ shapes)[:, int(straight) :], lambdas[int(straight) :]
    # Either sign is as good; this one does not hang on the library.
    largest = np.take_along_axis(shapes, np.argmax(np.abs(shapes), axis=0)[None], axis=0)
    return shapes * np.sign(largest), lambdas


def is_smooth(expression: str) -> bool:
    """Whether an expression is s(...) and nothing around it."""
    node = ast.parse(re.sub("`[^`]*`", "quoted", expression).strip(), mode="eval").body
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "s"


def require_call(node: ast.Call) -> None:
    """Refuse what a smooth is not: of several columns, by a category, of another basis."""
    text = ast.unparse(node)
    if len(node.args) != 1:
        hint = "s(x) + s(z), and poly(x, 2):poly(z, 2) for what they do together"
        raise InputError(explain("a smooth of one number a row", repr(text), hint))
    for option in node.keywords:
        if option.arg == "by":
            hint = "s(x) + x:g, whose slopes differ by category; or a fit for each of them"
            raise InputError(explain("a smooth without by", repr(text), hint))
        if option.arg not in OPTIONS:
            raise InputError(
                explain(f"options of s(x) among {', '.join(OPTIONS)}", f"{option.arg!r} in {text!r}", "s(x, k=10)")
            )
    given = {option.arg: _constant(option.value, text) for option in node.keywords}
    bs, k = given.get("bs", "cr"), given.get("k", KNOTS)
    if bs not in KINDS:
        hint = 's(x), a cubic regression spline, or s(x, bs="cc"), a cyclic one'
        raise InputError(explain(f"bs one of {KINDS}", f"{bs!r} in {text!r}", hint))
    if isinstance(k, bool) or not isinstance(k, int) or not FEWEST[bs] <= k <= MOST:
        raise InputError(explain(f"{FEWEST[bs]} to {MOST} knots", f"k={k!r} in {text!r}", f"s(x, k={KNOTS})"))


def _constant(node: ast.expr, text: str) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        hint = "s(x, k=10)"
        raise InputError(explain("options of s(x) that are numbers or text", repr(text), hint)) from error
