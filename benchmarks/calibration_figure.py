"""The figure of the calibration study: ranks, coverages and errors of every class, and what they look like if wrong."""

from __future__ import annotations

from typing import Any

import calibration
import numpy as np
from calibration import KINDS, LEVELS, Class, Runs
from scipy.stats import kstwo

from tallbayes.experiments import style

COLUMNS = ("anchored, tolerance 0.1", "anchored, a finer tolerance", "randomised, tolerance 0.1")
MEANS, SDS = style.COLOURS[0], style.COLOURS[1]
QUIET = "#737373"
LEAST_SHOWN = 0.011
GRID = np.linspace(0, 1, 51)


def draw(groups: dict[Class, Runs]) -> Any:
    """A row a problem: u of every quantity, coverages, errors; the last row shows what the controls look like."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(each.problem for each in groups))
    figure = Figure(figsize=(15.5, 1.75 * (len(names) + 1) + 1.4), layout="constrained")
    axes = figure.subplots(len(names) + 1, 5, squeeze=False, width_ratios=(1, 1, 1, 1.35, 1.1))
    for row, name in zip(axes, names, strict=False):
        here = {each: runs for each, runs in groups.items() if each.problem == name}
        draw_row(row, here)
        # A text, since the label of an axis goes with it where nothing is drawn on it.
        at = {"rotation": 90, "ha": "right", "va": "center", "transform": row[0].transAxes}
        row[0].text(-0.2, 0.5, name, fontsize=10, fontweight="bold", **at)
    controls = [(each, runs) for each, runs in groups.items() if not runs.is_exact]
    if controls:
        draw_controls(axes[-1], *controls[0])
    for ax in () if controls else axes[-1]:
        ax.set_axis_off()
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    for ax, title in zip(axes[0], (*COLUMNS, "coverage, %", "RMSE / tolerance"), strict=True):
        ax.set_title(title, fontsize=11)
    add_legend(figure)
    return figure


def draw_row(row: Any, here: dict[Class, Runs]) -> None:
    """A column a method and tolerance; the paper's ladder, which has none of its own, stands in the first."""
    shown: dict[int, Class] = {}
    for each in here:
        if each.method != "windowed":
            shown[2 if each.method == "randomised" else int(each.tolerance < 0.1)] = each
    for number, ax in enumerate(row[:3]):
        if number not in shown:
            ax.set_axis_off()
            continue
        each = shown[number]
        draw_ranks(ax, here[each])
        if f"{each.method}, tolerance {each.tolerance:g}" != COLUMNS[number]:
            ax.text(0.98, 0.96, told(each), fontsize=8, ha="right", va="top", transform=ax.transAxes)
    named = {told(each): runs for each, runs in here.items()}
    draw_coverages(row[3], named)
    draw_errors(row[4], named)


def told(name: Class) -> str:
    return f"{'paper' if name.method == 'ladder' else name.method} {name.tolerance:g}"


def draw_controls(row: Any, name: Class, runs: Runs) -> None:
    """What the same figure looks like where something is wrong."""
    shown = {"error bars halved": runs.halved(), "one value off by a tolerance": runs.shifted()}
    for ax, (title, each) in zip(row, shown.items(), strict=False):
        draw_ranks(ax, each, reach=0.95)
        ax.text(0.02, 0.96, title, fontsize=8, va="top", transform=ax.transAxes)
        ax.set_xlabel("u", fontsize=9)
    row[0].set_ylabel("controls", fontsize=10, fontweight="bold", color=style.COLOURS[3])
    row[2].set_axis_off()
    text = f"Wrong on purpose:\n{name}\nwith bars of half the length,\nand with its first mean off by\none tolerance."
    row[2].text(0.0, 0.9, text, fontsize=9, va="top")
    named = {"bars halved": shown["error bars halved"], "one value off": shown["one value off by a tolerance"]}
    draw_coverages(row[3], named)
    draw_errors(row[4], named)


def draw_ranks(ax: Any, runs: Runs, reach: float = 0.24) -> None:
    """A line a quantity: the share of seeds below u, less u, within the bounds of its test."""
    ax.axhline(0, color=QUIET, linewidth=0.8)
    ax.set(xlim=(0, 1), ylim=(-reach, reach), xticks=(0, 0.5, 1))
    if runs.is_exact:
        largest = np.max(np.abs(runs.relative_error))
        text = f"exact: every error below\n{largest:.0e} tolerances"
        ax.text(0.5, 0.72, text, fontsize=9, ha="center", va="center", transform=ax.transAxes)
        return
    seeds, quantities = runs.pit.shape
    all_of_them, one = kstwo.isf(0.01 / quantities, seeds), kstwo.isf(0.05, seeds)
    ax.axhspan(-all_of_them, all_of_them, color="#ededed", linewidth=0)
    for side in (-one, one):
        ax.axhline(side, color=QUIET, linewidth=0.7, linestyle=(0, (4, 3)))
    for number, column in enumerate(runs.pit.T):
        colour = MEANS if number < quantities // 2 else SDS
        below = np.searchsorted(np.sort(column), GRID, side="right") / seeds
        ax.plot(GRID, below - GRID, color=colour, linewidth=0.8, alpha=0.75)


def draw_coverages(ax: Any, named: dict[str, Runs]) -> None:
    """Pooled with 95% bars by seeds; the worst quantity as a tick; published above, t se below."""
    for colour, level in zip(style.COLOURS[2:5], LEVELS, strict=True):
        ax.axvline(100 * level, color=colour, linewidth=0.9, linestyle="--")
        for height, runs in enumerate(named.values()):
            if runs.is_exact:
                continue
            for kind, lift, face in zip(KINDS, (-0.17, 0.17), (colour, "white"), strict=True):
                this = calibration.coverage(runs, level, kind)
                ax.errorbar(
                    100 * this.pooled, height + lift, xerr=196 * this.error, fmt="o", color=colour, markersize=4.5,
                    markerfacecolor=face, linewidth=1.2,
                )  # fmt: skip
                ax.plot(100 * this.worst, height + lift, "|", color=colour, markersize=6)
    ax.set(xlim=(20, 101), xticks=(50, 80, 95))
    name_rows(ax, list(named))


def draw_errors(ax: Any, named: dict[str, Runs]) -> None:
    """A dot a quantity; beyond the line the promise is broken."""
    ax.axvline(1, color="black", linewidth=1.0)
    for height, runs in enumerate(named.values()):
        rmse = np.sqrt(np.mean(runs.relative_error**2, axis=0))
        half = len(rmse) // 2
        # Of a single quantity the second half is all.
        for part, colour, lift in ((rmse[:half], MEANS, -0.12), (rmse[half:], SDS, 0.12))[half == 0 :]:
            marker = "o" if part.max() > LEAST_SHOWN else "<"
            places_of = np.maximum(part, LEAST_SHOWN), np.full(len(part), height + lift)
            ax.plot(*places_of, marker, color=colour, markersize=4, alpha=0.7)
    ax.set(xscale="log", xlim=(0.01, 3), xticks=(0.01, 0.1, 1), xticklabels=("0.01", "0.1", "1"))
    ax.minorticks_off()
    name_rows(ax, list(named))


def name_rows(ax: Any, labels: list[str]) -> None:
    ax.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.4, -0.6))
    ax.grid(True, axis="x", color="#e5e5e5", linewidth=0.6)
    ax.set_axisbelow(True)


def add_legend(figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    look = {"color": style.COLOURS[4], "linewidth": 0, "marker": "o", "markersize": 5}
    handles = [
        Line2D([], [], color=MEANS, label="a posterior mean"),
        Line2D([], [], color=SDS, label="a posterior sd"),
        Line2D([], [], color=QUIET, linestyle="--", linewidth=0.8, label="95% for one quantity"),
        Patch(color="#ededed", label="99% for all of a panel"),
        Line2D([], [], **look, label="published interval, ± 95% by seeds"),
        Line2D([], [], **look, markerfacecolor="white", label="t se alone"),
        Line2D([], [], color=style.COLOURS[4], marker="|", linewidth=0, label="its worst quantity"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False, fontsize=9)
    title = (
        "Left: the share of seeds whose F(error / se) is below u, less u, stays in the band if the error bar is true"
    )
    figure.suptitle(title, fontsize=12)
