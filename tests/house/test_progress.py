"""Progress: the time left follows from the looks at a run, and the line on the terminal says it."""

from __future__ import annotations

import sys
from io import StringIO
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tallbayes.progress import Display, Progress, TimeLeft, in_phase, reporter, teller
from tallbayes.watch import begin, begin_pass, compiling, count_rows, watching


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


def in_set_up(**changes: Any) -> Progress:
    return Progress("", np.nan, np.nan, 0, (), 0, 12.0, **{"phase": "mode", **changes})


WORDS = {
    "mode": {},
    "mode, pass 2: 4,500,000 of 10,000,000 rows, about 4 s left": {
        "passes": 2,
        "rows_done": 4_500_000,
        "rows": 10_000_000,
        "seconds_left": 4.2,
    },
    "mode, pass 1: compiling": {"passes": 1, "rows": 300, "compiling": True},
    "mode, pass 3": {"passes": 3, "rows": 300, "rows_done": 300},
    "tuning: trial 3": {"phase": "tuning", "detail": "trial 3"},
    "sampling: first paths": {"phase": "sampling"},
    "setting up": {"phase": ""},
}


@pytest.mark.parametrize("words", WORDS)
def test_a_phase_in_words(words: str) -> None:
    assert in_phase(in_set_up(**WORDS[words])) == words


def test_the_watch_is_told_as_progress() -> None:
    seen: list[Progress] = []
    with watching(60.0, teller(seen.append)) as watch:
        begin("mode")
        begin_pass(1_000)
        watch.pass_begun -= 10.0
        count_rows(250)
        with compiling():
            watch.show(now=True)
    last = seen[-1]
    assert (seen[0].phase, seen[0].passes) == ("mode", 0)
    assert (last.phase, last.passes, last.rows_done, last.rows, last.compiling) == ("mode", 1, 250, 1_000, True)
    assert last.seconds_left == pytest.approx(30.0, rel=0.2)
    assert 0 < last.budget_left < 60
    assert last.evaluations == 250
    assert not last.has_error
    assert np.isnan(last.error)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_line_keeps_to_the_width_and_names_error_and_target(width: int) -> None:
    display = Display()
    name = "mean.C(carrier_of_the_flight)[T.American Airlines]"
    display(Progress(name, 0.0123, 0.01, 5, (40_000, 2_000), 10**8, 3.0, budget_left=57.0))
    console = Console(width=width, record=True, file=StringIO())
    console.print(display)
    lines = console.export_text().rstrip("\n").split("\n")
    assert len(lines) == 1
    assert len(lines[0]) <= width
    if width >= 80:
        assert "error 0.012, target 0.01" in lines[0]
    display(in_set_up(passes=2, rows_done=4_500_000, rows=10_000_000, seconds_left=4.2, budget_left=48.0))
    assert len(display.text(width).plain) <= 80


class Shell:
    """What IPython has of a notebook: a kernel, and displays that can be replaced."""

    kernel = object()

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, data: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown.append(data["text/plain"])

    def display(self, data: dict[str, str], raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        return SimpleNamespace(update=self.update)


def test_a_notebook_has_one_line_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    monkeypatch.setattr(ipython, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setattr(display, "display", shell.display, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with reporter(None) as report:
        report(in_set_up(passes=2))
    assert len(shell.shown) == 2
    assert "mode, pass 2 | 0 s" in shell.shown[0]
    assert shell.shown[1] == ""
    with reporter(False) as report:
        report(in_set_up())
    assert len(shell.shown) == 2
    shell.kernel = None
    with reporter(None) as report:
        report(in_set_up())
    assert len(shell.shown) == 2
