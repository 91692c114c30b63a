"""Draws with weights of a model of one's own: on executors, in a ledger, handed over where tails have no end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scenarios import by_ladder, logistic_by_hand, logistic_rows

import tallbayes as tb

ROWS = logistic_rows(120, (0.8, -0.2))
MODEL = logistic_by_hand(2)


def answer(**options: Any) -> tb.Result:
    return tb.estimate(MODEL, ROWS, **{"tolerance": 0.05, "seed": 1, **options})


def values(result: tb.Result) -> np.ndarray:
    return np.concatenate([each.flat_value for each in result.estimates.values()])


def test_the_numbers_are_those_of_the_ladder() -> None:
    """4 numbers within 5 standard errors each: one in 400,000 by chance."""
    weighed, ladder = answer(), by_ladder(MODEL, ROWS, tolerance=0.05)
    assert weighed.weighing is not None
    for kind in ("mean", "sd"):
        apart = np.abs(weighed[kind].flat_value - ladder[kind].flat_value)
        assert np.all(apart < 5 * np.hypot(weighed[kind].flat_error, ladder[kind].flat_error))


def test_an_executor_changes_no_bit() -> None:
    with ThreadPoolExecutor(3) as executor:
        np.testing.assert_array_equal(values(answer(executor=executor)), values(answer()))


def test_a_ledger_answers_again_and_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    ledger = tmp_path / "ledger.sqlite"
    first = answer(ledger=ledger)
    np.testing.assert_array_equal(values(first), values(answer()))
    from tallbayes.estimation import weighed_rows

    asked: list[int] = []
    look = weighed_rows.DrawGround.look

    def counted(self: Any, z: np.ndarray) -> Any:
        asked.append(len(z))
        return look(self, z)

    monkeypatch.setattr(weighed_rows.DrawGround, "look", counted)
    np.testing.assert_array_equal(values(first), values(answer(ledger=ledger)))
    assert not asked
    tighter = answer(ledger=ledger, tolerance=0.004)
    assert first.weighing is not None
    assert tighter.weighing is not None
    assert sum(asked) == tighter.weighing.draws - first.weighing.draws > 0


def test_functions_are_weighed_too() -> None:
    quantities = {"mean": "mean", "product": lambda theta: theta[0] * theta[1]}
    weighed = tb.estimate(tb.families.logistic(), ROWS, quantities, tolerance=0.05)
    ladder = by_ladder(tb.families.logistic(), ROWS, quantities, tolerance=0.05)
    assert weighed.weighing is not None
    one, two = weighed["product"], ladder["product"]
    assert abs(one.value - two.value) < 5 * np.hypot(one.flat_error, two.flat_error)[0]


def test_replicates_have_no_bias_to_state() -> None:
    for options in ({}, {"executor": None}):
        result = answer(method=tb.Weighted(unbiased=True), **options)
        assert result.unbiased
        assert np.all(result["mean"].flat_bias_bound == 0)
    plain = tb.estimate(tb.families.logistic(), ROWS, tolerance=0.05, method=tb.Weighted(unbiased=True))
    for kind in ("mean", "sd"):
        apart = np.abs(plain[kind].flat_value - result[kind].flat_value)
        assert np.all(apart < 5 * np.hypot(plain[kind].flat_error, result[kind].flat_error))


def test_tails_without_an_end_are_handed_over() -> None:
    """A Cauchy prior that hardly a row says anything about."""
    model = tb.Model(lambda theta: -jnp.log1p(theta**2), lambda theta, row: -0.5 * ((row - theta) / 10) ** 2, 0.0)
    result = tb.estimate(model, np.array([2.0, 3.0, 5.0]), tolerance=0.2, max_seconds=6.0)
    assert result.weighing is None
    assert not result.converged
