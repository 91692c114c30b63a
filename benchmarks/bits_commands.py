"""Commands and texts for `same_bits`: what `python -m tallbayes` writes and prints, and what people see of results.

Commands run in the folder of the tables. What they print as JSON or write as CSV is compared as numbers; what they
print for people, and all views of a result, as masked text in calls named "text: ...".
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from bits_calls import Calls, answered, fitted
from bits_doors import table_of
from bits_numbers import lines
from bits_rows import (
    FORMULA,
    LOOSE,
    NEW_FLIGHTS,
    NUM_FLIGHTS,
    QUANTITIES,
    constrained,
    flights_file,
    folder,
    fresh,
    heavy_tails,
    new_flights_file,
    rows_of,
    two_modes,
)

import tallbayes as tb

COLUMNS = "100"
ON_THE_CLOCK = ("seconds", "speculative_evaluations", "versions", "created", "data", "notes", "message")


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """`tallbayes ...`, in the folder of the tables."""
    environment = os.environ | {"COLUMNS": COLUMNS, "TALLBAYES_CACHE": ""}
    return subprocess.run(
        [sys.executable, "-m", "tallbayes", *words],
        cwd=folder(),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def told(done: subprocess.CompletedProcess[str]) -> list[Any]:
    return [done.returncode, lines(done.stdout, folder()), lines(done.stderr, folder())]


def numbers(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """Exit code and JSON document, without what the clock decides and without words."""
    return [done.returncode, _timeless(json.loads(done.stdout))]


def _timeless(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: _timeless(each) for name, each in document.items() if name not in ON_THE_CLOCK}
    return [_timeless(each) for each in document] if isinstance(document, list) else document


@cache
def run_of(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A fit that is kept under this name."""
    fresh(name)
    asked = ["fit", flights_file("flights.csv").name, "--formula", FORMULA, "--json", "--out", name]
    return command(*asked, *(options or ("--tolerance", str(LOOSE))))


def copied(name: str, of: str, *options: str) -> str:
    """A run that may be changed."""
    run_of(of, *options)
    shutil.copytree(folder() / of, fresh(name))
    return name


def commands() -> Calls:
    stopped = "stopped", "--tolerance", "0.02", "--max-evaluations", "20000"

    def predicted() -> list[Any]:
        run_of("run"), new_flights_file()
        fresh("out.csv")
        done = command("predict", "run", "tomorrow.csv", "--out", "out.csv")
        return [done.returncode, table_of((folder() / "out.csv").read_text())]

    def merged() -> list[Any]:
        run_of(*stopped)
        asked = "--merge", "stopped", "--tolerance", "0.02", "--json"
        return numbers(command("resume", copied("merged", "run"), *asked))

    calls: Calls = {
        "command: fit": lambda: numbers(run_of("run")),
        "command: fit, stopped": lambda: numbers(run_of(*stopped)),
        "command: resume": lambda: numbers(command("resume", copied("resumed", *stopped), "--json")),
        "command: resume, a finer tolerance": lambda: numbers(
            command("resume", copied("finer", "run"), "--tolerance", "0.02", "--json")
        ),
        "command: resume, merged": merged,
        "command: predict": predicted,
        "text: command fit": lambda: told(
            command(
                *("fit", flights_file("flights.parquet").name, "--formula", FORMULA, "--tolerance", str(LOOSE)),
                *("--raw", "--weights", "copies", "--prior-scale", "2", "--seed", "3"),
            )
        ),
        "text: command ingest": _ingest_command,
        "text: command predict": lambda: told(_after_run("predict", "run", new_flights_file().name)),
        "text: command report": lambda: told(_after_run("report", "run", "--out", "page.html", "--title", "Flights")),
    }
    shown = {"show": (), "show --full": ("--full",), "show --json": ("--json",)}
    calls |= {
        f"text: command {name}": lambda options=options: told(_after_run("show", "run", *options))
        for name, options in shown.items()
    }
    helped = ((), ("ingest",), ("fit",), ("resume",), ("show",), ("predict",), ("report",), ("reproduce",))
    calls |= {
        " ".join(("text: command", *words, "--help")): lambda words=words: told(command(*words, "--help"))
        for words in helped
    }
    return calls | _bad_commands()


def _after_run(*words: str) -> subprocess.CompletedProcess[str]:
    run_of("run")
    return command(*words)


def _ingest_command() -> list[Any]:
    parts = flights_file("first.csv", end=NUM_FLIGHTS // 2).name, flights_file("flights.csv").name
    fresh("by-command.table")
    done = command("ingest", *parts, "--out", "by-command.table")
    fit = command("fit", "by-command.table", "--formula", FORMULA, "--tolerance", str(LOOSE), "--json")
    return [told(done), numbers(fit)]


def _bad_commands() -> Calls:
    bad: dict[str, tuple[str, ...]] = {
        "no such file": ("fit", "absent/nothing.csv", "--formula", FORMULA),
        "no such column": ("fit", "flights.csv", "--formula", "late ~ minute"),
        "no such family": ("fit", "flights.csv", "--formula", FORMULA, "--family", "logit"),
        "gaps": ("fit", "flights.csv", "--formula", "late ~ wind", "--quiet"),
        "no such run": ("show", "nothing"),
        "no such command": ("fitt",),
        "no such figure": ("reproduce", "nothing"),
        "no such columns to keep": ("ingest", "flights.csv", "--out", "few.table", "--columns", "hour,minute"),
    }

    def refused(words: tuple[str, ...]) -> list[Any]:
        flights_file("flights.csv")
        return told(command(*words))

    return {f"refusal: command, {name}": partial(refused, words) for name, words in bad.items()}


def texts() -> Calls:
    """What people see of results: of a formula, of a family, of a model that has constraints, modes or no variance."""
    results: dict[str, Callable[[], tb.Result]] = {
        "formula": fitted,
        "family": answered,
        "constraints": cache(partial(tb.estimate, *constrained(), QUANTITIES, tolerance=LOOSE)),
        "two modes": cache(partial(tb.estimate, *two_modes(), tolerance=LOOSE)),
        "heavy tails": cache(partial(tb.estimate, *heavy_tails(), ("sd",), tolerance=LOOSE, max_evaluations=1e6)),
    }
    views: dict[str, Callable[[tb.Result], str]] = {
        "print": str,
        "summary": lambda result: result.summary(),
        "notebook": lambda result: result._repr_html_(),
        "report": lambda result: result.report(fresh("report.html")).read_text(),
        "notes and method": lambda result: "\n".join([result.method, *result.notes]),
    }
    calls: Calls = {
        f"text: {view} of {name}": lambda show=show, result=result: lines(show(result()), folder())
        for view, show in views.items()
        for name, result in results.items()
    }
    return calls | {
        "text: report with its parts": _whole_report,
        "text: a comparison": lambda: lines(str(fitted().compare("carrier", "UA", "DL"))),
        "text: a prediction": lambda: lines(str(fitted().predict(NEW_FLIGHTS))),
        "text: a baseline": lambda: lines(
            str(tb.baselines.mala(tb.families.logistic(), rows_of("logistic"), steps=200, burn_in=100, chains=2))
        ),
        "text: an estimate": lambda: lines(repr(answered()["mean"])),
    }


def _whole_report() -> list[str]:
    result = fitted()
    comparisons = [result.compare("carrier", "UA", "DL")]
    page = result.report(
        fresh("report.html"), title="Flights", comparisons=comparisons, predictions=result.predict(NEW_FLIGHTS)
    )
    return lines(page.read_text(), folder())
