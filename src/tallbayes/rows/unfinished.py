"""A table in the making: a folder beside its place, which it takes when it is whole.

    OUT.partial/lock           held by the process that works on it
    OUT.partial/*.json         journals: how far the work has come
    OUT.partial/buckets/       rows that are dealt and not yet in order
    OUT.partial/table/         the files of the table to be

Rows that are put behind those of a table, `onto`, are made in OUT.append in the same way, and copied at last.

A journal is written beside and renamed, after the disk holds what it tells of, so that work can go on after any
interruption. It is written every ten seconds, or so seldom that it costs a twentieth of the time.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallbayes.errors import TableError, explain
from tallbayes.rows.atomic import alone, replacing, sync_file, writing
from tallbayes.rows.on_disk import Stored, open_table, seal
from tallbayes.rows.segments.behind import changing, put_behind
from tallbayes.rows.segments.redo import HEADER

JOURNAL_SECONDS = 10.0
JOURNAL_SHARE = 0.05


@dataclass(frozen=True)
class Making:
    """A look at a table in the making: the stage, the share of it that is done, and what has gone through."""

    stage: str
    share: float
    rows: int
    bytes: int
    seconds: float
    resumed: bool = False


Look = Callable[[Making], None]


@dataclass
class Unfinished:
    """The folder of a table in the making; `begun` says that somebody was at work there before, and `touched` that
    something may stand behind the rows of `onto`."""

    final: Path
    onto: Stored | None = None
    begun: bool = False
    touched: bool = False
    written: float = field(default_factory=time.monotonic)
    pause: float = field(default_factory=lambda: JOURNAL_SECONDS)

    @property
    def folder(self) -> Path:
        return self.final.with_name(f"{self.final.name}.{'partial' if self.onto is None else 'append'}")

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def buckets(self) -> Path:
        return self.folder / "buckets"

    def clear(self) -> None:
        """Start anew."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()
        self.table.mkdir()
        self.buckets.mkdir()

    def discard(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.table if self.touched else self.folder, ignore_errors=True)

    def read(self, name: str) -> dict[str, Any] | None:
        """A journal, if there is a whole one."""
        try:
            found = json.loads((self.folder / f"{name}.json").read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def due(self) -> bool:
        return time.monotonic() - self.written >= self.pause

    def write(self, name: str, document: Mapping[str, Any], started: float) -> None:
        """Write a journal; `started` is when the files it tells of began to be synced."""
        with replacing(self.folder / f"{name}.json") as partial:
            partial.write_text(json.dumps(document))
            sync_file(partial)
        sync_file(self.folder)
        self.written = time.monotonic()
        self.pause = max(JOURNAL_SECONDS, (self.written - started) / JOURNAL_SHARE)

    def seal(self, made: Stored) -> Stored:
        """Put the table in its place, and remove what was needed to make it."""
        self.touched = self.onto is not None
        stored = seal(made, self.final) if self.onto is None else put_behind(self.onto, made, refill=self.begun)
        self.touched = False
        self.discard()
        return stored


@contextmanager
def unfinished_table(out: str | os.PathLike[str], overwrite: bool) -> Iterator[Unfinished]:
    """The folder for the work, locked; a place that is taken or cannot be written is a TableError."""
    final = Path(os.path.abspath(out))
    if os.path.lexists(final):
        _require_replaceable(final, overwrite)
    if not final.parent.is_dir():
        hint = f"mkdir -p {final.parent}"
        raise TableError(explain(f"a folder to put {final.name!r} in", f"no folder {str(final.parent)!r}", hint))
    work = Unfinished(final)
    _make_folders(work)
    with _locked(work):
        yield work


@contextmanager
def unfinished_segment(table: str | os.PathLike[str]) -> Iterator[Unfinished]:
    """The folder for rows that are to stand behind those of a table, which nobody else changes meanwhile."""
    with changing(table) as stored:
        work = Unfinished(stored.path, stored)
        work.begun = work.folder.is_dir()
        _make_folders(work)
        yield work


def _make_folders(work: Unfinished) -> None:
    with writing(work.final.parent):
        work.folder.mkdir(exist_ok=True)
        work.table.mkdir(exist_ok=True)
        work.buckets.mkdir(exist_ok=True)


def finished_before(out: str | os.PathLike[str], asked: Mapping[str, Any]) -> Stored | None:
    """The very table that is asked for, whose maker was stopped after its last step but one: to clear its work away."""
    work = Unfinished(Path(os.path.abspath(out)))
    if work.table.exists() or not work.folder.is_dir() or not (work.final / HEADER).is_file():
        return None
    shutil.rmtree(work.folder, ignore_errors=True)
    stored = open_table(work.final)
    found = stored.source or {}
    return stored if {name: found.get(name) for name in asked} == dict(asked) else None


def _require_replaceable(final: Path, overwrite: bool) -> None:
    is_table = (final / HEADER).is_file() and not final.is_symlink()
    if not overwrite:
        hint = "another place, or overwrite=True to replace that table" if is_table else "another place, or remove it"
        raise TableError(explain("a new folder for the table", f"{str(final)!r}, which exists", hint))
    # What else is there may be dear to somebody.
    if not is_table:
        hint = "another place, or remove it yourself"
        raise TableError(explain("a table to replace", f"{str(final)!r}, which is none", hint))


@contextmanager
def _locked(work: Unfinished) -> Iterator[None]:
    lock = work.folder / "lock"
    with writing(work.folder):
        lock.touch()
    with alone(lock):
        yield
