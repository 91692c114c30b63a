"""The command `evidence`: the log marginal likelihood of a run, from its table where that is in its place."""

from __future__ import annotations

import argparse
import json
import sys

from tallbayes.commands.commands import with_its_rows
from tallbayes.results.run_folder import read_run


def evidence(options: argparse.Namespace) -> int:
    """Printed; 3 where it is less accurate than was asked for."""
    result, settings = read_run(options.folder)
    found = with_its_rows(result, settings, options.folder).evidence(options.tolerance)
    print(json.dumps(found.plain(), indent=2, allow_nan=False) if options.json else found)
    if not result.converged:
        print(f"tallbayes: the run itself: {result.status}", file=sys.stderr)
    return 0 if found.converged else 3
