"""Log posterior weights of draws by some of the rows beside the expansion of all."""

from __future__ import annotations

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.leave_one_out import weighing
from tallbayes.leave_one_out.rows import choose
from tallbayes.results.fitted import fitted_of


def test_some_rows_weigh_as_all_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a part of what is beyond the second order, which the two halves of the sample foretell."""
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.normal(size=8_000), np.ones(8_000)])
    y = (rng.random(8_000) < 1 / (1 + np.exp(-x @ [1.0, -2.0]))).astype(float)
    x[17, 0], y[17] = 60.0, 1.0
    monkeypatch.setattr(weighing, "SAMPLE_ROWS", 4_096)
    result = tb.estimate(tb.families.logistic(), {"x": x, "y": y}, tolerance=0.5, method=tb.Anchored())
    fitted, anchor = fitted_of(result), result.anchor
    assert anchor is not None
    moves = anchor.draws(64)
    places = np.flatnonzero(np.asarray(fitted.table.rows["x"])[:8_000, 0] > 3)
    heavy = choose(fitted.table, places, np.ones(len(places)))
    exact = weighing.AllRows(fitted.target, fitted.table, anchor).log_posteriors(moves)[0]
    some = weighing.SomeRows(fitted.target, fitted.table, anchor, heavy).log_posteriors(moves)
    flat = -0.5 * np.sum((moves @ np.linalg.inv(anchor.whitening).T) ** 2, axis=1)
    beyond = np.std(exact - flat)
    off = np.std(exact - some[0])
    none = choose(fitted.table, places[:0], np.ones(0))
    without = weighing.SomeRows(fitted.target, fitted.table, anchor, none).log_posteriors(moves)
    assert off < 0.3 * beyond
    assert off < 4 * np.std(some[1] - some[2])
    # Control: without it the row far out is missed, or counted for more than itself.
    assert np.std(exact - without[0]) > 1.5 * off
