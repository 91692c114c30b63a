"""Linear predictors: what the rows of a regression ask of theta.

    eta = (B x + b, s),   theta = (B, b, s) flat: B (q, d) row by row, then b (q) if there is an intercept, then s (e)
    log p(row | theta) = l(eta, row),   gradient A^T l',   Hessian A^T l'' A   with A: theta -> eta

q heads have coefficients of their own (one, or one for every class but the first); e extras are parameters that all
rows share, such as the log of a noise scale. With one head and no extras eta is a number, and so are l' and l''.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Layout:
    """Where heads, intercept and extras stand in theta."""

    heads: int = 1
    intercept: bool = False
    extras: int = 0

    @property
    def is_scalar(self) -> bool:
        """Whether eta is a number."""
        return self.heads == 1 and not self.extras

    @property
    def size(self) -> int:
        """Length of eta, where it is a vector."""
        return self.heads + self.extras

    def predict(self, x: jax.Array, theta: jax.Array) -> jax.Array:
        """eta = A theta of one row (d,) or of several (rows, d)."""
        q, end = self.heads, self.heads * x.shape[-1]
        if self.is_scalar:
            eta = x @ theta[:end]
            return eta + theta[end] if self.intercept else eta
        eta = x @ theta[:end].reshape(q, -1).T
        if self.intercept:
            eta += theta[end : end + q]
        extras = theta[theta.size - self.extras :]
        return jnp.concatenate([eta, jnp.broadcast_to(extras, (*eta.shape[:-1], self.extras))], axis=-1)

    def pull_back(self, x: jax.Array, slopes: jax.Array) -> jax.Array:
        """A^T l', summed over rows."""
        if self.is_scalar:
            coefficients = x.T @ slopes
            return jnp.append(coefficients, jnp.sum(slopes)) if self.intercept else coefficients
        heads, totals = slopes[:, : self.heads], jnp.sum(slopes, axis=0)
        rest = totals if self.intercept else totals[self.heads :]
        return jnp.concatenate([(heads.T @ x).ravel(), rest])

    def directions(self, x: jax.Array) -> list[jax.Array]:
        """The rows of A, predictor by predictor: (rows, dimension) each."""

        def direction(row: jax.Array, unit: jax.Array) -> jax.Array:
            return self.pull_back(row[None], unit[None])

        units = jnp.ones((1,), x.dtype) if self.is_scalar else jnp.eye(self.size, dtype=x.dtype)
        return [jax.vmap(direction, (0, None))(x, unit) for unit in units]

    def curvature(self, x: jax.Array, bends: jax.Array) -> jax.Array:
        """A^T l'' A, summed over rows."""
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

    def diagonal(self, x: jax.Array, bends: jax.Array) -> jax.Array:
        """The diagonal of A^T l'' A, summed over rows."""
        own = bends if self.is_scalar else jnp.diagonal(bends, axis1=1, axis2=2)
        return self.pull_back(x**2, own)

    def _with_ones(self, x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1) if self.intercept else x

    def _order(self, d: int) -> jax.Array:
        """From (b beside its own row of B) to (B, b): which places of the first stand where in the second."""
        q, width = self.heads, d + self.intercept
        places = jnp.arange(q * width).reshape(q, width)
        extras = q * width + jnp.arange(self.extras)
        return jnp.concatenate([places[:, :d].ravel(), places[:, d:].ravel(), extras])
