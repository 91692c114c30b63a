"""Numbers as text: the one rounding of terminal, notebook, report and plots.

    12345.6 ± 120       12350 ± 120       the error to two digits, the value to the second of them
    1e-7 ± 2e-11        1.00000e-7 ± 2.0e-11
    12345.6 ± infinity  ~12000 ± unknown  two digits, marked as rough, where no error says how many; never nan or inf
    12345.6             12300             without that error: to the last digit that it moves by three at most

A number that is less accurate than it should be is marked too: ~0.31 ± 0.12. From 0.00001 to a billion numbers are
written out. A minus is "-" here; a page sets it in its own way. Programs get numbers, not text: JSON, frames and arrays
keep every bit.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite

UNKNOWN = "unknown"
# Before a number that is less accurate than was asked for, or whose error is not known.
ROUGH = "~"
# Powers of ten that are written out.
SMALLEST, LARGEST = -5, 8
MOST_DECIMALS = 12
FEW_DIGITS, MOST_DIGITS = 6, 16


def figures(value: float, error: float, rough: bool = False) -> tuple[str, str]:
    """A value and its error; no error stands beside a value that is unknown.

    >>> figures(0.123456, 0.00123), figures(-12345.6, 120.0), figures(1e12, 2e8), figures(float("nan"), 1.0)
    (('0.1235', '0.0012'), ('-12350', '120'), ('1.00000e12', '200000000'), ('unknown', ''))
    >>> figures(-0.123456, 0.0123, rough=True), figures(-0.123456, float("inf"))
    (('~-0.123', '0.012'), ('~-0.12', 'unknown'))
    """
    mark = ROUGH if rough and isfinite(error) and isfinite(value) else ""
    return mark + rounded(value, error), spread(error) if isfinite(value) else ""


def with_error(value: float, error: float) -> str:
    """
    >>> with_error(0.123456, 0.0012), with_error(2.0, 0.0), with_error(float("inf"), 1.0)
    ('0.1235 ± 0.0012', '2 ± 0', 'unknown')
    """
    return " ± ".join(part for part in figures(value, error) if part)


def alone(value: float, error: float, width: float = 0.0) -> str:
    """A value without its error: to the last digit that the error moves by three at most, and to no more than two of a
    `width`.

    >>> alone(-4.3801, 0.056), alone(-4.3801, 0.52), alone(0.12341, 0.00009), alone(1234.5, 30.0), alone(0.2, 0.5)
    ('-4.4', '-4', '0.1234', '1230', '0')
    >>> alone(-4.3801, 0.0002, width=0.31), alone(2.0, 0.0)
    ('-4.38', '2')
    >>> alone(1.2345, float("nan")), alone(0.999824, float("nan"), width=6e-5)
    ('~1.2', '~0.99982')
    """
    if not isfinite(value) or not isfinite(error):
        return _guessed(value, error, width)
    places = [decimals_of(width)] if isfinite(width) and width > 0 else []
    places += [-_last_power(error)] if error > 0 else []
    if not places:
        return rounded(value, error)
    decimals, power = min(places), _power(max(abs(value), 10.0 ** -min(places)))
    if SMALLEST <= power <= LARGEST:
        return fixed(value, min(decimals, MOST_DECIMALS))
    return _scientific(value, power, max(decimals + power, 0))


def _guessed(value: float, error: float, width: float) -> str:
    """Of a value whose error is unknown two digits, or as many as one digit of a width takes."""
    text = rounded(value, error)
    if not (isfinite(value) and isfinite(width) and width > 0):
        return text
    decimals = min(decimals_of(width) - 1, MOST_DECIMALS)
    return ROUGH + fixed(value, decimals) if decimals > len(text.partition(".")[2]) else text


def rounded(value: float, error: float) -> str:
    """A value to the second digit of its error; to six, or up to the point, where there is none (0); to two and marked
    as rough where it is unknown.

    >>> rounded(0.5, 0.0996), rounded(-1e-5, 0.01), rounded(1.0, 1e-14), rounded(3e-9, 1.2e-10)
    ('0.50', '0.000', '1.000000000000', '3.00e-9')
    >>> rounded(1234567.0, 0.0), rounded(1.2345, float("nan")), rounded(0.0, float("inf"))
    ('1234567', '~1.2', '~0')
    """
    if not isfinite(value):
        return UNKNOWN
    if not isfinite(error):
        return ROUGH + _shortest(_in_digits(value, 2))
    if not error > 0:
        return _shortest(_in_digits(value, min(max(FEW_DIGITS, 1 + _power(value)), MOST_DIGITS)))
    decimals, power = decimals_of(error), _power(max(abs(value), error))
    if SMALLEST <= power <= LARGEST:
        return fixed(value, min(decimals, MOST_DECIMALS))
    return _scientific(value, power, max(decimals + power, 1))


def spread(error: float) -> str:
    """An error by itself, to two digits.

    >>> spread(0.01), spread(123.0), spread(4.56e-7), spread(0.0), spread(float("inf"))
    ('0.010', '120', '4.6e-7', '0', 'unknown')
    """
    return _in_digits(error, 2)


def plain(value: float, digits: int = 2) -> str:
    """A number in a sentence or in a column of its own: to so many digits, in groups of three.

    >>> plain(0.01234), plain(1234567.0), plain(0.00000123), plain(float("nan"))
    ('0.012', '1,200,000', '1.2e-6', 'unknown')
    """
    return _in_digits(value, digits, ",")


def neat(value: float, digits: int = 3) -> str:
    """A number that was set, not found: to so many digits at most.

    >>> neat(1.0), neat(0.0625), neat(-0.5), neat(2500.0)
    ('1', '0.0625', '-0.5', '2,500')
    """
    return _shortest(plain(value, digits))


def share(value: float) -> str:
    """A fraction as a percentage, to two digits.

    >>> share(0.123), share(0.0004), share(2.5)
    ('12%', '0.04%', '250%')
    """
    return f"{neat(100 * value, 2)}%" if isfinite(value) else UNKNOWN


def decimals_of(error: float) -> int:
    """Places after the point that show two digits of an error; below zero where they stand before it."""
    return 1 - _power(error, 2)


def _last_power(error: float) -> int:
    """That of the last digit worth telling: an error moves it by three at most."""
    mantissa, power = f"{error:.1e}".split("e")
    return int(power) + (float(mantissa) > 3)


def fixed(value: float, decimals: int) -> str:
    """With so many places after the point.

    >>> fixed(12345.6, -1), fixed(-0.001, 2), fixed(2.0, 1), fixed(float("nan"), 2)
    ('12350', '0.00', '2.0', 'unknown')
    """
    return _fixed(value, decimals) if isfinite(value) else UNKNOWN


def _in_digits(value: float, digits: int, groups: str = "") -> str:
    if not isfinite(value):
        return UNKNOWN
    power = _power(value, digits)
    if SMALLEST <= power <= LARGEST:
        return _fixed(value, digits - 1 - power, groups) if value else "0"
    return _scientific(value, power, digits - 1)


def _power(value: float, digits: int = MOST_DIGITS) -> int:
    """That of ten in the first of so many digits, once they are rounded."""
    return int(f"{value:.{digits - 1}e}".split("e")[1])


def _fixed(value: float, decimals: int, groups: str = "") -> str:
    return _without_minus_zero(f"{round(value, decimals) if decimals < 0 else value:{groups}.{max(decimals, 0)}f}")


def _scientific(value: float, power: int, places: int) -> str:
    """A multiple of a power of ten."""
    # As a float the power itself may be too large or too small.
    return _without_minus_zero(f"{Decimal(value).scaleb(-power):.{min(places, MOST_DIGITS - 1)}f}") + f"e{power}"


def _without_minus_zero(text: str) -> str:
    return text if any(digit in text for digit in "123456789") else text.removeprefix("-")


def _shortest(text: str) -> str:
    """Without zeros that end a number."""
    number, e, power = text.partition("e")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + e + power
