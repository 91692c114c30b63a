"""Anchors whose precision is an arrowhead: all that a matrix says, without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from coded import INDEXED, LEVELS, bound, coded_model, coded_rows

import tallbayes as tb
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import expand
from tallbayes.anchor.gaussian_level import laplace_level, reported_sd
from tallbayes.anchor.importance import row_sizes
from tallbayes.anchor.mode import curvature_of, find_anchor
from tallbayes.anchor.other_modes import search_modes
from tallbayes.anchor.recentring import recentre
from tallbayes.anchor.sums import Curvature
from tallbayes.errors import ImproperPosteriorError, RankDeficientError
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.model.linear import Indexed
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.model.parts.making import with_codes
from tallbayes.rows.table import Table

FLAT = float("inf")
MODELS = {
    "logistic": (coded_model(), None),
    "poisson": (coded_model(family="poisson"), None),
    "known noise": (coded_model(family="linear", noise_scale=0.7), 0.7),
    "unknown noise": (coded_model(family="linear"), 0.7),
}


def both(model: tb.Model, rows: Any) -> tuple[Target, Table, Anchor, Anchor]:
    target, table, start = bound(model, rows, shuffle=True)
    dense, arrow = (find_anchor(target, table, start, dense_limit=limit) for limit in (100, 0))
    assert isinstance(arrow.precision, Arrowhead)
    assert "an arrow, 10 levels" in arrow.note
    return target, table, dense, arrow


@pytest.mark.parametrize("name", MODELS)
def test_an_arrow_is_the_dense_anchor(name: str) -> None:
    model, noise = MODELS[name]
    target, _, dense, arrow = both(model, coded_rows(3_000, noise=noise))
    np.testing.assert_allclose(arrow.mode, dense.mode, atol=1e-8)
    np.testing.assert_allclose(arrow.precision.whole(), dense.precision, rtol=1e-7, atol=1e-6)
    assert arrow.likelihood_hessian is not None
    np.testing.assert_allclose(arrow.likelihood_hessian.whole(), dense.likelihood_hessian, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(arrow.sd, dense.sd, rtol=1e-8)
    np.testing.assert_allclose(arrow.curvatures, dense.curvatures, rtol=1e-7)
    assert arrow.whitener.log_det == pytest.approx(dense.whitener.log_det, rel=1e-9)
    direction = np.random.default_rng(0).normal(size=target.dimension)
    assert arrow.sd_along(direction) == pytest.approx(dense.sd_along(direction), rel=1e-8)
    draws = arrow.draws(4_000)
    # 136 pairs of parameters, a correlation of 4,000 draws errs by 0.016: six of that is one in 10^6 for all.
    np.testing.assert_allclose(draws.std(axis=0), arrow.sd, rtol=6 * 0.0112)
    np.testing.assert_allclose(np.corrcoef(draws.T), _correlation(dense), atol=6 * 0.0158)


def _correlation(anchor: Anchor) -> np.ndarray:
    return anchor.covariance / np.outer(anchor.sd, anchor.sd)


def test_rows_matter_as_much_by_an_arrow() -> None:
    target, table, dense, arrow = both(coded_model(), coded_rows(3_000))
    # The points of the Gaussian are others, turned by another root: sizes agree in the mean over many rows.
    ratio = row_sizes(target, table, arrow) / row_sizes(target, table, dense)
    assert np.median(ratio) == pytest.approx(1, rel=0.2)
    assert 0.2 < ratio.min() < ratio.max() < 5


@pytest.mark.parametrize("name", ["logistic", "unknown noise"])
def test_the_gaussian_level_of_an_arrow(name: str) -> None:
    model, noise = MODELS[name]
    target, _, dense, arrow = both(model, coded_rows(3_000, noise=noise))
    observables = Observables(True, ())
    nothing = np.zeros(2 * target.structure.size)
    found, expected = (laplace_level(target, observables, each, nothing, 0) for each in (arrow, dense))
    # Laws are the same, draws are not: six standard errors, one in 10^8 for each of 34 numbers.
    error = 6 * np.sqrt(found.variance / max(found.draws, 1) + expected.variance / max(expected.draws, 1))
    assert np.all(np.abs(found.mean - expected.mean) <= error + 1e-9 * np.abs(expected.mean))
    np.testing.assert_allclose(found.exact, expected.exact, rtol=1e-6, atol=1e-12)


def test_reports_of_one_level_and_of_several() -> None:
    """In a table's units: levels each times a number, and a sum of some; the same sds as by all columns of W."""

    def report(theta: Any, units: Any) -> Any:
        levels = theta["coefficients"][LEVELS[0] : sum(LEVELS)]
        return {"own": levels * units, "mean": jnp.mean(levels), "rest": theta["coefficients"] @ jnp.arange(15.0)}

    units = np.linspace(0.5, 2, LEVELS[1])
    model = replace(coded_model(), report=report, units=units, affine_report=True)
    target, _, dense, arrow = both(model, coded_rows(3_000))
    with jax.enable_x64(True):
        sds = [reported_sd(target, each, jnp.asarray(units)) for each in (arrow, dense)]
    np.testing.assert_allclose(sds[0], sds[1], rtol=1e-8)


def test_a_category_without_an_end() -> None:
    """Under a flat prior: a level that is always 1 is open; one that no row names, or all of them beside an intercept,
    are flat."""
    rows = coded_rows(2_000)
    open_level = rows | {"y": np.where(rows["codes"][:, 0] == 4, 1.0, rows["y"])}
    target, table, start = bound(coded_model(FLAT), open_level)
    with pytest.raises(ImproperPosteriorError) as caught:
        find_anchor(target, table, start, dense_limit=0)
    assert caught.value.places == (4,)
    model = with_codes(tb.families.logistic(FLAT, FLAT), INDEXED)
    empty = rows | {"codes": np.where(rows["codes"] == 4, 5, rows["codes"]).astype(np.int32)}
    named = rows["codes"][:, 0] < 15
    whole = {name: array[named] for name, array in rows.items()}
    with pytest.raises(RankDeficientError) as caught_flat:
        find_anchor(*bound(model, empty), dense_limit=0)
    assert caught_flat.value.places == (4,)
    with pytest.raises(RankDeficientError) as caught_whole:
        find_anchor(*bound(model, whole), dense_limit=0)
    assert set(caught_whole.value.places) <= {*range(1, 11), 15}


def test_a_prior_that_ties_levels_has_no_arrow() -> None:
    def tied(theta: Any) -> Any:
        return -0.5 * jnp.sum(theta["coefficients"] ** 2) - 0.5 * jnp.sum(jnp.diff(theta["coefficients"]) ** 2)

    target, table, start = bound(replace(coded_model(), log_prior=tied), coded_rows(2_000))
    assert curvature_of(target, start, 0) is Curvature.NONE
    assert find_anchor(target, table, start, dense_limit=0).is_partial
    free = bound(coded_model(), coded_rows(2_000))
    assert curvature_of(free[0], free[2], 0) is Curvature.ARROW
    assert curvature_of(free[0], free[2]) is Curvature.DENSE


def test_other_modes_are_looked_for_by_an_arrow() -> None:
    model, noise = MODELS["unknown noise"]
    target, table, _, arrow = both(model, coded_rows(3_000, noise=noise))
    search = search_modes(target, table, arrow)
    assert search.climbs > 0
    assert not search.others


def test_many_levels_pull_what_they_share() -> None:
    """A slope beside 2,000 levels of eight rows: the mode is some of its sds from the mass.

    In balance the mean pull of the Gaussian is nothing, here at other points of it than those it was moved by; the
    control is the mode, where it is two sds and more.
    """
    rng = np.random.default_rng(0)
    levels, count = 2_000, 16_000
    codes, x = np.arange(count) % levels, rng.normal(size=count)
    eta = 0.8 * x + rng.normal(0, 1, levels)[codes] - 0.3
    rows = {"x": x[:, None], "codes": codes[:, None].astype(np.int32)}
    rows["y"] = (rng.random(count) < 1 / (1 + np.exp(-eta))).astype(float)
    indexed = Indexed(levels + 1, (levels,), ((0, levels),))
    model = with_codes(tb.families.logistic(prior_scale=1.0, intercept_scale=10.0), indexed)
    target, table, start = bound(model, rows, shuffle=True)
    anchor = find_anchor(target, table, start, dense_limit=0)
    found = recentre(target, table, anchor)
    assert "in balance" in found.note
    assert found.evaluations == 9 * count
    z = np.random.default_rng(7).standard_normal((2, target.dimension))
    slopes = {}
    for name, at in (("mode", anchor), ("centre", found.anchor)):
        moves = at.displacements(z)
        points = [at.mode + sign * move for move in moves for sign in (1, -1)]
        mean = np.mean([expand(target, table, p, curvature=Curvature.NONE).gradient for p in points], axis=0)
        slopes[name] = np.abs(at.whitener.pull_back(mean)[[levels, levels + 1]]).max()
    assert slopes["mode"] > 2
    assert slopes["centre"] < 0.25 * slopes["mode"]
