"""Progress: what a run is at, error against target for the worst quantity, and the time left.

Before sampling: the phase, which pass of it, rows done, and the time left of the pass. It never changes the numbers.
`reporter` gives what `estimate` calls with each look; `terminal` and `notebook` show one line that is kept up to date.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from math import inf, isfinite, nan
from typing import Any

from tallbayes.watch import Watch

SAMPLING = "sampling"
BAR = 16
NARROW_BAR, NARROW = 8, 100
SECONDS_BETWEEN_LINES = 0.2
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
LONGEST_NAME = 28
# Before, a rate is not known well enough to be worth a word.
LEAST_SECONDS = 1.0
SMOOTHING = 0.3


@dataclass(frozen=True)
class Progress:
    """A look at a run that is under way; `evaluations_left` are those that the samples so far ask for.

    Before there are samples to judge by, `error` and `target` are not numbers. `phase` says what is being done,
    `passes` counts its passes over rows, of the last of which `rows_done` out of `rows` are done, and `seconds_left` is
    how long that one will go on at this rate. `budget_left` are the seconds until max_seconds. Of a mixed model what is
    counted are no rows, but groups: then that is the `unit`.

    >>> def told(look):
    ...     print(look.phase, look.error, look.target)
    >>> result = tb.fit("late ~ hour", rows, progress=told)  # doctest: +SKIP
    """

    quantity: str
    error: float
    target: float
    levels: int
    samples: tuple[int, ...]
    evaluations: int
    seconds: float
    evaluations_left: float | None = None
    phase: str = SAMPLING
    detail: str = ""
    passes: int = 0
    rows_done: int = 0
    rows: int = 0
    compiling: bool = False
    seconds_left: float | None = None
    budget_left: float = inf
    unit: str = "row"

    @property
    def has_error(self) -> bool:
        """Whether there are samples to judge by."""
        return self.phase == SAMPLING and bool(self.quantity)


Report = Callable[[Progress], None]


def teller(report: Report) -> Callable[[Watch], None]:
    """Looks at a watch, as progress."""

    def tell(watch: Watch) -> None:
        now = time.monotonic()
        done, rows, taken = watch.rows_done, watch.rows, now - watch.pass_begun
        known = 0 < done < rows and taken > LEAST_SECONDS
        report(
            Progress(
                quantity="",
                error=nan,
                target=nan,
                levels=0,
                samples=(),
                evaluations=watch.rows_read,
                seconds=now - watch.started,
                phase=watch.phase,
                detail=watch.detail,
                passes=watch.passes,
                rows_done=min(done, rows),
                rows=rows,
                compiling=watch.compiling > 0,
                seconds_left=taken * (rows - done) / done if known else None,
                budget_left=max(0.0, watch.end - now),
                unit=watch.unit,
            )
        )

    return tell


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
    """The line on the terminal: a phase until the first look at samples, then the errors.

    Rich asks for it several times a second, so that seconds go on between looks.
    """

    phase: str = "setting up"
    left: TimeLeft = field(default_factory=TimeLeft)
    started: float = field(default_factory=time.monotonic)
    looked: float = 0.0
    last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self.last, self.looked = progress, time.monotonic()
        if progress.has_error:
            self.left.look(progress)

    def text(self, width: int = 120) -> Any:
        """The line, within a width."""
        now = time.monotonic()
        seconds = now - self.started
        spinner = SPINNER[int(10 * seconds) % len(SPINNER)], "green"
        if self.last is None:
            return _text(spinner, f" {self.phase} | {seconds:.0f} s")
        spent = f"{seconds:.0f} s"
        if isfinite(self.last.budget_left):
            spent += f" of {seconds + max(0.0, self.last.budget_left - (now - self.looked)):.0f} s"
        if not self.last.has_error:
            return _text(spinner, f" {in_phase(self.last)} | {spent}")
        left = self.left.at(self.last.seconds + now - self.looked)
        return _line(self.last, spent, left, width)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        yield self.text(options.max_width)


def in_phase(progress: Progress) -> str:
    """What is being done, in words.

    >>> in_phase(Progress("", nan, nan, 0, (), 0, 9.0, phase="mode", passes=3, rows_done=45, rows=100))
    'mode, pass 3: 45 of 100 rows'
    """
    what = progress.phase or "setting up"
    if progress.passes:
        what += f", pass {progress.passes}"
    parts = [progress.detail] if progress.detail else []
    if progress.compiling and not 0 < progress.rows_done < progress.rows:
        parts.append("compiling")
    elif 0 < progress.rows_done < progress.rows:
        parts.append(f"{progress.rows_done:,} of {progress.rows:,} {progress.unit}s")
    elif progress.phase == SAMPLING:
        parts.append("first paths")
    if progress.seconds_left is not None:
        parts.append(in_words(progress.seconds_left))
    return what + (": " + ", ".join(parts) if parts else "")


@contextmanager
def reporter(progress: bool | Report | None) -> Iterator[Report]:
    """The function to call with each Progress: the caller's own, a line on a terminal or in a notebook, or nothing."""
    if callable(progress):
        yield progress
        return
    shell = None if progress is False else notebook_shell()
    if shell is not None:
        with notebook() as line:
            yield line
    elif progress is not False and sys.stderr.isatty():
        with terminal() as display:
            yield display
    else:
        yield _ignore


def _ignore(progress: Progress) -> None:
    pass


def notebook_shell() -> Any:
    """The shell of a notebook's kernel; None anywhere else."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell if getattr(shell, "kernel", None) is not None else None


class NotebookLine:
    """One line of a cell's output that is replaced at each look; it needs no widgets."""

    def __init__(self, handle: Any) -> None:
        self.handle, self.display, self._shown = handle, Display(), 0.0

    def __call__(self, progress: Progress) -> None:
        self.display(progress)
        if time.monotonic() - self._shown >= SECONDS_BETWEEN_LINES:
            self._shown = time.monotonic()
            self._show(self.display.text(NARROW).plain)

    def clear(self) -> None:
        self._show("")

    def _show(self, text: str) -> None:
        html = f"<pre style='margin:0'>{escape(text)}</pre>" if text else "<span></span>"
        self.handle.update({"text/plain": text, "text/html": html}, raw=True)


@contextmanager
def notebook() -> Iterator[NotebookLine]:
    """A line in the output of the cell that is running, which is gone afterwards."""
    from importlib import import_module

    handle = import_module("IPython.display").display({"text/plain": ""}, raw=True, display_id=True)
    line = NotebookLine(handle)
    try:
        yield line
    finally:
        line.clear()


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


def _line(progress: Progress, spent: str, left: float | None, width: int) -> Any:
    # The work left goes like (error / target)^2, so the bar shows the share of it that is done.
    share = min(1.0, (progress.target / progress.error) ** 2) if progress.error > 0 else 1.0
    bar = BAR if width >= NARROW else NARROW_BAR
    done = round(bar * share)
    head = f" {spent}, {in_words(left)} | "
    tail = f": error {progress.error:.2g}, target {progress.target:.2g}"
    more = f" | {progress.levels} levels, {sum(progress.samples):,} paths"
    room = width - bar - len(head) - len(tail)
    name = shorten(progress.quantity, max(8, min(LONGEST_NAME, room)))
    words = head + name + tail
    words += more if bar + len(words) + len(more) <= width else ""
    return _text(("━" * done, "green"), ("━" * (bar - done), "grey37"), words)


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
