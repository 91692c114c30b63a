"""The tables of docs/what-we-tried-to-break.md, from what is stored: before and after every cure, and hard models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "what-we-tried-to-break.md"
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- begin table: make attack-page -->", "<!-- end table -->"
BEGIN_HARD, END_HARD = "<!-- begin hard models: make attack-page -->", "<!-- end hard models -->"
HARD_COLUMNS = "model", "seconds asked", "taken", "then to exit", "status", "means and sds: accuracy", "peak memory"
COLUMNS = "case", "first reported", "before: converged, worst 95%, RMSE", "after: converged, worst 95%, RMSE"
HEADER = f"| {' | '.join(COLUMNS)} |\n{len(COLUMNS) * '|---'}|"
ITEMS = {
    1: "Rows that are never read",
    2: "An sd's error in the wrong unit",
    3: "Tails that few paths see",
    4: "The wrong mode, or a missed one",
    5: "Quadrature called exact",
    6: "Rounding",
}


def load(name: str) -> dict[str, Any]:
    path = RESULTS / name
    return json.loads(path.read_text())["attacks"] if path.exists() else {}


def tables(before: dict[str, Any], after: dict[str, Any]) -> str:
    """One table for each kind of attack."""
    known = before | after
    parts = []
    for item, title in ITEMS.items():
        names = [name for name, each in known.items() if each["item"] == item]
        found = [
            f"| {known[name]['case']} | {known[name]['stated']} | {cell(before.get(name))} | {cell(after.get(name))} |"
            for name in names
        ]
        parts.append("\n".join([f"**{title}**", "", HEADER, *found]))
    return "\n\n".join(parts)


def cell(record: dict[str, Any] | None) -> str:
    """How many of the runs converged, or how the others ended; then coverage and RMSE of those that count."""
    if record is None:
        return "not run"
    converged = record["statuses"].get("converged", 0)
    said = f"{converged} of {record['runs']}"
    others = [f"{count} {status}" for status, count in record["statuses"].items() if status != "converged"]
    ends = f" ({', '.join(others)})" if others else ""
    if record["worst_coverage"] is None:
        return said + ends
    return f"{said}{ends}, {record['worst_coverage']:.0%}, {record['rmse']:.2f}"


def rewrite() -> None:
    """Put the tables between the page's marks."""
    PAGE.write_text(written(PAGE.read_text()))


def written(text: str) -> str:
    """The page's text with the tables as they are stored."""
    text = between(text, BEGIN, END, tables(load("attacks-before.json"), load("attacks.json")))
    return between(text, BEGIN_HARD, END_HARD, hard_models(json.loads((RESULTS / "hard_models.json").read_text())))


def between(text: str, begin: str, end: str, found: str) -> str:
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n\n{found}\n\n{end}{tail}"


def hard_models(stored: dict[str, Any]) -> str:
    """How every hard model ended."""
    rows = [f"| {' | '.join(hard_cells(each))} |" for each in stored["cases"]]
    return "\n".join([f"| {' | '.join(HARD_COLUMNS)} |", f"{len(HARD_COLUMNS) * '|---'}|", *rows])


def hard_cells(row: dict[str, Any]) -> list[str]:
    said = [row["case"], f"{row['asked']:.0f}", f"{row['taken']:.0f}"]
    if row["status"] is None:
        return [*said, "", f"no result: {row['said']}", "", ""]
    where = f"{row['levels']} levels" if row["levels"] else f"in set-up: {re.split('[,:]', row['ended_at'])[0]}"
    errors = ", ".join(f"{count:,} {word}" for word, count in row["errors"].items() if count)
    ended = f"{row['status']}, {where}"
    return [*said, f"{row['exit_seconds']:.0f}", ended, errors, f"{row['peak_bytes'] / 2**30:.1f} GiB"]
