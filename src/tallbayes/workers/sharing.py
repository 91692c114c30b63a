"""Hiring: whoever runs the blocks, as an executor that takes our tasks, with the rows where it can read them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallbayes.errors import InputError, explain
from tallbayes.rows.on_disk import spill
from tallbayes.rows.table import Table
from tallbayes.watch import aside
from tallbayes.workers.executors import Executor, Watched, default_executor
from tallbayes.workers.shipping import Shipping, is_elsewhere, told_plainly


@dataclass(frozen=True, eq=False)
class Hired:
    """An executor, the table as its workers can open it, and a folder that lasts as long as it does."""

    executor: Executor
    table: Table
    folder: Path
    elsewhere: bool


@contextmanager
def hire(executor: Any, table: Table) -> Iterator[Hired]:
    """Threads of this process if None. For other processes, rows in memory are written to disk first."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        hint = "concurrent.futures.ThreadPoolExecutor(4), or dask's client.get_executor()"
        raise InputError(explain("an executor with a submit method", repr(executor), hint))
    with _folder_beside(table) as folder:
        if executor is None:
            threads = default_executor()
            try:
                yield Hired(threads, table, folder, False)
            finally:
                # What is still under way was given up by whoever waited for it.
                threads.shutdown(wait=False, cancel_futures=True)
            return
        with told_plainly():
            if not aside(is_elsewhere, executor):
                yield Hired(Watched(executor), table, folder, False)
                return
            on_disk = table.stored is not None and table.stored.path.is_dir()
            shared = table if on_disk else aside(spill, table, folder)
            yield Hired(Shipping(executor, folder), shared, folder, True)


@contextmanager
def _folder_beside(table: Table) -> Iterator[Path]:
    """A new folder, beside a table on disk if that can be: whoever sees the one sees the other."""
    beside = None if table.stored is None else table.stored.path.parent
    try:
        made = tempfile.mkdtemp(prefix=".tallbayes-", dir=beside)
    except OSError:
        made = tempfile.mkdtemp(prefix="tallbayes-")
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)
