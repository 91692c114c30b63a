"""Answers of scikit-learn estimators, held to scikit-learn's own checks and to integrals over a grid.

Answers are held to 6 of their standard errors beside their bias bounds: a false alarm in 1e-6 of the runs of one
component for 40 and more degrees of freedom. What is fitted has few rows, since these checks are of the door alone.
"""

from __future__ import annotations

from typing import Any
from unittest import SkipTest

import numpy as np
from sklearn.utils import estimator_checks

from tallbayes.doors.sklearn.estimators import expected_failed_checks

FAR = 6.0
# Of a classifier these compile programs for other numbers of classes and rows.
SLOW_CHECKS = ("check_classifiers_train", "check_dtype_object", "check_estimators_dtypes", "check_classifiers_classes")


def failures_of(model: Any, slow: bool | None = None) -> dict[str, str]:
    """Those of scikit-learn's checks that fail and are not declared to, of all or of those that are slow or are not."""
    failed = {}
    declared = expected_failed_checks(model)
    assert all(hasattr(estimator_checks, name) for name in (*declared, *SLOW_CHECKS))
    pairs = estimator_checks.estimator_checks_generator(model, expected_failed_checks=declared, mark="skip")
    for each, check in pairs:
        if slow not in (None, any(name in str(check) for name in SLOW_CHECKS)):
            continue
        try:
            check(each)
        except SkipTest:
            pass
        except Exception as error:
            failed[str(check)] = f"{type(error).__name__}: {error}"
    return failed


def errors_of(model: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Means and sds of all parameters, and six standard errors beside the bias bound of each."""
    mean, sd = model.result_["mean"], model.result_["sd"]
    allowed = [FAR * each.flat_standard_error + each.flat_bias_bound for each in (mean, sd)]
    return mean.flat_value, allowed[0], sd.flat_value, allowed[1]


def on_grid(model: Any, log_likelihood: Any) -> tuple[np.ndarray, np.ndarray]:
    """Standardised (slope, intercept) on a grid about the mode, and the posterior's probability of every point."""
    mode, sd = model.result_.anchor.mode, model.result_.anchor.sd
    axes = [np.linspace(m - 9 * s, m + 9 * s, 181) for m, s in zip(mode, sd, strict=True)]
    theta = np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")], axis=1)
    prior = theta**2 / np.array([1.0, 10.0**2])[: theta.shape[1]]
    log_density = log_likelihood(theta) - 0.5 * prior.sum(axis=1)
    chance = np.exp(log_density - log_density.max())
    return theta, chance / chance.sum()


X = 50 + 10 * np.array([-1.6, -1.1, -0.9, -0.6, -0.4, -0.1, 0.0, 0.3, 0.5, 0.9, 1.3, 1.7])[:, None]
Z = (X - X.mean()) / X.std()
LABELS = np.array(["no", "no", "yes", "no", "no", "no", "yes", "no", "yes", "yes", "yes", "yes"])
NEW = np.array([[20.0], [45.0], [55.0], [90.0]])
NEW_Z = (NEW - X.mean()) / X.std()
