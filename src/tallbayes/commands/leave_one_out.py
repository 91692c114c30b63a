"""The commands `loo` and `rank`: how well runs foretell rows that they have not seen, and which does it best."""

from __future__ import annotations

import argparse
import json
import sys
from math import isfinite
from pathlib import Path
from typing import Any

from tallbayes.commands.days_on_disk import with_its_rows
from tallbayes.errors import InputError, explain
from tallbayes.results.run_folder import read_run


def loo(options: argparse.Namespace) -> int:
    """Leave-one-out of a run; every row's own into --pointwise."""
    out = options.pointwise
    if out is not None and out.exists() and not options.force:
        hint = "another --pointwise, or --force to replace it"
        raise InputError(explain("a new file for --pointwise", f"{str(out)!r}, which exists", hint))
    if out is not None and out.exists():
        out.unlink()
    result = _with_rows(options.folder)
    found = result.loo(out=out, tolerance=options.tolerance, unit=options.unit)
    if options.json:
        print(json.dumps(_plain(found)))
    else:
        print(found)
    sys.stdout.flush()
    if out is not None:
        print(f"tallbayes: {found.num_rows:,} {found.unit}s in {out}", file=sys.stderr)
    return 0


def rank(options: argparse.Namespace) -> int:
    """Runs side by side, the best first."""
    from tallbayes.leave_one_out.ranking import rank as ranked

    results = {str(folder): _with_rows(folder) for folder in options.folders}
    if len(results) < len(options.folders):
        raise InputError(explain("every run once", "one of them twice", "tallbayes rank run1 run2"))
    found = ranked(results, by=options.by, tolerance=options.tolerance, unit=options.unit)
    if options.json:
        print(found.to_pandas().to_json(orient="records"))
    else:
        print(found)
    return 0


def _with_rows(folder: Path) -> Any:
    return with_its_rows(*read_run(folder), folder)


def _plain(found: Any) -> dict[str, Any]:
    names = ("elpd", "sampling_error", "standard_error", "bias_bound", "interval", "p_loo", "p_loo_error", "looic")
    facts = {name: getattr(found, name) for name in (*names, "num_rows", "unit", "status", "draws", "notes")}
    whole = facts | {"rows": [each._asdict() for each in found.rows]}
    return {name: _finite(each) for name, each in whole.items()}


def _finite(value: Any) -> Any:
    """As JSON has it: what is no number is null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
