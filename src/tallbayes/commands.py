"""The commands `fit`, `show`, `predict` and `report`: what they compute, print and keep.

The answer goes to stdout and nothing else does; progress and remarks go to stderr.
"""

from __future__ import annotations

import argparse
import logging
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
from math import isinf
from pathlib import Path
from typing import Any

from tallbayes.brief import WIDTH, brief
from tallbayes.compile_cache import use_compile_cache
from tallbayes.document import to_json
from tallbayes.errors import InputError, explain
from tallbayes.progress import Display, terminal
from tallbayes.result import Result
from tallbayes.run_folder import read_run, require_free, write_run

STOPPED_EARLY = 3
ACCURACIES = ("tolerance", "relative_tolerance", "absolute_tolerance")
DEFAULT_TOLERANCE = 0.01
MODEL = ("prior_scale", "intercept_scale", "missing", "weights", "offset")
FAMILY_OPTIONS = ("noise_scale", "degrees_of_freedom")
BUDGETS = ("seed", "max_seconds", "max_evaluations", "interval_tolerance")


def fit(options: argparse.Namespace) -> int:
    """Fit the regression that a formula describes, print the answer, and keep it in --out."""
    if options.out is not None:
        require_free(options.out, options.force)
    with _watched(options.quiet) as display:
        result = _compute(options, display)
    settings = _settings(options, result)
    kept = None
    try:
        if options.out is not None:
            kept = write_run(options.out, result, settings, options.force)
    finally:
        # What took long to compute is told even where it cannot be kept.
        _print(result, settings, options)
    if not options.quiet:
        remark = f"saved in {_nearby(kept)}" if kept else "not saved: --out RUN keeps it"
        print(f"tallbayes: {remark}", file=sys.stderr)
    return 0 if result.converged else STOPPED_EARLY


def show(options: argparse.Namespace) -> int:
    """Print what `fit` has kept."""
    _print(*read_run(options.folder), options)
    return 0


def predict(options: argparse.Namespace) -> int:
    """Predictions for the rows of a file, into another file or as CSV."""
    if options.out is not None and options.out.exists() and not options.force:
        got = f"{str(options.out)!r}, which exists"
        raise InputError(explain("a new file for --out", got, "another --out, or --force to replace it"))
    result, _ = read_run(options.folder)
    with _uninterrupted():
        use_compile_cache()
        from tallbayes.predictions import predict_batches
    asked = {"at_least": options.at_least, "offset": options.offset}
    if options.out is not None:
        count = result.predict(options.data, **asked, out=options.out)
    else:
        count = _print_rows(predict_batches(result, options.data, **asked))
    if not result.converged:
        print(f"tallbayes: the run itself: {result.status}", file=sys.stderr)
    where = "" if options.out is None else f" in {_nearby(options.out.absolute())}"
    print(f"tallbayes: {count:,} rows predicted{where}", file=sys.stderr)
    return 0


def _print_rows(parts: Iterator[Any]) -> int:
    """As CSV, a batch at a time."""
    count = 0
    for part in parts:
        columns = part.columns()
        if not count:
            print(",".join(columns))
        for row in zip(*columns.values(), strict=True):
            print(",".join(f"{value:.8g}" for value in row))
        count += len(part)
    sys.stdout.flush()
    return count


def report(options: argparse.Namespace) -> int:
    """One page that shows a run."""
    from tallbayes.report import write_report

    result, settings = read_run(options.folder)
    folder = options.folder if options.folder.is_dir() else options.folder.parent
    page = write_report(result, options.out or folder / "report.html", title=options.title, settings=settings)
    print(_nearby(Path(page).absolute()))
    return 0


def _compute(options: argparse.Namespace, display: Display) -> Result:
    display.phase = "starting"
    with _uninterrupted():
        use_compile_cache()
        from tallbayes.adapters.fit import fit as fit_formula
        from tallbayes.adapters.tables import open_source
        from tallbayes.method import Anchored, Randomised

    display.phase = f"reading {options.data.name}"
    source = open_source(options.data)
    given = vars(options)
    accuracy = {kind: given[kind] for kind in ACCURACIES}
    if all(size is None for size in accuracy.values()):
        accuracy["tolerance"] = DEFAULT_TOLERANCE
    return fit_formula(
        options.formula,
        replace(source, load=partial(_announced, display, source.load)),
        options.family,
        standardise=not options.raw,
        family_options={name: given[name] for name in FAMILY_OPTIONS if given[name] is not None},
        method=Randomised() if options.method == "randomised" else Anchored(),
        progress=display,
        **accuracy,
        **{name: given[name] for name in (*MODEL, *BUDGETS)},
    )


@contextmanager
def _uninterrupted() -> Iterator[None]:
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


def _announced(display: Display, load: Callable[[list[str]], Any], wanted: list[str]) -> Any:
    table = load(wanted)
    display.phase = "setting up: columns, mode, compiling"
    return table


@contextmanager
def _watched(quiet: bool) -> Iterator[Display]:
    """A display of phases and looks: on the terminal if there is one and it is wanted."""
    if quiet or not sys.stderr.isatty():
        yield Display()
        return
    log = logging.getLogger("tallbayes")
    before = log.level
    with terminal() as display:
        pilots = _Pilots(display)
        log.addHandler(pilots)
        log.setLevel(logging.INFO)
        try:
            yield display
        finally:
            log.removeHandler(pilots)
            log.setLevel(before)


class _Pilots(logging.Handler):
    """Names the phase of tuning, whose pilots are told of in the log."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self.display = display

    def emit(self, record: logging.LogRecord) -> None:
        self.display.phase = "tuning: pilots of step and batch size"


def _settings(options: argparse.Namespace, result: Result) -> dict[str, Any]:
    """What the command was asked; as JSON has no infinity, a flat prior's scale is the word."""
    names = (*ACCURACIES, *MODEL, *FAMILY_OPTIONS, *BUDGETS, "raw", "method")
    given = {name: getattr(options, name) for name in names}
    return {
        "format": "tallbayes run 1",
        "command": "fit",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": os.path.abspath(options.data),
        "formula": options.formula,
        "family": options.family,
        **{name: "inf" if isinstance(each, float) and isinf(each) else each for name, each in given.items()},
        **result.settings,
    }


def _print(result: Result, settings: dict[str, Any], options: argparse.Namespace) -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        # Names of columns may be in any script, which not every terminal can write.
        sys.stdout.reconfigure(errors="backslashreplace")
    if options.json:
        print(to_json(result, settings))
    else:
        width = shutil.get_terminal_size(fallback=(WIDTH, 24)).columns
        print(brief(result, settings, width, full=options.full))
    sys.stdout.flush()


def _nearby(path: Path) -> str:
    """As it would be typed here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
