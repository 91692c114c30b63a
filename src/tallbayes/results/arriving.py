"""Arriving: the two methods of a result for rows that come after the fit, and for rows that are taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        **options: Any,
    ) -> Result:
        """The result for all rows so far and these, at a cost that does not know how many there are.

        `rows` are what the fit was given: a path, a frame or a dict of columns for a formula, arrays for a model or a
        family; so are `weights` and `offset`, which a fit that named columns for them finds by itself. Columns
        are standardised as they were, and a category that was not there before is refused, or with new_levels="add" has
        a coefficient with its prior. Options are those of `extend`: a tolerance (the one so far if none), budgets, an
        executor.

        The first update places the rows of the fit anew and goes over them; a later one reads the new ones, and some
        thousand of all. This result stays what it is."""
        from tallbayes.arrivals.doors import Given, updated

        return updated(self, Given(rows, weights, offset, missing, new_levels), **options)  # type: ignore[arg-type]

    def without(
        self, rows: Any, *, weights: Any = None, offset: Any = None, missing: str = "error", **options: Any
    ) -> Result:
        """The result for all rows so far but these, each withdrawn once; refused where any of them was never there.

        Rows are told by what they say, to the last digit that the fit has of them. What was learnt of them is in no
        later result."""
        from tallbayes.arrivals.doors import Given, withdrawn

        return withdrawn(self, Given(rows, weights, offset, missing), **options)  # type: ignore[arg-type]
