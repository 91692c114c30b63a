"""Predictions of rows that belong to groups: expectations over the posterior of theta and of the row's own effects.

    m(theta) = sum_k omega_k(theta) f(eta(theta, b_k)),     v(theta) = sum_k omega_k(theta) (f - m)^2
    mean = E m,     sd^2 = E v + Var m

f is the mean response of a row, and omega_k the shares of the nodes of its group (`model.groups`): `sd` is that of f
over theta and b together. A new group of a mixed model has b ~ N(0, D), and so has a level that is not known of a
factor whose effects are parameters; all of these make one normal number of eta,

    eta = x . beta + known effects + s t,     s^2 = sum z . D z over what is new,     t ~ N(0, 1)

which Gauss and Hermite's nodes integrate. What nodes are off by, held against twice as many and one at the mode and at
some draws about it, is part of every bias bound. Rows of a group are read together, some at a time, so that its nodes
are found once for all of them and never for all groups at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.groups.known import KnownGroups
from tallbayes.model.groups.integral import GroupIntegral
from tallbayes.model.groups.terms import EffectTerm, root_of
from tallbayes.model.links import Wanted
from tallbayes.model.noise import Noise
from tallbayes.model.parts.extras import ExtraPart, coordinates, first_of
from tallbayes.model.space import Space
from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.prediction import Prediction
from tallbayes.posterior.prediction_errors import of_root
from tallbayes.posterior.predictor import PATHS_READ, OwnResponse, Predictor, ends_of
from tallbayes.programs.compilation import compiled

# Of an sd: what the error of a mean, and that of the sd itself, may be of all but a tenth of the rows.
ACCURACY, SD_ACCURACY = 0.01, 0.1
# Of the former: what nodes and float32 may be off by together, so that float32 will do.
ROUNDED = 0.25
# Of a ladder by level, and of draws with weights, whose errors a few do not show.
FEWEST_PATHS, FEWEST_DRAWS, FEWEST_PAIRS, MOST_PAIRS, PROBES = 16, 128, 16, 256, 2
PILOT_ITEMS, CHECKED_ITEMS, CHECKED_TOGETHER, MOST_TOGETHER = 32, 64, 8, 256
CHUNK_NUMBERS = 2**23
# Nodes of a new group, and a direction where its law is its owner's own.
NEW_NODES, OWN_NEW_NODES = 31, {1: 31, 2: 15, 3: 9}


class Given(NamedTuple):
    """Of a row, given theta: mean and variance of every output over its effects, and E Var(y | theta, b)."""

    mean: Any
    variance: Any
    noise: Any


class MixedOutcome(NamedTuple):
    """What is asked of a row of a mixed model: outputs of its eta, with `nodes` for what is new of it, if anything.

    A row is {"x", "offset", "z0"} and of every other term its "z" and "level", -1 for one that is not known; with
    `new_group` the first term's is new too."""

    wanted: Wanted
    terms: tuple[EffectTerm, ...]
    extras: tuple[ExtraPart, ...]
    noise: Noise | None
    new_group: bool = False
    nodes: int = 1

    def __call__(self, theta: Any, points: Any, share: Any, row: Any) -> Given:
        """Over points (k, q) of the first term's effects in its own coordinates, with shares."""
        eta, variance, root = self._known(theta, row)
        etas = eta + points @ root
        if self.new_group:
            variance = variance + jnp.sum(root**2)
        if self.nodes > 1:
            x, w = np.polynomial.hermite_e.hermegauss(self.nodes)
            # A root has no slope at 0, where nothing is new.
            sd = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1.0)), 0.0)
            etas = jnp.ravel(etas[:, None] + sd * jnp.asarray(x, etas.dtype))
            share = jnp.ravel(share[:, None] * jnp.asarray(w / w.sum(), etas.dtype))
        return _given(share, self._values(theta, etas), noise_given(self.noise, first_of(self.extras), theta))

    def given(self, theta: Any, points: Any, row: Any) -> Any:
        """Outputs (k, o) at points (k, q), where all groups of the row are known."""
        eta, _, root = self._known(theta, row)
        return self._values(theta, eta + points @ root)

    def _known(self, theta: Any, row: Any) -> tuple[Any, Any, Any]:
        """eta by all that is known but for the first term, the variance of what is not, and what points are times."""
        eta = row["x"] @ theta["coefficients"] + row["offset"]
        if "intercept" in theta:
            eta = eta + theta["intercept"]
        variance = jnp.zeros_like(eta)
        for place, term in enumerate(self.terms[1:], 1):
            z, level = row[f"z{place}"], row[f"level{place}"]
            own = z @ jnp.take(theta[f"effects{place}"], jnp.maximum(level, 0), axis=0)
            eta = eta + jnp.where(level >= 0, own, 0.0)
            variance = variance + jnp.where(level >= 0, 0.0, jnp.sum((root_of(term, theta, place).T @ z) ** 2))
        return eta, variance, root_of(self.terms[0], theta, 0).T @ row["z0"]

    def _values(self, theta: Any, etas: Any) -> Any:
        """Outputs (k, o) of etas (k,)."""
        beside = [part for each in coordinates(self.extras, theta) for part in each]
        return self.wanted(jnp.stack([etas, *(jnp.broadcast_to(part, etas.shape) for part in beside)])).T


class OwnOutcome(NamedTuple):
    """What a model of its owner's predicts of a row: predict(theta, b, row)."""

    function: Callable[[Any, Any, Any], Any]
    integral: GroupIntegral

    def __call__(self, theta: Any, points: Any, share: Any, row: Any) -> Given:
        return _given(share, self.given(theta, points, row), None)

    def given(self, theta: Any, points: Any, row: Any) -> Any:
        def value(b: Any) -> Any:
            leaves = jax.tree.leaves(self.function(theta, self.integral.groups.vector(b), row))
            return jnp.concatenate([jnp.ravel(leaf).astype(points.dtype) for leaf in leaves])

        return jax.vmap(value)(points)


def _given(share: Any, values: Any, noise: Callable[[Any], Any] | None) -> Given:
    mean = share @ values
    spread = jnp.zeros((), mean.dtype) if noise is None else share @ noise(values[:, 0])
    return Given(mean, share @ (values - mean) ** 2, spread)


def noise_given(noise: Noise | None, extra: str | None, theta: Any) -> Callable[[Any], Any] | None:
    """Var(y | theta, b) of mean responses; None where there is none to tell, as of a class."""
    if noise is None or not noise.facts.is_plain or noise.facts.response not in ("real", "count"):
        return None
    if not noise.is_count:
        scale: Any = noise.scale if extra is None else theta[extra]
        return lambda mean: jnp.full_like(mean, noise.unit_variance) * scale**2
    return lambda mean: mean if extra is None else mean + theta[extra] * mean**2


class OfRows(NamedTuple):
    """Moments of the rows of an item, {"unit": their group, "rows": (m, ...)}, given theta's place in R^d; without an
    integral they are of no group that is known."""

    space: Space
    outcome: MixedOutcome | OwnOutcome
    integral: GroupIntegral | None

    def __call__(self, vector: jax.Array, item: Any) -> jax.Array:
        theta = self.space.theta(vector)
        if self.integral is None:
            assert isinstance(self.outcome, MixedOutcome)
            points, share = jnp.zeros((1, self.outcome.terms[0].size), vector.dtype), jnp.ones(1, vector.dtype)
        else:
            points, share = self.integral.law(theta, vector, item["unit"])
        found = jax.vmap(lambda row: self.outcome(theta, points, share, row))(item["rows"])
        return jnp.concatenate([jnp.ravel(part) for part in found])

    @property
    def finer(self) -> OfRows:
        """With twice as many nodes and one."""
        integral = None if self.integral is None else replace(self.integral, nodes=2 * self.integral.nodes + 1)
        outcome = self.outcome
        if isinstance(outcome, MixedOutcome) and outcome.nodes > 1:
            outcome = outcome._replace(nodes=2 * outcome.nodes + 1)
        return self._replace(outcome=outcome, integral=integral)

    @property
    def bears_float32(self) -> bool:
        """Whether it may: sums in closed form cancel, and of a function of its owner's nothing is known."""
        is_open = self.integral is None or isinstance(self.integral, GroupIntegral)
        return is_open and isinstance(self.outcome, MixedOutcome)

    def work(self, item: Any) -> int:
        """Densities and outcomes of one item."""
        rows = jax.tree.leaves(item["rows"])[0].shape[1]
        nodes = 1 if self.integral is None else self.integral.nodes**self.integral.groups.size
        length = jax.tree.leaves(item["unit"]["rows"])[0].shape[1] if "rows" in item.get("unit", ()) else 0
        new = self.outcome.nodes if isinstance(self.outcome, MixedOutcome) else 1
        return int(nodes * (length + rows * new))


class Predicted(NamedTuple):
    """Of rows in their order: outputs (rows, o), and E Var(y | theta, b) with its error."""

    outputs: Prediction
    noise: Floats
    noise_error: Floats


@dataclass(eq=False)
class GroupPredictor:
    """A posterior made ready to predict rows of groups, batch after batch; `known` may be missing where all are new."""

    posterior: Posterior
    space: Space
    outcome: MixedOutcome | OwnOutcome
    known: KnownGroups | None
    new_unit: Any = None
    # By what is integrated, and how long its groups are.
    widths: dict[tuple[OfRows, int], int] = field(default_factory=dict)
    made: dict[tuple[OfRows, int], Predictor] = field(default_factory=dict)

    def __call__(self, rows: Any, places: np.ndarray) -> Predicted:
        """Of rows whose groups are at these places among those that are known, -1 for a new one."""
        count, parts = len(places), []
        for kind, some in self._kinds(rows, places):
            own = jax.tree.map(lambda leaf, some=some: np.asarray(leaf)[some], rows)
            parts.append((some, self._predicted(kind, own, places[some])))
        assert sum(len(some) for some, _ in parts) == count
        return _put_back(parts)

    def _kinds(self, rows: Any, places: np.ndarray) -> Iterator[tuple[OfRows, np.ndarray]]:
        """Rows by what has to be integrated for them."""
        if isinstance(self.outcome, OwnOutcome):
            integral = self.outcome.integral
            wider = replace(integral, nodes=max(integral.nodes, OWN_NEW_NODES[integral.groups.size]))
            kinds = {0: OfRows(self.space, self.outcome, integral), 1: OfRows(self.space, self.outcome, wider)}
            which = (places < 0).astype(int)
        else:
            integral_of_known = None if self.known is None else self.known.integral
            new = np.zeros(len(places), bool)
            for place in range(1, len(self.outcome.terms)):
                new |= rows[f"level{place}"] < 0
            which = np.where(places < 0, 2, new.astype(int))
            alone = self.outcome._replace(new_group=True, nodes=NEW_NODES)
            kinds = {
                0: OfRows(self.space, self.outcome, integral_of_known),
                1: OfRows(self.space, self.outcome._replace(nodes=NEW_NODES), integral_of_known),
                2: OfRows(self.space, alone, None),
            }
        for each, kind in kinds.items():
            some = np.flatnonzero(which == each)
            if len(some):
                yield kind, some

    def _predicted(self, kind: OfRows, rows: Any, places: np.ndarray) -> Predicted:
        if self.known is None or kind.integral is None:
            return self._of_length(kind, rows, places, 0)
        lengths, parts = self.known.lengths(places), []
        for length in np.unique(lengths):
            some = np.flatnonzero(lengths == length)
            own = jax.tree.map(lambda leaf, some=some: leaf[some], rows)
            parts.append((some, self._of_length(kind, own, places[some], int(length))))
        return _put_back(parts)

    def _of_length(self, kind: OfRows, rows: Any, places: np.ndarray, length: int) -> Predicted:
        # One program for all batches.
        width = self.widths.setdefault((kind, length), 1 if kind.integral is None else _together(places))
        index, groups, inside = _items(places, width)
        size = _chunk(self._item(kind, rows, index[:1], groups[:1], length))
        found, apart = [], []
        for start in range(0, len(groups), size):
            item = self._item(kind, rows, index[start : start + size], groups[start : start + size], length)
            if (kind, length) not in self.made:
                self.made[kind, length] = _chosen(self.posterior, kind, item)
            predictor = self.made[kind, length]
            dtype = predictor.levels[0].dtype.name
            found.append(predictor.all(_in(dtype, item)))
            apart.append(_off(self.posterior, kind, item, dtype))
        moments = Prediction.joined(found)
        whole = _concluded(moments, np.concatenate(apart), width, self.posterior.rungs.left)
        back = np.argsort(index[inside], kind="stable")
        flat = [part[inside.ravel()][back] for part in whole[1:]]
        return Predicted(_taken(_taken(whole.outputs, np.flatnonzero(inside.ravel())), back), *flat)

    def _item(self, kind: OfRows, rows: Any, index: np.ndarray, groups: np.ndarray, length: int) -> Any:
        item = {"rows": jax.tree.map(lambda leaf: np.asarray(leaf)[index], rows)}
        if kind.integral is None:
            return item
        if groups[0] < 0:
            unit = jax.tree.map(lambda leaf: np.repeat(leaf, len(groups), axis=0), self.new_unit)
            return item | {"unit": unit}
        assert self.known is not None
        return item | {"unit": self.known.take(groups, length)}


def _put_back(parts: list[tuple[np.ndarray, Predicted]]) -> Predicted:
    """Predictions of some of the rows each, in the order of all rows."""
    order = np.argsort(np.concatenate([some for some, _ in parts]), kind="stable")
    outputs = Prediction.joined([part.outputs for _, part in parts])
    arrays = [np.concatenate([getattr(part, name) for _, part in parts])[order] for name in Predicted._fields[1:]]
    return Predicted(_taken(outputs, order), *arrays)


def _together(places: np.ndarray) -> int:
    """Rows of a group that are read together, a power of two: as many as most groups have."""
    share = len(places) / len(np.unique(places))
    return 1 << int(np.ceil(np.log2(min(share, MOST_TOGETHER))))


def _items(places: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows put together by group, `width` at the most: which rows (items, width), of which group, and what is padding
    and repeats a row."""
    order = np.argsort(places, kind="stable")
    groups, firsts, counts = np.unique(places[order], return_index=True, return_counts=True)
    pieces = -(-counts // width)
    before = np.cumsum(pieces) - pieces
    which = np.repeat(np.arange(len(groups)), counts)
    at = np.arange(len(order)) - firsts[which]
    index = np.repeat(np.repeat(order[firsts], pieces)[:, None], width, axis=1)
    inside = np.zeros(index.shape, bool)
    spot = before[which] + at // width, at % width
    index[spot], inside[spot] = order, True
    return index, np.repeat(groups, pieces), inside


def _chunk(item: Any) -> int:
    """Items whose arrays are made together, a power of two."""
    numbers = sum(leaf.size for leaf in jax.tree.leaves(item))
    return 1 << max(int(np.log2(max(CHUNK_NUMBERS // numbers, 1))), 0)


def _chosen(posterior: Posterior, kind: OfRows, item: Any) -> Predictor:
    """With as many paths as bring the error of a mean to a small part of its sd, and pairs of draws that of the sd: the
    fewest, which are tried first, where they do. In float32 where that does, too."""
    count, width = len(jax.tree.leaves(item)[0]), jax.tree.leaves(item["rows"])[0].shape[1]
    some = np.unique(np.linspace(0, count - 1, min(count, PILOT_ITEMS)).astype(int))
    items = jax.tree.map(lambda leaf: leaf[some], item)
    fewest = FEWEST_PATHS if posterior.weighted is None else FEWEST_DRAWS
    for dtype in ("float32", "float64") if kind.bears_float32 else ("float64",):
        levels = [ends_of(posterior, level, np.dtype(dtype)) for level in range(len(posterior.points))]
        response = OwnResponse(kind, lines=False, work=kind.work(item))
        few = Predictor(posterior, response, tuple(each[:, :fewest] for each in levels), FEWEST_PAIRS)
        pilot = few.all(_in(dtype, items))
        found = _concluded(pilot, np.zeros_like(pilot.mean), width, 0.0).outputs
        if dtype == "float64":
            break
        off = _concluded(pilot, _off(posterior, kind, items, dtype), width, 0.0).outputs
        if np.quantile((off.bias_bound - found.bias_bound) / found.sd, 0.9) <= ROUNDED * ACCURACY:
            break
    shares = found.standard_error / (ACCURACY * found.sd), found.sd_standard_error / (SD_ACCURACY * found.sd)
    paths, pairs = (np.nan_to_num(np.quantile(each**2, 0.9), nan=1.0, posinf=np.inf) for each in shares)
    wanted = np.minimum(max(paths, pairs, 1.0) * fewest, PATHS_READ)
    need = [int(np.clip(np.ceil(wanted), 1, each.shape[1])) for each in levels]
    pairs = int(np.clip(np.ceil(max(paths, pairs) * FEWEST_PAIRS), FEWEST_PAIRS, MOST_PAIRS))
    return replace(few, levels=tuple(each[:, :n] for each, n in zip(levels, need, strict=True)), pairs=pairs)


def _in(dtype: str, items: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if leaf.dtype.kind == "f" else leaf, items)


def _off(posterior: Posterior, kind: OfRows, items: Any, dtype: str) -> Floats:
    """How far moments in this type are from those in float64 by twice as many nodes and one: the most, at the mode and
    at draws about it."""
    half = posterior.anchor.draws(PROBES, posterior.seed)
    points = posterior.anchor.mode + np.concatenate([np.zeros((1, half.shape[1])), half, -half])
    count, parts = len(jax.tree.leaves(items)[0]), []
    size = min(CHECKED_ITEMS, 1 << (count - 1).bit_length())
    with jax.enable_x64(True):
        for start in range(0, count, size):
            index = np.minimum(np.arange(start, start + size), count - 1)
            part = jax.tree.map(lambda leaf, index=index: leaf[index], items)
            parts.append(np.asarray(compiled(_apart)((kind, kind.finer, dtype), part, points)))
    return np.concatenate(parts)[:count]


def _apart(static: tuple[OfRows, OfRows, str], items: Any, points: jax.Array) -> jax.Array:
    own, finer, dtype = static

    def most(item: Any) -> jax.Array:
        rounded, wide = _in(dtype, item), _in("float64", item)
        apart = jax.lax.map(lambda point: jnp.abs(finer(point, wide) - own(point.astype(dtype), rounded)), points)
        return jnp.max(apart, axis=0)

    return jax.lax.map(most, items, batch_size=CHECKED_TOGETHER)


@np.errstate(invalid="ignore", divide="ignore", over="ignore")
def _concluded(found: Prediction, off: Floats, width: int, left: float) -> Predicted:
    """From moments by item to predictions by row, padding included."""
    size = (found.mean.shape[1] - width) // 2

    def by_row(array: Floats, part: int) -> Floats:
        return array[:, part * size : (part + 1) * size].reshape(len(array) * width, -1)

    between, variance = by_row(found.sd, 0), by_row(found.mean, 1)
    sd = np.sqrt(np.maximum(variance + between**2, 0.0))
    error = by_row(found.standard_error, 1) + 2 * between * by_row(found.sd_standard_error, 0)
    bias = by_row(found.bias_bound, 1) + by_row(off, 1) + 2 * between * by_row(found.sd_bias_bound, 0)
    outputs = Prediction(
        mean=by_row(found.mean, 0),
        sd=sd,
        standard_error=by_row(found.standard_error, 0),
        bias_bound=by_row(found.bias_bound, 0) + by_row(off, 0) + left * sd,
        sd_standard_error=of_root(error, sd),
        sd_bias_bound=of_root(bias, sd) + left * sd,
    )
    noise, noise_error = (each[:, 2 * size :].ravel() for each in (found.mean, found.error + off))
    return Predicted(outputs, np.maximum(noise, 0.0), noise_error)


def _taken(found: Prediction, rows: np.ndarray) -> Prediction:
    arrays = found.mean, found.sd, found.standard_error, found.bias_bound
    return Prediction(*(each[rows] for each in (*arrays, found.sd_standard_error, found.sd_bias_bound)))
