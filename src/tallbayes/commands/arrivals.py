"""The commands `update` and `watch`: rows that come to a run, or are taken out of it, a file at a time.

A day is a file of rows and a file of its own in RUN/days, which is written last: until it is there nothing has
happened, and the same command does the same again, to the bit. The fit that a run began with stays in its ledger.

Of a run of files these are read again by every command. One on a table on disk goes on from the standing of its last
day (`arrivals.disk`), and reads what is new.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from tallbayes.commands.commands import fit_on_record, print_run, watched
from tallbayes.commands.days_on_disk import gone_on_disk, keep_on_disk, replayed_on_disk, tidied_on_disk
from tallbayes.errors import InputError, ResultFileError, explain
from tallbayes.results.result import Result
from tallbayes.results.result_file import load
from tallbayes.results.run_folder import RESULT, SETTINGS, read_settings
from tallbayes.results.verdict import is_success
from tallbayes.rows.segments.redo import HEADER

STOPPED_EARLY = 3
READ_BYTES = 2**22
SETTLED_SECONDS = 0.5


def update(options: argparse.Namespace) -> int:
    """The posterior for all rows so far and those of a file, or without these."""
    folder: Path = options.folder
    file, gone = _asked_file(options)
    stream = RunDays.open(folder, options)
    known = stream.last_day_of(file)
    if known is not None and (known.withdrawn > 0) == gone:
        what = "out" if gone else "in"
        print(f"tallbayes: {file} is {what} since day {known.number}; nothing was done", file=sys.stderr)
        return 0
    stream = stream.after(file, gone, options.new_levels, options.tolerance)
    from tallbayes.arrivals.history import line_of

    print_run(stream.result, stream.settings, options, folder)
    if not options.quiet:
        print(f"tallbayes: {line_of(stream.days[-2], stream.days[-1])}", file=sys.stderr)
    return 0 if is_success(stream.result) else STOPPED_EARLY


def history(options: argparse.Namespace) -> int:
    """A line a day."""
    from tallbayes.arrivals.history import History, read_days

    found = History(read_days(options.folder))
    if options.csv:
        found.to_pandas().to_csv(sys.stdout, index=False)
    else:
        print(found)
    return 0


def watch(options: argparse.Namespace) -> int:
    """An update whenever a file arrives, a line a day."""
    from tallbayes.arrivals.history import line_of

    place, run = options.data, options.out
    if not place.is_dir():
        raise InputError(explain("a folder to watch", repr(str(place)), "the folder that files arrive in"))
    stream: RunDays | None = None
    seen: dict[Path, tuple[int, int]] = {}
    ended = 0
    while True:
        for file in _arrived(place, seen, wait=not options.once):
            if stream is None:
                stream = RunDays.begin(run, file, options)
                if stream.last_day_of(file) is not None and len(stream.days) > 1:
                    continue
            elif stream.last_day_of(file) is not None:
                continue
            else:
                stream = stream.after(file, False, options.new_levels, None)
            before = stream.days[-2] if len(stream.days) > 1 else None
            print(line_of(before, stream.days[-1]), flush=True)
            ended = ended if is_success(stream.result) else STOPPED_EARLY
        if options.once:
            if stream is None:
                got = f"{str(place)!r} without any"
                raise InputError(explain("files of rows", got, "a .csv, .parquet or .arrow file in it"))
            return ended
        time.sleep(options.every)


@dataclass(frozen=True, eq=False)
class RunDays:
    """A run and its days, standing on all of them."""

    folder: Path
    options: argparse.Namespace
    settings: dict[str, Any]
    result: Result
    days: tuple[Any, ...]

    @classmethod
    def open(cls, folder: Path, options: argparse.Namespace) -> RunDays:
        """A run as it is on disk: the fit it began with out of its ledger, and the rows of all its days read again."""
        from tallbayes.arrivals.history import DAYS, Day, read_days, write_day

        settings = read_settings(folder / SETTINGS)
        if "formula" not in settings:
            hint = "the folder given to --out of tallbayes fit"
            raise ResultFileError(explain(f"a run in {str(folder)!r}", f"no whole {SETTINGS}", hint))
        if (Path(settings["data"]) / HEADER).is_file():
            return cls(folder, options, settings, *gone_on_disk(folder, options, settings))
        first = fit_on_record(folder, options)
        if not (folder / DAYS).is_dir():
            data = Path(settings["data"])
            write_day(folder, Day.of(first, 0, source=str(data), digest=_digest(data), when=_now()))
        days = read_days(folder)
        return cls(folder, options, settings, _on_all_days(first, folder, days), days)

    @classmethod
    def begin(cls, folder: Path, file: Path, options: argparse.Namespace) -> RunDays:
        """The run of a folder that is watched: as it was left, or of its first file."""
        from tallbayes.arrivals.history import Day, write_day
        from tallbayes.commands.commands import fit_into

        if (folder / SETTINGS).is_file():
            return cls.open(folder, options)
        first = fit_into(folder, argparse.Namespace(**{**vars(options), "data": file, "method": "anchored"}))
        write_day(folder, Day.of(first, 0, source=str(file.absolute()), digest=_digest(file), when=_now()))
        return cls.open(folder, options)

    def last_day_of(self, file: Path) -> Any:
        """The last day on which a file came or went, if it did."""
        found = _digest(file)
        return next((day for day in reversed(self.days) if day.digest == found), None)

    def after(self, file: Path, gone: bool, new_levels: str, tolerance: float | None) -> RunDays:
        """With the rows of a file, or without them; from the last line but one on they count."""
        from tallbayes.arrivals.history import Day, told_of, write_day

        before = self.result
        with watched(self.options.quiet) as display:
            asked: dict[str, Any] = {"tolerance": tolerance, "progress": display}
            if gone:
                result = before.without(str(file), **asked)
            else:
                result = before.update(str(file), new_levels=new_levels, foretell=_can_foretell(before), **asked)
        change = result.num_rows - self.days[-1].rows
        day = Day.of(
            result,
            len(self.days),
            came=max(change, 0),
            withdrawn=max(-change, 0),
            foretold=told_of(result),
            source=str(file.absolute()),
            digest=_digest(file),
            when=_now(),
            new_levels=new_levels,
        )
        on_disk = (Path(self.settings["data"]) / HEADER).is_file()
        if on_disk:
            keep_on_disk(self.folder, result)
        result.save(self.folder / RESULT)
        write_day(self.folder, day)
        if on_disk:
            result = tidied_on_disk(self.folder, result, gone)
        return replace(self, result=result, days=(*self.days, day))


def _on_all_days(first: Result, folder: Path, days: Sequence[Any]) -> Result:
    """The result of the last day, standing on the rows of all of them: as it was kept, or answered again where it was
    not, and where there are groups, whose rows nobody else can put beside it."""
    from tallbayes.arrivals.disk.again import on_standing
    from tallbayes.arrivals.doors import GivenRows, standing_on
    from tallbayes.arrivals.standing import Carried

    given = [(GivenRows(_same_file(day), new_levels=day.new_levels), day.withdrawn > 0) for day in days[1:]]
    if not given:
        return first
    kept = _kept_of(folder, days[-1])
    if kept is not None:
        found = standing_on(first, given)
        if isinstance(found.standing, Carried):
            door: Any = found.door
            return on_standing(kept, found.standing, door)
    (last, gone), before = given[-1], standing_on(first, given[:-1])
    return before.without(last.rows) if gone else before.update(last.rows, new_levels=last.new_levels)


def _kept_of(folder: Path, day: Any) -> Result | None:
    """The result in the folder if it is that of the day, and not of one that never came to be."""
    from tallbayes.arrivals.history import Day

    try:
        kept = load(folder / RESULT)
    except ResultFileError:
        return None
    own = Day.of(kept, day.number)
    return kept if (own.rows, own.coefficients) == (day.rows, day.coefficients) else None


def with_days(result: Result, folder: Path) -> Result:
    """A run's result with the rows of all its days, so that it can answer what needs them."""
    from tallbayes.arrivals.disk.again import on_standing
    from tallbayes.arrivals.standing import Carried

    stream = RunDays.open(folder, argparse.Namespace(quiet=True))
    standing: Any = stream.result.standing
    door: Any = stream.result.door
    return on_standing(result, standing, door) if isinstance(standing, Carried) else stream.result


def replay(options: argparse.Namespace) -> int:
    """The answer of a day that has passed."""
    settings = read_settings(options.folder / SETTINGS)
    result = replayed_on_disk(options.folder, options, settings, options.day)
    print_run(result, settings, options, options.folder)
    if not options.quiet:
        print(f"tallbayes: day {options.day} as it is on record, to the bit", file=sys.stderr)
    return 0 if is_success(result) else STOPPED_EARLY


def _can_foretell(result: Result) -> bool:
    """Of a loss there is no law, of censored times no response that was seen, rows with weights are several, and those
    of a group are not foretold one by one."""
    from tallbayes.results.fitted import family_of

    family = family_of(result)
    if getattr(result.question, "weights", None) is not None or result.factors:
        return False
    return family is not None and not family.pseudo and family.response != "survival" and result.posterior is not None


def _asked_file(options: argparse.Namespace) -> tuple[Path, bool]:
    if (options.data is None) == (options.withdraw is None):
        got = "neither" if options.data is None else "both"
        raise InputError(explain("NEW rows, or --withdraw FILE", got, "tallbayes update RUN monday.csv"))
    file = options.data or options.withdraw
    if not file.is_file() and (options.data is None or not (file / HEADER).is_file()):
        raise InputError(explain("a file of rows", repr(str(file)), "a .csv, .parquet or .arrow file"))
    return file, options.data is None


def _same_file(day: Any) -> str:
    """The file of a day, as it was."""
    path = Path(day.source)
    if not path.is_file() or _digest(path) != day.digest:
        got = f"{str(path)!r}, which is gone" if not path.is_file() else f"{str(path)!r}, which has changed"
        raise ResultFileError(
            explain(f"the file of day {day.number} as it was", got, "a copy of that file in its place")
        )
    return str(path)


def _arrived(place: Path, seen: dict[Path, tuple[int, int]], wait: bool) -> list[Path]:
    """Files of rows by name, those that are not being written any more: twice of the same size and time."""
    from tallbayes.rows.formats import SUFFIXES

    found = []
    for file in sorted(place.iterdir()):
        if file.name.startswith(".") or not file.is_file() or not any(file.name.endswith(each) for each in SUFFIXES):
            continue
        facts = file.stat()
        now = facts.st_size, facts.st_mtime_ns
        if not wait or seen.get(file) == now or time.time() - facts.st_mtime > SETTLED_SECONDS:
            found.append(file)
        seen[file] = now
    return found


def _digest(path: Path) -> str:
    if path.is_dir():
        from tallbayes.rows.on_disk import open_table

        return str(open_table(path, verify=False).digest)
    found = sha256()
    with path.open("rb") as file:
        while part := file.read(READ_BYTES):
            found.update(part)
    return found.hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
