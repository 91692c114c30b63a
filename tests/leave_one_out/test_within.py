"""Of a mixed model a row is left out, given the others of its group: counts against integrals on grids."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from left_out import PoissonByGroup, exact_loo, log_prior_by_group
from scipy.stats import norm

import tallbayes as tb
from tallbayes.groups.placing import gather
from tallbayes.leave_one_out import answer, own_nodes
from tallbayes.leave_one_out.within import rows_of_groups
from tallbayes.model.groups.mixed import with_effects
from tallbayes.model.groups.terms import EffectTerm, root_of
from tallbayes.results.fitted import Fitted, fitted_of
from tallbayes.rows.table import Table

SEEDS = 10


@cache
def counted() -> tuple[dict[str, np.ndarray], np.ndarray, tb.Result]:
    """Eight groups of three rows and nine of one, of which one is far out; in no order."""
    rng = np.random.default_rng(3)
    sizes = np.r_[[3] * 8, [1] * 9]
    group = rng.permutation(np.repeat(np.arange(17), sizes))
    y = rng.poisson(np.exp(1.5 + rng.normal(size=17)[group])).astype(float)
    y[group == 12] = 40
    model = PoissonByGroup(y, group)
    exact = exact_loo(log_prior_by_group, model.rows, np.array([1.5, 0.0]), model.total)
    table = {"y": y, "g": np.array([f"g{each:02d}" for each in group])}
    return table, exact, tb.fit("y ~ 1 + (1 | g)", table, family="poisson", tolerance=0.05)


@pytest.fixture(scope="module")
def counts() -> tuple[dict[str, np.ndarray], np.ndarray, tb.Result]:
    return counted()


def z_scores(result: tb.Result, exact: np.ndarray, seeds: int = SEEDS) -> np.ndarray:
    """How far the sum is off beyond its bias bound, in standard errors, seed by seed."""
    every = [result.loo(unit="row", seed=seed, tolerance=0.1) for seed in range(seeds)]
    assert all(each.certified for each in every)
    beyond = [max(abs(each.elpd - exact.sum()) - each.bias_bound, 0.0) for each in every]
    return np.array(beyond) / [each.standard_error for each in every]


def test_rows_are_left_out_given_their_groups(counts: Any) -> None:
    """5 standard errors are passed by chance once in 170,000 runs of ten seeds, and their mean square is beyond 3.6
    once in a million."""
    table, exact, result = counts
    scores = z_scores(result, exact)
    assert scores.max() < 5
    assert np.mean(scores**2) < 3.6
    found = result.loo(unit="row", pointwise=True)
    assert (found.unit, found.num_rows, found.pointwise.shape) == ("row", 33, (33,))
    # Each row's own answer has a seventh of the error of all at the most.
    assert np.abs(found.pointwise - exact).max() < 0.15
    assert found.rows[0].row == int(np.flatnonzero(table["g"] == "g12")[0])
    assert found.rows[0].influence > 2
    assert found.sampling_error == pytest.approx(np.sqrt(33 * np.var(exact)), rel=0.05)


def test_groups_are_left_out_with_all_constants(counts: Any) -> None:
    """That of their effects' law too: 0.9 a group, which errors of 0.05 would not hide."""
    table, _, result = counts
    model = PoissonByGroup(table["y"], np.unique(table["g"], return_inverse=True)[1])
    exact = exact_loo(log_prior_by_group, model.groups, np.array([1.5, 0.0]))
    found = result.loo(pointwise=True)
    assert (found.unit, found.num_rows) == ("group", 17)
    assert np.abs(found.pointwise - exact).max() < 0.2
    assert abs(found.elpd - exact.sum()) < 5 * found.standard_error + found.bias_bound


def test_control_nodes_of_the_group_alone_are_noticed(counts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, exact, result = counts
    monkeypatch.setattr(own_nodes, "UNEVEN", np.inf)
    monkeypatch.setattr(own_nodes, "MOST", {1: 7})
    # Nor is what 2K+1 nodes say any nearer, so that the bound knows of it too.
    found = result.loo(unit="row", tolerance=0.1)
    assert abs(found.elpd - exact.sum()) > 8 * found.standard_error
    assert found.bias_bound > 8 * found.standard_error


def test_control_rows_left_in_are_noticed(counts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a row were foretold with its own group's effect, the row included."""
    _, exact, result = counts
    right = answer.RowsOfGroups.in_parts

    def wrong(*arguments: Any) -> Any:
        return ((part, given, given) for part, _, given in right(*arguments))

    monkeypatch.setattr(answer.RowsOfGroups, "in_parts", wrong)
    assert z_scores(result, exact, 1).max() > 8


def test_more_nodes_make_no_difference(counts: Any) -> None:
    """What 7 nodes say of the rows is what 31 say, to the bound that is told."""
    result = counts[2]
    anchor = result.posterior.anchor
    placed = own_nodes.place_nodes(rows_of_groups(fitted_of(result)), anchor, 1.0, 0.01)
    few, many = (placed.rows.with_nodes(nodes) for nodes in (placed.rows.nodes, 31))
    point = anchor.mode[None] + anchor.draws(4, 0)
    sums = [sum(each.densities(k, point).left.sum(axis=0) for k in range(len(each.blocks))) for each in (few, many)]
    assert np.abs(sums[0] - sums[1]).max() < 4 * placed.bias + 1e-9
    coarse = replace(placed.rows, nodes=1)
    wrong = sum(coarse.densities(k, point).left.sum(axis=0) for k in range(len(coarse.blocks)))
    assert np.abs(wrong - sums[1]).max() > 4 * placed.bias


def test_normal_rows_have_a_closed_form() -> None:
    """Against [V^-1 e]_i / [V^-1]_ii, of V written out, to float32; of groups that are sums rows are put together."""
    rng = np.random.default_rng(6)
    group = rng.permutation(np.repeat(np.arange(15), np.r_[[4] * 10, [1] * 5]))
    x = rng.normal(size=len(group))
    z = np.column_stack([np.ones(len(x)), x])
    y = 3.0 + np.sum(z * rng.normal(size=(15, 2))[group], axis=1) + rng.normal(size=len(x))
    model = with_effects(tb.families.linear(intercept_scale=10.0), EffectTerm("g", size=2))
    gathered = gather(model, {"x": x[:, None], "y": y, "z0": z, "g": group})
    target, start = gathered.bound
    assert "sums" in gathered.units
    rows = rows_of_groups(Fitted(target, Table(gathered.units, 15), gathered.grouping))
    points = start + 0.3 * rng.normal(size=(3, len(start)))
    found = [rows.densities(block, points) for block in range(len(rows.blocks))]
    left, given = (np.concatenate([getattr(each, name) for each in found]) for name in ("left", "fitted"))
    constant, order = rows.constants(target, 1.0), rows.numbers
    assert rows.is_closed
    assert rows.responses() == pytest.approx(y)
    for k, point in enumerate(points):
        theta = target.space.theta(point)
        random = z @ np.asarray(root_of(target.parts.terms[0], theta, 0))
        prior = np.where(group[:, None] == group, random @ random.T, 0.0)
        e, noise = y - float(theta["intercept"]) - float(theta["coefficients"][0]) * x, float(theta["noise_scale"])
        inverse = np.linalg.inv(prior + noise**2 * np.eye(len(e)))
        variance = 1 / np.diag(inverse)
        exact = norm.logpdf(variance * (inverse @ e), 0, np.sqrt(variance))
        assert left[:, k] + constant == pytest.approx(exact[order], abs=1e-5)
        after = np.diag(prior - prior @ inverse @ prior)
        exact = norm.logpdf(e - prior @ inverse @ e, 0, np.sqrt(after + noise**2))
        assert given[:, k] + constant == pytest.approx(exact[order], abs=1e-5)


def test_a_model_with_groups_is_ranked_with_one_without(counts: Any) -> None:
    """By rows, which both can leave out; of a factor that tells nothing there is little to gain."""
    table, _, result = counts
    plain = tb.fit("y ~ 1", table, family="poisson", tolerance=0.2)
    found = tb.rank({"plain": plain, "mixed": result})
    assert found.names == ("mixed", "plain")
    assert found["plain"].difference == pytest.approx(
        plain.loo().elpd - result.loo(unit="row").elpd, abs=3 * found["plain"].error
    )
    assert found["plain"].sampling_error > 0


def test_what_cannot_be_left_out_is_told(counts: Any, outlier: Any) -> None:
    result, plain = counts[2], outlier[2]
    with pytest.raises(tb.InputError, match="unit='row' or unit='group'"):
        result.loo(unit="school")
    with pytest.raises(tb.InputError, match="a fit with effects by group"):
        plain.loo(unit="group")
    with pytest.raises(tb.InputError, match=r"another one in|expected 33 rows"):
        tb.rank(result, plain)
