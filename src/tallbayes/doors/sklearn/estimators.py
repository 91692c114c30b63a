"""The scikit-learn door: regressions as estimators, with posterior means for coefficients and errors beside them.

    TallClassifier        logistic, probit; multinomial where there are more than two classes
    TallRegressor         linear, student_t, with unknown noise
    TallCountRegressor    poisson, negative_binomial

Predictions are posterior expectations, E p(y = k | x, theta) and E exp(x . theta), not their values at the mean of
theta. What the three share is in `estimator`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from tallbayes.doors.sklearn.estimator import TallEstimator
from tallbayes.doors.sklearn.matrices import is_small
from tallbayes.errors import DataError, InputError, explain
from tallbayes.model.model import Model
from tallbayes.model.responses import Beside, check_regression
from tallbayes.moments import Floats

LEAST_NOISE = 1e-3
# The paths' part of a probability is signed, and their sum may leave (0, 1) by its error.
SMALLEST_CHANCE = float(np.finfo(np.float64).eps)


@dataclass(eq=False, repr=False)
class TallClassifier(ClassifierMixin, TallEstimator):  # type: ignore[misc]
    """Logistic or probit regression of two classes, multinomial logistic regression of more.

    Priors are N(0, prior_scale^2) for coefficients and N(0, intercept_scale^2). With `standardise` they are stated per
    standard deviation of a column, the intercept being that at the columns' means, but as they are for columns of zeros
    and ones; "all" standardises these too. `coef_` is always for the columns as they are. Its error `coef_error_` is at
    most `tolerance` posterior standard deviations `coef_sd_`, or there is a ConvergenceWarning. `result_` tells
    everything else. `random_state` is the seed.

    `groups` is the column of X, by name or number, that names the group of every row: each group has an intercept of
    its own, `effects_`, and a group that was not fitted is predicted as a new one. `coef_` is of the other columns.

    `predict_proba` is the posterior predictive probability. With K > 2 classes the first is the reference:
    `coef_` has K rows, the first of them zero.

    >>> import numpy as np, tallbayes as tb
    >>> x = np.linspace(-2, 2, 60)[:, None]
    >>> labels = np.where(x[:, 0] + np.sin(9 * x[:, 0]) > 0, "late", "on time")
    >>> model = tb.TallClassifier(tolerance=0.5).fit(x, labels)
    >>> model.predict([[-2.0], [2.0]]).tolist()
    ['on time', 'late']
    """

    family: str = "logistic"
    _response = "binary"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """A weight says how many equal rows a row stands for."""
        if self.groups is not None:
            return self._fit_groups(X, y, sample_weight)
        rows = self._checked(X, y, sample_weight)
        check_classification_targets(rows.y)
        self.classes_, codes = np.unique(rows.y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise DataError(explain("at least two classes in y", f"1 class, {self.classes_[0]!r}", "check the labels"))
        if count > 2 and self.family != "logistic":
            got = f"{count} classes with family={self.family!r}"
            raise InputError(explain("two classes", got, "family='logistic', which takes any number"))
        scaling = self._scaling(rows)
        rows = rows._replace(y=codes.astype(np.float32))
        if count == 2:
            self._run(self.family, rows, scaling)
        else:
            self._run("multinomial", rows, scaling, self.classes_[1:])
        return self

    def _fit_groups(self, X: Any, y: Any, sample_weight: Any) -> Self:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            hint = "without groups, or one class against all others"
            raise DataError(explain("two classes with groups=", f"{len(self.classes_)}", hint))
        self._run_groups(X, codes.astype(np.float64), sample_weight)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """E p(y = k | x, theta) over the posterior, one column a class; with groups also over the row's effect."""
        check_is_fitted(self)
        if self.groups is not None:
            second = np.clip(self._predict_groups(X).mean, SMALLEST_CHANCE, 1 - SMALLEST_CHANCE)
            return np.column_stack([1 - second, second])
        x = self._columns(X)
        heads = len(self.classes_) - 1
        if heads > 1:
            chances = np.maximum(self._predicted(x, "multinomial", heads).mean, SMALLEST_CHANCE)
            return np.asarray(chances / chances.sum(axis=1, keepdims=True))
        second = np.clip(self._predicted(x, self.family).mean[:, 0], SMALLEST_CHANCE, 1 - SMALLEST_CHANCE)
        return np.column_stack([1 - second, second])

    def predict_log_proba(self, X: Any) -> Floats:
        """Their logarithms."""
        return np.asarray(np.log(self.predict_proba(X)))

    def decision_function(self, X: Any) -> Floats:
        """The log odds of the second of two classes; the log probability of each of several."""
        check_is_fitted(self)
        logs = self.predict_log_proba(X)
        return logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs

    def predict(self, X: Any) -> np.ndarray:
        """The class that is most probable."""
        check_is_fitted(self)
        return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])

    def _by_class(self, heads: Floats) -> Floats:
        return np.concatenate([np.zeros_like(heads[:1]), heads]) if len(self.classes_) > 2 else heads


@dataclass(eq=False, repr=False)
class TallRegressor(RegressorMixin, TallEstimator):  # type: ignore[misc]
    """Linear regression with unknown noise, normal or (family="student_t") with four degrees of freedom.

    Priors are N(0, prior_scale^2) for coefficients, N(0, intercept_scale^2) and half-normal of scale 1 for the noise,
    but next to nothing below a thousandth. With `standardise` they are in standard deviations of y, per standard
    deviation of a column, the intercept being that at the columns' means; `coef_` is always for columns and y as they
    are. See `TallClassifier` for the rest.

    >>> import tallbayes as tb
    >>> model = tb.TallRegressor(family="student_t", tolerance=0.02)
    """

    family: str = "linear"
    _response = "real"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """A weight says how many equal rows a row stands for."""
        if self.groups is not None:
            self._run_groups(X, _as_numbers(y), sample_weight)
            return self
        rows = self._checked(X, y, sample_weight, y_numeric=True)
        if rows.x.shape[0] < 2:
            raise DataError(explain("at least two rows, to tell noise from the rest", "1 sample", "more rows"))
        scaling = self._scaling(rows, rows.y)
        response = (rows.y - scaling.response_mean) / scaling.response_scale
        self._run(self.family, rows._replace(y=response), scaling, change=_with_least_noise)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """E[y | x] over the posterior; with `return_std` also its posterior standard deviation, noise of y apart.

        That is what `sd` means everywhere in tallbayes. scikit-learn's BayesianRidge and GaussianProcessRegressor
        return the standard deviation of a new y instead, which is `result_.predict(X).observation_sd` here.
        """
        check_is_fitted(self)
        if self.groups is not None:
            known = self._predict_groups(X)
            return (known.mean, known.sd) if return_std else known.mean
        x = self._columns(X)
        value = x @ self.coef_ + self.intercept_
        if not return_std:
            return value
        return value, self._predicted(x, self.family).sd[:, 0] * self.scaling_.response_scale


@dataclass(eq=False, repr=False)
class TallCountRegressor(RegressorMixin, TallEstimator):  # type: ignore[misc]
    """Poisson or negative binomial regression of counts, with mean exp(x . theta + intercept + offset).

    y may be any numbers >= 0: with sample_weight=exposure, counts by exposure are as good as counts with
    offset=log(exposure). See `TallClassifier` for the parameters; `predict` is E exp(...) over the posterior.

    >>> import tallbayes as tb
    >>> model = tb.TallCountRegressor(family="negative_binomial", prior_scale=0.5)
    """

    family: str = "poisson"
    _response = "count"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> Self:
        """A weight says how many equal rows a row stands for; offsets are added to x . theta."""
        if self.groups is not None:
            self._run_groups(X, _as_numbers(y), sample_weight, offset)
            return self
        rows = self._checked(X, y, sample_weight, offset, y_numeric=True)
        if rows.offset is None and is_small(rows.x.shape[0]):
            rows = rows._replace(offset=np.zeros(rows.x.shape[0]))
        self._run(self.family, rows, self._scaling(rows), change=_of_rates)
        return self

    def predict(self, X: Any, offset: Any = None, return_std: bool = False) -> Any:
        """E exp(x . theta + intercept + offset) over the posterior; with `return_std` also its posterior standard
        deviation, the scatter of counts apart, for which see `result_.predict(X).observation_sd`."""
        check_is_fitted(self)
        if self.groups is not None:
            known = self._predict_groups(X, offset)
            return (known.mean, known.sd) if return_std else known.mean
        found = self._predicted(self._columns(X), self.family)
        exposure = 1.0 if offset is None else np.exp(np.asarray(offset, np.float64))
        value = found.mean[:, 0] * exposure
        return (value, found.sd[:, 0] * exposure) if return_std else value

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def _as_numbers(y: Any) -> np.ndarray:
    return np.asarray(check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=np.float64, input_name="y"))


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """Those of scikit-learn's checks that an estimator of this module does not pass, and why.

    It is what `sklearn.utils.estimator_checks.check_estimator` and `parametrize_with_checks` ask for.

    >>> import tallbayes as tb
    >>> list(expected_failed_checks(tb.TallRegressor()))
    ['check_sample_weight_equivalence_on_dense_data', 'check_sample_weight_equivalence_on_sparse_data']
    """
    reason = (
        "rows that are weighted or repeated have the same posterior, but paths read other batches of them: "
        "answers are equal within their Monte Carlo errors, not to 1e-7"
    )
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


def _with_least_noise(model: Model) -> Model:
    """With a noise prior that vanishes towards 0, since rows that are fitted exactly would draw the mode there.

    It is as if there were one more residual, of `LEAST_NOISE`: nothing to the family's own prior, as which it goes, but
    where rows are fitted to that accuracy.
    """
    assert model.parts is not None
    prior = partial(_least_noise_prior, model.log_prior)
    return replace(model, log_prior=prior, parts=model.parts._replace(log_prior=prior))


def _least_noise_prior(log_prior: Any, theta: Any) -> Any:
    return log_prior(theta) - 0.5 * (LEAST_NOISE / theta["noise_scale"]) ** 2


def _of_rates(model: Model) -> Model:
    """With any y >= 0."""
    return replace(model, check=partial(check_regression, _check_rate, (), 1.0))


def _check_rate(y: np.ndarray, beside: Beside) -> None:
    if np.any(y < 0):
        at = int(np.argmax(y < 0))
        raise DataError(explain("y >= 0", f"{y[at]} at row {at}", "tb.TallRegressor for measurements"))
