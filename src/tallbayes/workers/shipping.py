"""Shipping: tasks for workers in other processes, which share files with this one and nothing else.

A task is task(subject, *arguments). What is heavy in its subject (program, centre, list of rows) is a parcel that each
worker opens once; the rows it opens by their path and maps. With a task travel the parcel's name and a few numbers,
and back come kilobytes of moments. Functions of users travel by value, with cloudpickle.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import InputError, WorkerError, explain, require_extra
from tallbayes.programs.canary import require_sound
from tallbayes.programs.later import jax
from tallbayes.rows.atomic import replacing
from tallbayes.rows.listing import Listing, mapped_listing
from tallbayes.rows.on_disk import Stored, map_table, open_table
from tallbayes.rows.table import Table
from tallbayes.workers.executors import Executor, capacity_of

MOST_INLINE = 2**16
KEPT_GROUNDS = 4
SECONDS_TO_ANSWER = 60.0
SECONDS_BETWEEN_COUNTS = 0.5


@dataclass(frozen=True)
class Parcel:
    """Something heavy by its name: its bytes, or the file that holds them."""

    name: str
    content: bytes | None
    path: str | None


@dataclass(frozen=True, eq=False)
class TableAt:
    """A table by its place on disk."""

    path: str
    digest: str
    names: Any
    units: Any


@dataclass(frozen=True, eq=False)
class ListingAt:
    """A list of rows by its place on disk."""

    path: str
    digest: str


class Shipping:
    """An executor of other processes, as one that takes the same tasks as threads do."""

    elsewhere = carries_several = True

    def __init__(self, executor: Executor, folder: Path) -> None:
        self.executor, self.folder = executor, folder
        self._parcels: list[tuple[Any, Parcel]] = []
        self._client = getattr(executor, "_client", None)
        self._counted, self._places = -np.inf, 1

    def submit(self, task: Callable[..., Any], /, subject: Any, *arguments: Any) -> Future[Any]:
        return self._send(run_parcel, task, subject, arguments)

    def submit_all(self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Future[Any]]:
        """Tasks of one subject, on one journey; what a worker does not get to because one fails is sent again."""
        subject = arguments[0][0]
        parts: list[Future[Any]] = [Future() for _ in arguments]
        journey = self._send(run_together, task, subject, [each[1:] for each in arguments])

        def unload(done: Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                for part in parts:
                    _follow(part, done)
                return
            results = done.result()
            for part, result in zip(parts, results, strict=False):
                if part.set_running_or_notify_cancel():
                    part.set_result(result)
            for part, each in list(zip(parts, arguments, strict=True))[len(results) :]:
                try:
                    self.submit(task, *each).add_done_callback(partial(_follow, part))
                except Exception as error:
                    # Nobody sees what a callback raises: the part would be waited for in vain.
                    if part.set_running_or_notify_cancel():
                        part.set_exception(error)

        def give_up(part: Future[Any]) -> None:
            if part.cancelled() and all(each.cancelled() for each in parts):
                journey.cancel()

        for part in parts:
            part.add_done_callback(give_up)
        journey.add_done_callback(unload)
        return parts

    def _send(self, run: Callable[..., Any], task: Callable[..., Any], subject: Any, arguments: Any) -> Future[Any]:
        ground = getattr(subject, "ground", subject)
        light = None if ground is subject else replace(subject, ground=None)
        whole = self._parcel(ground), task, light, arguments
        if self._client is None:
            return _apart(self.executor.submit(run, *whole))
        return submit_to_dask(self._client, run, *whole)

    def capacity(self) -> int:
        if self._client is None:
            return capacity_of(self.executor)
        if time.monotonic() - self._counted > SECONDS_BETWEEN_COUNTS:
            self._places = sum(self._client.nthreads().values())
            self._counted = time.monotonic()
        return max(1, self._places)

    def _parcel(self, ground: Any) -> Parcel:
        for known, parcel in self._parcels:
            if known is ground or _same(known, ground):
                return parcel
        parcel = pack(ground, self.folder)
        self._parcels.append((ground, parcel))
        return parcel


def submit_to_dask(client: Any, task: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
    """As `client.get_executor()` does, but one that is cancelled is let go of without a word.

    Dask takes equal tasks for one unless told; a block that is late is asked for twice.
    """
    future, mirror = client.submit(task, *arguments, pure=False), Future[Any]()

    async def follow() -> None:
        try:
            result = await future._result()
        except CancelledError:
            mirror.cancel()
        except BaseException as error:
            if mirror.set_running_or_notify_cancel():
                mirror.set_exception(error)
        else:
            if mirror.set_running_or_notify_cancel():
                mirror.set_result(result)

    mirror.add_done_callback(lambda done: future.release() if done.cancelled() else None)
    client.loop.add_callback(follow)
    return mirror


def _apart(theirs: Future[Any]) -> Future[Any]:
    """A future of our own that ends as theirs does, and can be cancelled without a word to them.

    In a process pool that breaks down, one cancelled future stops Python 3.11 from telling the others that it has: they
    would be waited for without end. What is given up may run in vain; it is no more than waits beside the workers.
    """
    ours: Future[Any] = Future()
    theirs.add_done_callback(partial(_follow, ours))
    return ours


def _follow(part: Future[Any], done: Future[Any]) -> None:
    """Let one future end as another has."""
    if done.cancelled():
        part.cancel()
    elif part.set_running_or_notify_cancel():
        failure = done.exception()
        if failure is None:
            part.set_result(done.result())
        else:
            part.set_exception(failure)


def _same(one: Any, other: Any) -> bool:
    """Whether two grounds have the same parts."""
    return type(one) is type(other) and all(
        getattr(one, name) is getattr(other, name) for name in type(one).__dataclass_fields__
    )


def pack(ground: Any, folder: Path) -> Parcel:
    """A parcel of a ground whose table is on disk."""
    light = replace(ground, table=_table_at(ground.table))
    if getattr(ground, "listing", None) is not None:
        light = replace(light, listing=_listing_at(ground.listing))
    if hasattr(ground, "anchor"):
        # Roots of matrices differ by rounding between machines: those of this one travel.
        light = replace(light, anchor=ground.anchor.with_derived())
    with jax.enable_x64(True):
        content = _cloudpickle().dumps(light)
    name = sha256(content).hexdigest()
    if len(content) <= MOST_INLINE:
        return Parcel(name, content, None)
    path = folder / f"{name[:16]}.parcel"
    try:
        with replacing(path) as partial:
            partial.write_bytes(content)
    except OSError:
        return Parcel(name, content, None)
    return Parcel(name, None, str(path.absolute()))


def _table_at(table: Table) -> TableAt:
    units = jax.tree.map(np.asarray, table.units)
    return TableAt(str(table.stored.path), table.stored.digest, table.names, units)


def _listing_at(listing: Listing) -> Listing | ListingAt:
    return listing if listing.stored is None else ListingAt(str(listing.stored.path), listing.stored.digest)


_GROUNDS: dict[str, Any] = {}
_OPENING = threading.Lock()


def run_parcel(parcel: Parcel, task: Callable[..., Any], light: Any, arguments: tuple[Any, ...]) -> Any:
    """The task, in a worker."""
    # Read when XLA starts: one worker's programs are for one core.
    os.environ.setdefault("NPROC", "1")
    ground = _opened(parcel)
    return task(ground if light is None else replace(light, ground=ground), *arguments)


def run_together(
    parcel: Parcel, task: Callable[..., Any], light: Any, arguments: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Results of one task after the other, up to the first that fails."""
    results: list[Any] = []
    for each in arguments:
        try:
            results.append(run_parcel(parcel, task, light, each))
        except Exception:
            break
    return results


def _opened(parcel: Parcel) -> Any:
    """The ground, opened once and kept."""
    with _OPENING:
        if parcel.name not in _GROUNDS:
            while len(_GROUNDS) >= KEPT_GROUNDS:
                _GROUNDS.pop(next(iter(_GROUNDS)))
            require_sound()
            _GROUNDS[parcel.name] = _unpack(parcel)
        return _GROUNDS[parcel.name]


def _unpack(parcel: Parcel) -> Any:
    try:
        content = parcel.content if parcel.path is None else Path(parcel.path).read_bytes()
        with jax.enable_x64(True):
            ground = _cloudpickle().loads(content)
        listing = getattr(ground, "listing", None)
        if isinstance(listing, ListingAt):
            ground = replace(ground, listing=mapped_listing(_open(listing.path, listing.digest)))
        at = ground.table
        return replace(ground, table=map_table(_open(at.path, at.digest), at.names, at.units))
    except Exception as error:
        where = f"worker {os.getpid()} on {socket.gethostname()}"
        hint = "a folder that all workers see under the same path, and the same packages on all of them"
        got = f"{where}: {type(error).__name__}: {error}".rstrip(".")
        raise WorkerError(explain("workers that can open the table and the problem", got, hint)) from None


def _open(path: str, digest: str) -> Stored:
    stored = open_table(path, verify=False)
    if stored.digest == digest:
        return stored
    # It may have grown since the problem was sent.
    older = [] if stored.withdrawals else [stored.as_of(count) for count in range(len(stored.segments) - 1, 0, -1)]
    found = next((each for each in older if each.digest == digest), None)
    if found is None:
        raise WorkerError(explain(f"the table {digest[:12]} at {path!r}", f"{stored.digest[:12]}", "one copy for all"))
    return found


def _cloudpickle() -> Any:
    return require_extra("cloudpickle", "dask", "workers in other processes, here and where they are")


def is_elsewhere(executor: Executor) -> bool:
    """Ask a worker whether it is this process."""
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        hint = "ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))"
        raise InputError(explain("processes that are spawned", "a pool that forks, which XLA does not survive", hint))
    if getattr(executor, "_client", None) is not None:
        return True
    try:
        return executor.submit(_place).result(SECONDS_TO_ANSWER) != _place()
    except TimeoutError as error:
        got = f"no answer in {SECONDS_TO_ANSWER:.0f} s"
        raise WorkerError(explain("a worker that answers", got, "start workers first")) from error


def _place() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


@contextmanager
def told_plainly() -> Iterator[None]:
    """What breaks an executor down, as one error of ours."""
    try:
        yield
    except Exception as error:
        theirs = type(error).__module__.partition(".")[0] in ("distributed", "dask")
        if not theirs and not isinstance(error, BrokenExecutor):
            raise
        hint = "look at the workers' own logs; with ledger= the same call goes on from the last block"
        got = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(". ")
        raise WorkerError(explain("an executor that runs to the end", got, hint)) from error
