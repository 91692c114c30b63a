"""Linear predictors: what the rows of a regression ask of theta.

    eta = (B x + sum_k B[code_k] + b, s),   theta = (B, b, s) flat: B (q, d) row by row, then b (q) if there is an
                                            intercept, then s (e)
    log p(row | theta) = l(eta, row),   gradient A^T l',   Hessian A^T l'' A   with A: theta -> eta

q heads have coefficients of their own (one, or one for every class but the first); e extras are parameters that all
rows share, such as the log of a noise scale. With one head and no extras eta is a number, and so are l' and l''. A row
is {"x": (p,)}, and where coefficients are `Indexed` also {"codes": (c,)}: the places of those whose columns are 1 in
this row, as each category has one, without ever writing its zeros down. Without columns there is no x.

The last `beside` columns of x may be those of the last extra, which is a linear predictor of its own then, with s for
its intercept: log sigma = z . gamma + s. Their coefficients are the last ones of B, of one head.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tallbayes.gaussian.arrowhead import ArrowWhitening
from tallbayes.gaussian.whitening import DenseWhitening, Sketch, Whitening
from tallbayes.programs.later import jax, jnp


@dataclass(frozen=True)
class Indexed:
    """Coefficients of a head, of which x has some columns, at these places, and codes name others.

    The code `width` names none. `categories` are the first place and the number of those that each code can name.
    """

    width: int
    columns: tuple[int, ...]
    # What codes can name is a fact of the rows, by which a ledger knows them already.
    categories: tuple[tuple[int, int], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Arms:
    """The category of most levels: which of the codes is its own, and the run of theta that its levels are."""

    code: int
    first: int
    count: int


class Terms(NamedTuple):
    """One predictor of some rows: what is multiplied with the parameters at `places`, and `codes` of those added."""

    values: jax.Array
    places: np.ndarray
    codes: jax.Array | None


class Split(NamedTuple):
    """Predictors in terms of the corner alone, by predictor; and what codes name of the arms, their number for none.

    Only the first predictor has arms.
    """

    parts: list[Terms]
    arms: jax.Array


@dataclass(frozen=True)
class Layout:
    """Where heads, intercept and extras stand in theta."""

    heads: int = 1
    intercept: bool = False
    extras: int = 0
    indexed: Indexed | None = None
    # What the program of a row shows already.
    beside: int = field(default=0, repr=False)

    @property
    def is_scalar(self) -> bool:
        """Whether eta is a number."""
        return self.heads == 1 and not self.extras

    @property
    def size(self) -> int:
        """Length of eta, where it is a vector."""
        return self.heads + self.extras

    def width(self, rows: Any) -> int:
        """Coefficients of a head."""
        return int(rows["x"].shape[-1]) if self.indexed is None else self.indexed.width

    def dimension(self, rows: Any) -> int:
        return self.heads * (self.width(rows) + self.intercept) + self.extras

    def predict(self, rows: Any, theta: jax.Array) -> jax.Array:
        """eta = A theta of one row or of several."""
        q, end = self.heads, self.heads * self.width(rows)
        if self.is_scalar:
            eta = self.combine(rows, theta[:end])
            return eta + theta[end] if self.intercept else eta
        eta = self.combine(rows, theta[:end].reshape(q, -1))
        if self.intercept:
            eta += theta[end : end + q]
        extras = jnp.broadcast_to(theta[theta.size - self.extras :], (*eta.shape[:-1], self.extras))
        if self.beside:
            extras = extras.at[..., -1].add(self.shift(rows, theta[:end]))
        return jnp.concatenate([eta, extras], axis=-1)

    def shift(self, rows: Any, coefficients: jax.Array) -> jax.Array:
        """z . gamma, by which a row moves the last extra."""
        return rows["x"][..., -self.beside :] @ coefficients[-self.beside :]

    def combine(self, rows: Any, coefficients: jax.Array) -> jax.Array:
        """B x, and what codes name of B: (...,) for coefficients (d,), (..., q) for (q, d)."""
        x = rows["x"][..., : -self.beside] if self.beside else rows.get("x")
        if self.indexed is None:
            return x @ (coefficients[..., : -self.beside] if self.beside else coefficients).T
        columns, codes = np.array(self.own_columns, int), rows["codes"]
        named = jnp.sum(_named(coefficients.T, codes), axis=codes.ndim - 1)
        return named + x @ coefficients[..., columns].T if self.own_columns else named

    @property
    def own_columns(self) -> tuple[int, ...]:
        """The places of the coefficients of the heads' columns of x, where codes name others."""
        assert self.indexed is not None
        return self.indexed.columns[: len(self.indexed.columns) - self.beside]

    def pull_back(self, rows: Any, slopes: jax.Array) -> jax.Array:
        """A^T l', summed over rows."""
        if self.indexed is not None or self.beside:
            parts = self._parts(rows)
            total = jnp.zeros(self.dimension(rows), slopes.dtype)
            for part, slope in zip(parts, [slopes] if self.is_scalar else slopes.T, strict=True):
                total = total.at[part.places].add(slope @ part.values)
                if part.codes is not None:
                    total = total.at[part.codes].add(slope[:, None], mode="drop")
            return total
        x = rows["x"]
        if self.is_scalar:
            coefficients = x.T @ slopes
            return jnp.append(coefficients, jnp.sum(slopes)) if self.intercept else coefficients
        heads, totals = slopes[:, : self.heads], jnp.sum(slopes, axis=0)
        rest = totals if self.intercept else totals[self.heads :]
        return jnp.concatenate([(heads.T @ x).ravel(), rest])

    def moved(self, rows: Any, moves: jax.Array) -> jax.Array:
        """A times the columns of moves (dimension, k), predictor by predictor: (predictors, rows, k)."""
        return jnp.stack([_times(part, moves) for part in self._parts(rows)])

    def spread(self, rows: Any, whitening: Whitening | Sketch) -> jax.Array:
        """A W W^T A^T of every row, (rows, predictors, predictors)."""
        if isinstance(whitening, Sketch):
            moved = self.moved(rows, whitening.draws.T)
            return jnp.einsum("anj,bnj->nab", moved, moved) / moved.shape[-1]
        if isinstance(whitening, ArrowWhitening):
            return self._spread_of_arrow(rows, whitening)
        if isinstance(whitening, DenseWhitening) and self.indexed is None:
            moved = self.moved(rows, whitening.root)
            return jnp.einsum("anj,bnj->nab", moved, moved)
        parts = self._parts(rows)
        covariance = whitening.covariance if isinstance(whitening, DenseWhitening) else whitening.variances
        found = [jnp.stack([_covariance(a, b, covariance) for b in parts], axis=-1) for a in parts]
        return jnp.stack(found, axis=1)

    @property
    def arms(self) -> Arms | None:
        """Whose second derivatives are a diagonal: levels of one category never meet in a row."""
        indexed = self.indexed
        if indexed is None or self.heads != 1 or not indexed.categories:
            return None
        code = max(range(len(indexed.categories)), key=lambda each: indexed.categories[each][1])
        return Arms(code, *indexed.categories[code])

    def split(self, rows: Any) -> Split:
        """A in what codes name of the arms and, predictor by predictor, in the others by their places in the corner."""
        arms, (head, *extras) = self.arms, self._parts(rows)
        assert arms is not None
        assert head.codes is not None
        own = head.codes[:, arms.code] - arms.first
        own = jnp.where((own >= 0) & (own < arms.count), own, arms.count)
        others = jnp.delete(head.codes, arms.code, axis=1)
        others = jnp.where(others < arms.first, others, others - arms.count)
        parts = [head._replace(codes=others if others.shape[1] else None), *extras]
        places = (np.where(part.places < arms.first, part.places, part.places - arms.count) for part in parts)
        return Split([part._replace(places=each) for part, each in zip(parts, places, strict=True)], own)

    def add_arrow(self, sums: Any, rows: Any, bends: jax.Array) -> Any:
        """A^T l'' A, summed over rows, added to the parts of an arrowhead."""
        diagonal, limbs, corner = sums
        bends = bends[:, None, None] if self.is_scalar else bends
        parts, arms = self.split(rows)
        diagonal = diagonal.at[arms].add(bends[:, 0, 0], mode="drop")
        for b, part in enumerate(parts):
            weighted = bends[:, 0, b, None]
            limbs = limbs.at[arms[:, None], part.places].add(weighted * part.values, mode="drop")
            if part.codes is not None:
                limbs = limbs.at[arms[:, None], part.codes].add(weighted, mode="drop")
            for a, left in enumerate(parts):
                corner = _add_products(corner, left, part, bends[:, a, b])
        return diagonal, limbs, corner

    def _spread_of_arrow(self, rows: Any, whitening: ArrowWhitening) -> jax.Array:
        """a H^-1 b = [both have arms] / D_k + |R^T (a_2 - P_k)|^2, P_k only of the one with arms."""
        parts, arms = self.split(rows)
        columns = jnp.stack([_times(part, whitening.root) for part in parts], axis=1)
        drawn = jnp.take(whitening.pulls @ whitening.root, arms, axis=0, mode="fill", fill_value=0.0)
        columns = columns.at[:, 0].add(-drawn)
        own = jnp.take(whitening.narrow**2, arms, mode="fill", fill_value=0.0)
        return jnp.einsum("naj,nbj->nab", columns, columns).at[:, 0, 0].add(own)

    def add_curvature(self, total: jax.Array, rows: Any, bends: jax.Array) -> jax.Array:
        """A^T l'' A, summed over rows, added to a total."""
        if self.indexed is None and not self.beside:
            return total + self._curvature(rows["x"], bends)
        bends = bends[:, None, None] if self.is_scalar else bends
        parts = self._parts(rows)
        for a, left in enumerate(parts):
            for b, right in enumerate(parts):
                total = _add_products(total, left, right, bends[:, a, b])
        return total

    def add_third(self, total: jax.Array, rows: Any, thirds: jax.Array) -> jax.Array:
        """l''' a (x) a (x) a with a the row of A of the one predictor, summed over rows, added to a total."""
        d = len(total)
        design = self.moved(rows, jnp.eye(d, dtype=total.dtype))[0]
        pairs = (design[:, :, None] * design[:, None, :]).reshape(len(design), d * d)
        return total + ((design.T * thirds) @ pairs).reshape(d, d, d)

    def _curvature(self, x: jax.Array, bends: jax.Array) -> jax.Array:
        if self.is_scalar:
            x = self._with_ones(x)
            # Weights on the transposed side: 10 to 20% less than x.T @ (bends[:, None] * x), for d = 5 and 20.
            return (x.T * bends) @ x
        d, q = x.shape[1], self.heads
        ones = self._with_ones(x)
        blocks = {(a, b): (ones.T * bends[:, a, b]) @ ones for a in range(q) for b in range(a + 1)}
        pairs = jnp.stack([jnp.stack([blocks[max(a, b), min(a, b)] for b in range(q)]) for a in range(q)])
        heads = pairs.transpose(0, 2, 1, 3).reshape(q * ones.shape[1], -1)
        across = jnp.einsum("ni,nae->aie", ones, bends[:, :q, q:]).reshape(len(heads), self.extras)
        within = jnp.sum(bends[:, q:, q:], axis=0)
        whole = jnp.block([[heads, across], [across.T, within]])
        return whole[self._order(d)][:, self._order(d)]

    def diagonal(self, rows: Any, bends: jax.Array) -> jax.Array:
        """The diagonal of A^T l'' A, summed over rows."""
        own = bends if self.is_scalar else jnp.diagonal(bends, axis1=1, axis2=2)
        return self.pull_back({**rows, "x": rows["x"] ** 2} if "x" in rows else rows, own)

    def _parts(self, rows: Any) -> list[Terms]:
        """The rows of A, predictor by predictor."""
        d, dimension = self.width(rows), self.dimension(rows)
        x = rows["x"] if "x" in rows else jnp.zeros((len(rows["codes"]), 0), rows["y"].dtype)
        columns = np.arange(d - self.beside) if self.indexed is None else np.array(self.own_columns, int)
        values, parts = self._with_ones(x[:, : x.shape[1] - self.beside]), []
        for head in range(self.heads):
            places = np.append(head * d + columns, [self.heads * d + head] * self.intercept).astype(int)
            codes = None
            if self.indexed is not None:
                codes = jnp.where(rows["codes"] < d, rows["codes"] + head * d, dimension)
            parts.append(Terms(values, places, codes))
        ones = jnp.ones_like(x, shape=(*x.shape[:-1], 1))
        parts += [Terms(ones, np.array([dimension - self.extras + e]), None) for e in range(self.extras)]
        if self.beside:
            moved = jnp.concatenate([x[:, x.shape[1] - self.beside :], ones], axis=1)
            parts[-1] = Terms(moved, np.array([*range(d - self.beside, d), dimension - 1]), None)
        return parts

    def _with_ones(self, x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, jnp.ones_like(x, shape=(len(x), 1))], axis=1) if self.intercept else x

    def _order(self, d: int) -> jax.Array:
        """From (b beside its own row of B) to (B, b): which places of the first stand where in the second."""
        q, width = self.heads, d + self.intercept
        places = jnp.arange(q * width).reshape(q, width)
        extras = q * width + jnp.arange(self.extras)
        return jnp.concatenate([places[:, :d].ravel(), places[:, d:].ravel(), extras])


def _times(part: Terms, moves: jax.Array) -> jax.Array:
    """A row of A, for every row, times columns (dimension, k)."""
    whole = part.values @ moves[part.places]
    return whole if part.codes is None else whole + jnp.sum(_named(moves, part.codes), axis=1)


def _covariance(left: Terms, right: Terms, covariance: jax.Array) -> jax.Array:
    """a C b^T for every row; C is a matrix, or its diagonal."""
    if covariance.ndim == 1:
        if left is not right:
            return jnp.zeros(len(left.values), covariance.dtype)
        own = left.values**2 @ covariance[left.places]
        return own if left.codes is None else own + jnp.sum(_named(covariance, left.codes), axis=1)
    between = covariance[left.places[:, None], right.places]
    total = jnp.sum((left.values @ between) * right.values, axis=1)
    for one, other in ((left, right), (right, left)):
        if other.codes is not None:
            named = jnp.sum(_named(covariance[:, one.places], other.codes), axis=1)
            total += jnp.sum(named * one.values, axis=1)
    if left.codes is not None and right.codes is not None:
        pairs = covariance.at[left.codes[:, :, None], right.codes[:, None, :]].get(mode="fill", fill_value=0.0)
        total += jnp.sum(pairs, axis=(1, 2))
    return total


def _named(numbers: jax.Array, codes: jax.Array) -> jax.Array:
    """Those that the codes name along the first axis, 0 for the code of none."""
    return jnp.take(numbers, codes, axis=0, mode="fill", fill_value=0.0)


def _add_products(total: jax.Array, left: Terms, right: Terms, weights: jax.Array) -> jax.Array:
    """sum_i w_i a_i b_i^T, added in place."""
    total = total.at[left.places[:, None], right.places].add((left.values.T * weights) @ right.values)
    if left.codes is not None:
        cross = (weights[:, None] * right.values)[:, None, :]
        total = total.at[left.codes[:, :, None], right.places].add(cross, mode="drop")
    if right.codes is not None:
        cross = (weights[:, None] * left.values)[:, :, None]
        total = total.at[left.places[None, :, None], right.codes[:, None, :]].add(cross, mode="drop")
    if left.codes is not None and right.codes is not None:
        pairs = left.codes[:, :, None], right.codes[:, None, :]
        total = total.at[pairs].add(weights[:, None, None], mode="drop")
    return total
