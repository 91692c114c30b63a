"""Importance: rows that matter more are read more often.

The noise of a Taylor remainder grows with a row's leverage q_i = |W^T x_i|^2 like q_i^(3/2): a move of sqrt(q_i) in its
predictor, squared, times the length of W^T x_i. Where a few rows carry most of it, as those of a rare category do, a
uniform batch almost never sees them and, when it does, overshoots. So row i stands c_i times in a shuffled list,

    c_i = 1 + floor(N q_i^(3/2) / sum_k q_k^(3/2)),   weight 1 / c_i each time

and batches are runs of that list. The sum stays unbiased for any c_i >= 1, and a batch as long as the list is the sum
over all rows. With several linear predictors q_i is the sum over them; for a model without any the gradient at the mode
takes the place of x_i. A row's weight multiplies its share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.compilation import compiled
from tallbayes.model import Target
from tallbayes.moments import Floats
from tallbayes.table import SHUFFLE_SEED, Table, capacity_for
from tallbayes.weights import weights_in

PART_ROWS = 2**14
WORTHWHILE = 16.0


@dataclass(frozen=True, eq=False)
class Listing:
    """Which row stands at each place of the list, and the weight of that place; padded like a table."""

    rows: np.ndarray
    weights: np.ndarray
    length: int


def list_rows(target: Target, table: Table, anchor: Anchor) -> Listing | None:
    """The list, or None where reading all rows equally often is about as good."""
    share = leverages(target, table, anchor) ** 1.5
    weights = weights_in(table.rows)
    if weights is not None:
        share *= np.asarray(weights, np.float64)[: len(share)]
    total = share.sum()
    if not np.isfinite(total) or total <= 0 or len(share) * np.sum(share**2) < WORTHWHILE * total**2:
        return None
    copies = 1 + np.floor(len(share) * share / total).astype(np.int64)
    order = np.repeat(np.arange(len(share), dtype=np.int32), copies)
    np.random.default_rng(SHUFFLE_SEED).shuffle(order)
    rows = np.zeros(capacity_for(len(order)), np.int32)
    rows[: len(order)] = order
    weights = (1 / copies)[rows].astype(np.float32)
    return Listing(rows, weights, len(order))


def leverages(target: Target, table: Table, anchor: Anchor) -> Floats:
    """q_i of every row: one pass."""
    part_rows = min(PART_ROWS, table.capacity)
    with jax.enable_x64(True):
        mode, whitening = (np.asarray(part, np.float32) for part in (anchor.mode, anchor.whitening))
        parts = [
            np.asarray(compiled(_part)((target, part_rows), table.rows, np.int32(start), mode, whitening), np.float64)
            for start in range(0, table.num_rows, part_rows)
        ]
    return np.concatenate(parts)[: table.num_rows]


def _part(static: tuple[Target, int], rows: Any, start: jax.Array, mode: jax.Array, whitening: jax.Array) -> Any:
    target, part_rows = static
    part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, part_rows), rows)
    if target.predictor is not None:
        directions = target.layout.directions(part["x"].astype(np.float32))
    else:
        gradient = jax.vmap(partial(jax.grad(target.log_likelihood.call), mode))(part).astype(np.float32)
        weights = weights_in(part)
        if weights is not None:
            gradient /= jnp.where(weights > 0, weights, 1)[:, None].astype(np.float32)
        directions = [gradient]
    moved = [each * whitening if whitening.ndim == 1 else each @ whitening for each in directions]
    return sum((each**2).sum(axis=1) for each in moved)
