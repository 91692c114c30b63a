"""Importance: rows that matter more are read more often.

A variance measured on what was sampled cannot see what was not. So every row is looked at once, at points of the
Gaussian, for what is left of its gradient beyond its linear part, in whitened units,

    r_i(u) = W^T [grad_i(theta_0 + W u) - grad_i(theta_0) - Hess_i W u],   s_i = (E |r_i(u)|^2)^(1/2)

Where a few rows hold most of it, as those of a rare category, of a rare event or of a large exposure do, a uniform
batch almost never sees them and, when it does, overshoots. So row i stands c_i times in a shuffled list,

    c_i = 1 + floor(N s_i / sum_k s_k),   weight 1 / c_i each time

and batches are runs of that list. The sum stays unbiased for any c_i >= 1, no place of the list holds more than about
twice the mean share, and a batch as long as the list is the sum over all rows. The expectation is a mean over the same
few draws for all rows, in opposite pairs, some of them twice as wide. With one linear predictor it is

    s_i^2 = q_i E [l'(eta) - l'(eta_0) - l''(eta_0)(eta - eta_0)]^2,   q_i = |W^T x_i|^2 the leverage

with several q_i is a matrix, and a model without any is differentiated row by row: the sizes are the same. About an
anchor that knows the third derivatives of all rows r_i is what is left beyond those, from where rows are expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.chunks import Bound
from tallbayes.anchor.sums import density_terms, third_of_density
from tallbayes.gaussian.arrowhead import Arrowhead, ArrowWhitening
from tallbayes.gaussian.whitening import Sketch, Whitening
from tallbayes.model.linear import Layout
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.listing import Listing, mapped_listing
from tallbayes.rows.table import CHUNK_ROWS, SHUFFLE_SEED, Table, capacity_for
from tallbayes.rows.writing import write_table
from tallbayes.watch import begin_pass, count_rows
from tallbayes.workers.executors import Executor, capacity_of, in_order

PART_ROWS = 2**12
# Of rows times parameters: whoever waits can leave between two parts, so none may take long.
PART_NUMBERS = 2**20
# Against a list, uniform batches would have so many times the variance, or their variance so heavy a tail.
WORTHWHILE, HEAVIEST = 8.0, 64.0
# Of hundreds of parameters a step costs as much as hundreds of rows in any order, and a row that overshoots does so by
# (N / n) times its leverage: there a list is worth it sooner.
LONG_FROM, WORTHWHILE_LONG, HEAVIEST_LONG = 256, 1.5, 4.0
# In posterior sds: what all remainders together cannot move is not worth a list.
NOTHING = 1e-5
PAIRS, WIDE_PAIRS = 6, 2
# Beyond, a row's remainder is weighed by the diagonal of H^-1: the same size but for correlations.
MOST_WHITENED = 128
# Of thousands of parameters the leverages are those of so many draws.
SKETCHED = 32
LARGEST = 1e30
# Rows times parameters of a model of one's own, each of whose rows is differentiated in all of them: beyond, a look at
# every row takes longer than paths do.
MOST_OWN = 2**29


def list_rows(
    target: Target, table: Table, anchor: Anchor, executor: Executor | None = None, folder: Path | None = None
) -> Listing | None:
    """The list by the sizes of rows; and where it is none, of rows on disk that lie in the order of their days, a list
    of each once: a run of it is of all days."""
    found = _list_by_size(target, table, anchor, executor, folder)
    if found is not None or table.stored is None or table.shuffled:
        return found
    rows = (np.arange(*chunk, dtype=np.int32) for chunk in table.chunks())
    parts = ({"row": each, "weight": np.ones(len(each), np.float32)} for each in rows)
    return _shuffled(parts) if folder is None else mapped_listing(write_table(folder / "listing", parts))


def _list_by_size(
    target: Target, table: Table, anchor: Anchor, executor: Executor | None, folder: Path | None
) -> Listing | None:
    """The list, or None where reading all rows equally often is about as good: one pass.

    With a `folder` the list is made there, in bounded memory and with a second pass.
    """
    if target.predictor is None and anchor.is_large and table.num_rows * len(anchor.mode) > MOST_OWN:
        return None
    bound, shape = Bound(target, table), _shape_of(anchor)
    if folder is None:
        found = list(_over_chunks(executor, sizes, bound, shape))
        mean = mean_size(table.num_rows, [sums_of_sizes(part) for part in found], is_long(anchor))
        if isinstance(anchor.precision, Arrowhead):
            return _spread_out(_parts(iter(found), np.inf if mean is None else mean), target.layout, table)
        return None if mean is None else _shuffled(_parts(iter(found), mean))
    mean = mean_size(table.num_rows, _over_chunks(executor, size_sums, bound, shape), is_long(anchor))
    if mean is None:
        return None
    return mapped_listing(write_table(folder / "listing", _parts(_over_chunks(executor, sizes, bound, shape), mean)))


def is_long(anchor: Anchor) -> bool:
    """Whether a step about it takes as long as reading many rows, so that lists are worth it sooner."""
    return len(anchor.mode) >= LONG_FROM and isinstance(anchor.precision, np.ndarray) and not anchor.is_diagonal


def mean_size(num_rows: int, sums: Iterable[tuple[float, float, float]], long: bool = False) -> float | None:
    """The mean size of a row; None where the sizes are too even for a list to be worth it."""
    total, square, fourth = (sum(each) for each in zip(*sums, strict=True))
    times, tail = (WORTHWHILE_LONG, HEAVIEST_LONG) if long else (WORTHWHILE, HEAVIEST)
    uneven = num_rows * square >= times * total**2 or num_rows * fourth >= tail * square**2
    return total / num_rows if total > NOTHING and uneven else None


def _shuffled(parts: Iterator[dict[str, np.ndarray]]) -> Listing:
    rows, weights = (np.concatenate(each) for each in zip(*(part.values() for part in parts), strict=True))
    places = np.zeros(capacity_for(len(rows)), np.int32)
    places[: len(rows)] = np.random.default_rng(SHUFFLE_SEED).permutation(len(rows))
    return Listing(rows[places], weights[places], len(rows))


def _spread_out(parts: Iterator[dict[str, np.ndarray]], layout: Layout, table: Table) -> Listing:
    """With the rows of every level at equal distances, so that any run of the list has as many of each as it can."""
    rows, weights = (np.concatenate(each) for each in zip(*(part.values() for part in parts), strict=True))
    assert layout.arms is not None
    level = np.asarray(table.rows["codes"])[rows, layout.arms.code]
    rng = np.random.default_rng(SHUFFLE_SEED)
    order = rng.permutation(len(rows))
    order = order[np.argsort(level[order], kind="stable")]
    _, firsts, counts = np.unique(level[order], return_index=True, return_counts=True)
    rank = np.arange(len(rows)) - np.repeat(firsts, counts)
    when = (rank + np.repeat(rng.random(len(counts)), counts)) / np.repeat(counts, counts)
    places = np.zeros(capacity_for(len(rows)), np.int64)
    places[: len(rows)] = order[np.argsort(when, kind="stable")]
    return Listing(rows[places], weights[places], len(rows))


def _parts(sizes_by_chunk: Iterator[Floats], mean: float) -> Iterator[dict[str, np.ndarray]]:
    """Rows of a chunk as often as they are to be read, each with its weight."""
    first = 0
    for size in sizes_by_chunk:
        copies = 1 + np.floor(size / mean).astype(np.int64)
        rows = np.repeat(np.arange(first, first + len(size), dtype=np.int32), copies)
        yield {"row": rows, "weight": np.repeat((1 / copies).astype(np.float32), copies)}
        first += len(size)


def row_sizes(target: Target, table: Table, anchor: Anchor) -> Floats:
    """s_i of every row: one pass."""
    shape, step = _shape_of(anchor), anchor.step if anchor.third is not None else None
    return np.concatenate([sizes(Bound(target, table), *shape, *chunk, step) for chunk in table.chunks()])


def size_sums(
    bound: Bound, mode: np.ndarray, whitening: Whitening | Sketch, start: int, stop: int
) -> tuple[float, float, float]:
    """sum s, sum s^2 and sum s^4 of rows start..stop-1."""
    return sums_of_sizes(sizes(bound, mode, whitening, start, stop))


def sums_of_sizes(size: Floats) -> tuple[float, float, float]:
    """sum s, sum s^2 and sum s^4."""
    return float(size.sum()), float(np.sum(size**2)), float(np.sum(size**4))


def sizes(
    bound: Bound,
    mode: np.ndarray,
    whitening: Whitening | Sketch,
    start: int,
    stop: int,
    step: np.ndarray | None = None,
) -> Floats:
    """s_i of rows start..stop-1; a size beyond all bounds is a very large one. With a `step` to the mode from where
    rows are expanded, beyond their third derivatives there."""
    part_rows = _part_rows(bound.table, _numbers_of_row(bound.target, whitening, len(mode)))
    static = bound.target, part_rows
    draws = np.zeros(0) if isinstance(whitening, Sketch) else _draws(len(mode))
    parts = []
    with jax.enable_x64(True):
        for first in range(start, stop, part_rows):
            arguments = bound.table.rows, np.int32(first), mode, whitening, draws, step
            parts.append(np.asarray(compiled(_part)(static, *arguments), np.float64))
            count_rows(min(part_rows, stop - first))
    found = np.concatenate(parts)[: stop - start]
    return np.minimum(np.nan_to_num(found, nan=LARGEST, posinf=LARGEST), LARGEST)


def _numbers_of_row(target: Target, whitening: Whitening | Sketch, dimension: int) -> int:
    if isinstance(whitening, Sketch) and target.predictor is not None:
        return (len(whitening.draws) + len(whitening.moves)) * target.layout.size
    return len(whitening.root) if isinstance(whitening, ArrowWhitening) else dimension


def _part_rows(table: Table, numbers: int) -> int:
    """A power of two, so that parts fill a table exactly; so many numbers are computed of a row."""
    most = max(1, PART_NUMBERS // numbers)
    return min(PART_ROWS, table.capacity, 1 << (most.bit_length() - 1))


def _draws(dimension: int) -> Floats:
    """Whitened points in opposite pairs, on axes turned at random, the last ones twice as wide."""
    rng, pairs = np.random.default_rng(0), PAIRS + WIDE_PAIRS
    turns = -(-pairs // dimension)
    axes = [np.linalg.qr(rng.standard_normal((dimension, min(dimension, pairs))))[0].T for _ in range(turns)]
    half = np.sqrt(dimension) * np.concatenate(axes)[:pairs]
    half[PAIRS:] *= 2
    return np.concatenate([half, -half])


def _over_chunks(
    executor: Executor | None, task: Callable[..., Any], bound: Bound, shape: tuple[np.ndarray, Whitening | Sketch]
) -> Iterator[Any]:
    begin_pass(bound.table.num_rows)
    tasks = ((bound, *shape, start, stop) for start, stop in bound.table.chunks())
    if executor is None or bound.table.num_rows <= CHUNK_ROWS:
        return (task(*each) for each in tasks)
    return in_order(executor, task, tasks, 4 * capacity_of(executor))


def _shape_of(anchor: Anchor) -> tuple[np.ndarray, Whitening | Sketch]:
    mode = np.asarray(anchor.mode, np.float64)
    if not anchor.is_large:
        return mode, anchor.whitener
    draws = np.random.default_rng(1).standard_normal((SKETCHED, len(mode)))
    return mode, Sketch(anchor.displacements(draws), anchor.displacements(_draws(len(mode))), anchor.sd**2)


def _part(
    static: tuple[Target, int],
    rows: Any,
    start: jax.Array,
    mode: jax.Array,
    whitening: Any,
    draws: jax.Array,
    step: jax.Array | None,
) -> jax.Array:
    """The sizes of a part of the rows."""
    target, part_rows = static
    part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, part_rows), rows)
    if target.predictor is None:
        return _own_sizes(target, part, mode, whitening, draws)
    part = in_float64(part)
    layout = target.layout
    along = whitening.moves if isinstance(whitening, Sketch) else whitening.move(draws)
    spread = layout.spread(part, whitening)
    if step is not None:
        moves, eta = layout.moved(part, (along + step).T), layout.predict(part, mode - step)
        return _scalar_sizes(target, part, eta, spread, moves, beyond_third=True)
    moves, eta = layout.moved(part, along.T), layout.predict(part, mode)
    return (_scalar_sizes if layout.is_scalar else _vector_sizes)(target, part, eta, spread, moves)


def _scalar_sizes(
    target: Target, rows: Any, eta: jax.Array, spread: jax.Array, moves: jax.Array, beyond_third: bool = False
) -> jax.Array:
    """q rho^2, rho the remainder in the predictor, mean over draws."""
    assert target.predictor is not None
    slope_at = jax.vmap(jax.grad(target.predictor.call))
    _, slope, bend = jax.vmap(partial(density_terms, target))(eta, rows)

    third = jax.vmap(partial(third_of_density, target))(eta, rows) if beyond_third else jnp.zeros(())

    def square(move: jax.Array) -> jax.Array:
        rest = slope_at(eta + move, rows) - slope - bend * move
        return (rest - third * move**2 / 2 if beyond_third else rest) ** 2

    return jnp.sqrt(spread[:, 0, 0] * jnp.mean(jax.lax.map(square, moves[0].T), axis=0))


def _vector_sizes(target: Target, rows: Any, eta: jax.Array, spread: jax.Array, moves: jax.Array) -> jax.Array:
    """rho' (A H^-1 A') rho, rho the remainder in the predictors, mean over draws."""
    assert target.predictor is not None
    slope_at = jax.vmap(jax.grad(target.predictor.call))
    _, slope, bend = jax.vmap(partial(density_terms, target))(eta, rows)

    def square(move: jax.Array) -> jax.Array:
        rest = slope_at(eta + move, rows) - slope - jnp.einsum("nab,nb->na", bend, move)
        return jnp.einsum("na,nab,nb->n", rest, spread, rest)

    return jnp.sqrt(jnp.mean(jax.lax.map(square, moves.transpose(2, 1, 0)), axis=0))


def _own_sizes(target: Target, rows: Any, mode: jax.Array, whitening: Any, draws: jax.Array) -> jax.Array:
    """|W' r| of every row's own gradient, mean over draws."""
    rows = in_float64(rows)
    moves = whitening.moves if isinstance(whitening, Sketch) else whitening.move(draws)
    gradient = jax.grad(target.log_likelihood.call)

    def square(move: jax.Array) -> jax.Array:
        def rest(row: Any) -> jax.Array:
            here, bend = jax.jvp(lambda theta: gradient(theta, row), (mode,), (move,))
            return gradient(mode + move, row) - here - bend

        left = jax.vmap(rest)(rows)
        if len(mode) <= MOST_WHITENED and not isinstance(whitening, Sketch):
            return jnp.sum(whitening.pull_back(left) ** 2, axis=1)
        return left**2 @ whitening.variances

    return jnp.sqrt(jnp.mean(jax.lax.map(square, moves), axis=0))


def in_float64(rows: Any) -> Any:
    """Numbers as they are summed, whatever the table holds them in."""
    return jax.tree.map(
        lambda leaf: leaf.astype(np.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, rows
    )
