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

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.compilation import compiled
from tallbayes.executors import capacity_of, in_order
from tallbayes.expansion import Bound
from tallbayes.model import Target
from tallbayes.moments import Floats
from tallbayes.roles import Executor
from tallbayes.stored import Stored
from tallbayes.sums import CHUNK_ROWS
from tallbayes.table import SHUFFLE_SEED, Table, capacity_for
from tallbayes.weights import weights_in
from tallbayes.writing import write_table

PART_ROWS = 2**14
WORTHWHILE = 16.0


@dataclass(frozen=True, eq=False)
class Listing:
    """Which row stands at each place of the list, and the weight of that place; padded like a table.

    `stored` is the table on disk that the list is mapped from, if it is.
    """

    rows: np.ndarray
    weights: np.ndarray
    length: int
    stored: Stored | None = None


def list_rows(
    target: Target, table: Table, anchor: Anchor, executor: Executor | None = None, folder: Path | None = None
) -> Listing | None:
    """The list, or None where reading all rows equally often is about as good: one pass.

    With a `folder` the list is made there, in bounded memory and with a second pass.
    """
    bound, shape = Bound(target, table), _shape_of(anchor)
    if folder is None:
        share = list(_over_chunks(executor, shares, bound, shape))
        mean = _worthwhile(table, [_sums(part) for part in share])
        return None if mean is None else _shuffled(_parts(iter(share), mean))
    mean = _worthwhile(table, _over_chunks(executor, share_sums, bound, shape))
    if mean is None:
        return None
    return mapped_listing(write_table(folder / "listing", _parts(_over_chunks(executor, shares, bound, shape), mean)))


def _worthwhile(table: Table, sums: Iterable[tuple[float, float]]) -> float | None:
    """The mean share of a row; None where the shares are too even for a list to be worth it."""
    share, square = (sum(each) for each in zip(*sums, strict=True))
    even = not np.isfinite(share) or share <= 0 or table.num_rows * square < WORTHWHILE * share**2
    return None if even else share / table.num_rows


def _shuffled(parts: Iterator[dict[str, np.ndarray]]) -> Listing:
    rows, weights = (np.concatenate(each) for each in zip(*(part.values() for part in parts), strict=True))
    places = np.zeros(capacity_for(len(rows)), np.int32)
    places[: len(rows)] = np.random.default_rng(SHUFFLE_SEED).permutation(len(rows))
    return Listing(rows[places], weights[places], len(rows))


def mapped_listing(stored: Stored) -> Listing:
    """A list as it lies on disk."""
    arrays = stored.arrays()
    return Listing(arrays["row"], arrays["weight"], stored.num_rows, stored)


def _parts(shares_by_chunk: Iterator[Floats], mean: float) -> Iterator[dict[str, np.ndarray]]:
    """Rows of a chunk as often as they are to be read, each with its weight."""
    first = 0
    for share in shares_by_chunk:
        copies = 1 + np.floor(share / mean).astype(np.int64)
        rows = np.repeat(np.arange(first, first + len(share), dtype=np.int32), copies)
        yield {"row": rows, "weight": np.repeat((1 / copies).astype(np.float32), copies)}
        first += len(share)


def leverages(target: Target, table: Table, anchor: Anchor) -> Floats:
    """q_i of every row: one pass."""
    parts = [_leverages(Bound(target, table), *_shape_of(anchor), *chunk) for chunk in table.chunks()]
    return np.concatenate(parts)


def share_sums(bound: Bound, mode: np.ndarray, whitening: np.ndarray, start: int, stop: int) -> tuple[float, float]:
    """sum q^(3/2) and sum q^3, with weights, of rows start..stop-1."""
    return _sums(shares(bound, mode, whitening, start, stop))


def _sums(share: Floats) -> tuple[float, float]:
    return float(share.sum()), float(np.sum(share**2))


def shares(bound: Bound, mode: np.ndarray, whitening: np.ndarray, start: int, stop: int) -> Floats:
    """q_i^(3/2) times the weight of rows start..stop-1."""
    share = _leverages(bound, mode, whitening, start, stop) ** 1.5
    weights = weights_in(bound.table.rows)
    if weights is not None:
        share *= np.asarray(weights)[start:stop].astype(np.float64)
    return share


def _over_chunks(
    executor: Executor | None, task: Callable[..., Any], bound: Bound, shape: tuple[np.ndarray, np.ndarray]
) -> Iterator[Any]:
    tasks = ((bound, *shape, start, stop) for start, stop in bound.table.chunks())
    if executor is None or bound.table.num_rows <= CHUNK_ROWS:
        return (task(*each) for each in tasks)
    return in_order(executor, task, tasks, 4 * capacity_of(executor))


def _shape_of(anchor: Anchor) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(anchor.mode, np.float32), np.asarray(anchor.whitening, np.float32)


def _leverages(bound: Bound, mode: np.ndarray, whitening: np.ndarray, start: int, stop: int) -> Floats:
    part_rows = min(PART_ROWS, bound.table.capacity)
    static = bound.target, part_rows
    with jax.enable_x64(True):
        parts = [
            np.asarray(compiled(_part)(static, bound.table.rows, np.int32(first), mode, whitening), np.float64)
            for first in range(start, stop, part_rows)
        ]
    return np.concatenate(parts)[: stop - start]


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
