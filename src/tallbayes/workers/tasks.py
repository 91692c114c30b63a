"""Tasks: functions of a subject and a few numbers, some of which say where their results are kept.

task(subject, *arguments)                            computed by a worker, wherever that is
task.record(kept_bytes, subject, *arguments)         its record, or None; a task without `record` is never kept
"""

from __future__ import annotations

from typing import Any, Protocol


class Book(Protocol):
    """What is on record: blocks of paths by kind, configuration, seed, level and number; and entries by name."""

    def find(self, task: str, config: str, seed: int, level: int, paths: range) -> bytes | None: ...

    def add(self, task: str, config: str, seed: int, level: int, paths: range, items: int, content: bytes) -> None: ...

    def entry(self, seed: int | None, kind: str, name: str) -> Any: ...

    def enter(self, seed: int | None, kind: str, name: str, value: Any) -> None: ...


class Record(Protocol):
    """One result in a book."""

    def find(self, book: Book) -> Any:
        """The result, or None where it is not on record."""
        ...

    def write(self, book: Book, result: Any) -> None: ...
