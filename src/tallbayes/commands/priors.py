"""Priors on the command line: --prior NAME=PRIOR, and what they believe before a fit."""

from __future__ import annotations

import argparse
import csv
import re
import sys
from typing import Any

from tallbayes.errors import InputError, explain

# Names of columns may have equal signs of their own.
STATED = re.compile(r"(?P<name>.+?)=\s*(?P<prior>\w+\s*\(.*\))\s*", re.DOTALL)
EXAMPLE = '--prior "hour=normal(0.1,0.5)"'


def priors_of(given: Any) -> dict[str, str]:
    """By name, of texts NAME=PRIOR; as they are on record, they are by name already."""
    if given is None or isinstance(given, dict):
        return given or {}
    found: dict[str, str] = {}
    for text in given:
        each = STATED.fullmatch(text)
        if each is None:
            raise InputError(explain("--prior NAME=PRIOR", repr(text), EXAMPLE))
        name = each["name"].strip()
        if name in found:
            raise InputError(explain("one --prior a name", f"two of {name!r}", "leave one out"))
        found[name] = each["prior"].strip()
    return found


def prior(options: argparse.Namespace) -> int:
    """What the priors believe of parameters and of the response, beside the response that is there."""
    from tallbayes.formula.priors.predictive import prior_predictive

    names = ("prior_scale", "intercept_scale", "group_scale", "missing", "weights", "offset", "draws", "seed")
    known = {name: getattr(options, name) for name in ("noise_scale", "degrees_of_freedom")}
    found = prior_predictive(
        options.formula,
        options.data,
        options.family,
        rows=None if options.rows == 0 else options.rows,
        priors=priors_of(options.prior),
        standardise=not options.raw and options.standardise,
        family_options={name: each for name, each in known.items() if each is not None},
        **{name: getattr(options, name) for name in names},
    )
    if not options.csv:
        print(found)
        return 0
    rows = found.table()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([each if isinstance(each, str) else f"{each:.8g}" for each in row.values()] for row in rows)
    sys.stdout.flush()
    return 0
