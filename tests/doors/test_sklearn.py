"""The scikit-learn door, whichever the estimator: parameters, pipelines, matrices and bad input."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn_answers import LABELS, X

import tallbayes as tb
from tallbayes.doors.sklearn.estimators import TallClassifier, TallCountRegressor, TallRegressor
from tallbayes.doors.sklearn.matrices import BLOCK_NUMBERS, absorb_prior, standard_scaling, width_for

ESTIMATORS = (TallClassifier, TallRegressor, TallCountRegressor)


def test_pipelines_and_searches() -> None:
    generator = np.random.default_rng(8)
    x = generator.normal(size=(120, 3))
    y = x[:, 0] > 0.5 * generator.normal(size=120)
    pipeline = make_pipeline(StandardScaler(), TallClassifier(tolerance=0.5, standardise=False))
    assert cross_val_score(pipeline, x, y, cv=2, scoring="roc_auc").min() > 0.8
    search = GridSearchCV(TallClassifier(tolerance=0.5), {"prior_scale": [0.01, 1.0]}, scoring="neg_log_loss", cv=2)
    assert search.fit(x, y).best_params_ == {"prior_scale": 1.0}


def test_seeds() -> None:
    first, again, other = (
        TallClassifier(tolerance=0.5, random_state=state).fit(X, LABELS).coef_[0, 0]
        for state in (np.random.RandomState(1), np.random.RandomState(1), np.random.RandomState(2))
    )
    assert first == again != other
    assert TallClassifier(tolerance=0.5, random_state=None).fit(X, LABELS).result_.settings["seed"] >= 0


def test_parameters_can_be_read_set_and_cloned() -> None:
    model = clone(TallRegressor(prior_scale=2.0, method=tb.Anchored())).set_params(tolerance=0.2)
    assert model.get_params()["prior_scale"] == 2.0
    assert model.get_params()["tolerance"] == 0.2
    assert isinstance(model.method, tb.Anchored)
    for estimator in ESTIMATORS:
        assert list(estimator().get_params()) == sorted(TallClassifier().get_params())


def test_only_small_tables_are_widened() -> None:
    assert [width_for(100, columns) for columns in (1, 16, 17, 32, 33)] == [16, 16, 32, 32, 33]
    assert width_for(10**6, 3) == 3


def test_a_flat_prior_is_left_to_the_family() -> None:
    scaling = standard_scaling(X, None, centred=True)
    scaled, left = absorb_prior(scaling, 2.0, 16)
    assert (scaled.scales / scaling.scales, left) == (0.5, 1.0)
    scaled, left = absorb_prior(scaling, np.inf, 3)
    assert (scaled.scales / scaling.scales, left.tolist()) == (1.0, [np.inf, 1.0, 1.0])


def test_importing_tallbayes_does_not_import_scikit_learn() -> None:
    program = "import sys, tallbayes; dir(tallbayes); assert 'sklearn' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_sparse_matrix_is_refused() -> None:
    with pytest.raises(TypeError, match="Sparse data was passed"):
        TallClassifier().fit(csr_array(X), LABELS)


def test_standardising_is_weighted_and_leaves_a_constant_column_at_zero() -> None:
    """In several blocks, far from zero."""
    generator = np.random.default_rng(3)
    x = 1e6 + generator.normal(size=(BLOCK_NUMBERS // 2 + 1000, 3))
    x[:, 2] = 0.1
    weights = generator.uniform(0.0, 2.0, len(x))
    scaling = standard_scaling(x, weights, centred=True)
    z = scaling.apply(x, 4)
    np.testing.assert_allclose(np.average(z, axis=0, weights=weights), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.average(z[:, :2] ** 2, axis=0, weights=weights), 1.0)
    assert not z[:, 2:].any()
    assert standard_scaling(x, None, centred=False).means.tolist() == [0.0, 0.0, 0.0]


BAD: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "a family of another estimator": (TallClassifier("poisson"), LABELS, {}, "'logistic'"),
    "probit of three classes": (TallClassifier("probit"), np.arange(12) % 3, {}, "3 classes"),
    "one class": (TallClassifier(), np.ones(12, int), {}, "1 class"),
    "a prior that is not positive": (TallRegressor(prior_scale=0.0), X[:, 0], {}, "prior_scale > 0"),
    "too many priors": (TallRegressor(prior_scale=[1.0, 2.0]), X[:, 0], {}, "1 for as many columns"),
    "a negative count": (TallCountRegressor(), -X[:, 0], {}, "y >= 0"),
    "weights of nothing": (TallRegressor(), X[:, 0], {"sample_weight": np.zeros(12)}, "weight"),
    "one row that counts": (TallRegressor(), X[:, 0], {"sample_weight": np.arange(12) == 3}, "1 sample"),
    "an offset of another length": (TallCountRegressor(), X[:, 0], {"offset": np.zeros(3)}, "[12, 3]"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    model, y, options, part = BAD[name]
    with pytest.raises(ValueError, match=re.escape(part)):
        model.fit(X, y, **options)
