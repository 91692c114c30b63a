"""The scikit-learn door: scikit-learn's own checks, and answers equal to integrals over a grid.

Answers are held to 6 of their standard errors beside their bias bounds: a false alarm in 1e-6 of the runs of one
component for 40 and more degrees of freedom. What is fitted has few rows, since these checks are of the door alone.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from scipy.special import expit, ndtr
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

import tallbayes as tb
from tallbayes.doors.sklearn.estimators import (
    LEAST_NOISE,
    TallClassifier,
    TallCountRegressor,
    TallRegressor,
    expected_failed_checks,
)
from tallbayes.doors.sklearn.matrices import BLOCK_NUMBERS, absorb_prior, standard_scaling, width_for

FAR = 6.0
ESTIMATORS = (TallClassifier, TallRegressor, TallCountRegressor)
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


@pytest.mark.slow
def test_scikit_learn_s_checks_of_the_classifier() -> None:
    """All but four, whose subjects are here by themselves below."""
    assert failures_of(TallClassifier(tolerance=1.0), slow=False) == {}


@pytest.mark.slow
def test_scikit_learn_s_slow_checks_of_the_classifier() -> None:
    assert failures_of(TallClassifier(tolerance=1.0), slow=True) == {}


@pytest.fixture(scope="module")
def classifier() -> TallClassifier:
    return TallClassifier(random_state=3).fit(X, LABELS)


def test_a_classifier_equals_its_integrals(classifier: TallClassifier) -> None:
    """coef_ is per unit of the column, with the prior per standard deviation; probabilities are predictive."""
    sign = np.where(LABELS == "yes", 1, -1)

    def log_likelihood(theta: np.ndarray) -> np.ndarray:
        return -np.logaddexp(0, -sign * (theta @ [Z[:, 0], np.ones(12)])).sum(axis=1)

    theta, chance = on_grid(classifier, log_likelihood)
    slope = theta[:, 0] / X.std()
    raw = np.stack([slope, theta[:, 1] - slope * X.mean()])
    exact = raw @ chance
    exact_sd = np.sqrt(((raw - exact[:, None]) ** 2) @ chance)
    mean, mean_allowed, sd, sd_allowed = errors_of(classifier)
    assert np.all(np.abs(mean - exact) < mean_allowed)
    assert np.all(np.abs(sd - exact_sd) < sd_allowed)
    assert classifier.coef_.shape == classifier.coef_sd_.shape == classifier.coef_error_.shape == (1, 1)
    assert (classifier.coef_[0, 0], classifier.intercept_[0]) == (mean[0], mean[1])
    assert np.all(classifier.coef_error_ <= 0.05 * 1.2 * classifier.coef_sd_)
    eta = NEW_Z * theta[:, 0] + theta[:, 1]
    predictive = expit(eta) @ chance
    found = classifier.result_.predict(NEW)
    np.testing.assert_allclose(found.mean, classifier.predict_proba(NEW)[:, 1], rtol=1e-12)
    # The ensemble is as far from the posterior as the tolerance lets it be.
    spread = np.sqrt(expit(eta) ** 2 @ chance - predictive**2)
    allowed = FAR * found.standard_error + 0.05 * spread
    proba = classifier.predict_proba(NEW)
    assert np.all(np.abs(proba[:, 1] - predictive) < allowed)
    # The control: probabilities at the mean of theta are others, further from 1/2.
    plug_in = expit(NEW @ classifier.coef_[0] + classifier.intercept_)
    assert np.any(np.abs(plug_in - predictive) > 2 * allowed)


def test_a_classifier_is_consistent_with_itself(classifier: TallClassifier) -> None:
    proba = classifier.predict_proba(NEW)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert classifier.predict(NEW).tolist() == ["no", "no", "yes", "yes"]
    odds = classifier.decision_function(NEW)
    np.testing.assert_allclose(odds, np.log(proba[:, 1] / proba[:, 0]))
    assert np.all(np.isfinite(classifier.decision_function([[-1e6], [1e6]])))


def test_a_fitted_estimator_can_be_pickled(classifier: TallClassifier, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(NEW), classifier.predict_proba(NEW))
    assert str(again.result_) == str(classifier.result_)
    classifier.result_.save(tmp_path / "result")
    assert str(tb.load(tmp_path / "result")) == str(classifier.result_)


def test_weights_are_as_good_as_repeated_rows(classifier: TallClassifier) -> None:
    weights = np.where(LABELS == "yes", 2, 1)
    weights[0] = 0
    weighted = TallClassifier(random_state=1).fit(X, LABELS, weights)
    repeated = TallClassifier(random_state=2).fit(X.repeat(weights, axis=0), LABELS.repeat(weights))
    np.testing.assert_allclose(weighted.scaling_.scales, repeated.scaling_.scales)
    (mean, allowed, sd, sd_allowed), other = errors_of(weighted), errors_of(repeated)
    assert np.all(np.abs(mean - other[0]) < allowed + other[1])
    assert np.all(np.abs(sd - other[2]) < sd_allowed + other[3])
    assert np.any(np.abs(mean - errors_of(classifier)[0]) > allowed + other[1])


def test_small_tables_share_their_programs(classifier: TallClassifier, compilations: list[str]) -> None:
    """Another number of columns, another prior, and weights: nothing is compiled."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(100, 7))
    TallClassifier(tolerance=0.5, prior_scale=0.3).fit(x, x[:, 0] > generator.normal(size=100), np.arange(100) % 3)
    assert compilations == []


def test_the_coefficient_of_a_constant_column_keeps_its_prior() -> None:
    x = np.column_stack([X, np.full(12, 0.1)])
    model = TallClassifier(tolerance=0.5, prior_scale=3.0).fit(x, LABELS)
    assert abs(model.coef_[0, 1]) < 0.01
    assert model.coef_sd_[0, 1] == pytest.approx(3.0, rel=0.01)


@pytest.mark.slow
def test_several_classes() -> None:
    """Beside importance sampling from a wide Gaussian about the mode; the first class is the reference."""
    generator = np.random.default_rng(1)
    x = generator.normal(2.0, 3.0, size=(60, 2))
    eta = np.stack([np.zeros(60), 1 + 0.5 * x[:, 0], -1 - 0.5 * x[:, 1]], axis=1)
    codes = np.argmax(eta + generator.gumbel(size=eta.shape), axis=1)
    frame = pd.DataFrame(x, columns=["hour", "day"])
    model = TallClassifier(prior_scale=2.0, tolerance=0.1).fit(frame, np.array(["a", "b", "c"])[codes])
    anchor, draws = model.result_.anchor, generator.standard_normal((20_000, 6))
    # Coefficients b, coefficients c, both intercepts.
    theta = anchor.mode + 1.2 * anchor.displacements(draws)
    slopes, levels = theta[:, :4].reshape(-1, 2, 2), theta[:, 4:]
    heads = np.einsum("nd,tkd->tnk", 2.0 * (x - x.mean(axis=0)) / x.std(axis=0), slopes) + levels[:, None]
    every = np.concatenate([np.zeros_like(heads[..., :1]), heads], axis=2)
    logs = every - np.logaddexp.reduce(every, axis=2, keepdims=True)
    prior = theta**2 @ [1, 1, 1, 1, 0.01, 0.01]
    log_ratio = logs[:, np.arange(60), codes].sum(axis=1) - 0.5 * prior + 0.5 * (draws**2).sum(axis=1)
    chance = np.exp(log_ratio - log_ratio.max())
    chance /= chance.sum()
    own = 2.0 * slopes / x.std(axis=0)
    raw = np.concatenate([own.reshape(-1, 4), levels - own @ x.mean(axis=0)], axis=1)
    exact = chance @ raw
    error = FAR * np.sqrt(chance**2 @ (raw - exact) ** 2)
    mean, allowed, _, _ = errors_of(model)
    assert np.all(np.abs(mean - exact) < allowed + error)
    proba = model.predict_proba(frame)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_allclose(proba, np.tensordot(chance, np.exp(logs), 1), atol=0.02)
    np.testing.assert_array_equal(model.coef_, [[0, 0], mean[:2], mean[2:4]])
    np.testing.assert_array_equal(model.intercept_, [0, *mean[4:]])
    assert list(model.result_["mean"].value["coefficients"]["b"]) == ["hour", "day"]
    assert model.predict(frame).tolist() == model.classes_[proba.argmax(axis=1)].tolist()


def test_pipelines_and_searches() -> None:
    generator = np.random.default_rng(8)
    x = generator.normal(size=(120, 3))
    y = x[:, 0] > 0.5 * generator.normal(size=120)
    pipeline = make_pipeline(StandardScaler(), TallClassifier(tolerance=0.5, standardise=False))
    assert cross_val_score(pipeline, x, y, cv=2, scoring="roc_auc").min() > 0.8
    search = GridSearchCV(TallClassifier(tolerance=0.5), {"prior_scale": [0.01, 1.0]}, scoring="neg_log_loss", cv=2)
    assert search.fit(x, y).best_params_ == {"prior_scale": 1.0}


def test_a_run_that_ends_early_warns_and_says_why() -> None:
    with pytest.warns(ConvergenceWarning, match="stopped at max_evaluations"):
        model = TallClassifier(tolerance=1e-3, max_evaluations=1e5).fit(X, LABELS)
    assert model.result_.status is tb.Status.max_evaluations
    assert model.predict_proba(NEW).shape == (4, 2)


def test_types_do_not_matter(classifier: TallClassifier) -> None:
    """Numbers of any type, and labels of any: to float32 rounding, beside the paths' own Monte Carlo errors."""
    whole = np.round(X)
    first = TallClassifier(tolerance=0.5).fit(whole, LABELS)
    codes = np.unique(LABELS, return_inverse=True)[1]
    for x, y in [
        (whole.astype(np.float32), LABELS),
        (whole.astype(np.int64), LABELS.astype(object)),
        (whole.astype(object), codes),
        (whole.astype(np.int32), codes == 1),
    ]:
        model = TallClassifier(tolerance=0.5).fit(x, y)
        np.testing.assert_allclose(model.coef_, first.coef_, rtol=1e-4)
        assert model.classes_.dtype == np.asarray(y).dtype
        np.testing.assert_allclose(model.predict_proba(x), first.predict_proba(whole), atol=1e-4)
        assert np.all(np.isin(model.predict(x), y))


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


@pytest.mark.slow
def test_scikit_learn_s_checks_of_the_regressor() -> None:
    assert failures_of(TallRegressor(tolerance=1.0)) == {}


def linear_reference(z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and covariance of theta and E noise^2, by a sum over values of the noise."""
    precision = np.diag([*np.ones(z.shape[1] - 1), 1 / 10.0**2])
    total, mean, square, noise = 0.0, 0.0, 0.0, 0.0
    # The largest log evidence is near N / 2.
    for log_scale in np.linspace(np.log(0.01), np.log(5.0), 2000):
        scale = np.exp(log_scale)
        hessian = z.T @ z / scale**2 + precision
        centre = np.linalg.solve(hessian, z.T @ y / scale**2)
        misfit = y @ y / scale**2 - centre @ hessian @ centre
        prior = scale**2 + (LEAST_NOISE / scale) ** 2
        evidence = (1 - len(y)) * log_scale - 0.5 * (np.linalg.slogdet(hessian)[1] + misfit + prior + len(y))
        weight = np.exp(evidence)
        total += weight
        mean = mean + weight * centre
        square = square + weight * (np.linalg.inv(hessian) + np.outer(centre, centre))
        noise += weight * scale**2
    mean = mean / total
    return mean, square / total - np.outer(mean, mean), noise / total


@pytest.mark.slow
def test_a_regressor_equals_its_integrals() -> None:
    """Columns and response in odd units."""
    generator = np.random.default_rng(4)
    x = np.array([100.0, -3.0, 7.0]) + np.array([20.0, 0.1, 1.0]) * generator.normal(size=(25, 3))
    y = 1000 + 3 * x[:, 0] + generator.normal(0.0, 80.0, 25)
    model = TallRegressor(tolerance=0.1).fit(x, y)
    means, scales = x.mean(axis=0), x.std(axis=0)
    z = np.column_stack([(x - means) / scales, np.ones(25)])
    mean, covariance, noise = linear_reference(z, (y - y.mean()) / y.std())
    back = y.std() * np.block([[np.diag(1 / scales), np.zeros((3, 1))], [-means / scales, np.ones(1)]])
    exact, exact_sd = back @ mean + [0, 0, 0, y.mean()], np.sqrt(np.diag(back @ covariance @ back.T))
    found, allowed, sd, sd_allowed = (each[:4] for each in errors_of(model))
    assert np.all(np.abs(found - exact) < allowed + 1e-4 * exact_sd)
    assert np.all(np.abs(sd - exact_sd) < sd_allowed + 1e-4 * exact_sd)
    assert (model.coef_.shape, type(model.intercept_)) == ((3,), np.float64)
    value, spread = model.predict(x, return_std=True)
    np.testing.assert_allclose(value, x @ model.coef_ + model.intercept_)
    predictive = y.std() * np.sqrt(noise + np.einsum("ni,ij,nj->n", z, covariance, z))
    np.testing.assert_allclose(spread, predictive, rtol=0.05)


@pytest.mark.slow
def test_scikit_learn_s_checks_of_the_count_regressor() -> None:
    assert failures_of(TallCountRegressor(tolerance=1.0)) == {}


def test_a_count_regressor_equals_its_integrals() -> None:
    counts = np.array([0, 1, 0, 2, 1, 1, 3, 2, 4, 4, 9, 14])
    model = TallCountRegressor(tolerance=0.03).fit(X, counts)

    def log_likelihood(theta: np.ndarray) -> np.ndarray:
        eta = theta @ [Z[:, 0], np.ones(12)]
        return eta @ counts - np.exp(eta).sum(axis=1)

    theta, chance = on_grid(model, log_likelihood)
    slope = theta[:, 0] / X.std()
    raw = np.stack([slope, theta[:, 1] - slope * X.mean()])
    mean, allowed, _, _ = errors_of(model)
    assert np.all(np.abs(mean - raw @ chance) < allowed)
    rates = np.exp(NEW_Z * theta[:, 0] + theta[:, 1])
    exact, spread = rates @ chance, np.sqrt(rates**2 @ chance - (rates @ chance) ** 2)
    found = model.result_.predict(NEW)
    assert np.all(np.abs(model.predict(NEW) - exact) < FAR * found.standard_error + 0.03 * spread)
    np.testing.assert_allclose(model.predict(NEW, offset=np.log([1, 2, 3, 4])), model.predict(NEW) * [1, 2, 3, 4])


@pytest.mark.slow
def test_rates_with_weights_are_as_good_as_counts_with_offsets() -> None:
    generator = np.random.default_rng(6)
    x, exposure = generator.normal(size=(80, 2)), generator.uniform(0.5, 4.0, 80)
    counts = generator.poisson(exposure * np.exp(0.5 + 0.4 * x[:, 0]))
    options = {"standardise": False, "tolerance": 0.1}
    by_offset = TallCountRegressor(**options).fit(x, counts, offset=np.log(exposure))
    by_weight = TallCountRegressor(**options, random_state=5).fit(x, counts / exposure, exposure)
    (mean, allowed, _, _), other = errors_of(by_offset), errors_of(by_weight)
    assert np.all(np.abs(mean - other[0]) < allowed + other[1])
    assert np.any(np.abs(mean - errors_of(TallCountRegressor(**options).fit(x, counts))[0]) > allowed + other[1])


@pytest.mark.slow
def test_a_probit_without_an_intercept_equals_its_integrals() -> None:
    sign = np.where(LABELS == "yes", 1, -1)
    model = TallClassifier("probit", fit_intercept=False).fit(X - X.mean(), LABELS)
    theta, chance = on_grid(model, lambda theta: np.log(ndtr(sign * (theta @ Z.T))).sum(axis=1))
    mean, allowed, _, _ = errors_of(model)
    assert abs(mean[0] * X.std() - theta[:, 0] @ chance) < allowed[0] * X.std()
    assert model.intercept_.tolist() == [0.0]
    predictive = ndtr(NEW_Z * theta[:, 0]) @ chance
    np.testing.assert_allclose(model.predict_proba(NEW - X.mean())[:, 1], predictive, atol=0.02)


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
