"""A posterior of few counts without overdispersion, which falls slowly to the right: answers are those of a grid."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

import tallbayes as tb
from tallbayes.estimation import small
from tallbayes.model.families import FAMILIES
from tallbayes.moments import Floats
from tallbayes.weighing.proposal import Proposal
from tallbayes.weighing.rounds import Weighing, weigh_up

SEEDS = range(20)


def rows() -> dict[str, Floats]:
    """Means from 4 to 200, of which a few rows speak for nearly all of the overdispersion."""
    rng = np.random.default_rng(5)
    x = np.linspace(1.4, 5.3, 24)
    return {"x": x[:, None], "y": rng.poisson(np.exp(x)).astype(float)}


@cache
def exact() -> Floats:
    """Means and sds of the slope and of the overdispersion, the latter's grid even in its logarithm."""
    table = rows()
    slope, log_excess = np.meshgrid(np.linspace(0.9, 1.1, 161), np.linspace(-18.0, 0.0, 361), indexing="ij")
    r = np.exp(-log_excess)
    total = -0.5 * (slope**2 + np.exp(2 * log_excess)) + log_excess
    for x, y in zip(table["x"][:, 0], table["y"], strict=True):
        total += stats.nbinom.logpmf(y, r, 1 / (1 + np.exp(slope * x + log_excess)))
    weight = np.exp(total - total.max())
    weight /= weight.sum()
    assert weight[[0, -1]].sum() + weight[:, -1].sum() < 1e-6
    values = np.stack([slope, np.exp(log_excess)])
    mean = np.sum(weight * values, axis=(1, 2))
    sd = np.sqrt(np.sum(weight * (values - mean[:, None, None]) ** 2, axis=(1, 2)))
    return np.concatenate([mean, sd])


def answer(seed: int) -> tb.Result:
    return tb.estimate(FAMILIES["negative_binomial"](), rows(), tolerance=0.04, seed=seed)


def departures() -> Floats:
    """In stated errors, (seeds, numbers)."""
    found = []
    for seed in SEEDS:
        result = answer(seed)
        assert result.converged, result.notes
        value, error = (
            np.concatenate([getattr(result[each], what) for each in ("mean", "sd")])
            for what in ("flat_value", "flat_error")
        )
        found.append((value - exact()) / error)
    return np.array(found)


def test_errors_cover_what_a_grid_says() -> None:
    """The mean square of 20 x 4 departures is about 1 and no more than 2.2: a false alarm in 1e-6 where numbers are
    as good as 60 independent ones, and errors are no larger than stated. The control is half of every error."""
    squares = departures() ** 2
    assert squares.mean() < 2.2
    assert np.mean(squares < 1.96**2) > 0.85
    assert 4 * squares.mean() > 2.2


class MadeError(Exception):
    """A run of draws, before its first."""

    def __init__(self, weighing: Weighing) -> None:
        self.weighing = weighing


def test_weights_behave_because_it_bends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: about a Gaussian that does not the same rows have weights with a heavy tail."""

    def made(asked: Any, method: Any, model: Any, weighing: Weighing, started: float) -> Any:
        raise MadeError(weighing)

    monkeypatch.setattr(small, "_finished", made)
    with pytest.raises(MadeError) as found:
        answer(0)
    bent = found.value.weighing
    assert bent.proposal.words.endswith("bends with the overdispersion")
    assert not weigh_up(bent).trouble
    straight = Proposal.about(bent.proposal.dimension, 0)
    source: Any = bent.source
    plain = weigh_up(replace(bent, source=replace(source, proposal=straight), proposal=straight))
    assert "heavy" in plain.trouble
