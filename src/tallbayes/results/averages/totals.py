"""Totals: averages at the centre with their slopes, by one pass over all units, and elsewhere by a sample of them.

    A_t(u) = sum_i c_i E_b f_i(u, b) / sum_i w_i,     t a level of `by` and an output, of low and of high

    A(c + d) = A(c) + g . d + R(d),     R a sum over units of what is beyond the first order
    V(c + d) = V(c) + what it moves,    V_st = sum over units of Cov_b (s, t)  given theta

A, g and V at the centre are exact. V is that of the contrasts that are asked for, which hang on the effects of groups
as far as these are not known given theta; s and t are straight in A, about the centre. R, and what V moves, is summed
over all units where they are few, else over a sample drawn with priorities (see `sums`): the size of a unit is how far
it is from straight at some draws of the Gaussian and their opposites, so that one which matters is always there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.results.averages.kinds import Kind
from tallbayes.results.averages.sums import GROUPS, SEED
from tallbayes.results.averages.units import Units

# Of one program, densities and numbers; and opposite draws by which units are sized.
MOST_TOGETHER, MOST_NUMBERS, TILE = 2**19, 2**22, 64
SIZED_PAIRS = 2
FEWEST_UNITS = 64


class SumsGiven(NamedTuple):
    """Sums over units, given theta: of both sides by target, (T, 2); of the contrasts their covariance (T, T), third
    and fourth cumulants (T,), squares of variances, and the variance of the low side; nothing where no effects are
    unknown."""

    mean: Any
    covariance: Any
    third: Any
    fourth: Any
    square: Any
    low: Any


class UnitSums(NamedTuple):
    """What shapes the programs: a kind, and how many levels and outputs there are."""

    kind: Kind
    levels: int
    outputs: int

    @property
    def targets(self) -> int:
        return self.levels * self.outputs

    def given(self, vector: jax.Array, item: Any, gradient: jax.Array) -> SumsGiven:
        """Of one unit."""
        values, share = self.kind.read(vector, item.get("unit"))
        total = self._sums(values, item).reshape(self.targets, 2, -1)
        mean = total @ share
        if not self.kind.varies:
            nothing = jnp.zeros(0, vector.dtype)
            return SumsGiven(mean, jnp.zeros((0, 0), vector.dtype), nothing, nothing, nothing, nothing)
        apart = jnp.einsum("tv,tvk->tk", gradient, total - mean[..., None])
        covariance, lows = (share * apart) @ apart.T, total[:, 0] - mean[:, :1]
        square = jnp.diagonal(covariance) ** 2
        fourth = apart**4 @ share - 3 * square
        return SumsGiven(mean, covariance, apart**3 @ share, fourth, square, lows**2 @ share)

    def _sums(self, values: Any, item: Any) -> Any:
        """sum_i c_i f_i by level, (levels, outputs, 2, k)."""

        def some(part: Any) -> Any:
            rows, scales, labels = part
            found = jax.vmap(lambda row: jnp.stack([values(_side(row, v)) for v in (0, 1)]))(rows)
            member = (labels[:, None] == jnp.arange(self.levels, dtype=labels.dtype)) * scales[:, None]
            return jnp.einsum("rl,rvko->lovk", member.astype(found.dtype), found)

        parts, length = (item["rows"], item["scales"], item["labels"]), item["scales"].shape[0]
        if length <= TILE:
            return some(parts)
        tiles = jax.tree.map(lambda leaf: leaf.reshape(length // TILE, TILE, *leaf.shape[1:]), parts)
        return jnp.sum(jax.lax.map(jax.checkpoint(some), tiles), axis=0)


def _side(row: Any, which: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[which], row)


@dataclass(frozen=True, eq=False)
class Pass:
    """All units at the centre: their sums, and g (T, 2, D)."""

    given: SumsGiven
    slope: Floats
    sample: Sample


@dataclass(eq=False)
class Sample:
    """Units that are kept, with the smallest keys, by length: keys, sizes and the units themselves."""

    most: int
    kept: dict[int, tuple[Floats, Floats, Units]] = field(default_factory=dict)

    def add(self, keys: Floats, sizes: Floats, units: Units) -> None:
        if len(keys) > self.most + 1:
            some = np.argpartition(keys, self.most)[: self.most + 1]
            keys, sizes, units = keys[some], sizes[some], units.take(some)
        if units.length in self.kept:
            own = self.kept[units.length]
            keys, sizes = np.concatenate([own[0], keys]), np.concatenate([own[1], sizes])
            units = Units.joined([own[2], units])
        self.kept[units.length] = keys, sizes, units
        every = np.concatenate([each[0] for each in self.kept.values()])
        if len(every) > self.most + 1:
            edge = np.partition(every, self.most)[self.most]
            for length, (keys, sizes, units) in list(self.kept.items()):
                stays = np.flatnonzero(keys <= edge)
                self.kept[length] = keys[stays], sizes[stays], units.take(stays)

    def weighted(self) -> list[tuple[Units, Floats]]:
        """Units with what they stand for, by group of the sample (units, 1 + GROUPS), those that are certain first."""
        every = np.sort(np.concatenate([each[0] for each in self.kept.values()]))
        edge = every[self.most] if len(every) > self.most else np.inf
        found: list[tuple[Units, Floats]] = []
        first = 0
        for keys, sizes, units in self.kept.values():
            some = np.flatnonzero(keys < edge)
            with np.errstate(divide="ignore"):
                weights = np.maximum(1.0, 1 / (sizes[some] * edge)) if np.isfinite(edge) else np.ones(len(some))
            groups = np.where(weights > 1, (first + np.arange(len(some))) % GROUPS, -1)
            first += len(some)
            member = np.zeros((len(some), 1 + GROUPS))
            member[np.arange(len(some)), groups + 1] = weights
            # Of a length at which no unit is kept there is nothing.
            found += [(units.take(some), member)] if len(some) else []
        return found


@dataclass(frozen=True, eq=False)
class Averager:
    """Units with their nodes, and a posterior's centre: what the pass and the sample are made by; `take` gives units of
    groups at some places."""

    sums: UnitSums
    posterior: Posterior
    gradient: Floats
    take: Callable[[np.ndarray], Any] | None

    def work(self, units: Units | None) -> float:
        """What a row of these takes at one point, its group's own rows included."""
        if units is None:
            raise DataError(explain("rows to average over", "none that is complete", "check the table"))
        one = self.item(units.take(np.arange(1)), 1)
        return self.sums.kind.work(one.get("unit"), units.length) * self.sums.outputs / units.length

    def item(self, units: Units, count: int) -> Any:
        """Units as programs read them, repeated to so many without counting."""
        index = np.minimum(np.arange(count), len(units) - 1)
        scales = np.where((np.arange(count) < len(units))[:, None], units.scales[index], 0.0)
        rows = jax.tree.map(lambda leaf: leaf[index], units.rows)
        item = {"rows": rows, "scales": scales, "labels": units.labels[index]}
        return item if self.take is None else item | {"unit": self.take(units.places[index])}

    def together(self, units: Units, points: int = 1) -> int:
        """How many units of these make one program, a power of two."""
        one = self.item(units.take(np.arange(1)), 1)
        work = self.sums.kind.work(one.get("unit"), units.length) * self.sums.outputs
        slopes = 2 * self.sums.targets * len(self.posterior.anchor.mode)
        most = min(MOST_TOGETHER // (work * points), MOST_NUMBERS // slopes, 1 << (len(units) - 1).bit_length())
        return 1 << max(int(most).bit_length() - 1, 0)

    def over(self, units: Iterable[Units], most: int) -> Pass:
        """The pass, with a sample of so many units."""
        posterior, rng = self.posterior, np.random.default_rng(SEED)
        half = posterior.anchor.draws(SIZED_PAIRS, posterior.seed)
        points = posterior.anchor.mode + np.concatenate([np.zeros((1, half.shape[1])), half, -half])
        sample, least, totals = Sample(max(most, FEWEST_UNITS)), 0.0, None
        with jax.enable_x64(True):
            for each in units:
                size = self.together(each, 2 * SIZED_PAIRS + 1)
                sizes = []
                for start in range(0, len(each), size):
                    part = each.take(np.arange(start, min(start + size, len(each))))
                    found = compiled(_totals)(self.sums, self.item(part, size), points, self.gradient)
                    *parts, own = jax.tree.map(np.asarray, found)
                    totals = parts if totals is None else jax.tree.map(np.add, totals, parts)
                    sizes.append(own[: len(part)])
                own = np.concatenate(sizes)
                least = least or float(own.mean()) or 1.0
                own = own + least
                sample.add(rng.random(len(own)) / own, own, each)
        if totals is None:
            raise DataError(explain("rows to average over", "none that is complete", "check the table"))
        given, slope = totals
        return Pass(given, slope, sample)

    def moved(self, done: Pass, moves: Floats) -> tuple[Floats, Floats, bool]:
        """R and what V moves, at displacements (points, D): (points, 1 + GROUPS, T, 2) and (.., T, T), by group of the
        sample; and whether all units are certain."""
        mean: Any = 0.0
        covariance: Any = 0.0
        whole = True
        with jax.enable_x64(True):
            for units, member in done.sample.weighted():
                whole &= bool(np.all(member[:, 1:] == 0))
                size = self.together(units)
                for start in range(0, len(units), size):
                    part = units.take(np.arange(start, min(start + size, len(units))))
                    own = np.zeros((size, member.shape[1]))
                    own[: len(part)] = member[start : start + size]
                    found = self._moved(self.item(part, size), own, moves)
                    mean, covariance = mean + found[0], covariance + found[1]
        return mean, covariance, whole

    def _moved(self, item: Any, member: Floats, moves: Floats) -> tuple[Floats, Floats]:
        count = 1 << (len(moves) - 1).bit_length()
        padded = np.zeros((count, moves.shape[1]))
        padded[: len(moves)] = moves
        centre = self.posterior.anchor.mode
        found = compiled(_moved)(self.sums, item, member, centre, padded, self.gradient)
        mean, covariance = (np.asarray(each)[: len(moves)] for each in found)
        return mean, covariance

    def off_by_nodes(self, done: Pass) -> tuple[Floats, Floats]:
        """How far the mean of the contrasts (T,) and V (T, T) are from those by twice as many nodes and one, at the
        centre and at some draws, by the sample: the most."""
        finer = self.sums.kind.finer
        targets = self.sums.targets
        if finer is None:
            return np.zeros(targets), np.zeros((targets, targets) if self.sums.kind.varies else (0, 0))
        half = self.posterior.anchor.draws(1, self.posterior.seed)
        points = self.posterior.anchor.mode + np.concatenate([np.zeros((1, half.shape[1])), half, -half])
        static = self.sums, self.sums._replace(kind=finer)
        mean: Any = 0.0
        covariance: Any = 0.0
        with jax.enable_x64(True):
            for units, member in done.sample.weighted():
                size = self.together(units, 9)
                for start in range(0, len(units), size):
                    part = units.take(np.arange(start, min(start + size, len(units))))
                    own = np.zeros(size)
                    own[: len(part)] = member[start : start + size].sum(axis=1)
                    found = compiled(_apart)(static, self.item(part, size), own, points, self.gradient)
                    mean, covariance = mean + np.asarray(found[0]), covariance + np.asarray(found[1])
        return np.abs(mean).max(axis=0), np.abs(covariance).max(axis=0)


def _totals(sums: UnitSums, items: Any, points: jax.Array, gradient: jax.Array) -> Any:
    """Sums of units at the first point, the slopes of their means, and how far each is from straight."""
    centre = points[0]

    def whole(vector: jax.Array) -> jax.Array:
        return jnp.sum(jax.vmap(lambda item: sums.given(vector, item, gradient).mean)(items), axis=0)

    slopes = jax.jacrev if 2 * sums.targets < len(centre) else jax.jacfwd
    given = jax.vmap(lambda item: sums.given(centre, item, gradient))(items)
    others = jax.lax.map(lambda point: jax.vmap(lambda item: sums.given(point, item, gradient).mean)(items), points[1:])
    bent = (others[: len(others) // 2] + others[len(others) // 2 :]) / 2 - given.mean
    sizes = jnp.max(jnp.sum(jnp.abs(bent), axis=(2, 3)), axis=0)
    return jax.tree.map(partial(jnp.sum, axis=0), given), slopes(whole)(centre), sizes


def _moved(
    sums: UnitSums, items: Any, member: jax.Array, centre: jax.Array, moves: jax.Array, gradient: jax.Array
) -> Any:
    def mean(vector: jax.Array, item: Any) -> jax.Array:
        return sums.given(vector, item, gradient).mean

    slopes = jax.jacrev if 2 * sums.targets < len(centre) else jax.jacfwd
    start = jax.vmap(lambda item: sums.given(centre, item, gradient))(items)
    slope = jax.vmap(lambda item: slopes(mean)(centre, item))(items)

    def at(move: jax.Array) -> Any:
        found = jax.vmap(lambda item: sums.given(centre + move, item, gradient))(items)
        rest = found.mean - start.mean - slope @ move
        return jnp.einsum("nj,ntv->jtv", member, rest), jnp.einsum(
            "nj,nst->jst", member, found.covariance - start.covariance
        )

    return jax.lax.map(at, moves)


def _apart(
    static: tuple[UnitSums, UnitSums], items: Any, weights: jax.Array, points: jax.Array, gradient: jax.Array
) -> Any:
    def at(point: jax.Array) -> Any:
        own, finer = (jax.vmap(lambda item, s=s: s.given(point, item, gradient))(items) for s in static)
        mean = jnp.einsum("n,ntv,tv->t", weights, finer.mean - own.mean, gradient)
        return mean, jnp.einsum("n,nst->st", weights, finer.covariance - own.covariance)

    return jax.lax.map(at, points)
