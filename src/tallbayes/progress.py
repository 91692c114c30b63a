"""Progress: what a run is at, error against target for the worst quantity, and the time left.

It never changes the numbers. `reporter` gives what `estimate` calls with each look; `terminal` is the line on a
terminal, which names the phases before sampling too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any

BAR = 16
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
LONGEST_NAME = 28
# Before, a rate is not known well enough to be worth a word.
LEAST_SECONDS = 1.0
SMOOTHING = 0.3


@dataclass(frozen=True)
class Progress:
    """A look at a run that is under way; `evaluations_left` are those that the samples so far ask for."""

    quantity: str
    error: float
    target: float
    levels: int
    samples: tuple[int, ...]
    evaluations: int
    seconds: float
    evaluations_left: float | None = None


Report = Callable[[Progress], None]


@dataclass
class TimeLeft:
    """When a run will end, by its looks so far.

    seconds left = evaluations left / (evaluations a second since the first look)

    smoothed from look to look. Where a look does not say what is left: the squared error falls like one over the
    work, so that it is work ((error / target)^2 - 1). Samples that became fewer are a new beginning.
    """

    first: Progress | None = None
    last: Progress | None = None
    end: float | None = None

    def look(self, progress: Progress) -> None:
        """Take one more look into account."""
        if self.first is None or self.last is None or sum(progress.samples) < sum(self.last.samples):
            self.first, self.end = progress, None
        self.last = progress
        seconds = progress.seconds - self.first.seconds
        work = progress.evaluations - self.first.evaluations
        left = _evaluations_left(progress, work)
        if seconds < LEAST_SECONDS or work <= 0 or not isfinite(left):
            return
        end = progress.seconds + max(left, 0.0) * seconds / work
        self.end = end if self.end is None else self.end + SMOOTHING * (end - self.end)

    def at(self, seconds: float) -> float | None:
        """Seconds left, so many seconds into the run; None before there is something to go by."""
        return None if self.end is None else max(0.0, self.end - seconds)


def _evaluations_left(progress: Progress, work: int) -> float:
    if progress.evaluations_left is not None:
        return progress.evaluations_left
    return work * ((progress.error / progress.target) ** 2 - 1) if progress.target > 0 else nan


@dataclass
class Display:
    """The line on the terminal: a phase until the first look, then the looks.

    Rich asks for it several times a second, so that seconds go on between looks.
    """

    phase: str = "setting up"
    left: TimeLeft = field(default_factory=TimeLeft)
    started: float = field(default_factory=time.monotonic)
    looked: float = 0.0

    def __call__(self, progress: Progress) -> None:
        self.left.look(progress)
        self.looked = time.monotonic()

    def __rich__(self) -> Any:
        now = time.monotonic()
        if self.left.last is None:
            seconds = now - self.started
            return _text((SPINNER[int(10 * seconds) % len(SPINNER)], "green"), f" {self.phase} | {seconds:.0f} s")
        left = self.left.at(self.left.last.seconds + now - self.looked)
        return _line(self.left.last, now - self.started, left)


@contextmanager
def reporter(progress: bool | Report | None) -> Iterator[Report]:
    """The function to call with each Progress: the caller's own, a terminal display, or nothing."""
    if callable(progress):
        yield progress
        return
    with nullcontext(_ignore) if progress is False or not sys.stderr.isatty() else terminal() as report:
        yield report


def _ignore(progress: Progress) -> None:
    pass


@contextmanager
def terminal() -> Iterator[Display]:
    """A line that stands below whatever else is printed, and is gone afterwards."""
    from rich.console import Console
    from rich.live import Live

    display = Display()
    # What is printed on stdout may be read by another program: it stays there.
    options: dict[str, Any] = {"transient": True, "refresh_per_second": 8, "redirect_stdout": False}
    with Live(display, console=Console(stderr=True), **options):
        yield display


def _line(progress: Progress, seconds: float, left: float | None) -> Any:
    # The work left goes like (error / target)^2, so the bar shows the share of it that is done.
    share = min(1.0, (progress.target / progress.error) ** 2) if progress.error > 0 else 1.0
    done = round(BAR * share)
    return _text(
        ("━" * done, "green"),
        ("━" * (BAR - done), "grey37"),
        f" {seconds:.0f} s, {in_words(left)} | {shorten(progress.quantity, LONGEST_NAME)}:"
        f" error {progress.error:.2g}, target {progress.target:.2g}"
        f" | {progress.levels} levels, {sum(progress.samples):,} paths",
    )


def _text(*parts: Any) -> Any:
    from rich.text import Text

    return Text.assemble(*parts, overflow="ellipsis", no_wrap=True)


def in_words(left: float | None) -> str:
    """A time left, as roughly as it is known.

    >>> in_words(None), in_words(0.2), in_words(42.0), in_words(700.0), in_words(9000.0)
    ('? left', 'almost done', 'about 40 s left', 'about 12 min left', 'about 2.5 h left')
    """
    if left is None:
        return "? left"
    if left < 1:
        return "almost done"
    if left < 90:
        return f"about {float(f'{left:.1g}'):g} s left"
    units = ((60, "min"), (3600, "h"), (86_400, "days"))
    size, unit = next(((size, unit) for size, unit in units if left < 90 * size), units[-1])
    return f"about {float(f'{left / size:.2g}'):g} {unit} left"


def shorten(name: str, width: int) -> str:
    """A name on one line and within a width; both ends stay, since either may tell it from others.

    >>> shorten("C(carrier_of_the_flight)[T.American]", 20)
    'C(carrier...merican]'
    """
    flat = " ".join(name.split())
    if len(flat) <= width:
        return flat
    head = (width - 3 + 1) // 2
    return f"{flat[:head]}...{flat[len(flat) - (width - 3 - head) :]}"
