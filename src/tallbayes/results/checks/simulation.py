"""Simulations: replicated responses, a batch of rows at a time and never all rows times all draws.

theta_k ~ posterior,   b_k ~ p(b | theta_k, rows),   y_ik ~ p(y | eta_i(theta_k, b_k)),   k = 1..K
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain, require_extra
from tallbayes.estimator.levels import Stream
from tallbayes.moments import Floats
from tallbayes.results.checks.batches import RowBatch, row_batches
from tallbayes.results.checks.own_responses import OwnDrawer
from tallbayes.results.checks.responses import ResponseDrawer
from tallbayes.results.draws.drawn import PosteriorDraws, draw
from tallbayes.results.fitted import family_of
from tallbayes.results.result import Result
from tallbayes.rows.atomic import replacing

MOST_NUMBERS, MOST_ROWS = 2**21, 2**15


@dataclass(frozen=True, eq=False)
class ReplicatedRows:
    """Responses (draws, rows) of a batch, their expectations given theta, and the rows."""

    y: Floats
    mean: Floats
    batch: RowBatch


@dataclass(frozen=True, eq=False)
class Simulation:
    """ReplicatedRows responses of rows, which iterates over arrays (draws, rows of a batch), in the units of the table.

    It can be gone through again, and says the same: a batch hangs on the seed and its number alone. A class is told by
    its place among the classes.
    """

    result: Result = field(repr=False)
    rows: Any = field(repr=False)
    draws: PosteriorDraws

    def __iter__(self) -> Iterator[Floats]:
        return (each.y for each in self.batches())

    def batches(self) -> Iterator[ReplicatedRows]:
        """With the rows and with expectations."""
        size = int(np.clip(MOST_NUMBERS // len(self.draws), 1, MOST_ROWS))
        if isinstance(self.drawer, OwnDrawer):
            for batch in self.drawer.batches(self.rows, size):
                yield ReplicatedRows(*self.drawer.replicated(batch), batch)
            return
        for number, batch in enumerate(row_batches(self.result, self.rows, size)):
            rng = np.random.default_rng(np.random.SeedSequence([self.draws.seed, int(Stream.RESPONSES), number]))
            eta = self.drawer.predictors(batch, rng)
            yield ReplicatedRows(self.drawer.responses(eta, batch, rng), self.drawer.means(eta, batch), batch)

    @cached_property
    def drawer(self) -> ResponseDrawer | OwnDrawer:
        if family_of(self.result) is None:
            return OwnDrawer.of(self.result, self.draws)
        return ResponseDrawer.of(self.result, self.draws, self.rows)

    def write(self, path: str | os.PathLike[str]) -> int:
        """Into a .csv, .parquet or .arrow file, one row a row, with its number and a column a draw; how many rows."""
        from tallbayes.rows.formats import WRITERS

        place = Path(path)
        if place.suffix not in WRITERS:
            raise InputError(explain(f"out ending in {' or '.join(WRITERS)}", repr(place.name), "replicated.parquet"))
        arrow = require_extra("pyarrow", "data", "files of responses")
        count, writer = 0, None
        with replacing(place) as partial:
            try:
                for each in self.batches():
                    columns = {"row": each.batch.numbers, **{f"draw_{k}": y for k, y in enumerate(each.y)}}
                    table = arrow.table(columns)
                    writer = writer or WRITERS[place.suffix](partial, table.schema)
                    writer.write_table(table)
                    count += len(each.batch)
            finally:
                if writer is not None:
                    writer.close()
            if not count:
                raise DataError(explain("at least one row", "0 rows", "check the table"))
        return count


def simulate(result: Result, rows: Any = None, draws: int = 200, *, seed: int = 0, out: Any = None) -> Any:
    """See `Result.simulate`."""
    found = Simulation(result, rows, draw(result, draws, seed=seed))
    # What cannot be simulated is told at once.
    _ = found.drawer
    return found if out is None else found.write(out)
