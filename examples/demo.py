"""Will my flight be late? 327,346 flights out of New York in 2013, 38 coefficients, and a page to show to someone else.

From the data package's own file to odds ratios of carriers, the chance that one Friday evening's flight arrives more
than 15 minutes late, and the chance that one carrier is worse than another: each with an interval and its error.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from nycflights import FORMULA, NAMED_FLIGHT, NAMED_FLIGHT_TEXT, WORSE, read_carriers, read_flights

import tallbayes as tb

TOLERANCE = 0.02
PAGE = Path("flights.html")


def main() -> None:
    started = time.monotonic()
    flights, carriers = read_flights(), read_carriers()
    print(f"{flights.num_rows:,} flights; P(arrives more than 15 minutes late) by\n  {FORMULA}\n")
    result = tb.fit(FORMULA, flights, family="logistic", tolerance=TOLERANCE, intercept_scale=1.0)
    print_carriers(result, carriers)
    print_prediction(result)
    print_comparison(result, carriers)
    print_laplace(result)
    print_cost(result)
    page = result.report(
        PAGE,
        title="Will my flight be late?",
        predictions=[(NAMED_FLIGHT_TEXT, result.predict(NAMED_FLIGHT))],
        comparisons=[result.compare("carrier", *WORSE)],
    )
    print(f"\nthe whole answer on one page: {page} ({time.monotonic() - started:.0f} s in all)")
    sys.exit(0 if result.converged else 3)


def print_carriers(result: tb.Result, carriers: dict[str, str]) -> None:
    """Odds of being late against Endeavor Air's, the first in the alphabet, the worst last."""
    found = [each for each in result.ratios() if each.name.startswith("carrier[T.")]
    print("odds ratios of carriers against Endeavor Air (9E): posterior median, and 2.5% and 97.5% of the posterior,")
    print("each ± its Monte Carlo error\n")
    for each in sorted(found, key=lambda ratio: ratio.median.value):
        code = each.name.removeprefix("carrier[T.").removesuffix("]")
        numbers = "   ".join(f"{n.value:8.5f} ± {n.error:.5f}" for n in (each.median, each.lower, each.upper))
        print(f"  {code} {carriers.get(code, '')[:28]:28} {numbers}")


def print_prediction(result: tb.Result) -> None:
    found = result.predict(NAMED_FLIGHT)
    print(f"\n{NAMED_FLIGHT_TEXT}:")
    print(f"  P(late) = {found.mean[0]:.4f} ± {found.error[0]:.1g}, posterior sd {found.sd[0]:.4f}")


def print_comparison(result: tb.Result, carriers: dict[str, str]) -> None:
    a, b = WORSE
    found = result.compare("carrier", a, b)
    print(f"\nis {carriers[a]} ({a}) worse than {carriers[b]} ({b})?")
    print("  " + str(found).replace("\n", "\n  "))


def print_laplace(result: tb.Result) -> None:
    """Where the Gaussian at the mode alone would have been wrong."""
    moved = sorted(result.coefficients(), key=lambda each: -abs(each.shift))[:3]
    print("\nwhere Laplace's approximation alone would have been wrong, in posterior sds:")
    for each in moved:
        low = (each.laplace_mean - 1.96 * each.laplace_sd - each.lower.value) / each.sd.value
        print(f"  {each.name:20} its mean by {-each.shift:+.3f}, the lower end of its interval by {low:+.2f}")
    print("  SkyWest (OO) has 29 flights of 327,346: its coefficient is skewed, whatever the number of rows.")


def print_cost(result: tb.Result) -> None:
    cost = result.cost
    print(
        f"\nevery mean and sd to {TOLERANCE:g} posterior sd ({result.status.name}): {cost.seconds:.1f} s, "
        f"{cost.setup_evaluations / cost.num_data:.0f} passes over the rows to set up, then {cost.epochs:.2f}"
    )


if __name__ == "__main__":
    main()
