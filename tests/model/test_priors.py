"""Priors by name: laws against SciPy's and integrals, derivatives against JAX's, families against priors by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import tallbayes as tb
from tallbayes.doors.sklearn.matrices import column_priors, standard_scaling
from tallbayes.errors import ModelError
from tallbayes.evidence.constants import of_priors
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.model import bind
from tallbayes.model.parts.making import _log_prior
from tallbayes.model.priors.laws import LAWS
from tallbayes.model.priors.named import read_prior
from tallbayes.weighing.regression import plain_regression

P = tb.priors
PRIORS = {
    "normal": (P.normal(0.3, 0.5), stats.norm(0.3, 0.5)),
    "student_t": (P.student_t(4, -1, 2), stats.t(4, -1, 2)),
    "cauchy": (P.cauchy(1, 0.5), stats.cauchy(1, 0.5)),
    "laplace": (P.laplace(0.5, 2, rounded_within=1e-4), stats.laplace(0.5, 2)),
    "half_normal": (P.half_normal(2), stats.halfnorm(scale=2)),
    "half_cauchy": (P.half_cauchy(0.5), stats.halfcauchy(scale=0.5)),
    "exponential": (P.exponential(4), stats.expon(scale=0.25)),
    "gamma": (P.gamma(2.5, 3), stats.gamma(2.5, scale=1 / 3)),
    "inverse_gamma": (P.inverse_gamma(3, 2), stats.invgamma(3, scale=2)),
}
ALL = {
    **{name: each[0] for name, each in PRIORS.items()},
    "rounded": P.laplace(0, 1, rounded_within=0.3),
    "half_student_t": P.half_student_t(3, 2),
}
priors = pytest.mark.parametrize("name", ALL)


@pytest.mark.parametrize("name", PRIORS)
def test_densities_are_those_of_scipy(name):
    prior, known = PRIORS[name]
    points = known.ppf(np.linspace(0.01, 0.99, 23))
    # Laplace's is rounded within 1e-4 of its scale, which is all that it is off by.
    assert np.allclose(prior.log_density(points), known.logpdf(points), atol=3e-4 if name == "laplace" else 1e-12)


@priors
def test_densities_integrate_to_one(name):
    prior = ALL[name]
    low = 0.0 if prior.positive else -np.inf
    parts = [(low, prior.centre), (prior.centre, np.inf)] if not prior.positive else [(0.0, 1.0), (1.0, np.inf)]
    whole = sum(integrate.quad(lambda x: np.exp(prior.log_density(x)), *ends, limit=200)[0] for ends in parts)
    assert abs(whole - 1) < 1e-6


@priors
def test_draws_have_the_density(name):
    """Kolmogorov and Smirnov's distance at 1e-6, against the density integrated; a law twice as wide is seen."""
    prior = ALL[name]
    drawn = np.sort(prior.draws(np.random.default_rng(1), 20_000))
    inner = drawn[500:-500]
    grid = np.linspace(inner[0], inner[-1], 20_001)
    density = np.exp(prior.log_density(grid))
    steps = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    between = np.searchsorted(inner, grid[::50]) / len(drawn)
    bound = 2 * np.sqrt(-np.log(5e-7) / (2 * len(drawn)))
    assert np.max(np.abs(between - steps[::50])) < bound
    wide = prior.centre + 2 * (inner - prior.centre)
    assert np.max(np.abs(np.searchsorted(wide, grid[::50]) / len(drawn) - steps[::50])) > bound


@priors
def test_derivatives_are_those_of_jax(name):
    prior = ALL[name]
    law, z = LAWS[prior.law], np.array([0.05, 0.4, 1.0, 3.0]) * (1 if prior.positive else -1)
    with jax.enable_x64(True):
        slope = jax.vmap(jax.grad(lambda each: law.log_density(each, *prior.shape)))(jnp.asarray(z))
        bend = jax.vmap(jax.grad(jax.grad(lambda each: -law.log_density(each, *prior.shape))))(jnp.asarray(z))
    assert np.allclose(law.slope(z, *prior.shape), slope, rtol=1e-10)
    assert np.allclose(law.bend(z, *prior.shape), bend, rtol=1e-9)


@priors
def test_a_prior_moves_with_what_it_is_of(name):
    """Of theta, where it is stated for b = shift + unit theta: the density with the Jacobian."""
    prior = ALL[name]
    shift, unit = (0.0 if prior.positive else 2.0), 250.0
    theta = np.array([0.3, 1.1])
    own = prior.log_density(shift + unit * theta) + np.log(unit)
    assert np.allclose(prior.moved(shift, unit).log_density(theta), own, rtol=1e-10)


@priors
def test_the_text_of_a_prior_says_it(name):
    assert read_prior(ALL[name].text) == ALL[name]


def test_a_prior_for_standardised_columns_says_so():
    prior = P.student_t(4, 0, 1, standardised=True)
    assert prior.text == "student_t(4, 0, 1, standardised=True)"
    assert read_prior(prior.text) == prior
    assert prior.within(0.0, 9.0).scale == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("norml(0, 1)", "expected a prior of tb.priors; got 'norml(0, 1)'. Try: 'normal'"),
        ("normal(0, -1)", "expected sd > 0 of a prior; got -1"),
        ("normal(0, 1, 2)", "expected numbers for normal; got 'normal(0, 1, 2)'. Try: normal(mean = 0.0, sd = 1.0"),
        ("normal(0, x)", "expected numbers for normal"),
        ("student_t()", "expected numbers for student_t"),
        ("normal(True, 1)", "expected a finite mean of a prior; got True"),
        ("half_normal(inf)", "expected numbers for half_normal"),
        ("normal", "expected a prior of tb.priors; got 'normal'"),
    ],
)
def test_a_wrong_text_is_refused(text, message):
    with pytest.raises(ModelError) as caught:
        read_prior(text)
    assert message in str(caught.value)


def straight() -> tb.Model:
    return tb.families.linear(
        intercept_scale=2.0,
        priors={
            "coefficients": [P.student_t(4, 0.5, 0.2), P.laplace(0, 0.4), P.normal(0.1, 0.7)],
            "intercept": P.cauchy(0, 2),
            "noise_scale": P.gamma(2, 3),
        },
    )


def test_a_familys_prior_is_the_sum_of_those_that_were_stated():
    model, theta = straight(), {"coefficients": np.array([0.1, -0.3, 0.4]), "intercept": np.array(0.6)}
    theta["noise_scale"] = np.array(0.8)
    shapes = {name: np.shape(each) for name, each in theta.items()}
    with jax.enable_x64(True):
        found = float(model.log_prior(jax.tree.map(jnp.asarray, theta)))
    known = stats.t(4, 0.5, 0.2).logpdf(0.1) + stats.norm(0.1, 0.7).logpdf(0.4)
    known += stats.cauchy(0, 2).logpdf(0.6) + stats.gamma(2, scale=1 / 3).logpdf(0.8)
    known += P.laplace(0, 0.4).log_density(-0.3)
    assert np.isclose(found + of_priors(model.parts, shapes), known, rtol=1e-12)


def test_the_small_tables_prior_is_the_models():
    """Value, gradient and curvature in NumPy beside JAX's, of u with the log of the noise in it."""
    model, rng = straight(), np.random.default_rng(0)
    rows = {"x": rng.normal(size=(9, 3)), "y": rng.poisson(2, 9).astype(float)}
    plain = plain_regression(model, rows, np.inf)
    point = np.array([0.1, -0.3, 0.4, 0.6, -0.2])

    def prior(u):
        theta = {"coefficients": u[:3], "intercept": u[3], "noise_scale": jnp.exp(u[4])}
        return model.log_prior(theta) + u[4]

    def terms(u):
        return prior(u), jax.grad(prior)(u), jax.hessian(prior)(u)

    with jax.enable_x64(True):
        value, slope, hessian = jax.jit(terms)(jnp.asarray(point))
    found = plain.prior(point)
    assert np.isclose(found.value, value, rtol=1e-12)
    assert np.allclose(found.gradient, slope, rtol=1e-8)
    # Of what stands beside the coefficients by differences.
    assert np.allclose(found.curvature, -hessian, rtol=1e-6, atol=1e-12)


def test_averages_of_a_corner_are_those_over_the_gaussian():
    """E slope and E bend of a corner far narrower than the Gaussian, by quadrature; at the corner the bend is 20."""
    model = tb.families.logistic(priors={"coefficients": P.laplace(0, 1)})
    plain = plain_regression(model, {"x": np.ones((3, 1)), "y": np.ones(3)}, np.inf)
    slope, bend = plain.stated.about(np.array([0.2]), np.array([0.6]))
    law = stats.norm(0.2, 0.6)
    for found, of in ((slope, LAWS["laplace"].slope), (bend, LAWS["laplace"].bend)):
        exact = integrate.quad(lambda x, of=of: law.pdf(x) * of(np.array(x), 0.05), -5, 5, points=[-0.1, 0, 0.1])[0]
        assert abs(found[0] - exact) < 0.005 * abs(exact)
    assert plain.stated.about(np.array([0.0]), np.zeros(1))[1][0] == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coeficients": P.normal()}, "got 'coeficients'. Try: 'coefficients'; priors can be stated of coefficients"),
        ({"coefficients": P.half_normal()}, "a prior on both sides of 0 for 'coefficients', a coefficient; got half"),
        ({"noise_scale": P.normal()}, "a prior above 0 for 'noise_scale', which is a scale; got normal(0, 1)"),
        ({"coefficients": 3}, "expected a prior of tb.priors for 'coefficients'; got 3"),
        ({"coefficients": P.lkj(2)}, "expected a prior of one number for 'coefficients'; got lkj(2)"),
        ({"coefficients": P.normal(standardised=True)}, "expected a prior of 'coefficients' in the units of x"),
        ([P.normal()], "expected priors by name"),
    ],
)
def test_what_cannot_be_stated_is_refused(given, message):
    with pytest.raises(ModelError) as caught:
        tb.families.linear(priors=given)
    assert message in str(caught.value)


def test_as_many_priors_as_columns_are_wanted():
    model = tb.families.logistic(priors={"coefficients": [P.normal(), P.student_t(4)]})
    with pytest.raises(ModelError, match="3 prior scales, one a column of x"):
        model.check({"x": np.ones((2, 3)), "y": np.zeros(2)})


def test_without_priors_a_family_is_what_it_was():
    """The same function of the same scales, whose programs and bits are then the same."""
    model = tb.families.linear(prior_scale=2.0, intercept_scale=3.0)
    assert model.log_prior.func is _log_prior
    assert model.log_prior.args[:1] == ({"coefficients": 2.0, "intercept": 3.0, "noise_scale": 1.0},)
    assert model.parts.priors is None
    assert model.parts.moments == inf


def test_log_concavity_is_that_of_the_priors_too():
    assert tb.families.logistic(priors={"coefficients": P.laplace()}).log_concave
    assert not tb.families.logistic(priors={"coefficients": P.student_t(4)}).log_concave


def test_a_family_with_another_prior_in_its_place_is_answered_with_that():
    """The parts say what the family was made with: they are not read where the model has another log prior."""
    model = tb.families.linear(noise_scale=1.0, prior_scale=1.0)
    other = replace(model, log_prior=lambda theta: -0.5 * jnp.sum((theta / 0.1) ** 2))
    assert model.is_as_made
    assert not other.is_as_made
    rows = {"x": np.ones((25, 1)), "y": np.ones(25)}
    assert bind(other, {"x": np.ones(1), "y": np.float64(1)})[0].parts is None
    result = tb.estimate(other, rows, tolerance=0.02)
    # 25 rows of mean 1 beside a prior of precision 100.
    estimate = result["mean"]
    assert abs(estimate.value[0] - 0.2) < 5 * (estimate.standard_error[0] + estimate.bias_bound[0]) + 1e-6


def test_the_scikit_learn_door_has_the_priors_of_a_formula():
    """By the names of columns, in their units, for columns in units of hundreds: what the formula door has."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 2)) * [300, 1] + [2_000, 0]
    scaling = standard_scaling(x, None, True, 100 * rng.normal(size=60))
    given = {
        "a": P.normal(0.2, 0.05),
        "coefficients": P.student_t(4, 0, 1, standardised=True),
        "sigma": P.exponential(1),
    }
    with pytest.raises(tb.InputError, match=r"got 'c'\. Try: priors can be stated of coefficients, a, b"):
        column_priors({"c": P.normal()}, ["a", "b"], scaling, 1.0, 16, CATALOGUE["linear"].extra)
    found = column_priors(given, ["a", "b"], scaling, 1.0, 16, CATALOGUE["linear"].extra)
    unit = scaling.response_scale
    assert len(found["coefficients"]) == 16
    assert found["coefficients"][0].centre == pytest.approx(0.2 * scaling.scales[0] / unit)
    assert found["coefficients"][1].scale == 1.0
    assert found["coefficients"][15].law == "normal"
    assert found["noise_scale"].scale == pytest.approx(1 / unit)
