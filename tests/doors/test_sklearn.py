"""The scikit-learn door, whichever the estimator: parameters, pipelines, matrices and bad input."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_matrix, csr_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn_answers import LABELS, X

import tallbayes as tb
from tallbayes.doors.sklearn import estimator as shared
from tallbayes.doors.sklearn import matrices
from tallbayes.doors.sklearn.estimators import TallClassifier, TallCountRegressor, TallRegressor
from tallbayes.doors.sklearn.matrices import BLOCK_NUMBERS, absorb_prior, standard_scaling, width_for

ESTIMATORS = (TallClassifier, TallRegressor, TallCountRegressor)


@pytest.mark.slow
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


def sparse_rows(count: int, columns: int) -> tuple[np.ndarray, dict[type, np.ndarray]]:
    """A matrix of few entries, and a response for every estimator."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(count, columns)) * (generator.random((count, columns)) < 0.2)
    eta = x[:, 0] - 0.5 * x[:, 1]
    answers = {
        TallClassifier: np.where(generator.random(count) < 1 / (1 + np.exp(-eta)), "yes", "no"),
        TallRegressor: 3.0 + eta + generator.normal(size=count),
        TallCountRegressor: generator.poisson(np.exp(0.5 * eta)),
    }
    return x, answers


# Every form, every estimator, and both scales.
QUICK = ((csr_array, 0, True), (csc_matrix, 1, False), (coo_array, 2, True))


@pytest.mark.parametrize(
    ("make", "estimator", "standardise"),
    [
        pytest.param(
            make,
            estimator,
            standardise,
            id=f"{standardise}-{estimator.__name__}-{make.__name__}",
            marks=[] if (make, number, standardise) in QUICK else [pytest.mark.slow],
        )
        for make in (csr_array, csc_matrix, coo_array)
        for number, estimator in enumerate(ESTIMATORS)
        for standardise in (True, False)
    ],
)
def test_sparse_matrices_have_the_answers_of_dense_ones(estimator: Any, make: Any, standardise: bool) -> None:
    """To the last bit, predictions too: the arithmetic is the same, tile by tile."""
    x, answers = sparse_rows(300, 5)
    model = estimator(tolerance=0.5, standardise=standardise)
    weights = np.arange(300) % 3
    by_dense, by_sparse = (clone(model).fit(each, answers[estimator], sample_weight=weights) for each in (x, make(x)))
    np.testing.assert_array_equal(by_sparse.coef_, by_dense.coef_)
    np.testing.assert_array_equal(by_sparse.intercept_, by_dense.intercept_)
    method = "predict_proba" if estimator is TallClassifier else "predict"
    np.testing.assert_allclose(getattr(by_sparse, method)(make(x)), getattr(by_dense, method)(x), rtol=1e-12)


@pytest.mark.slow
def test_sparse_predictions_are_made_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x, answers = sparse_rows(300, 5)
    model = TallClassifier(tolerance=0.5).fit(x, answers[TallClassifier])
    whole = model.predict_proba(x)
    monkeypatch.setattr(shared, "PREDICTED_NUMBERS", 5 * 64)
    np.testing.assert_allclose(model.predict_proba(csr_array(x)), whole, rtol=1e-9)


def test_standardising_holds_a_tile_of_a_sparse_matrix_at_a_time() -> None:
    """Means and scales, and a dense float32 array of the size of the answer: no float64 copy of it on the way."""
    count, columns = 200_000, 40
    entries = np.random.default_rng(1).integers(0, [[count], [columns]], (2, 100_000))
    x = csr_array((np.ones(100_000), entries), shape=(count, columns))
    tracemalloc.start()
    scaling = standard_scaling(x, None, centred=True)
    z = scaling.apply(x, dtype=np.float32)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < z.nbytes + 64 * 8 * BLOCK_NUMBERS / 8
    np.testing.assert_allclose(z[:1000], (x[:1000].toarray() - scaling.means) / scaling.scales, rtol=1e-5)


def test_a_sparse_matrix_beyond_memory_is_refused_before_it_is_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "memory_bytes", lambda: 10**6)
    x = csr_array((np.ones(2), ([0, 1], [0, 9_999])), shape=(10_000, 10_000))
    with pytest.raises(tb.InputError, match=r"10,000 x 10,000: 0\.4 GB as the dense rows .* Try: fewer columns"):
        TallClassifier().fit(x, np.arange(10_000) % 2)


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
