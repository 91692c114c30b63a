"""Advice: what to do next, in the words of the door that a run came through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from reports import made, outlined, regression

from tallbayes.estimator.estimates import Status
from tallbayes.views.advice import BUDGETS, RUN, TYPED, Door, next_step, unquoted

COMMAND = {"command": "fit", "formula": "y ~ x"}


def live(result: Any) -> Any:
    return replace(result, continuation=lambda **changes: None)


@pytest.mark.parametrize(
    ("door", "further"),
    [
        (Door(is_command=True, run="run1"), "`tallbayes resume run1 --interval-tolerance 0.1`"),
        (Door(is_command=True, run="my run"), "`tallbayes resume 'my run' --interval-tolerance 0.1`"),
        (Door(is_command=True), "`tallbayes fit ... --interval-tolerance 0.1` again"),
        (Door(is_live=True), "`result.extend(interval_tolerance=0.1)`"),
        (Door(call="tb.fit"), "`tb.fit(..., interval_tolerance=0.1)` again"),
    ],
)
def test_each_door_has_its_own_words(door: Door, further: str) -> None:
    assert door.go_on(interval_tolerance=0.1) == further


def test_a_door_is_known_by_the_run_and_its_settings() -> None:
    result = regression("logistic")
    assert Door.of(result, {}) == Door(call="tb.fit")
    assert Door.of(live(made(["a"])), {}) == Door(is_live=True)
    assert Door.of(result, COMMAND) == Door(is_command=True, call="tb.fit")
    assert Door.of(result, {**COMMAND, RUN: "run1"}).go_on() == "`tallbayes resume run1`"


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.converged])
def test_there_is_something_to_do_about_every_status(status: Status) -> None:
    result = live(regression("logistic", status=status))
    python, command = (next_step(result, Door.of(result, each)) for each in ({}, {**COMMAND, RUN: "run1"}))
    assert python
    assert command
    assert "tallbayes " not in python
    assert "result." not in command
    assert "=" not in command
    if status in BUDGETS:
        assert command.startswith("`tallbayes resume run1` goes on from where")
        assert python.startswith("`result.extend()` goes on from where")


def test_what_was_lost_is_not_promised() -> None:
    result = regression("logistic", status=Status.max_seconds)
    assert next_step(result, Door.of(result, {})).startswith("`tb.fit(...)` again with more time")
    assert next_step(result, Door.of(result, COMMAND)).startswith("`tallbayes fit ...` again with more time")
    early = outlined(0.25)
    assert next_step(early, Door.of(early, {})) == "allow more time: `tb.estimate(...)` again"
    assert next_step(regression("logistic"), Door()) == ""


def test_a_terminal_shows_no_backticks() -> None:
    assert unquoted("see `a` and `b c`") == "see a and b c"
    assert TYPED.findall("see `a` and `b c`") == ["a", "b c"]
