"""How a command is written down: its words, its options, and what is told of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tallbayes.errors import InputError, explain

EXIT_CODES = """\
exit codes:
  0    done; of fit and resume: every mean and sd met its tolerance, and so did every interval end if
       --interval-tolerance was given; without it ends that err by more than 0.1 sd are marked ~
  1    a defect of tallbayes; TALLBAYES_TRACEBACK=1 shows where
  2    bad input; nothing was written
  3    fit or resume stopped early, has doubts, or missed a tolerance that was asked for: the first line says
       which; what was computed is printed, and kept in --out. Of a run that is kept, show and report are 0; evidence
       is 3 where it misses its own
  130  interrupted before there was anything to keep; after that of ingest the same command goes on
"""


class Option(NamedTuple):
    """An option or an argument, and what argparse is told of it."""

    name: str
    facts: dict[str, Any]


class Command(NamedTuple):
    """A command: options by the title they stand under (of those in a list one may be given at most), and what is
    said when it is interrupted."""

    name: str
    help: str
    usage: str
    description: str
    epilog: str
    options: dict[str, tuple[Option | list[Option], ...]]
    interrupted: str = "interrupted"
    module: str = "commands"


def option(name: str, help: str, metavar: str | None = None, **facts: Any) -> Option:
    return Option(name, {"help": help, "metavar": metavar, **facts})


def number(name: str, help: str, metavar: str = "X", **facts: Any) -> Option:
    return option(name, help, metavar, type=float, **facts)


def path(name: str, help: str, metavar: str | None = None, **facts: Any) -> Option:
    return option(name, help, metavar, type=Path, **facts)


def flag(name: str, help: str) -> Option:
    return Option(name, {"help": help, "action": "store_true"})


def choice(name: str, help: str, *choices: str) -> Option:
    """The first is the default."""
    return Option(name, {"help": help, "choices": choices, "default": choices[0]})


RUN = path("folder", "a folder of fit, or a result file", "RUN")


def names_of(given: str, example: str) -> list[str]:
    """Names between commas."""
    names = [name.strip() for name in given.split(",")]
    if not all(names):
        option = example.split()[0]
        raise InputError(explain(f"names of columns between commas for {option}", repr(given), example))
    return names
