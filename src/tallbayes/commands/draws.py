"""The commands `draws` and `simulate`: what a run's posterior says of parameters, and of responses, one by one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tallbayes.commands.days_on_disk import with_its_rows
from tallbayes.errors import InputError, explain
from tallbayes.results.result import Result
from tallbayes.results.run_folder import read_run


def draws(options: argparse.Namespace) -> int:
    """Independent draws of all parameters; one row a draw."""
    result = _with_rows(options)
    found = result.draws(options.count, seed=options.seed)
    count = found.write(options.out, effects=options.effects)
    print(f"tallbayes: {count:,} draws in {options.out}: {found.how}; law within {found.bias:.2g} sd", file=sys.stderr)
    return _remarked(result)


def simulate(options: argparse.Namespace) -> int:
    """Replicated responses; one row a row, a column a draw."""
    result = _with_rows(options)
    count = result.simulate(options.data, options.draws, seed=options.seed, out=options.out)
    print(f"tallbayes: {options.draws:,} responses of {count:,} rows in {options.out}", file=sys.stderr)
    return _remarked(result)


def _with_rows(options: argparse.Namespace) -> Result:
    out: Path = options.out
    if out.exists() and not options.force:
        got = f"{str(out)!r}, which exists"
        raise InputError(explain("a new file for --out", got, "another --out, or --force to replace it"))
    return with_its_rows(*read_run(options.folder), options.folder)


def _remarked(result: Result) -> int:
    if not result.converged:
        print(f"tallbayes: the run itself: {result.status}", file=sys.stderr)
    return 0
