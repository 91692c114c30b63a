"""The picture of a history: intervals of coefficients day by day, and how surprising each day's rows were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.arrivals.foretold import SURPRISING
from tallbayes.errors import require_extra
from tallbayes.views.plots import INTERVAL

if TYPE_CHECKING:
    from tallbayes.arrivals.history import History

LOUD = "#d1495b"
WIDE, HIGH = 8.0, 1.5


def draw_history(history: History, names: tuple[str, ...], axes: Any = None) -> Any:
    """A band from end to end of the 95% intervals with the mean in it, a panel a coefficient; p at the bottom."""
    pyplot = require_extra("matplotlib.pyplot", "plot", "plots")
    told = any(day.foretold is not None for day in history)
    rows = len(names) + told
    if axes is None:
        size = WIDE, HIGH * rows + 0.6
        axes = pyplot.subplots(rows, 1, sharex=True, squeeze=False, figsize=size, layout="constrained")[1][:, 0]
    days = np.array([day.number for day in history])
    loud = [day.number for day in history.surprises]
    for ax, name in zip(axes, names, strict=False):
        mean, lower, upper = (history.track(name, part)[0] for part in ("mean", "lower", "upper"))
        ax.fill_between(days, lower, upper, color=INTERVAL, alpha=0.25, linewidth=0)
        ax.plot(days, mean, color=INTERVAL, linewidth=1.2)
        ax.set_title(name, loc="left", fontsize=9)
        for each in loud:
            ax.axvline(each, color=LOUD, linewidth=0.8, alpha=0.7)
        settled = np.concatenate([lower[len(lower) // 4 :], upper[len(upper) // 4 :]])
        if len(days) > 8 and np.all(np.isfinite(settled)):
            spare = 0.4 * max(np.ptp(settled), 1e-12)
            ax.set_ylim(settled.min() - spare, settled.max() + spare)
    if told:
        ax = axes[len(names)]
        p = np.array([np.nan if day.foretold is None else day.foretold.p_value for day in history])
        ax.semilogy(days, p, ".", color=INTERVAL, markersize=4)
        ax.semilogy(days[p < SURPRISING], p[p < SURPRISING], "o", color=LOUD, markersize=5)
        ax.axhline(SURPRISING, color=LOUD, linewidth=0.8, linestyle="--")
        ax.set_title(
            f"p of each day's rows under the day before; below {SURPRISING:g} once in a thousand",
            loc="left",
            fontsize=9,
        )
        ax.set_ylim(top=1.5)
    axes[-1].set_xlabel("day")
    return axes
