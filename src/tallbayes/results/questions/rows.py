"""Rows: what a result says of the response at rows, those of the fit or others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from tallbayes.posterior.prediction import Prediction
    from tallbayes.results.averages.answers import AverageEffect, AverageEffects
    from tallbayes.results.checks.check import Asked, Check
    from tallbayes.results.checks.simulation import Simulation


class RowQuestions:
    """Of the response at rows. A `Result` is one; see there for the `result` of the examples."""

    @overload
    def predict(
        self: Any,
        rows: object,
        *,
        at_least: int | Sequence[int] | None = None,
        offset: object = None,
        out: None = None,
        keep: str | Sequence[str] = (),
        missing: str = "error",
        unknown: str = "error",
        interval: float | None = 0.95,
    ) -> Prediction: ...

    @overload
    def predict(
        self: Any,
        rows: object,
        *,
        at_least: int | Sequence[int] | None = None,
        offset: object = None,
        out: str | os.PathLike[str],
        keep: str | Sequence[str] = (),
        missing: str = "error",
        unknown: str = "error",
        interval: float | None = 0.95,
    ) -> int: ...

    def predict(
        self: Any,
        rows: object,
        *,
        at_least: int | Sequence[int] | None = None,
        offset: object = None,
        out: str | os.PathLike[str] | None = None,
        keep: str | Sequence[str] = (),
        missing: str = "error",
        unknown: str = "error",
        interval: float | None = 0.95,
    ) -> Prediction | int:
        """Posterior expectations of the response for new rows, their posterior sd and Monte Carlo errors.

        `rows` are what the fit was given, without the response: a path, a frame, a dict of columns or of one row's
        values for a formula; x (N, d) of a family; rows of a model that has `predict`. For counts `at_least=k` adds
        P(y >= k). With `out`, a .csv, .parquet or .arrow path, they are written there a batch at a time.

        `sd` is always that of the expectation, with groups over theta and its effects together; of a new observation
        there are an `observation_sd` and, without groups, an equal-tailed `interval` (None for none), where the family
        tells its scatter. Rows have their numbers in the source, counted from 0, and columns that `keep` names. What is
        missing, or a category that is not known (a group is a new one), stops it; with "nan" such rows are NaN.

        >>> found = result.predict({"hour": [6, 18], "carrier": ["UA", "DL"]})
        >>> [round(float(each), 1) for each in found.mean]
        [0.1, 0.6]
        >>> found.observation.sd.shape
        (2,)
        """
        from tallbayes.results.predictions import predict

        asked: dict[str, Any] = {"keep": keep, "missing": missing, "unknown": unknown, "interval": interval}
        return predict(self, rows, at_least=at_least, offset=offset, out=out, **asked)

    def average_effect(
        self: Any, column: Any, high: Any, low: Any, *, by: Any = None, ratio: bool = False, **options: Any
    ) -> AverageEffect | AverageEffects:
        """The mean response with `column` at `high` in every row, less that with it at `low`, on average over all rows
        or those of `rows=` (g-computation); `by` the levels of a column, as a `ratio` of the two if asked for.

        Rows have the effects of their own groups, or by groups="new" those of new ones on average. Of several classes,
        ordered ones too, there is one for the chance of each; of a model of one's own it is of what `predict`, or
        `response=`, says of a row.

        >>> effect = result.average_effect("carrier", "UA", "AA")
        >>> effect.rows, bool(abs(effect.mean.value) < 0.05)
        (200, True)
        >>> by_carrier = result.average_effect("hour", 18, 6, by="carrier")
        >>> by_carrier.levels
        ('AA', 'DL', 'UA')
        """
        from tallbayes.results.averages.answers import average_effect

        return average_effect(self, column, high, low, by=by, ratio=ratio, **options)

    def average_slope(self: Any, column: Any, *, by: Any = None, **options: Any) -> AverageEffect | AverageEffects:
        """That of the mean response in a column of numbers, on average; see `average_effect`.

        >>> round(result.average_slope("hour").mean.value, 3)
        0.034
        """
        from tallbayes.results.averages.answers import average_slope

        return average_slope(self, column, by=by, **options)

    def simulate(
        self: Any, rows: object = None, draws: int = 200, *, seed: int = 0, out: str | os.PathLike[str] | None = None
    ) -> Simulation | int:
        """Replicated responses of the rows of the fit, or of given ones, as arrays (draws, rows of a batch) in turn;
        with `out` into a file, a column a draw, and the number of rows is returned.

        >>> for part in result.simulate(draws=50):
        ...     part.shape  # draws, rows of a batch
        (50, 200)
        """
        from tallbayes.results.checks.simulation import simulate

        return simulate(self, rows, draws, seed=seed, out=out)

    def check(self: Any, statistic: Asked, rows: object = None, *, draws: int = 200, seed: int = 0) -> Check:
        """A statistic of the response that was seen, held against that of replicated responses: by name ("mean",
        "zeros", "dispersion", "sd", "skewness", "min", "max", "shares", "calibration", "groups") or a function of
        (y, rows), of a number a row or of one; `rows` has columns x, offset, mean and group.

        >>> found = result.check("mean", draws=100)
        >>> round(float(found.observed[0]), 3)
        0.365
        >>> longest = result.check(lambda y, rows: y[rows["x"][:, 0] > 0].sum(), draws=100)
        """
        found: tuple[Check, ...] = self.checks([statistic], rows, draws=draws, seed=seed)
        return found[0]

    def checks(
        self: Any, statistics: Sequence[Asked] | None = None, rows: object = None, *, draws: int = 200, seed: int = 0
    ) -> tuple[Check, ...]:
        """Several at once, in one pass over the rows; those of the family if none are named.

        >>> [each.name for each in result.checks(draws=100)]
        ['mean', 'calibration']
        """
        from tallbayes.results.checks.check import checks

        return checks(self, statistics, rows, draws, seed)
