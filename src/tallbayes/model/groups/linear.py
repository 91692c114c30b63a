"""Linear mixed models: a group's integral in closed form, from sums over its rows.

    y = X beta + Z L a + sigma noise,   a ~ N(0, I),   e = y - X beta
    log p_g = -n log sigma - e.e / (2 sigma^2) + h.A^-1 h / 2 - log det(A) / 2
    A = I + L^T Z^T Z L / sigma^2,   h = L^T Z^T e / sigma^2,   a | theta ~ N(A^-1 h, A^-1)

e.e, Z^T e and Z^T Z are linear and quadratic in beta with coefficients that are products of the columns of (X, Z, y),
summed over the rows of the group: no path reads a row. They cancel in part, so paths are float64. Where other factors
have effects, crossed or nested, e hangs on the levels of a row: then e.e and Z^T e are summed over the unit's own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tallbayes.model.groups.bundles import add_up, in_strips, inside, is_bundle
from tallbayes.model.groups.integral import WEIGHT, EffectMoments, Groups, normal_nodes
from tallbayes.model.groups.matrices import cholesky, solve_lower, solve_upper
from tallbayes.model.groups.reads import Reads
from tallbayes.model.linear import Layout
from tallbayes.moments import Floats
from tallbayes.programs.later import jax, jnp

# Of sums, for all groups together; and of columns.
MOST_NUMBERS, MOST_COLUMNS = 2**26, 32
EXPECTATION_NODES = 15


class Conditional(NamedTuple):
    """Of a group given theta: the root of A, h, e.e, sigma, and how many rows there are."""

    root: Any
    pull: Any
    square: Any
    sigma: Any
    count: Any


def _log_integral(given: Conditional) -> Any:
    root, pull, square, sigma, count = given
    inner = solve_lower(root, pull)
    size = jnp.sum(jnp.log(jnp.diagonal(root)))
    exponent = inner @ inner / 2 - square / (2 * sigma**2)
    # What is cancelled far out may leave a sum above 0, which would draw a climb there.
    return -count * jnp.log(sigma) + jnp.where(exponent > 0, jnp.zeros_like(exponent), exponent) - size


def _inside(rows: Any, unit: Any) -> Any:
    """1 of the unit's rows, and 0 of padding."""
    z = rows["z0"]
    return (jnp.arange(z.shape[0], dtype=jnp.int32) < unit["count"]).astype(z.dtype)


def _log_normal(e: Any, sigma: Any, precision: Any, closer: Any) -> Any:
    """Without its constant, of e / closer, whose variance is sigma^2 / precision."""
    return -jnp.log(sigma) + jnp.log(precision) / 2 - precision * (e / (closer * sigma)) ** 2 / 2


@dataclass(frozen=True)
class LinearIntegral:
    """log p_g of a unit of sums; `root(theta)` is L, and the noise is known or the parameter `extra`."""

    layout: Layout
    root: Callable[[Any], Any]
    extra: str | None
    noise: float | None
    groups: Groups
    size: int
    # eta but for the group's own effect, of a row; and whether other factors are part of it.
    predictor: Callable[[Any, Any], Any]
    is_crossed: bool = False
    nodes: int = EXPECTATION_NODES
    reads: Reads | None = None

    def units(self, head: Any, chunks: Iterable[tuple[np.ndarray, Any]], count: int) -> dict[str, Any] | None:
        """Sums by group of rows that come in chunks, each with its rows' groups; None where there would be too many, or
        rows have effects of other factors."""
        if self.is_crossed:
            return None
        width = self.layout.width(head)
        columns = width + self.layout.intercept + self.size + 1
        if width > MOST_COLUMNS or count * columns**2 > MOST_NUMBERS:
            return None
        sums, rows, raw = np.zeros((columns, columns, count)), np.zeros(count), np.zeros(count)
        for codes, arrays in chunks:
            y = np.asarray(arrays["y"], np.float64)
            weights = np.asarray(arrays.get(WEIGHT, np.ones(len(y))), np.float64)
            response = y - np.asarray(arrays["offset"], np.float64) if "offset" in arrays else y
            whole = [*_columns(self.layout, arrays), *np.asarray(arrays["z0"], np.float64).T, response]
            # In the order of the rows, however they come.
            for i, left in enumerate(whole):
                for j, right in enumerate(whole[: i + 1]):
                    np.add.at(sums[i, j], codes, weights * left * right)
            np.add.at(rows, codes, weights)
            np.add.at(raw, codes, weights * y)
        for i in range(columns):
            sums[:i, i] = sums[i, :i]
        raw /= np.where(rows > 0, rows, 1.0)
        return {"sums": sums.transpose(2, 0, 1), "count": rows, "raw": raw, "group": np.arange(count, dtype=np.int32)}

    def __call__(self, theta: Any, vector: Any, unit: Any) -> Any:
        """log p_g, and of a bundle the sum of it over its groups."""
        if is_bundle(unit):
            found = jax.vmap(_log_integral)(self._from_bundle(theta, unit))
            return jnp.sum(jnp.where(unit["group"] >= 0, found, 0))
        return _log_integral(self._given(theta, vector, unit))

    def within(self, near: Any, unit: Any) -> Any:
        """log p_g, of the numbers that the unit reads."""
        assert self.reads is not None
        return _log_integral(self._from_rows(self.reads.theta(near, unit), unit))

    def moments(self, theta: Any, vector: Any, unit: Any) -> EffectMoments:
        """Of the effect as it is shown, which is linear in a: normal, given theta; of a bundle, group by group."""
        if is_bundle(unit):
            return jax.vmap(partial(self._moments, theta))(self._from_bundle(theta, unit))
        return self._moments(theta, self._given(theta, vector, unit))

    def _moments(self, theta: Any, given: Conditional) -> EffectMoments:
        root, pull, *_ = given
        mean = solve_upper(root, solve_lower(root, pull))
        half = solve_lower(root, jnp.eye(self.size, dtype=pull.dtype))
        shown = jax.vmap(lambda a: self.shown(theta, a))(half)
        variance = jnp.sum(shown**2, axis=0)
        return EffectMoments(self.shown(theta, mean), variance, jnp.zeros_like(variance), 3 * variance**2)

    def draw(self, theta: Any, vector: Any, unit: Any, noise: Any) -> Any:
        """An effect given theta, by q standard normal numbers: exactly."""
        root, pull, *_ = self._given(theta, vector, unit)
        return solve_upper(root, solve_lower(root, pull) + noise)

    def law(self, theta: Any, vector: Any, unit: Any) -> tuple[Any, Any]:
        """Of the effect given theta, which is normal: nodes (k, q), and the share that each of them has."""
        root, pull, *_ = self._given(theta, vector, unit)
        rule = normal_nodes(self.nodes, self.size)
        points = jnp.asarray(rule.points, pull.dtype)
        share = jax.nn.softmax(jnp.asarray(rule.log_weights, pull.dtype) - jnp.sum(points**2, axis=1) / 2)
        mean = solve_upper(root, solve_lower(root, pull))
        moves = jax.vmap(lambda x: solve_upper(root, x))(points)
        return mean + moves, share

    def expectation(self, function: Callable[[Any, Any], Any], theta: Any, vector: Any, unit: Any) -> Any:
        """E f(theta, a) over the group's effect given theta."""
        points, share = self.law(theta, vector, unit)
        return jnp.tensordot(share, jax.vmap(lambda a: function(theta, self.groups.vector(a)))(points), 1)

    def shown(self, theta: Any, effect: Any) -> Any:
        a = self.groups.vector(effect)
        return jnp.ravel(a if self.groups.shown is None else jnp.asarray(self.groups.shown(theta, a)))

    def _given(self, theta: Any, vector: Any, unit: Any) -> Conditional:
        if "sums" in unit:
            return self._from_sums(theta, unit)
        return self._from_rows(
            theta if self.reads is None else self.reads.theta(self.reads.near(vector, unit), unit), unit
        )

    def _from_rows(self, theta: Any, unit: Any) -> Conditional:
        rows = unit["rows"]
        parts = jax.vmap(lambda row: self.row_parts(theta, None, row, unit))(rows)
        return self._of_sums(theta, _inside(rows, unit) @ parts, unit)

    def row_parts(self, theta: Any, free: Any, row: Any, unit: Any) -> Any:
        """w e^2 and w e z of a row; there are no nodes, and nothing is `free`."""
        e = row["y"] - self.predictor(theta, row)
        e = e - row["offset"] if "offset" in row else e
        weighted = row[WEIGHT] * e if WEIGHT in row else e
        return jnp.concatenate([(weighted * e)[None], weighted * row["z0"]])

    def whole(self, theta: Any, free: Any, sums: Any, unit: Any) -> Any:
        """log p_g, of the sums of these parts over rows."""
        return _log_integral(self._of_sums(theta, sums, unit))

    def left_out(self, theta: Any, vector: Any, unit: Any) -> tuple[Any, Any]:
        """Of a unit of one group with its rows: log p(y_i | theta, its other rows), and log p(y_i | theta, all).

        With m the mean of a given all rows, r_i = e_i - z_i.L m and s_i = |A^-1/2 L^T z_i|^2 / sigma^2 < 1,

            y_i given the others is off by r_i / (1 - s_i), of variance sigma^2 / (1 - s_i);  given all, by r_i, of
            variance sigma^2 (1 + s_i)
        """
        theta = theta if self.reads is None else self.reads.theta(self.reads.near(vector, unit), unit)
        root, pull, _, sigma, _ = self._from_rows(theta, unit)
        mean, spread = solve_upper(root, solve_lower(root, pull)), self.root(theta)

        def one(row: Any) -> tuple[Any, Any]:
            along = spread.T @ row["z0"]
            e = row["y"] - self.predictor(theta, row) - along @ mean
            e = e - row["offset"] if "offset" in row else e
            share = jnp.sum(solve_lower(root, along) ** 2) / sigma**2
            return _log_normal(e, sigma, 1 - share, 1 - share), _log_normal(e, sigma, 1 / (1 + share), 1.0)

        return jax.vmap(one)(unit["rows"])

    def _from_bundle(self, theta: Any, unit: Any) -> Conditional:
        """Group by group, from sums over the strips of each."""
        rows = in_strips(unit["rows"], unit)

        def strip(own: Any, which: Any) -> tuple[Any, Any, Any]:
            weights, z = which * own[WEIGHT] if WEIGHT in own else which, own["z0"]
            parts = jax.vmap(lambda row: self.row_parts(theta, None, row, unit))(own)
            return which @ parts, (weights[:, None] * z).T @ z, jnp.sum(weights)

        which = inside(unit["filled"], rows["z0"].shape[1]).astype(rows["z0"].dtype)
        sums = [add_up(each, unit) for each in jax.vmap(strip)(rows, which)]
        return jax.vmap(partial(self._conditional, theta))(*sums)

    def _of_sums(self, theta: Any, sums: Any, unit: Any) -> Conditional:
        rows, z = unit["rows"], unit["rows"]["z0"]
        inside = _inside(rows, unit)
        weights = inside * rows[WEIGHT] if WEIGHT in rows else inside
        return self._conditional(theta, sums, (weights[:, None] * z).T @ z, jnp.sum(weights))

    def _conditional(self, theta: Any, sums: Any, squares: Any, count: Any) -> Conditional:
        """Of the sums of w e^2 and w e z, of w z z^T, and of w."""
        sigma = jnp.asarray(self.noise if self.extra is None else theta[self.extra], sums.dtype)
        spread = self.root(theta)
        root = cholesky(jnp.eye(self.size, dtype=sums.dtype) + spread.T @ squares @ spread / sigma**2)
        return Conditional(root, spread.T @ sums[1:] / sigma**2, sums[0], sigma, count)

    def _from_sums(self, theta: Any, unit: Any) -> Conditional:
        sums, q = unit["sums"], self.size
        sigma = jnp.asarray(self.noise if self.extra is None else theta[self.extra], sums.dtype)
        beta = theta["coefficients"]
        beta = jnp.append(beta, theta["intercept"]) if self.layout.intercept else beta
        along = jnp.concatenate([-beta, jnp.zeros(q, sums.dtype), jnp.ones(1, sums.dtype)])
        products, first = sums @ along, len(beta)
        spread = self.root(theta)
        inner = spread.T @ sums[first : first + q, first : first + q] @ spread / sigma**2
        root = cholesky(jnp.eye(q, dtype=sums.dtype) + inner)
        return Conditional(
            root, spread.T @ products[first : first + q] / sigma**2, along @ products, sigma, unit["count"]
        )


def _columns(layout: Layout, arrays: Any) -> list[Floats]:
    """Those of X, levels of categories written out, and that of ones."""
    width, count = layout.width(arrays), len(arrays["y"])
    columns: list[Floats] = [np.zeros(count) for _ in range(width)]
    places = range(width) if layout.indexed is None else layout.indexed.columns
    for place, column in zip(places, np.asarray(arrays.get("x", np.empty((count, 0))), np.float64).T, strict=True):
        columns[place] = column
    if layout.indexed is not None:
        for code in np.asarray(arrays["codes"]).T:
            for place in np.unique(code[code < width]):
                columns[place] = columns[place] + (code == place)
    return columns + [np.ones(count)] * layout.intercept
