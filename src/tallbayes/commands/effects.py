"""The command `effects`: the effect of every group of a run, into a file or as CSV."""

from __future__ import annotations

import argparse
import csv
import sys

from tallbayes.errors import InputError, explain
from tallbayes.results.run_folder import read_run


def effects(options: argparse.Namespace) -> int:
    """All groups by one factor; one row a group and effect."""
    if options.out is not None and options.out.exists() and not options.force:
        got = f"{str(options.out)!r}, which exists"
        raise InputError(explain("a new file for --out", got, "another --out, or --force to replace it"))
    result, _ = read_run(options.folder)
    found = result.effects(options.by)
    if options.out is not None:
        count = found.write(options.out)
    else:
        columns = found.columns()
        count = len(found) * len(found.names)
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        shown = [[f"{x:.8g}" for x in each] if each.dtype.kind == "f" else each.tolist() for each in columns.values()]
        writer.writerows(zip(*shown, strict=True))
        sys.stdout.flush()
    if not result.converged:
        print(f"tallbayes: the run itself: {result.status}", file=sys.stderr)
    where = "" if options.out is None else f" in {options.out}"
    print(f"tallbayes: {count:,} effects by {found.by}{where}", file=sys.stderr)
    return 0
