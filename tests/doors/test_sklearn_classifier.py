"""The scikit-learn classifier: scikit-learn's own checks, and answers equal to integrals over a grid."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, ndtr
from sklearn.exceptions import ConvergenceWarning
from sklearn_answers import FAR, LABELS, NEW, NEW_Z, X, Z, errors_of, failures_of, on_grid

import tallbayes as tb
from tallbayes.doors.sklearn.estimators import TallClassifier


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


@pytest.mark.slow
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
