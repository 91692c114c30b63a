"""Transforms that remember: the calls of them in a formula, and what all rows say, from sums that need not hold them.

    scale, center, standardize    mean and sum of squares
    poly                          monic P_0 = 1, P_{k+1} = (x - a_k) P_k - b_k P_{k-1}, where
                                  a_k = <x P_k, P_k> / <P_k, P_k>,   b_k = <P_k, P_k> / <P_{k-1}, P_{k-1}>

The polynomials of a sample of rows are nearly orthogonal over all rows, so their Gram matrix is well conditioned, and
the inner products above follow from it and from the sample's own recurrence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from tallbayes.formula.expressions import SMOOTH, STATEFUL
from tallbayes.rows.columns import require
from tallbayes.rows.statistics import ColumnStatistics

SCALES = frozenset({"scale", "center", "standardize"})
# Of which even given knots leave something to learn.
LEARNT_WHOLE = frozenset({"ns", SMOOTH})


@dataclass(frozen=True)
class Call:
    """A call of C or of a transform that remembers: the key of its memory, its argument as text, and what else it has.

    A call is `alone` where no other that remembers is within it or around it.
    """

    function: str
    key: str
    argument: str
    options: tuple[str, ...]
    alone: bool = True

    @property
    def has_sums(self) -> bool:
        """Whether sums over rows are enough to learn it."""
        return self.alone and (self.function == "poly" or (self.function in SCALES and not self.options))

    @property
    def needs_all_rows(self) -> bool:
        """Whether neither sums nor the least and the largest value are enough: quantiles, and means of splines."""
        if self.function == "C" or self.has_sums:
            return False
        by_sample = self.function in SCALES or self.function in LEARNT_WHOLE
        return not self.alone or by_sample or bool({"df", "constraints", ""} & set(self.options))


def calls_of(texts: Iterable[str], names: Sequence[str]) -> tuple[Call, ...]:
    """The calls in these expressions, each once."""
    code = require("formulaic.utils.code")
    found: dict[str, Call] = {}
    nested: set[str] = set()
    for text in texts:
        aliases: dict[str, str] = {}
        tree = ast.parse(code.sanitize_variable_names(text, dict.fromkeys(names), aliases).strip(), mode="eval")
        for node in ast.walk(tree):
            if not _remembers(node):
                continue
            key = code.format_expr(node)
            inner = [each for each in ast.walk(node) if each is not node and _remembers(each)]
            if inner:
                nested |= {key, *(code.format_expr(each) for each in inner)}
            found[key] = _call(key, node, aliases)
    return tuple(replace(call, alone=key not in nested) for key, call in found.items())


def _remembers(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in STATEFUL | {"C"}


def _call(key: str, node: Any, aliases: dict[str, str]) -> Call:
    first = deepcopy(node.args[0] if node.args else node.keywords[0].value)
    for each in ast.walk(first):
        if isinstance(each, ast.Name) and each.id in aliases:
            each.id = f"`{aliases[each.id]}`"
    # A second argument without a name is the df of a spline.
    options = [*("" for _ in node.args[1:]), *(each.arg for each in node.keywords[0 if node.args else 1 :])]
    return Call(node.func.id, key, ast.unparse(first), tuple(options))


class TransformSums(Protocol):
    """What is added up over blocks of rows, and the memory that follows from it."""

    def add(self, values: np.ndarray) -> None: ...

    def memory(self) -> dict[str, Any]: ...


def sums_for(call: Call, first: dict[str, Any]) -> TransformSums:
    """For a call that has sums, whose memory of some rows is `first`."""
    return Polynomials(first) if call.function == "poly" else Scales(first)


@dataclass
class Scales:
    """Mean and spread, in the form in which formulaic remembers them."""

    first: dict[str, Any]
    statistics: ColumnStatistics = field(default_factory=ColumnStatistics)

    def add(self, values: np.ndarray) -> None:
        self.statistics.add(np.asarray(values, np.float64)[:, None])

    def memory(self) -> dict[str, Any]:
        statistics, found = self.statistics, dict(self.first)
        found["center"] = statistics.centre[0]
        if found["scale"] is not None:
            found["scale"] = np.sqrt(statistics.squares[0] / (statistics.count - found["ddof"]))
        return found


@dataclass
class Polynomials:
    """The Gram matrix of the polynomials that `first` remembers."""

    first: dict[str, Any]
    gram: Any = 0.0

    def add(self, values: np.ndarray) -> None:
        if not self.first:
            return
        poly = require("formulaic.transforms.poly").poly
        rest = np.asarray(poly(values, len(self.first["alpha"]), _state=dict(self.first)))
        basis = np.column_stack([np.full(len(values), self.first["norms2"][0] ** -0.5), rest])
        self.gram = self.gram + basis.T @ basis

    def memory(self) -> dict[str, Any]:
        if not self.first:
            return {}
        degree = len(self.first["alpha"])
        norms = np.array([self.first["norms2"][k] for k in range(degree + 1)])
        gram = self.gram * np.sqrt(np.outer(norms, norms))
        times = _times_x(self.first["alpha"], norms)
        before, here = np.zeros(degree + 1), np.eye(degree + 1)[0]
        alpha, found = {}, {0: here @ gram @ here}
        for k in range(degree):
            raised = times @ here
            alpha[k] = raised @ gram @ here / found[k]
            beta = found[k] / found[k - 1] if k else 0.0
            before, here = here, raised - alpha[k] * here - beta * before
            found[k + 1] = here @ gram @ here
        return {"alpha": alpha, "norms2": found}


def _times_x(alpha: dict[int, float], norms: np.ndarray) -> np.ndarray:
    """Multiplication by x among the sample's monic polynomials; of the last one nothing is asked."""
    size = len(norms)
    matrix = np.zeros((size, size))
    for k in range(size - 1):
        matrix[k + 1, k], matrix[k, k] = 1.0, alpha[k]
        if k:
            matrix[k - 1, k] = norms[k] / norms[k - 1]
    return matrix
