"""The watch: until when a run may go on, what it is at, and who is told.

    with watching(60.0, tell):               of all that is done below, here and on threads that it sets to work
        begin("mode")                        a phase, until the next one
        begin_pass(10_000_000), rows_done(4_096)
        look()                               raises OutOfTime where the time is over
        aside(task, *arguments)              on a thread of its own, which is left behind when the time is over

A watch inside another one ends with it. Whoever waits looks at the clock; so a run ends on time whatever it waits for,
and what was left behind ends at its own next look. Without a watch there is all the time in the world.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tallbayes.threads import Threads, leaving, not_to_be_left

SECONDS_BETWEEN_LOOKS = 0.2
MOST_ASIDE = 64


class OutOfTime(BaseException):
    """The time is over. No error: what handles errors must let it pass, as it does Ctrl-C."""


@dataclass(eq=False)
class Watch:
    """A deadline, and a look at what is under way: pass by pass of a phase, rows done out of those of the pass, or
    what goes by another `unit` in their place."""

    end: float = inf
    started: float = field(default_factory=time.monotonic)
    tell: Callable[[Watch], None] | None = None
    stopped: bool = False
    phase: str = ""
    detail: str = ""
    passes: int = 0
    rows: int = 0
    rows_done: int = 0
    rows_read: int = 0
    unit: str = "row"
    pass_begun: float = 0.0
    compiling: int = 0
    found: Callable[[Any, int], None] | None = None
    told: float = 0.0
    owner: int = field(default_factory=threading.get_ident)
    threads: Threads | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return self.stopped or leaving() or time.monotonic() >= self.end

    def stop(self) -> None:
        """End now, as after Ctrl-C: what runs elsewhere in this process ends at its next look."""
        self.stopped = True

    def show(self, now: bool = False) -> None:
        """Tell whoever wants to know; only from the thread that began the run, and not too often."""
        if self.tell is None or threading.get_ident() != self.owner:
            return
        if now or time.monotonic() - self.told >= SECONDS_BETWEEN_LOOKS:
            self.told = time.monotonic()
            self.tell(self)

    def aside(self) -> Threads:
        if self.threads is None:
            self.threads = Threads(MOST_ASIDE)
        return self.threads


_current: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(
    max_seconds: float = inf, tell: Callable[[Watch], None] | None = None, apart: bool = False
) -> Iterator[Watch]:
    """A watch over what follows; `apart` from one that is there already, whose time may be over."""
    outer = None if apart else _current.get()
    watch = Watch(end=time.monotonic() + max_seconds, tell=tell)
    if outer is not None:
        watch.end, watch.started = min(watch.end, outer.end), outer.started
        watch.tell = tell or outer.tell
    token = _current.set(watch)
    try:
        yield watch
    finally:
        _current.reset(token)
        if watch.threads is not None:
            watch.threads.shutdown(wait=False, cancel_futures=True)


def current() -> Watch | None:
    """The watch that is kept over this thread, if any."""
    return _current.get()


def passed() -> bool:
    """Whether the time is over."""
    watch = _current.get()
    return watch is not None and watch.passed


def look() -> None:
    """Go on, unless the time is over."""
    if passed():
        raise OutOfTime


def wait(future: Future[Any]) -> Any:
    """What a future gives, or OutOfTime; meanwhile the watch is shown."""
    watch = _current.get()
    if watch is None:
        return future.result()
    while True:
        if watch.passed:
            future.cancel()
            raise OutOfTime
        left = max(0.0, watch.end - time.monotonic())
        try:
            return future.result(min(left, SECONDS_BETWEEN_LOOKS))
        except TimeoutError:
            if future.done():
                return future.result()
        watch.show()


def aside(task: Callable[..., Any], *arguments: Any) -> Any:
    """task(*arguments), as if it were called here; but it can be left behind."""
    watch = _current.get()
    if watch is None or threading.get_ident() != watch.owner:
        return task(*arguments)
    return wait(watch.aside().submit(task, *arguments))


def begin(phase: str, detail: str = "") -> None:
    """Name what comes next."""
    watch = _current.get()
    if watch is None:
        return
    if phase != watch.phase:
        watch.passes = 0
    watch.phase, watch.detail, watch.rows, watch.rows_done = phase, detail, 0, 0
    watch.show(now=True)


def begin_pass(rows: int) -> None:
    """One more pass of the phase, over so many rows."""
    watch = _current.get()
    if watch is None:
        return
    watch.passes += 1
    watch.rows, watch.rows_done, watch.pass_begun = rows, 0, time.monotonic()
    watch.show()


def count_by(unit: str) -> None:
    """What rows are from here on: groups of them."""
    watch = _current.get()
    if watch is not None:
        watch.unit = unit


def count_rows(rows: int) -> None:
    """So many rows of the pass are done; where the time is over, the rest is not begun."""
    watch = _current.get()
    if watch is not None:
        with watch.lock:
            watch.rows_done += rows
            watch.rows_read += rows
    look()


def find(what: Any, rows: int) -> None:
    """Put down what would serve if nothing better came: an expansion, over so many rows."""
    watch = _current.get()
    if watch is not None and watch.found is not None:
        watch.found(what, rows)


@contextmanager
def compiling() -> Iterator[None]:
    """Where a program is compiled, or waited for while another thread does it: no exit comes in between."""
    watch = _current.get()
    with not_to_be_left():
        if watch is None:
            yield
            return
        with watch.lock:
            watch.compiling += 1
        try:
            yield
        finally:
            with watch.lock:
                watch.compiling -= 1
