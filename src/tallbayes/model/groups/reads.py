"""Reads: the few numbers of u that a unit's log likelihood hangs on.

    log p_g(u) = F_g(u[places_g]),     grad = P_g^T grad F_g,     Hess = P_g^T Hess F_g P_g,     P_g u = u[places_g]

Of effects by level that are parameters, a row reads those of its own level. So a unit reads what is no effect, and the
effects of the levels that its rows have: tens of numbers where theta has thousands. In these it is differentiated, its
nodes follow them, and sums over units are put back in their places.

A unit has "reads", by the name of an effect its levels, each once, padded with one of them; and a row of it has beside
its level the place of that among them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from tallbayes.model.space import Space
from tallbayes.programs.later import jax, jnp

# By the name of an effect in theta, the column of a row that holds its level.
Columns = tuple[tuple[str, str], ...]


def read_place(column: str) -> str:
    """The column of a unit's rows that holds the place of a level among the unit's own."""
    return f"{column}__place"


@dataclass(frozen=True)
class Reads:
    """What units read of u, by the columns of their rows; theta is a dict."""

    space: Space
    columns: Columns

    def near(self, vector: Any, unit: Any) -> Any:
        """u at the unit's places."""
        return jnp.take(vector, self.places(unit), axis=0)

    def places(self, unit: Any) -> Any:
        """Which numbers of u the unit reads, leaf by leaf in their order."""
        parts, first = [], 0
        for name, shape in zip(self._names, self.space.shapes, strict=True):
            if name in unit["reads"]:
                levels = unit["reads"][name]
                each = prod(shape[1:])
                parts.append(jnp.ravel(first + each * levels[:, None] + jnp.arange(each, dtype=levels.dtype)))
            else:
                parts.append(jnp.arange(first, first + prod(shape), dtype=jnp.int32))
            first += prod(shape)
        return jnp.concatenate(parts)

    def count(self, unit: Any) -> int:
        """How many numbers that is."""
        return sum(prod(shape) for shape in self._shapes(unit))

    def theta(self, near: Any, unit: Any) -> Any:
        """The pytree of the unit's own numbers, with effects by the places of their levels."""
        return replace(self.space, shapes=self._shapes(unit)).theta(near, unit["reads"])

    def split(self, unit: Any) -> tuple[np.ndarray, dict[str, int]]:
        """Where what is no effect stands among the unit's own numbers, and where the effects of each name begin."""
        shared: list[int] = []
        begins, first = {}, 0
        for name, shape in zip(self._names, self._shapes(unit), strict=True):
            if name in unit["reads"]:
                begins[name] = first
            else:
                shared += range(first, first + prod(shape))
            first += prod(shape)
        return np.array(shared, np.int32), begins

    def places_of_row(self, row: Any, unit: Any) -> Any:
        """Where a row's own effects stand among the unit's own numbers."""
        begins, parts = self.split(unit)[1], []
        for name, column in sorted(self.columns):
            each = prod(self.space.shapes[self._names.index(name)][1:])
            parts.append(begins[name] + each * row[read_place(column)] + jnp.arange(each, dtype=jnp.int32))
        return jnp.concatenate(parts)

    def theta_of_row(self, shared: Any, own: Any, row: Any) -> tuple[Any, Any]:
        """The pytree of what a single row reads, and the row as it reads that."""
        alone = {"reads": {name: row[column][None] for name, column in self.columns}}
        pieces, used = [], {True: 0, False: 0}
        for name, shape in zip(self._names, self._shapes(alone), strict=True):
            is_own, size = name in alone["reads"], prod(shape)
            pieces.append((own if is_own else shared)[used[is_own] : used[is_own] + size])
            used[is_own] += size
        first = {read_place(column): jnp.zeros((), jnp.int32) for _, column in self.columns}
        return self.theta(jnp.concatenate(pieces), alone), {**row, **first}

    def _shapes(self, unit: Any) -> tuple[tuple[int, ...], ...]:
        reads, pairs = unit["reads"], zip(self._names, self.space.shapes, strict=True)
        return tuple((len(reads[name]), *shape[1:]) if name in reads else shape for name, shape in pairs)

    @property
    def _names(self) -> list[str]:
        numbered = jax.tree.unflatten(self.space.treedef, range(len(self.space.shapes)))
        return sorted(numbered, key=numbered.__getitem__)


def find_reads(columns: Columns, rows: Any, codes: np.ndarray, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The levels that each of `count` units reads, by the name of the effect, and of every row the place of its own."""
    reads, places = {}, {}
    for name, column in columns:
        levels = np.asarray(rows[column], np.int64)
        width = int(levels.max()) + 1
        pairs, which = np.unique(codes.astype(np.int64) * width + levels, return_inverse=True)
        units = pairs // width
        counts = np.bincount(units, minlength=count)
        firsts = np.cumsum(counts) - counts
        own = np.repeat((pairs % width)[firsts][:, None], counts.max(), axis=1)
        at = np.arange(len(pairs)) - firsts[units]
        own[units, at] = pairs % width
        reads[name] = own.astype(np.int32)
        places[read_place(column)] = at[which].astype(np.int32)
    return reads, places
