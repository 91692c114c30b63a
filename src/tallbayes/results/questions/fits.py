"""Fits: what a result says of its model as a whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallbayes.evidence.evidence import Evidence
    from tallbayes.leave_one_out.loo import Loo
    from tallbayes.results.powers.sensitivity import Sensitivity


class FitQuestions:
    """Of the model and its prior. A `Result` is one; see there for the `result` of the examples."""

    def loo(
        self: Any,
        pointwise: bool = False,
        *,
        out: str | os.PathLike[str] | None = None,
        tolerance: float = 0.01,
        seed: int = 0,
        unit: str | None = None,
    ) -> Loo:
        """Leave-one-out: the expected log predictive density of a row that was not fitted, summed over the rows.

        Its sampling error, apart from it Monte Carlo's, brought to `tolerance` of the first, and the rows that matter
        most. With `pointwise` every row's own is kept, with `out` written to a file, in the order of the source. Of a
        mixed model groups are left out, or, with unit="row", rows given the others of their group.

        >>> found = result.loo(pointwise=True)
        >>> round(found.elpd), found.certified
        (-96, True)
        """
        from tallbayes.leave_one_out.loo import loo

        return loo(self, pointwise, out, tolerance, seed, unit)

    def evidence(
        self: Any, tolerance: float = 0.01, *, seed: int | None = None, max_evaluations: float | None = None
    ) -> Evidence:
        """The log marginal likelihood log p(y), to a tolerance in nats, with its interval.

        All constants of a family are in it, and y is in the table's own units. Of a model of one's own it is that of
        the log prior and log likelihood as they are written. Flat priors have none.

        >>> found = result.evidence(tolerance=0.1)
        >>> round(found.value), bool(found.standard_error < 0.1)
        (-101, True)
        """
        from tallbayes.evidence.marginal import evidence

        return evidence(self, tolerance, seed, max_evaluations)

    def sensitivity(self: Any) -> Sensitivity:
        """Which answers hang on the prior: how far every mean and sd moves with the power of the prior, of its parts
        and of the likelihood, in posterior sds, each number with its error.

        >>> found = result.sensitivity()
        >>> found.ranked[0]  # the one that moves most
        'hour'
        """
        from tallbayes.results.powers.sensitivity import sensitivity

        return sensitivity(self)
