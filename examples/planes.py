"""Is it the plane? 327,346 flights out of New York in 2013, and an effect of every one of 4,037 planes.

A plane that was late three times of three is not late always. How much of what its own flights say is to be believed
hangs on how many there are, and on how much planes differ at all: both are in the posterior, and so is every plane.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from nycflights import BY_PLANE, read_flights

import tallbayes as tb

TOLERANCE = 0.1
PAGE = Path("planes.html")
SHOWN = 4
USUAL = 0.24


def main() -> None:
    started = time.monotonic()
    flights = read_flights()
    print(f"{flights.num_rows:,} flights; P(arrives more than 15 minutes late) by\n  {BY_PLANE}\n")
    result = tb.fit(BY_PLANE, flights, family="logistic", tolerance=TOLERANCE, intercept_scale=1.0)
    print_scale(result)
    planes = result.effects("plane")
    print_planes(planes)
    print_comparison(result, planes)
    cost = result.cost
    print(f"\nevery mean and sd to {TOLERANCE:g} posterior sd ({result.status.name}): {cost.seconds:.1f} s")
    page = result.report(PAGE, title="Is it the plane?")
    print(f"the whole answer on one page: {page} ({time.monotonic() - started:.0f} s in all)")
    sys.exit(0 if result.converged else 3)


def print_scale(result: tb.Result) -> None:
    """How much planes differ."""
    name = "sd(Intercept|plane)"
    mean = result["mean"].value[name]
    error = result["mean"].half_width()[list(result["mean"].value).index(name)] / 2
    worse, better = late(USUAL, mean), late(USUAL, -2 * mean)
    print(f"planes differ by an sd of {mean:.4f} ± {error:.4f} in log odds: where {USUAL:.0%} of an average plane's")
    print(f"flights are late, {worse:.0%} are of one that is an sd worse, and {better:.0%} of one that is two better\n")


def late(share: float, effect: float) -> float:
    return float(1 / (1 + (1 / share - 1) * np.exp(-effect)))


def print_planes(planes: tb.Effects) -> None:
    """Those that look worst by their own flights alone, and those that are worst once all is known."""
    order = np.lexsort((-planes.counts, -planes.raw))[:SHOWN]
    print("the worst by their own flights alone          flights   late   effect ± error    95% of the posterior")
    for place in order:
        print("  " + line(planes, place))
    print("the worst in the end")
    for place in np.argsort(-planes.mean[:, 0])[:SHOWN]:
        print("  " + line(planes, place))
    print("the best")
    for place in np.argsort(planes.mean[:, 0])[:SHOWN]:
        print("  " + line(planes, place))


def line(planes: tb.Effects, place: int) -> str:
    own = f"{planes.levels[place]!s:42} {planes.counts[place]:7.0f}  {planes.raw[place]:5.0%}"
    effect = f"{planes.mean[place, 0]:+7.4f} ± {planes.mean_error[place, 0]:.4f}"
    return f"{own}  {effect}   [{planes.lower[place, 0]:+.3f}, {planes.upper[place, 0]:+.3f}]"


def print_comparison(result: tb.Result, planes: tb.Effects) -> None:
    order = np.argsort(planes.mean[:, 0])
    worst, best = planes.levels[order[-1]], planes.levels[order[0]]
    print(f"\nis {worst} worse than {best}?")
    print("  " + str(result.compare("plane", worst, best)).replace("\n", "\n  "))


if __name__ == "__main__":
    main()
