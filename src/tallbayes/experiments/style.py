"""How figures look: one size, few colours that survive greyscale and colour blindness, no frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = ("#0b5394", "#b45309", "#15803d", "#9d174d", "#525252", "#6d28d9")
MARKERS = ("o", "s", "^", "D", "v", "P")


def new_figure(columns: int, height: float = 3.6) -> tuple[Any, Any]:
    """A figure of panels side by side, drawn without a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * columns, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, which="major", color="#e5e5e5", linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes


def mark(number: int) -> dict[str, Any]:
    """Colour and marker of the number-th series."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4.5,
        "linewidth": 1.4,
    }


def guide(ax: Any, x: Any, y: Any, label: str) -> None:
    """A grey line of a stated slope."""
    ax.plot(x, y, color="#a3a3a3", linewidth=1.0, linestyle="--", label=label, zorder=0)


def save_svg(figure: Any, path: Path) -> None:
    """The same results give the same file: no date, and identifiers that do not change from run to run."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "tallbayes"}):
        figure.savefig(path, metadata={"Date": None})
