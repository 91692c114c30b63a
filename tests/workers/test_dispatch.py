"""The dispatcher: blocks in any order of arrival, workers that come, go, dawdle and fail."""

from __future__ import annotations

import heapq
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tallbayes.threads import num_cores
from tallbayes.workers.dispatch import SHARES, Dispatcher, ahead, first_arrival, rank
from tallbayes.workers.executors import capacity_of, runs_elsewhere
from tallbayes.workers.outlook import Ahead


class Virtual:
    """An executor elsewhere, in virtual time: each task takes what `seconds(level, index, attempt)` says."""

    elsewhere = True

    def __init__(self, workers: int, seconds: Callable[[int, int, int], float] = lambda *_: 1.0) -> None:
        self.workers, self.seconds, self.now = workers, seconds, 0.0
        self.submitted: list[tuple[int, int]] = []
        self.most_under_way = 0
        self.futures: list[Future] = []
        self._events: list[tuple[float, int, Any]] = []

    def capacity(self) -> int:
        return self.workers

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
        _, level, index = arguments
        future: Future = Future()
        future.set_running_or_notify_cancel()
        end = self.now + self.seconds(level, index, self.submitted.count((level, index)))
        self.submitted.append((level, index))
        self.futures.append(future)
        heapq.heappush(self._events, (end, len(self.submitted), (future, task, arguments)))
        self.most_under_way = max(self.most_under_way, len(self._events))
        return future

    def wait(self, arrivals: Any, seconds: float) -> Future | None:
        if seconds <= 0 or not arrivals.empty():
            return first_arrival(arrivals, 0.0)
        if not self._events or self._events[0][0] > self.now + seconds:
            self.now += seconds
            return None
        self.now, _, (future, task, arguments) = heapq.heappop(self._events)
        try:
            future.set_result(task(*arguments))
        except ValueError as error:
            future.set_exception(error)
        return first_arrival(arrivals, 0.0)


def name_of(problem: str, level: int, index: int) -> tuple[str, int, int]:
    return problem, level, index


def dispatcher(executor: Any, task: Callable[..., Any] = name_of, **options: Any) -> Dispatcher:
    if isinstance(executor, Virtual):
        options |= {"wait": executor.wait, "clock": lambda: executor.now}
    return Dispatcher(executor, task, "problem", lambda level: 2**level, **options)


def in_prefixes(handed: list[tuple[int, Any]]) -> bool:
    """Every level's blocks in the order of their index, and no level before the one below it."""
    seen: dict[int, int] = {}
    for level, (_, same, index) in handed:
        if level != same or seen.get(level, 0) != index or (level and level - 1 not in seen):
            return False
        seen[level] = index + 1
    return True


WANTED = [(0, range(40)), (1, range(20)), (2, range(5))]


@pytest.mark.parametrize("workers", [1, 3, 100])
def test_blocks_are_handed_over_in_order_whatever_that_of_arrival(workers):
    uneven = random.Random(0)
    executor = Virtual(workers, lambda *_: uneven.random())
    handed = list(dispatcher(executor).collect(WANTED))
    assert len(handed) == 65
    assert in_prefixes(handed)
    assert executor.most_under_way <= workers + ahead(workers)
    # The control: in the order of arrival they are not.
    assert workers == 1 or not in_prefixes([(level, ("", level, index)) for level, index in executor.submitted])


def test_threads_take_low_levels_first_and_the_longest_begin_first_elsewhere():
    elsewhere = Virtual(2)
    list(dispatcher(elsewhere).collect(WANTED))
    begun = list(dict.fromkeys(elsewhere.submitted))
    assert [level for level, _ in begun] == [2] * 5 + [1] * 20 + [0] * 40
    here = Virtual(2)
    here.elsewhere = False
    list(dispatcher(here).collect(WANTED))
    assert [level for level, _ in here.submitted] == [0] * 40 + [1] * 20 + [2] * 5


def test_a_late_block_is_issued_once_more_and_the_first_copy_to_arrive_counts():
    """One block hangs for a thousand seconds at its first attempt; it is late after twice the usual second."""
    executor = Virtual(4, lambda level, index, attempt: 1000.0 if (index, attempt) == (3, 0) else 1.0)
    this = dispatcher(executor)
    handed = list(this.collect([(0, range(20))]))
    assert in_prefixes(handed)
    copies = Counter(executor.submitted)
    assert copies[0, 3] == 2
    # Others are copied only where a place would be idle, at the end.
    assert all(copies[0, index] == 1 for index in range(3))
    assert executor.now < 10
    # The copy that hangs ran for nothing, and so did those that came second.
    assert this.rest() == len(executor.submitted) - 20


def test_control_without_a_second_copy_the_late_block_is_waited_for():
    executor = Virtual(4, lambda level, index, attempt: 1000.0 if (index, attempt) == (3, 0) else 1.0)
    list(dispatcher(executor, late=np.inf).collect([(0, range(20))]))
    assert executor.now >= 1000


def test_a_level_without_a_finished_block_is_judged_by_its_price():
    executor = Virtual(8, lambda level, index, attempt: 1000.0 if (level, attempt) == (1, 0) else 1.0)
    list(dispatcher(executor).collect([(0, range(8)), (1, range(1))]))
    assert 2 <= executor.submitted.count((1, 0)) <= 4


def test_workers_that_join_and_leave_are_taken_into_account():
    executor = Virtual(2)
    this, most = dispatcher(executor), []
    for number, _ in enumerate(this.collect([(0, range(200))])):
        executor.workers = {50: 10, 120: 1}.get(number, executor.workers)
        most.append(len(executor._events))
    assert max(most[:50]) <= 4
    assert 8 <= max(most[60:120]) <= 18
    assert max(most[140:]) <= 2


class Foretold:
    """An outlook that does not change."""

    def __init__(self, likely: list[float], sure: tuple[float, ...] = ()) -> None:
        self.told, self.seen = Ahead(sure, likely), []

    def saw(self, level: int, result: Any) -> None:
        self.seen.append((level, result))

    def ahead(self) -> Ahead:
        return self.told


def test_idle_workers_run_ahead_within_what_is_likely_and_that_is_used_by_the_next_round():
    executor = Virtual(10, lambda level, index, attempt: 5.0 if (level, index) == (0, 0) else 1.0)
    this = dispatcher(executor, late=np.inf)
    outlook = Foretold([20.0, 6.0, 0.0])
    first = list(this.collect([(0, range(2)), (1, range(2))], outlook))
    assert sorted((level, index) for level, (_, _, index) in first) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    issued = set(executor.submitted)
    assert issued == {(0, k) for k in range(20)} | {(1, k) for k in range(6)} | {(2, 0), (2, 1)}
    # It learns from blocks as they come, wanted or not: the last to come is the first that was issued.
    assert {(level, index) for level, (_, _, index) in outlook.seen} == issued
    assert outlook.seen[-1][1][2] == 0
    before = executor.now
    second = list(this.collect([(0, range(2, 20)), (1, range(2, 6))]))
    assert len(second) == 22
    assert executor.now == before
    # The pilots of a level that was not asked for in the end.
    assert this.rest() == 2 * 2**2


class Together(Virtual):
    """Workers to which several blocks travel at once; those of a journey are done one after the other."""

    carries_several = True

    def __init__(self, workers: int, seconds: Callable[[int, int, int], float]) -> None:
        super().__init__(workers, seconds)
        self.journeys: list[int] = []
        self._busy = [0.0] * workers

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
        return self.submit_all(task, [arguments])[0]

    def submit_all(self, task: Callable[..., Any], all_arguments: list[tuple[Any, ...]]) -> list[Future]:
        worker = self._busy.index(min(self._busy))
        end = max(self._busy[worker], self.now)
        end += sum(self.seconds(level, index, 0) for _, level, index in all_arguments)
        self._busy[worker] = end
        self.journeys.append(len(all_arguments))
        futures = []
        for arguments in all_arguments:
            future: Future = Future()
            self.submitted.append(arguments[1:])
            heapq.heappush(self._events, (end, len(self.submitted), (future, task, arguments)))
            futures.append(future)
        return futures


def test_short_blocks_travel_together_and_long_ones_alone():
    short, long = Together(2, lambda *_: 0.005), Together(2, lambda *_: 1.0)
    for executor in (short, long):
        handed = list(dispatcher(executor).collect([(0, range(400))]))
        assert in_prefixes(handed)
        assert len(handed) == 400
    assert len(short.journeys) < 100
    # Every worker has several journeys to the end, so that none waits for long.
    assert max(short.journeys) <= 400 / (2 * SHARES)
    assert set(long.journeys) == {1}


def test_a_journey_that_is_late_is_made_again_block_by_block():
    slow = [40]
    executor = Together(4, lambda level, index, attempt: 1e6 if index == 40 and slow and slow.pop() else 0.005)
    handed = list(dispatcher(executor).collect([(0, range(200))]))
    assert in_prefixes(handed)
    assert executor.now < 1e6
    copied = [index for (_, index), number in Counter(executor.submitted).items() if number > 1]
    assert 40 in copied


def test_what_has_arrived_is_kept_from_one_time_to_the_next():
    executor = Virtual(10, lambda level, index, attempt: 5.0 if (level, index) == (0, 0) else 1.0)
    this = dispatcher(executor, late=np.inf)
    list(this.collect([(0, range(2))], Foretold([20.0])))
    assert this.rest() == 18
    assert len(list(this.collect([(0, range(2, 20))]))) == 18
    assert max(Counter(executor.submitted).values()) == 1
    assert this.rest() == 0


class Waiting:
    """An executor elsewhere that does nothing by itself."""

    elsewhere = True

    def __init__(self) -> None:
        self.futures: list[tuple[int, Future]] = []

    def capacity(self) -> int:
        return 4

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
        self.futures.append((arguments[2], Future()))
        return self.futures[-1][1]


def test_what_arrives_while_others_are_called_back_is_kept():
    """As the first is cancelled the second is done, as may be with workers elsewhere."""
    executor = Waiting()
    this = Dispatcher(executor, None, None, lambda level: 1, late=np.inf)
    assert list(this.collect([(0, range(4))], deadline=time.monotonic())) == []
    (_, first), (_, second), *_ = executor.futures
    first.add_done_callback(lambda _: second.set_result("kept"))
    assert this.rest() == 1
    assert first.cancelled()
    assert list(this.collect([(0, range(4))], deadline=time.monotonic())) == []
    assert [index for index, _ in executor.futures] == [0, 1, 2, 3, 0, 2, 3]
    for _, future in executor.futures[4:]:
        future.set_result("made again")
    handed = [result for _, result in this.collect([(0, range(4))])]
    assert handed == ["made again", "kept", "made again", "made again"]


def test_control_what_was_under_way_is_issued_again():
    executor = Virtual(10, lambda level, index, attempt: {0: 5.0, 7: 1.0 if attempt else 50.0}.get(index, 1.0))
    this = dispatcher(executor, late=np.inf)
    list(this.collect([(0, range(2))], Foretold([20.0])))
    this.rest()
    assert len(list(this.collect([(0, range(2, 20))]))) == 18
    again = [index for (_, index), number in Counter(executor.submitted).items() if number > 1]
    assert again == [7]


def test_threads_do_not_run_ahead():
    executor = Virtual(10)
    executor.elsewhere = False
    list(dispatcher(executor).collect([(0, range(4))]))
    assert len(executor.submitted) == 4


def test_what_is_held_stays_within_bounds(monkeypatch):
    """The first block hangs, and no second copy is allowed: others go on until the bound, not for ever."""
    monkeypatch.setattr("tallbayes.workers.dispatch.EARLY_BYTES", 0)
    executor = Virtual(5, lambda level, index, attempt: 1000.0 if index == 0 else 1.0)
    for _ in dispatcher(executor, late=np.inf).collect([(0, range(100))]):
        break
    assert len(executor.submitted) <= 3 * (5 + ahead(5))


class AtOnce:
    """All blocks are known already."""

    elsewhere = True

    def __init__(self) -> None:
        self.number = 0

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
        self.number += 1
        future: Future = Future()
        future.set_result(task(*arguments))
        return future


def test_known_blocks_pass_without_recursion_and_are_not_read_ahead():
    executor = AtOnce()
    this = dispatcher(executor)
    handed = list(this.collect([(0, range(20_000))], Foretold([1e6, 1e6])))
    assert len(handed) == 20_000
    # One block by level is enough to see that the next ones are known too.
    assert executor.number <= 20_000 + 4
    assert this.rest() == 0


def failing(problem: str, level: int, index: int) -> int:
    if index == 7:
        raise ValueError("block 7")
    return index


def test_the_exception_of_a_task_is_raised_once_and_nothing_is_left():
    issued = []

    class Watched(ThreadPoolExecutor):
        def submit(self, task, /, *arguments):
            issued.append(super().submit(task, *arguments))
            return issued[-1]

    with Watched(2) as pool:
        this = dispatcher(pool, failing)
        handed = this.collect([(0, range(1000))])
        assert [next(handed)[1] for _ in range(7)] == list(range(7))
        with pytest.raises(ValueError, match="block 7"):
            next(handed)
        assert list(handed) == []
        this.rest()
    assert len(issued) < 100
    assert all(future.done() for future in issued)


def test_a_block_that_fails_ahead_is_told_only_when_it_is_wanted():
    executor = Virtual(20)
    this = dispatcher(executor, failing)
    assert len(list(this.collect([(0, range(2))], Foretold([10.0])))) == 2
    assert len(list(this.collect([(0, range(2, 5))], Foretold([10.0])))) == 3
    with pytest.raises(ValueError, match="block 7"):
        list(this.collect([(0, range(5, 10))], Foretold([10.0])))


def test_a_cancelled_block_is_told_too():
    class Cancelling(AtOnce):
        def submit(self, task, /, *arguments):
            future = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    with pytest.raises(CancelledError):
        list(dispatcher(Cancelling()).collect([(0, range(3))]))


def test_a_deadline_ends_at_a_completed_prefix():
    executor = Virtual(3, lambda *_: 1.0)
    handed = list(dispatcher(executor).collect([(0, range(100))], deadline=5.5))
    assert 0 < len(handed) < 100
    assert in_prefixes(handed)


def test_ranks_and_places():
    assert [rank(index, 10.0) for index in (0, 1, 4, 10)] == [0.0, 0.0, 0.5, np.inf]
    with ThreadPoolExecutor(3) as pool:
        assert capacity_of(pool) == 3
        assert not runs_elsewhere(pool)
    assert capacity_of(object()) == num_cores()
    assert capacity_of(Virtual(7)) == 7
    assert runs_elsewhere(Virtual(7))
