"""Commands that ask a run about its model: its evidence, which answers hang on the prior, average effects, curves."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from typing import Any

from tallbayes.commands.days_on_disk import with_its_rows
from tallbayes.results.run_folder import read_run


def sensitivity(options: argparse.Namespace) -> int:
    """What the power of the prior moves, as tables or as CSV."""
    result, settings = read_run(options.folder)
    found = with_its_rows(result, settings, options.folder).sensitivity()
    if not options.csv:
        print(found)
        return 0
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("parameter", "density", "mean", "mean_error", "sd", "sd_error", "finding"))
    for name in found.names:
        for density in found.densities:
            numbers = (*found.mean(name, density), *found.sd(name, density))
            writer.writerow((name, density, *(f"{each:.8g}" for each in numbers), found.finding(name)))
    sys.stdout.flush()
    return 0


def effect(options: argparse.Namespace) -> int:
    """The average effect of a column at one value against another."""
    result, settings = read_run(options.folder)
    asked: dict[str, Any] = {"by": options.by, "rows": options.rows, "groups": options.groups, "ratio": options.ratio}
    print(
        with_its_rows(result, settings, options.folder).average_effect(
            options.column, options.high, options.low, **asked
        )
    )
    return 0


def curve(options: argparse.Namespace) -> int:
    """What the run says of one column of numbers, as a table or as CSV."""
    result, settings = read_run(options.folder)
    found = with_its_rows(result, settings, options.folder).curve(
        options.column, options.points, against=options.against
    )
    if not options.csv:
        print(found)
        return 0
    writer = csv.writer(sys.stdout, lineterminator="\n")
    columns = found.columns()
    writer.writerow(columns)
    writer.writerows([f"{each:.8g}" for each in row] for row in zip(*columns.values(), strict=True))
    sys.stdout.flush()
    return 0


def slope(options: argparse.Namespace) -> int:
    """The average slope of the mean response in a column."""
    result, settings = read_run(options.folder)
    asked = {"by": options.by, "rows": options.rows, "groups": options.groups}
    print(with_its_rows(result, settings, options.folder).average_slope(options.column, **asked))
    return 0


def evidence(options: argparse.Namespace) -> int:
    """Printed; 3 where it is less accurate than was asked for."""
    result, settings = read_run(options.folder)
    found = with_its_rows(result, settings, options.folder).evidence(options.tolerance)
    print(json.dumps(found.plain(), indent=2, allow_nan=False) if options.json else found)
    if not result.converged:
        print(f"tallbayes: the run itself: {result.status}", file=sys.stderr)
    return 0 if found.converged else 3
