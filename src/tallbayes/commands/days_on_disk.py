"""Days on disk: what the commands `update` and `replay` do for a run on a table on disk; and runs with all their rows.

A run goes on from the standing of its last day. Where that is torn, or the table is another one, it is made anew from
all rows of the table, and the day says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tallbayes.commands.commands import fit_anew, fit_on_record, folder_of, uninterrupted
from tallbayes.errors import TallbayesError
from tallbayes.programs.disk_cache import use_compile_cache_later
from tallbayes.results.result import Result
from tallbayes.results.result_file import load
from tallbayes.results.run_folder import RESULT


def with_its_rows(result: Result, settings: dict[str, Any], folder: Path) -> Result:
    """A run that can answer what needs its rows, those of its days too, where its table is in its place."""
    with uninterrupted():
        use_compile_cache_later()
        from tallbayes.formula.again.rows import with_rows
    place = folder_of(folder)
    if list((place / "days").glob("*.json"))[1:]:
        from tallbayes.commands.arrivals import with_days

        return with_days(result, place)
    return with_rows(result, settings)


def gone_on_disk(folder: Path, options: argparse.Namespace, settings: Mapping[str, Any]) -> tuple[Result, Any]:
    """The last result, standing where its day has ended, and all days; the fit is the first of them."""
    from tallbayes.arrivals.disk.again import gone_on, keep, settled_first
    from tallbayes.arrivals.doors import standing_of
    from tallbayes.arrivals.history import DAYS, Day, read_days, write_day

    data = Path(settings["data"])
    if not list((folder / DAYS).glob("*.json")):
        table = _as_fitted(data, load(folder / RESULT).cost.num_data)
        first = fit_on_record(folder, options, table)
        keep(folder, settled_first(first, standing_of(first)))
        write_day(folder, Day.of(first, 0, source=str(data), digest=table.digest, when=_now()))
    days = read_days(folder)
    try:
        found = gone_on(folder, settings, days[-1].number)
        why = _disagreement(found)
    except TallbayesError as error:
        # A design may have been removed, a file may be torn.
        found, why = None, str(error)
    if not why and found is not None:
        return found, days
    print(f"tallbayes: made anew from all rows of the table: {why}", file=sys.stderr)
    fresh = fit_anew(folder, options)
    fresh = settled_first(fresh, replace(standing_of(fresh), day=days[-1].number))
    fresh = replace(fresh, notes=(*fresh.notes, f"standing: made anew from all rows of the table, since: {why}"))
    keep(folder, fresh)
    return gone_on(folder, settings, days[-1].number), days


def keep_on_disk(folder: Path, result: Result) -> None:
    """What the next day goes on from; it counts with the day's file."""
    from tallbayes.arrivals.disk.again import keep

    keep(folder, result)


def tidied_on_disk(folder: Path, result: Result, gone: bool) -> Result:
    """The result as another process would find it, without what only days before it needed."""
    from tallbayes.arrivals.disk.again import on_standing, result_of
    from tallbayes.arrivals.disk.state import forget_before

    standing: Any = result.standing
    if gone:
        forget_before(folder, standing.day)
    for file in (folder / "days").glob("*.tallbayes"):
        if file != result_of(folder, standing.day):
            file.unlink()
    door: Any = result.door
    return on_standing(load(result_of(folder, standing.day)), replace(standing, morning=None), door)


def replayed_on_disk(folder: Path, options: argparse.Namespace, settings: Mapping[str, Any], day: int) -> Result:
    """The answer of a day once more; that of day 0 is the fit's, out of the ledger."""
    from tallbayes.arrivals.disk.replay import replayed, require_recorded
    from tallbayes.arrivals.history import read_days

    if day:
        return replayed(folder, day)
    first = read_days(folder)[0]
    found = fit_on_record(folder, options, _as_fitted(Path(settings["data"]), first.rows))
    require_recorded(found, first)
    return found


def _as_fitted(data: Path, num_rows: int) -> Any:
    """The table with the rows that it had when it was fitted, if it has grown since."""
    from tallbayes.rows.on_disk import open_table

    table = open_table(data)
    stops = [segment.stop for segment in table.segments]
    return table.upto(num_rows) if num_rows in stops else table


def _disagreement(result: Result) -> str:
    """In words, how the tables are not those of the standing, unless a withdrawal from it is under way."""
    from tallbayes.arrivals.disk.leaving import under_way
    from tallbayes.rows.on_disk import open_table
    from tallbayes.rows.segments.past import other_than

    rows: Any = result.standing.rows  # type: ignore[attr-defined]
    if under_way(rows.source, rows.read) is not None:
        return ""
    try:
        return next(filter(None, (other_than(each, open_table(each.path)) for each in (rows.source, rows.read))), "")
    except TallbayesError as error:
        return str(error)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
