"""What the estimators of `estimators` share: parameters, checked rows, the fit, and where its numbers go.

`fit` is `tb.estimate` on standardised columns, reported in the columns' own units.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from tallbayes.doors.sklearn.groups import GroupColumn, fit_column, portable, predict_column
from tallbayes.doors.sklearn.matrices import (
    Names,
    Scaling,
    absorb_prior,
    column_priors,
    in_units_of,
    is_small,
    named_units,
    narrowed,
    raw_scaling,
    require_room,
    standard_scaling,
    width_for,
)
from tallbayes.errors import DataError, InputError, explain
from tallbayes.estimation.estimate import estimate
from tallbayes.formula.standardising import read_rule
from tallbayes.model.catalogue import CATALOGUE, plain_families_of
from tallbayes.model.families import FAMILIES
from tallbayes.model.linear import Layout
from tallbayes.model.links import Wanted
from tallbayes.model.model import Model
from tallbayes.model.priors.assigned import without_shrinkage
from tallbayes.moments import Floats
from tallbayes.posterior.prediction import Prediction
from tallbayes.posterior.predictor import FamilyResponse, make_predictor
from tallbayes.results.groups.effects import Effects

DTYPES = [np.float64, np.float32]
PREDICTED_NUMBERS = 2**23


class CheckedRows(NamedTuple):
    """Checked arrays; x may be a sparse matrix of rows."""

    x: Any
    y: np.ndarray
    weights: Floats | None
    offset: Floats | None = None


# scikit-learn reads parameters off the signature of `__init__`: one is made for each estimator, with its own family.
@dataclass(eq=False, repr=False)
class TallEstimator(BaseEstimator):  # type: ignore[misc]
    """Parameters are kept as they are given, and looked at by `fit`."""

    family: str
    tolerance: float = 0.05
    prior_scale: Any = 1.0
    intercept_scale: float = 10.0
    fit_intercept: bool = True
    standardise: bool | str = True
    random_state: Any = 0
    max_seconds: float | None = None
    max_evaluations: float | None = None
    method: Any = None
    groups: Any = None
    priors: Any = None
    _response = ""

    def _checked(self, x: Any, y: Any, weights: Any, offset: Any = None, **options: Any) -> CheckedRows:
        """The rows that weigh something."""
        self._require_family()
        x, y = validate_data(self, x, y, dtype=DTYPES, accept_sparse="csr", **options)
        if offset is not None:
            offset = check_array(offset, ensure_2d=False, dtype=np.float64, input_name="offset")
            check_consistent_length(x, offset)
        if weights is None:
            return CheckedRows(x, y, None, offset)
        weights = _check_sample_weight(weights, x, dtype=np.float64, ensure_non_negative=True)
        some = weights > 0
        if not some.any():
            raise DataError(explain("a sample_weight above zero", "zeros alone", "None to count every row once"))
        return CheckedRows(x[some], y[some], weights[some], None if offset is None else offset[some])

    def _scaling(self, rows: CheckedRows, response: Floats | None = None) -> Scaling:
        if not self.standardise:
            return raw_scaling(rows.x.shape[1])
        return standard_scaling(rows.x, rows.weights, bool(self.fit_intercept), response, read_rule(self.standardise))

    def _run(
        self,
        family: str,
        rows: CheckedRows,
        scaling: Scaling,
        classes: Floats | None = None,
        change: Callable[[Model], Model] | None = None,
    ) -> None:
        """Estimate and keep the result.

        `classes` are those with coefficients of their own, where there are more than two. `change` is what an
        estimator does to the family's model.
        """
        (count, columns), extra, centred = (
            rows.x.shape,
            CATALOGUE[family].extra,
            self.standardise and self.fit_intercept,
        )
        shrunk = without_shrinkage(self.priors)[1] is not None
        # A share of the variance is one of all columns, so that none may be beside them.
        width = columns if shrunk else width_for(count, columns)
        stated: dict[str, Any] | None = None
        if self.priors:
            own = self._column_names(columns)
            stated, prior_scale = column_priors(self.priors, own, scaling, self.prior_scale, width, extra), 1.0
        else:
            scaling, prior_scale = absorb_prior(scaling, self.prior_scale, width)
        dtype = np.float32 if centred else rows.x.dtype
        require_room(rows.x, width, dtype)
        data = {"x": scaling.apply(rows.x, width, dtype), "y": rows.y}
        data |= {} if rows.offset is None else {"offset": rows.offset}
        intercept_scale = self.intercept_scale if self.fit_intercept else None
        options: dict[str, Any] = {"prior_scale": prior_scale, "intercept_scale": intercept_scale, "priors": stated}
        if classes is not None:
            options["num_classes"] = len(classes) + 1
        model = in_units_of(FAMILIES[family](**options), scaling, width, extra)
        labels = None if classes is None else tuple(map(str, classes))
        names = Names(columns, getattr(self, "feature_names_in_", None), labels, bool(self.fit_intercept), extra)
        if shrunk:
            model = named_units(model, names, extra)
        result = estimate(
            model if change is None else change(model),
            data,
            tolerance=self.tolerance,
            weights=np.ones(count) if rows.weights is None and is_small(count) else rows.weights,
            seed=_seed(self.random_state),
            method=self.method,
            max_seconds=self.max_seconds,
            max_evaluations=self.max_evaluations,
        )
        if not result.converged:
            warnings.warn(str(result.status), ConvergenceWarning, stacklevel=3)
        self.scaling_ = scaling
        narrow = narrowed(result, names, width, scaling)
        self.result_ = replace(narrow, notes=(self._prior_note(), *narrow.notes))
        self._keep_coefficients(heads=1 if classes is None else len(classes))

    def _run_groups(self, X: Any, y: Any, weights: Any, offset: Any = None) -> None:
        """The same with an effect for every group that a column of X names; y is what the family takes."""
        self._require_family()
        self.group_column_ = GroupColumn.of(X, self.groups)
        validate_data(self, X, skip_check_array=True)
        check_consistent_length(X, y)
        if weights is not None:
            weights = _check_sample_weight(weights, y, dtype=np.float64, ensure_non_negative=True)
        if offset is not None:
            offset = check_array(offset, ensure_2d=False, dtype=np.float64, input_name="offset")
        self.result_ = fit_column(
            self.group_column_,
            X,
            y,
            weights,
            offset,
            family=self.family,
            fit_intercept=bool(self.fit_intercept),
            tolerance=self.tolerance,
            prior_scale=self.prior_scale,
            intercept_scale=self.intercept_scale,
            priors=self._formula_priors(),
            standardise=self.standardise,
            seed=_seed(self.random_state),
            method=self.method,
            max_seconds=self.max_seconds,
            max_evaluations=self.max_evaluations,
        )
        if not self.result_.converged:
            warnings.warn(str(self.result_.status), ConvergenceWarning, stacklevel=3)
        first, count = int(bool(self.fit_intercept)), len(self.group_column_.names)
        mean, sd = self.result_["mean"], self.result_["sd"]
        for kind, flat in (("", mean.flat_value), ("sd_", sd.flat_value), ("error_", mean.flat_error)):
            levels = flat[:1] if first else np.zeros(1)
            setattr(self, f"coef_{kind}", self._by_class(flat[None, first : first + count]))
            setattr(self, f"intercept_{kind}", self._by_class(levels))

    def _formula_priors(self) -> Any:
        """By the names of the formula, where an intercept is a capital one."""
        return {"Intercept" if name == "intercept" else name: each for name, each in (self.priors or {}).items()}

    def _predict_groups(self, X: Any, offset: Any = None) -> Prediction:
        """Predictions by row; a group that was not fitted is a new one."""
        check_is_fitted(self)
        validate_data(self, X, skip_check_array=True, reset=False)
        return predict_column(self.group_column_, self.result_, X, offset)

    @property
    def effects_(self) -> Effects:
        """The effect of every group, where one column of X names them."""
        check_is_fitted(self)
        if self.groups is None:
            raise AttributeError(explain("an estimator with groups=", "one without", "groups='school'"))
        return self.result_.effects(self.group_column_.by)

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        if self.groups is not None and "result_" in state:
            state = {**state, "result_": portable(state["result_"])}
        return state

    def _require_family(self) -> None:
        families = plain_families_of(self._response)
        if self.family not in families:
            raise InputError(explain(f"family one of {families}", repr(self.family), repr(families[0])))

    def _keep_coefficients(self, heads: int) -> None:
        """coef_ and intercept_, their posterior sds, and the errors of the means."""
        mean, sd, count = self.result_["mean"], self.result_["sd"], heads * self.n_features_in_
        for kind, flat in (("", mean.flat_value), ("sd_", sd.flat_value), ("error_", mean.flat_error)):
            levels = flat[count : count + heads] if self.fit_intercept else np.zeros(heads)
            setattr(self, f"coef_{kind}", self._by_class(flat[:count].reshape(heads, -1)))
            setattr(self, f"intercept_{kind}", self._by_class(levels))

    def _column_names(self, columns: int) -> list[str]:
        """Of the columns: their own, or by number."""
        return [str(each) for each in getattr(self, "feature_names_in_", [f"x{place}" for place in range(columns)])]

    def _prior_note(self) -> str:
        singles, together = without_shrinkage(self.priors or {})
        said = ", ".join(f"{name} ~ {each}" for name, each in singles.items())
        on = {
            "numbers": "standardised columns, and on columns of zeros and ones as they are",
            "all": "standardised columns",
            "nothing": "columns as they are",
        }[read_rule(self.standardise)]
        intercept = f", intercept N(0, {self.intercept_scale}^2)" if self.fit_intercept else ""
        law = f"N(0, {self.prior_scale}^2)" if together is None else f"~ {together} together,"
        default = f"prior: coefficients {law} on {on}{intercept}; results are for columns as they are"
        return f"{default}{', but ' if said else ''}{said}"

    def _by_class(self, heads: Floats) -> Any:
        """The only one, unless there are classes."""
        return heads[0]

    def _columns(self, X: Any) -> Any:
        """New rows, checked; sparse ones as they are."""
        check_is_fitted(self)
        return validate_data(self, X, dtype=DTYPES, accept_sparse="csr", reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.groups is None
        tags.input_tags.string = self.groups is not None
        return tags

    def _predicted(self, x: Any, family: str, heads: int = 1) -> Prediction:
        """Predictions over the posterior, for checked rows; of sparse ones a part is dense at a time."""
        posterior, extras = self.result_.posterior, int(CATALOGUE[family].extra is not None)
        if posterior is None:
            hint = "method=None, whose paths are kept"
            raise InputError(explain("a fit that knows where its paths ended", self.result_.method, hint))
        kind = FamilyResponse(Wanted(family), Layout(heads, bool(self.fit_intercept), extras))
        if not issparse(x):
            rows = self.scaling_.apply(x), np.zeros(len(x))
            return make_predictor(posterior, kind, rows).all(rows)
        size = max(1, PREDICTED_NUMBERS // x.shape[1])
        predictor, parts = None, []
        for start in range(0, x.shape[0], size):
            part = x[start : start + size]
            rows = self.scaling_.apply(part), np.zeros(part.shape[0])
            predictor = predictor or make_predictor(posterior, kind, rows)
            parts.append(predictor.all(rows))
        return Prediction.joined(parts)


def _seed(random_state: Any) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
