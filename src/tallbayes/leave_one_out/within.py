"""Rows within their groups: each left out given the others of its group, whose effect is integrated out.

    p(y_i | theta, the others) = p_g / p_g-i,     p_g = sum_k e^T_k,   T_k what node k adds, l_ik the density of row i
    p_g-i = sum_k e^(T_k - l_ik)         by the nodes of the group, where row i hardly moves its effect
    p_g-i by nodes of its own            where it does (`own_nodes`): about the effect without it, the prior's if alone
    p(y_i | theta, all) = sum_k e^(T_k + l_ik) / p_g

With normal noise both have a closed form. Rows stand group after group, groups of about one length side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tallbayes.anchor.importance import in_float64
from tallbayes.errors import InputError, explain
from tallbayes.groups.units import Grouping, Units, lengths_of_groups, one_group_each, places_of_groups
from tallbayes.leave_one_out.rows import PART_ROWS
from tallbayes.model.groups.bundles import is_bundle
from tallbayes.model.model import Target
from tallbayes.model.normalisers import log_normaliser
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.results.fitted import Fitted
from tallbayes.watch import count_rows

# Points that a program takes.
BLOCK = 32
# Of a density with second derivatives.
MOST_BENT = 64


class OwnNodes(NamedTuple):
    """Of rows that move their group's effect: nodes of the group without each, and what its others say of it."""

    centre: Floats
    slope: Floats
    root: Floats
    information: Floats | None


class Densities(NamedTuple):
    """Of some rows at points, (rows, points): left out, and given all; of their groups log p_g."""

    left: Floats
    fitted: Floats
    whole: Floats


@dataclass(frozen=True, eq=False)
class RowsOfGroups:
    """Rows by their places in the order of groups, each of which stands for itself. Of each its group, which of its
    rows it is, its number in the source, and which of the nodes are its own, -1 for none; `nodes` a direction."""

    target: Target
    units: Units
    places: np.ndarray
    group: np.ndarray
    within: np.ndarray
    numbers: np.ndarray
    nodes: int
    which: np.ndarray
    own: OwnNodes | None = None
    # Where units are on disk: it goes with the last who has it.
    folder: Any = None

    @property
    def counts(self) -> Floats:
        return np.ones(len(self.places))

    @property
    def is_closed(self) -> bool:
        return self.nodes == 0

    @property
    def work(self) -> int:
        """Densities that a point takes."""
        assert self.target.integrated is not None
        return len(self.places) * int(max(self.nodes, 1) ** self.target.integrated.size)

    def part(self, which: Any) -> RowsOfGroups:
        names = ("places", "group", "within", "numbers", "which")
        return replace(self, **{name: getattr(self, name)[which] for name in names})

    def with_nodes(self, nodes: int) -> RowsOfGroups:
        return replace(self, nodes=nodes)

    @cached_property
    def _where(self) -> np.ndarray:
        return places_of_groups(self.units)

    @cached_property
    def blocks(self) -> list[tuple[slice, np.ndarray, int]]:
        """Rows that are taken together, the groups that they are of, and to how many rows these are padded."""
        begins = np.flatnonzero(np.diff(self.group, prepend=-1))
        groups = self.group[begins]
        ends = np.append(begins[1:], len(self.group))
        lengths = lengths_of_groups(self.units, self._where[groups])
        found, first = [], 0
        while first < len(groups):
            size = block_size(self.length(lengths[first]))
            last = first
            while last < len(groups) and last - first < size and lengths[last] == lengths[first]:
                last += 1
            part = slice(int(begins[first]), int(ends[last - 1]))
            found.append((part, groups[first:last], self.length(lengths[first])))
            first = last
        return found

    def length(self, length: int) -> int:
        return int(length) or int(jax.tree.leaves(self.units["rows"])[0].shape[1])

    def taken(self, groups: np.ndarray, length: int) -> Units:
        """These groups, and the last of them again until there are as many as a program takes."""
        size = block_size(length)
        padded = np.concatenate([groups, np.repeat(groups[-1:], size - len(groups))])
        return one_group_each(self.units, self._where[padded], length)

    def each(self, function: Callable[[Any], Floats]) -> Floats:
        """A number for every row, of a function of units' rows that finds (units, rows)."""
        found = np.empty(len(self.places))
        for part, groups, length in self.blocks:
            values = function(self.taken(groups, length)["rows"])
            found[part] = np.asarray(values)[self.in_block(part, groups), self.within[part]]
        return found

    def in_block(self, part: slice, groups: np.ndarray) -> np.ndarray:
        """Of every row, which of the groups is its own."""
        order = np.argsort(groups)
        return order[np.searchsorted(groups[order], self.group[part])]

    def constants(self, target: Target, response_scale: float) -> Floats:
        """What densities leave out, in the response's own units."""
        noise = target.noise
        if noise is None or noise.facts.response in ("binary", "class"):
            return np.zeros(len(self.places))
        if self.is_closed:
            one = log_normaliser(noise, {"y": np.zeros(1)}, response_scale, includes_scale=True)
            return np.full(len(self.places), one[0])
        return self.each(lambda rows: log_normaliser(noise, rows, response_scale))

    def responses(self) -> Floats | None:
        """In the order of the source and in fitted units; None where rows have none by that name."""
        if not (isinstance(self.units["rows"], dict) and "y" in self.units["rows"]):
            return None
        found = np.empty(len(self.places))
        found[self.numbers] = self.each(lambda rows: np.asarray(rows["y"], np.float64))
        return found

    def in_parts(self, target: Target, mode: Floats, moves: Floats) -> Iterator[tuple[slice, Floats, Floats]]:
        """Densities of rows left out and of rows given all, (rows, draws), some rows at a time."""
        for block in range(len(self.blocks)):
            begin, found = self.blocks[block][0].start, self.densities(block, mode + moves)
            for start in range(0, len(found.left), PART_ROWS):
                part = slice(start, min(start + PART_ROWS, len(found.left)))
                yield slice(begin + part.start, begin + part.stop), found.left[part], found.fitted[part]

    def densities(self, block: int, points: Floats) -> Densities:
        """Of a block of rows at points."""
        part, groups, length = self.blocks[block]
        units = self.taken(groups, length)
        found = [np.concatenate(each) for each in zip(*self._looks(units, points, False), strict=True)]
        left, fitted, whole = (each[: len(points)] for each in found)
        at, within = self.in_block(part, groups), self.within[part]
        left, fitted, mine = left[:, at, within].T, fitted[:, at, within].T, self.which[part]
        if (mine >= 0).any():
            left = np.array(left)
            rows = np.flatnonzero(mine >= 0)
            left[rows] = whole[:, at[rows]].T - self._without(units, at[rows], within[rows], mine[rows], points)
        count_rows(len(at) * len(points))
        return Densities(left, fitted, whole[:, : len(groups)].T)

    def unevenness(self, block: int, points: Floats) -> Floats:
        """Of a block of rows, log of the mean square of 1 / p_i, by the shares of nodes, over that of its squared mean,
        at the point where it is largest."""
        part, groups, length = self.blocks[block]
        found = [each[3] for each in self._looks(self.taken(groups, length), points, True)]
        most = np.concatenate(found)[: len(points)].max(axis=0)
        return np.asarray(most[self.in_block(part, groups), self.within[part]])

    def _looks(self, units: Units, points: Floats, looks: bool) -> Iterator[tuple[Floats, ...]]:
        for some in _in_blocks(points):
            with jax.enable_x64(True):
                found = compiled(_of_groups)((self.target, self.nodes, looks), units, jnp.asarray(some))
                yield tuple(np.asarray(each) for each in found)

    def _without(self, units: Units, at: np.ndarray, within: np.ndarray, mine: np.ndarray, points: Floats) -> Floats:
        """log p_g-i by own nodes, (rows, points)."""
        size, found = len(units["count"]), []
        for start in range(0, len(at), size):
            some = np.minimum(np.arange(start, start + size), len(at) - 1)
            without = without_rows(units, at[some], within[some])
            assert self.own is not None
            for name in ("centre", "slope", "root", "information"):
                known = getattr(self.own, name)
                if known is not None:
                    without[name] = known[mine[some]]
            parts = []
            for vectors in _in_blocks(points):
                with jax.enable_x64(True):
                    parts.append(np.asarray(compiled(_integrals)((self.target, self.nodes), without, vectors)))
            found.append(np.concatenate(parts)[: len(points)].T)
        return np.concatenate(found)[: len(at)]

    def expansion(self, target: Target, mode: Floats, columns: Floats) -> tuple[Floats, Floats]:
        """Gradient and Hessian of the density of the first row left out, in whitened units, at the centre."""
        _, groups, length = self.blocks[0]
        units = one_group_each(self.units, self._where[groups[:1]], length)
        at, mine = np.zeros(1, np.int64), self.which[:1]
        without = without_rows(units, at, self.within[:1])
        if mine[0] >= 0:
            assert self.own is not None
            own = {name: each[mine] for name, each in self.own._asdict().items() if each is not None}
            without = {**without, **own}
        static = target, self.nodes, bool(mine[0] >= 0)
        with jax.enable_x64(True):
            found = compiled(_expansion)(static, units, without, np.int32(self.within[0]), mode, columns)
            return np.asarray(found[0]), np.asarray(found[1])


def block_size(length: int) -> int:
    return max(1, PART_ROWS // length)


def _in_blocks(points: Floats) -> Iterator[Floats]:
    for start in range(0, len(points), BLOCK):
        yield points[np.minimum(np.arange(start, start + BLOCK), len(points) - 1)]


def rows_of_groups(fitted: Fitted) -> RowsOfGroups:
    """All rows of a fit with groups, whose effect is integrated by the nodes of the fit."""
    target, grouping, units = fitted.target, fitted.grouping, fitted.table.rows
    # Padding of a table repeats its first unit.
    stop = fitted.table.num_rows
    if target.integrated is None or grouping is None or grouping.rows is None:
        got = "a fit without groups" if target.integrated is None else "one that does not know the groups of its rows"
        raise InputError(explain("a fit with effects by group and its rows", got, "unit=None"))
    folder = None
    if "rows" not in units:
        units, folder = grouping.rows.units(target.integrated.integral.groups, target.space)
    units = jax.tree.map(lambda leaf: np.asarray(leaf)[:stop], units)
    return replace(_in_order(target, units, grouping), folder=folder)


def _in_order(target: Target, units: Units, grouping: Grouping) -> RowsOfGroups:
    assert target.integrated is not None
    counts, by_group = np.asarray(grouping.counts), np.argsort(grouping.rows.codes, kind="stable")
    lengths = lengths_of_groups(units, places_of_groups(units))
    order = np.argsort(lengths, kind="stable") if is_bundle(units) else np.arange(len(counts))
    firsts, times = (np.cumsum(counts) - counts)[order], counts[order]
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(times) - times, times)
    numbers = by_group[np.repeat(firsts, times) + within]
    total = len(numbers)
    return RowsOfGroups(
        target=target,
        units=units,
        places=np.arange(total),
        group=np.repeat(order, times),
        within=within,
        numbers=numbers,
        nodes=target.integrated.nodes,
        which=np.full(total, -1),
    )


def without_rows(units: Units, at: np.ndarray, within: np.ndarray) -> Units:
    """Units of the groups at these places, each without one of its rows."""
    found = {name: jax.tree.map(lambda leaf: np.asarray(leaf)[at], each) for name, each in units.items()}
    length = jax.tree.leaves(units["rows"])[0].shape[1]
    order = np.arange(length) + (np.arange(length) >= within[:, None])
    order[:, -1] = within
    found["rows"] = jax.tree.map(lambda leaf: leaf[np.arange(len(at))[:, None], order], found["rows"])
    found["count"] = found["count"] - 1
    return found


def _of_groups(static: tuple[Target, int, bool], units: Any, points: jax.Array) -> tuple[jax.Array, ...]:
    """By points and groups: rows left out, rows given all, log p_g, and, if it is looked at, how uneven 1 / p_i is."""
    target, nodes, looks = static
    assert target.integrated is not None
    units, integral = in_float64(units), _with(target, nodes)

    def at(vector: jax.Array) -> tuple[jax.Array, ...]:
        theta = target.space.theta(vector)
        return jax.vmap(lambda unit: _of_group(integral, theta, vector, unit, looks))(units)

    return jax.lax.map(at, points)


def _of_group(integral: Any, theta: Any, vector: jax.Array, unit: Any, looks: bool) -> tuple[jax.Array, ...]:
    if integral.nodes == 0:
        return (*integral.left_out(theta, vector, unit), jnp.zeros(()))
    terms, added = integral.by_row(theta, vector, unit)
    whole = jax.nn.logsumexp(added)
    without = jax.nn.logsumexp(added[:, None] - terms, axis=0)
    fitted = jax.nn.logsumexp(added[:, None] + terms, axis=0) - whole
    if not looks:
        return whole - without, fitted, whole
    uneven = jax.nn.logsumexp(added[:, None] - 2 * terms, axis=0) + whole - 2 * without
    return whole - without, fitted, whole, uneven


def _with(target: Target, nodes: int) -> Any:
    assert target.integrated is not None
    integral = target.integrated.integral
    return replace(integral, nodes=nodes)


def _integrals(static: tuple[Target, int], units: Any, points: jax.Array) -> jax.Array:
    """log p_g by points and groups."""
    target, nodes = static
    units, integral = in_float64(units), _with(target, nodes)

    def at(vector: jax.Array) -> jax.Array:
        theta = target.space.theta(vector)
        return jax.vmap(lambda unit: integral(theta, vector, unit))(units)

    return jax.lax.map(at, points)


def _expansion(
    static: tuple[Target, int, bool], units: Any, without: Any, within: jax.Array, mode: jax.Array, columns: jax.Array
) -> tuple[jax.Array, jax.Array]:
    target, nodes, is_own = static
    unit, less = (jax.tree.map(lambda leaf: leaf[0], in_float64(each)) for each in (units, without))
    integral = _with(target, nodes)

    def value(z: jax.Array) -> jax.Array:
        vector = mode + z @ columns
        theta = target.space.theta(vector)
        if is_own:
            return integral(theta, vector, unit) - integral(theta, vector, less)
        return jnp.take(_of_group(integral, theta, vector, unit, False)[0], within)

    nothing = jnp.zeros(len(columns))
    return jax.grad(value)(nothing), jax.hessian(value)(nothing)
