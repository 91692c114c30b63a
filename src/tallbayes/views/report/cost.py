"""What it cost: a sentence, and folded below it row gradients, passes, seconds, method, tuning, notes and settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tallbayes.results.result import Result
from tallbayes.views.advice import RUN
from tallbayes.views.report.markup import (
    Markup,
    Piece,
    columns_of,
    counted,
    element,
    folded,
    join,
    neat,
    noted,
    plain,
    table,
)
from tallbayes.views.tables import passes, trials

# What stands in other places of the page, or is of no use to a reader.
SHOWN_ELSEWHERE = ("formula", "family", "format", "command", "versions", "seed", "method", RUN)


def cost(result: Result, settings: dict[str, Any]) -> Markup:
    """All of it, below its heading."""
    parts = [_facts(result, settings), _tuning(result), _notes(result), _settings(settings)]
    return join([_summary(result), folded("Method, tuning, notes and settings", parts)])


def _summary(result: Result) -> Markup:
    spent, unit = result.cost, result.unit
    read = f"{unit} gradients along paths" if result.weighing is None else f"densities of {unit}s at draws"
    words = (
        f"{plain(spent.seconds, 3)} seconds: {passes(spent.passes)} over the {counted(spent.num_data, unit)} "
        f"to set up, then {spent.evaluations:,} {read}, as many as {passes(spent.epochs)}."
    )
    return element("p", words)


def _facts(result: Result, settings: dict[str, Any]) -> Markup:
    spent, versions = result.cost, settings.get("versions", {})
    facts: list[tuple[str, Piece]] = [
        (f"{result.unit.capitalize()} gradients", f"{spent.evaluations:,} ({plain(spent.epochs, 3)} epochs)"),
        ("Set-up", f"{spent.setup_evaluations:,} {result.unit} gradients: mode, curvature, checks"),
        ("Run ahead, unused", f"{spent.speculative_evaluations:,}" if spent.speculative_evaluations else None),
        ("Seconds", plain(spent.seconds, 3)),
        ("Method", element("code", result.method)),
        ("Seed", str(settings["seed"]) if "seed" in settings else None),
        ("Versions", ", ".join(f"{name} {number}" for name, number in versions.items()) or None),
    ]
    return _listing(facts)


def _listing(facts: Sequence[tuple[str, Piece]]) -> Markup:
    pairs = [join([element("dt", name), element("dd", value)]) for name, value in facts if value is not None]
    return element("dl", *pairs)


def _tuning(result: Result) -> Markup | None:
    tuning = result.tuning
    if tuning is None:
        return None
    tried, unit = trials(tuning, result.unit), result.unit
    *columns, chosen = columns_of(tried, evaluations=f"{unit} gradients")
    window = tuning.chosen.window * tuning.time
    averaged = f", then {neat(window)} more over which they are averaged" if window else ""
    words = (
        f"First step and {unit}s a step were chosen by {counted(len(tuning.trials), 'short trial')}, in all "
        f"{tuning.evaluations:,} {unit} gradients: {tuning.reason}. Paths run for a time {neat(tuning.time)}, and "
        f"as much again for every level{averaged}."
    )
    caption = f"Trials, with the {unit} gradients each predicts for the whole run."
    return join(
        [
            element("h3", "Tuning"),
            element("p", words),
            table(caption, "trial", tried.names, [*columns, replace(chosen, numeric=False)]),
        ]
    )


def _notes(result: Result) -> Markup | None:
    if not result.notes:
        return None
    return join([element("h3", "Notes"), element("ul", *(element("li", noted(each)) for each in result.notes))])


def _settings(settings: dict[str, Any]) -> Markup | None:
    """What the run was asked, but for what stands elsewhere."""
    shown = {name: each for name, each in settings.items() if name not in SHOWN_ELSEWHERE and each is not None}
    if not shown:
        return None
    facts = [(name.replace("_", " ").capitalize(), _setting(name, each)) for name, each in shown.items()]
    return join([element("h3", "Settings"), _listing(facts)])


def _setting(name: str, value: Any) -> str:
    if name == "data":
        # Whoever is shown a report need not know where its writer keeps files.
        return os.path.basename(str(value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
