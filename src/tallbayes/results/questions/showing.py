"""Showing: a result as text, a page, a picture, a data frame, a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import arviz
    import pandas
    import xarray
    from matplotlib.axes import Axes

    from tallbayes.posterior.prediction import Prediction
    from tallbayes.results.checks.check import Check
    from tallbayes.results.comparisons import Comparison


class Showing:
    """What others read. A `Result` is one; see there for the `result` of the examples."""

    def summary(self: Any) -> str:
        """The answer in brief: means, sds and intervals with their errors, then what to know about them.

        >>> print(result.summary().splitlines()[0])
        converged: every mean and sd is known to 0.1 posterior sd, every interval end to 0.1 sd
        """
        from tallbayes.views.summary import brief

        return brief(self, {})

    def report(
        self: Any,
        path: str | os.PathLike[str],
        predictions: Sequence[tuple[str, Prediction]] | None = None,
        comparisons: Sequence[Comparison] = (),
        title: str | None = None,
        settings: dict[str, Any] | None = None,
        checks: Sequence[Check] = (),
        sensitivity: bool = False,
        answers: Sequence[Any] = (),
    ) -> Path:
        """One HTML page for someone else; labelled predictions, comparisons, `checks()`, what hangs on the prior, and
        answers such as `loo()`, `evidence()`, `tb.rank(...)` and average effects may be added.

        >>> page = result.report(folder / "late.html", comparisons=[result.compare("carrier", "UA", "DL")])
        >>> page.name
        'late.html'
        """
        from tallbayes.views.report import write_report

        return write_report(self, path, predictions, comparisons, title, settings, checks, sensitivity, answers)

    def plot(self: Any, ax: Axes | None = None, ratios: bool | None = None, most: int = 40) -> Axes:
        """A forest plot by matplotlib; see `tallbayes.views.plots.plot`.

        >>> axes = result.plot(ratios=True)  # doctest: +SKIP
        """
        from tallbayes.views.plots import plot

        return plot(self, ax, ratios, most)

    def to_pandas(self: Any, probability: float = 0.95) -> pandas.DataFrame:
        """A data frame: one row a parameter, with errors beside the numbers.

        >>> frame = result.to_pandas()
        >>> frame.loc["hour", ["mean", "sd"]].round(2).to_list()
        [0.23, 0.03]
        """
        from tallbayes.results.export import to_pandas

        return to_pandas(self, probability)

    def to_datatree(self: Any, draws: int = 1000) -> xarray.DataTree:
        """An xarray.DataTree in ArviZ's layout: independent draws, and the estimates with their errors.

        >>> tree = result.to_datatree(draws=200)
        >>> tree["posterior"]["coefficients"].sel(coefficient="hour").shape
        (1, 200)
        """
        from tallbayes.results.export import to_datatree

        return to_datatree(self, draws)

    def to_inferencedata(self: Any, draws: int = 1000) -> arviz.InferenceData:
        """The same as arviz.InferenceData, where arviz < 1 is installed.

        >>> result.to_inferencedata(draws=200).posterior["coefficients"].shape  # doctest: +SKIP
        (1, 200, 4)
        """
        from tallbayes.results.export import to_inferencedata

        return to_inferencedata(self, draws)

    def save(self: Any, path: str | Path) -> None:
        """Write to one file, atomically; `tallbayes.load` reads back the same bits.

        >>> result.save(folder / "late.tallbayes")
        >>> tb.load(folder / "late.tallbayes")["mean"].value == result["mean"].value
        True
        """
        from tallbayes.results.result_file import save

        save(self, path)
