"""Priors in a formula: by the names of the result, in the units of the table; words, errors, and answers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import tallbayes as tb
from tallbayes.errors import InputError
from tallbayes.estimation.small import _centred
from tallbayes.evidence.constants import of_priors
from tallbayes.formula.design import build_design
from tallbayes.formula.fit import find_family, make_model
from tallbayes.formula.groups.fit import mixed_model
from tallbayes.formula.priors.stated import read_priors
from tallbayes.views.document import to_json
from tallbayes.views.summary import brief
from tallbayes.weighing.balance import endless_tails
from tallbayes.weighing.regression import plain_regression

P = tb.priors
ROWS = 90


@pytest.fixture(scope="module")
def table():
    """A column in large units beside a category; a real response too, and groups."""
    rng = np.random.default_rng(0)
    metres, carrier = 12_000 + 3_000 * rng.normal(size=ROWS), rng.choice(["AA", "DL", "UA"], ROWS)
    late = rng.random(ROWS) < expit((metres - 12_000) * 4e-4 + 0.7 * (carrier == "UA"))
    group = rng.integers(0, 9, ROWS)
    delay = 40 + 0.002 * metres + 3 * rng.normal(size=9)[group] + 5 * rng.normal(size=ROWS)
    names = np.array([f"g{each}" for each in group])
    return {"late": late.astype(int), "metres": metres, "carrier": carrier, "delay": delay, "group": names}


def stated_model(formula, table, family, priors, **options):
    known, make = find_family(family)
    real = known.response == "real"
    design = build_design(formula, table, response=known.response, standardise_response=real, **options)
    stated = read_priors(priors, design, known.extras)
    return design, make_model(known, make, design, 1.0, 10.0, {}, stated), stated


def log_prior(model, theta):
    """With its constants."""
    shapes = {name: np.shape(each) for name, each in theta.items()}
    with jax.enable_x64(True):
        return float(model.log_prior(theta)) + of_priors(model.parts, shapes)


def test_priors_are_of_what_the_result_reports(table):
    """Of the coefficients per metre and per level, of the intercept at the column's mean, and of the noise: the density
    by hand in the units of the table, times how these change with theta."""
    given = {
        "metres": P.normal(0.002, 0.001),
        "carrier": P.student_t(4, 0, 8),
        "carrier[T.UA]": P.laplace(1, 3),
        "Intercept": P.cauchy(60, 5),
        "sigma": P.half_student_t(3, 6),
    }
    design, model, stated = stated_model("delay ~ metres + carrier", table, "linear", given)
    theta = {"coefficients": np.array([0.3, -0.2, 0.1]), "intercept": np.array(0.2), "noise_scale": np.array(0.7)}
    order = [design.names.index(name) for name in ("metres", "carrier[T.DL]", "carrier[T.UA]")]
    sd, spread = table["delay"].std(), table["metres"].std()
    metres, dl, ua = theta["coefficients"][order] * sd / np.array([spread, 1, 1])
    middle = table["delay"].mean() + sd * 0.2
    by_hand = stats.norm(0.002, 0.001).logpdf(metres) + stats.t(4, 0, 8).logpdf(dl) + P.laplace(1, 3).log_density(ua)
    by_hand += stats.cauchy(60, 5).logpdf(middle) + np.log(2) + stats.t(3, 0, 6).logpdf(0.7 * sd)
    by_hand += 5 * np.log(sd) - np.log(spread)
    assert np.isclose(log_prior(model, theta), by_hand, rtol=1e-9)
    assert dict(stated.words)["noise_scale"] == "half_student_t(3, 6)"


def test_a_standardised_prior_is_per_standard_deviation(table):
    """As `prior_scale` is; and what is not named keeps its normal prior on standardised columns."""
    given = {"coefficients": P.normal(0, 0.7, standardised=True), "carrier": P.normal(0, 2)}
    _, model, _ = stated_model("late ~ metres + carrier", table, "logistic", given)
    theta = {"coefficients": np.array([0.3, -0.2, 0.1]), "intercept": np.array(0.2)}
    by_hand = (
        stats.norm(0, 0.7).logpdf(0.3) + stats.norm(0, 2).logpdf([-0.2, 0.1]).sum() + stats.norm(0, 10).logpdf(0.2)
    )
    assert np.isclose(log_prior(model, theta), by_hand, rtol=1e-9)
    _, plain, _ = stated_model("late ~ metres + carrier", table, "logistic", {"carrier": P.normal(0, 1)})
    _, default, _ = stated_model("late ~ metres + carrier", table, "logistic", {})
    assert default.parts.priors is None
    assert np.isclose(log_prior(plain, theta), log_prior(default, theta), rtol=1e-12)


def test_an_intercept_by_itself_has_the_prior_of_an_intercept(table):
    _, model, _ = stated_model("late ~ 1", table, "logistic", {"Intercept": P.student_t(3, 1, 2)})
    found = log_prior(model, {"coefficients": np.array([0.4])})
    assert np.isclose(found, stats.t(3, 1, 2).logpdf(0.4), rtol=1e-10)


def test_scales_and_correlations_of_effects_have_priors(table):
    """sd(metres|group) per metre; the intercept's effect at the column's mean; LKJ of another shape."""
    given = {"sd(metres|group)": P.half_cauchy(0.002), "sd(group)": P.exponential(0.2), "cor(group)": P.lkj(5)}
    design, fixed, stated = stated_model("delay ~ metres + (1 + metres | group)", table, "linear", given)
    model, _ = mixed_model(design, fixed, 1.0, stated)
    sd, spread = table["delay"].std(), table["metres"].std()
    theta = {"coefficients": np.array([0.3]), "intercept": np.array(0.2), "noise_scale": np.array(0.7)}
    theta |= {"scales0": np.array([0.5, 0.4]), "correlations0": np.array([0.3])}
    by_hand = stats.norm.logpdf(0.3) + stats.norm(0, 10).logpdf(0.2) + stats.halfnorm.logpdf(0.7)
    by_hand += stats.expon(scale=5).logpdf(0.5 * sd) + np.log(sd)
    by_hand += stats.halfcauchy(scale=0.002).logpdf(0.4 * sd / spread) + np.log(sd / spread)
    # Of two effects r is (1 + r) / 2 ~ Beta(5, 5).
    by_hand += stats.beta(5, 5).logpdf(0.65) - np.log(2)
    assert np.isclose(log_prior(model, theta), by_hand, rtol=1e-9)


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ({"metrs": P.normal()}, "got 'metrs'. Try: 'metres'; priors can be stated of coefficients, metres, carrier"),
        ({"carrier[T.AA]": P.normal()}, "got 'carrier[T.AA]'. Try: 'carrier[T."),
        ({"sigma": P.half_normal()}, "expected priors of what the formula reports; got 'sigma'"),
        ({"metres": P.exponential(1)}, "a prior on both sides of 0 for 'metres', a coefficient; got exponential(1)"),
        ({"sd(group)": P.normal()}, "a prior above 0 for 'sd(group)', which is a scale; got normal(0, 1)"),
        ({"sd(groups)": P.half_normal()}, "got 'sd(groups)'. Try: 'sd(group)'"),
        ({"cor(group)": P.lkj()}, "got 'cor(group)'"),
        ({"metres": P.lkj()}, "expected a prior of one number for 'metres'; got lkj(2)"),
        ({"metres": "normal(0, 0)"}, "expected sd > 0 of a prior; got 0"),
        ("metres", "expected priors by name, in a dict; got 'metres'"),
    ],
)
def test_a_wrong_prior_is_refused_before_anything_is_fitted(table, priors, message):
    with pytest.raises(InputError) as caught:
        tb.fit("late ~ metres + carrier + (1 | group)", table, priors=priors, tolerance=0.1)
    assert message in str(caught.value)


@pytest.fixture(scope="module")
def fitted(table):
    given = {"metres": P.student_t(5, 2e-4, 1e-4), "Intercept": "laplace(0.5, 0.5)"}
    return tb.fit("late ~ metres", table, priors=given, tolerance=0.02)


def quadrature(table, metres, intercept):
    """Posterior means and sds of the slope, and log p(y), on a grid of slope per sd and intercept at the mean."""
    x = (table["metres"] - table["metres"].mean()) / table["metres"].std()
    slope, level = np.meshgrid(np.linspace(-2.5, 5, 801), np.linspace(-2.5, 3, 901), indexing="ij")
    own = slope / table["metres"].std()
    log = metres.log_density(own) - np.log(table["metres"].std()) + intercept.log_density(level)
    for each, y in zip(x, table["late"], strict=True):
        log += y * (level + slope * each) - np.logaddexp(0, level + slope * each)
    weight = np.exp(log - log.max())
    area = (slope[1, 0] - slope[0, 0]) * (level[0, 1] - level[0, 0])
    mean = np.sum(weight * own) / weight.sum()
    return mean, np.sqrt(np.sum(weight * (own - mean) ** 2) / weight.sum()), log.max() + np.log(weight.sum() * area)


def error_of(result, name):
    return result[name].standard_error["metres"] + result[name].bias_bound["metres"]


def test_answers_are_those_of_quadrature(table, fitted):
    """Within five of the errors that are stated (1e-6); with the default prior it is more than ten of them off."""
    mean, sd, log_evidence = quadrature(table, P.student_t(5, 2e-4, 1e-4), P.laplace(0.5, 0.5))
    assert fitted.converged
    for name, exact in (("mean", mean), ("sd", sd)):
        assert abs(fitted[name].value["metres"] - exact) < 5 * error_of(fitted, name)
    evidence = fitted.evidence()
    assert abs(evidence.value - log_evidence) < 5 * evidence.standard_error + evidence.bias_bound
    other = tb.fit("late ~ metres", table, tolerance=0.02)
    assert abs(other["mean"].value["metres"] - mean) > 10 * error_of(other, "mean")


def test_priors_are_said_wherever_a_result_is(table, fitted, tmp_path):
    words = "metres ~ student_t(5, 0.0002, 0.0001), Intercept ~ laplace(0.5, 0.5) at the columns' means (its corner"
    for text in (str(fitted), brief(fitted, {}, None), to_json(fitted, {})):
        assert words in " ".join(text.split())
    page = fitted.report(tmp_path / "page.html")
    assert "student_t(5, 0.0002, 0.0001)" in page.read_text()
    assert "student_t(5, 0.0002, 0.0001)" in str(fitted.sensitivity())


def test_evidence_refuses_a_flat_prior_by_name(table):
    flat = tb.fit("late ~ metres", table, priors={"metres": P.flat()}, tolerance=0.1)
    with pytest.raises(InputError, match="expected priors that can be normalised, for an evidence; got a flat one of"):
        flat.evidence()


def separated():
    x = np.r_[-np.arange(1, 21), np.arange(1, 21)] / 10
    return x, (x > 0).astype(int)


@pytest.mark.parametrize(("nu", "contradicted", "endless"), [(30, False, False), (3, False, True), (3, True, False)])
def test_tails_are_looked_at_where_rows_may_not_cut_them_off(nu, contradicted, endless):
    """Separated rows hold nothing where they are right; a row on the other side does, and so does a thin tail."""
    x, y = separated()
    y[2] += contradicted
    model = tb.families.logistic(priors={"coefficients": P.student_t(nu, 0, 1)})
    regression = plain_regression(model, {"x": x[:, None], "y": y.astype(float)}, np.inf)
    anchor = _centred(regression, model, 0)
    assert endless_tails(regression, anchor, np.array([0])) == endless


@pytest.mark.slow
def test_an_answer_that_has_no_end_is_no_answer():
    """Under Student's t with three degrees of freedom separated rows have no fourth moment, and a ladder says so."""
    x, y = separated()
    given = {"priors": {"x": P.student_t(3, 0, 1)}, "tolerance": 0.1, "max_evaluations": 3e5}
    heavy = tb.fit("y ~ 0 + x", {"x": x, "y": y}, **given)
    assert not heavy.converged
    assert any("no end to the variance" in note for note in heavy.notes)


def test_priors_are_stated_beside_smooths() -> None:
    """Of what is not smooth; log p(theta) is the sum of both, and its constant that of the laws that were stated."""
    rng = np.random.default_rng(3)
    table = {"x": rng.normal(size=60), "z": rng.uniform(size=60), "y": rng.integers(0, 2, 60)}
    options: dict[str, Any] = {"family": "logistic", "tolerance": 0.3, "standardise": False}
    plain = tb.fit("y ~ x + s(z)", table, **options)
    same = tb.fit("y ~ x + s(z)", table, priors={"x": tb.priors.normal(0, 1)}, **options)
    assert same["mean"].flat_value == pytest.approx(plain["mean"].flat_value, abs=1e-6)
    assert same.evidence(1.0).value == pytest.approx(plain.evidence(1.0).value, abs=1e-6)
    assert "s(z) half-normal(1)" in next(note for note in same.notes if "prior:" in note)
    with pytest.raises(tb.InputError, match=r"priors of what the formula reports; got 's\(z\)'"):
        tb.fit("y ~ x + s(z)", table, priors={"s(z)": tb.priors.normal()}, **options)
    with pytest.raises(tb.InputError, match="without smooths"):
        tb.prior_predictive("y ~ x + s(z)", table, family="logistic")
