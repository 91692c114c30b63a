"""Records: how tasks are found in a ledger, and written into it before anyone sees their results.

A `Recorded` executor takes the same tasks as any other. What is on record it answers at once; the rest it hands on.
Where a task's result is kept, and how it is written and read, the task says itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from tallbayes.estimator.decisions import Decision
from tallbayes.records.ledger import Ledger
from tallbayes.workers.executors import Executor, capacity_of, carries_several, runs_elsewhere, submit_all
from tallbayes.workers.tasks import Record


class Recorded:
    """An executor whose results are on record before anyone sees them, and which runs nothing that is."""

    def __init__(self, executor: Executor, ledger: Ledger, kept_bytes: float) -> None:
        self.executor, self.ledger, self.kept_bytes = executor, ledger, kept_bytes

    @property
    def elsewhere(self) -> bool:
        return runs_elsewhere(self.executor)

    def capacity(self) -> int:
        return capacity_of(self.executor)

    @property
    def carries_several(self) -> bool:
        return carries_several(self.executor)

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        return self.submit_all(task, [arguments])[0]

    def submit_all(self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Future[Any]]:
        """What is not on record is sent on together."""
        keeps = getattr(task, "record", None)
        records = [None if keeps is None else keeps(self.kept_bytes, *each) for each in arguments]
        known = [None if record is None else record.find(self.ledger) for record in records]
        sent = iter(submit_all(self.executor, task, [a for a, k in zip(arguments, known, strict=True) if k is None]))
        return [
            self._recorded(record, next(sent)) if found is None else _done(found)
            for record, found in zip(records, known, strict=True)
        ]

    def _recorded(self, record: Record | None, under_way: Future[Any]) -> Future[Any]:
        """A future that is done once the result is on record."""
        if record is None:
            return under_way
        answer: Future[Any] = Future()
        answer.add_done_callback(lambda done: under_way.cancel() if done.cancelled() else None)
        under_way.add_done_callback(partial(self._finish, record, answer))
        return answer

    def _finish(self, record: Record, answer: Future[Any], under_way: Future[Any]) -> None:
        if under_way.cancelled():
            answer.cancel()
            return
        failure = under_way.exception()
        if failure is None:
            try:
                record.write(self.ledger, under_way.result())
            except Exception as error:
                failure = error
        if not answer.set_running_or_notify_cancel():
            return
        if failure is None:
            answer.set_result(under_way.result())
        else:
            answer.set_exception(failure)


def _done(result: Any) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_result(result)
    return answer


class Kept:
    """The decisions of one seed's run: followed as far as they are on record, and added to from there."""

    def __init__(self, ledger: Ledger, seed: int, goal: str) -> None:
        self.ledger, self.seed, self._next = ledger, seed, 0
        self.settled = self._begin(goal)

    def settle(self, find: Callable[[], Decision]) -> Decision:
        name = f"{self._question}.{self._next}"
        self._next += 1
        known = self.ledger.entry(self.seed, "decision", name)
        if known is None:
            known = find()
            self.ledger.enter(self.seed, "decision", name, known)
        return known

    def _begin(self, goal: str) -> tuple[Decision, ...]:
        """Find the question among those that were asked, or ask it anew from what the last one has settled."""
        asked = 0
        while (known := self.ledger.entry(self.seed, "question", str(asked))) is not None:
            if known["goal"] == goal:
                self._question = asked
                return tuple(known["settled"])
            asked += 1
        settled = self._decisions(asked - 1) if asked else ()
        self._question = asked
        self.ledger.enter(self.seed, "question", str(asked), {"goal": goal, "settled": settled})
        return settled

    def _decisions(self, question: int) -> tuple[Decision, ...]:
        before = self.ledger.entry(self.seed, "question", str(question))["settled"]
        found = list(before)
        while (known := self.ledger.entry(self.seed, "decision", f"{question}.{len(found) - len(before)}")) is not None:
            found.append(known)
        return tuple(found)
