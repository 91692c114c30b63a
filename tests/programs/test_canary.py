"""A jaxlib that gives wrong numbers is refused before it computes an answer, in one line that says what to install."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scenarios import by_ladder, fit_by_ladder

import tallbayes as tb
from tallbayes.posterior import expectations, predictor
from tallbayes.programs import canary

ROWS = {"x": np.ones((20, 1)), "y": np.arange(20) % 2.0}


@pytest.fixture
def fresh() -> Iterator[None]:
    """As a process that has not looked yet; what a fake leaves behind is forgotten."""
    canary._require.cache_clear()
    yield
    canary._require.cache_clear()


def wrong_past_a_threshold(true: Callable[..., Any]) -> Callable[..., Any]:
    """What jaxlib 0.10.2 does: rows up to 16,384 are right, all others are not."""

    def answers(problems: Any) -> Any:
        ways = [[part.copy() for part in way] for way in true(problems)]
        ways[-1][1][2**14 :] *= 1.01
        return ways

    return answers


@pytest.fixture
def faked(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "_answers", wrong_past_a_threshold(canary._answers))


def test_what_is_installed_is_sound(fresh: None) -> None:
    canary.require_sound()


def test_it_looks_once_for_a_process(fresh: None, compilations: list[str]) -> None:
    canary.require_sound()
    before = len(compilations)
    canary.require_sound()
    assert len(compilations) == before
    assert canary._require.cache_info().misses == 1


def test_it_leaves_jax_as_it_is(fresh: None) -> None:
    before = jax.config.jax_enable_x64
    canary.require_sound()
    assert jax.config.jax_enable_x64 == before


def test_a_wrong_sum_is_refused_in_one_line_and_every_time(faked: None) -> None:
    for _ in range(2):
        with pytest.raises(tb.DependencyError) as refusal:
            by_ladder(tb.families.logistic(), ROWS, tolerance=0.1)
    text = str(refusal.value)
    assert f"jaxlib {version('jaxlib')}" in text
    assert f"pip install jax=={canary.SOUND} jaxlib=={canary.SOUND}" in text
    assert "\n" not in text


def test_a_number_that_is_none_is_refused_too(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "_largest", lambda found, exact: float("nan"))
    with pytest.raises(tb.DependencyError):
        canary.require_sound()


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return by_ladder(tb.families.logistic(), ROWS, tolerance=0.3)


@pytest.mark.parametrize(
    "use",
    [
        lambda result: result.predict(np.ones((2, 1))),
        lambda result: result.posterior.expectation(lambda theta: theta[0] ** 2),
        lambda result: result.posterior.draws(4),
        lambda result: tb.baselines.mala(tb.families.logistic(), ROWS, steps=100, burn_in=10),
        lambda result: fit_by_ladder("y ~ 1", {"y": ROWS["y"]}, tolerance=0.3),
    ],
    ids=["predict", "expectation", "draws", "baseline", "fit"],
)
def test_whatever_computes_asks_the_canary_first(result: tb.Result, faked: None, use: Callable[[Any], Any]) -> None:
    with pytest.raises(tb.DependencyError):
        use(result)


def test_what_is_recommended_is_what_is_pinned() -> None:
    """The version that a refusal names is the one that the project pins and tests."""
    pinned = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()
    assert f"jaxlib=={canary.SOUND}" in pinned
    assert expectations.require_sound is predictor.require_sound is canary.require_sound
