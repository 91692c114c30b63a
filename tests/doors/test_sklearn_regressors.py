"""The scikit-learn regressors: scikit-learn's own checks, and answers equal to integrals over a grid."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn_answers import FAR, NEW, NEW_Z, X, Z, errors_of, failures_of, on_grid

from tallbayes.doors.sklearn.estimators import LEAST_NOISE, TallCountRegressor, TallRegressor


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
    variance, again = np.einsum("ni,ij,nj->n", z, covariance, z), model.result_.predict(x)
    np.testing.assert_allclose(again.sd, spread, rtol=1e-6)
    assert np.all(np.abs(spread - y.std() * np.sqrt(variance)) < FAR * again.sd_error)
    # A new y, which is what scikit-learn's own estimators mean by it; the control is that it is another number.
    new = y.std() * np.sqrt(noise + variance)
    assert np.all(np.abs(again.observation_sd - new) < FAR * again.observation.sd_error)
    assert np.all(new - spread > FAR * again.sd_error)


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
    value, sd = model.predict(NEW, offset=np.log([1, 2, 3, 4]), return_std=True)
    np.testing.assert_allclose(sd, found.sd * [1, 2, 3, 4])
    np.testing.assert_allclose(value, model.predict(NEW) * [1, 2, 3, 4])


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
