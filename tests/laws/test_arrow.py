"""An arrow in place of a matrix: the telescoping law, the same posterior, 10,000 levels against a closed form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anchored_levels import LADDER, law_score, sampled
from coded import WIDTH, bound, coded_model, coded_rows
from equal_results import assert_same
from scenarios import by_ladder
from scipy import sparse
from scipy.sparse.linalg import splu

import tallbayes as tb
from tallbayes.anchor import mode
from tallbayes.anchor.importance import list_rows
from tallbayes.anchor.mode import find_anchor
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.rates import contraction_of, hidden_among_many
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.model.linear import Indexed
from tallbayes.model.observables import Observables
from tallbayes.model.parts.making import with_codes
from tallbayes.sampler.levels import make_problem
from tallbayes.sampler.paths import Plan


@pytest.fixture
def arrows(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few the parameters."""
    monkeypatch.setattr(mode, "DENSE_LIMIT", 0)


@pytest.mark.parametrize(
    "gradient", [pytest.param(tb.Taylor(1, tb.Blocks()), marks=pytest.mark.slow), tb.Blend(1, tb.Blocks())], ids=str
)
def test_levels_telescope_by_an_arrow(gradient: Any) -> None:
    """34 checks of four levels at 5 standard errors: a false alarm in 8e-5."""
    target, table, start = bound(coded_model(), coded_rows(60), shuffle=True)
    anchor = find_anchor(target, table, start, dense_limit=0)
    assert isinstance(anchor.precision, Arrowhead)
    plan = Plan(
        target, gradient, tb.Exponential(), tb.Antithetic(), Observables(True, ()), "float64", laplace=True, slabs=True
    )
    listing = list_rows(target, table, anchor)
    this = make_problem(plan, table, anchor, LADDER, 3, pairs=(), batch_size=6, listing=listing)
    assert law_score(sampled(this, num_levels=4, blocks=(48, 32, 16, 8))) < 5


def test_any_run_of_the_list_has_its_share_of_every_level() -> None:
    """With all rows in it, each as often as its weight says; a run of a tenth has a tenth of every level, to one."""
    target, table, start = bound(coded_model(), coded_rows(2_000), shuffle=True)
    listing = list_rows(target, table, find_anchor(target, table, start, dense_limit=0))
    assert listing is not None
    rows, weights = listing.rows[: listing.length], listing.weights[: listing.length]
    np.testing.assert_allclose(np.bincount(rows, weights), 1.0, rtol=1e-6)
    level = np.asarray(table.rows["codes"])[rows, 0]
    tenth = listing.length // 10
    whole = np.bincount(level, minlength=WIDTH + 1)
    for first in (0, 333, 1_234):
        run = np.bincount(level[first : first + tenth], minlength=WIDTH + 1)
        assert np.all(np.abs(run - whole * tenth / listing.length) <= 1.01)


def apart(one: tb.Result, other: tb.Result, quantity: str) -> np.ndarray:
    """Distances beyond the bias bounds, in standard errors."""
    a, b = one[quantity], other[quantity]
    beyond = np.abs(a.flat_value - b.flat_value) - a.flat_bias_bound - b.flat_bias_bound
    return np.asarray(beyond / np.hypot(a.flat_standard_error, b.flat_standard_error))


@pytest.mark.slow
def test_an_arrow_answers_as_a_matrix_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 comparisons beyond 5 standard errors, below 1e-4; codes off by one are told from the right ones."""
    rows = coded_rows(400)
    dense = by_ladder(coded_model(), rows, tolerance=0.05, seed=1)
    monkeypatch.setattr(mode, "DENSE_LIMIT", 0)
    arrow = by_ladder(coded_model(), rows, tolerance=0.05, seed=2)
    assert dense.converged
    assert arrow.converged
    assert any("an arrow, 10 levels" in note for note in arrow.notes)
    for quantity in ("mean", "sd"):
        assert np.all(apart(dense, arrow, quantity) < 5)
    codes = np.where((rows["codes"] > 1) & (rows["codes"] <= 10), rows["codes"] - 1, rows["codes"])
    shifted = by_ladder(coded_model(), rows | {"codes": codes.astype(np.int32)}, tolerance=0.05, seed=3)
    assert np.any(apart(dense, shifted, "mean") > 10)


@pytest.mark.usefixtures("arrows")
def test_a_ledger_and_a_file_keep_an_arrow(tmp_path: Path) -> None:
    rows = coded_rows(400)
    first = by_ladder(coded_model(), rows, tolerance=0.1, seed=1, ledger=tmp_path / "ledger")
    again = by_ladder(coded_model(), rows, tolerance=0.1, seed=1, ledger=tmp_path / "ledger")
    assert_same(first, again)
    assert again.cost.setup_evaluations == first.cost.setup_evaluations
    first.save(tmp_path / "result")
    loaded = tb.load(tmp_path / "result")
    assert loaded.anchor is not None
    np.testing.assert_array_equal(loaded.anchor.precision.limbs, first.anchor.precision.limbs)
    np.testing.assert_array_equal(loaded.anchor.sd, first.anchor.sd)
    known = by_ladder(coded_model(), rows, tolerance=0.1, seed=1, anchor=first.anchor)
    np.testing.assert_array_equal(known["mean"].flat_value, first["mean"].flat_value)


@pytest.mark.slow
@pytest.mark.usefixtures("arrows")
def test_a_rare_level_keeps_its_trouble_to_itself() -> None:
    """One row and a prior of sd 100: the common levels have their errors, beside a run without that row.

    False alarms: 30 comparisons beyond 5 standard errors, below 1e-4.
    """
    rows = coded_rows(3_000)
    rare = rows["codes"][:, 0] == 7
    kept = ~rare
    kept[np.flatnonzero(rare)[0]] = True
    hard_rows = {name: array[kept] for name, array in rows.items()}
    hard_rows["y"] = np.where(hard_rows["codes"][:, 0] == 7, 1.0, hard_rows["y"])
    hard = by_ladder(coded_model(100.0), hard_rows, tolerance=0.1, seed=1)
    assert hard.status is Status.converged_in_part
    mean = hard["mean"]
    known = np.isfinite(mean.flat_error)
    assert np.flatnonzero(~known).tolist() == [7]
    assert np.all(mean.flat_error[known] <= mean.flat_tolerance[known])
    easy = by_ladder(coded_model(100.0), {name: array[~rare] for name, array in rows.items()}, tolerance=0.1, seed=2)
    there = np.delete(np.arange(WIDTH + 1), 7)
    assert np.all(apart(hard, easy, "mean")[there] < 5)


def test_a_slow_level_is_seen_among_thousands() -> None:
    """It is a thousandth of the distance of all together, which contract; the control is that it is not slow."""
    rng, many = np.random.default_rng(0), 2_000
    began = rng.chisquare(1, size=(64, many))
    apart = np.stack([began * np.exp(-4.0 * time) for time in range(4)], axis=1)
    for slow in ([], [17]):
        apart[:, :, slow] = began[:, None, slow]
        squares = np.concatenate([apart.sum(axis=2), apart.reshape(64, -1)], axis=1)
        assert contraction_of(squares, 1.0).upper < 0.25
        found = hidden_among_many(squares, 1.0, np.exp(-1.5))
        assert (found is None) if not slow else (found is not None and found.slow == (17,))


@pytest.mark.slow
def test_ten_thousand_levels_of_a_linear_model() -> None:
    """Gaussian, so the mean and the sd are one sparse solve: to the tolerance asked for, whatever the seed."""
    levels, count, noise = 10_000, 60_000, 0.7
    rng = np.random.default_rng(0)
    codes, x = rng.integers(0, levels, count), rng.normal(size=count)
    y = 0.4 * x + rng.normal(0, 0.5, levels)[codes] - 0.3 + noise * rng.normal(size=count)
    layout = Indexed(levels + 1, (levels,), ((0, levels),))
    model = with_codes(tb.families.linear(noise_scale=noise, prior_scale=1.0, intercept_scale=10.0), layout)
    rows = {"x": x[:, None], "codes": codes[:, None].astype(np.int32), "y": y}
    result = by_ladder(model, rows, tolerance=0.05)
    assert result.converged
    columns = [sparse.csr_matrix((np.ones(count), (np.arange(count), codes)), (count, levels))]
    design = sparse.hstack([*columns, x[:, None], np.ones((count, 1))]).tocsc()
    prior = np.append(np.ones(levels + 1), 0.01)
    solve = splu((design.T @ design / noise**2 + sparse.diags(prior)).tocsc()).solve
    expected, some = solve(design.T @ y / noise**2), [0, 17, levels - 1, levels, levels + 1]
    sd = np.sqrt([solve(np.eye(1, levels + 2, place)[0])[place] for place in some])
    found, spread = result["mean"].flat_value, result["sd"].flat_value
    np.testing.assert_allclose(spread[some], sd, rtol=0.05)
    assert np.max(np.abs(found - expected) / spread) < 0.05
    assert np.max(np.abs(found - np.roll(expected, 1)) / spread) > 1
