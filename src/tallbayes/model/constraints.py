"""Constraints: bijectors between the space a parameter lives in and R^k, where paths move.

    log pi(u) = log pi(c(u)) + log |det c'(u)|,        theta = c(u), u in R^k

    real            c(u) = u                                      log |det c'| = 0
    positive        c(u) = exp u                                  sum_i u_i
    interval(a, b)  c(u) = a + (b - a) s(u), s(u) = 1/(1+e^-u)    sum_i log (b - a) + log s(u_i) + log s(-u_i)
    simplex         c_k(u) = s(z_k) prod_{j<k} s(-z_j)            sum_k log c_k(u) + log s(-z_k)
    ordered         c_k(u) = u_1 + sum_{1<j<=k} exp u_j           sum_{k>1} u_k

The simplex breaks a stick: z_k = u_k - log (K - k), k = 1..K-1, so that the origin is the uniform point; it and
`ordered` act on the last axis. Values stay strictly inside wherever their float type can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.programs.later import jax, jnp

SUM_TOLERANCE = 1e-5


class Constraint(Protocol):
    """A bijector c from R^k onto the space of an array of parameters; a hashable value.

    `free_shape` is the shape of u for a parameter of `shape`; `log_jacobian` is log |det c'(u)| of the whole array;
    `unconstrain` inverts `constrain` on what `require` lets pass, in NumPy for what is not a JAX array.
    """

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...

    def constrain(self, free: jax.Array) -> jax.Array: ...

    def unconstrain(self, value: Any) -> np.ndarray | jax.Array: ...

    def log_jacobian(self, free: jax.Array) -> jax.Array: ...

    def require(self, name: str, value: np.ndarray) -> None: ...


@dataclass(frozen=True)
class Real:
    """The whole line."""

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def constrain(self, free: jax.Array) -> jax.Array:
        return free

    def unconstrain(self, value: Any) -> np.ndarray | jax.Array:
        return _numpy_of(value).asarray(value)

    def log_jacobian(self, free: jax.Array) -> jax.Array:
        return jnp.zeros((), free.dtype)

    def require(self, name: str, value: np.ndarray) -> None:
        _require(np.isfinite(value).all(), f"finite start values of {name}", value, "zeros")


@dataclass(frozen=True)
class Positive:
    """Numbers above zero."""

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def constrain(self, free: jax.Array) -> jax.Array:
        return jnp.exp(free)

    def unconstrain(self, value: Any) -> np.ndarray | jax.Array:
        return _numpy_of(value).log(value)

    def log_jacobian(self, free: jax.Array) -> jax.Array:
        return jnp.sum(free)

    def require(self, name: str, value: np.ndarray) -> None:
        inside = np.isfinite(value) & (value > 0)
        _require(inside.all(), f"finite start values of {name} above 0", value, "1.0")


@dataclass(frozen=True)
class Interval:
    """Numbers strictly between two bounds."""

    lower: float
    upper: float

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def constrain(self, free: jax.Array) -> jax.Array:
        value = self.lower + (self.upper - self.lower) * jax.nn.sigmoid(free)
        # In float32 jax.nn.sigmoid(17) is 1: the nearest number inside keeps log(1 - value) finite.
        lower, upper = free.dtype.type(self.lower), free.dtype.type(self.upper)
        return jnp.clip(value, np.nextafter(lower, upper), np.nextafter(upper, lower))

    def unconstrain(self, value: Any) -> np.ndarray | jax.Array:
        numpy = _numpy_of(value)
        value = numpy.asarray(value)
        return numpy.log(value - self.lower) - numpy.log(self.upper - value)

    def log_jacobian(self, free: jax.Array) -> jax.Array:
        return jnp.sum(np.log(self.upper - self.lower).item() + jax.nn.log_sigmoid(free) + jax.nn.log_sigmoid(-free))

    def require(self, name: str, value: np.ndarray) -> None:
        inside = (value > self.lower) & (value < self.upper)
        expected = f"start values of {name} strictly between {self.lower:g} and {self.upper:g}"
        _require(inside.all(), expected, value, f"{self.lower + (self.upper - self.lower) / 2:g}")


@dataclass(frozen=True)
class Simplex:
    """Vectors of positive numbers that sum to one, along the last axis."""

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)

    def constrain(self, free: jax.Array) -> jax.Array:
        return jnp.exp(self._log_parts(free)[0])

    def unconstrain(self, value: Any) -> np.ndarray | jax.Array:
        numpy = _numpy_of(value)
        value = numpy.asarray(value)
        rest = numpy.cumsum(value[..., :0:-1], axis=-1)[..., ::-1]
        return numpy.log(value[..., :-1]) - numpy.log(rest) + _stick_offsets(value.shape[-1], rest.dtype)

    def log_jacobian(self, free: jax.Array) -> jax.Array:
        log_value, log_left = self._log_parts(free)
        return jnp.sum(log_value[..., :-1] + log_left)

    def require(self, name: str, value: np.ndarray) -> None:
        long_enough = value.ndim > 0 and value.shape[-1] > 1
        inside = long_enough and (value > 0).all() and np.allclose(value.sum(-1), 1.0, rtol=0, atol=SUM_TOLERANCE)
        expected = f"start values of {name} above 0 that sum to 1 along the last axis, two or more"
        _require(inside, expected, value, "1/K in each of K entries")

    def _log_parts(self, free: jax.Array) -> tuple[jax.Array, jax.Array]:
        """log c_k(u) for all K, and log s(-z_k): the logarithm of what each break leaves of the stick."""
        z = free - _stick_offsets(free.shape[-1] + 1, free.dtype)
        log_left = jax.nn.log_sigmoid(-z)
        stick = jnp.cumsum(log_left, axis=-1)
        log_value = jnp.concatenate([jax.nn.log_sigmoid(z) + stick - log_left, stick[..., -1:]], axis=-1)
        return log_value, log_left


@dataclass(frozen=True)
class Ordered:
    """Strictly increasing vectors, along the last axis."""

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def constrain(self, free: jax.Array) -> jax.Array:
        return jnp.cumsum(jnp.concatenate([free[..., :1], jnp.exp(free[..., 1:])], axis=-1), axis=-1)

    def unconstrain(self, value: Any) -> np.ndarray | jax.Array:
        numpy = _numpy_of(value)
        value = numpy.asarray(value)
        return numpy.concatenate([value[..., :1], numpy.log(numpy.diff(value, axis=-1))], axis=-1)

    def log_jacobian(self, free: jax.Array) -> jax.Array:
        return jnp.sum(free[..., 1:])

    def require(self, name: str, value: np.ndarray) -> None:
        inside = value.ndim > 0 and np.isfinite(value).all() and (np.diff(value, axis=-1) > 0).all()
        expected = f"finite start values of {name} that strictly increase along the last axis"
        _require(inside, expected, value, "0, 1, 2, ...")


def interval(lower: float, upper: float) -> Interval:
    """Numbers strictly between `lower` and `upper`, both finite.

    >>> interval(0, 10).unconstrain(5.0).item()
    0.0
    """
    try:
        lower, upper = float(lower), float(upper)
    except (TypeError, ValueError) as error:
        hint = "one number each, or one parameter for each interval"
        raise ModelError(explain("bounds that are numbers", f"{lower!r} and {upper!r}", hint)) from error
    if not (np.isfinite([lower, upper, upper - lower]).all() and lower < upper):
        hint = "positive for a half-line, real for the whole one"
        raise ModelError(explain("finite bounds, lower < upper", f"{lower} and {upper}", hint))
    return Interval(lower, upper)


real = Real()
positive = Positive()
unit_interval = Interval(0.0, 1.0)
simplex = Simplex()
ordered = Ordered()


def _stick_offsets(size: int, dtype: Any) -> np.ndarray:
    """log (K - k), k = 1..K-1: the odds of each break at the uniform point are 1 : K - k."""
    return np.log(np.arange(size - 1, 0, -1)).astype(dtype)


def _numpy_of(value: Any) -> Any:
    return jnp if isinstance(value, jax.Array) else np


def _require(inside: Any, expected: str, value: np.ndarray, hint: str) -> None:
    if not inside:
        got = " ".join(np.array2string(value, threshold=10, precision=4).split())
        raise ModelError(explain(expected, got, hint))
