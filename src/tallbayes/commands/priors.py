"""Priors on the command line: --prior NAME=PRIOR, and what they believe before a fit."""

from __future__ import annotations

import re
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
