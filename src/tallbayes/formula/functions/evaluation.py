"""Evaluation: what formulaic makes of terms and of single expressions, some rows at a time.

    terms_of("a + b:c")                the terms of one side
    matrix_of(specification, table)    the columns of a specification, for these rows
    evaluate_expression("log(x)", table)

All that formulaic objects to here is about the data: the text was checked before.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, TallbayesError, explain
from tallbayes.formula.expressions import syntax_error
from tallbayes.formula.functions.splines import functions
from tallbayes.rows.columns import kind_of, require


def terms_of(side: str) -> Any:
    """formulaic's terms of one side."""
    formulaic, errors = require("formulaic"), require("formulaic.errors")
    try:
        formula = formulaic.Formula(side)
    except errors.FormulaicError as error:
        raise syntax_error(side, error) from error
    if not isinstance(formula, formulaic.SimpleFormula):
        raise InputError(explain("one list of terms", repr(side), "a + b instead of a | b"))
    return formula


def evaluate_response(left: str, table: Any, states: Mapping[str, Any] | None = None) -> np.ndarray:
    """The values of an expression on the left side, as one array of numbers or bools."""
    if left.strip().isdecimal():
        # As many trials in every row, which formulaic makes one number of.
        return np.full(table.num_rows, float(left))
    matrix = evaluate_expression(left, table, states)
    if matrix.shape[1] != 1:
        raise DataError(explain(f"one number a row in {left!r}", f"{matrix.shape[1]} columns", "a single column"))
    return np.asarray(matrix)[:, 0]


def evaluate_expression(text: str, table: Any, states: Mapping[str, Any] | None = None) -> Any:
    """formulaic's columns for an expression by itself; what is not among the states is learnt from these rows."""
    return matrix_of(specification_of(terms_of(f"0 + {{{text}}}"), {}, dict(states or {})), table)


def specification_of(formula: Any, categories: dict[str, tuple[Any, ...]], states: dict[str, Any]) -> Any:
    formulaic, types = require("formulaic"), require("formulaic.parser.types")
    if isinstance(formula, list):
        formula = formulaic.Formula([types.Term([factor]) for factor in formula])
    return formulaic.ModelSpec(
        formula=formula,
        output="numpy",
        na_action="ignore",
        transform_state=dict(states),
        encoder_state={
            factor: (types.Factor.Kind.CATEGORICAL, {"categories": list(levels)})
            for factor, levels in categories.items()
        },
    )


def matrix_of(spec: Any, table: Any, constant: bool = False) -> Any:
    """formulaic's matrix for these rows; all it objects to is about the data, since the text was checked before.

    What is learnt here is learnt beside a `constant` or not.
    """
    errors = require("formulaic.errors")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error", errors.DataMismatchWarning)
        try:
            return spec.get_model_matrix(_frame(table), context=functions(constant))
        except Exception as error:
            reason: BaseException | None = error
            while reason is not None:
                if isinstance(reason, TallbayesError):
                    raise reason from error
                reason = reason.__cause__ or reason.__context__
            message = " ".join(str(error).split())
            text = [name for name in table.column_names if kind_of(table.column(name)) == "categories"]
            hint = f"look at the columns of text: {', '.join(text)}" if text else "look at the values of its columns"
            expected = f"columns that the formula {str(spec.formula)!r} can be worked out from"
            raise DataError(explain(expected, f"{message.rstrip('.')[:300]}", hint)) from error


def _frame(table: Any) -> Any:
    """A pandas frame with the widest types, since arithmetic in narrow ones would overflow unseen."""
    arrow = require("pyarrow")
    types = arrow.types

    def widest(kind: Any) -> Any:
        if types.is_floating(kind) or types.is_uint64(kind):
            return arrow.float64()
        return arrow.int64() if types.is_integer(kind) else kind

    schema = arrow.schema([(field.name, widest(field.type)) for field in table.schema])
    return table.cast(schema).to_pandas(split_blocks=True)
