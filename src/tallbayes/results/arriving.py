"""Arriving: the two methods of a result for rows that come after the fit, and for rows that are taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallbayes.results.result import Result


class Arriving:
    """What a `Result` can do about its rows."""

    __slots__ = ()

    def update(self, rows: Any, *, weights: Any = None, **options: Any) -> Result:
        """The result for all rows so far and these, at a cost that does not know how many there are.

        `rows` are what the fit was given: arrays like its own for a model or a family. Options are those of `extend`: a
        tolerance (the one so far if none), budgets, an executor. The first update places the rows of the fit
        anew and goes over them once or twice; every later one reads the new ones, and some thousand of all. This result
        stays what it is."""
        from tallbayes.arrivals.doors import updated

        return updated(self, rows, weights, **options)  # type: ignore[arg-type]

    def without(self, rows: Any, *, weights: Any = None, **options: Any) -> Result:
        """The result for all rows so far but these, each withdrawn once; refused where any of them was never there.

        Rows are told by what they say, to the last digit. What was learnt of them is in no later result."""
        from tallbayes.arrivals.doors import withdrawn

        return withdrawn(self, rows, weights, **options)  # type: ignore[arg-type]
