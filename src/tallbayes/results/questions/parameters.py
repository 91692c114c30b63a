"""Parameters: what a result says of each of them, of two, and of all terms of a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallbayes.results.coefficients import Coefficient
    from tallbayes.results.comparisons import Comparison, Ratio
    from tallbayes.results.curves import ColumnCurve
    from tallbayes.results.draws.drawn import PosteriorDraws
    from tallbayes.results.groups.effects import Effects
    from tallbayes.results.groups.partition import VariancePartition
    from tallbayes.results.smooths.smoothness import Smoothness


class ParameterQuestions:
    """Of the parameters of a fit. A `Result` is one; see there for the `result` of the examples."""

    def coefficients(self: Any, probability: float = 0.95) -> tuple[Coefficient, ...]:
        """Mean, sd and the ends of an equal-tailed interval of every parameter, each with its Monte Carlo error.

        >>> hour = result.coefficients()[1]
        >>> hour.name, round(hour.mean.value, 2), bool(hour.mean.error < 0.01)
        ('hour', 0.23, True)
        >>> hour.lower.value < hour.median.value < hour.upper.value
        True
        """
        from tallbayes.results.coefficients import coefficients

        return coefficients(self, probability)

    def ratios(self: Any, probability: float = 0.95) -> tuple[Ratio, ...]:
        """Odds ratios or rate ratios of a family's coefficients, with intervals and errors.

        >>> hour, *carriers = result.ratios(0.9)
        >>> hour.name, round(hour.median.value, 1)
        ('hour', 1.3)
        >>> [each.name for each in carriers]
        ['carrier[T.DL]', 'carrier[T.UA]']
        """
        from tallbayes.results.comparisons import ratios

        return ratios(self, probability)

    def compare(self: Any, *things: object, probability: float = 0.95) -> Comparison:
        """The difference of two things, its interval, and the probability that the first is the larger.

        Two categories or groups of a column, compare("carrier", "EV", "UA"); two rows, as dicts; two parameters.

        >>> found = result.compare("carrier", "UA", "DL")
        >>> round(found.probability.value, 1), found.kind
        (0.7, 'odds ratio')
        >>> evening, noon = {"hour": 18, "carrier": "UA"}, {"hour": 12, "carrier": "UA"}
        >>> round(result.compare(evening, noon).mean.value, 1)
        1.4
        """
        from tallbayes.results.comparisons import compare

        return compare(self, *things, probability=probability)

    def curve(
        self: Any, column: str, points: Any = None, *, against: float | None = None, probability: float = 0.95
    ) -> ColumnCurve:
        """f(x) of all terms of a column of numbers at some points: about its mean, or `against` its value at one.

        >>> curve = result.curve("hour", [6, 12, 18], against=12)
        >>> [round(float(each), 1) for each in curve.mean]
        [-1.4, 0.0, 1.4]
        """
        from tallbayes.results.curves import curve

        return curve(self, column, points, against, probability)

    def smooths(self: Any) -> tuple[Smoothness, ...]:
        """Of every s(x) of the formula the scale that was learnt, the sd of the curve about its straight line, and its
        effective degrees of freedom: the trace of its part of (I + P)^-1 I, 1 for a straight line.

        >>> curved = tb.fit("late ~ s(hour)", rows)  # doctest: +SKIP
        >>> print(*curved.smooths())  # doctest: +SKIP
        s(hour): sd 0.62 ± 0.01, edf 3.1 of 9
        """
        from tallbayes.results.smooths.smoothness import smooths

        return smooths(self)

    def effects(self: Any, by: str | None = None) -> Effects:
        """Every group's own effect, by the column of the groups: mean, sd and 95% interval, each with its error.

        >>> mixed = tb.fit("late ~ hour + (1 | carrier)", rows)  # doctest: +SKIP
        >>> mixed.effects("carrier").to_pandas()  # doctest: +SKIP
        """
        from tallbayes.results.groups.effects import effects

        return effects(self, by)

    def variance_partition(self: Any) -> VariancePartition:
        """Of a mixed model by a formula: shares of variance of its factors (intraclass correlations) and the residual,
        on the scale of the linear predictor, each with an interval and errors.

        >>> mixed = tb.fit("late ~ hour + (1 | carrier)", rows)  # doctest: +SKIP
        >>> print(mixed.variance_partition())  # doctest: +SKIP
        """
        from tallbayes.results.groups.partition import variance_partition

        return variance_partition(self)

    def draws(self: Any, count: int = 1_000, *, seed: int = 0) -> PosteriorDraws:
        """Independent draws, `.value` in theta's structure and `.effects()` of groups; off by `.bias` sds at most.

        >>> draws = result.draws(500, seed=1)
        >>> len(draws), draws["hour"].shape
        (500, (500,))
        >>> bool(abs(draws["hour"].mean() - result["mean"].value["hour"]) < 0.01)
        True
        """
        from tallbayes.results.draws.drawn import draw

        return draw(self, count, seed=seed)
