"""The result: a frozen value that says what was found, how sure it is, what it cost, and what it does not know.

interval = value +- (t_nu se + bias_bound),   met: se^2 + bias_bound^2 <= tolerance^2 for every component
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import TallbayesError
from tallbayes.estimator.decisions import Tuning
from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.estimator.rates import Contraction
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.prediction import Prediction
from tallbayes.progress import Report
from tallbayes.results.parts import (
    Arriving,
    Cost,
    DrawWeights,
    Factor,
    Level,
    Mode,
    PlainEncoding,
    Rates,
    Regression,
    Settings,
    Tolerance,
)
from tallbayes.workers.executors import Executor

if TYPE_CHECKING:
    import arviz
    import pandas
    import xarray
    from matplotlib.axes import Axes

    from tallbayes.evidence.evidence import Evidence
    from tallbayes.leave_one_out.loo import Loo
    from tallbayes.results.averages.answers import AverageEffect, AverageEffects
    from tallbayes.results.checks.check import Asked, Check
    from tallbayes.results.checks.simulation import Simulation
    from tallbayes.results.coefficients import Coefficient
    from tallbayes.results.comparisons import Comparison, Ratio
    from tallbayes.results.curves import ColumnCurve
    from tallbayes.results.draws.drawn import PosteriorDraws
    from tallbayes.results.fitted import FitTable, Fitted
    from tallbayes.results.groups.effects import Effects, EffectSource
    from tallbayes.results.groups.partition import VariancePartition
    from tallbayes.results.powers.sensitivity import Sensitivity
    from tallbayes.sampler.levels import Problem


@dataclass(frozen=True, eq=False)
class Result(Arriving):
    """What `estimate` returns; print it.

    With several modes the numbers are of the heaviest, and `modes` are the others. With a random tail the last of the
    levels stands for all above it. An answer by weights has no levels, but `weighing`. Of a mixed model `factors` are
    those of its groups, the one that is integrated out first: where costs are counted, a row is then a group of it."""

    estimates: dict[str, Estimate]
    status: Status
    levels: tuple[Level, ...]
    rates: Rates
    cost: Cost
    contraction: Contraction | None
    anchor: Anchor | None
    method: str
    settings: Settings
    tuning: Tuning | None = None
    notes: tuple[str, ...] = ()
    posterior: Posterior | None = None
    encoding: PlainEncoding | None = None
    regression: Regression | None = None
    modes: tuple[Mode, ...] = ()
    random_tail: bool = False
    weighing: DrawWeights | None = None
    factors: tuple[Factor, ...] = ()
    stored_effects: tuple[Effects, ...] = ()
    stored_partition: VariancePartition | None = None
    effect_source: EffectSource | None = field(default=None, repr=False)
    fitted_source: Callable[[], Fitted] | None = field(default=None, repr=False)
    path_source: Callable[[], Problem] | None = field(default=None, repr=False)
    continuation: Callable[..., Result] | None = field(default=None, repr=False)
    fit_table: FitTable | None = field(default=None, repr=False)
    question: object = field(default=None, repr=False)
    door: object = field(default=None, repr=False)
    standing: object = field(default=None, repr=False)

    def __getitem__(self, name: str) -> Estimate:
        return self.estimates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.estimates)

    def __len__(self) -> int:
        return len(self.estimates)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.estimates)

    @property
    def converged(self) -> bool:
        return self.status is Status.converged

    @property
    def is_sampled(self) -> bool:
        return bool(self.levels) or self.weighing is not None

    @property
    def unit(self) -> str:
        """What is counted as data: rows, or groups of them."""
        return "group" if self.factors else "row"

    @property
    def num_rows(self) -> int:
        """Rows of the table, whether or not groups are counted."""
        return self.factors[0].rows if self.factors else self.cost.num_data

    @property
    def unbiased(self) -> bool:
        """Whether nothing was left out, so that nothing but noise is in the errors."""
        return self.random_tail

    def extend(
        self,
        *,
        tolerance: Tolerance | None = None,
        relative_tolerance: Tolerance | None = None,
        absolute_tolerance: Tolerance | None = None,
        interval_tolerance: float | None = None,
        max_evaluations: float | None = None,
        max_levels: int | None = None,
        max_seconds: float | None = None,
        executor: Executor | None = None,
        progress: bool | Report | None = None,
        **unknown: object,
    ) -> Result:
        """Go on from here to another tolerance or budget, paying only the difference."""
        asked: dict[str, Any] = {"tolerance": tolerance, "relative_tolerance": relative_tolerance, "executor": executor}
        asked |= {"absolute_tolerance": absolute_tolerance, "interval_tolerance": interval_tolerance}
        asked |= {"max_evaluations": max_evaluations, "max_levels": max_levels, "max_seconds": max_seconds}
        asked["progress"] = progress
        if self.continuation is None:
            expected, got = "expected a result of this process, which still has its rows", "one loaded from a file"
            hint = "tb.estimate(...) again with anchor=result.anchor, which saves the set-up"
            raise TallbayesError(f"{expected}; got {got}. Try: {hint}.")
        return self.continuation(**{name: value for name, value in asked.items() if value is not None}, **unknown)

    def summary(self) -> str:
        """The answer in brief: means, sds and intervals with their errors, then what to know about them."""
        from tallbayes.views.summary import brief

        return brief(self, {})

    def coefficients(self, probability: float = 0.95) -> tuple[Coefficient, ...]:
        """Mean, sd and the ends of an equal-tailed interval of every parameter, each with its Monte Carlo error."""
        from tallbayes.results.coefficients import coefficients

        return coefficients(self, probability)

    def ratios(self, probability: float = 0.95) -> tuple[Ratio, ...]:
        """Odds ratios or rate ratios of a family's coefficients, with intervals and errors."""
        from tallbayes.results.comparisons import ratios

        return ratios(self, probability)

    def effects(self, by: str | None = None) -> Effects:
        """Every group's own effect, by the column of the groups: mean, sd and 95% interval, each with its error."""
        from tallbayes.results.groups.effects import effects

        return effects(self, by)

    def sensitivity(self) -> Sensitivity:
        """How far every mean and sd moves with the power of the prior, of its parts and of the likelihood, in sds."""
        from tallbayes.results.powers.sensitivity import sensitivity

        return sensitivity(self)

    def average_effect(
        self, column: Any, high: Any, low: Any, *, by: Any = None, ratio: bool = False, **options: Any
    ) -> AverageEffect | AverageEffects:
        """The mean response with `column` at `high` in every row, less that with it at `low`, on average over all rows
        or those of `rows=` (g-computation); `by` the levels of a column, as a `ratio` of the two if asked for.

        Rows have the effects of their own groups, or by groups="new" those of new ones on average. Of several classes
        there is one each; of a model of one's own it is of what `predict`, or `response=`, says of a row."""
        from tallbayes.results.averages.answers import average_effect

        return average_effect(self, column, high, low, by=by, ratio=ratio, **options)

    def average_slope(self, column: Any, *, by: Any = None, **options: Any) -> AverageEffect | AverageEffects:
        """That of the mean response in a column of numbers, on average; see `average_effect`."""
        from tallbayes.results.averages.answers import average_slope

        return average_slope(self, column, by=by, **options)

    def variance_partition(self) -> VariancePartition:
        """Of a mixed model by a formula: shares of variance of its factors (intraclass correlations) and the residual,
        on the scale of the linear predictor, with errors."""
        from tallbayes.results.groups.partition import variance_partition

        return variance_partition(self)

    def curve(
        self, column: str, points: Any = None, *, against: float | None = None, probability: float = 0.95
    ) -> ColumnCurve:
        """f(x) of all terms of a column of numbers at some points: about its mean, or `against` its value at one."""
        from tallbayes.results.curves import curve

        return curve(self, column, points, against, probability)

    def loo(
        self,
        pointwise: bool = False,
        *,
        out: str | os.PathLike[str] | None = None,
        tolerance: float = 0.01,
        seed: int = 0,
        unit: str | None = None,
    ) -> Loo:
        """Leave-one-out: the expected log predictive density of a row that was not fitted, summed over the rows.

        Its sampling error, apart from it Monte Carlo's, brought to `tolerance` of the first, and the rows that matter.
        With `pointwise` every row's own is kept, with `out` in a file, in the order of the source. Of a mixed model
        groups are left out, or, with unit="row", rows given the others of their group."""
        from tallbayes.leave_one_out.loo import loo

        return loo(self, pointwise, out, tolerance, seed, unit)

    def compare(self, *things: object, probability: float = 0.95) -> Comparison:
        """The difference of two things, its interval, and the probability that the first is the larger.

        Two categories or groups of a column, compare("carrier", "EV", "UA"); two rows, as dicts; two parameters."""
        from tallbayes.results.comparisons import compare

        return compare(self, *things, probability=probability)

    @overload
    def predict(
        self,
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
        self,
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
        self,
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
        missing, or a category that is not known (a group is a new one), stops it; with "nan" such rows are NaN."""
        from tallbayes.results.predictions import predict

        asked: dict[str, Any] = {"keep": keep, "missing": missing, "unknown": unknown, "interval": interval}
        return predict(self, rows, at_least=at_least, offset=offset, out=out, **asked)

    def draws(self, count: int = 1_000, *, seed: int = 0) -> PosteriorDraws:
        """Independent draws, `.value` in theta's structure and `.effects()` of groups; off by `.bias` sds at most."""
        from tallbayes.results.draws.drawn import draw

        return draw(self, count, seed=seed)

    def simulate(
        self, rows: object = None, draws: int = 200, *, seed: int = 0, out: str | os.PathLike[str] | None = None
    ) -> Simulation | int:
        """Replicated responses of the rows of the fit, or of given ones, as arrays (draws, rows of a batch) in turn;
        with `out` into a file, a column a draw, and the number of rows is returned."""
        from tallbayes.results.checks.simulation import simulate

        return simulate(self, rows, draws, seed=seed, out=out)

    def check(self, statistic: Asked, rows: object = None, *, draws: int = 200, seed: int = 0) -> Check:
        """A statistic of the response that was seen, held against that of replicated responses: by name ("mean",
        "zeros", "dispersion", "sd", "skewness", "min", "max", "shares", "calibration", "groups") or a function of
        (y, rows), of a number a row or of one; `rows` has columns x, offset, mean and group."""
        return self.checks([statistic], rows, draws=draws, seed=seed)[0]

    def checks(
        self, statistics: Sequence[Asked] | None = None, rows: object = None, *, draws: int = 200, seed: int = 0
    ) -> tuple[Check, ...]:
        """Several at once, in one pass over the rows; those of the family if none are named."""
        from tallbayes.results.checks.check import checks

        return checks(self, statistics, rows, draws, seed)

    def evidence(
        self, tolerance: float = 0.01, *, seed: int | None = None, max_evaluations: float | None = None
    ) -> Evidence:
        """The log marginal likelihood log p(y), to a tolerance in nats, with its interval.

        All constants of a family are in it, and y is in the table's own units. Of a model of one's own it is that of
        the log prior and log likelihood as they are written. Flat priors have none."""
        from tallbayes.evidence.marginal import evidence

        return evidence(self, tolerance, seed, max_evaluations)

    def report(
        self,
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
        answers such as `loo()`, `evidence()`, `tb.rank(...)` and average effects may be added."""
        from tallbayes.views.report import write_report

        return write_report(self, path, predictions, comparisons, title, settings, checks, sensitivity, answers)

    def to_pandas(self, probability: float = 0.95) -> pandas.DataFrame:
        """A data frame: one row a parameter, with errors beside the numbers."""
        from tallbayes.results.export import to_pandas

        return to_pandas(self, probability)

    def to_datatree(self, draws: int = 1000) -> xarray.DataTree:
        """An xarray.DataTree in ArviZ's layout: independent draws, and the estimates with their errors."""
        from tallbayes.results.export import to_datatree

        return to_datatree(self, draws)

    def to_inferencedata(self, draws: int = 1000) -> arviz.InferenceData:
        """The same as arviz.InferenceData, where arviz < 1 is installed."""
        from tallbayes.results.export import to_inferencedata

        return to_inferencedata(self, draws)

    def plot(self, ax: Axes | None = None, ratios: bool | None = None, most: int = 40) -> Axes:
        """A forest plot by matplotlib; see `tallbayes.views.plots.plot`."""
        from tallbayes.views.plots import plot

        return plot(self, ax, ratios, most)

    def __repr__(self) -> str:
        from tallbayes.views.text import in_a_line

        return in_a_line(self)

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.tables import html

        return html(self)

    def save(self, path: str | Path) -> None:
        """Write to one file, atomically; `tallbayes.load` reads back the same bits."""
        from tallbayes.results.result_file import save

        save(self, path)

    def __str__(self) -> str:
        from tallbayes.views.text import describe

        return describe(self)
