"""Group effects with a common scale: the mode is far from the mass, the anchor moves, and the answer is exact."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from grouped import EACH, GROUPS, grouped
from scenarios import gaussian_posterior, gaussian_rows, paper_rows

import tallbayes as tb
from tallbayes.anchor.balance import BALANCED, MATCHED
from tallbayes.anchor.mode import find_anchor
from tallbayes.anchor.recentring import FAR, put_in_balance, recentre
from tallbayes.model.model import bind
from tallbayes.rows.table import make_table
from tallbayes.sampler.inputs import make_inputs


def exact(rows: dict[str, np.ndarray]) -> tuple[float, float, np.ndarray]:
    """Mean and sd of tau, and means of z, by quadrature over tau with z integrated out."""
    means = rows["y"].reshape(GROUPS, EACH).mean(axis=1)
    tau = np.linspace(1e-4, 5, 40_001)[:, None]
    spread = tau**2 + 1 / EACH
    log_density = -0.5 * np.sum(np.log(spread) + means**2 / spread, axis=1) - 0.5 * tau[:, 0] ** 2
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ tau[:, 0]
    return mean, np.sqrt(weight @ tau[:, 0] ** 2 - mean**2), weight @ (tau * means * EACH / (1 + tau**2 * EACH))


def anchored(model, rows):
    target, start = bind(model, jax.tree.map(lambda array: array[0], rows))
    table = make_table(rows, "float64")
    return target, table, find_anchor(target, table, start)


def test_the_anchor_moves_to_where_the_mass_is():
    model, rows = grouped()
    target, table, mode = anchored(model, rows)
    found = recentre(target, table, mode)
    mean, sd, _ = exact(rows)
    assert found.shift > FAR
    assert abs(np.exp(mode.mode[0]) - mean) > 4 * sd
    assert abs(np.exp(found.anchor.mode[0]) - mean) < 1.5 * sd
    assert found.evaluations > 0
    assert "sds from its mode" in found.note
    inputs = make_inputs(table, found.anchor, "float64")
    w = np.asarray(inputs.centre.whitening.root)
    np.testing.assert_allclose(w.T @ found.anchor.precision @ w, np.eye(len(w)), atol=1e-8)
    expected = np.eye(len(w)) - w.T @ found.anchor.hessian @ w
    np.testing.assert_allclose(inputs.centre.mismatch, expected, atol=1e-8)


def test_a_mode_that_is_good_enough_stays():
    model = replace(tb.families.logistic(), log_concave=False)
    target, table, mode = anchored(model, paper_rows(2_000))
    found = recentre(target, table, mode)
    assert found.anchor is mode
    assert found.shift < 0.5
    assert found.note == ""


@pytest.mark.slow
def test_group_effects_agree_with_quadrature():
    """Eight standard errors and the bias bound: one false alarm in 1e6 with t_nu of these samples."""
    model, rows = grouped()
    result = tb.estimate(model, rows, tolerance=0.15, seed=1)
    assert result.converged
    assert any("its mode" in note for note in result.notes)
    mean, sd, effects = exact(rows)
    slack = {name: 8 * result[name].flat_standard_error + result[name].flat_bias_bound for name in ("mean", "sd")}
    assert abs(result["mean"].value["tau"] - mean) < slack["mean"][0]
    assert abs(result["sd"].value["tau"] - sd) < slack["sd"][0]
    assert np.all(np.abs(result["mean"].value["z"] - effects) < slack["mean"][1:])
    # Negative control: the mode itself, or Laplace there, would not pass.
    assert abs(np.exp(anchored(model, rows)[2].mode[0]) - mean) > 4 * slack["mean"][0]
    again = tb.estimate(model, rows, tolerance=0.5, seed=2, anchor=result.anchor)
    assert again.anchor.recentred
    assert abs(again["mean"].value["tau"] - mean) < 0.5 * 8 * sd


def test_one_row_is_not_answered_with_confidence():
    """Linear regression of one row: the noise may be next to nothing, and no Gaussian is near. No claim is made."""
    model = tb.families.linear(intercept_scale=10.0)
    floor = replace(model, log_prior=lambda t: model.log_prior(t) - 0.5 * (1e-3 / t["noise_scale"]) ** 2)
    target, table, mode = anchored(floor, {"x": np.ones((1, 1)), "y": np.ones(1)})
    assert recentre(target, table, mode).anchor is mode


def test_an_anchor_of_other_rows_is_refused():
    model, rows = grouped()
    target, table, mode = anchored(model, rows)
    moved = recentre(target, table, mode).anchor
    with pytest.raises(tb.InputError, match="off by"):
        tb.estimate(model, rows | {"y": rows["y"] + 1.0}, tolerance=0.5, anchor=moved)


# In balance by quadrature, which every regression can be.


def test_a_gaussian_posterior_is_its_own_balance():
    rows = gaussian_rows(40, 3, 0.7)
    mean, precision = gaussian_posterior(rows, 0.7, 1.0)
    target, table, mode = anchored(tb.families.linear(noise_scale=0.7), rows)
    found = put_in_balance(target, table, mode)
    np.testing.assert_allclose(found.anchor.mode, mean, rtol=1e-9)
    np.testing.assert_allclose(found.anchor.precision, precision, rtol=1e-9)
    assert found.evaluations == 40
    shift, bend = found.anchor.mean_remainder
    np.testing.assert_allclose(shift, 0, atol=1e-7)
    np.testing.assert_allclose(bend, 0, atol=1e-9)


def balanced_in_one_dimension(x, y, prior_scale):
    """m and P with E grad = 0 and P = -E grad^2, by iteration on a fine grid."""
    t = np.arange(-1000, 1001) / 100
    weight = np.exp(-(t**2) / 2)
    weight /= weight.sum()
    m, p = 0.0, 1.0
    for _ in range(200):
        theta = m + t / np.sqrt(p)
        chance = 1 / (1 + np.exp(-np.outer(theta, x)))
        p = weight @ ((chance * (1 - chance)) @ x**2) + prior_scale**-2
        m += weight @ ((y - chance) @ x - theta * prior_scale**-2) / p
    return m, p


def test_a_logistic_slope_is_balanced_as_on_a_grid():
    rng = np.random.default_rng(1)
    x, y = 1 + np.abs(rng.normal(size=8)), np.ones(8)
    y[0] = 0.0
    target, table, mode = anchored(tb.families.logistic(prior_scale=2.0), {"x": x[:, None], "y": y})
    m, p = balanced_in_one_dimension(x, y, 2.0)
    found = put_in_balance(target, table, mode)
    # Not to the end: within 0.03 sds, and what is left is known.
    assert abs(found.anchor.mode[0] - m) * np.sqrt(p) < 0.04
    assert found.anchor.precision[0, 0] == pytest.approx(p, rel=0.1)
    shift, bend = found.anchor.mean_remainder
    assert abs(shift[0]) < BALANCED
    assert abs(bend[0, 0]) < MATCHED
    # Control: the mode is elsewhere.
    assert abs(mode.mode[0] - m) * np.sqrt(p) > 0.1
    np.testing.assert_allclose(found.anchor.laplace.mode, mode.mode)


def test_a_posterior_far_from_gaussian_is_balanced_in_few_passes():
    rng = np.random.default_rng(0)
    theta = 1.5 * rng.normal(size=10)
    x = rng.normal(size=(100, 10))
    y = (rng.random(100) < 1 / (1 + np.exp(-x @ theta))).astype(float)
    target, table, mode = anchored(tb.families.logistic(), {"x": x, "y": y})
    found = put_in_balance(target, table, mode)
    assert found.shift > 0.3
    assert found.evaluations <= 5 * 100
    shift, bend = found.anchor.mean_remainder
    assert np.linalg.norm(shift) < BALANCED
    assert np.abs(np.linalg.eigvalsh(bend)).max() < MATCHED
    assert found.anchor.hessian is not None
    assert found.anchor.has_mode


def test_a_model_of_ones_own_is_balanced_by_draws():
    model, rows = grouped()
    target, table, mode = anchored(model, rows)
    found = put_in_balance(target, table, mode).anchor
    assert found.recentred
    assert not found.knows_averages
