"""Threads that can be left behind: whoever waits for them may stop waiting, and so may the interpreter at its exit.

Compiled programs cannot be stopped from outside. A thread in the midst of one is left to finish it, and ends there. At
exit, threads get a moment to come back into Python, since one that does so while the interpreter is being taken down
would abort the process: a compiler is waited for, and so is anything that ends within seconds; a longer program is not
likely to end in the one moment that the rest of an exit takes.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

SECONDS_AT_EXIT, SECONDS_FOR_COMPILERS = 20.0, 120.0
NAME = "tallbayes"

_busy: set[threading.Thread] = set()
_kept: set[threading.Thread] = set()
_leaving = threading.Event()


def num_cores() -> int:
    """Cores that this process may use: those it is bound to, and no more than its container is given.

    >>> num_cores() >= 1
    True
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(bound, int(_container_cores())))


@cache
def _container_cores(root: Path = Path("/sys/fs/cgroup")) -> float:
    """Processor time a second that control groups allow, of either version; infinite where they say nothing."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = ((root / "cpu" / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        except OSError:
            return sys.maxsize
    limited = quota != "max" and int(quota) > 0
    return max(1.0, int(quota) / int(period)) if limited else sys.maxsize


@contextmanager
def not_to_be_left() -> Iterator[None]:
    """While this thread does what an exit has to wait for."""
    here = threading.current_thread()
    outer = here in _kept
    _kept.add(here)
    try:
        yield
    finally:
        if not outer:
            _kept.discard(here)


def leaving() -> bool:
    """Whether the interpreter is about to exit, so that nothing more should be begun."""
    return _leaving.is_set()


@cache
def _expect_exit() -> None:
    """Once, and not before JAX is there: what is registered last comes first."""
    atexit.register(_wait_at_exit)


def _wait_at_exit() -> None:
    _leaving.set()
    now = time.monotonic()
    last, end = now + SECONDS_FOR_COMPILERS, now + SECONDS_AT_EXIT
    while _busy and now < end:
        time.sleep(0.01)
        now = time.monotonic()
        if _busy & _kept and now < last:
            # A compiler that is done still has to come back into Python.
            end = now + SECONDS_AT_EXIT
    if _busy:
        # To collect what is left takes as long as the rest of an exit, and ends with the process anyway.
        gc.freeze()


class Threads(Executor):
    """An executor of so many threads at most, begun when they are needed; tasks see the caller's context."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = False
        _expect_exit()

    def capacity(self) -> int:
        return self.number

    def submit(self, task: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("expected threads that are still at work; got a task after their shutdown")
            self._tasks.put((future, copy_context(), partial(task, **options) if options else task, arguments))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self.number:
                thread = threading.Thread(target=self._work, name=NAME, daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin nothing more; with `wait`, until all is done."""
        with self._lock:
            self._closed = True
            while cancel_futures and not self._tasks.empty():
                item = self._tasks.get()
                if item is not None:
                    item[0].cancel()
            self._tasks.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (item := self._tasks.get()) is not None:
            _busy.add(threading.current_thread())
            try:
                _run(*item)
            finally:
                # What a task held is not kept until the next one comes.
                del item
                _busy.discard(threading.current_thread())
            self._idle.release()
        self._tasks.put(None)


def _run(future: Future[Any], context: Context, task: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = context.run(task, *arguments)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
