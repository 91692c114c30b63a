"""Pages say so where they show figures that are older than the code.

    make stale          lists such files of results and what has changed since they were measured
    make stale-notes    writes a line above tables of README.md and docs that show one, and removes those that are over

A table of measurements is one most of whose cells are numbers. Its section names the file of results that it shows
and the command that measures it, before the table or behind it; a command of `PRINTED` writes no file, and what no
command measures again says "measured once". The line does not say what has changed: it stays true whatever does next.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import ages
from figures import DRAWN, FIGURES

ROOT = ages.ROOT
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
PRINTED = ("make bench-profile",)
ONCE = re.compile(r"\bmeasured once\b", re.IGNORECASE)
# Tables with numbers that nobody measured: settings, and examples that are run.
NOT_MEASURED = {
    ("docs/choosing.md", "Priors with shrinkage"),
    ("docs/methods.md", "What is chosen for you"),
    ("docs/reading-the-answer.md", "The headline"),
    ("docs/reading-the-answer.md", "What the levels say"),
    ("docs/what-we-tried-to-break.md", "What the cures are"),
}
NOTE = "*Measured with an earlier version of the code; {} would measure it again.*"
NOTES = re.compile(r"^\*Measured with an earlier version of the code; .* would measure it again\.\*\n\n", re.MULTILINE)
COMMAND = re.compile(r"(?:`|^)((?:make |python benchmarks/)[\w./-]+)", re.MULTILINE)
FILE = re.compile(r"results/([\w-]+\.(?:json|md|svg))|(?<![\w/])([\w-]+\.json)(?![\w-])")
RULE = re.compile(r"^\|[-| :]+\|$")


class Table(NamedTuple):
    """A table of measurements: where it stands on its page, in which section, and what that section names."""

    page: str
    section: str
    line: int
    commands: tuple[str, ...]
    files: tuple[str, ...]
    once: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line + 1} ({self.section})"


def tables(page: str, text: str) -> list[Table]:
    """Tables of measurements, from top to bottom."""
    found, lines = [], text.splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(r"#+ ", line)] or [0]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        section, named = lines[start].lstrip("# "), start
        if (page, section) in NOT_MEASURED:
            continue
        whole = "\n".join(lines[start:end])
        files: tuple[str, ...] = ()
        for number in range(start, end - 1):
            if lines[number].startswith("|") and RULE.match(lines[number + 1]) and is_measured(lines[number + 2 : end]):
                paragraphs = "\n".join(lines[named:number]).split("\n\n")
                own = next(filter(None, map(named_files, reversed(paragraphs))), ())
                files, named = own or files or named_files(whole), number
                commands = tuple(dict.fromkeys(COMMAND.findall(whole)))
                found.append(Table(page, section, number, commands, files, bool(ONCE.search(whole))))
    return found


def is_measured(lines: list[str]) -> bool:
    """Whether most cells of a table, but for those of its first column, are numbers."""
    cells = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells += re.split(r"(?<!\\)\|", line.strip().strip("|"))[1:]
    numbers = sum(bool(re.search(r"\d", re.sub(r"`[^`]*`", "", cell))) for cell in cells)
    return 2 * numbers >= max(len(cells), 1)


def named_files(text: str) -> tuple[str, ...]:
    """Files of results that a text names, and for what is drawn the file it is drawn from."""
    names = (first or second for first, second in FILE.findall(text))
    return tuple(dict.fromkeys(name for name in (DRAWN.get(each, each) for each in names) if name in FIGURES))


def wanting(table: Table) -> str | None:
    """What a table of measurements does not say, if there is such a thing."""
    if table.once or any(each in PRINTED for each in table.commands):
        return None
    if not table.files:
        return f"{table}: name the file of results that it shows, as benchmarks/results/x.json"
    for name in table.files:
        ways = {FIGURES[name].command.split(" --")[0], f"python benchmarks/{name.removesuffix('.json')}.py"}
        if not ways & set(table.commands):
            return f"{table}: name the command that measures {name}: {' or '.join(sorted(ways))}"
    return None


def noted(page: str, text: str) -> str:
    """The page with a line above each table that is older than the code; one for tables of a section and a file."""
    lines = NOTES.sub("", text).splitlines(keepends=True)
    written: set[tuple[str, tuple[str, ...]]] = set()
    notes: dict[int, str] = {}
    for table in tables(page, "".join(lines)):
        old = tuple(each for each in table.files if ages.changed(each))
        if old and (table.section, old) not in written:
            written.add((table.section, old))
            commands = dict.fromkeys(f"`{FIGURES[each].command}`" for each in old)
            notes[place(lines, table.line)] = NOTE.format(" and ".join(commands)) + "\n\n"
    return "".join(notes.get(number, "") + line for number, line in enumerate(lines))


def place(lines: list[str], table: int) -> int:
    """Above a table, and above what a program writes between marks."""
    for number in range(table, -1, -1):
        if lines[number].startswith(("#", "<!-- end")):
            return table
        if lines[number].startswith("<!-- begin"):
            return number
    return table


def main() -> None:
    print(ages.show())
    for page in PAGES:
        path = Path(ROOT / page)
        text = path.read_text()
        for table in tables(page, text):
            if wanting(table):
                sys.exit(wanting(table))
        path.write_text(noted(page, text))


if __name__ == "__main__":
    main()
