"""Leave-one-out of a table with a row that alone decides much: rows, order, errors, refusals.

Errors are held against the stated ones: 5 of them are passed by chance once in 2 million numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.gaussian.whitening import DenseWhitening
from tallbayes.leave_one_out import certificate
from tallbayes.leave_one_out.cavity import NARROW, answers
from tallbayes.leave_one_out.certificate import known
from tallbayes.leave_one_out.rows import taken
from tallbayes.results.fitted import fitted_of

Outlier = tuple[dict[str, np.ndarray], np.ndarray, tb.Result]
TIMES = 5.0


def is_exact(found: Any, exact: np.ndarray) -> bool:
    return bool(abs(found.elpd - exact.sum()) < TIMES * found.standard_error + found.bias_bound)


def test_a_row_that_decides_much_is_named_and_right(outlier: Outlier) -> None:
    _, exact, result = outlier
    found = result.loo(pointwise=True)
    assert found.certified
    assert is_exact(found, exact)
    assert found.pointwise is not None
    assert np.abs(found.pointwise - exact).max() < 0.05
    assert found.rows[0].row == 7
    assert found.rows[0].elpd == pytest.approx(exact[7], abs=0.05)
    assert found.rows[0].leverage == max(each.leverage for each in found.rows)
    assert found.pointwise.sum() == pytest.approx(found.elpd)
    assert found.interval[0] < found.elpd < found.interval[1]
    assert found.looic == -2 * found.elpd
    assert 0.5 < found.p_loo < 6


def test_control_a_dropped_term_is_seen(outlier: Outlier, monkeypatch: pytest.MonkeyPatch) -> None:
    """The integral over the Gaussian with the row in place of the one without it."""
    _, exact, result = outlier
    whole = certificate.known

    def dropped(*arguments: Any) -> Any:
        found = whole(*arguments)
        return found._replace(cavity=found.fitted)

    monkeypatch.setattr("tallbayes.leave_one_out.answer.known", dropped)
    assert not is_exact(result.loo(), exact)


def test_control_another_response_is_seen(outlier: Outlier) -> None:
    rows, exact, result = outlier
    found = result.loo(pointwise=True)
    assert found.pointwise is not None
    rng = np.random.default_rng(0)
    assert not np.allclose(found.pointwise, exact[rng.permutation(60)], atol=0.1)
    assert rows["y"][7] == 0


def test_one_pass_is_near(outlier: Outlier) -> None:
    """To a fifth of the sampling error even here, where one row decides."""
    _, exact, result = outlier
    fitted, anchor = fitted_of(result), result.anchor
    assert anchor is not None
    parts = [found for _, found in answers(fitted.target, fitted.table, anchor.mode, anchor.whitener)]
    assert abs(sum(each.elpd.sum() for each in parts) - exact.sum()) < 0.2 * np.sqrt(60 * np.var(exact))
    leverage = np.concatenate([each.leverage for each in parts])
    assert 0.5 < leverage.sum() < 2


@pytest.mark.parametrize("width", [0.004, 0.03])
def test_few_nodes_will_do_where_predictors_hardly_move(outlier: Outlier, width: float) -> None:
    """Of a Gaussian so much narrower, whose cavity many nodes know: to the square of how far predictors move."""
    _, _, result = outlier
    fitted, anchor = fitted_of(result), result.anchor
    assert anchor is not None
    narrow = DenseWhitening(anchor.precision / width**2, anchor.whitening * width)
    found = next(answers(fitted.target, fitted.table, anchor.mode, narrow))[1]
    exact = known(fitted.target, taken(fitted.table.rows, slice(60)), anchor.mode, narrow)
    spread = np.max(np.sum((np.asarray(fitted.table.rows["x"])[:60] @ narrow.root) ** 2, axis=1))
    assert (spread > NARROW[0]) == (width > 0.01)
    assert np.abs(found.elpd - exact.cavity).max() < 0.2 * spread**2


def test_errors_fall_and_seeds_agree(outlier: Outlier) -> None:
    _, exact, result = outlier
    found = [result.loo(seed=seed, tolerance=0.03) for seed in range(8)]
    errors = np.array([each.elpd - exact.sum() for each in found])
    stated = np.array([each.standard_error for each in found])
    # A chi-square of 8 terms above 40 comes once in 300,000 runs.
    assert np.sum((errors / stated) ** 2) < 40
    finer = result.loo(tolerance=0.004)
    assert finer.draws > found[0].draws
    assert finer.standard_error < found[0].standard_error


def test_every_row_is_written_in_the_order_of_the_source(outlier: Outlier, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    _, _, result = outlier
    found = result.loo(pointwise=True, out=tmp_path / "rows.parquet")
    frame = pandas.read_parquet(tmp_path / "rows.parquet")
    assert frame["row"].tolist() == list(range(60))
    assert np.array_equal(frame["elpd"], found.pointwise)
    with pytest.raises(tb.InputError, match="which exists"):
        result.loo(out=tmp_path / "rows.parquet")
    with pytest.raises(tb.InputError, match="a path ending in"):
        result.loo(out=tmp_path / "rows.txt")


def test_it_is_shown(outlier: Outlier) -> None:
    found = outlier[2].loo()
    assert found.pointwise is None
    assert "elpd" in repr(found)
    for words in ("sampling error", "p_loo", "looic", "leverage", "certified"):
        assert words in str(found)
        assert words in found._repr_html_()
    assert len(found.to_pandas()) == 10


def test_a_model_of_ones_own_is_left_out_by_draws_alone(outlier: Outlier) -> None:
    rows, exact, _ = outlier

    def log_likelihood(theta: Any, row: Any) -> Any:
        return -jnp.logaddexp(0, -(2 * row["y"] - 1) * (row["x"] @ theta))

    model = tb.Model(lambda theta: -0.5 * jnp.sum(theta**2), log_likelihood, np.zeros(2))
    found = tb.estimate(model, rows, tolerance=0.1).loo(tolerance=0.05)
    assert is_exact(found, exact)


def test_rows_with_weights_are_refused(outlier: Outlier) -> None:
    rows, _, _ = outlier
    result = tb.estimate(tb.families.logistic(), rows, weights=np.full(60, 2.0), tolerance=0.5)
    with pytest.raises(tb.InputError, match="count once each"):
        result.loo()
    with pytest.raises(tb.InputError, match="tolerance > 0"):
        result.loo(tolerance=0.0)
