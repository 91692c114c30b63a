"""A run that costs more than its pilots foresaw is looked at again; one that does not settle is given up as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scenarios import by_ladder, logistic_rows

import tallbayes as tb
from tallbayes.estimator.estimates import Status
from tallbayes.methods import attempts as anchored
from tallbayes.sampler.levels import Problem

MODEL = tb.families.logistic()
ROWS = logistic_rows(300, (0.5, -0.5, 0.2))
# About the mode, where pilots can err; about the balance there is next to nothing left to find.
GOAL: dict[str, Any] = {"tolerance": 0.03, "seed": 5}
OPTIONS = GOAL | {"method": tb.Anchored(anchor="mode")}
BALANCED = tb.Anchored(anchor="balanced")


@pytest.fixture(scope="module")
def untouched() -> tb.Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anchored, "PATIENCE", np.inf)
        return by_ladder(MODEL, ROWS, **OPTIONS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every run is reconsidered; the decisions."""
    made: list[Any] = []
    reconsider = anchored._reconsider

    def watch(*arguments: Any) -> Any:
        made.append(reconsider(*arguments))
        return made[-1]

    monkeypatch.setattr(anchored, "PATIENCE", 0.0)
    monkeypatch.setattr(anchored, "REPAYS", 0.0)
    monkeypatch.setattr(anchored, "_reconsider", watch)
    return made


def same_numbers(one: tb.Result, other: tb.Result) -> bool:
    return all(np.array_equal(one[name].flat_value, other[name].flat_value) for name in one.estimates)


def test_a_run_that_stays_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, impatient: list[Any], untouched: tb.Result
) -> None:
    """The same bits as without a second look, which is paid for."""
    monkeypatch.setattr(anchored, "BETTER", 0.0)
    found = by_ladder(MODEL, ROWS, **OPTIONS)
    (decision,) = impatient
    assert decision.kept
    assert decision.evaluations > 0
    assert same_numbers(found, untouched)
    assert found.cost.evaluations == untouched.cost.evaluations + decision.evaluations


def test_a_better_pair_starts_anew(monkeypatch: pytest.MonkeyPatch, impatient: list[Any], untouched: tb.Result) -> None:
    """Control for the bits above; and what the first attempt took is in the bill."""
    monkeypatch.setattr(anchored, "BETTER", np.inf)
    found = by_ladder(MODEL, ROWS, **OPTIONS)
    (decision,) = impatient
    assert not decision.kept
    assert found.converged
    assert "cost more than its pilots foresaw" in found.tuning.reason
    assert found.cost.evaluations > decision.evaluations + sum(level.evaluations for level in found.levels)


@pytest.mark.parametrize("worth", [0.0, np.inf])
def test_another_program_is_compiled_only_where_that_is_worth_it(
    monkeypatch: pytest.MonkeyPatch, impatient: list[Any], worth: float
) -> None:
    asked: list[Any] = []
    alternative = Problem.alternative

    def watch(problem: Problem) -> Any:
        asked.append(alternative(problem))
        return asked[-1]

    monkeypatch.setattr(anchored, "WORTH_COMPILING", worth)
    monkeypatch.setattr(Problem, "alternative", watch)
    assert by_ladder(MODEL, ROWS, **OPTIONS).converged
    assert len(asked) == (1 if worth == 0.0 else 0)


def test_a_ladder_that_does_not_settle_is_given_up_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, untouched: tb.Result
) -> None:
    """All its paths are paid for and none of them is in the answer."""
    runs: list[Any] = []
    patiently = anchored.run_patiently

    def unsettled_at_first(run: Any, patience: float) -> Any:
        runs.append(run)
        status, final = patiently(run, np.inf)
        return (Status.slow_decay if len(runs) == 1 else status), final

    monkeypatch.setattr(anchored, "run_patiently", unsettled_at_first)
    found = by_ladder(MODEL, ROWS, **OPTIONS)
    first, second = runs
    assert found.converged
    assert second.problem.ladder.first_step < first.problem.ladder.first_step
    assert second.problem.batch_size > first.problem.batch_size
    assert [level.samples for level in found.levels] == [level.samples for level in second.levels]
    assert not same_numbers(found, untouched)
    in_the_answer = sum(level.evaluations for level in found.levels)
    given_up = sum(level.samples * first.problem.evaluations(l) for l, level in enumerate(first.levels))
    assert found.cost.evaluations >= in_the_answer + given_up


def test_a_control_that_does_not_pay_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The numbers are those of a run that was asked to have none; a ledger remembers it."""
    monkeypatch.setattr(anchored, "PAYS", 0.0)
    found = tb.estimate(MODEL, ROWS, ledger=tmp_path / "ledger", method=BALANCED, **GOAL)
    plain = tb.estimate(MODEL, ROWS, method=tb.Anchored(anchor="balanced", control=False), **GOAL)
    assert "without a control, which did not pay" in found.tuning.reason
    assert found.tuning.chosen.left == 1.0
    assert found.anchor.knows_averages
    assert same_numbers(found, plain)
    assert found.cost.evaluations > plain.cost.evaluations
    monkeypatch.undo()
    assert same_numbers(tb.estimate(MODEL, ROWS, ledger=tmp_path / "ledger", method=BALANCED, **GOAL), found)
    controlled = tb.estimate(MODEL, ROWS, method=BALANCED, **GOAL)
    assert controlled.tuning.chosen.left < 0.5
    assert not same_numbers(controlled, found)


def test_a_control_needs_an_anchor_that_knows_its_averages() -> None:
    with pytest.raises(tb.InputError, match="anchor='balanced'"):
        tb.estimate(MODEL, ROWS, method=tb.Anchored(anchor="mode", control=True), **GOAL)
    with pytest.raises(tb.InputError, match="control True or False"):
        tb.Anchored(control="yes")
