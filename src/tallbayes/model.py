"""Models: a log prior, the log likelihood of one row, and sums of derivatives over all rows.

    log pi(theta | X) = log pi(theta) + sum_i log p(x_i | theta) + constant

A `Model` is what a user writes, on any pytree theta. A `Target` is the same on flat vectors in R^d, as a
hashable value. A generalised linear model also has p(x | theta) = exp l(x . theta, row): then the gradient and
the Hessian of a row are two scalars, l' x and l'' x x^T.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.identity import Function, identify, output_of
from tallbayes.structure import Structure

TILE_ROWS = 256
CHUNK_ROWS = 2**18


class Curvature(Enum):
    """What a pass sums of the second derivatives; the value is the number of axes of the sum.

    DIAGONAL is exact for a model with a linear predictor, else minus the sum of squared gradients of the rows.
    """

    NONE = 0
    DIAGONAL = 1
    DENSE = 2


@dataclass(frozen=True, eq=False)
class Model:
    """A posterior as its owner writes it.

    `log_likelihood(theta, row)` is for ONE row; `initial` is a pytree of start values, or a function of one
    row that makes it. `predictor(eta, row)`, where given, is the log likelihood as a function of the linear
    predictor eta = row["x"] . theta. `check(data)` may refuse or convert the arrays. `log_concave=True` declares
    that log prior plus log likelihood is concave in theta whatever the rows, so that there is one mode and the
    search for a second is left out; nothing verifies it.

    >>> import jax.numpy as jnp
    >>> model = Model(
    ...     log_prior=lambda theta: -0.5 * theta**2,
    ...     log_likelihood=lambda theta, row: -0.5 * (row - theta) ** 2,
    ...     initial=0.0,
    ... )
    """

    log_prior: Callable[[Any], Any]
    log_likelihood: Callable[[Any, Any], Any]
    initial: Any
    predictor: Callable[[Any, Any], Any] | None = None
    check: Callable[[Any], Any] | None = None
    log_concave: bool = False


@dataclass(frozen=True)
class Target:
    """A model bound to the shape of its rows, on flat vectors; static and hashable."""

    log_prior: Function
    log_likelihood: Function
    predictor: Function | None
    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    log_concave: bool = False

    @property
    def dimension(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    @property
    def structure(self) -> Structure:
        leaves = [np.empty(shape) for shape in self.shapes]
        return Structure.of(jax.tree.unflatten(self.treedef, leaves))

    def unravel(self, vector: jax.Array | np.ndarray) -> Any:
        """The user's pytree of a flat vector."""
        return _unravel(self.treedef, self.shapes, vector)


def bind(model: Model, row: Any) -> tuple[Target, np.ndarray]:
    """Bind a model to an example row: the target and the flat start vector.

    Raises ModelError where a function does not return one real number.
    """
    initial = model.initial(row) if callable(model.initial) else model.initial
    leaves, treedef = jax.tree.flatten(initial)
    if not leaves:
        raise ModelError(explain("initial to hold at least one parameter", repr(initial), "pass start values"))
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    try:
        start = np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in leaves])
    except (TypeError, ValueError) as error:
        raise ModelError(explain("start values that are numbers", repr(initial), "zeros, or a rough guess")) from error
    if not np.all(np.isfinite(start)):
        raise ModelError(explain("finite start values", f"{initial}", "zeros, or a rough guess"))

    def on_vector(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda vector, *rest: function(_unravel(treedef, shapes, vector), *rest)

    prior, likelihood = on_vector(model.log_prior), on_vector(model.log_likelihood)
    _require_scalar("log_prior(theta)", prior, start)
    _require_scalar("log_likelihood(theta, row)", likelihood, start, row)
    predictor = None
    if model.predictor is not None:
        predictor = identify(model.predictor, np.float64(0.0), row, derivatives=True)
    target = Target(
        log_prior=identify(prior, start, derivatives=True),
        log_likelihood=identify(likelihood, start, row, derivatives=True),
        predictor=predictor,
        treedef=treedef,
        shapes=shapes,
        log_concave=bool(model.log_concave),
    )
    return target, start


def runs_in_float32(target: Target, row: Any) -> bool:
    """Whether the model's functions accept float32 parameters; a loop carrying a default float64 does not."""

    def narrow(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(np.float32) if array.dtype.kind == "f" else array

    theta, row = np.zeros(target.dimension, np.float32), jax.tree.map(narrow, row)
    with jax.enable_x64(True):
        try:
            jax.eval_shape(jax.grad(lambda each: target.log_prior(each)), theta)
            jax.eval_shape(jax.grad(lambda each: target.log_likelihood(each, row)), theta)
        except TypeError:
            return False
    return True


def _unravel(treedef: Any, shapes: tuple[tuple[int, ...], ...], vector: jax.Array | np.ndarray) -> Any:
    leaves, offset = [], 0
    for shape in shapes:
        leaves.append(vector[offset : offset + prod(shape)].reshape(shape))
        offset += prod(shape)
    return jax.tree.unflatten(treedef, leaves)


def _require_scalar(name: str, function: Callable[..., Any], *arguments: Any) -> None:
    try:
        out = output_of(function, *arguments)
    except Exception as error:
        raise ModelError(
            explain(
                f"{name} to be traceable by JAX on theta of `initial` and one row",
                f"{type(error).__name__}: {error}",
                "call it by hand on `initial` and the first row",
            )
        ) from error
    if not hasattr(out, "shape") or out.shape != () or not jnp.issubdtype(out.dtype, jnp.floating):
        raise ModelError(
            explain(
                f"{name} to return one real number",
                f"{out}",
                "sum over the row's own entries (not over rows: it is given one row)",
            )
        )


@partial(jax.jit, static_argnums=0, static_argnames="curvature")
def likelihood_sums(
    target: Target,
    rows: Any,
    start: jax.Array,
    stop: jax.Array,
    theta: jax.Array,
    *,
    curvature: Curvature = Curvature.DENSE,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Value, gradient and curvature of sum_{start <= i < stop} log p(x_i | theta), in theta's precision.

    One pass, in tiles of a fixed number of rows added up in their order, so that the bits do not depend on
    threads and the memory does not depend on the number of rows.
    """
    tile_terms = _predictor_terms if target.predictor is not None else _general_terms

    def tile(index: jax.Array, sums: Any) -> Any:
        first = start + index * TILE_ROWS
        part = jax.tree.map(lambda leaf: _slice(leaf, first, theta.dtype), rows)
        weights = (first + jnp.arange(TILE_ROWS, dtype=jnp.int32) < stop).astype(theta.dtype)
        return jax.tree.map(jnp.add, sums, tile_terms(target, part, weights, theta, curvature))

    shapes = ((), theta.shape, theta.shape * curvature.value)
    begin = tuple(jnp.zeros(shape, theta.dtype) for shape in shapes)
    return jax.lax.fori_loop(0, (stop - start + TILE_ROWS - 1) // TILE_ROWS, tile, begin)


def _slice(leaf: jax.Array, first: jax.Array, dtype: Any) -> jax.Array:
    part = jax.lax.dynamic_slice_in_dim(leaf, first, TILE_ROWS)
    return part.astype(dtype) if jnp.issubdtype(part.dtype, jnp.floating) else part


def _predictor_terms(target: Target, rows: Any, weights: jax.Array, theta: jax.Array, curvature: Curvature) -> Any:
    x = rows["x"]
    assert target.predictor is not None
    value = target.predictor.call
    slope = jax.grad(value)
    eta = x @ theta
    l0, (l1, l2) = jax.vmap(value)(eta, rows), jax.vmap(jax.value_and_grad(slope))(eta, rows)
    w2 = weights * l2
    match curvature:
        case Curvature.DENSE:
            # Weights on the transposed side: 10 to 20% less than x.T @ (w2[:, None] * x), measured for d = 5 and 20.
            hessian = (x.T * w2) @ x
        case Curvature.DIAGONAL:
            hessian = w2 @ x**2
        case Curvature.NONE:
            hessian = jnp.zeros((), theta.dtype)
    return jnp.sum(weights * l0), x.T @ (weights * l1), hessian


def _general_terms(target: Target, rows: Any, weights: jax.Array, theta: jax.Array, curvature: Curvature) -> Any:
    def each(vector: jax.Array, row: Any) -> jax.Array:
        return target.log_likelihood.call(vector, row)

    def total(vector: jax.Array) -> jax.Array:
        return jnp.sum(weights * jax.vmap(each, (None, 0))(vector, rows))

    gradient = jax.grad(total)

    def hessian_column(direction: jax.Array) -> jax.Array:
        return jax.jvp(gradient, (theta,), (direction,))[1]

    match curvature:
        case Curvature.DENSE:
            hessian = jax.lax.map(hessian_column, jnp.eye(theta.size, dtype=theta.dtype), batch_size=32)
        case Curvature.DIAGONAL:
            # Fisher's identity: the expected outer product of a row's gradient is minus its expected Hessian.
            hessian = -(weights @ jax.vmap(jax.grad(each), (None, 0))(theta, rows) ** 2)
        case Curvature.NONE:
            hessian = jnp.zeros((), theta.dtype)
    value, slope = jax.value_and_grad(total)(theta)
    return value, slope, hessian


@partial(jax.jit, static_argnums=0)
def prior_terms(target: Target, theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Value, gradient and Hessian of log pi(theta)."""
    prior = target.log_prior.call
    return prior(theta), jax.grad(prior)(theta), jax.hessian(prior)(theta)


@partial(jax.jit, static_argnums=0)
def prior_probe(target: Target, theta: jax.Array, signs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Value and gradient of log pi(theta), and s * (Hessian s): its diagonal, exactly so if it has nothing else."""
    prior = target.log_prior.call
    gradient, product = jax.jvp(jax.grad(prior), (theta,), (signs,))
    return prior(theta), gradient, signs * product
