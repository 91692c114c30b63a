"""Bundles: groups of very different size, several of them to a unit, so that units are of one length.

    log p(bundle) = sum_j log p_g(j),     sum over the rows of j = sum over the strips of j

The rows of a bundle stand one group after the other, in strips of R rows of which each is of one group: {"rows": a
pytree of (S R, ...), "strip": (S,) which of its J groups each strip is of, "filled": (S,) how many of its rows count};
what else is known of a group has an axis of J: "group" its number, -1 for none, "count", "centre", "slope", "root".
"""

from __future__ import annotations

from typing import Any

from tallbayes.programs.later import jax, jnp

# Of pairs of a strip and a group: beyond, sums by group are scattered.
MOST_PAIRS = 2**14
OF_ROWS = ("rows", "strip", "filled")


def is_bundle(unit: Any) -> bool:
    """Whether a unit, or a table of them, is of several groups."""
    return "strip" in unit


def groups_in(unit: Any) -> Any:
    """What is known of each group beside its rows, on a leading axis."""
    return {name: leaf for name, leaf in unit.items() if name not in OF_ROWS}


def add_up(terms: Any, unit: Any) -> Any:
    """Sums by group, (J, ...), of terms by strip, (S, ...)."""
    if (own := _owners(unit)) is None:
        return jax.ops.segment_sum(terms, unit["strip"], len(unit["count"]))
    own = own.reshape(own.shape + (1,) * (terms.ndim - 1))
    # A choice, not a product: what is infinite in one group is not a number in no other.
    return jnp.sum(jnp.where(own, terms[None], 0), axis=1)


def by_strip(values: Any, unit: Any) -> Any:
    """(S, ...) of values by group, (J, ...)."""
    if (own := _owners(unit)) is None:
        return jnp.take(values, unit["strip"], axis=0)
    own = own.reshape(own.shape + (1,) * (values.ndim - 1))
    return jnp.sum(jnp.where(own, values[:, None], 0), axis=0)


def _owners(unit: Any) -> Any:
    """(J, S), where there are few enough."""
    strips, groups = len(unit["strip"]), len(unit["count"])
    if strips * groups > MOST_PAIRS:
        return None
    return jnp.arange(groups, dtype=jnp.int32)[:, None] == unit["strip"][None, :]


def in_strips(rows: Any, unit: Any) -> Any:
    """Rows as (S, R, ...)."""
    strips = len(unit["strip"])
    return jax.tree.map(lambda leaf: leaf.reshape(strips, -1, *leaf.shape[1:]), rows)


def inside(filled: Any, rows: int) -> Any:
    """Which of so many rows of every strip count, (S, R)."""
    return jnp.arange(rows, dtype=jnp.int32)[None, :] < filled[:, None]
