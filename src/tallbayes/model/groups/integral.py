"""Groups: an effect of every group, integrated out, so that a group is a row.

    p_g(theta) = integral p(b | theta) prod_{i in g} p(row_i | theta, b) db,        b in R^q, q = 1, 2, 3

    log p_g = log sum_k exp [ c_k + log |S_g| + log p(b_k | theta) + sum_i l_i(theta, b_k) ],
    c_k = log w_k + |x_k|^2 / 2 + q/2 log 2 pi

by Gauss and Hermite's nodes x_k with weights w_k of the normal density, K in each of q directions, put down at

    b_k = c_g + B_g u + S_g x_k

where u is theta's place in R^d. c_g, B_g and S_g are found once, at set-up (`groups.nodes`), and are numbers of the
group ever after: the sampled model is exactly defined by them, and no path looks for the mode of an effect. So the mode
and spread of what is integrated should hardly move with theta. Where an effect is b = T_g(theta) v, nodes are those of
v: with T as wide as b is, given theta and so many rows, v has about unit spread whatever theta is.

A `Unit` is a group as a row: its own rows padded to one length, how many there are, and its nodes. One without any rows
is a new group. Where groups are of very different size a unit is several of them (`bundles`), and log p is their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.model.groups.bundles import add_up, by_strip, groups_in, in_strips, inside, is_bundle
from tallbayes.model.groups.reads import Columns, Reads
from tallbayes.model.groups.terms import MOST_EFFECTS
from tallbayes.programs.later import jax, jnp

MOST_NODES = 63
# Nodes a direction to begin with, for groups of up to so many rows: the more there are, the nearer to a Gaussian.
FIRST_NODES = {64: 7, 512: 5, np.inf: 3}
# Where units read other effects too, whose Hessians are long to compile: as many as will mostly do.
FIRST_NODES_BESIDE = {512: 7, np.inf: 5}
# Rows of a group that are read together: more would fill the memory where hundreds of groups are.
TOGETHER = 128
WEIGHT = "__weight__"
# What a group without rows has nothing of.
EMPTY = ("count", "sums", "centre", "slope", "raw", "information")


@dataclass(frozen=True, eq=False)
class Groups:
    """What tells the groups of a model's rows apart, and what each of them has of its own.

    `by` names the column of the group, text or whole numbers. `effect` is the start value of a group's effect, a number
    or up to three; with groups a model's `log_likelihood(theta, b, row)` is that of one row given its group's effect b.
    `log_density(theta, b)` is the law of an effect, its constant included as far as that hangs on theta. `shown(theta,
    b)` is what is reported of an effect (b itself if None), with `names` for its numbers; `levels` are the names of
    groups that the column numbers from 0. `nodes` a direction are chosen unless they are given. `of_rows` declares that
    every row is a group of its own: a row that stands for several would then be none of them.

    >>> import jax.numpy as jnp
    >>> groups = Groups(by="school", effect=0.0, log_density=lambda theta, b: -0.5 * b**2)
    """

    by: str
    effect: Any
    log_density: Callable[[Any, Any], Any]
    shown: Callable[[Any, Any], Any] | None = None
    names: tuple[str, ...] | None = None
    nodes: int | None = None
    levels: tuple[Any, ...] | None = field(default=None, repr=False)
    # Of a family whose integrals have a closed form: what makes it of these groups.
    closed: Callable[[Groups], Any] | None = field(default=None, repr=False)
    of_rows: bool = False
    # Of a family: w, by which a unit knows the sum of w z z^T over its rows; and T itself, of that, lower triangular.
    weigh_rows: Callable[[Any], float] | None = field(default=None, repr=False)
    stretch: Callable[[Any, Any], Any] | None = field(default=None, repr=False)
    # Of a family: effects in theta of which a row reads that of its own level.
    reads: Columns = ()

    def __post_init__(self) -> None:
        shape = np.shape(self.effect)
        if len(shape) > 1 or not 1 <= self.size <= MOST_EFFECTS:
            got, hint = f"shape {shape}", "0.0, or np.zeros(2) for an intercept and a slope"
            raise ModelError(explain(f"a group's effect of 1 to {MOST_EFFECTS} numbers", got, hint))
        if not callable(self.log_density):
            raise ModelError(explain("log_density(theta, b)", repr(self.log_density), "lambda theta, b: -0.5 * b**2"))
        whole = isinstance(self.nodes, int) and not isinstance(self.nodes, bool)
        if self.nodes is not None and not (whole and 1 <= self.nodes <= MOST_NODES):
            raise ModelError(explain(f"nodes from 1 to {MOST_NODES}", repr(self.nodes), "None to have them chosen"))

    @property
    def size(self) -> int:
        return int(np.size(self.effect))

    def vector(self, effect: Any) -> Any:
        """An effect as its owner has it, from q numbers."""
        return effect.reshape(np.shape(self.effect))


class EffectMoments(NamedTuple):
    """Of what is shown of an effect, given theta: mean, and second to fourth central moments, number by number."""

    mean: Any
    variance: Any
    third: Any
    fourth: Any


@dataclass(frozen=True)
class GroupIntegral:
    """log p_g of a unit, with K nodes a direction, and what is known of its effect given theta.

    Where units read few numbers of u, `reads` says which: then their nodes follow these alone.
    """

    log_likelihood: Callable[[Any, Any, Any], Any]
    groups: Groups
    nodes: int
    reads: Reads | None = None

    def joint(self, theta: Any, free: Any, unit: Any) -> Any:
        """log p(b | theta) + sum_i l_i(theta, b) + log |T|, b = T v, of v as q numbers; of a bundle (J,), of (J, q)."""
        if is_bundle(unit):
            return self._joint_of_bundle(theta, free, unit)
        b, size = self.stretched(theta, free, unit)
        b = self.groups.vector(b)
        return self.groups.log_density(theta, b) + self._rows(theta, b, unit) + size

    def stretched(self, theta: Any, free: Any, unit: Any) -> tuple[Any, Any]:
        """T v, and log |T|."""
        if self.groups.stretch is None:
            return free, 0.0
        matrix = self.groups.stretch(theta, unit["information"])
        return matrix @ free, jnp.sum(jnp.log(jnp.abs(jnp.diagonal(matrix))))

    def _rows(self, theta: Any, b: Any, unit: Any) -> Any:
        length = jax.tree.leaves(unit["rows"])[0].shape[0]

        def some(part: Any) -> Any:
            rows, place = part
            terms = jax.vmap(lambda row: _term(self.log_likelihood, theta, b, row))(rows)
            return jnp.sum(jnp.where(place < unit["count"], terms, 0))

        places = jnp.arange(length, dtype=jnp.int32)
        if length <= TOGETHER:
            return some((unit["rows"], places))
        count = -(-length // TOGETHER)
        parts = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), (unit["rows"], places))
        return jnp.sum(jax.lax.map(jax.checkpoint(some), parts))

    def _joint_of_bundle(self, theta: Any, free: Any, unit: Any) -> Any:
        effects, sizes = jax.vmap(lambda each, own: self.stretched(theta, each, own))(free, groups_in(unit))
        density = jax.vmap(lambda b: self.groups.log_density(theta, self.groups.vector(b)))(effects)
        return density + self._rows_of_bundle(theta, effects, unit) + sizes

    def _rows_of_bundle(self, theta: Any, effects: Any, unit: Any) -> Any:
        """sum_i l_i by group, (J,)."""

        def some(part: Any) -> Any:
            rows, own, filled = part

            def strip(some_rows: Any, b: Any) -> Any:
                b = self.groups.vector(b)
                return jax.vmap(lambda row: _term(self.log_likelihood, theta, b, row))(some_rows)

            terms = jax.vmap(strip)(rows, own)
            return jnp.sum(jnp.where(inside(filled, terms.shape[1]), terms, 0), axis=1)

        rows = in_strips(unit["rows"], unit)
        strips = rows, by_strip(effects, unit), unit["filled"]
        count = -(-jax.tree.leaves(unit["rows"])[0].shape[0] // TOGETHER)
        if count == 1:
            return add_up(some(strips), unit)
        parts = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), strips)
        return add_up(jnp.ravel(jax.lax.map(jax.checkpoint(some), parts)), unit)

    def __call__(self, theta: Any, vector: Any, unit: Any) -> Any:
        """log p_g, and of a bundle the sum of it over its groups."""
        found = jax.nn.logsumexp(self._terms(theta, vector, unit)[1], axis=-1)
        return jnp.sum(jnp.where(unit["group"] >= 0, found, 0)) if is_bundle(unit) else found

    def within(self, near: Any, unit: Any) -> Any:
        """log p_g, of the numbers that the unit reads."""
        assert self.reads is not None
        return jax.nn.logsumexp(self._near_terms(self.reads.theta(near, unit), near, unit)[1])

    def row_parts(self, theta: Any, free: Any, row: Any, unit: Any) -> Any:
        """l_i at the nodes about `free`, (k,)."""
        effects = jax.vmap(lambda each: self.stretched(theta, each, unit)[0])(self._about(free, unit))
        return jax.vmap(lambda b: _term(self.log_likelihood, theta, self.groups.vector(b), row))(effects)

    def whole(self, theta: Any, free: Any, sums: Any, unit: Any) -> Any:
        """log p_g, of the sums of these parts over rows."""
        rule = normal_nodes(self.nodes, self.groups.size)

        def rest(each: Any) -> Any:
            b, size = self.stretched(theta, each, unit)
            return self.groups.log_density(theta, self.groups.vector(b)) + size

        values = jax.vmap(rest)(self._about(free, unit)) + sums
        size = jnp.sum(jnp.log(jnp.diagonal(unit["root"])))
        return jax.nn.logsumexp(jnp.asarray(rule.log_weights, free.dtype) + size + values)

    def by_row(self, theta: Any, vector: Any, unit: Any) -> tuple[Any, Any]:
        """Of a unit of one group: l_i at the nodes (k, rows), 0 of padding; and what each node adds to p_g, (k,)."""
        if self.reads is not None:
            vector = self.reads.near(vector, unit)
            theta = self.reads.theta(vector, unit)
        effects, sizes = jax.vmap(lambda free: self.stretched(theta, free, unit))(
            self._about(unit["centre"] + unit["slope"] @ vector, unit)
        )
        length = jax.tree.leaves(unit["rows"])[0].shape[0]
        inside = jnp.arange(length, dtype=jnp.int32) < unit["count"]

        def rest(effect: Any) -> tuple[Any, Any]:
            b = self.groups.vector(effect)
            terms = jax.vmap(lambda row: _term(self.log_likelihood, theta, b, row))(unit["rows"])
            return self.groups.log_density(theta, b), jnp.where(inside, terms, 0)

        densities, terms = jax.vmap(rest)(effects)
        size = jnp.sum(jnp.log(jnp.diagonal(unit["root"])))
        log_weights = jnp.asarray(normal_nodes(self.nodes, self.groups.size).log_weights, vector.dtype)
        return terms, log_weights + size + sizes + densities + jnp.sum(terms, axis=1)

    def _about(self, free: Any, unit: Any) -> Any:
        """Nodes (k, q) about a centre."""
        points = normal_nodes(self.nodes, self.groups.size).points
        return free + jnp.asarray(points, free.dtype) @ unit["root"].T

    def law(self, theta: Any, vector: Any, unit: Any) -> tuple[Any, Any]:
        """Of the effect given theta and the group's rows: nodes (k, q), and the share that each of them has."""
        points, terms = self._terms(theta, vector, unit)
        return points, jax.nn.softmax(terms, axis=-1)

    def log_density(self, theta: Any, vector: Any, unit: Any) -> Callable[[Any], Any]:
        """log p(b | theta, rows of the group) as a function of q numbers, up to a constant."""
        own = theta if self.reads is None else self.reads.theta(self.reads.near(vector, unit), unit)

        def at(effect: Any) -> Any:
            b = self.groups.vector(effect)
            return self.groups.log_density(own, b) + self._rows(own, b, unit)

        return at

    def moments(self, theta: Any, vector: Any, unit: Any) -> EffectMoments:
        """Of the effect as it is shown, given theta and the group's rows; of a bundle, group by group."""
        points, share = self.law(theta, vector, unit)
        if is_bundle(unit):
            return jax.vmap(partial(self._moments, theta))(points, share)
        return self._moments(theta, points, share)

    def _moments(self, theta: Any, points: Any, share: Any) -> EffectMoments:
        shown = jax.vmap(lambda b: self.shown(theta, b))(points)
        mean = share @ shown
        return EffectMoments(mean, *(share @ (shown - mean) ** power for power in (2, 3, 4)))

    def expectation(self, function: Callable[[Any, Any], Any], theta: Any, vector: Any, unit: Any) -> Any:
        """E f(theta, b) over the group's effect given theta."""
        points, share = self.law(theta, vector, unit)
        values = jax.vmap(lambda b: function(theta, self.groups.vector(b)))(points)
        return jnp.tensordot(share, values, 1)

    def shown(self, theta: Any, effect: Any) -> Any:
        b = self.groups.vector(effect)
        return jnp.ravel(b if self.groups.shown is None else jnp.asarray(self.groups.shown(theta, b)))

    def _terms(self, theta: Any, vector: Any, unit: Any) -> tuple[Any, Any]:
        """Effects at the nodes (k, q), and the logarithm of what each adds; of a bundle, group by group."""
        if is_bundle(unit):
            return self._terms_of_bundle(theta, vector, unit)
        if self.reads is None:
            return self._near_terms(theta, vector, unit)
        near = self.reads.near(vector, unit)
        return self._near_terms(self.reads.theta(near, unit), near, unit)

    def _terms_of_bundle(self, theta: Any, vector: Any, unit: Any) -> tuple[Any, Any]:
        rule, own = normal_nodes(self.nodes, self.groups.size), groups_in(unit)
        points = jax.vmap(lambda each: self._about(each["centre"] + each["slope"] @ vector, each))(own)
        sizes = jnp.sum(jnp.log(jnp.diagonal(own["root"], axis1=1, axis2=2)), axis=1)
        values = jax.vmap(lambda free: self.joint(theta, free, unit), 1, 1)(points)

        def effects(some: Any, each: Any) -> Any:
            return jax.vmap(lambda free: self.stretched(theta, free, each)[0])(some)

        log_weights = jnp.asarray(rule.log_weights, vector.dtype)
        return jax.vmap(effects)(points, own), log_weights + sizes[:, None] + values

    def _near_terms(self, theta: Any, vector: Any, unit: Any) -> tuple[Any, Any]:
        rule = normal_nodes(self.nodes, self.groups.size)
        dtype = vector.dtype
        points = self._about(unit["centre"] + unit["slope"] @ vector, unit)
        size = jnp.sum(jnp.log(jnp.diagonal(unit["root"])))
        values = jax.vmap(lambda free: self.joint(theta, free, unit))(points)
        effects = jax.vmap(lambda free: self.stretched(theta, free, unit)[0])(points)
        return effects, jnp.asarray(rule.log_weights, dtype) + size + values


def _term(log_likelihood: Callable[[Any, Any, Any], Any], theta: Any, b: Any, row: Any) -> Any:
    if not isinstance(row, dict) or WEIGHT not in row:
        return log_likelihood(theta, b, row)
    return row[WEIGHT] * log_likelihood(theta, b, {name: each for name, each in row.items() if name != WEIGHT})


def new_unit(unit: Any) -> Any:
    """A unit like this one of a group without rows."""
    empty = {name: 0 * leaf for name, leaf in unit.items() if name in EMPTY}
    if "root" in unit:
        empty["root"] = 0 * unit["root"] + jnp.eye(unit["root"].shape[-1], dtype=unit["root"].dtype)
    return {**unit, **empty}


def first_nodes(unit: Any) -> int:
    """Nodes a direction to begin with, by the length of a unit; of a bundle, by its groups' on average."""
    length = jax.tree.leaves(unit["rows"])[0].shape[0]
    if is_bundle(unit):
        length = length // len(unit["count"])
    known = FIRST_NODES_BESIDE if "reads" in unit else FIRST_NODES
    return next(count for most, count in known.items() if length <= most)


class Rule(NamedTuple):
    """Nodes (k, q), and log w_k + |x_k|^2 / 2 + q/2 log 2 pi."""

    points: np.ndarray
    log_weights: np.ndarray


@cache
def normal_nodes(count: int, size: int) -> Rule:
    """Gauss and Hermite's rule with `count` nodes in each of `size` directions."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    one = np.log(w / w.sum()) + x**2 / 2 + np.log(2 * np.pi) / 2
    points = np.stack(np.meshgrid(*[x] * size, indexing="ij"), axis=-1).reshape(-1, size)
    weights = np.sum(np.stack(np.meshgrid(*[one] * size, indexing="ij"), axis=-1), axis=-1).ravel()
    return Rule(points, weights)
