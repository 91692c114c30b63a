"""The answer in brief, as aligned text: what was met, means, sds and intervals with their errors, what to know of them.

    converged: every mean and sd is known to 0.01 posterior sd, every interval end to 0.1 sd

    coefficient    mean     error       sd      error       2.5%     error      97.5%    error
    Intercept    -2.25820  0.00067    0.10760  0.00056    -2.4702   0.0021    -2.0485   0.0019

A number is given to the second digit of its error; ~ stands before those that are less accurate than they should be,
and a line says what to do about it. `text` tells everything else.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from math import inf
from typing import Any

import numpy as np

from tallbayes.estimator.estimates import Estimate
from tallbayes.progress import shorten
from tallbayes.results.coefficients import INTERVAL, Ends, interval_ends, least, own_parameters, shown_size
from tallbayes.results.groups.effects import found_effects
from tallbayes.results.groups.partition import known_partition
from tallbayes.results.parts import Mode
from tallbayes.results.result import Result
from tallbayes.results.smooths.smoothness import hidden_names, smooths
from tallbayes.views.groups import about_effects, about_partition, effect_tables, partition_table
from tallbayes.views.headline import UNITS, accuracy, headline
from tallbayes.views.numbers import UNKNOWN, neat
from tallbayes.views.tables import component_names, measured, met, places, spent
from tallbayes.views.text import MAX_ROWS as TOLD
from tallbayes.views.text import about_ends, aligned, details, listed, mode_heading, remarks, wrap

WIDTH = 100
LEAST_WIDTH = 60
LONGEST_NAME = 44
MAX_ROWS = 40
ENDS = tuple(f"{p:.1%}" for p in INTERVAL)
ABOUT_ERRORS = ("error", "of the number to its left: Monte Carlo, root mean square, remaining bias included")


def brief(result: Result, settings: dict[str, Any], width: int | None = WIDTH, full: bool = False) -> str:
    """The answer, within a width; with `full` all components, and then levels, rates and tuning.

    Without a width tables are as wide as they need to be, and no name is cut.
    """
    room = inf if width is None else min(max(width, LEAST_WIDTH), WIDTH)
    width = WIDTH if width is None else int(room)
    most = np.inf if full else MAX_ROWS
    ends = interval_ends(result, least(own_parameters(result), None if full else MAX_ROWS))
    top = headline(result, ends, settings)
    first = "\n".join(part for part in ("\n".join(wrap(top.line, width, 4)), _heading(result, settings, width)) if part)
    parts = [first, *_tables(result, ends, room, most)]
    parts += [] if full else [part for mode in result.modes for part in _mode(result, mode, width, room, most)]
    shares, effects = known_partition(result), found_effects(result)
    parts += [] if shares is None else [partition_table(shares)]
    parts += [table for each in effects for table in effect_tables(each)]
    about = [ABOUT_ERRORS, *([] if shares is None else [about_partition(shares)])]
    about += [*(each for found in effects[:1] for each in about_effects(found)), *remarks(top)]
    if full:
        parts += [listed(about, width), _folded(details(result, None if ends is None else ends.first(TOLD)), width)]
    else:
        parts.append(listed([*about, *_facts(result, ends)], width))
    return "\n\n".join(part for part in parts if part)


def _heading(result: Result, settings: dict[str, Any], width: int) -> str:
    if not {"formula", "family", "data"} <= set(settings):
        return ""
    where = f"{settings['family']}, {result.num_rows:,} rows of {os.path.basename(settings['data'])}"
    return "\n".join([*wrap(settings["formula"], width, 4), *wrap(where, width, 4)])


def _mode(result: Result, mode: Mode, width: int, room: float, most: float) -> list[str]:
    """Another mode's answer under a sentence that says what it is."""
    heading = "\n".join(wrap(mode_heading(result, mode), width))
    if mode.result is None:
        near = [f"{at} (sd {sd})" for at, sd in zip(*places(mode, 6).columns.values(), strict=True)]
        more = ", ..." if len(mode.flat_location) > 6 else ""
        return ["\n".join([heading, *wrap(f"mode {', '.join(near)}{more}", width, 4)])]
    return [heading, *_tables(mode.result, _first_ends(mode.result), room, most)]


def _first_ends(result: Result) -> Ends | None:
    return interval_ends(result, least(own_parameters(result), MAX_ROWS))


def _tables(result: Result, ends: Ends | None, width: float, most: float) -> list[str]:
    """Means beside sds where both are there, and all other quantities one by one."""
    estimates, tables = dict(result.estimates), []
    kind = "parameter" if result.encoding is None else "coefficient"
    if {"mean", "sd"} <= set(estimates) and estimates["mean"].structure == estimates["sd"].structure:
        moments = [estimates.pop("mean"), estimates.pop("sd")]
        names, hidden = _names(result, moments[0]), hidden_names(result) if most < np.inf else set()
        both = [] if ends is None or len(ends.lower.flat_value) < min(most, len(names)) else [ends.lower, ends.upper]
        tables.append(_table(kind, [*moments, *both], width, most, names, hidden))
        if both and max(map(len, tables[0].split("\n"))) > width:
            tables = [_table(kind, each, width, most, names, hidden) for each in (moments, both)]
    return tables + [_table(each.name, [each], width, most, _names(result, each)) for each in estimates.values()]


def _names(result: Result, estimate: Estimate) -> list[str]:
    return component_names(estimate)[: shown_size(result, estimate)]


def _table(
    kind: str,
    estimates: Sequence[Estimate],
    width: float,
    most: float,
    names: list[str],
    without: Collection[str] = (),
) -> str:
    """A row for every component of estimates that have the same ones, without some."""
    shown = int(min(most, len(names)))
    rows = [row for row in range(shown) if names[row] not in without]
    columns: list[list[str]] = []
    for estimate in estimates:
        cells = [cell.texts for cell in measured(estimate, shown)]
        values, errors = zip(*(cells[row] for row in rows), strict=True) if rows else ((), ())
        head = estimate.name if len(estimates) > 1 else "value"
        columns += [aligned(head, values, 4), aligned("error", [each or UNKNOWN for each in errors], 2)]
    asked = [each for each in estimates if each.name not in ENDS]
    accurate = [each for row, each in enumerate(met(*asked, most=shown)) if row in rows] if asked else []
    if not all(accurate):
        columns.append(["", *("" if each else "  not met" for each in accurate)])
    room = width - sum(max(map(len, column)) for column in columns)
    kept = [names[row] for row in rows]
    longest = max(map(len, (kind, *kept)))
    room = longest if width == inf else max(12, min(LONGEST_NAME, int(room)))
    labels = [shorten(name, room) for name in (kind, *kept)]
    longest = max(map(len, labels))
    lines = ["".join(row).rstrip() for row in zip([each.ljust(longest) for each in labels], *columns, strict=True)]
    hidden = len(names) - shown
    return "\n".join([*lines, *([f"... and {hidden:,} more; --full and --json have all"] if hidden else [])])


def _facts(result: Result, ends: Ends | None) -> list[tuple[str, str]]:
    """Status, cost and notes, each under its word."""
    asked = accuracy(result.settings)
    return [
        ("status", str(result.status)),
        ("accuracy", f"each number to {asked}" if asked else _by_name(result.settings)),
        *([] if ends is None else [("ends", about_ends(result, ends))]),
        ("cost", spent(result)),
        *_of_smooths(result),
        *(_fact(note) for note in result.notes),
    ]


def _of_smooths(result: Result) -> list[tuple[str, str]]:
    """A line for all, in place of their coefficients."""
    if not hidden_names(result) or result.posterior is None or result.posterior.anchor.prior_hessian is None:
        return []
    told = "; ".join(map(str, smooths(result)))
    return [("smooths", f"{told}; coefficients() has their coefficients, curve(column) draws them")]


def _by_name(settings: Any) -> str:
    """What was asked for of every quantity, where that differs."""
    for kind, unit in UNITS.items():
        if isinstance(settings.get(kind), dict):
            return "; ".join(f"{name} to {neat(float(size))}{unit}" for name, size in settings[kind].items())
    return ""


def _fact(note: str) -> tuple[str, str]:
    word, colon, rest = note.partition(": ")
    return (word, rest) if colon and word.isalpha() else ("note", note)


def _folded(text: str, width: int) -> str:
    """Sentences within the width; rows of tables, which have gaps, as they are."""
    lines = text.split("\n")
    return "\n".join(line if len(line) <= width or "  " in line else "\n".join(wrap(line, width, 4)) for line in lines)
