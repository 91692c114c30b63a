"""Lines: the blocks of one level, wanted, under way and handed over."""

from __future__ import annotations

from collections import OrderedDict, deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

REMEMBERED = 31


@dataclass(frozen=True)
class Issue:
    """One copy of a block under way: what it costs beside reading it from a ledger, and on which journey since when."""

    level: int
    index: int
    price: int
    journey: int
    company: int
    since: float


@dataclass(eq=False)
class Line:
    """The blocks of one level: wanted up to `end`, issued up to `issued`, handed over up to `handed`.

    `awaited` are those under way, oldest first, with when their first copy should have begun at the latest; `took` the
    seconds of the last to arrive, and `usual` their median; `kept` those beyond a gap that had arrived before a rest.
    `known_ahead` where blocks beyond the end were there at once: somebody has kept them.
    """

    handed: int
    issued: int
    end: int
    arrived: dict[int, tuple[Future[Any], int]] = field(default_factory=dict)
    awaited: OrderedDict[int, float] = field(default_factory=OrderedDict)
    took: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    usual: float = np.inf
    known_ahead: bool = False
    kept: set[int] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        return self.handed >= self.end

    def next_blocks(self, number: int) -> range:
        """The next that are to be issued: so many, or up to one that is kept from before."""
        first = self.issued
        self.issued = min((index for index in self.kept if first < index < first + number), default=first + number)
        blocks = range(first, self.issued)
        self.skip()
        return blocks

    def skip(self) -> None:
        """Go on to a block that is not kept from before."""
        while self.issued in self.kept:
            self.kept.remove(self.issued)
            self.issued += 1
