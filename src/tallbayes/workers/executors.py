"""Executors: blocks are run by any `concurrent.futures.Executor`, and taken back in their order.

Results never depend on who finished first: they are yielded in the order of submission, a bounded number ahead. Who
waits for them stops when the time of its watch is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

from tallbayes.threads import Threads, num_cores
from tallbayes.watch import wait


def default_executor() -> Threads:
    """Threads of this process, one a core; compiled paths do not hold the interpreter's lock."""
    return Threads(num_cores())


class Watched:
    """Somebody else's threads, whose tasks are under the watch of whoever submits them."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        return self.executor.submit(partial(copy_context().run, task), *arguments)

    def submit_all(self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Future[Any]]:
        return submit_all(self.executor, partial(copy_context().run, task), arguments)

    def capacity(self) -> int:
        return capacity_of(self.executor)

    @property
    def elsewhere(self) -> bool:
        return runs_elsewhere(self.executor)

    @property
    def carries_several(self) -> bool:
        return carries_several(self.executor)


def capacity_of(executor: Executor) -> int:
    """How many tasks it can run at once, as far as it tells; workers may join and leave, so this is for now."""
    ask = getattr(executor, "capacity", None)
    return max(1, int(ask() if ask is not None else getattr(executor, "_max_workers", num_cores())))


def runs_elsewhere(executor: Executor) -> bool:
    """Whether its tasks run in other processes, where idle workers cost this one nothing."""
    return bool(getattr(executor, "elsewhere", False))


def carries_several(executor: Executor) -> bool:
    """Whether it has `submit_all`, which sends several tasks on one journey."""
    return bool(getattr(executor, "carries_several", False))


def submit_all(executor: Executor, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Future[Any]]:
    """A future for task(*a) of each a; on one journey where the executor can."""
    if len(arguments) > 1 and carries_several(executor):
        return getattr(executor, "submit_all")(task, arguments)  # noqa: B009
    return [executor.submit(task, *each) for each in arguments]


def in_order(
    executor: Executor, task: Callable[..., Any], arguments: Iterator[tuple[Any, ...]], ahead: int
) -> Iterator[Any]:
    """Yield task(*a) for each a in order, with at most `ahead` under way; the rest is never started."""
    pending: deque[Future[Any]] = deque()
    try:
        for each in arguments:
            pending.append(executor.submit(task, *each))
            if len(pending) >= ahead:
                yield wait(pending.popleft())
        while pending:
            yield wait(pending.popleft())
    finally:
        for future in pending:
            future.cancel()


class Executor(Protocol):
    """What runs blocks: any `concurrent.futures.Executor` will do."""

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future[Any]: ...
