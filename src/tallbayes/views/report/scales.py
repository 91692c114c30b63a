"""Scales: where numbers stand on an axis, and at which of them it has ticks.

A logarithmic scale holds logarithms: its ticks are round numbers at the places of their logarithms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, exp, floor, isfinite, log, log10

from tallbayes.views.report.markup import fixed, in_page, plain

STEPS = (1.0, 2.0, 5.0, 10.0)
# Beyond it exp is not a number that can be written.
LARGEST = 700.0


@dataclass(frozen=True)
class Tick:
    """A place on a scale, and what is written there."""

    place: float
    text: str


@dataclass(frozen=True)
class Scale:
    """Both ends, and ticks between them."""

    low: float
    high: float
    ticks: tuple[Tick, ...]

    def share(self, place: float) -> float:
        """How far along the axis a place is: 0 at the low end, 1 at the high one."""
        return (place - self.low) / (self.high - self.low)


def scale_of(places: Iterable[float], logarithmic: bool, most: int) -> Scale:
    """A scale that holds all these places, with a little room beside them, and about so many ticks at most."""
    finite = [place for place in places if isfinite(place)] or [0.0]
    low, high = min(finite), max(finite)
    room = 0.04 * (high - low) or 0.5 * abs(low) or 0.5
    low, high = low - room, high + room
    return Scale(low, high, log_ticks(low, high, most) if logarithmic else linear_ticks(low, high, most))


def linear_ticks(low: float, high: float, most: int) -> tuple[Tick, ...]:
    """Multiples of 1, 2 or 5 times a power of ten.

    >>> [tick.text for tick in linear_ticks(-0.12, 0.31, 6)]
    ['−0.1', '0.0', '0.1', '0.2', '0.3']
    """
    step = _step((high - low) / most)
    decimals = max(0, -floor(log10(step) + 1e-9))
    numbers = [k * step for k in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
    largest = max(map(abs, numbers), default=0.0)
    in_powers = largest < 1e-3 or largest >= 1e6 or decimals > 8
    return tuple(Tick(each, _in_powers(each) if in_powers else fixed(each, decimals)) for each in numbers)


def log_ticks(low: float, high: float, most: int) -> tuple[Tick, ...]:
    """Round numbers at their natural logarithms.

    >>> [tick.text for tick in log_ticks(-0.9, 0.9, 6)], [tick.text for tick in log_ticks(-7, 7, 6)]
    (['0.5', '0.7', '1', '1.5', '2'], ['0.001', '0.01', '0.1', '1', '10', '100', '1,000'])
    """
    if high - low < log(2.5) and max(abs(low), abs(high)) < LARGEST:
        return tuple(Tick(log(tick.place), tick.text) for tick in linear_ticks(exp(low), exp(high), most))
    first, last = ceil(low / log(10) - 1e-9), floor(high / log(10) + 1e-9)
    if last - first <= most:
        for mantissas in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
            found = [(m, d) for d in range(first - 1, last + 1) for m in mantissas if low <= _place(m, d) <= high]
            if len(found) <= most + 1:
                break
    else:
        every = ceil((last - first + 1) / (most + 1))
        found = [(1, decade) for decade in range(every * ceil(first / every), last + 1, every)]
    return tuple(Tick(_place(m, d), _power(m, d)) for m, d in found)


def _place(mantissa: float, decade: int) -> float:
    return log(mantissa) + decade * log(10)


def _power(mantissa: float, decade: int) -> str:
    if -5 < decade < 5:
        return plain(mantissa * 10.0**decade, 1 if mantissa == int(mantissa) else 2)
    return f"{mantissa:g}e{in_page(str(decade))}"


def _in_powers(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    return in_page(f"{float(mantissa):g}e{int(exponent)}") if value else "0"


def _step(least: float) -> float:
    """The round step that is not below this."""
    power = 10.0 ** floor(log10(least)) if least > 0 else 1.0
    return next(step * power for step in STEPS if step * power >= least * (1 - 1e-9))


def by_magnitude(extents: list[float], widths: list[float], least: float, apart: float) -> list[int]:
    """The axis of each of several intervals: one for all, unless some would be too small to see on it.

    Those narrower than `least` of an axis, and `apart` times nearer to its origin than the furthest, get one of their
    own. At most four.
    """
    axis = [0] * len(extents)
    for number in range(1, 4):
        mine = [place for place in range(len(axis)) if axis[place] == number - 1]
        span = max((extents[place] for place in mine), default=0.0)
        small = [i for i in mine if widths[i] < least * span and extents[i] * apart < span]
        for place in small:
            axis[place] = number
    return axis
