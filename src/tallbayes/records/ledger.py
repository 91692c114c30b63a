"""The ledger: every finished block of paths, on disk at once, so that nothing is computed twice or lost.

    meta        what it is a ledger of: model, rows, method, quantities, versions
    configs     step sizes, batch sizes and streams, in words
    blocks      task, config, seed, level, first and last path -> moments, row gradients
    entries     by seed: set-up, tuning decisions, and which questions were asked

One SQLite file in WAL mode, one transaction a block: after kill -9 at any instant it holds every block that was
finished. A run that goes on makes the same calls as before, and those that are on record are answered from here: since
every decision is a function of blocks, it ends in the same bits. Each row has a checksum over its key and its content,
and all of them are checked when the ledger is opened.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallbayes.errors import LedgerError, explain
from tallbayes.records.values import from_bytes, to_bytes

FORMAT = "tallbayes ledger 2"
SMALLEST_FILE = 512
KEPT_KINDS = ("set-up", "decision", "question", "draws")

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE configs (id INTEGER PRIMARY KEY, config TEXT NOT NULL UNIQUE);
CREATE TABLE blocks (
    task TEXT, config INTEGER, seed TEXT, level INTEGER, first_path INTEGER, last_path INTEGER,
    items INTEGER NOT NULL, checksum INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (task, config, seed, level, first_path)
) WITHOUT ROWID;
CREATE TABLE entries (
    seed TEXT, kind TEXT, name TEXT, checksum INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (seed, kind, name)
) WITHOUT ROWID;
"""


class Ledger:
    """An open ledger; one process at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection, self._lock = connection, threading.Lock()
        self._configs: dict[str, int] = {}
        self.closed = False

    def of(self, fingerprint: dict[str, Any]) -> None:
        """Take this for the ledger of that problem; refuse if it is of another, and say what differs."""
        known = self.fingerprint
        if known is None:
            self._do("INSERT INTO meta VALUES ('fingerprint', ?)", json.dumps(fingerprint))
            return
        require_same(self.path, known, fingerprint)

    @property
    def fingerprint(self) -> dict[str, Any] | None:
        """What it is a ledger of; None while it is new."""
        known = self._one("SELECT value FROM meta WHERE name = 'fingerprint'")
        return None if known is None else json.loads(known[0])

    def find(self, task: str, config: str, seed: int, level: int, paths: range) -> bytes | None:
        """What is on record of a block of these paths."""
        key = task, self._config(config), str(seed), level, paths.start, paths.stop - 1
        query = (
            "SELECT content FROM blocks WHERE task = ? AND config = ? AND seed = ? AND level = ? AND first_path = ? "
            "AND last_path = ?"
        )
        found = self._one(query, *key)
        return None if found is None else bytes(found[0])

    def add(self, task: str, config: str, seed: int, level: int, paths: range, items: int, content: bytes) -> None:
        """Put a block on record; one that is there already is the same."""
        key = task, self._config(config), str(seed), level, paths.start, paths.stop - 1, items
        check = checksum(config, *key[:1], *key[2:], content)
        self._do("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *key, check, content)

    def entry(self, seed: int | None, kind: str, name: str) -> Any:
        """Something else that is on record."""
        query = "SELECT content FROM entries WHERE seed = ? AND kind = ? AND name = ?"
        found = self._one(query, _text(seed), kind, name)
        return None if found is None else from_bytes(bytes(found[0]))

    def enter(self, seed: int | None, kind: str, name: str, value: Any) -> None:
        content = to_bytes(value)
        row = _text(seed), kind, name, checksum(_text(seed), kind, name, content), content
        self._do("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", *row)

    def forget(self, kind: str) -> None:
        self._do("DELETE FROM entries WHERE kind = ?", kind)

    def summary(self) -> dict[str, int]:
        """How much is on record."""
        blocks, items = self._one("SELECT COUNT(*), COALESCE(SUM(items), 0) FROM blocks") or (0, 0)
        (sums,) = self._one("SELECT COUNT(*) FROM entries WHERE kind = 'sums'") or (0,)
        return {"blocks": int(blocks), "items": int(items), "sums": int(sums)}

    def merge(self, other: Path) -> int:
        """Take over all blocks of another ledger of the same problem; how many were new."""
        with open_ledger(other, must_exist=True) as theirs:
            known, own = theirs.fingerprint, self.fingerprint
            if known is not None and own is not None:
                require_same(other, known, own)
            elif known is not None:
                self.of(known)
            before = self.summary()["blocks"]
            for row in theirs._rows():
                self._take(other, *row)
            for row in theirs._connection.execute("SELECT * FROM entries"):
                if row[1] in KEPT_KINDS:
                    self._do("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?)", *row)
        return self.summary()["blocks"] - before

    def _take(self, other: Path, config: str, task: str, seed: str, level: int, first: int, *rest: Any) -> None:
        last, items, check, content = rest
        mine = self.find(task, config, int(seed), level, range(first, last + 1))
        if mine is not None and mine != bytes(content):
            hint = "machines whose compilers agree: the same jaxlib, and XLA_FLAGS=--xla_cpu_max_isa=AVX2 on all"
            where = f"{task}, level {level}, paths {first} to {last} of seed {seed}"
            raise LedgerError(explain(f"the same bits in {str(other)!r}", f"others for {where}", hint))
        row = task, self._config(config), seed, level, first, last, items, check, content
        self._do("INSERT OR IGNORE INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        query = (
            "SELECT configs.config, task, seed, level, first_path, last_path, items, checksum, content "
            "FROM blocks JOIN configs ON configs.id = blocks.config"
        )
        yield from self._connection.execute(query)

    def require_whole(self) -> None:
        """Check the file's structure and every checksum."""
        problems = [row[0] for row in self._connection.execute("PRAGMA quick_check(1)")]
        if problems != ["ok"]:
            raise _torn(self.path, str(problems[0]))
        count = 0
        for config, task, seed, level, first, last, items, check, content in self._rows():
            count += 1
            if checksum(config, task, seed, level, first, last, items, content) != check:
                raise _torn(self.path, f"other bytes than were written for {task}, level {level}, paths {first} on")
        if count != self.summary()["blocks"]:
            raise _torn(self.path, "blocks of a configuration that is not there")
        for seed, kind, name, check, content in self._connection.execute("SELECT * FROM entries"):
            if checksum(seed, kind, name, content) != check:
                raise _torn(self.path, f"other bytes than were written for the {kind} {name!r}")

    def close(self) -> None:
        """Let go of the file; what other threads finish from now on is not on record."""
        with self._lock:
            self.closed = True
            self._connection.close()

    def _config(self, config: str) -> int:
        if config not in self._configs:
            self._do("INSERT OR IGNORE INTO configs (config) VALUES (?)", config)
            found = self._one("SELECT id FROM configs WHERE config = ?", config)
            self._configs[config] = -1 if found is None else int(found[0])
        return self._configs[config]

    def _one(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        with self._lock, _told(self.path):
            return None if self.closed else self._connection.execute(query, values).fetchone()

    def _do(self, statement: str, *values: Any) -> None:
        with self._lock, _told(self.path):
            if not self.closed:
                self._connection.execute(statement, values)


@contextmanager
def open_ledger(path: str | Path, must_exist: bool = False) -> Iterator[Ledger]:
    """The ledger at a path, a new one if there is none; refused where it is torn or in use."""
    path = Path(path)
    if must_exist and not path.is_file():
        raise LedgerError(explain("a ledger", f"nothing at {str(path)!r}", "the path that was given as ledger="))
    # SQLite takes less than its own header for a new database.
    if path.is_file() and 0 < path.stat().st_size < SMALLEST_FILE:
        raise _torn(path, f"{path.stat().st_size} bytes")
    with _told(path):
        connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
    ledger = Ledger(path, connection)
    try:
        with _told(path):
            # Held by one process, and let go by the system when that is killed.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            if not tables:
                for statement in _SCHEMA.split(";")[:-1]:
                    connection.execute(statement)
                connection.execute("INSERT INTO meta VALUES ('format', ?)", (FORMAT,))
            elif "entries" not in tables:
                raise _torn(path, "a database that is no ledger")
            connection.execute("COMMIT")
            (form,) = ledger._one("SELECT value FROM meta WHERE name = 'format'") or ("nothing",)
            if form != FORMAT:
                raise LedgerError(explain(repr(FORMAT), repr(form), "the version of tallbayes that wrote it"))
            ledger.require_whole()
        yield ledger
    finally:
        ledger.close()


def merge_ledgers(into: str | Path, *others: str | Path) -> int:
    """Put all blocks of the others on record in the first, which may be new; how many it did not have.

    They must be of the same problem: same model, rows, method and versions. Seeds may differ.

    >>> merge_ledgers("all.ledger", "monday.ledger", "tuesday.ledger")  # doctest: +SKIP
    1024
    """
    with open_ledger(into) as ledger:
        return sum(ledger.merge(Path(other)) for other in others)


def require_same(path: Path, known: dict[str, Any], asked: dict[str, Any]) -> None:
    """Refuse another problem, and name every difference."""
    differences = [
        f"{name} {_short(known.get(name))} there, {_short(asked.get(name))} here"
        for name in sorted({*known, *asked})
        if known.get(name) != asked.get(name)
    ]
    if differences:
        hint = "another ledger for this problem, or the model, data and versions of that one"
        raise LedgerError(explain(f"a ledger of this problem at {str(path)!r}", "; ".join(differences), hint))


def _short(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    is_digest = len(text) == 64 and all(each in "0123456789abcdef" for each in text)
    return text[:12] if is_digest else text


def checksum(*parts: Any) -> int:
    """Of a row: its key and its content."""
    total = 0
    for part in parts:
        total = zlib.crc32(part if isinstance(part, bytes) else f"{part}\x1f".encode(), total)
    return total


def _text(seed: int | None) -> str:
    return "" if seed is None else str(seed)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            hint = "wait until the other run has ended, or another ledger"
            raise LedgerError(explain(f"a ledger at {str(path)!r} that is free", "one in use", hint)) from error
        hint = "a folder that exists, can be written and has space left"
        raise LedgerError(explain(f"a ledger at {str(path)!r}", str(error), hint)) from error
    except sqlite3.DatabaseError as error:
        raise _torn(path, str(error)) from error


def _torn(path: Path, got: str) -> LedgerError:
    hint = "a copy of it from before, or another ledger to begin anew: nothing of this one was used"
    return LedgerError(explain(f"a whole ledger at {str(path)!r}", got, hint))
