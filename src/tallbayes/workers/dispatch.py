"""The dispatcher: blocks are issued in one order, arrive in any, and are handed over in the order of their index.

    handed over   level l's blocks 0, 1, 2, ... without a gap, whoever finished first
    issued        what is late once more, what is wanted, what is likely to be wanted next, copies of what is awaited

Copies of a block are equal to the bit, so the first to arrive counts. Where blocks run elsewhere, on machines of all
speeds, the longest are issued first and no place stays empty: a block that is sure to be wanted goes before shorter
ones that are wanted now, where all that is left would not outlast it by much. Threads of this process share its cores:
a second copy, or a block that nobody asked for, would only delay the end, and there are none.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from math import ceil
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any

import numpy as np

from tallbayes.watch import passed
from tallbayes.workers.executors import Executor, capacity_of, carries_several, runs_elsewhere, submit_all
from tallbayes.workers.lines import Issue, Line
from tallbayes.workers.outlook import NOTHING, Ahead, Outlook

LATE, SOON = 2.0, 0.5
MOST_COPIES = 12
# A worker may be a few times as slow as others, and what comes after the longest blocks takes its time too.
OUTLAST = 8.0
LONGEST_WAIT = 1.0
QUEUED = 4
# A task should be worth its journey, but there are several a worker while there can be.
JOURNEY_SECONDS, SHARES, MOST_TOGETHER = 0.25, 4, 64
EARLY_BYTES = 2**28
FIRST_LOOK = 2

Arrivals = SimpleQueue[Future[Any]]
Wanted = Sequence[tuple[int, range]]


def first_arrival(arrivals: Arrivals, seconds: float) -> Future[Any] | None:
    """The next future to be done; None where none is within so many seconds."""
    try:
        return arrivals.get(timeout=seconds) if seconds > 0 else arrivals.get_nowait()
    except Empty:
        return None


class Dispatcher:
    """Blocks of one problem on one executor, for as long as rounds ask for more of them.

    `task(problem, level, index)` is what runs, `price(level)` the row gradients it takes, `first_look(level)` how many
    blocks say the first that is known of a level. `wait` and `clock` are those of this world, unless a simulation has
    others; a block is `late` after so many times what others of its level took.
    """

    def __init__(
        self,
        executor: Executor,
        task: Callable[..., Any],
        problem: Any,
        price: Callable[[int], int],
        *,
        first_look: Callable[[int], int] = lambda level: FIRST_LOOK,
        late: float = LATE,
        wait: Callable[[Arrivals, float], Future[Any] | None] = first_arrival,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor, self._task, self._problem, self._price = executor, task, problem, price
        self._first_look = first_look
        self._elsewhere, self._several = runs_elsewhere(executor), carries_several(executor)
        self._late, self._wait, self._clock = late, wait, clock
        self._arrivals: Arrivals = SimpleQueue()
        self._lines: dict[int, Line] = {}
        self._under_way: dict[Future[Any], Issue] = {}
        self._journeys: Counter[int] = Counter()
        self._next_journey = 0
        self._copies: dict[tuple[int, int], list[Future[Any]]] = {}
        self._outlook: Outlook | None = None
        self._held = 0
        self._block_bytes = 0
        self._beyond = 0

    def collect(
        self, wanted: Wanted, outlook: Outlook | None = None, deadline: float = np.inf
    ) -> Iterator[tuple[int, Any]]:
        """Hand over (level, result) of every wanted block, or of those that arrive in time, by deadline and watch.

        A level's blocks come in the order of their index, and its first one after the first of the level below.
        """
        self._outlook = outlook
        for level, blocks in wanted:
            line = self._lines.setdefault(level, Line(blocks.start, blocks.start, blocks.start))
            line.end, line.known_ahead = blocks.stop, False
        self._sort()
        while True:
            self._receive(0.0)
            self._issue()
            ready = self._ready()
            if ready is not None:
                yield ready, self._hand_over(ready)
            elif all(line.complete for line in self._lines.values()):
                return
            else:
                now = self._clock()
                if now >= deadline or passed():
                    return
                self._receive(min(deadline, self._soonest_late(), now + LONGEST_WAIT) - now)

    def rest(self) -> int:
        """Cancel what is under way, and keep what has arrived; the row gradients of all that was not handed over."""
        self._receive(0.0)
        for future in list(self._under_way):
            if not future.cancel() and future.done():
                self._take_in(future)
                continue
            issue = self._departed(future)
            if issue is not None and not future.cancelled():
                self._beyond += issue.price
        self._copies.clear()
        for line in self._lines.values():
            line.awaited.clear()
            line.issued, line.kept = line.handed, set(line.arrived)
            line.skip()
        return self._beyond

    def _departed(self, future: Future[Any]) -> Issue | None:
        """Take a copy from the list of those under way."""
        issue = self._under_way.pop(future, None)
        if issue is not None:
            self._journeys[issue.journey] -= 1
            if not self._journeys[issue.journey]:
                del self._journeys[issue.journey]
        return issue

    def _sort(self) -> None:
        """Threads finish low levels first, in case the run ends early; elsewhere what takes longest begins first."""
        self._lines = dict(sorted(self._lines.items(), reverse=self._elsewhere))

    def _ready(self) -> int | None:
        """A level whose next block has arrived."""
        for level, line in self._lines.items():
            if not line.complete and line.handed in line.arrived and (line.handed > 0 or self._begun(level - 1)):
                return level
        return None

    def _begun(self, level: int) -> bool:
        return level < 0 or level not in self._lines or self._lines[level].handed > 0

    def _hand_over(self, level: int) -> Any:
        line = self._lines[level]
        future, price = line.arrived.pop(line.handed)
        line.handed += 1
        self._held -= 1
        self._beyond -= price
        return future.result()

    def _receive(self, seconds: float) -> None:
        """Take in what has arrived; wait so long for a first one where there is none."""
        future = self._wait(self._arrivals, max(seconds, 0.0))
        while future is not None:
            self._take_in(future)
            future = first_arrival(self._arrivals, 0.0)

    def _take_in(self, future: Future[Any]) -> None:
        issue = self._departed(future)
        if issue is None:
            return
        line = self._lines[issue.level]
        self._beyond += issue.price
        copies = self._copies.get((issue.level, issue.index), [])
        if future not in copies:
            return
        copies.remove(future)
        if copies and (future.cancelled() or future.exception() is not None):
            # The others may do better, but no further one is tried.
            line.awaited.pop(issue.index, None)
            return
        for other in copies:
            if other.cancel():
                self._departed(other)
        del self._copies[issue.level, issue.index]
        line.awaited.pop(issue.index, None)
        line.arrived[issue.index] = future, issue.price
        line.took.append((self._clock() - issue.since) / issue.company)
        line.usual = median(line.took)
        self._held += 1
        if self._elsewhere and not future.cancelled() and future.exception() is None:
            self._look_at(issue.level, future.result())

    def _look_at(self, level: int, result: Any) -> None:
        if not self._block_bytes:
            self._block_bytes = len(pickle.dumps(result))
        if self._outlook is not None:
            self._outlook.saw(level, result)

    def _ahead(self) -> Ahead:
        ahead = NOTHING if self._outlook is None else self._outlook.ahead()
        for level in range(len(ahead.likely)):
            if level not in self._lines:
                self._lines[level] = Line(0, 0, 0)
                self._sort()
        return ahead

    def _issue(self) -> None:
        """Fill the places, as long as what waits to be handed over stays within bounds."""
        while self._has_place():
            self._receive(0.0)
            # What waits to be wanted leaves room for what is.
            ahead = self._ahead() if 2 * self._held < self._most() else NOTHING
            missing = self._missing(ahead.sure)
            left = self._seconds_left(missing)
            late = self._late_block(ahead, left)
            level = self._wanted_level(missing, left) if late is None else None
            if level is None and late is None:
                # What waits beside a busy worker is only what is wanted: the rest would be in its way.
                if self._elsewhere and len(self._journeys) >= capacity_of(self._executor):
                    return
                level = self._more_of_sure(ahead)
                late = self._awaited_block(ahead) if level is None else None
                level = self._likely_level(ahead.likely) if level is None and late is None else level
            if late is not None:
                self._submit(late[0], range(late[1], late[1] + 1))
                continue
            if level is None:
                return
            line = self._lines[level]
            end = line.end if line.issued < line.end else ahead.likely[level]
            blocks = line.next_blocks(self._company(line, end))
            line.known_ahead = self._submit(level, blocks)[-1].done() and blocks.stop > line.end

    def _company(self, line: Line, end: float) -> int:
        """How many blocks travel together: the shorter they are the more, but every worker has several journeys."""
        if not self._several or line.usual == np.inf:
            return 1
        enough = JOURNEY_SECONDS / max(line.usual, JOURNEY_SECONDS / MOST_TOGETHER)
        return max(1, int(min(enough, (end - line.issued) / (SHARES * capacity_of(self._executor)))))

    def _has_place(self) -> bool:
        taken = len(self._journeys)
        return taken == 0 or (taken < self._places() and len(self._under_way) + self._held < self._most())

    def _places(self) -> int:
        capacity = capacity_of(self._executor)
        return capacity + ahead(capacity) if self._elsewhere else QUEUED * capacity

    def _most(self) -> int:
        """Blocks under way or held."""
        places = self._places()
        return max(2 * places, EARLY_BYTES // max(self._block_bytes, 1)) if self._elsewhere else places

    def _missing(self, sure: Sequence[float]) -> dict[int, float]:
        """Blocks by level that are wanted or sure to be, and yet to be issued; the longest first."""
        ends = {level: float(line.end) for level, line in self._lines.items()}
        for level, number in enumerate(sure):
            if not self._lines[level].known_ahead:
                ends[level] = max(ends[level], number)
        return {
            level: end - self._lines[level].issued for level, end in ends.items() if end > self._lines[level].issued
        }

    def _seconds_left(self, missing: Mapping[int, float]) -> float:
        """How long these will keep all workers busy."""
        return sum(self._usual(level) * number for level, number in missing.items()) / capacity_of(self._executor)

    def _wanted_level(self, missing: Mapping[int, float], left: float) -> int | None:
        """The level whose next block is wanted, or else will be for sure; first of all what takes long."""
        for level in missing:
            line = self._lines[level]
            if line.issued < line.end or self._usual(level) * OUTLAST >= left:
                return level
        return next(iter(missing), None)

    def _more_of_sure(self, ahead: Ahead) -> int | None:
        """The longest level that is sure to be, of which more is likely to be wanted."""
        ends, lines = self._ends(ahead), self._lines.items()
        return next((level for level, line in lines if line.issued < ends[level] and not line.known_ahead), None)

    def _likely_level(self, likely: Sequence[float]) -> int | None:
        """The level whose next block is likeliest to be wanted."""
        ahead = [level for level in range(len(likely)) if not self._lines[level].known_ahead]
        ranks = {level: rank(self._lines[level].issued, likely[level], self._first_look(level)) for level in ahead}
        best = min(ahead, key=ranks.__getitem__, default=None)
        return None if best is None or ranks[best] == np.inf else best

    def _late_block(self, ahead: Ahead, left: float) -> tuple[int, int] | None:
        """A block that is wanted or sure to be and late, in one copy, and would outlast all that is yet to begin."""
        if not self._elsewhere:
            return None
        now, ends = self._clock(), self._ends(ahead)
        for level, line in self._lines.items():
            usual = self._usual(level)
            if usual < left:
                continue
            for index, since in line.awaited.items():
                if now < since + self._late * usual:
                    break
                if index < ends[level] and len(self._copies[level, index]) == 1:
                    return level, index
        return None

    def _awaited_block(self, ahead: Ahead) -> tuple[int, int] | None:
        """Where places would be idle: the block, of the longest under way, that has been for longest; few copies each,
        what is wanted now before what will be.

        A worker may be ten times as slow as another, and the first copy to arrive counts.
        """
        if not self._elsewhere or self._late == np.inf:
            return None
        return self._worth_a_copy(self._ends(NOTHING)) or self._worth_a_copy(self._ends(ahead))

    def _ends(self, ahead: Ahead) -> dict[int, float]:
        """Up to where blocks are wanted, or likely to be of a level that is sure to come."""
        ends = {level: float(line.end) for level, line in self._lines.items()}
        for level, number in enumerate(ahead.sure):
            if number > 0:
                ends[level] = max(ends[level], ahead.likely[level])
        return ends

    def _worth_a_copy(self, ends: Mapping[int, float]) -> tuple[int, int] | None:
        now, soon = self._clock(), self._soon()
        for level, line in self._lines.items():
            patience = soon * self._usual(level)
            for index, since in line.awaited.items():
                if now < since + patience:
                    break
                copies = self._copies[level, index]
                few = len(copies) < MOST_COPIES and now >= since + len(copies) * patience
                if index < ends[level] and few and not copies[-1].done():
                    return level, index
        return None

    def _soon(self) -> float:
        """When a copy is worth a place, in what a block usually takes: sooner where over half of them are empty."""
        return SOON * min(1.0, 2 * len(self._journeys) / capacity_of(self._executor))

    def _soonest_late(self) -> float:
        """When the next block will be late, where there is a place for a copy."""
        if not self._elsewhere or self._late == np.inf or len(self._journeys) >= capacity_of(self._executor):
            return np.inf
        now, soon, soonest, ends = self._clock(), self._soon(), np.inf, self._ends(self._ahead())
        for level, line in self._lines.items():
            patience = soon * self._usual(level)
            for index, since in line.awaited.items():
                copies = len(self._copies[level, index])
                if index < ends[level] and copies < MOST_COPIES:
                    soonest = min(soonest, max(now, since + copies * patience))
        return soonest

    def _usual(self, level: int) -> float:
        """Seconds that a block of this level takes; by its price, where none has arrived but of other levels."""
        if self._lines[level].took:
            return self._lines[level].usual
        for known in sorted(self._lines, key=lambda each: abs(each - level)):
            if self._lines[known].took:
                return self._lines[known].usual * self._price(level) / self._price(known)
        return np.inf

    def _submit(self, level: int, blocks: range) -> list[Future[Any]]:
        """One more copy of each block, or its first, on one journey."""
        line, now, company = self._lines[level], self._clock(), len(blocks)
        futures = submit_all(self._executor, self._task, [(self._problem, level, index) for index in blocks])
        self._next_journey += 1
        begun = now if company == 1 else now + (company - 1) * line.usual
        for index, future in zip(blocks, futures, strict=True):
            price = 0 if future.done() else self._price(level)
            self._under_way[future] = Issue(level, index, price, self._next_journey, company, now)
            self._journeys[self._next_journey] += 1
            line.awaited.setdefault(index, begun)
            self._copies.setdefault((level, index), []).append(future)
            future.add_done_callback(self._arrivals.put)
        return futures


def ahead(workers: int) -> int:
    """How many journeys wait beside workers that are busy: one for each, or where there are many for every other.

    >>> ahead(1), ahead(2), ahead(10), ahead(1000)
    (1, 2, 8, 500)
    """
    return max(min(workers, 8), ceil(workers / 2))


def rank(index: int, likely: float, first_look: int = FIRST_LOOK) -> float:
    """How far a block is down a level of so many: the smaller, the sooner it will be wanted; beyond the end, never.

    Nothing is known of a level without its first look, which comes before all else.

    >>> rank(1, 100.0), rank(49, 100.0), rank(2, 0.0)
    (0.0, 0.5, inf)
    """
    if index < first_look:
        return 0.0
    return (index + 1) / likely if index < likely else np.inf
