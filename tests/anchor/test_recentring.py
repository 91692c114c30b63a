"""Group effects with a common scale: the mode is far from the mass, the anchor moves, and the answer is exact."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from grouped import EACH, GROUPS, grouped
from scenarios import paper_rows

import tallbayes as tb
from tallbayes.anchor.mode import find_anchor
from tallbayes.anchor.recentring import FAR, recentre
from tallbayes.model.model import bind
from tallbayes.rows.table import make_table
from tallbayes.sampler.paths import make_inputs


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
