"""Small tables at once: draws about a Gaussian in balance, with weights; see `weighing`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tallbayes.errors import MethodError, explain
from tallbayes.methods.anchored import Anchored
from tallbayes.methods.method import Method


def weighted_first(method: Any) -> tuple[Weighted | None, Any]:
    """What is tried first, and what answers otherwise; None for the usual of both."""
    if method is None:
        return Weighted(), None
    return (method, method.otherwise) if isinstance(method, Weighted) else (None, method)


@dataclass(frozen=True)
class Weighted:
    """Draws from Student's t about a Gaussian in balance, each with its weight; the Gaussian's own part is exact.

    It reads all rows for every draw, so it is for tables of up to some ten thousand rows; families in memory need no
    compiler. Where weights do not behave, or would take too many draws, `otherwise` goes on in its place, and a note
    says so. With `unbiased` the answer is a mean of independent replicates without any bias, each of a pair of chains
    that meet; they take several times as many draws.

    >>> method = Weighted(degrees_of_freedom=10.0)
    """

    degrees_of_freedom: float | None = None
    unbiased: bool = False
    otherwise: Method = field(default_factory=Anchored)

    @property
    def in_brief(self) -> str:
        """What of it was used."""
        given = "" if self.degrees_of_freedom is None else f"degrees_of_freedom={self.degrees_of_freedom:g}"
        return f"Weighted({', '.join(each for each in (given, 'unbiased=True' if self.unbiased else '') if each)})"

    def __post_init__(self) -> None:
        freedom = self.degrees_of_freedom
        if freedom is not None and (
            isinstance(freedom, bool) or not isinstance(freedom, int | float) or not 2 < freedom <= 1e6
        ):
            raise MethodError(explain("degrees_of_freedom above 2", repr(freedom), "None to have it chosen"))
        if not isinstance(self.unbiased, bool):
            raise MethodError(explain("unbiased True or False", repr(self.unbiased), "False"))
        if isinstance(self.otherwise, Weighted | type):
            raise MethodError(explain("otherwise another method", repr(self.otherwise), "tb.Anchored()"))
