"""Constants: with them densities and priors are those of scipy; nothing is sampled here but the rows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, ndtr, softmax

import tallbayes as tb
from tallbayes.errors import InputError
from tallbayes.evidence import constants
from tallbayes.evidence.constants import log_constant, of_priors, require_proper
from tallbayes.model import densities
from tallbayes.model.groups.mixed import powers_of, with_effects
from tallbayes.model.groups.terms import EffectTerm
from tallbayes.model.model import bind
from tallbayes.model.noise import Noise
from tallbayes.model.normalisers import log_normaliser
from tallbayes.model.weights import weigh
from tallbayes.rows.table import make_table

ETA, LOG_EXTRA = np.linspace(-1.5, 1.2, 7), 0.3
BINARY, COUNTS, REAL = np.arange(7) % 2.0, np.array([0.0, 1, 2, 5, 0, 3, 9]), np.linspace(-2, 3, 7)
EXTRA = np.exp(LOG_EXTRA)
SIZE = 1 / EXTRA

# Of every family: its density without constants, its noise, y, and the whole by scipy.
WHOLE: dict[str, tuple[Any, Noise, np.ndarray, np.ndarray]] = {
    "logistic": (densities.logistic, Noise("logistic"), BINARY, stats.bernoulli.logpmf(BINARY, expit(ETA))),
    "probit": (densities.probit, Noise("probit"), BINARY, stats.bernoulli.logpmf(BINARY, ndtr(ETA))),
    "linear": (
        lambda eta, row: densities.linear(0.7, eta, row),
        Noise("linear", 0.7),
        REAL,
        stats.norm.logpdf(REAL, ETA, 0.7),
    ),
    "linear, unknown": (densities.linear_unknown, Noise("linear"), REAL, stats.norm.logpdf(REAL, ETA, EXTRA)),
    "student_t": (
        lambda eta, row: densities.student_t(3.0, 0.7, eta, row),
        Noise("student_t", 0.7, 3.0),
        REAL,
        stats.t.logpdf(REAL, 3.0, ETA, 0.7),
    ),
    "student_t, unknown": (
        lambda eta, row: densities.student_t_unknown(3.0, eta, row),
        Noise("student_t", None, 3.0),
        REAL,
        stats.t.logpdf(REAL, 3.0, ETA, EXTRA),
    ),
    "poisson": (densities.poisson, Noise("poisson"), COUNTS, stats.poisson.logpmf(COUNTS, np.exp(ETA))),
    "negative_binomial": (
        densities.negative_binomial,
        Noise("negative_binomial"),
        COUNTS,
        stats.nbinom.logpmf(COUNTS, SIZE, SIZE / (SIZE + np.exp(ETA))),
    ),
}
HAS_EXTRA = ("linear, unknown", "student_t, unknown", "negative_binomial")


@pytest.mark.parametrize("name", WHOLE)
def test_a_density_and_its_constant_are_the_whole(name: str) -> None:
    density, noise, y, whole = WHOLE[name]
    eta = np.stack([ETA, np.full(7, LOG_EXTRA)]) if name in HAS_EXTRA else ETA
    assert np.allclose(density(eta, {"y": y}) + log_normaliser(noise, {"y": y}), whole, atol=1e-10)


def test_classes_need_no_constant() -> None:
    y = np.array([0.0, 2, 1])
    heads = np.array([[0.3, -1.0, 0.2], [0.1, 0.4, 2.0]])
    whole = np.log(softmax(np.vstack([np.zeros(3), heads]), axis=0)[y.astype(int), np.arange(3)])
    assert np.allclose(densities.multinomial(heads, {"y": y}) + log_normaliser(Noise("multinomial"), {"y": y}), whole)


def test_control_a_row_without_its_constant_is_seen() -> None:
    density, _, y, whole = WHOLE["poisson"]
    assert not np.allclose(density(ETA, {"y": y}), whole, atol=1e-3)


def test_priors_of_a_family_and_of_its_effects_are_normalised() -> None:
    terms = EffectTerm("school", 2, True, 0.5), EffectTerm("year", 1, True, 2.0, levels=3)
    fixed = tb.families.linear(prior_scale=np.array([0.7, 3.0]), intercept_scale=10.0, noise_prior_scale=1.5)
    model = with_effects(fixed, *terms)
    theta = {
        "coefficients": np.array([0.3, -1.0]),
        "intercept": np.array(2.0),
        "noise_scale": np.array(0.8),
        "scales0": np.array([0.4, 0.9]),
        "correlations0": np.array([0.35]),
        "scales1": np.array([1.1]),
        "effects1": np.array([[0.2], [-0.5], [1.3]]),
    }
    whole = stats.norm.logpdf(theta["coefficients"], 0, [0.7, 3.0]).sum() + stats.norm.logpdf(2.0, 0, 10)
    whole += stats.halfnorm.logpdf(0.8, scale=1.5) + stats.halfnorm.logpdf(theta["scales0"], scale=0.5).sum()
    whole += stats.halfnorm.logpdf(1.1, scale=2.0) + stats.norm.logpdf(theta["effects1"], 0, 1.1).sum()
    # LKJ(2) of one correlation is proportional to 1 - r^2.
    whole += np.log(0.75 * (1 - 0.35**2))
    shapes = {name: each.shape for name, each in theta.items()}
    with jax.enable_x64(True):
        assert model.parts is not None
        found = float(model.log_prior(jax.tree.map(np.asarray, theta))) + of_priors(model.parts, shapes)
    assert np.isclose(found, whole, rtol=1e-12)


def test_three_correlations_have_the_constants_of_their_partials() -> None:
    total = 0.0
    for power in powers_of(EffectTerm("school", 3)):
        total -= np.log(integrate.quad(lambda r, a=power: (1 - r**2) ** a, -1, 1)[0])
    parts = with_effects(tb.families.poisson(), EffectTerm("school", 3)).parts
    assert parts is not None
    shapes = {"coefficients": (0,)}
    scales = 3 * (np.log(2) - constants.LOG_TWO_PI / 2)
    assert np.isclose(of_priors(parts, shapes), total + scales, rtol=1e-7)


def bound(model: tb.Model, rows: dict[str, np.ndarray], units: Any = None) -> Any:
    target, start = bind(model, {name: each[0] for name, each in rows.items()})
    return target, make_table(rows, "float64", units=units), start


def test_weights_and_the_scale_of_the_response_count() -> None:
    x, y, w = np.ones((7, 1)), COUNTS, np.array([1.0, 2, 1, 0, 1, 1.5, 1])
    target, table, _ = bound(*weigh(tb.families.poisson(), {"x": x, "y": y}, w))
    rows = w @ log_normaliser(Noise("poisson"), {"y": y})
    assert np.isclose(log_constant(target, table), rows - constants.LOG_TWO_PI / 2)
    model, units = tb.families.linear(noise_scale=0.5), {"response_scale": np.array(4.0)}
    target, table, _ = bound(model, {"x": x, "y": REAL}, units)
    rows = np.sum(log_normaliser(Noise("linear", 0.5), {"y": REAL})) - 7 * np.log(4.0)
    assert np.isclose(log_constant(target, table), rows - constants.LOG_TWO_PI / 2)


def test_flat_priors_are_refused_by_name() -> None:
    rows = {"x": np.ones((7, 2)), "y": BINARY}
    flat = tb.families.logistic(prior_scale=np.array([1.0, np.inf]), intercept_scale=np.inf)
    target, _, start = bound(flat, rows)
    with pytest.raises(InputError, match="flat one of 'hour', the intercept"):
        require_proper(target, start, ("age", "hour"))
    target, _, start = bound(tb.families.logistic(), rows)
    require_proper(target, start, ())


def test_a_prior_of_ones_own_that_never_falls_is_refused() -> None:
    def model(log_prior: Any) -> tb.Model:
        likelihood = lambda theta, row: -((row["y"] - theta["a"] - theta["b"]) ** 2)  # noqa: E731
        return tb.Model(log_prior, likelihood, {"a": 0.0, "b": 1.0}, constraints={"b": tb.constraints.positive})

    rows = {"y": REAL}
    target, _, start = bound(model(lambda theta: -theta["b"]), rows)
    with pytest.raises(InputError, match=r"flat one of .*a"):
        require_proper(target, start, ())
    target, _, start = bound(model(lambda theta: -(theta["a"] ** 2) - theta["b"]), rows)
    require_proper(target, start, ())
    assert log_constant(target, make_table(rows, "float64")) == 0.0
