"""Progress: the time left follows from the looks at a run, and the line on the terminal says it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tallbayes.progress import Display, Progress, TimeLeft, reporter


def look(seconds: float, error: float, evaluations: int, **changes: Any) -> Progress:
    samples = changes.pop("samples", (evaluations,))
    return Progress("mean.hour", error, 1.0, 3, samples, evaluations, seconds, **changes)


def test_the_time_left_follows_the_law_of_errors() -> None:
    """error = 20 / sqrt(work) at 1 evaluation a second: the target is met after 400."""
    left = TimeLeft()
    for second in range(1, 300):
        left.look(look(second, 20 / second**0.5, second))
        if second > 20:
            assert left.at(second) == pytest.approx(400 - second, rel=0.25)
    assert left.at(1e6) == 0.0


def test_the_time_left_goes_by_the_work_that_is_foreseen() -> None:
    left = TimeLeft()
    for second in range(1, 50):
        left.look(look(second, 100.0, 10 * second, evaluations_left=10.0 * (60 - second)))
    assert left.at(49) == pytest.approx(11, rel=0.05)


def test_the_time_left_is_not_known_at_first_nor_after_a_new_beginning() -> None:
    left = TimeLeft()
    assert left.at(0.0) is None
    for seconds, error, evaluations in ((0.0, 5.0, 100), (0.5, 4.0, 200), (9.0, np.inf, 300), (9.5, np.nan, 300)):
        left.look(look(seconds, error, evaluations))
        assert left.at(seconds) is None
    left.look(look(10.0, 3.0, 400))
    assert left.at(10.0) == pytest.approx(80, rel=0.01)
    left.look(look(11.0, 3.0, 500, samples=(64,)))
    assert left.at(11.0) is None


def test_a_met_target_leaves_no_time() -> None:
    left = TimeLeft()
    for second in range(5):
        left.look(look(second, 0.5, 100 * (second + 1)))
    assert left.at(4.0) == 0.0


def test_the_display_names_phases_and_then_the_worst_quantity() -> None:
    display = Display(phase="reading flights.csv")
    assert display.text().plain.endswith(" reading flights.csv | 0 s")
    display(look(1.0, 4.0, 100))
    assert "? left | mean.hour: error 4, target 1 | 3 levels, 100 paths" in display.text().plain
    display(look(3.0, 2.0, 200))
    assert "0 s, about 6 s left | mean.hour: error 2, target 1" in display.text().plain


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with reporter(None) as report:
        report(look(1.0, 4.0, 100))
    assert capsys.readouterr() == ("", "")
