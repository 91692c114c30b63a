"""Rare levels: an answer with the default prior, and a hard one that fails alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from written_out import written_out

import tallbayes as tb
from tallbayes.estimator.estimates import Status
from tallbayes.formula.design import build_design

NUM_ROWS = 4000


def rows() -> dict[str, Any]:
    """A category of six common levels and one of a single row, whose outcome is 1."""
    rng = np.random.default_rng(0)
    group = np.array([f"g{level}" for level in rng.integers(0, 6, NUM_ROWS)], object)
    group[0] = "rare"
    x = rng.normal(size=NUM_ROWS)
    y = (rng.random(NUM_ROWS) < 1 / (1 + np.exp(1 - 0.5 * x))).astype(int)
    y[0] = 1
    return {"y": y, "x": x, "group": group, "flag": (np.arange(NUM_ROWS) == 0).astype(float)}


def without_the_rare_row() -> dict[str, Any]:
    return {name: values[1:] for name, values in rows().items()}


@pytest.mark.parametrize("formula", ["y ~ x + group", "y ~ x + flag"])
def test_a_level_of_one_row_has_an_answer_under_the_default_prior(formula: str) -> None:
    """Its prior is N(0, 1) in log-odds; one outcome of 1 moves it up by some tenths."""
    result = tb.fit(formula, rows(), tolerance=0.1)
    assert result.converged
    name = "group[T.rare]" if "group" in formula else "flag"
    assert 0.2 < result["mean"].value[name] < 1.2
    assert 0.8 < result["sd"].value[name] < 1.0
    assert "levels of categories as they are" in result.notes[0]


def test_a_hard_level_fails_alone() -> None:
    """With a prior of sd 100 the level of one row is flat over a hundred log-odds, and the others do not know of it.

    False alarms: 14 comparisons beyond 4.5 standard errors, below 1e-4.
    """
    hard = tb.fit("y ~ x + group", rows(), prior_scale=100.0, tolerance=0.05, seed=1)
    easy = tb.fit("y ~ x + group", without_the_rare_row(), prior_scale=100.0, tolerance=0.05, seed=2)
    assert hard.status is Status.converged_in_part
    assert easy.converged
    for quantity in ("mean", "sd"):
        known = np.isfinite(hard[quantity].flat_error)
        labels = np.array(list(hard[quantity].value))
        assert labels[~known].tolist() == ["group[T.rare]"]
        assert np.all((hard[quantity].flat_error <= hard[quantity].flat_tolerance)[known])
        apart = np.abs(hard[quantity].flat_value[known] - easy[quantity].flat_value)
        bias = hard[quantity].flat_bias_bound[known] + easy[quantity].flat_bias_bound
        error = np.hypot(hard[quantity].flat_standard_error[known], easy[quantity].flat_standard_error)
        assert np.all(apart - bias < 4.5 * error)
        # The control: a tenth of an sd would be seen.
        shift = 0.1 * easy["sd"].flat_value
        assert np.any(apart + shift - bias > 4.5 * error)
    assert any("hard: paths do not settle along mean.group[T.rare]" in note for note in hard.notes)
    assert "converged in part" in hard.summary().splitlines()[0]
    lower, upper = hard.posterior.interval()
    finite = np.isfinite(lower.flat_error) & np.isfinite(upper.flat_error)
    assert not finite[labels.tolist().index("group[T.rare]")]
    assert finite[labels.tolist().index("x")]


def test_codes_and_columns_give_the_same_posterior() -> None:
    """The same prior and rows by another way: a family on columns that are written out.

    False alarms: 16 comparisons beyond 4.5 standard errors, about 1e-4.
    """
    design = build_design("y ~ x + group", rows(), standardise=False)
    assert design.rows["codes"].shape == (NUM_ROWS, 1)
    coded = tb.fit("y ~ x + group", rows(), standardise=False, intercept_scale=10.0, tolerance=0.05, seed=3)
    model = tb.families.logistic(prior_scale=1.0, intercept_scale=10.0)
    whole = tb.estimate(model, {"x": written_out(design), "y": design.rows["y"]}, tolerance=0.05, seed=4)
    for quantity in ("mean", "sd"):
        one, other = coded[quantity], whole[quantity]
        # A family has its intercept last.
        order = [len(design.names), *range(len(design.names))]
        apart = np.abs(one.flat_value - other.flat_value[order])
        bias = one.flat_bias_bound + other.flat_bias_bound[order]
        assert np.all(apart - bias < 4.5 * np.hypot(one.flat_standard_error, other.flat_standard_error[order]))
