"""Replay: the answer of a day that has passed, once more, from what was kept of it and the rows that it had.

A day's answer is a function of its standing, its rows and its seed. So it comes out to the bit, or something is not
what it was, which is said. Rows that have been withdrawn since are gone, and with them all days that had them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tallbayes.arrivals.days import answered
from tallbayes.arrivals.disk.again import stood
from tallbayes.arrivals.disk.state import first_kept, read_state
from tallbayes.arrivals.history import Day, read_days
from tallbayes.errors import InputError, ResultFileError, TableError, explain
from tallbayes.estimation.question import read_changes
from tallbayes.formula.fit import described
from tallbayes.results.result import Result
from tallbayes.results.run_folder import SETTINGS, read_settings
from tallbayes.rows.on_disk import open_table
from tallbayes.rows.segments.past import other_than


def replayed(folder: Path, number: int) -> Result:
    """The result of a day of a run on a table on disk, held against what is on record of it."""
    days = read_days(folder)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < len(days):
        hint = "history of the run, which lists them; the fit of day 0 is what `tallbayes replay RUN 0` reads again"
        raise InputError(explain(f"a day from 1 to {len(days) - 1}", repr(number), hint))
    _require_kept(folder, days, number)
    for table in read_state(folder, number).tables:
        wrong = other_than(table, open_table(table.path))
        if wrong:
            got = f"{wrong}, in {str(table.path)!r}"
            raise TableError(explain(f"the rows of day {number} as they were", got, "a copy of the table from then"))
    standing, door = stood(folder, read_settings(folder / SETTINGS), number, evening=False)
    found = described(door, answered(standing, read_changes(standing.question)))
    found = replace(found, standing=None)
    require_recorded(found, days[number])
    return found


def require_recorded(found: Result, day: Day) -> None:
    """Refuse an answer that is not to the bit what is on record of a day."""
    own = Day.of(found, day.number).coefficients
    if own != day.coefficients:
        names = [name for name in own if own[name] != day.coefficients.get(name)]
        got = f"others of {', '.join(names[:6])}" + ("" if day.status == "converged" else f"; it ended {day.status}")
        hint = "the versions and the machine of that day; a day that ended by its time is not replayed"
        raise ResultFileError(explain(f"the numbers that are on record of day {day.number}", got, hint))


def _require_kept(folder: Path, days: tuple[Day, ...], number: int) -> None:
    first = first_kept(folder)
    if first is None:
        hint = "tallbayes ingest, tallbayes fit of that table, and update from there"
        raise InputError(explain("a run on a table on disk, whose days are kept", "one of files", hint))
    if number < first:
        gone = [day for day in days if day.withdrawn and day.number > number]
        why = f"{gone[0].withdrawn:,} of its rows were withdrawn on day {gone[0].number}" if gone else "it was not kept"
        got = f"day {number}, which is lost: {why}"
        raise ResultFileError(explain(f"a day from {first} on", got, "history, which has its answer"))
