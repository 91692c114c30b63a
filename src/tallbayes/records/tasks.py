"""Records: how tasks are found in a ledger, and written into it before anyone sees their results.

A `Recorded` executor takes the same tasks as any other. What is on record it answers at once; the rest it hands on. A
block is known by its task, seed, level and number, and by the configuration in words; sums over rows, by the point and
the rows, until set-up is on record as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np

from tallbayes.anchor.expansion import Bound, row_sums
from tallbayes.estimator.decisions import Decision
from tallbayes.moments import Moments
from tallbayes.records.ledger import Ledger
from tallbayes.sampler.levels import (
    BLOCK_PATHS,
    LevelBlock,
    Problem,
    sample_contraction,
    sample_differences,
    sample_level,
)
from tallbayes.workers.executors import Executor, capacity_of, carries_several, runs_elsewhere, submit_all

# Larger sums over a chunk of rows are not kept where there are many chunks; of a pass, no more than so many bytes.
MOST_SUMS = 2**15
MOST_OF_A_PASS = 2**24


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
        records = [_record(task, each, self.kept_bytes) for each in arguments]
        known = [None if record is None else record.find(self.ledger) for record in records]
        sent = iter(submit_all(self.executor, task, [a for a, k in zip(arguments, known, strict=True) if k is None]))
        return [
            self._recorded(record, next(sent)) if found is None else _done(found)
            for record, found in zip(records, known, strict=True)
        ]

    def _recorded(self, record: Any, under_way: Future[Any]) -> Future[Any]:
        """A future that is done once the result is on record."""
        if record is None:
            return under_way
        answer: Future[Any] = Future()
        answer.add_done_callback(lambda done: under_way.cancel() if done.cancelled() else None)
        under_way.add_done_callback(partial(self._finish, record, answer))
        return answer

    def _finish(self, record: Any, answer: Future[Any], under_way: Future[Any]) -> None:
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


def _record(task: Callable[..., Any], arguments: tuple[Any, ...], kept_bytes: float) -> Any:
    """How a task is kept; None for those that are not."""
    subject = arguments[0] if arguments else None
    if isinstance(subject, Problem):
        if task is sample_level:
            _, level, block = arguments
            return _LevelRecord(subject, level, block, kept_bytes)
        if task in (sample_contraction, sample_differences):
            return _ArrayRecord(task, subject, arguments[1:])
    if isinstance(subject, Bound) and task is row_sums:
        return _SumsRecord.of(arguments)
    return None


class _LevelRecord:
    """Moments of a block of a level; with the ends of its paths where a run may keep them."""

    def __init__(self, problem: Problem, level: int, block: int, kept_bytes: float) -> None:
        self.problem, self.kept_bytes = problem, kept_bytes
        self.key = "level", config_of(problem), problem.seed, level, block

    def find(self, ledger: Ledger) -> LevelBlock | None:
        content = ledger.find(*self.key)
        return None if content is None else read_block(content, self.problem.pairs, self.kept_bytes, self.key[-1])

    def write(self, ledger: Ledger, block: LevelBlock) -> None:
        ledger.add(*self.key, block.evaluations, write_block(block, self.kept_bytes, self.key[-1]))


class _ArrayRecord:
    """An array of numbers by path."""

    def __init__(self, task: Callable[..., Any], problem: Problem, arguments: tuple[Any, ...]) -> None:
        config = config_of(problem)
        if task is sample_differences:
            level, block = arguments
            self.key = "differences", config, problem.seed, level, block
            self.items = BLOCK_PATHS * problem.evaluations(level)
        else:
            block, *spread = arguments
            self.key = "contraction", f"{config}, spread {spread}", problem.seed, 0, block
            self.items = BLOCK_PATHS * problem.contraction_evaluations()

    def find(self, ledger: Ledger) -> np.ndarray | None:
        content = ledger.find(*self.key)
        if content is None:
            return None
        return np.frombuffer(content, np.float64).reshape(BLOCK_PATHS, -1).copy()

    def write(self, ledger: Ledger, values: np.ndarray) -> None:
        ledger.add(*self.key, self.items, np.ascontiguousarray(values, np.float64).tobytes())


class _SumsRecord:
    """Sums over a chunk of rows, until set-up is on record as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def of(cls, arguments: tuple[Any, ...]) -> _SumsRecord | None:
        bound, theta, start, stop, curvature = arguments
        if 8 * theta.size**curvature.value > max(MOST_SUMS, MOST_OF_A_PASS // len(bound.table.chunks())):
            return None
        point = sha256(np.ascontiguousarray(theta, np.float64).tobytes()).hexdigest()
        return cls(f"{point} {start} {stop} {curvature.name}")

    def find(self, ledger: Ledger) -> tuple[np.ndarray, ...] | None:
        return ledger.entry(None, "sums", self.name)

    def write(self, ledger: Ledger, sums: tuple[np.ndarray, ...]) -> None:
        ledger.enter(None, "sums", self.name, sums)


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


def config_of(problem: Problem) -> str:
    """What tells blocks of one problem apart besides seed, level and number."""
    plan = problem.plan
    listed = "" if problem.ground.listing is None else f", {problem.ground.listing.length} listed"
    return (
        f"{plan.gradient!r} of {problem.batch_size}, {plan.dynamics!r}, {plan.coupling!r}, {problem.ladder!r}, "
        f"{plan.dtype}, {'from Laplace' if plan.laplace else 'from the mode'}, stream {problem.stream}{listed}"
    )


_HEAD = struct.Struct("<9q2d")


def write_block(block: LevelBlock, kept_bytes: float, number: int) -> bytes:
    """All numbers of a block, as they are; of where its paths ended, only what a run would keep."""
    shape = (0, 0, 0, 0) if block.points is None else block.points.shape
    keeps = block.points is not None and number * block.points.nbytes < kept_bytes
    counts = len(block.delta.mean), len(block.delta.cosum), *shape, keeps, block.nonfinite, block.evaluations
    head = _HEAD.pack(*counts, block.farthest, block.strained)
    parts = [np.concatenate(_arrays(each)).astype(np.float64) for each in (block.delta, block.fine, block.coarse)]
    tail = np.ascontiguousarray(block.points, np.float32).tobytes() if keeps else b""
    return head + b"".join(part.tobytes() for part in parts) + tail


def read_block(content: bytes, pairs: tuple[tuple[int, int], ...], kept_bytes: float, number: int) -> LevelBlock | None:
    """What `write_block` was given; None where ends of paths are wanted that were left out."""
    size, paired, *shape, kept, nonfinite, evaluations, farthest, strained = _HEAD.unpack_from(content)
    if not kept and prod(shape) and number * 4 * prod(shape) < kept_bytes:
        return None
    widths = 4 * size + paired, 4 * size, 4 * size
    numbers = np.frombuffer(content, np.float64, sum(widths), _HEAD.size).copy()
    delta, fine, coarse = np.split(numbers, np.cumsum(widths)[:-1])
    points = None
    if kept:
        points = np.frombuffer(content, np.float32, prod(shape), _HEAD.size + 8 * sum(widths)).reshape(shape).copy()
    return LevelBlock(
        delta=_moments(delta, size, pairs),
        fine=_moments(fine, size, ()),
        coarse=_moments(coarse, size, ()),
        nonfinite=nonfinite,
        farthest=farthest,
        strained=strained,
        evaluations=evaluations,
        points=points,
    )


def _arrays(moments: Moments) -> list[np.ndarray]:
    return [moments.mean, moments.sum2, moments.sum3, moments.sum4, moments.cosum]


def _moments(numbers: np.ndarray, size: int, pairs: tuple[tuple[int, int], ...]) -> Moments:
    mean, sum2, sum3, sum4, cosum = np.split(numbers, [size, 2 * size, 3 * size, 4 * size])
    return Moments(BLOCK_PATHS, mean, sum2, sum3, sum4, pairs, cosum)
