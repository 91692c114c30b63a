"""Constraints: bijectors between the space a parameter lives in and R^k, where paths move.

    log pi(u) = log pi(c(u)) + log |det c'(u)|,        theta = c(u), u in R^k

    real            c(u) = u                                      log |det c'| = 0
    positive        c(u) = exp u                                  sum_i u_i
    interval(a, b)  c(u) = a + (b - a) s(u), s(u) = 1/(1+e^-u)    sum_i log (b - a) + log s(u_i) + log s(-u_i)
    simplex         c_k(u) = s(z_k) prod_{j<k} s(-z_j)            sum_k log c_k(u) + log s(-z_k)
    ordered         c_k(u) = u_1 + sum_{1<j<=k} exp u_j           sum_{k>1} u_k
    half_normal(s)  c(u) = s p exp(-1 / (2 p^2))                  sum_i log s - 1 / (2 p_i^2),   p - 1/p = u
    correlation     c(u) = 2 sin(arcsin(2 Phi(u) - 1) / 3)        sum_i log (4 phi(u_i) / 3) - log(1 - c(u_i)^2)

The simplex breaks a stick: z_k = u_k - log (K - k), k = 1..K-1, so that the origin is the uniform point; it and
`ordered` act on the last axis. Values stay strictly inside wherever their float type can tell. Of the last two u is
normal where the parameter is half-normal of scale s (nearly: the curvature of its log density lies between 0.92 and
1.08), or has a density proportional to 1 - c^2 (LKJ's of shape two): scales and correlations of which the rows say
little are normal in R^k, where exp and tanh leave long tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.programs.later import jax, jnp

SUM_TOLERANCE = 1e-5
# Newton's steps of an inverse, from so much below where it may be.
INVERSE_STEPS, LOWER = 8, 0.5


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
    """The whole line.

    >>> float(Real().constrain(-2.0))
    -2.0
    """

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
    """Numbers above zero.

    >>> float(Positive().constrain(0.0))
    1.0
    """

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
    """Numbers strictly between two bounds.

    >>> float(Interval(0.0, 4.0).constrain(np.float64(0.0)))
    2.0
    """

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
    """Vectors of positive numbers that sum to one, along the last axis.

    >>> [round(float(each), 2) for each in Simplex().constrain(np.zeros(2))]
    [0.33, 0.33, 0.33]
    """

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
    """Strictly increasing vectors, along the last axis.

    >>> [float(each) for each in Ordered().constrain(np.zeros(3))]
    [0.0, 1.0, 2.0]
    """

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


@dataclass(frozen=True)
class HalfNormal:
    """Numbers above zero, normal in R^k where they are half-normal of this scale."""

    scale: float

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def constrain(self, free: jax.Array) -> jax.Array:
        return self.curve(jnp.asarray(free))[0]

    def unconstrain(self, value: Any) -> np.ndarray | jax.Array:
        """u = 2 sinh t with t - exp(-2 t) / 2 = log(c / s), by Newton's steps from below."""
        numpy = _numpy_of(value)
        y = numpy.log(numpy.asarray(value) / self.scale)
        t = numpy.where(y < 0, -numpy.log(1 - 2 * numpy.minimum(y, 0.0)) / 2 - LOWER, y)
        for _ in range(INVERSE_STEPS):
            rest = numpy.exp(-2 * t)
            t = t - (t - rest / 2 - y) / (1 + rest)
        return numpy.where(numpy.isneginf(y), -numpy.inf, 2 * numpy.sinh(t))

    def log_jacobian(self, free: jax.Array) -> jax.Array:
        return jnp.sum(np.log(self.scale).item() - inverse_of_p(free) ** 2 / 2)

    def curve(self, free: Any) -> tuple[Any, Any]:
        """c(u) and c'(u), in NumPy for what is not a JAX array."""
        inverse = inverse_of_p(free)
        slope = self.scale * _numpy_of(free).exp(-(inverse**2) / 2)
        return slope / inverse, slope

    def require(self, name: str, value: np.ndarray) -> None:
        Positive().require(name, value)


@dataclass(frozen=True)
class Correlation:
    """Numbers strictly between -1 and 1, normal in R^k where their density is proportional to 1 - c^2."""

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def constrain(self, free: jax.Array) -> jax.Array:
        inside = np.nextafter(free.dtype.type(1), free.dtype.type(0))
        return jnp.clip(_correlation().value(free), -inside, inside)

    def unconstrain(self, value: Any) -> np.ndarray | jax.Array:
        value = _numpy_of(value).asarray(value)
        return _special_of(value).ndtri((2 + 3 * value - value**3) / 4)

    def log_jacobian(self, free: jax.Array) -> jax.Array:
        constant = np.log(4 / 3 / np.sqrt(2 * np.pi)).item()
        return jnp.sum(constant - free**2 / 2 - jnp.log(_correlation().rest(free)))

    def require(self, name: str, value: np.ndarray) -> None:
        _require((np.abs(value) < 1).all(), f"start values of {name} strictly between -1 and 1", value, "0.0")


def half_normal(scale: float) -> HalfNormal:
    """Numbers above zero whose prior is half-normal of this scale, or nearly so: a scale that may be next to nothing.

    >>> round(half_normal(1.0).unconstrain(1.0).item(), 6)
    0.574775
    """
    if isinstance(scale, bool) or not (isinstance(scale, int | float | np.number) and np.isfinite(scale) and scale > 0):
        raise ModelError(explain("a scale > 0", repr(scale), "that of the half-normal prior"))
    return HalfNormal(float(scale))


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
correlation = Correlation()


def _stick_offsets(size: int, dtype: Any) -> np.ndarray:
    """log (K - k), k = 1..K-1: the odds of each break at the uniform point are 1 : K - k."""
    return np.log(np.arange(size - 1, 0, -1)).astype(dtype)


def _numpy_of(value: Any) -> Any:
    return jnp if isinstance(value, jax.Array) else np


def inverse_of_p(free: Any) -> Any:
    """1 / p = (sqrt(u^2 + 4) - u) / 2, each side where it does not cancel."""
    numpy = _numpy_of(free)
    root = numpy.sqrt(free**2 + 4)
    return numpy.where(free > 0, 2 / (root + free), (root - free) / 2)


class _Correlation(NamedTuple):
    value: Any
    rest: Any


@cache
def _correlation() -> _Correlation:
    """c(u) and 1 - c(u)^2, also where c is next to 1; c' = 4 phi(u) / (3 (1 - c^2))."""

    @jax.custom_jvp
    def value(free: jax.Array) -> jax.Array:
        return jnp.sign(free) * 2 * jnp.sin((np.pi / 2 - _beside(free)) / 3)

    @jax.custom_jvp
    def rest(free: jax.Array) -> jax.Array:
        third = _beside(free) / 3
        return 3**0.5 * jnp.sin(2 * third) - 2 * jnp.sin(third) ** 2

    def slope(free: jax.Array) -> jax.Array:
        return 4 / 3 * (2 * np.pi) ** -0.5 * jnp.exp(-(free**2) / 2) / rest(free)

    value.defjvps(lambda move, found, free: slope(free) * move)
    rest.defjvps(lambda move, found, free: -2 * value(free) * slope(free) * move)
    return _Correlation(value, rest)


def _beside(free: jax.Array) -> jax.Array:
    """pi / 2 - arcsin |2 Phi(u) - 1|."""
    x = jnp.abs(free) / 2**0.5
    far = jnp.maximum(jax.scipy.special.erfc(x), np.finfo(free.dtype).tiny)
    return jnp.arctan2(jnp.sqrt(far * (2 - far)), 1 - far)


def _special_of(value: Any) -> Any:
    if isinstance(value, jax.Array):
        return jax.scipy.special
    import scipy.special

    return scipy.special


def _require(inside: Any, expected: str, value: np.ndarray, hint: str) -> None:
    if not inside:
        got = " ".join(np.array2string(value, threshold=10, precision=4).split())
        raise ModelError(explain(expected, got, hint))
