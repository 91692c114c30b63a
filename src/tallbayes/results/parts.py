"""Parts of a result: what every level did, what it cost, which regression it is of, its groups and its other modes; and
what it can do about its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from tallbayes.model.linear import Layout
from tallbayes.moments import Floats
from tallbayes.structure import Structure

if TYPE_CHECKING:
    from tallbayes.results.result import Result


Tolerance = float | Mapping[str, float]


class Settings(TypedDict, total=False):
    """What a run was asked, and with what it was answered; of the three tolerances there is one."""

    seed: int
    tolerance: Tolerance
    relative_tolerance: Tolerance
    absolute_tolerance: Tolerance
    interval_tolerance: float
    precision: str
    block_paths: int
    versions: dict[str, str]


class PlainEncoding(TypedDict, total=False):
    """What a fit remembers of its formula, as text, numbers and lists; `tallbayes.formula.encoding` reads it."""

    format: int
    coding: dict[str, object]
    means: list[float]
    scales: list[float]
    response: str
    classes: list[str | int | bool] | None
    response_mean: float
    response_scale: float
    offset: str | None
    offset_terms: str
    offset_columns: list[str]


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


@dataclass(frozen=True, eq=False)
class Regression:
    """The family of a regression, and where its predictors stand in theta; see `linear`.

    Fitted was (x - means) / scales where columns were standardised, and so the response; `noise_scale` if it was known.
    The last `beside` columns are those of the log of the noise scale.
    """

    family: str
    heads: int
    intercept: bool
    extras: int
    means: Floats | None = None
    scales: Floats | None = None
    response_mean: float = 0.0
    response_scale: float = 1.0
    noise_scale: float | None = None
    degrees_of_freedom: float | None = None
    beside: int = 0

    @property
    def layout(self) -> Layout:
        """Of rows whose columns are all written down."""
        return Layout(self.heads, self.intercept, self.extras, beside=self.beside)


@dataclass(frozen=True, eq=False)
class Mode:
    """Another mode of the posterior than the one whose numbers the result gives.

    `share` is its part of the mass by Laplace's estimate, and so are `location`, the centre of the Gaussian there, and
    `sd`. `result` answers the same question there; where there is none, `reason` says why.
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


@dataclass(frozen=True)
class DrawWeights:
    """What part of as many draws from the posterior they are worth, the largest of a mean of one, their tail's k, and
    what the draws were `about`."""

    draws: int
    efficiency: float
    largest: float
    tail: float
    about: str = "about a Gaussian in balance"


@dataclass(frozen=True)
class Factor:
    """Groups `by` a column, with effects by these `names`: how many groups, and of how many rows each.

    Of the factor that is integrated out there are `nodes` to an effect, whose integrals shift what is reported by
    `integral_error` posterior sds at the most. Effects of others are parameters: the `first` of them is at that place.
    `spread` is the mean over rows of z z^T, (effects, effects), of the columns that effects are multiplied by.
    """

    by: str
    names: tuple[str, ...]
    groups: int
    rows: int
    fewest: int
    median: float
    most: int
    nodes: int = 0
    integral_error: float = 0.0
    first: int | None = None
    spread: tuple[tuple[float, ...], ...] = ()

    @property
    def is_integrated(self) -> bool:
        return self.first is None

    @property
    def count(self) -> int:
        """How many effects there are."""
        return self.groups * len(self.names)

    @property
    def note(self) -> str:
        """In a line, with where to look further."""
        each = f"{self.median:,.0f} rows each in the median, {self.fewest:,} to {self.most:,}"
        how = "are parameters"
        if self.is_integrated:
            off = f", whose error is about {self.integral_error:.1g} posterior sd" if self.integral_error else ""
            how = f"integrated out by {self.nodes} node{'s' * (self.nodes != 1)}{off}"
        return f'groups: {self.groups:,} by {self.by} ({each}), effects {how}; result.effects("{self.by}") has them'
