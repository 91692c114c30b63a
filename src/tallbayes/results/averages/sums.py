"""One pass over rows: averages at the centre with their slopes and bends, and a sample of rows for what is beyond.

    A_v(u) = sum_i c_i f(a_iv . u + o_iv) / sum_i w_i,   c_i = w_i / divisor_i,   v low and high
    A_v(c + d) = A_v(c) + g_v . d + d . B_v d / 2 + R_v(d),   R_v a sum over rows of what is beyond second order

A, g and B are exact, by level of `by`. R is summed over all rows where there are few, else over a sample of them drawn
with priorities (Duffield, Lund and Thorup): a row of size s_i, its share of the rest, has the key U_i / s_i; the k rows
of the smallest keys are kept, each with the weight max(1, 1 / (s_i t)), t the next key. That is unbiased, and a row
that matters is always there. Memory does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.model.links import LINKS
from tallbayes.moments import Floats
from tallbayes.results.averages.sides import Sides

MOST_LEVELS, MOST_NUMBERS = 200, 2**25
GROUPS = 16
# Of the sample of a level.
FEWEST_ROWS = 256
SEED = 20210611


class RowSample(NamedTuple):
    """Rows of one level: a_iv (2, n, D), predictors at the centre (2, n), their c with the sample's weight, and by row
    the group for the error of sampling; -1 of those that are there for certain."""

    a: Floats
    eta: Floats
    scales: Floats
    groups: np.ndarray

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows, or those left out cannot matter."""
        return bool(np.all(self.groups < 0))


@dataclass(eq=False)
class RowsOfLevel:
    """Sums over the rows of one level so far, by side; keys and rows of the sample, and sizes s."""

    most: int
    dimension: int
    rows: int = 0
    weight: float = 0.0
    value: Floats = field(default_factory=lambda: np.zeros(2))
    slope: Any = None
    bend: Any = None
    kept: list[Floats] = field(default_factory=list)

    def add(self, a: Floats, eta: Floats, w: Floats, c: Floats, terms: Floats, sizes: Floats, keys: Floats) -> None:
        """Rows (2, n, D), with f, f' and f'' of both sides, (3, 2, n)."""
        if self.slope is None:
            self.slope, self.bend = np.zeros((2, self.dimension)), np.zeros((2, self.dimension, self.dimension))
        self.rows, self.weight = self.rows + len(w), self.weight + float(w.sum())
        for side in (0, 1):
            f, slope, bend = c * terms[0, side], c * terms[1, side], c * terms[2, side]
            self.value[side] += f.sum()
            self.slope[side] += slope @ a[side]
            self.bend[side] += (a[side].T * bend) @ a[side]
        own = [keys, sizes, c, *eta]
        some = (
            np.flatnonzero(keys <= np.partition(keys, self.most)[self.most]) if len(keys) > self.most else slice(None)
        )
        new = [each[some] for each in own] + [a[0][some], a[1][some]]
        joined = [np.concatenate(pair) for pair in zip(self.kept, new, strict=True)] if self.kept else new
        if len(joined[0]) > self.most + 1:
            best = np.argpartition(joined[0], self.most)[: self.most + 1]
            joined = [each[best] for each in joined]
        self.kept = joined

    def sample(self, count: int) -> RowSample:
        """Of so many rows, which may be fewer than are kept."""
        count = min(count, self.most)
        keys, sizes, c, low, high, a_low, a_high = self.kept
        order = np.argsort(keys, kind="stable")
        some = order[:count]
        weights = np.ones(len(some))
        if len(order) > count:
            with np.errstate(divide="ignore"):
                weights = np.maximum(1.0, 1 / (sizes[some] * keys[order[count]]))
        groups = np.where(weights > 1, np.arange(len(some)) % GROUPS, -1)
        a, eta = np.stack([a_low[some], a_high[some]]), np.stack([low[some], high[some]])
        return RowSample(a, eta, c[some] * weights / self.weight, groups)


@dataclass(frozen=True, eq=False)
class Averaged:
    """All levels by name: rows (L,), and A, g and B by level and side, (L, 2, ...), at the centre; a sample each."""

    link: str
    levels: tuple[Any, ...]
    rows: tuple[int, ...]
    value: Floats
    slope: Floats
    bend: Floats
    samples: tuple[RowSample, ...]


class Predictors(NamedTuple):
    """How rows make a linear predictor of u: its link, its place in u, the centre and the roots of its spread."""

    link: str
    intercept: bool
    extras: int
    beside: int
    centre: Floats
    columns: Floats

    def rows(self, x: Floats) -> Floats:
        """Rows of A, of u without its extras; columns of an extra's own move no mean."""
        if self.beside:
            x = np.where(np.arange(x.shape[-1]) < x.shape[-1] - self.beside, x, 0.0)
        return np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1) if self.intercept else x


def average_over(sides: Iterator[Sides], predictors: Predictors, most_rows: int) -> Averaged:
    """The pass; a sample of so many rows in all."""
    levels: dict[Any, RowsOfLevel] = {}
    dimension, least = len(predictors.centre) - predictors.extras, 0.0
    centre, columns = predictors.centre[:dimension], predictors.columns[:, :dimension]
    rng = np.random.default_rng(SEED)
    for batch in sides:
        a = predictors.rows(batch.x)
        eta = a @ centre + batch.offsets
        terms = _terms(predictors.link, eta)
        c = batch.weights / batch.divisors
        spread = np.linalg.norm(a @ columns.T, axis=2) if a.shape[-1] else np.zeros(a.shape[:2])
        beyond = np.abs(c) * np.sum((np.abs(terms[1]) + np.abs(terms[2])) * spread**3, axis=0)
        # A part for every row alike, since sizes are those at the centre.
        least = least or float(beyond.mean()) or 1.0
        sizes = beyond + least
        keys = rng.random(len(c)) / sizes
        names, codes = _levels(batch.levels)
        for code, name in enumerate(names):
            if name not in levels:
                _require_few(len(levels) + 1, dimension)
                levels[name] = RowsOfLevel(max(most_rows, FEWEST_ROWS), dimension)
            own = np.flatnonzero(codes == code) if len(names) > 1 else slice(None)
            parts = batch.weights[own], c[own], terms[:, :, own], sizes[own], keys[own]
            levels[name].add(a[:, own], eta[:, own], *parts)
    if not levels or not any(level.weight > 0 for level in levels.values()):
        raise DataError(explain("rows to average over", "none that is complete", "check the table"))
    ordered = sorted(levels, key=lambda name: (str(type(name)), name))
    found = [levels[name] for name in ordered]
    value, slope, bend = (
        np.stack([getattr(each, what) / each.weight for each in found]) for what in ("value", "slope", "bend")
    )
    # Of several levels each has its part of the sample.
    each_rows = max(most_rows // len(found), FEWEST_ROWS)
    samples = tuple(each.sample(each_rows) for each in found)
    counts = tuple(each.rows for each in found)
    return Averaged(predictors.link, tuple(ordered), counts, value, slope, bend, samples)


def _levels(given: np.ndarray) -> tuple[list[Any], np.ndarray]:
    if given.dtype.kind != "O":
        return [0], np.zeros(len(given), np.int64)
    names: dict[Any, int] = {}
    codes = np.array([names.setdefault(each, len(names)) for each in given])
    return list(names), codes


def _require_few(levels: int, dimension: int) -> None:
    most = min(MOST_LEVELS, MOST_NUMBERS // (2 * dimension**2))
    if levels > most:
        raise InputError(
            explain(f"by= a column of at most {most} levels", "more", "cut it into fewer, or rows= a part")
        )


def _terms(link: str, eta: Floats) -> Floats:
    """f, f' and f'' of linear predictors, (3, ...)."""
    size = 1 << (eta.size - 1).bit_length()
    padded = np.zeros(size)
    padded[: eta.size] = eta.ravel()
    with jax.enable_x64(True):
        found = np.asarray(link_terms(link, jnp.asarray(padded)))
    return found[:, : eta.size].reshape(3, *eta.shape)


@partial(jax.jit, static_argnums=0)
def link_terms(link: str, eta: jax.Array) -> jax.Array:
    def mean(each: jax.Array) -> jax.Array:
        return LINKS[link].mean(each[None])[0]

    slope = jax.grad(mean)
    return jnp.stack([jax.vmap(each)(eta) for each in (mean, slope, jax.grad(slope))])
