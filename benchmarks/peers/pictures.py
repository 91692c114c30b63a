"""The plots of the stored runs: what was spent for which error, and what the goal takes against the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from peers import laws
from tallbayes.experiments import style

GROUPS = ("tallbayes", "NumPyro", "BlackJAX", "nutpie", "importance", "Laplace")
SHADES = ("#0b5394", "#b45309", "#15803d", "#9d174d", "#7c3aed", "#525252")
FAMILY = "logistic-{}-20"
PANELS = {
    "paper": ("paper-100-3", "paper-1000-3", "paper-10000-3"),
    "logistic": tuple(FAMILY.format(num_rows) for num_rows in (1_000, 10_000, 100_000, 1_000_000)),
    "others": ("flights", "randhie", "multinomial", "non-gaussian"),
}

Summary = dict[str, Any]


def contestants_of(problems: dict[str, list[Summary]]) -> list[str]:
    return list(dict.fromkeys(run["contestant"] for runs in problems.values() for run in runs))


def look(contestants: Sequence[str], name: str) -> dict[str, Any]:
    """Colour by library, marker by contestant within it."""
    group = next((number for number, start in enumerate(GROUPS) if name.startswith(start)), len(GROUPS) - 1)
    fellows = [each for each in contestants if each.startswith(GROUPS[group])]
    place = fellows.index(name) if name in fellows else 0
    filled = {"markerfacecolor": "white"} if place % 2 else {}
    marker = style.MARKERS[place % len(style.MARKERS)]
    return {"color": SHADES[group], "marker": marker, "markersize": 5.0, "linewidth": 1.2, **filled}


def family(problems: dict[str, list[Summary]], name: str) -> dict[int, Summary]:
    """The runs of a contestant on the logistic problems of d = 20, by N."""
    found = {}
    for num_rows in (10**power for power in range(3, 7)):
        for run in problems.get(FAMILY.format(num_rows), ()):
            if run["contestant"] == name and run["answered"]:
                found[num_rows] = run
    return found


def against_rows(
    problems: dict[str, list[Summary]], panels: dict[str, tuple[str, Callable[[Summary], float]]], height: float = 5.0
) -> Any:
    """One panel for each title: its axis label, and what is shown of a run, infinite where it is left out."""
    figure, axes = style.new_figure(len(panels), height=height)
    contestants = contestants_of(problems)
    for ax, (title, (label, value)) in zip(axes, panels.items(), strict=True):
        for name in contestants:
            points = {rows: value(run) for rows, run in family(problems, name).items()}
            points = {rows: each for rows, each in points.items() if np.isfinite(each) and each > 0}
            ax.plot(list(points), list(points.values()), label=name, **look(contestants, name))
        ax.set(title=title, xlabel="N", ylabel=label)
    whole_decades(axes)
    legend(figure, axes[0])
    return figure


def whole_decades(axes: Sequence[Any]) -> None:
    """Logarithmic axes from one power of ten to another: short ranges have no crowded labels then."""
    for ax in axes:
        ax.set(xscale="log", yscale="log")
    for ax in axes:
        for axis, limits in ((ax.xaxis, ax.set_xlim), (ax.yaxis, ax.set_ylim)):
            low, high = axis.get_data_interval()
            # Where nothing is shown, an axis all the same.
            low, high = (low, high) if 0 < low <= high < np.inf else (0.2, 0.5)
            start = np.floor(np.log10(low) - 0.05)
            limits(10**start, 10 ** max(start + 1, np.ceil(np.log10(high) + 0.05)))


def legend(figure: Any, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)


def bias(run: Summary) -> float:
    """Of runs that never reach the goal; others are left out."""
    floor = run["price"]["floor"]
    return floor["bias"] if floor["seen"] and floor["bias"] > laws.GOAL else np.inf


def errors_figure(problems: dict[str, list[Summary]], names: Sequence[str]) -> Any:
    """The actual error of the worst mean against what was spent, warm; the goal is dashed."""
    shown = [name for name in names if name in problems]
    figure, axes = style.new_figure(len(shown), height=4.8)
    contestants = contestants_of(problems)
    for ax, name in zip(axes, shown, strict=True):
        for contestant in contestants:
            run = next((run for run in problems[name] if run["contestant"] == contestant and run["answered"]), None)
            point = ([run["warm"]], [run["errors"]["mean_worst"]]) if run else ([], [])
            ax.plot(*point, label=contestant, linestyle="", **look(contestants, contestant))
        ax.axhline(laws.GOAL, color="#a3a3a3", linewidth=1.0, linestyle="--", zorder=0)
        ax.set(title=name, xlabel="seconds spent, warm")
        ax.sharey(axes[0])
    axes[0].set_ylabel("actual error of the worst mean (sds)")
    whole_decades(axes)
    legend(figure, axes[0])
    return figure


def draw(problems: dict[str, list[Summary]], folder: Path, name: str) -> list[str]:
    """All figures there are runs for; their file names."""
    figures = {}
    if any(problem in problems for problem in PANELS["logistic"]):
        figures["seconds"] = against_rows(
            problems,
            {
                "logistic, d = 20: warm": ("seconds to 1% of an sd", lambda run: run["price"]["warm"]),
                "cold": ("seconds to 1% of an sd", lambda run: run["price"]["cold"]),
                "never, for a bias": ("bias of the worst mean (sds)", bias),
            },
        )
        figures["items"] = against_rows(
            problems,
            {
                "logistic, d = 20: sampling": ("data items to 1% of an sd", lambda run: run["price"]["sampling_items"]),
                "with set-up": ("data items to 1% of an sd", lambda run: run["price"]["items"]),
            },
        )
    for group, names in PANELS.items():
        if any(problem in problems for problem in names):
            figures[f"errors-{group}"] = errors_figure(problems, names)
    for each, figure in figures.items():
        style.save_svg(figure, folder / f"{name}-{each}.svg")
    return [f"{name}-{each}.svg" for each in figures]
