"""The result: a frozen value that says what was found, how sure it is, what it cost, and what it does not know.

interval = value +- (t_nu se + bias_bound),   met: se^2 + bias_bound^2 <= tolerance^2 for every component
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import TallbayesError
from tallbayes.moments import Floats
from tallbayes.structure import Structure


class Status(Enum):
    """Why a run ended; the value is the message."""

    converged = "converged: every quantity met its tolerance"
    max_evaluations = "stopped at max_evaluations before the tolerance was met"
    max_seconds = "stopped at max_seconds before the tolerance was met"
    max_levels = "stopped at max_levels: the remaining bias is still too large"
    diverged = "diverged: paths left the posterior; take a smaller first_step"
    no_contraction = "no contraction: paths on common noise do not approach one another"
    paths_too_short = "paths too short: too little contraction a level; take more added_steps"
    slow_decay = "slow decay: the levels' variance hardly falls; the quantity may jump"
    heavy_tails = "heavy tails: single paths dominate the error, which cannot be trusted"
    infinite_variance = (
        "infinite variance: as far out as was looked, the tails of a quantity have no end; its error cannot be known"
    )
    inconsistent = "inconsistent: coarse and fine paths of the same step size disagree"
    interrupted = "interrupted before the tolerance was met"
    no_mode = "no mode: the climb to it ran off or stalled, so there is nothing to start paths from, and no number"
    second_mode = "second mode: the posterior has another mode, and these numbers are of one of them alone"

    def __str__(self) -> str:
        return self.value


def t_quantile(freedom: Floats, probability: float) -> Floats:
    """Of Student's t; its import takes as long as a short run, and can wait until paths are being compiled."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(np.minimum(freedom, 1e9), probability))


@dataclass(frozen=True, eq=False)
class Estimate:
    """One quantity: its value and errors, in the shape of the quantity itself.

    What was asked for afterwards has no tolerance (not a number), but a `beta` of its own, the rate at which the
    variance of its levels falls, and a `price`.
    """

    name: str
    structure: Structure = field(repr=False)
    flat_value: Floats
    flat_standard_error: Floats
    flat_bias_bound: Floats
    flat_freedom: Floats
    flat_tolerance: Floats
    beta: float = float("nan")
    flat_work: Floats | None = field(default=None, repr=False)
    level_variance: Floats | None = field(default=None, repr=False)

    @property
    def value(self) -> Any:
        return self.structure.build(self.flat_value)

    @property
    def standard_error(self) -> Any:
        return self.structure.build(self.flat_standard_error)

    @property
    def bias_bound(self) -> Any:
        return self.structure.build(self.flat_bias_bound)

    @property
    def degrees_of_freedom(self) -> Any:
        return self.structure.build(self.flat_freedom)

    @property
    def tolerance(self) -> Any:
        """The RMSE asked for, in the quantity's own units."""
        return self.structure.build(self.flat_tolerance)

    @property
    def flat_error(self) -> Floats:
        """sqrt(se^2 + bias_bound^2), what the tolerance is held against."""
        return np.hypot(self.flat_standard_error, self.flat_bias_bound)

    def half_width(self, level: float = 0.95) -> Floats:
        """t_nu se + bias_bound, by component."""
        quantile = t_quantile(self.flat_freedom, 0.5 + level / 2)
        return quantile * self.flat_standard_error + self.flat_bias_bound

    @property
    def flat_interval(self) -> tuple[Floats, Floats]:
        """Lower and upper ends by component; the whole line where the error is not known."""
        half = self.half_width()
        known = np.isfinite(half)
        width = np.where(known, half, 0.0)
        lower, upper = self.flat_value - width, self.flat_value + width
        return np.where(known, lower, -np.inf), np.where(known, upper, np.inf)

    @property
    def interval(self) -> tuple[Any, Any]:
        """The 95% interval, lower and upper."""
        lower, upper = self.flat_interval
        return self.structure.build(lower), self.structure.build(upper)

    def part(self, places: slice, name: str) -> Estimate:
        """Some of the components, flat, under another name."""
        flat = ("flat_value", "flat_standard_error", "flat_bias_bound", "flat_freedom", "flat_tolerance", "flat_work")
        present = [each for each in flat if getattr(self, each) is not None]
        cut: dict[str, Any] = {each: getattr(self, each)[places] for each in present}
        variance = None if self.level_variance is None else self.level_variance[:, places]
        structure = Structure.leaf(cut["flat_value"].shape)
        return replace(self, name=name, structure=structure, level_variance=variance, **cut)

    def price(self, error: Any) -> Any:
        """Row gradients that it would take in all to bring the standard error down to this, component by component."""
        if self.flat_work is None:
            raise TallbayesError("expected an answer of result.posterior; got an estimate. Try: result.cost.")
        return self.structure.build(self.flat_work / np.broadcast_to(error, self.flat_work.shape) ** 2)

    @property
    def met(self) -> bool:
        return bool(np.all(self.flat_error <= self.flat_tolerance))


@dataclass(frozen=True, eq=False)
class Level:
    """One level of the ladder; arrays by quantity are flat."""

    step: float
    time: float
    samples: int
    evaluations: int
    mean: dict[str, Floats]
    variance: dict[str, Floats]
    kurtosis: dict[str, Floats]
    consistency: dict[str, Floats]


@dataclass(frozen=True)
class Rates:
    """Fitted exponents by quantity: |mean| ~ 2^(-alpha l), variance ~ 2^(-beta l), cost ~ 2^(gamma l)."""

    alpha: dict[str, float]
    beta: dict[str, float]
    gamma: dict[str, float]


@dataclass(frozen=True)
class Cost:
    """One evaluation is one row's gradient along a path; the set-up passes stand on their own line."""

    evaluations: int
    setup_evaluations: int
    speculative_evaluations: int
    num_data: int
    seconds: float

    @property
    def epochs(self) -> float:
        """Evaluations in passes over the data, set-up apart."""
        return self.evaluations / max(self.num_data, 1)

    @property
    def passes(self) -> float:
        """Rows read in set-up, in passes over the data."""
        return self.setup_evaluations / max(self.num_data, 1)


@dataclass(frozen=True)
class Contraction:
    """How much closer two paths on common noise come during dT: measured, and its upper 97.5% end."""

    factor: float
    upper: float
    rate: float


@dataclass(frozen=True)
class Trial:
    """A first step and a batch size that were tried: the price predicted for the whole run, infinite where steps
    were strained, and the row gradients the trial took; the window in units of dT."""

    first_step: float
    batch_size: int
    price: float
    strained: float
    evaluations: int
    window: int = 0


@dataclass(frozen=True)
class Tuning:
    """How the ladder was chosen: all trials, the one that was taken, the time dT (T_0 is that and the window), and
    why."""

    trials: tuple[Trial, ...]
    chosen: Trial
    time: float
    reason: str
    evaluations: int


@dataclass(frozen=True, eq=False)
class Regression:
    """The family of a regression, and where its predictors stand in theta; see `predictors`.

    What was fitted is (x - means) / scales where columns were standardised, and so is the response.
    """

    family: str
    heads: int
    intercept: bool
    extras: int
    means: Floats | None = None
    scales: Floats | None = None
    response_mean: float = 0.0
    response_scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Mode:
    """Another mode of the posterior than the one whose numbers the result gives.

    `share` is its part of the posterior's mass by Laplace's estimate, and so are `location`, the centre of the
    Gaussian there in the parameters' own terms, and `sd`. `result` answers the same question at this mode alone; where
    there is none, `reason` says why.
    """

    share: float
    structure: Structure = field(repr=False)
    flat_location: Floats
    flat_sd: Floats
    result: Result | None = field(default=None, repr=False)
    reason: str = ""

    @property
    def location(self) -> Any:
        return self.structure.build(self.flat_location)

    @property
    def sd(self) -> Any:
        return self.structure.build(self.flat_sd)


@dataclass(frozen=True, eq=False)
class Result:
    """What `estimate` returns; see the fields' own descriptions, or print it.

    Where the posterior has several modes the numbers are of the heaviest, and `modes` are the others.
    """

    estimates: dict[str, Estimate]
    status: Status
    levels: tuple[Level, ...]
    rates: Rates
    cost: Cost
    contraction: Contraction | None
    anchor: Any
    method: str
    settings: dict[str, Any]
    tuning: Tuning | None = None
    notes: tuple[str, ...] = ()
    posterior: Any = None
    encoding: Any = None
    regression: Regression | None = None
    modes: tuple[Mode, ...] = ()
    continuation: Callable[..., Result] | None = field(default=None, repr=False)

    def __getitem__(self, name: str) -> Estimate:
        return self.estimates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.estimates)

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def converged(self) -> bool:
        return self.status is Status.converged

    def extend(self, **changes: Any) -> Result:
        """Go on from here to another tolerance or budget, paying only the difference."""
        if self.continuation is None:
            raise TallbayesError(
                "expected a result of this process, which still has its rows; got one loaded from a file. "
                "Try: tb.estimate(...) again with anchor=result.anchor, which saves the set-up."
            )
        return self.continuation(**changes)

    def summary(self) -> str:
        """The answer in brief: means, sds and intervals with their errors, then what to know about them."""
        from tallbayes.brief import brief

        return brief(self, {})

    def coefficients(self, probability: float = 0.95) -> Any:
        """Mean, sd and the ends of an equal-tailed interval of every parameter, each with its Monte Carlo error."""
        from tallbayes.coefficients import coefficients

        return coefficients(self, probability)

    def ratios(self, probability: float = 0.95) -> Any:
        """Odds ratios or rate ratios of a family's coefficients, with intervals and errors."""
        from tallbayes.comparisons import ratios

        return ratios(self, probability)

    def compare(self, *things: Any, probability: float = 0.95) -> Any:
        """The difference of two things, its interval, and the probability that the first is the larger.

        Two categories of a column, compare("carrier", "EV", "UA"); two rows, as dicts; or two parameters by name.
        """
        from tallbayes.comparisons import compare

        return compare(self, *things, probability=probability)

    def predict(self, rows: Any, *, at_least: Any = None, offset: Any = None, out: Any = None) -> Any:
        """Posterior expectations of the response for new rows, their posterior sd and Monte Carlo errors.

        `rows` are what the fit was given, without the response: a path, a frame, a dict of columns or of one row's
        values where there was a formula; x (N, d) of a family; rows of a model that has `predict`. For counts
        `at_least=k` adds P(y >= k). With `out`, a .csv or .parquet path, they are written there a batch at a time, in
        memory that does not grow with their number, and their number is returned.
        """
        from tallbayes.predictions import predict

        return predict(self, rows, at_least=at_least, offset=offset, out=out)

    def report(self, path: str | Path, **parts: Any) -> Path:
        """One HTML page that can be shown to someone else; `predictions`, `comparisons` and a `title` may be added."""
        from tallbayes.report import write_report

        return write_report(self, path, **parts)

    def to_pandas(self, probability: float = 0.95) -> Any:
        """A data frame: one row a parameter, with errors beside the numbers."""
        from tallbayes.export import to_pandas

        return to_pandas(self, probability)

    def to_datatree(self, draws: int = 1000) -> Any:
        """An xarray.DataTree in ArviZ's layout: a thin set of draws for plots, and the estimates with their errors."""
        from tallbayes.export import to_datatree

        return to_datatree(self, draws)

    def to_inferencedata(self, draws: int = 1000) -> Any:
        """The same as arviz.InferenceData, where arviz < 1 is installed."""
        from tallbayes.export import to_inferencedata

        return to_inferencedata(self, draws)

    def plot(self, **options: Any) -> Any:
        """A forest plot by matplotlib; see `tallbayes.plots.plot`."""
        from tallbayes.plots import plot

        return plot(self, **options)

    def _repr_html_(self) -> str:
        from tallbayes.notebook import html

        return html(self)

    def save(self, path: str | Path) -> None:
        """Write to one file, atomically; `tallbayes.load` reads back the same bits."""
        from tallbayes.storage import save

        save(self, path)

    def __str__(self) -> str:
        from tallbayes.display import describe

        return describe(self)
