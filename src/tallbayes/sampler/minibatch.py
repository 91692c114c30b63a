"""Minibatches: n row indices tau out of N, independent over steps. The only place that knows their law.

Every law here is uniform over rows, so (N/n) sum over tau is unbiased for the sum over all rows. They differ in
what else can be done with a batch: only entries that are independent of one another may be picked apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallbayes.errors import MethodError, explain
from tallbayes.programs.later import jax, jnp

Draws = Callable[[int, Any], Any]


@dataclass(frozen=True)
class WithReplacement:
    """n independent uniform indices.

    >>> import tallbayes as tb
    >>> tb.Taylor(batch_size=10).sampling == WithReplacement()
    True
    """

    independent_entries = True
    reads_neighbours = False

    def num_indices(self, batch_size: int) -> int:
        return batch_size

    def draw(self, draws: Draws, batch_size: int, num_rows: jax.Array) -> jax.Array:
        return draws(batch_size, num_rows)

    def check(self, batch_size: int, num_rows: int) -> None:
        pass


@dataclass(frozen=True)
class WithoutReplacement:
    """n distinct indices, every subset equally likely (Floyd's algorithm: n draws whatever N is).

    >>> import tallbayes as tb
    >>> gradient = tb.Taylor(batch_size=10, sampling=WithoutReplacement())
    >>> gradient.sampling.independent_entries
    False
    """

    independent_entries = False
    reads_neighbours = False

    def num_indices(self, batch_size: int) -> int:
        return batch_size

    def draw(self, draws: Draws, batch_size: int, num_rows: jax.Array) -> jax.Array:
        return distinct(draws, batch_size, num_rows)

    def check(self, batch_size: int, num_rows: int) -> None:
        if batch_size > num_rows:
            raise MethodError(
                explain(
                    f"batch_size <= {num_rows} rows without replacement",
                    f"batch_size={batch_size}",
                    "a smaller batch, or Full()",
                )
            )


@dataclass(frozen=True)
class Blocks:
    """n consecutive rows of a once-shuffled table, from a uniform start and wrapped at the end.

    One random integer a step, and memory is read in order.

    >>> import tallbayes as tb
    >>> gradient = tb.Taylor(batch_size=10, sampling=Blocks())
    >>> gradient.sampling.reads_neighbours
    True
    """

    independent_entries = False
    reads_neighbours = True

    def num_indices(self, batch_size: int) -> int:
        return 1

    def draw(self, draws: Draws, batch_size: int, num_rows: jax.Array) -> jax.Array:
        index = draws(1, num_rows) + jnp.arange(batch_size, dtype=jnp.int32)
        return jnp.where(index < num_rows, index, index - num_rows)

    def check(self, batch_size: int, num_rows: int) -> None:
        WithoutReplacement().check(batch_size, num_rows)


def distinct(draws: Draws, count: int, bound: jax.Array) -> jax.Array:
    """Floyd's sample: the k-th pick is uniform below bound - count + k + 1, or that bound if taken."""
    limits = bound - count + jnp.arange(count, dtype=jnp.int32)
    picks = draws(count, limits + 1)

    def place(k: jax.Array, chosen: jax.Array) -> jax.Array:
        taken = jnp.any(chosen == picks[k])
        return chosen.at[k].set(jnp.where(taken, limits[k], picks[k]))

    return jax.lax.fori_loop(0, count, place, jnp.full(count, -1, jnp.int32))
