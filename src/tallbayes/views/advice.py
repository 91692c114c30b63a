"""Advice: what a reader can do about a result, in the words of the door it came through.

    tallbayes fit ... --out run1     `tallbayes resume run1 --interval-tolerance 0.1`
    tb.fit, tb.estimate              `result.extend(interval_tolerance=0.1)`
    tb.load                          `tb.fit(..., interval_tolerance=0.1)`, since a file has no rows

What is to be typed stands between backticks: a page sets it in type of its own, a terminal leaves them out.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from tallbayes.estimator.estimates import Status
from tallbayes.results.result import Result
from tallbayes.views.numbers import neat

# Under which the settings of a run say in which folder it is.
RUN = "run"
TYPED = re.compile("`([^`]*)`")
BUDGETS = (Status.max_evaluations, Status.max_seconds, Status.interrupted)
# Statuses of which neither the numbers nor their errors are to be used.
UNTRUSTED = (Status.diverged, Status.no_contraction, Status.paths_too_short, Status.chains_apart, Status.inconsistent)
# Those whose errors may be larger than is stated.
DOUBTFUL = (Status.heavy_tails, Status.infinite_variance)


@dataclass(frozen=True)
class Door:
    """Where a run came from: a command, in which folder it is kept, or Python, whether its rows are still there."""

    is_command: bool = False
    run: str = ""
    is_live: bool = False
    call: str = "tb.estimate"

    @classmethod
    def of(cls, result: Result, settings: dict[str, Any]) -> Door:
        """`settings` are those that a run of the command line keeps, and where it is."""
        call = "tb.estimate" if result.encoding is None else "tb.fit"
        run = str(settings.get(RUN) or "")
        return cls("command" in settings, run, result.continuation is not None, call)

    def go_on(self, **changes: float) -> str:
        """What to type to go on from here, paying only the difference where that is possible."""
        if self.is_command:
            options = "".join(f" {self.option(name)} {value:g}" for name, value in changes.items())
            # Without a folder there is nothing to go on from.
            kept = f"`tallbayes resume {shlex.quote(self.run)}{options}`"
            return kept if self.run else f"`tallbayes fit ...{options}` again"
        given = ", ".join(f"{name}={value:g}" for name, value in changes.items())
        if self.is_live:
            return f"`result.extend({given})`"
        return f"`{self.call}(...{', ' if given else ''}{given})` again"

    def option(self, name: str) -> str:
        """How an argument is called here."""
        return f"--{name.replace('_', '-')}" if self.is_command else name

    @property
    def keeps_work(self) -> bool:
        """Whether what was computed is there to go on from."""
        return bool(self.run) if self.is_command else self.is_live

    @property
    def at_two_rows(self) -> str:
        """How to see what several coefficients do together."""
        if self.is_command:
            return (
                f"`tallbayes predict {shlex.quote(self.run) if self.run else 'RUN'} NEWDATA` for rows that differ in it"
            )
        return "`result.compare(row, other_row)`"


def unquoted(sentence: str) -> str:
    """For a terminal."""
    return TYPED.sub(r"\1", sentence)


def sharper_ends(door: Door, tolerance: float) -> str:
    """What to do about rough ends."""
    finer = door.go_on(interval_tolerance=tolerance)
    return f"nothing, if means and sds are all you need; for sharper interval ends {finer}"


def next_step(result: Result, door: Door) -> str:
    """What to do about a run that did not end well; empty where it did."""
    status = result.status
    prior, tolerance = (f"`{door.option(name)}`" for name in ("prior_scale", "tolerance"))
    if status in BUDGETS:
        if not result.is_sampled:
            return f"allow more time: {door.go_on()}"
        paid = " goes on from where this run stopped" if door.keeps_work else " with more time"
        return f"{door.go_on()}{paid}; or ask for less, with a larger {tolerance}"
    typed = door.call.startswith("tb.fit") or door.is_command
    rare = "merge rare categories, or " if typed else ""
    steps = {
        Status.max_levels: f"ask for less, with a larger {tolerance}",
        Status.slow_decay: "ask for a probability or a quantile of the posterior instead of a quantity that jumps; or "
        f"ask for less, with a larger {tolerance}",
        Status.heavy_tails: f"{rare}take a tighter prior ({prior}); of a ratio ask for a median",
        Status.converged_in_part: f"nothing, if all else is what you need; else {rare}take a tighter prior ({prior}) "
        "for those that are named",
        Status.rough_integrals: f"ask for less, with a larger {tolerance}; a model of your own may have more nodes",
        Status.infinite_variance: f"ask for a median or another quantile, or take a tighter prior ({prior})",
        Status.diverged: f"{rare}take a tighter prior ({prior})",
        Status.no_contraction: f"look for columns that say the same thing, and drop one; {rare}take a tighter prior "
        f"({prior})",
        Status.paths_too_short: "centre and scale the columns, and drop those that say the same as others",
        Status.chains_apart: f"drop columns that say the same as others; a Gaussian prior ({prior}) has no such modes",
        Status.inconsistent: f"report it, with seed {neat(float(result.settings.get('seed', 0)), 20)}; it should not "
        "happen",
        Status.no_mode: "write effects that share a scale as scale × effect, with standard normal effects",
        Status.second_mode: "see whether the modes say the same thing under other names, then order or fix something "
        "in the model, so that one is left",
    }
    return steps.get(status, "")
