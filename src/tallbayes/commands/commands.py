"""The commands `fit`, `resume`, `show`, `predict` and `report`: what they compute, print and keep.

The answer goes to stdout and nothing else does; progress and remarks go to stderr.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from io import TextIOWrapper
from math import inf, isinf
from pathlib import Path
from typing import Any

from tallbayes.commands.grammar import names_of
from tallbayes.commands.priors import priors_of
from tallbayes.errors import InputError, LedgerError, ResultFileError, WorkerError, explain, require_extra
from tallbayes.programs.disk_cache import use_compile_cache_later
from tallbayes.progress import Display, teller, terminal
from tallbayes.results.result import Result
from tallbayes.results.run_folder import (
    LEDGER,
    SETTINGS,
    abandon_run,
    begin_run,
    read_run,
    read_settings,
    require_free,
    unfinished,
    update_run,
    write_run,
    write_settings,
)
from tallbayes.results.verdict import is_success
from tallbayes.views.advice import RUN
from tallbayes.views.document import to_json
from tallbayes.views.summary import WIDTH, brief
from tallbayes.watch import watching

STOPPED_EARLY = 3
ACCURACIES = ("tolerance", "relative_tolerance", "absolute_tolerance")
MODEL = ("prior_scale", "intercept_scale", "group_scale", "missing", "weights", "offset")
FAMILY_OPTIONS = ("noise_scale", "degrees_of_freedom", "level")
BUDGETS = ("seed", "max_seconds", "max_evaluations", "interval_tolerance")
ASKED = (*ACCURACIES, *MODEL, *FAMILY_OPTIONS, *BUDGETS, "raw", "standardise", "method", "prior")
SECONDS_TO_CONNECT = 15


def fit(options: argparse.Namespace) -> int:
    """Fit the regression that a formula describes, print the answer, and keep it in --out."""
    if options.out is None:
        with watched(options.quiet) as display:
            result = _compute(options, display)
        print_run(result, _settings(options, result), options)
        return _ended(options, result, "not saved: --out RUN keeps it")
    require_free(options.out, options.force)
    place = begin_run(options.out, _settings(options))
    result = _computed_in(place, options, partial(abandon_run, options.out))
    settings = _settings(options, result)
    kept = None
    try:
        kept = write_run(options.out, result, settings, options.force)
    finally:
        # What took long to compute is told even where it cannot be kept.
        print_run(result, settings, options, options.out)
    return _ended(options, result, f"saved in {_nearby(kept)}")


def resume(options: argparse.Namespace) -> int:
    """Go on with a run that was stopped, or make a finished one more accurate; what is on record is not computed."""
    folder, place = options.folder.absolute(), unfinished(options.folder.absolute())
    if not place.is_dir():
        return _extend(folder, options)
    asked = _asked_again(place, options)
    write_settings(place, _settings(asked))
    result = _computed_in(place, asked, nothing)
    kept = write_run(folder, result, _settings(asked, result), force=True)
    print_run(result, _settings(asked, result), options, folder)
    return _ended(options, result, f"saved in {_nearby(kept)}")


def _extend(folder: Path, options: argparse.Namespace) -> int:
    before, settings = read_run(folder)
    # A run that ended before there was a ledger has nothing to go on from, and begins anew.
    if not (folder / LEDGER).is_file() and before.levels:
        hint = "the folder given to --out of tallbayes fit"
        raise LedgerError(explain(f"a run with {LEDGER}", f"{str(folder)!r} without it", hint))
    changed = any(getattr(options, name) is not None for name in (*ACCURACIES, "interval_tolerance"))
    if before.converged and not changed and not options.merge:
        print_run(before, settings, options, folder)
        return _ended(options, before, "finished before: --tolerance X makes it more accurate")
    asked = _asked_again(folder, options)
    result = _computed_in(folder, asked, nothing)
    settings = _settings(asked, result)
    update_run(folder, result, settings)
    print_run(result, settings, options, folder)
    return _ended(options, result, f"saved in {_nearby(folder)}")


def fit_on_record(folder: Path, options: argparse.Namespace, table: Any = None) -> Result:
    """The fit that a finished run is of, once more out of its ledger; of a table on disk as it was then."""
    return _computed_in(folder, _of_a_run(folder, options, table), nothing)


def fit_anew(folder: Path, options: argparse.Namespace) -> Result:
    """The fit of a run's table as it is now, which is kept nowhere."""
    with watched(options.quiet) as display:
        return _compute(_of_a_run(folder, options), display)


def _of_a_run(folder: Path, options: argparse.Namespace, table: Any = None) -> argparse.Namespace:
    settings = read_settings(folder / SETTINGS)
    budget = {"max_seconds": None, "max_evaluations": None, "dask": None, "merge": None}
    asked = _asked_again(folder, argparse.Namespace(**{**budget, "quiet": options.quiet}))
    if settings.get("prior"):
        asked.prior = settings["prior"]
    if table is not None:
        asked.data = table
    return asked


def fit_into(folder: Path, options: argparse.Namespace) -> Result:
    """A fit that is kept, and printed by nobody."""
    require_free(folder, False)
    place = begin_run(folder, _settings(options))
    result = _computed_in(place, options, partial(abandon_run, folder))
    write_run(folder, result, _settings(options, result), False)
    return result


def _asked_again(place: Path, options: argparse.Namespace) -> argparse.Namespace:
    """The question on record, with what is asked now in its place; a budget is for one command alone."""
    known = read_settings(place / SETTINGS)
    if "formula" not in known:
        raise ResultFileError(explain(f"a run in {str(place)!r}", f"no whole {SETTINGS}", "tallbayes fit anew"))
    given = {name: inf if known.get(name) == "inf" else known.get(name) for name in ASKED}
    # Of a run that was kept before there were groups.
    given["group_scale"] = given["group_scale"] or 1.0
    changes = {name: value for name, value in vars(options).items() if name in ASKED and value is not None}
    if any(name in changes for name in ACCURACIES):
        given |= dict.fromkeys(ACCURACIES)
    budgets = {name: getattr(options, name) for name in ("max_seconds", "max_evaluations")}
    question = {"data": Path(known["data"]), "formula": known["formula"], "family": known["family"]}
    return argparse.Namespace(**{**vars(options), **given, **changes, **budgets, **question})


def _computed_in(place: Path, options: argparse.Namespace, abandon: Callable[[], None]) -> Result:
    """Compute with the ledger of a folder; where nothing came of it that is worth keeping, it is abandoned."""
    for other in getattr(options, "merge", None) or ():
        from tallbayes.records.ledger import merge_ledgers

        number = merge_ledgers(place / LEDGER, other / LEDGER if other.is_dir() else other)
        print(f"tallbayes: {number:,} blocks taken over from {other}", file=sys.stderr)
    try:
        with watched(options.quiet) as display:
            return _compute(options, display, place / LEDGER)
    except BaseException as error:
        # Sums over rows are worth going on from, but not where the posterior turned out to be improper.
        worthy = ("blocks", "sums") if isinstance(error, KeyboardInterrupt) else ("blocks",)
        if not _has(place / LEDGER, worthy):
            abandon()
        raise


def _has(path: Path, kinds: tuple[str, ...]) -> bool:
    from tallbayes.records.ledger import open_ledger

    try:
        with open_ledger(path, must_exist=True) as ledger:
            return any(ledger.summary()[kind] for kind in kinds)
    except LedgerError:
        return path.is_file()


def nothing() -> None:
    pass


def _ended(options: argparse.Namespace, result: Result, remark: str) -> int:
    if not options.quiet:
        print(f"tallbayes: {remark}", file=sys.stderr)
    return 0 if is_success(result) else STOPPED_EARLY


def show(options: argparse.Namespace) -> int:
    """Print what `fit` has kept."""
    print_run(*read_run(options.folder), options, folder_of(options.folder))
    return 0


def predict(options: argparse.Namespace) -> int:
    """Predictions for the rows of a file, into another file or as CSV."""
    if options.out is not None and options.out.exists() and not options.force:
        got = f"{str(options.out)!r}, which exists"
        raise InputError(explain("a new file for --out", got, "another --out, or --force to replace it"))
    result, settings = read_run(options.folder)
    result = _with_its_rows(result, settings, options.folder)
    with uninterrupted():
        from tallbayes.results.predictions import predict_batches
    asked: dict[str, Any] = {name: getattr(options, name) for name in ("at_least", "offset", "missing", "unknown")}
    asked |= {"keep": [name for given in options.keep or () for name in names_of(given, "--keep id,hour")]}
    asked |= {"interval": options.interval or None}
    if options.out is not None:
        count = result.predict(options.data, **asked, out=options.out)
        remarks = count.remarks
    else:
        count, remarks = _print_rows(predict_batches(result, options.data, **asked))
    for remark in remarks:
        print(f"tallbayes: {remark}", file=sys.stderr)
    if not result.converged:
        print(f"tallbayes: the run itself: {result.status}", file=sys.stderr)
    where = "" if options.out is None else f" in {_nearby(options.out.absolute())}"
    print(f"tallbayes: {count:,} rows predicted{where}", file=sys.stderr)
    return 0


def _with_its_rows(result: Result, settings: dict[str, Any], folder: Path) -> Result:
    from tallbayes.commands.days_on_disk import with_its_rows

    return with_its_rows(result, settings, folder)


def _print_rows(parts: Iterator[Any]) -> tuple[int, tuple[str, ...]]:
    """As CSV, a batch at a time; how many, and what is to be known of them."""
    count, unpredicted, remarks = 0, None, ()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for part in parts:
        columns = part.columns()
        if not count:
            writer.writerow(columns)
        numbers = [[f"{value:.8g}" for value in each] for each in part.numbers().values()]
        beside = [each for name, each in columns.items() if name not in part.numbers()]
        beside = [each.to_pylist() if hasattr(each, "to_pylist") else each.tolist() for each in beside]
        writer.writerows(zip(*beside, *numbers, strict=True))
        count += len(part)
        unpredicted = part.unpredicted if unpredicted is None else unpredicted + part.unpredicted
        remarks = replace(part, unpredicted=unpredicted).remarks
    sys.stdout.flush()
    return count, remarks


def report(options: argparse.Namespace) -> int:
    """One page that shows a run."""
    from tallbayes.views.report import write_report

    result, settings = read_run(options.folder)
    folder = folder_of(options.folder)
    place = options.out or folder / "report.html"
    # What was observed is shown where the table is in its place, and small.
    result = _with_its_rows(result, settings, options.folder)
    asked: dict[str, Any] = {"sensitivity": options.sensitivity, "checks": result.checks() if options.checks else ()}
    answers = [result.loo()] if options.loo else []
    asked["answers"] = [*answers, result.evidence()] if options.evidence else answers
    kept = _kept_in(folder, settings)
    page = write_report(result, place, title=options.title, settings=kept, **asked)
    print(_nearby(Path(page).absolute()))
    return 0


def _compute(options: argparse.Namespace, display: Display, ledger: Path | None = None) -> Result:
    display.phase = "starting"
    with watching(options.max_seconds or inf, teller(display)):
        return _fitted(options, display, ledger)


def _fitted(options: argparse.Namespace, display: Display, ledger: Path | None) -> Result:
    with uninterrupted():
        use_compile_cache_later()
        from tallbayes.formula.fit import fit as fit_formula
        from tallbayes.methods.anchored import Anchored
        from tallbayes.methods.randomised import Randomised
        from tallbayes.model.priors.assigned import without_shrinkage

    given = vars(options)
    # What is kept is gone on with, path by path; a table so small that it is answered at once need not be.
    stated = priors_of(options.prior)
    if without_shrinkage(stated)[1] is not None:
        # Chains of their own, which keep no blocks.
        ledger = None
    method: Any = None if ledger is None else Anchored()
    if options.method == "randomised":
        method = Randomised()
    with _workers(options.dask) as executor:
        return fit_formula(
            options.formula,
            options.data,
            options.family,
            standardise=not options.raw and options.standardise,
            priors=stated,
            family_options={name: given[name] for name in FAMILY_OPTIONS if given[name] is not None},
            method=method,
            progress=display,
            ledger=ledger,
            executor=executor,
            **{name: given[name] for name in (*ACCURACIES, *MODEL, *BUDGETS)},
        )


@contextmanager
def _workers(address: str | None) -> Iterator[Any]:
    """Those of a dask cluster, if its scheduler's address is given."""
    if address is None:
        yield None
        return
    client_of = require_extra("distributed", "dask", "--dask").Client
    try:
        client = client_of(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        got = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(". ")
        hint = "the address that dask scheduler prints, such as tcp://10.0.0.1:8786"
        raise WorkerError(explain(f"a dask scheduler at {address!r}", got, hint)) from error
    with client:
        yield client.get_executor()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait: in the midst of an import, some modules of JAX end the process with a core dump."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    pressed = []
    signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def watched(quiet: bool) -> Iterator[Display]:
    """A display of phases and looks: on the terminal if there is one and it is wanted."""
    if quiet or not sys.stderr.isatty():
        yield Display()
        return
    with terminal() as display:
        yield display


def _settings(options: argparse.Namespace, result: Result | None = None) -> dict[str, Any]:
    """What the command was asked; as JSON has no infinity, a flat prior's scale is the word."""
    given = {name: getattr(options, name) for name in ASKED} | {"prior": priors_of(options.prior)}
    given = {name: each for name, each in given.items() if name != "prior" or each}
    return {
        "format": "tallbayes run 1",
        "command": "fit",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": os.path.abspath(options.data),
        "formula": options.formula,
        "family": options.family,
        **{name: "inf" if isinstance(each, float) and isinf(each) else each for name, each in given.items()},
        **({} if result is None else result.settings),
    }


def folder_of(path: Path) -> Path:
    """Of a run that is given by its folder or by the result within."""
    return path if path.is_dir() else path.parent


def _kept_in(folder: Path | None, settings: dict[str, Any]) -> dict[str, Any]:
    """With the folder to go on from; that of a lone result has no settings, and nothing to go on from."""
    return settings if folder is None or not settings else settings | {RUN: _nearby(folder.absolute())}


def print_run(
    result: Result, settings: dict[str, Any], options: argparse.Namespace, folder: Path | None = None
) -> None:
    settings = _kept_in(folder, settings)
    if isinstance(sys.stdout, TextIOWrapper):
        # Names of columns may be in any script, which not every terminal can write.
        sys.stdout.reconfigure(errors="backslashreplace")
    if options.json:
        print(to_json(result, settings))
    else:
        # What reads a pipe has no width, and wants names whole, unless it is told one.
        told = sys.stdout.isatty() or "COLUMNS" in os.environ
        width = shutil.get_terminal_size(fallback=(WIDTH, 24)).columns if told else None
        print(brief(result, settings, width, full=options.full))
    sys.stdout.flush()


def _nearby(path: Path) -> str:
    """As it would be typed here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
