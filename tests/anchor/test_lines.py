"""Lines beside the diagonal: found for a model of one's own of 6,000 parameters, and worth it, by closed forms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor import mode
from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.mode import find_anchor
from tallbayes.gaussian.low_rank import LowRank
from tallbayes.model.model import Target, bind
from tallbayes.rows.table import Table, check_rows, make_table
from tallbayes.setup.preparation import Prepared
from tallbayes.setup.quantities import make_estimands

SIZE, LINES, ROWS = 6_000, 3, 64


def spreads() -> tuple[np.ndarray, np.ndarray]:
    """A diagonal, and lines of all parameters beside it: 20, 60 and 180 times as stiff."""
    rng = np.random.default_rng(0)
    diagonal = rng.uniform(1.0, 2.0, SIZE)
    lines = np.linalg.qr(rng.normal(size=(SIZE, LINES)))[0] * np.sqrt([20.0, 60.0, 180.0])
    return diagonal, np.sqrt(diagonal)[:, None] * lines


def stiff(lines: np.ndarray) -> tb.Model:
    """Theta near 0 by itself and much nearer along the lines, and rows that each see one parameter."""
    diagonal = spreads()[0].astype(np.float32)
    pulls = lines.astype(np.float32)

    def log_prior(theta: Any) -> Any:
        return -0.5 * jnp.sum(diagonal * theta**2) - 0.5 * jnp.sum((theta @ pulls) ** 2)

    def log_likelihood(theta: Any, row: Any) -> Any:
        return -0.5 * (row["y"] - theta[row["k"]]) ** 2

    return tb.Model(log_prior, log_likelihood, np.zeros(SIZE), log_concave=True)


def placed(model: tb.Model) -> tuple[Target, Table, Any]:
    # The diagonal of a model of one's own is that of squared slopes: so far from the mode they are the Hessian's.
    rng, own = np.random.default_rng(1), spreads()[0]
    k = rng.choice(SIZE, ROWS, replace=False)
    data = check_rows({"k": k, "y": rng.choice([-1.0, 1.0], ROWS) * (own[k] + 1) / own[k]})
    target, start = bind(model, jax.tree.map(lambda array: array[0], data))
    return target, make_table(data, "float64", shuffle=True), start


def variance_at_once(target: Target, table: Table, anchor: Anchor) -> float:
    """Of level 0, all parameters together, in posterior variances: the remainder is no more than what W misses."""
    prepared = Prepared(target, table, anchor, 0, "float32", None)
    problem = tb.Anchored(batch_size=ROWS).problem(prepared, make_estimands(["mean"], target, anchor), seed=0)
    block = problem.with_choice(tb.Ladder(0.5, 4, 4), ROWS).sample(0, 0)
    return float(np.sum(block.delta.variance[:SIZE]))


def test_lines_are_found_and_paths_about_them_have_less_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    diagonal, lines = spreads()
    target, table, start = placed(stiff(lines))
    anchor = find_anchor(target, table, start)
    assert isinstance(anchor.precision, LowRank)
    assert "3 lines beside it" in anchor.note
    # By Woodbury, rows being the last part of the diagonal.
    rows = {name: np.asarray(array)[: table.num_rows] for name, array in table.rows.items()}
    own = diagonal + np.bincount(rows["k"], minlength=SIZE)
    inner = np.linalg.inv(np.eye(LINES) + lines.T @ (lines / own[:, None]))
    pulled = np.bincount(rows["k"], rows["y"], SIZE) / own
    mean = pulled - (lines / own[:, None]) @ (inner @ (lines.T @ pulled))
    variance = 1 / own - np.sum((lines / own[:, None] @ inner) * (lines / own[:, None]), axis=1)
    assert np.abs((anchor.mode - mean) / np.sqrt(variance)).max() < 1e-3
    # But for the 64 that rows see, whose squared slopes were those of a point nearby.
    assert np.quantile(np.abs(np.log(anchor.sd / np.sqrt(variance))), 0.98) < 0.1
    monkeypatch.setattr(mode, "find_lines_anchor", lambda *where: None)
    plain = find_anchor(target, table, start)
    assert plain.is_diagonal
    assert variance_at_once(target, table, anchor) < variance_at_once(target, table, plain) / 50


def test_where_the_diagonal_is_all_there_is_it_stays() -> None:
    anchor = find_anchor(*placed(stiff(0 * spreads()[1])))
    assert anchor.is_diagonal
