"""The command `ingest`: what it tells while a table is made, and of the table afterwards.

The table is described on stdout; progress and remarks go to stderr.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tallbayes.commands.commands import _nearby, uninterrupted
from tallbayes.commands.grammar import names_of
from tallbayes.errors import InputError, explain
from tallbayes.progress import Display, in_words, shorten, terminal

LONGEST_NAME = 32
MANY_COLUMNS = 40
STAGES = {"reading": "1 of 3, reading", "shuffling": "2 of 3, shuffling", "sealing": "3 of 3, checksums"}


def ingest(options: argparse.Namespace) -> int:
    """Make a table of files, and tell what it holds."""
    columns = None if options.columns is None else names_of(options.columns, "--columns hour,late")
    started = time.monotonic()
    shown = not options.quiet and sys.stderr.isatty()
    with terminal() if shown else nullcontext(Display()) as display:
        display.phase = "starting"
        with uninterrupted():
            from tallbayes.rows.ingest import ingest as make_table
        teller = Teller(display, options.quiet)
        place = options.append or _named(options.out)
        before = _rows_before(options.append)
        table = make_table(options.files, place, columns, teller, options.force, append=options.append is not None)
    seconds = time.monotonic() - started
    print(describe(table, seconds) if before is None else describe_growth(table, before, seconds))
    return 0


def _named(out: Any) -> Any:
    if out is None:
        hint = "--out TABLE for a new one, --append TABLE to put rows behind those of one"
        raise InputError(explain("a place for the table", "none", hint))
    return out


def _rows_before(append: Any) -> int | None:
    """Of a table that is to grow."""
    if append is None:
        return None
    from tallbayes.rows.on_disk import open_table

    return len(open_table(append, verify=False))


@dataclass
class Teller:
    """Puts looks at a table in the making on the line of the terminal."""

    display: Display
    quiet: bool
    stage: str = ""
    begun: Any = None

    def __call__(self, look: Any) -> None:
        if not self.stage and look.resumed and not self.quiet:
            print(f"tallbayes: goes on from {look.rows:,} rows", file=sys.stderr)
        if look.stage != self.stage:
            self.stage, self.begun = look.stage, look
        self.display.phase = phase(look, self.begun)


def phase(look: Any, begun: Any) -> str:
    """A look in words; `begun` is the first of its stage.

    >>> from tallbayes.rows.unfinished import Making
    >>> phase(Making("reading", 0.5, 3_000_000, 240_000_000, 4.0), Making("reading", 0.25, 0, 0, 2.0))
    '1 of 3, reading | 3,000,000 rows | 120 MB/s | about 4 s left'
    """
    words = [STAGES[look.stage], f"{look.rows:,} rows"]
    seconds, share = look.seconds - begun.seconds, look.share - begun.share
    if look.stage != "sealing" and seconds > 0 and share > 0:
        words.append(f"{(look.bytes - begun.bytes) / seconds / 1e6:.0f} MB/s")
        words.append(in_words((1 - look.share) * seconds / share))
    return " | ".join(words)


def describe(table: Any, seconds: float) -> str:
    """A table in a few lines: rows, columns and their kinds, size on disk, and what to type next."""
    place, size = shlex.quote(_nearby(table.path)), _in_bytes(table.num_bytes)
    lines = [f"{len(table):,} rows, {len(table.columns)} columns, {size} in {place} ({seconds:.1f} s)"]
    shown = table.columns[:MANY_COLUMNS]
    width = max(len(shorten(column.name, LONGEST_NAME)) for column in shown)
    lines += [f"  {shorten(column.name, LONGEST_NAME):{width}}  {_kind(column)}" for column in shown]
    if len(shown) < len(table.columns):
        lines.append(f"  and {len(table.columns) - len(shown)} more")
    names = [column.name for column in table.columns]
    formula = f"{names[0]} ~ {' + '.join(names[1:3]) or '1'}"
    lines += ["next, for example:", f"  tallbayes fit {place} --formula {shlex.quote(formula)}"]
    return "\n".join(lines)


def describe_growth(table: Any, before: int, seconds: float) -> str:
    """What has come to a table."""
    place, more = shlex.quote(_nearby(table.path)), len(table) - before
    if not more:
        return f"no rows: {place} holds these files already, {len(table):,} rows in all"
    parts = f"{len(table.segments)} segments"
    return f"{more:,} rows more in {place}: {len(table):,} in {parts}, {_in_bytes(table.num_bytes)} ({seconds:.1f} s)"


def _kind(column: Any) -> str:
    words = {
        "text": f"text, {len(column.levels):,} levels",
        "bool": "true or false",
        "whole": f"whole numbers, {column.least:,.0f} to {column.largest:,.0f}",
        "number": f"numbers, {column.least:.6g} to {column.largest:.6g}",
    }[column.kind]
    return f"{words}, {column.missing:,} missing" if column.missing else words


def _in_bytes(size: int) -> str:
    """
    >>> _in_bytes(2048), _in_bytes(5_000_000), _in_bytes(12_300_000_000)
    ('2.05 kB', '5 MB', '12.3 GB')
    """
    unit, name = next((unit, name) for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if size >= unit)
    return f"{size / unit:.3g} {name}"
