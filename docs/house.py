"""The picture of the house, drawn from the code: packages in their order, and who stands on whom.

python docs/house.py        writes docs/pictures/house.svg; a test holds it against the code

Lines lead from a package to those it imports, without those that it has through another.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from html import escape
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "tallbayes"
PICTURE = Path(__file__).parent / "pictures" / "house.svg"
ORDER = (
    "programs", "gaussian", "model", "rows", "workers", "estimator", "anchor", "weighing", "shrinkage", "sampler",
    "records", "setup", "groups", "methods", "posterior", "results", "evidence", "leave_one_out", "views", "estimation",
    "formula", "arrivals", "doors",
    "commands", "baselines", "experiments",
)  # fmt: skip
WITHOUT_JAX = "estimator"
ROW, LEFT, BOX, TEXT, WIDTH = 34, 150, 130, 310, 1060
FAINT, STRONG, ACCENT = "#9aa3ad", "#1f2933", "#0b6e4f"


@cache
def imports_of(package: str) -> set[str]:
    """Packages that a package's modules import when they are imported themselves."""
    found = set()
    for path in (SOURCE / package).rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tallbayes."):
                found.add(str(node.module).split(".")[1])
    return (found & set(ORDER)) - {package}


def nearest(package: str) -> set[str]:
    """Those of its imports that none of the others imports in turn."""
    imports = imports_of(package)
    return imports - {below for each in imports for below in reached(each)}


@cache
def reached(package: str) -> set[str]:
    imports = imports_of(package)
    return imports | {below for each in imports for below in reached(each)}


def described(package: str) -> tuple[str, int]:
    """The first sentence of a package's map, and how many files it has."""
    text = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text())) or ""
    sentence = re.split(r"(?<=\.)\s", " ".join(text.split("\n\n")[0].split()))[0].rstrip(".")
    return sentence, len(list((SOURCE / package).rglob("*.py"))) - 1


def arc(start: int, end: int) -> str:
    """From a package up to one that it imports, along the left side."""
    x, depth = LEFT, 18 + 9 * abs(start - end)
    first, last = (30 + ROW * place for place in (start, end))
    return f'<path d="M{x} {first} C{x - depth} {first} {x - depth} {last} {x} {last}" class="arc"/>'


def draw() -> str:
    height = 30 + ROW * len(ORDER)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="The packages of tallbayes in the order in which they import one another">',
        "<style>text{font:13px system-ui,sans-serif;fill:" + STRONG + "}.small{font-size:12px;fill:#52606d}"
        ".name{font-weight:600}.box{fill:#f5f7fa;stroke:" + FAINT + "}.waist{fill:#e3f4ec;stroke:" + ACCENT + "}"
        ".arc{fill:none;stroke:" + FAINT + ";stroke-width:1;opacity:.9}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for place, package in enumerate(ORDER):
        parts += [arc(place, ORDER.index(above)) for above in sorted(nearest(package), key=ORDER.index)]
    for place, package in enumerate(ORDER):
        y, (sentence, files) = 30 + ROW * place, described(package)
        kind = "waist" if package == WITHOUT_JAX else "box"
        parts.append(f'<rect x="{LEFT}" y="{y - 13}" width="{BOX}" height="26" rx="5" class="{kind}"/>')
        parts.append(f'<text x="{LEFT + 10}" y="{y + 5}" class="name">{package}</text>')
        parts.append(f'<text x="{LEFT + BOX - 8}" y="{y + 5}" text-anchor="end" class="small">{files}</text>')
        parts.append(f'<text x="{TEXT - 14}" y="{y + 5}" class="small">{escape(sentence)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw())
