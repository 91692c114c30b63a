"""Outlook: what a run is likely to want beyond what it wants now, for workers that are idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Ahead(NamedTuple):
    """Blocks by level of the whole run: what will be wanted for sure, and what is likely to be, which is more.

    Of a level beyond those that are sure to come, the first look alone may be likely, which is a zero here.
    """

    sure: Sequence[float]
    likely: Sequence[float]


NOTHING = Ahead((), ())


class Outlook(Protocol):
    """It may learn from blocks in the order of their arrival, since no number depends on it."""

    def saw(self, level: int, result: Any) -> None:
        """A block has arrived."""
        ...

    def ahead(self) -> Ahead: ...
