"""Groups in X: one of its columns names the group of every row, and each group has an intercept of its own.

    eta = x . theta + intercept + b[group],     b ~ N(0, sd^2),     sd half-normal(1)

The fit is that of the formula "y ~ x0 + ... + (1 | group)", with its priors: that of a regressor's noise reaches down
to 0, where without groups it ends at a thousandth, and counts are whole numbers. A row of a group that was fitted is
predicted with its effect, one of any other as a row of a new group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array

from tallbayes.errors import DataError, InputError, explain, suggestion
from tallbayes.formula.expressions import as_term
from tallbayes.formula.fit import fit
from tallbayes.posterior.prediction import Prediction
from tallbayes.results.groups.effects import EffectSource, effects, nothing_more
from tallbayes.results.result import Result

DTYPES = [np.float64, np.float32]


@dataclass(frozen=True)
class GroupColumn:
    """Where the column is, and what it and the others are called in the formula; `response` is a name of no column."""

    place: int
    by: str
    names: tuple[str, ...]
    response: str

    @classmethod
    def of(cls, X: Any, groups: Any) -> GroupColumn:
        """The column of X by its name, where X has names, or by its number."""
        if issparse(X):
            raise InputError(explain("a dense X with groups=", "a sparse one", "X.toarray(), or a data frame"))
        own = [str(each) for each in X.columns] if hasattr(X, "columns") else []
        count = len(own) or np.shape(X)[1]
        if isinstance(groups, str):
            if groups not in own:
                hint = suggestion(groups, own, f"one of {', '.join(own[:20])}" if own else "its number: X has no names")
                raise InputError(explain("groups= the name of a column of X", repr(groups), hint))
            place = own.index(groups)
        elif isinstance(groups, int | np.integer) and not isinstance(groups, bool) and -count <= groups < count:
            place = int(groups) % count
        else:
            hint = "a name, where X is a data frame, or a number"
            raise InputError(explain(f"groups= one of the {count} columns of X", repr(groups), hint))
        usable = own and not any("`" in each or each.startswith("__") for each in own)
        names = own if usable and len(set(own)) == len(own) else [f"x{each}" for each in range(count)]
        by = names[place] if names == own else "group"
        others = tuple(each for at, each in enumerate(names) if at != place)
        response = "y"
        while response in (by, *others):
            response += "_"
        return cls(place, by, others, response)

    def table(self, X: Any) -> dict[str, Any]:
        """The rows of X as columns by name: numbers, and the groups."""
        if hasattr(X, "columns") and hasattr(X, "iloc"):
            labels = X.iloc[:, self.place].to_numpy()
            rest = X.iloc[:, [at for at in range(X.shape[1]) if at != self.place]]
        else:
            whole = np.asarray(X)
            labels, rest = whole[:, self.place], np.delete(whole, self.place, axis=1)
        if labels.dtype.kind == "O":
            labels = np.array(labels.tolist())
        if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
            raise DataError(explain(f"a group in every row of {self.by!r}", "a missing one", "a group for these rows"))
        x = check_array(rest, dtype=DTYPES, ensure_min_features=0)
        return dict(zip(self.names, x.T, strict=True)) | {self.by: labels}

    @property
    def right(self) -> str:
        """The fixed effects of the formula."""
        return " + ".join(as_term(name) for name in self.names)

    def formula(self, intercept: bool) -> str:
        first = ("1" if intercept else "0", *([self.right] if self.names else []))
        return f"{as_term(self.response)} ~ {' + '.join(first)} + (1 | {as_term(self.by)})"


def fit_column(column: GroupColumn, X: Any, y: Any, weights: Any, offset: Any, **options: Any) -> Result:
    """The result of the formula, for rows that weigh something."""
    table = column.table(X) | {column.response: np.asarray(y)}
    if weights is not None:
        some = weights > 0
        table = {name: each[some] for name, each in table.items()}
        weights, offset = weights[some], None if offset is None else offset[some]
    intercept = options.pop("fit_intercept")
    return fit(column.formula(intercept), table, weights=weights, offset=offset, **options)


def predict_column(column: GroupColumn, result: Result, X: Any, offset: Any = None) -> Prediction:
    """Of rows as they were fitted; without an offset there is none."""
    assert result.encoding is not None
    if offset is None and result.encoding["offset"] is not None:
        offset = 0.0
    found: Prediction = result.predict(column.table(X), offset=offset, interval=None)
    return found


def portable(result: Result) -> Result:
    """The same for another process: with the groups and their effects, without the means to go on."""
    source, posterior = result.effect_source, result.posterior
    if source is not None:
        source = EffectSource(nothing_more, (effects(result),), gathered=source.groups)
    if posterior is not None:
        posterior = replace(posterior, live=None, stored=posterior.reading)
    modes = tuple(each if each.result is None else replace(each, result=portable(each.result)) for each in result.modes)
    # What is of this process alone.
    living = "continuation", "fitted_source", "path_source", "fit_table", "question", "door", "standing"
    gone: dict[str, Any] = dict.fromkeys(living)
    return replace(result, posterior=posterior, effect_source=source, modes=modes, **gone)
