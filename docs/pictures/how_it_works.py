"""The picture of docs/how-it-works.md: `python docs/pictures/how_it_works.py` writes how_it_works.svg beside this file.

A posterior of one parameter: theta = log of a rate, k events counted, flat prior. With z = sqrt(k) (theta - mode)

    log pi(z) = k (z / sqrt(k) - exp(z / sqrt(k))),   drift -z + r(z),   r(z) = z + sqrt(k) (1 - exp(z / sqrt(k)))

and paths take exponential steps, as those of tallbayes do, with r itself for want of rows to sample. The last panel is
from benchmarks/results/cost.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from tallbayes.experiments.style import COLOURS, guide, mark, save_svg
from tallbayes.sampler.dynamics import Exponential

PICTURE = Path(__file__).with_suffix(".svg")
MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "cost.json"
DESCRIPTION = "How tallbayes works: the Gaussian at the mode, coupled paths, variance by level, and cost against rows."

EVENTS = 5
PATHS, LEVELS = 2**16, 7
FIRST_STEP, TIME = 1.0, 3.0
EDGE = -1.0
INK, PAPER, GRID = "#1f2328", "#ffffff", "#e5e5e5"
GAUSSIAN, STEPS = COLOURS[4], COLOURS[:3]
IN_THE_DARK = {
    INK: "#e6edf3",
    PAPER: "#0d1117",
    GRID: "#2d333b",
    "#a3a3a3": "#6e7681",
    COLOURS[0]: "#6cb6ff",
    COLOURS[1]: "#f0883e",
    COLOURS[2]: "#57c26d",
    COLOURS[3]: "#f778ba",
    COLOURS[4]: "#adb5bd",
    COLOURS[5]: "#bc8cff",
}


def remainder(z: np.ndarray) -> np.ndarray:
    root = np.sqrt(EVENTS)
    return z - root * np.expm1(z / root)


class Ends(NamedTuple):
    """Where the paths of a level ended, and the noise of the last step, which moved both alike."""

    fine: np.ndarray
    coarse: np.ndarray
    noise: np.ndarray
    spread: float


def sample(level: int, rng: np.random.Generator) -> Ends:
    """Paths of level l; those taken off are of twice the step, at level 0 the Gaussian ones."""
    h = FIRST_STEP / 2**level
    decay, gain, spread = np.exp(-h), -np.expm1(-h), np.sqrt(-np.expm1(-2 * h))
    u = rng.standard_normal(PATHS)
    z = u.copy()
    shift, steps = round(TIME * (level > 0) / h), round(TIME * (level + 1) / h)
    last = np.zeros(PATHS)
    for number in range(steps):
        if number == shift:
            coarse = u.copy()
        xi = rng.standard_normal(PATHS)
        z = decay * z + gain * remainder(z) + spread * xi
        if number < shift:
            u = decay * u + spread * xi
        elif level == 0:
            coarse = decay * coarse + spread * xi
        elif (number - shift) % 2:
            coarse = decay**2 * coarse - np.expm1(-2 * h) * remainder(coarse) + spread * (decay * last + xi)
        last = xi
    return Ends(z, coarse, spread * last, spread)


def variances() -> dict[str, np.ndarray]:
    """Of what every level adds to a mean, and in two ways to P(z < edge)."""
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {"mean": [], "bare": [], "integrated": []}
    for level in range(LEVELS):
        ends = sample(level, rng)
        quiet = [(EDGE - end + ends.noise) / ends.spread for end in (ends.fine, ends.coarse)]
        found["mean"].append(np.var(ends.fine - ends.coarse))
        found["bare"].append(np.var((ends.fine < EDGE) * 1.0 - (ends.coarse < EDGE)))
        found["integrated"].append(np.var(ndtr(quiet[0]) - ndtr(quiet[1])))
    return {name: np.array(values) for name, values in found.items()}


def draw_gaussian(ax: Any) -> None:
    z = np.linspace(-4.2, 3.2, 400)
    gaussian = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    root = np.sqrt(EVENTS)
    density = np.exp(EVENTS * (z / root - np.exp(z / root) + 1))
    density /= np.sum(density) * (z[1] - z[0])
    ax.fill_between(z, gaussian, density, color=COLOURS[3], alpha=0.3, linewidth=0)
    ax.plot(z, gaussian, color=GAUSSIAN, linewidth=1.6, linestyle="--")
    ax.plot(z, density, color=COLOURS[3], linewidth=1.8)
    ax.annotate("the Gaussian\nat the mode", (1.15, 0.206), (1.6, 0.29), color=GAUSSIAN, arrowprops=_arrow(GAUSSIAN))
    ax.annotate(
        "the posterior", (-2.05, 0.082), (-4.2, 0.17), color=COLOURS[3], arrowprops=_arrow(COLOURS[3]), va="center"
    )
    ax.set(xlabel="whitened parameter z", ylim=(0, None))
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.set_title("1  Known without data, and what is left")


def walk(start: float, noise: np.ndarray, h: float, pull: float = 1.0) -> np.ndarray:
    """A path of exponential steps; without pull it is the Gaussian one."""
    path = [start]
    for xi in noise:
        drift = -np.expm1(-h) * pull * remainder(np.array(path[-1]))
        path.append(float(np.exp(-h) * path[-1] + drift + np.sqrt(-np.expm1(-2 * h)) * xi))
    return np.array(path)


def draw_paths(ax: Any) -> None:
    """One noise, three step sizes, and the Gaussian path."""
    start, h = 1.2, FIRST_STEP / 4
    noise = np.random.default_rng(36).standard_normal(24)
    u = walk(start, noise, h, pull=0.0)
    ax.plot(np.arange(len(u)) * h, u, color=GAUSSIAN, linewidth=1.2, linestyle="--", label="Gaussian path u")
    for number, label in ((2, "step h/4"), (1, "step h/2"), (0, "step h")):
        z = walk(start, noise, h)
        look = mark(number) | {"markersize": (6.5, 4.5, 2.8)[number], "linewidth": (1.8, 1.4, 1.1)[number]}
        ax.plot(np.arange(len(z)) * h, z, **look, label=label, zorder=2 + number / 10)
        # Two noises make that of one step of twice the size.
        first, second = Exponential().coefficients(h)[4:]
        noise, h = first * noise[0::2] + second * noise[1::2], 2 * h
    ax.set(xlabel="time along the path", ylabel="z", ylim=(-1.7, 2.1))
    ax.legend(frameon=False, ncols=2, loc="upper right", columnspacing=1.2)
    ax.set_title("2  Paths of step h, h/2, h/4 on the same noise")


def draw_levels(ax: Any) -> None:
    found, level = variances(), np.arange(LEVELS)
    series = {
        "mean": ("of a mean: falls like $2^{-2l}$", 3),
        "integrated": ("of a probability, last noise integrated out: $2^{-3l/2}$", 5),
        "bare": ("of the same, paths counted: $2^{-l}$", 4),
    }
    for name, (label, number) in series.items():
        ax.semilogy(level, found[name], **mark(number), label=label)
    ax.axhline(1.0, color="#a3a3a3", linewidth=1.0, linestyle="--", zorder=0)
    ax.text(LEVELS - 1, 1.25, "variance of z itself", color=INK, ha="right", va="bottom", fontsize=8.5)
    ax.set(xlabel="level l, step $h\\, 2^{-l}$", ylabel="variance of one sample", ylim=(1e-7, 20))
    ax.set_xticks(level)
    ax.legend(frameon=False, loc="lower left", fontsize=8.5)
    ax.set_title("3  What a level adds varies less and less")


def measured(kind: str) -> Iterator[tuple[int, float]]:
    """Rows, and row gradients of sampling for an error of 1% of a posterior sd: the median of the seeds."""
    for name, piece in json.loads(MEASURED.read_text())["pieces"].items():
        if name.startswith(kind):
            result = piece["result"]
            items = float(np.median([run["items"] for run in result["runs"]]))
            yield piece["settings"]["num_rows"], items * (result["tolerance"] / 0.01) ** 2


def draw_cost(ax: Any) -> None:
    for kind, label, number in (
        ("paper's", "the paper's ladder, without the Gaussian", 4),
        ("default", "anchored to the Gaussian", 3),
    ):
        rows, items = np.array(sorted(measured(kind))).T
        ax.loglog(rows, items, **mark(number), label=label)
    guide(ax, rows, rows, "one pass over the rows")
    ax.set(xlabel="rows N", ylabel="row gradients of sampling")
    ax.set_ylim(5e2, 2e11)
    ax.legend(frameon=False, loc="upper left")
    ax.set_title("4  The more rows, the less is left to sample")


def draw_sum(ax: Any) -> None:
    """The telescoping sum, its terms in the colours of the paths."""
    from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea

    terms = [("$E\\,g$  =  ", INK), ("$E\\,g(u)$", GAUSSIAN)]
    names = ["u", "z_h", "z_{h/2}", "z_{h/4}"]
    for number, colour in enumerate(STEPS):
        terms += [("  +  ", INK), (f"$E\\,[\\,g({names[number + 1]})-g({names[number]})\\,]$", colour)]
    terms.append(("  +  ...", INK))
    areas = [TextArea(text, textprops={"color": colour, "fontsize": 12.5}) for text, colour in terms]
    packed = HPacker(children=areas, align="baseline", pad=0, sep=0)
    ax.add_artist(AnchoredOffsetbox("center", child=packed, frameon=False, pad=0, borderpad=0))
    ax.set_axis_off()


def draw() -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 7.9), layout="constrained", facecolor=PAPER)
    grid = figure.add_gridspec(3, 2, height_ratios=(1, 0.13, 1))
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    for place, part in (((0, 0), draw_gaussian), ((0, 1), draw_paths), ((2, 0), draw_levels), ((2, 1), draw_cost)):
        ax = figure.add_subplot(grid[place])
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, which="major", color=GRID, linewidth=0.6)
        ax.set_axisbelow(True)
        part(ax)
    draw_sum(figure.add_subplot(grid[1, :]))
    return figure


def _arrow(colour: str) -> dict[str, Any]:
    return {"arrowstyle": "-", "color": colour, "linewidth": 0.9, "shrinkA": 1, "shrinkB": 1}


def adapt(svg: str) -> str:
    """The same picture in colours for the dark, where the reader has asked for it."""
    rules = "".join(
        f'[style*="{part}: {light}"]{{{part}:{dark} !important}}'
        for light, dark in IN_THE_DARK.items()
        for part in ("fill", "stroke")
    )
    head, rest = svg.split(">", 3)[:3], svg.split(">", 3)[3]
    sheet = f"\n <title>{DESCRIPTION}</title>\n <style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    return ">".join(head) + ">" + sheet + rest


def main() -> None:
    import matplotlib

    ink = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK)
    look = {"font.size": 9.5, "axes.titlesize": 10.5, "axes.titlelocation": "left", "axes.titleweight": "bold"}
    with matplotlib.rc_context({**ink, **look, "axes.facecolor": "none", "legend.fontsize": 9}):
        save_svg(draw(), PICTURE)
    text = adapt(PICTURE.read_text())
    PICTURE.write_text("\n".join(line.rstrip() for line in text.split("\n")))


if __name__ == "__main__":
    main()
