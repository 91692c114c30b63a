"""Executors: blocks are run by any `concurrent.futures.Executor`, and taken back in their order.

Results never depend on who finished first: they are yielded in the order of submission, a bounded number ahead.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tallbayes.roles import Executor


def num_workers() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_executor() -> ThreadPoolExecutor:
    """Threads of this process, one a core; compiled paths do not hold the interpreter's lock."""
    return ThreadPoolExecutor(num_workers(), thread_name_prefix="tallbayes")


def capacity_of(executor: Executor) -> int:
    """How many tasks it can run at once, as far as it tells; workers may join and leave, so this is for now."""
    ask = getattr(executor, "capacity", None)
    return max(1, int(ask() if ask is not None else getattr(executor, "_max_workers", num_workers())))


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
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
