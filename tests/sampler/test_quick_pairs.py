"""Which blocks of pairs run by a program that was compiled quickly hangs on their work alone; and it only rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor.sums import Curvature
from tallbayes.methods.anchored import Anchored
from tallbayes.sampler import levels
from tallbayes.sampler.levels import FEW_STEPS, Problem, problem_nowhere
from tallbayes.setup.preparation import bind_rows, check_data, place
from tallbayes.setup.quantities import read_quantities

SMALL, BATCH = 300, 4


@pytest.fixture(scope="module")
def problem() -> Problem:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SMALL, 2))
    model = tb.families.logistic()
    arrays = check_data(model, {"x": x, "y": (rng.random(SMALL) < 0.5).astype(float)})
    target, start = bind_rows(model, arrays)
    placed = place(model, arrays, "float32", True, None)
    observables = read_quantities(["mean"], target, start)[1]
    plan = Anchored().plan(target, observables, "float32", SMALL, False)
    nowhere = problem_nowhere(plan, placed.table, Curvature.DENSE)
    return replace(nowhere.with_choice(tb.Ladder(0.5), BATCH), seed=3)


def test_pairs_are_quick_while_they_are_light(problem: Problem) -> None:
    assert levels._is_light(problem, 3)
    assert not levels._is_light(problem, 10_000)
    assert not levels._is_light(problem.with_choice(problem.ladder, 4096), 3)
    # What is compiled ahead has no steps at all.
    assert levels._is_light(problem, 0) == levels._is_light(problem, FEW_STEPS)


def test_what_is_compiled_ahead_is_what_is_run_first(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, bool]] = []

    def compiled(function: Any, quickly: bool = False) -> Any:
        asked.append((function, quickly))
        return levels_compiled(function, quickly)

    levels_compiled = levels.compiled
    monkeypatch.setattr(levels, "compiled", compiled)
    for task in levels.compile_ahead(problem.plan, problem.ground.table, Curvature.DENSE):
        task()
    ahead = set(asked)
    problem.sample(0, 0), problem.sample(1, 0), problem.contract(0)
    assert set(asked) == ahead
    assert {quickly for function, quickly in ahead if function is levels._contraction_block} == {True}


def test_a_quick_program_only_rounds(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 has 24 bits: a path of tens of steps keeps twelve of them."""
    quickly = problem.contract(0)
    monkeypatch.setattr(levels, "_is_light", lambda *_: False)
    slowly = problem.contract(0)
    scale = np.abs(slowly).max()
    np.testing.assert_allclose(quickly, slowly, atol=scale * 2**-12)
    # The control: another block is another sample.
    assert np.abs(problem.contract(1) - slowly).max() > scale * 2**-4
