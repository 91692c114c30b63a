"""The stored runs as tables, a summary and plots: bench.md, bench.json and bench-*.svg beside bench.jsonl.

    python benchmarks/peers/show.py [FOLDER [NAME]]      without running anything

What is extrapolated to the goal, and when a bias counts as seen, is said in laws.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ages
import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from peers import beyond, laws  # noqa: E402
from peers.pictures import GROUPS, PANELS, Summary, contestants_of, draw  # noqa: E402

OURS = "tallbayes"


def read(path: Path) -> list[Summary]:
    """The last row of every contestant on every problem, by problem and group, and then as they first appear."""
    found: dict[tuple[str, str], Summary] = {}
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[row["problem"], row["contestant"]] = row
    problems = [problem for panel in PANELS.values() for problem in panel]

    def place(row: Summary) -> tuple[int, int]:
        problem = problems.index(row["problem"]) if row["problem"] in problems else len(problems)
        return problem, next((k for k, name in enumerate(GROUPS) if row["contestant"].startswith(name)), len(GROUPS))

    return sorted(found.values(), key=place)


def as_answer(stored: Summary) -> Any:
    """An answer as `laws` takes it."""
    costs = {part: SimpleNamespace(**stored[part]) for part in ("setup", "sampling")}
    return SimpleNamespace(**{**stored, **costs})


def summarise(row: Summary, truth: Any) -> Summary:
    """What the tables and plots show of one run; a run without an answer has its failure alone."""
    common = {part: row[part] for part in ("problem", "contestant", "effort", "failure", "peak_bytes")}
    if row["answer"] is None:
        return common | {"answered": False}
    answer = as_answer(row["answer"])
    price = laws.cost_to(answer, truth, starting=row["starting"])
    both = laws.cost_to(answer, truth, starting=row["starting"], sds=True)
    warm = answer.setup.seconds + answer.sampling.seconds
    return common | {
        "answered": True,
        "law": answer.law,
        "errors": asdict(laws.actual_errors(answer, truth)),
        "stated": laws.noise(answer) if answer.law != "fixed" else None,
        "setup_items": answer.setup.items,
        "sampling_items": answer.sampling.items,
        "warm": warm,
        "cold": row["starting"] + answer.compiling + warm,
        "starting": row["starting"],
        "compiling": answer.compiling,
        "bytes_before": row["bytes_before"],
        "price": asdict(price),
        "price_with_sds": None if both is None else asdict(both),
        "floor": str(price.floor),
        "remark": remark(answer),
        "remarks": answer.remarks,
        "settings": answer.settings,
    }


def remark(answer: Any) -> str:
    """What a reader has to know beside the numbers."""
    if answer.law == "sampling":
        return f"ESS {answer.ess:,.0f}"
    if answer.law == "fixed":
        return "nothing to draw"
    status = answer.remarks.get("status", "converged")
    return f"tolerance {answer.tolerance:g}, {status.replace('_', ' ')}"


def number(value: float | None, form: str = ".2g") -> str:
    """Few digits, and a word where there is no number.

    >>> number(0.01234), number(123456.0, ",.3g"), number(float("inf")), number(None)
    ('0.012', '1.23e+05', 'never', '')
    """
    if value is None:
        return ""
    return f"{value:{form}}" if np.isfinite(value) else "never"


def seconds(value: float) -> str:
    """Two digits below a tenth, hundredths below ten, whole seconds above.

    >>> seconds(0.00567), seconds(0.1234), seconds(56.7), seconds(123456.0), seconds(float("inf"))
    ('0.0057', '0.12', '57', '123,456', 'never')
    """
    return number(value, ".2g" if value < 0.1 else ".2f" if value < 10 else ",.0f")


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def run_table(runs: list[Summary]) -> list[str]:
    """What was run, and how far off it is."""
    header = (
        "contestant", "worst mean off (sds)", "worst sd off (sds)", "stated", "items: set-up", "sampling",
        "seconds: cold", "warm", "peak memory (MB)", "remarks",
    )  # fmt: skip
    return markdown(header, [run_cells(run) for run in runs])


def run_cells(run: Summary) -> list[str]:
    memory = f"{run['peak_bytes'] / 1e6:,.0f}"
    if not run["answered"]:
        return [run["contestant"], *[""] * 7, memory, f"FAILED: {clean(run['failure'])}"]
    failed = f"; {clean(run['failure'])}" if run["failure"] else ""
    return [
        run["contestant"],
        number(run["errors"]["mean_worst"]),
        number(run["errors"]["sd_worst"]),
        "unknown" if run["stated"] == np.inf else number(run["stated"]),
        number(run["setup_items"]),
        number(run["sampling_items"]),
        seconds(run["cold"]),
        seconds(run["warm"]),
        memory,
        run["remark"] + failed,
    ]


def clean(text: str) -> str:
    """One cell of a table."""
    return text.replace("|", "/")[:160]


def price_table(runs: list[Summary]) -> list[str]:
    """What it takes to bring the worst mean to the goal, and how many times what tallbayes takes."""
    header = (
        "contestant", "bias of the worst mean (sds)", "sampling scaled by", "items: sampling", "all", "seconds: warm",
        "cold", "times ours: sampling items", "warm", "cold", "with sds: warm", "cold", "times ours: warm", "cold",
    )  # fmt: skip
    answered = [run for run in runs if run["answered"]]
    ours = next((run for run in answered if run["contestant"] == OURS), None)
    return markdown(header, [price_cells(run, ours) for run in answered])


def price_cells(run: Summary, reference: Summary | None) -> list[str]:
    price, ours = run["price"], reference and reference["price"]
    ratios = [number(ratio(price, ours, part), ",.2g") for part in ("sampling_items", "warm", "cold")]
    return [
        run["contestant"],
        run["floor"],
        number(price["factor"]),
        number(price["sampling_items"]),
        number(price["items"]),
        seconds(price["warm"]),
        seconds(price["cold"]),
        *ratios,
        *both_cells(run["price_with_sds"], reference and reference["price_with_sds"]),
    ]


def both_cells(price: Summary | None, ours: Summary | None) -> list[str]:
    """What means and sds together take; nothing where that is not known."""
    if price is None:
        return [""] * 4
    ratios = [number(ratio(price, ours, part), ",.2g") for part in ("warm", "cold")]
    return [seconds(price["warm"]), seconds(price["cold"]), *ratios]


def overview(problems: dict[str, list[Summary]], part: str, form: Callable[[float], str]) -> list[str]:
    """A row a contestant and a column a problem; a bias above the goal in brackets, a failure as a dash."""

    def cell(name: str, runs: list[Summary]) -> str:
        run = next((run for run in runs if run["contestant"] == name), None)
        if run is None or not run["answered"]:
            return "-"
        price = run["price"]
        if np.isfinite(price[part]):
            return form(price[part])
        return f"({run['floor']})" if price["floor"]["seen"] else "(unknown)"

    names = contestants_of(problems)
    return markdown(
        ("contestant", *problems), [[name, *(cell(name, runs) for runs in problems.values())] for name in names]
    )


OVERVIEWS = {
    "Seconds, warm": ("warm", lambda value: seconds(value)),
    "Seconds, cold": ("cold", lambda value: seconds(value)),
    "Data items of sampling": ("sampling_items", lambda value: number(value)),
}


def ratio(price: Summary, ours: Summary | None, part: str) -> float | None:
    """Nothing where ours is not known or neither of the two has any."""
    if ours is None or not np.isfinite(ours[part]) or ours[part] == 0:
        return None
    return float(price[part] / ours[part])


def page(problems: dict[str, list[Summary]], truths: dict[str, Any], rows: list[Summary], figures: list[str]) -> str:
    """All tables, with the settings of every run folded away below its problem."""
    commits, versions = (sorted({json.dumps(row[part]) for row in rows}) for part in ("commit", "versions"))
    text = [
        "# Side by side with the peers",
        "",
        f"Goal: the worst posterior mean to {laws.GOAL:g} posterior sds. Errors are actual, against the reference.",
        f"Commits {', '.join(commits)}; {'; '.join(versions)}; {rows[0]['cores']} cores.",
    ]
    for title, (part, form) in OVERVIEWS.items():
        told = f"{title}, to {laws.GOAL:g} posterior sds (in brackets a bias that no draws remove):"
        text += ["", told, "", *overview(problems, part, form)]
    for problem, runs in problems.items():
        truth = truths[problem]
        text += [
            "",
            f"## {problem}",
            "",
            f"d = {len(truth.mean)}; the reference is off by {truth.worst_error:.1g} sds.",
        ]
        text += [
            "",
            *run_table(runs),
            "",
            f"To {laws.GOAL:g} posterior sds:",
            "",
            *price_table(runs),
            "",
            *settings(runs),
        ]
    return "\n".join([*text, "", *(f"![{figure}]({figure})" for figure in figures)]) + "\n"


def settings(runs: list[Summary]) -> list[str]:
    told = [
        f"- {run['contestant']} ({run['effort']:g} s): "
        + "; ".join(f"{name}: {value}" for name, value in run["settings"].items())
        for run in runs
        if run["answered"]
    ]
    return ["<details><summary>Settings</summary>", "", *told, "", "</details>"]


def strict(value: Any) -> Any:
    """JSON has no infinity.

    >>> strict({"a": [1.0, float("inf")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {name: strict(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def write(folder: Path, name: str, get: Callable[[str], Any] | None = None) -> str:
    """Tables, summary and plots of what is stored; `get` tells the truth of a problem. Returns the tables.

    Where none of the posteriors has run, these are of the mixed and wide ones, and no file is written.
    """
    if get is None:
        from peers.truths import get
    path = folder / f"{name}.jsonl"
    if not path.exists():
        return "\n".join(beyond.tables(folder, name))
    rows = read(path)
    truths = {problem: get(problem) for problem in dict.fromkeys(row["problem"] for row in rows)}
    runs = [summarise(row, truths[row["problem"]]) for row in rows]
    problems = {problem: [run for run in runs if run["problem"] == problem] for problem in truths}
    figures = draw(problems, folder, name)
    text = page(problems, truths, rows, figures) + "\n".join([*beyond.tables(folder, name), ""])
    (folder / f"{name}.md").write_text(text)
    summary = {"goal": laws.GOAL, "commits": sorted({row["commit"] for row in rows}), "runs": runs}
    document = folder / f"{name}.json"
    document.write_text(json.dumps(strict(summary), indent=1, allow_nan=False) + "\n")
    ages.record(
        document, {problem: ages.of_lines(each for each in rows if each["problem"] == problem) for problem in truths}
    )
    return text


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(
        write(Path(arguments[0]) if arguments else HERE.parent / "results", arguments[1] if arguments[1:] else "bench")
    )
