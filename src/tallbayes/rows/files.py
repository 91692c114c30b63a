"""Files: which ones are meant by paths, folders and patterns, and what their columns are, before any row is read.

>>> [file.name for file in list_files("no/such/*.csv")]
Traceback (most recent call last):
tallbayes.errors.DataError: expected files; got nothing at 'no/such/*.csv'. Try: check the path or the pattern.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from tallbayes.errors import DataError, TableError, explain
from tallbayes.rows.formats import SUFFIXES, format_of, is_compressed, reading
from tallbayes.rows.packing import kind_of_type, merged
from tallbayes.rows.sources import open_source

# A guess is enough: of how many times its size a compressed file is.
COMPRESSION = 6


@dataclass(frozen=True)
class File:
    """A file of rows, and what changes when it does."""

    path: Path
    size: int
    modified: int

    @property
    def label(self) -> str:
        return repr(self.path.name)

    def stamp(self) -> list[Any]:
        return [str(self.path), self.size, self.modified]

    def require_unchanged(self) -> None:
        """Refuse a file whose rows may be others than those read before."""
        if look_at(self.path) != self:
            raise changed(self)


def changed(file: File) -> TableError:
    got, hint = "another size or time of change", "overwrite=True to start anew"
    return TableError(explain(f"{str(file.path)!r} as it was when this ingest began", got, hint))


def look_at(path: Path) -> File:
    try:
        found = path.stat()
    except OSError:
        # The reader of files knows what to say of those that are not there.
        open_source(path)
        raise
    return File(path, found.st_size, found.st_mtime_ns)


def list_files(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[File]:
    """The files of paths, of folders in sorted order, and of patterns such as "2024-*.csv"."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found = [Path(os.path.abspath(path)) for each in given for path in _expand(os.fspath(each))]
    if not found:
        raise DataError(explain("at least one file", "none", 'ingest("flights.csv", "flights.table")'))
    twice = [str(path) for path, count in Counter(found).items() if count > 1]
    if twice:
        raise DataError(explain("every file once", f"{twice[0]!r} twice", "name it once: rows would count twice"))
    return [look_at(path) for path in found]


def _expand(given: str) -> list[str]:
    if os.path.isdir(given):
        found = sorted(os.path.join(given, name) for name in os.listdir(given) if _is_known(name))
        if not found:
            got = "none of them"
            raise DataError(explain(f"files ending in {', '.join(SUFFIXES)} in {given!r}", got, "check the folder"))
        return found
    if has_magic(given) and not os.path.exists(given):
        found = sorted(glob(given, recursive=True))
        if not found:
            raise DataError(explain("files", f"nothing at {given!r}", "check the path or the pattern"))
        return found
    return [given]


def _is_known(name: str) -> bool:
    try:
        return not name.startswith((".", "_")) and bool(format_of(Path(name)))
    except DataError:
        return False


def shared_columns(files: list[File], columns: Sequence[str] | None) -> dict[str, str]:
    """The columns wanted, in their order, and their kinds; files that do not agree are refused by name."""
    kinds: dict[str, str] = {}
    for number, file in enumerate(files):
        source = open_source(file.path)
        if not number:
            wanted = list(dict.fromkeys(source.names if columns is None else columns))
            if not wanted:
                raise DataError(explain("at least one column", "none", f"those of {file.label}"))
        source.require(wanted)
        extra = [name for name in source.names if name not in wanted] if columns is None else []
        if extra:
            got = f"{extra[0]!r} in {file.label}, which {files[0].label} does not have"
            raise DataError(explain("the same columns in all files", got, "name those to keep: columns=[...]"))
        with reading(file.path):
            schema = format_of(file.path).schema(file.path)
        for name, type_ in zip(schema.names, schema.types, strict=True):
            if name in wanted:
                kinds[name] = merged(kinds.get(name, ""), kind_of_type(name, type_, file.label), name, file.label)
    return {name: kinds[name] for name in wanted}


def packed_bytes(file: File, row_bytes: int) -> float:
    """About how many bytes the packed rows of a file take: of Parquet exactly, of others about as many as the file."""
    num_rows = format_of(file.path).num_rows
    if num_rows is not None:
        return float(num_rows(file.path)) * row_bytes
    return file.size * (COMPRESSION if is_compressed(file.path) else 1.0)
