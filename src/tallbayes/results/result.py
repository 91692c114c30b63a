"""The result: a frozen value that says what was found, how sure it is, what it cost, and what it does not know.

interval = value +- (t_nu se + bias_bound),   met: se^2 + bias_bound^2 <= tolerance^2 for every component
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import TallbayesError
from tallbayes.estimator.decisions import Tuning
from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.estimator.rates import Contraction
from tallbayes.posterior.posterior import Posterior
from tallbayes.progress import Report
from tallbayes.results.parts import (
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
from tallbayes.results.questions.arriving import Arriving
from tallbayes.results.questions.fits import FitQuestions
from tallbayes.results.questions.parameters import ParameterQuestions
from tallbayes.results.questions.rows import RowQuestions
from tallbayes.results.questions.showing import Showing
from tallbayes.workers.executors import Executor

if TYPE_CHECKING:
    from tallbayes.results.fitted import FitTable, Fitted
    from tallbayes.results.groups.effects import Effects, EffectSource
    from tallbayes.results.groups.partition import VariancePartition
    from tallbayes.sampler.levels import Problem


@dataclass(frozen=True, eq=False)
class Result(ParameterQuestions, RowQuestions, FitQuestions, Arriving, Showing):
    """What `estimate` returns; see the fields' own descriptions, or print it.

    With several modes the numbers are of the heaviest, and `modes` are the others. With a random tail the last of the
    levels stands for all above it. An answer by weights has no levels, but `weighing`. Of a mixed model `factors` are
    those of its groups, the one that is integrated out first: wherever costs are counted, a row is then a group of it.

    The examples of its methods go on from this one, with `folder` for a `pathlib.Path` to write to.

    >>> import numpy as np, tallbayes as tb
    >>> number = np.arange(200)
    >>> hour, carrier = number % 24, np.array(["AA", "UA", "DL"])[number % 3]
    >>> rows = {"late": 7 * number % 24 < hour, "hour": hour, "carrier": carrier}
    >>> result = tb.fit("late ~ hour + carrier", rows, tolerance=0.1)
    >>> list(result), round(result["mean"].value["hour"], 2), result.converged
    (['mean', 'sd'], 0.23, True)
    """

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
        """Go on from here to another tolerance or budget, paying only the difference.

        >>> finer = result.extend(tolerance=0.05)
        >>> finer.converged, finer.settings["tolerance"]
        (True, 0.05)
        """
        asked: dict[str, Any] = {"tolerance": tolerance, "relative_tolerance": relative_tolerance, "executor": executor}
        asked |= {"absolute_tolerance": absolute_tolerance, "interval_tolerance": interval_tolerance}
        asked |= {"max_evaluations": max_evaluations, "max_levels": max_levels, "max_seconds": max_seconds}
        asked["progress"] = progress
        if self.continuation is None:
            expected, got = "expected a result of this process, which still has its rows", "one loaded from a file"
            hint = "tb.estimate(...) again with anchor=result.anchor, which saves the set-up"
            raise TallbayesError(f"{expected}; got {got}. Try: {hint}.")
        return self.continuation(**{name: value for name, value in asked.items() if value is not None}, **unknown)

    def __repr__(self) -> str:
        from tallbayes.views.text import in_a_line

        return in_a_line(self)

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.tables import html

        return html(self)

    def __str__(self) -> str:
        from tallbayes.views.text import describe

        return describe(self)
