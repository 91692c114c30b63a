"""Balancing: whether paths run about the mode, or about the Gaussian that is right on average.

About a balanced anchor paths have less to find, and what they find has a control of second order; but it takes two or
more passes over the rows. What sampling about the mode would take is foreseen from the rows' remainders at a few
thousand of them,

    rows = 64 S / tolerance^2,   S = N sum_i s_i^2 / d,   s_i as in `anchor.importance`

S being the variance, by parameter and in whitened units, that a batch of one row leaves in the drift. Measured for
logistic regressions of 10^3 to 10^6 rows by 20, it is right to a factor of two (docs/decisions/031).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.chunks import Bound
from tallbayes.anchor.importance import sizes
from tallbayes.anchor.mode import settle
from tallbayes.anchor.recentring import Recentred, put_in_balance
from tallbayes.anchor.sums import can_average
from tallbayes.errors import PosteriorError
from tallbayes.model.model import Target
from tallbayes.rows.table import TILE_ROWS, Table
from tallbayes.workers.executors import Executor

MODE, BALANCED = "mode", "balanced"
SAMPLE_ROWS, FEWEST_ROWS = 2**12, 2**10
# Rows for a mean to so many tolerances, by a variance of 1.
ROWS_A_VARIANCE = 64.0
# Beyond so many epochs of sampling the passes are repaid, and more than once; and with a control a run reads half as
# many rows as that at the least, 64 paths a level and four rows a step.
REPAID, LEAST_ROWS = 2.0, 30_000
LIKELY_ROWS = 1_000
# S in units of d^2 / N: 3 to 7 where it was measured, and far more where events are rare.
LARGE_VARIANCE = 8.0


@dataclass(frozen=True)
class Wish:
    """Which anchor is asked for, None to have it decided; and the finest tolerance, in posterior sds."""

    anchor: str | None
    tolerance: float = 0.01

    @classmethod
    def of(cls, anchor: str | None, kind: str, size: Any) -> Wish:
        """A tolerance in other units than posterior sds is taken to be a hundredth of one."""
        if kind != "tolerance":
            return cls(anchor)
        return cls(anchor, float(min(size.values()) if isinstance(size, Mapping) else size))


def balance(
    target: Target, table: Table, anchor: Anchor, wish: Wish, executor: Executor | None, others: bool
) -> Recentred:
    """The anchor asked for, or that which is foreseen to be cheaper; `others` where there are several modes.

    One that was found roughly is settled where it stays at the mode.
    """
    found = _balanced_or_not(target, table, anchor, wish, executor, others)
    if found.anchor.recentred or not may_move(target, table.num_rows, wish):
        return found
    settled = settle(target, table, found.anchor, executor)
    read = round((settled.passes - found.anchor.passes) * table.num_rows)
    return replace(found, anchor=replace(settled, reason=found.anchor.reason), evaluations=found.evaluations + read)


def may_move(target: Target, num_rows: int, wish: Wish) -> bool:
    """Whether the mode need be found but roughly, since it is likely to be left again; only where it is the one."""
    if not (target.log_concave and can_average(target)):
        return False
    return wish.anchor == BALANCED or (wish.anchor is None and likely_balanced(target, num_rows))


def _balanced_or_not(
    target: Target, table: Table, anchor: Anchor, wish: Wish, executor: Executor | None, others: bool
) -> Recentred:
    if wish.anchor == MODE:
        return _stays(anchor, "asked for")
    if wish.anchor == BALANCED:
        return _balanced(target, table, anchor, executor, "asked for")
    if anchor.is_large:
        return _stays(anchor, f"{len(anchor.mode):,} parameters are too many for averages by quadrature")
    if anchor.is_diagonal or not can_average(target):
        return _stays(anchor, "no linear predictor, of which a balanced one is made by quadrature")
    if others:
        return _stays(anchor, "there are several modes")
    foreseen, read = foresee_rows(target, table, anchor, wish.tolerance)
    epochs = foreseen / table.num_rows
    if not (epochs > REPAID and foreseen > LEAST_ROWS):
        found = _stays(anchor, f"sampling about it is foreseen to take {epochs:.2g} epochs, less than balance would")
    else:
        why = f"sampling about the mode is foreseen to take {epochs:.2g} epochs"
        found = _balanced(target, table, anchor, executor, why)
        if not found.anchor.knows_averages:
            # Without a control it saves little, and in a tail it may cost.
            kept = _stays(anchor, f"{why}, but averages are not known well enough for a control")
            found = replace(kept, evaluations=found.evaluations)
    return replace(found, evaluations=found.evaluations + read)


def likely_balanced(target: Target, num_rows: int) -> bool:
    """Before there is an anchor: S is about 4 d^2 / N where columns are of one size, and the tolerance a hundredth."""
    return can_average(target) and num_rows < LIKELY_ROWS * target.dimension


def likely_controlled(target: Target, num_rows: int, wish: Wish) -> bool:
    """Whether paths will run about a balanced anchor: what is compiled ahead is compiled for one or the other."""
    if wish.anchor is not None:
        return wish.anchor == BALANCED
    foreseen = ROWS_A_VARIANCE * LARGE_VARIANCE * target.dimension**2 / num_rows / wish.tolerance**2
    return likely_balanced(target, num_rows) and foreseen > LEAST_ROWS


def foresee_rows(target: Target, table: Table, anchor: Anchor, tolerance: float) -> tuple[float, int]:
    """Row gradients of the paths about an anchor, and rows read to foresee them."""
    bound, ranges = Bound(target, table), _spread_out(table)
    found = np.concatenate([sizes(bound, anchor.mode, anchor.whitener, *each) for each in ranges])
    noise = table.num_rows**2 * float(np.mean(found**2)) / len(anchor.mode)
    return ROWS_A_VARIANCE * noise / tolerance**2, len(found)


def _spread_out(table: Table) -> list[tuple[int, int]]:
    """Ranges of rows all over the table, all of it where it is small."""
    if table.num_rows <= SAMPLE_ROWS:
        return [(0, table.num_rows)]
    count = min(SAMPLE_ROWS, max(FEWEST_ROWS, table.num_rows // 16)) // TILE_ROWS
    firsts = np.linspace(0, table.num_rows - TILE_ROWS, count).astype(int)
    return [(int(first), int(first) + TILE_ROWS) for first in firsts]


def _stays(anchor: Anchor, why: str) -> Recentred:
    return Recentred(replace(anchor, reason=why), 0.0, 0)


def _balanced(target: Target, table: Table, anchor: Anchor, executor: Executor | None, why: str) -> Recentred:
    try:
        found = put_in_balance(target, table, anchor, executor)
    except (PosteriorError, np.linalg.LinAlgError):
        found = Recentred(anchor, 0.0, 0)
    if not found.anchor.recentred:
        return replace(found, anchor=replace(found.anchor, reason=f"{why}, but no Gaussian in balance was found"))
    return replace(found, anchor=replace(found.anchor, reason=why))
