"""Arriving: what a result makes of rows that come after the fit, and of rows that are taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallbayes.arrivals.foretold import Foretold
    from tallbayes.results.result import Result


class Arriving:
    """What a `Result` can do about its rows."""

    __slots__ = ()

    def update(
        self,
        rows: Any,
        *,
        weights: Any = None,
        offset: Any = None,
        missing: str = "error",
        new_levels: str = "refuse",
        foretell: bool = False,
        **options: Any,
    ) -> Result:
        """The result for all rows so far and these, at a cost that does not know how many there are.

        `rows` are what the fit was given: a path, a frame or a dict of columns for a formula, arrays for a model or a
        family; so are `weights` and `offset`, which a fit that named columns for them finds by itself. Columns
        are standardised as they were, and a category that was not there before is refused, or with new_levels="add" has
        a coefficient with its prior; a group with an effect of its own is added, and a day changes its groups alone.
        Options are those of `extend`: a tolerance (the one so far if none), budgets, an
        executor.

        With `foretell` the rows are held against what was foretold of them, for `tb.history`; that takes some seconds
        the first time.

        The first update places the rows of the fit anew and goes over them; a later one reads the new ones, and some
        thousand of all. This result stays what it is."""
        from tallbayes.arrivals.doors import GivenRows, updated

        return updated(self, GivenRows(rows, weights, offset, missing, new_levels, foretell), **options)  # type: ignore[arg-type]

    def foretell(self, rows: Any, *, weights: Any = None, offset: Any = None, missing: str = "error") -> Foretold:
        """How well this result foretells rows that it has not seen, which have their response.

        Their log predictive density, one by one and all together, each with its error, and how surprising they are: a
        p-value that is below 0.001 once in a thousand days at the most where the model is right.

        >>> later = {"late": [True, False, True], "hour": [22, 4, 13], "carrier": ["AA", "UA", "DL"]}
        >>> found = result.foretell(later)
        >>> found.rows, found.is_surprising
        (3, False)
        """
        from tallbayes.arrivals.doors import GivenRows, foretold

        return foretold(self, GivenRows(rows, weights, offset, missing))  # type: ignore[arg-type]

    def without(
        self, rows: Any, *, weights: Any = None, offset: Any = None, missing: str = "error", **options: Any
    ) -> Result:
        """The result for all rows so far but these, each withdrawn once; refused where any of them was never there.

        Rows are told by what they say, to the last digit that the fit has of them. What was learnt of them is in no
        later result."""
        from tallbayes.arrivals.doors import GivenRows, withdrawn

        return withdrawn(self, GivenRows(rows, weights, offset, missing), **options)  # type: ignore[arg-type]
