"""Rows by themselves: which row of the source stands where, a few of them taken out, and their constants.

A table in random order knows which row it has from where; what is told of a row goes by its number in the source,
counted from 0, and what is written of all rows is in the order of the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.anchor.importance import in_float64
from tallbayes.errors import DataError, explain
from tallbayes.groups.units import MOST_BYTES, lengths_of_groups, one_group_each, places_of_groups
from tallbayes.model.catalogue import BESIDE
from tallbayes.model.groups.bundles import is_bundle
from tallbayes.model.model import Target
from tallbayes.model.normalisers import log_normaliser
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.table import CHUNK_ROWS, Table, make_table, shuffled_order

PART_ROWS = 256


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """Rows at some places of the table, each of which stands for `counts` rows."""

    places: np.ndarray
    counts: Floats
    rows: Any

    def part(self, which: Any) -> ChosenRows:
        return ChosenRows(self.places[which], self.counts[which], taken(self.rows, which))

    def constants(self, target: Target, response_scale: float) -> Floats:
        """What densities leave out, in the response's own units."""
        return np.broadcast_to(constants(target, self.rows, response_scale), len(self.places))

    def in_parts(self, target: Target, mode: Floats, moves: Floats) -> Iterator[tuple[slice, Floats, Floats]]:
        """l of some rows at draws, (rows, draws), some at a time: of a row left out, and of one that is not, which are
        the same."""
        for start in range(0, len(self.places), PART_ROWS):
            part = slice(start, min(start + PART_ROWS, len(self.places)))
            here = densities(target, taken(self.rows, part), mode, moves)
            yield part, here, here

    def expansion(self, target: Target, mode: Floats, columns: Floats) -> tuple[Floats, Floats]:
        """Gradient and Hessian of l of the first of them in whitened units, at the centre."""
        with jax.enable_x64(True):
            one = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), self.rows)
            slope, bend = compiled(_expansion)(target, one, mode, jnp.asarray(columns))
            return np.asarray(slope), np.asarray(bend)


def choose(table: Table, places: np.ndarray, counts: Floats) -> ChosenRows:
    return ChosenRows(places, counts, taken(table.rows, places))


def taken(rows: Any, places: Any) -> Any:
    """Copies, in memory."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[places], rows)


def padded(rows: Any) -> Any:
    """With copies of the last row, so that one program serves all parts."""

    def longer(leaf: np.ndarray) -> np.ndarray:
        missing = PART_ROWS - len(leaf)
        return np.concatenate([leaf, np.repeat(leaf[-1:], missing, axis=0)]) if missing else leaf

    return jax.tree.map(longer, rows)


def densities(target: Target, rows: Any, mode: Floats, moves: Floats) -> Floats:
    """l of some rows at draws, (rows, draws)."""
    count = len(jax.tree.leaves(rows)[0])
    with jax.enable_x64(True):
        found = compiled(_densities)(target, padded(rows), mode, jnp.asarray(moves))
        return np.asarray(found)[:count]


def _densities(target: Target, rows: Any, mode: jax.Array, moves: jax.Array) -> jax.Array:
    rows, layout = in_float64(rows), target.layout
    if target.predictor is None:
        each = jax.vmap(target.log_likelihood.call, (None, 0))
        return jax.lax.map(lambda move: each(mode + move, rows), moves).T
    eta, steps = layout.predict(rows, mode), layout.moved(rows, moves.T)
    at = eta[None] + (steps[0].T if layout.is_scalar else steps.transpose(2, 1, 0))
    value = jax.vmap(target.predictor.call)
    return jax.lax.map(lambda each: value(each, rows), at).T


def _expansion(target: Target, row: object, mode: jax.Array, columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gradient and Hessian of l_i in whitened units, at the centre."""

    def value(z: jax.Array) -> jax.Array:
        return target.log_likelihood.call(mode + z @ columns, row)

    nothing = jnp.zeros(len(columns))
    return jax.grad(value)(nothing), jax.hessian(value)(nothing)


def one_group_a_row(table: Table) -> Table:
    """A table whose units are of several groups with a unit for each of them: a group is what is left out."""
    if not (isinstance(table.rows, dict) and is_bundle(table.rows)):
        return table
    units = taken(table.rows, slice(table.num_rows))
    places = places_of_groups(units)
    longest = int(lengths_of_groups(units, places).max())
    each = sum(leaf[:1, :1].nbytes for leaf in jax.tree.leaves(units["rows"]))
    if len(places) * longest * each > MOST_BYTES:
        got = f"{len(places):,} groups of up to {longest:,} rows"
        expected = f"groups that fill {MOST_BYTES / 2**30:g} GB at the most when each is padded to the largest"
        raise DataError(explain(expected, got, "leave-one-out of a fit without the few largest groups"))
    return make_table(one_group_each(units, places, longest), "float64", least=1)


def source_numbers(table: Table) -> np.ndarray:
    """By place in the table, the number of the row in its source; of groups, that of the group."""
    if isinstance(table.rows, dict) and "group" in table.rows and "count" in table.rows:
        return np.asarray(table.rows["group"])[: table.num_rows]
    if table.stored is not None:
        known = table.stored.row_numbers()
        if known is not None and len(known) == table.num_rows:
            return np.asarray(known)
    if table.shuffled:
        return shuffled_order(table.num_rows)
    return np.arange(table.num_rows, dtype=np.int32)


def source_places(table: Table) -> np.ndarray:
    """By place in the table, the place of the row among all in the order of the source: rows that were dropped leave
    gaps in their numbers."""
    numbers = source_numbers(table)
    if len(numbers) and int(numbers.max()) >= len(numbers):
        ranks = np.empty(len(numbers), np.int32)
        ranks[np.argsort(numbers, kind="stable")] = np.arange(len(numbers), dtype=np.int32)
        return ranks
    return numbers


def constants(target: Target, rows: Any, response_scale: float) -> Floats:
    """What the density of every row leaves out, in the response's own units; of a group, of all its rows."""
    if target.integrated is None:
        return log_normaliser(target.noise, _first(rows), response_scale)
    counts = np.asarray(rows["count"], np.float64)
    if target.noise is None:
        return np.zeros(len(counts))
    if target.integrated.nodes == 0:
        # A closed form, which has the noise's scale in it.
        one = log_normaliser(target.noise, {"y": np.zeros(1)}, response_scale, includes_scale=True)
        return counts * one[0]
    # The law of a family's effects is standard normal, and written without its constant.
    law = 0.0 if target.parts is None else -0.5 * target.integrated.size * np.log(2 * np.pi)
    if target.noise is None or target.noise.facts.response in ("binary", "class"):
        return np.full(len(counts), law)
    by_row = log_normaliser(target.noise, rows["rows"], response_scale)
    return law + np.sum(by_row * (np.arange(by_row.shape[1]) < counts[:, None]), axis=1)


def constants_of_chunk(target: Target, table: Table, start: int, response_scale: float) -> Floats:
    stop = min(start + CHUNK_ROWS, table.num_rows)
    needed = table.rows
    if target.integrated is None and isinstance(needed, dict) and "y" in needed:
        needed = {name: needed[name] for name in ("y", *BESIDE) if name in needed}
    found = constants(target, jax.tree.map(lambda leaf: np.asarray(leaf)[start:stop], needed), response_scale)
    return np.broadcast_to(found, (stop - start,))


def _first(rows: Any) -> Any:
    return rows if isinstance(rows, dict) else {}


def response_of(table: Table) -> Floats | None:
    """The response in the order of the source and in fitted units, of groups its mean; None where rows have none by
    that name."""
    y = _responses(table.rows)
    if y is None:
        return None
    y = y[: table.num_rows]
    found = np.empty(len(y))
    found[source_places(table)] = y
    return found


def _responses(rows: Any) -> np.ndarray | None:
    if not isinstance(rows, dict):
        return None
    if "y" in rows:
        return np.asarray(rows["y"])
    if "raw" in rows:
        return np.asarray(rows["raw"])
    if not (isinstance(rows.get("rows"), dict) and "y" in rows["rows"]):
        return None
    y, counts = np.asarray(rows["rows"]["y"], np.float64), np.asarray(rows["count"])
    inside = np.arange(y.shape[1]) < counts[:, None]
    return np.asarray(np.sum(np.where(inside, y, 0.0), axis=1) / counts)
