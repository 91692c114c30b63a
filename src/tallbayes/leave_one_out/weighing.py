"""Weighing: log posterior densities of draws about the anchor, by all rows or by some of them beside their expansion.

    log pi(m + v) = log pi(m) + G.v - v.H v / 2 + rho(v),   rho = sum_i rho_i,   rho_i = l_i less its second order at m

G and H of all rows are known with the anchor. Where rows are too many for every draw, rho is that of the rows that
matter most and, scaled up, of a random sample of the others: of third order, so that its noise is next to nothing. The
sample comes in two halves, and what differs between them is a part of the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.balance import ascend_by_quadrature
from tallbayes.anchor.expansion import Expansion, expand
from tallbayes.anchor.importance import in_float64
from tallbayes.anchor.mode import expanded_there
from tallbayes.anchor.recentring import anchor_on_average
from tallbayes.anchor.screening import log_densities
from tallbayes.anchor.sums import can_average, density_terms
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.leave_one_out.rows import ChosenRows
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax
from tallbayes.rows.table import TILE_ROWS, Table
from tallbayes.watch import count_rows
from tallbayes.weighing.proposal import Proposal

# Densities of rows at draws: as many as take some seconds.
MOST_DENSITIES = 2e8
SAMPLE_ROWS = 2**15
# One more pass costs less than it saves.
MOST_BALANCED_ROWS = 2**17


def balanced(target: Target, table: Table, anchor: Anchor) -> Anchor:
    """The Gaussian that is right on average, where the anchor is the mode's and that is worth a few passes."""
    anchor = expanded_there(target, table, anchor)
    if anchor.recentred or table.num_rows > MOST_BALANCED_ROWS or not can_average(target):
        return anchor
    if isinstance(anchor.precision, Arrowhead) or anchor.is_diagonal or anchor.is_large:
        return anchor
    found, precision, _ = ascend_by_quadrature(target, table, anchor)
    return anchor if found is None else anchor_on_average(found, precision, anchor)


@dataclass(frozen=True, eq=False)
class AllRows:
    """log pi by every row; of groups, a draw may take so much `work`, and draws be from a proposal that is `bent`."""

    target: Target
    table: Table
    anchor: Anchor
    work: int = 0
    most: float = MOST_DENSITIES
    bent: Proposal | None = None

    in_words = "all rows"

    @property
    def rows_read(self) -> int:
        return self.work or self.table.num_rows

    def log_posteriors(self, moves: Floats) -> list[Floats]:
        """log pi at m + v, up to a constant."""
        count_rows(self.table.num_rows * len(moves))
        return [log_densities(self.target, self.table, self.anchor.mode + moves, None)]


@dataclass(frozen=True, eq=False)
class SomeRows:
    """log pi by the rows that matter most, `heavy`, and by a sample of the others; once by all of the sample, and
    twice by a half."""

    target: Target
    table: Table
    anchor: Anchor
    heavy: ChosenRows
    most: float = MOST_DENSITIES

    bent: ClassVar[None] = None

    @property
    def in_words(self) -> str:
        return f"{len(self.heavy.places) + self.rows_read:,} rows beside the expansion of all"

    @property
    def rows_read(self) -> int:
        return sum(stop - start for half in self._halves for start, stop in half)

    @cached_property
    def _halves(self) -> list[list[tuple[int, int]]]:
        """Tiles of the table's head where it is shuffled, and at equal distances where it is not."""
        tiles = SAMPLE_ROWS // TILE_ROWS
        step = 1 if self.table.shuffled else self.table.num_rows // TILE_ROWS // tiles
        starts = [TILE_ROWS * step * k for k in range(tiles)]
        whole = [(start, start + TILE_ROWS) for start in starts]
        return [whole[::2], whole[1::2]]

    @cached_property
    def _near(self) -> list[Expansion]:
        return [expand(self.target, self.table, self.anchor.mode, ranges=half) for half in self._halves]

    def log_posteriors(self, moves: Floats) -> list[Floats]:
        """By the whole sample, and by each half alone."""
        whole = self.anchor.precision if self.anchor.hessian is None else self.anchor.hessian
        base = moves @ self.anchor.gradient - _square(whole, moves) / 2
        # The prior's own part is in both the density and the expansion of a sample, and is not scaled.
        heavy, inside = self._heavy(moves)
        rests = []
        for half, near, own in zip(self._halves, self._near, inside, strict=True):
            found = log_densities(self.target, self.table, self.anchor.mode + moves, half)
            count_rows(len(moves) * sum(stop - start for start, stop in half))
            beyond = found - near.value - moves @ near.gradient + _square(near.hessian, moves) / 2
            scale = self.table.num_rows / sum(stop - start for start, stop in half)
            rests.append(beyond - scale * own)
        return [base + heavy + each for each in (sum(rests) / 2, *rests)]

    def _heavy(self, moves: Floats) -> tuple[Floats, list[Floats]]:
        """rho of the rows that matter, and of those that stand in each half."""
        rest = remainders(self.target, self.heavy.rows, self.anchor.mode, moves)
        inside = [
            np.array([any(start <= place < stop for start, stop in half) for place in self.heavy.places], bool)
            for half in self._halves
        ]
        return rest.sum(axis=0), [rest[mask].sum(axis=0) for mask in inside]


def _square(matrix: Any, moves: Floats) -> Floats:
    if isinstance(matrix, Arrowhead):
        return np.sum(moves * matrix.times(moves), axis=1)
    return np.sum(moves * (moves * matrix if matrix.ndim == 1 else moves @ matrix), axis=1)


def remainders(target: Target, rows: Any, mode: Floats, moves: Floats) -> Floats:
    """rho_i of some rows at draws, (rows, draws)."""
    with jax.enable_x64(True):
        return np.asarray(compiled(_remainders)(target, rows, mode, moves))


def _remainders(target: Target, rows: Any, mode: jax.Array, moves: jax.Array) -> jax.Array:
    rows, layout = in_float64(rows), target.layout
    assert target.predictor is not None
    value = target.predictor.call
    eta, steps = layout.predict(rows, mode), layout.moved(rows, moves.T)

    def one(eta: jax.Array, step: jax.Array, row: Any) -> jax.Array:
        here, slope, bend = density_terms(target, eta, row)

        def beyond(move: jax.Array) -> jax.Array:
            if layout.is_scalar:
                return value(eta + move[0], row) - here - slope * move[0] - bend * move[0] ** 2 / 2
            return value(eta + move, row) - here - slope @ move - move @ bend @ move / 2

        return jax.vmap(beyond)(step.T)

    return jax.vmap(one, (0, 1, 0))(eta, steps, rows)


def weigher(target: Target, table: Table, anchor: Anchor, heavy: ChosenRows, draws: int) -> AllRows | SomeRows:
    """By all rows where so many draws allow it."""
    exact = table.num_rows * draws <= MOST_DENSITIES or table.num_rows <= 2 * SAMPLE_ROWS
    if exact or target.predictor is None:
        return AllRows(target, table, anchor)
    return SomeRows(target, table, anchor, heavy)
