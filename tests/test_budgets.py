"""Budgets: a run that has to end at any look at the clock still ends in a result, which everything can read.

The clock is a counter here: the time is over at the k-th look, for every k that a run has. Real seconds are measured by
benchmarks/budgets.py.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro_models import logistic as numpyro_logistic
from scenarios import logistic_by_hand, logistic_rows, paper_rows

import tallbayes as tb
from tallbayes.document import to_json
from tallbayes.watch import OutOfTime, Watch, aside, begin, current, look, passed, wait, watching

FAR = 1e6


class Looks:
    """A clock that says so at the k-th look of a watch with the budget `FAR`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted, self.last = 0, np.inf
        real = Watch.passed.fget  # type: ignore[attr-defined]
        looks = self

        def counting(watch: Watch) -> bool:
            if watch.end - watch.started < FAR / 2 or watch.end == np.inf:
                return bool(real(watch))
            looks.counted += 1
            return watch.stopped or looks.counted >= looks.last

        monkeypatch.setattr(Watch, "passed", property(counting))

    def at(self, last: float) -> Looks:
        self.counted, self.last = 0, last
        return self


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


ROWS = paper_rows(300)
MODEL = logistic_by_hand(3)


def anchored(**options: Any) -> tb.Result:
    return tb.estimate(tb.families.logistic(), ROWS, tolerance=0.2, **options)


def own(**options: Any) -> tb.Result:
    quantities = {"size": lambda theta: jnp.sum(theta**2), "positive": lambda theta: theta[0] > 0.7}
    return tb.estimate(MODEL, ROWS, quantities, tolerance=0.3, interval_tolerance=None, **options)


def ends(**options: Any) -> tb.Result:
    return tb.estimate(tb.families.logistic(), ROWS, tolerance=0.3, interval_tolerance=0.1, **options)


def papers(**options: Any) -> tb.Result:
    return tb.estimate(tb.families.logistic(), ROWS, tolerance=0.3, method=tb.Multilevel(), **options)


def randomised(**options: Any) -> tb.Result:
    return tb.estimate(tb.families.logistic(), ROWS, tolerance=0.3, method=tb.Randomised(), **options)


def formula(**options: Any) -> tb.Result:
    columns = {"y": ROWS["y"], "a": ROWS["x"][:, 0], "b": ROWS["x"][:, 1]}
    return tb.fit("y ~ a + b", columns, tolerance=0.3, **options)


RUNS = {run.__name__: run for run in (anchored, own, ends, papers, randomised, formula)}


def read_everything(result: tb.Result, path: Path) -> None:
    """Whatever is asked of a result has an answer, or an error in words."""
    assert str(result.status) in str(result)
    assert result.summary()
    assert result._repr_html_()
    assert to_json(result, {})
    result.coefficients()
    result.report(path / "report.html")
    result.save(path / "result.npz")
    loaded = tb.load(path / "result.npz")
    assert str(loaded) == str(result)
    for name in result:
        estimate = result[name]
        assert not np.any(np.isnan(estimate.flat_standard_error))
        assert estimate.interval is not None


@pytest.mark.parametrize("name", RUNS)
def test_the_time_may_be_over_at_any_look(name: str, looks: Looks, tmp_path: Path) -> None:
    run = RUNS[name]
    whole = run(max_seconds=FAR)
    assert whole.converged
    number, statuses, seen = looks.at(np.inf).counted, set(), set()
    run(max_seconds=FAR)
    number = looks.counted
    assert number > 20
    print(name, number)
    for last in range(1, number):
        result = looks.at(last) and run(max_seconds=FAR)
        statuses.add(result.status)
        kind = len(result.levels), result.anchor is None, result.tuning is None
        if kind not in seen:
            seen.add(kind)
            read_everything(result, tmp_path)
            again = looks.at(np.inf) and result.extend(max_seconds=FAR)
            assert again.converged
            if not result.levels:
                np.testing.assert_array_equal(
                    again["mean"].flat_value if "mean" in again else 0,
                    whole["mean"].flat_value if "mean" in whole else 0,
                )
    assert tb.Status.max_seconds in statuses
    assert statuses <= {tb.Status.max_seconds, tb.Status.converged}
    assert (0, True, True) in seen
    assert (0, False, True) in seen
    assert max(levels for levels, _, _ in seen) >= 2
