"""The tables and the picture of docs/benchmarks.md, from what is stored.

    python benchmarks/bench.py --page                     from the files of results that the page names
    python benchmarks/bench.py --page bench.json          from this one, from now on

Where several files are named, later ones have the last word. Each block of the page stands between marks, and says
which command measures it and which file it shows; the sentence on who is ahead is made from the same runs.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from peers import beyond

from tallbayes.experiments import style

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "pictures" / "peers.svg"
RESULTS = ROOT / "benchmarks" / "results"
MARK = "<!-- begin {0}: python benchmarks/bench.py --page -->", "<!-- end {0} -->"
OURS, LADDER, WEIGHED = "tallbayes", "tallbayes, the ladder", "importance sampling (NumPy)"
NUTS = "NumPyro NUTS"
COLUMNS = {OURS: "tallbayes", LADDER: "the ladder", NUTS: NUTS, "BlackJAX MALA": "BlackJAX MALA"}
COLUMNS |= {WEIGHED: "t about the mode, weighted (NumPy)"}
PEERS = tuple(name for name in COLUMNS if name not in (OURS, LADDER))
POSTERIORS = {
    "paper-100-3": ("paper's logistic", 100, 3),
    "paper-1000-3": ("paper's logistic", 1_000, 3),
    "paper-10000-3": ("paper's logistic", 10_000, 3),
    "logistic-300-5": ("logistic", 300, 5),
    "logistic-1000-20": ("logistic", 1_000, 20),
    "logistic-10000-20": ("logistic", 10_000, 20),
    "logistic-100000-20": ("logistic", 100_000, 20),
    "logistic-1000000-20": ("logistic", 1_000_000, 20),
    "flights": ("flights (real)", 327_346, 38),
    "randhie": ("randhie counts (real)", 20_190, 10),
    "multinomial": ("multinomial", 60_000, 270),
    "non-gaussian": ("far from Gaussian", 200, 20),
}

Runs = dict[str, dict[str, dict[str, Any]]]


def runs_of(documents: Iterable[dict[str, Any]]) -> Runs:
    """By posterior and contestant; those of later files in the place of those of earlier ones."""
    found: Runs = {}
    for document in documents:
        for run in document["runs"]:
            found.setdefault(run["problem"], {})[run["contestant"]] = run
    return {name: found[name] for name in POSTERIORS if name in found}


def seconds_of(run: dict[str, Any] | None, part: str = "warm") -> float:
    """To the goal; infinite for those that do not get there, and where there is no run."""
    found = run["price"][part] if run is not None and run["answered"] else None
    return float("inf") if found is None else float(found)


def peers_table(runs: Runs) -> str:
    """Seconds of every contestant on every posterior, the least of a row in bold."""
    rows = []
    for name, own in runs.items():
        label, num_rows, dimension = POSTERIORS[name]
        taken = {each: seconds_of(own.get(each)) for each in COLUMNS}
        least = min(taken.values())
        cells = [
            f"**{beyond.digits(value)}**" if value == least else beyond.digits(value) if value < float("inf") else "-"
            for value in taken.values()
        ]
        rows.append([label, f"{num_rows:,}", str(dimension), *cells])
    return beyond.markdown(["", "N", "d", *COLUMNS.values()], rows)


def who_is_ahead(runs: Runs) -> str:
    """The default beside the quickest of the peers, warm; from a fresh process beside NUTS."""
    ratios, behind = [], []
    for name, own in runs.items():
        ours, (best, peer) = seconds_of(own.get(OURS)), min((seconds_of(own.get(each)), each) for each in PEERS)
        if best < ours:
            told = f"{beyond.digits(ours)} s against {beyond.digits(best)} of {peer}"
            behind.append(f"{labelled(name)} ({told})")
        elif best < float("inf"):
            ratios.append(best / ours)
    text = f"tallbayes is ahead of every peer on {len(ratios)} of {len(ratios) + len(behind)} posteriors"
    if ratios:
        text += (
            f", {beyond.digits(min(ratios))} to {beyond.digits(max(ratios))} times quicker than the quickest of them"
        )
    return text + (f"; behind on {', '.join(behind)}." if behind else ".") + from_fresh(runs)


def from_fresh(runs: Runs) -> str:
    """Of posteriors that both have answered."""
    pairs = {name: [seconds_of(own.get(each), "cold") for each in (OURS, NUTS)] for name, own in runs.items()}
    pairs = {name: both for name, both in pairs.items() if max(both) < float("inf")}
    if not pairs:
        return ""
    (least, most), (least_of_nuts, most_of_nuts) = (
        (min(each), max(each)) for each in zip(*pairs.values(), strict=True)
    )
    text = f" From a fresh process, imports and compiling included, it takes {beyond.digits(least)} to "
    text += f"{beyond.digits(most)} s, NumPyro's NUTS {beyond.digits(least_of_nuts)} to {beyond.digits(most_of_nuts)} s"
    lost = [labelled(name) for name, (ours, nuts) in pairs.items() if nuts < ours]
    return f"{text}, and less than ours on {', '.join(lost)}." if lost else f"{text}."


def labelled(name: str) -> str:
    label, num_rows, dimension = POSTERIORS[name]
    return f"{label}, {num_rows:,} x {dimension}"


def paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def linked(files: Sequence[str]) -> str:
    return " and ".join(f"[{name}](../benchmarks/results/{name})" for name in files)


def block_of_peers(files: Sequence[str], runs: Runs) -> str:
    named = " ".join(f'"{name}"' if " " in name else name for name in COLUMNS)
    told = f"Seconds until every posterior mean is right to 1% of its sd, warm ({linked(files)};"
    told += f" `python benchmarks/bench.py --contestants {named}`), the quickest in bold:"
    return f"{paragraph(told)}\n\n{peers_table(runs)}\n\n{paragraph(who_is_ahead(runs))}"


def block_of_mixed(rows: list[dict[str, Any]]) -> str:
    told = paragraph(f"`make bench-mixed` ({linked(['mixed.json'])}). {beyond.TOLD_OF_MIXED}")
    return f"{told}\n\n{beyond.mixed_table(rows)}"


def block_of_wide(stored: dict[str, Any]) -> str:
    told = paragraph(f"`make bench-wide` ({linked(['wide.json'])}). {beyond.TOLD_OF_WIDE}")
    return f"{told}\n\n{beyond.wide_table(stored)}\n\n{paragraph(beyond.beside_ububu(stored))}".rstrip()


def between(text: str, name: str, found: str) -> str:
    begin, end = (each.format(name) for each in MARK)
    head, rest = text.split(begin)
    return f"{head}{begin}\n\n{found}\n\n{end}{rest.split(end)[1]}"


def files_of(text: str) -> list[str]:
    """Those that the page names in its first block."""
    begin, end = (each.format("peers") for each in MARK)
    block = text.split(begin)[1].split(end)[0]
    return list(dict.fromkeys(re.findall(r"results/([\w-]+\.json)", block)))


def load(files: Iterable[str]) -> list[Any]:
    return [json.loads((RESULTS / name).read_text()) for name in files]


def written(text: str, files: Sequence[str] = ()) -> str:
    """The page's text with its tables as they are stored."""
    chosen = list(files) or files_of(text)
    mixed, wide = load(["mixed.json", "wide.json"])
    text = between(text, "peers", block_of_peers(chosen, runs_of(load(chosen))))
    return between(between(text, "mixed", block_of_mixed(mixed)), "wide", block_of_wide(wide))


def draw(runs: Runs) -> Any:
    """A line a posterior: seconds of every contestant, ours filled."""
    figure, (ax,) = style.new_figure(1, height=4.6)
    figure.set_size_inches(7.2, 4.6)
    places = list(range(len(runs)))[::-1]
    for number, (name, told) in enumerate(COLUMNS.items()):
        points = [(seconds_of(own.get(name)), y) for own, y in zip(runs.values(), places, strict=True)]
        points = [point for point in points if point[0] < float("inf")] or [(float("nan"), 0)]
        look = style.mark(number) | {"markersize": 8.0 if name == OURS else 5.5, "linestyle": ""}
        face = {} if name == OURS else {"markerfacecolor": "white"}
        ax.plot(*zip(*points, strict=True), label=told, zorder=3 if name == OURS else 2, **(look | face))
    ax.set(xscale="log", xlabel="seconds until every mean is right to 1% of its sd, warm")
    ax.set_yticks(places, [labelled(name) for name in runs])
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def rewrite(files: Sequence[str] = ()) -> None:
    text = PAGE.read_text()
    style.save_svg(draw(runs_of(load(files or files_of(text)))), PICTURE)
    PAGE.write_text(written(text, files))
