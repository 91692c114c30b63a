"""Laws: standard laws of one number z, a record each; a prior is one of them with a centre and a scale.

    normal          -z^2 / 2                                  gamma           (a - 1) log z - z
    student_t       -(nu + 1) / 2 log(1 + z^2 / nu)           inverse_gamma   -(a + 1) log z - 1 / z
    cauchy          student_t, nu = 1                         exponential     -z
    laplace         delta - sqrt(z^2 + delta^2)               flat            0

Half a law is twice its density above zero. Laplace's density has a corner at 0, which paths of different steps cross
apart and about which there is no Gaussian: here it is rounded within delta, z being in units of its scale. That is a
law of its own (a hyperbolic one), whose constant and draws are exact. Log densities leave out their constant; the same
lines serve NumPy and JAX, slopes and bends (minus the second derivative) NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, lgamma, log, pi
from typing import Any, NamedTuple

import numpy as np

from tallbayes.moments import Floats
from tallbayes.programs.functions import functions_of

Numbers = Any


class StandardLaw(NamedTuple):
    """What is known of a standard law; every function takes z, or what its name says, and then the shape.

    `moments` is the order up to which there are any, by the shape. `typical` is about how large z is.
    """

    name: str
    log_density: Callable[..., Numbers]
    slope: Callable[..., Floats]
    bend: Callable[..., Floats]
    log_normaliser: Callable[..., float]
    draw: Callable[..., Floats]
    positive: bool = False
    proper: bool = True
    log_concave: bool = True
    moments: Callable[..., float] = lambda *shape: inf
    typical: Callable[..., float] = lambda *shape: 1.0


def _normal(z: Numbers) -> Numbers:
    return -0.5 * z**2


def _student(z: Numbers, freedom: float) -> Numbers:
    return -0.5 * (freedom + 1) * functions_of(z).log1p(z**2 / freedom)


def _student_slope(z: Floats, freedom: float) -> Floats:
    return -(freedom + 1) * z / (freedom + z**2)


def _student_bend(z: Floats, freedom: float) -> Floats:
    return (freedom + 1) * (freedom - z**2) / (freedom + z**2) ** 2


def _student_normaliser(freedom: float) -> float:
    return lgamma(freedom / 2) - lgamma((freedom + 1) / 2) + 0.5 * log(pi * freedom)


def _student_draw(rng: np.random.Generator, size: Any, freedom: float) -> Floats:
    return rng.standard_t(freedom, size)


def _rounded(z: Numbers, delta: float) -> Numbers:
    return delta - (z**2 + delta**2) ** 0.5


def _rounded_slope(z: Floats, delta: float) -> Floats:
    return -z / np.sqrt(z**2 + delta**2)


def _rounded_bend(z: Floats, delta: float) -> Floats:
    return delta**2 / np.sqrt(z**2 + delta**2) ** 3


def _rounded_normaliser(delta: float) -> float:
    """log of 2 delta e^delta K_1(delta)."""
    from scipy.special import k1e

    return log(2 * delta * float(k1e(delta)))


def _rounded_draw(rng: np.random.Generator, size: Any, delta: float) -> Floats:
    """Of Laplace's draws those at z are kept with the chance exp(|z| - sqrt(z^2 + delta^2))."""
    out = np.empty(int(np.prod(size)))
    missing = np.arange(len(out))
    while len(missing):
        z = rng.laplace(size=len(missing))
        kept = rng.random(len(missing)) < np.exp(np.abs(z) - np.sqrt(z**2 + delta**2))
        out[missing[kept]] = z[kept]
        missing = missing[~kept]
    return out.reshape(size)


def _gamma(z: Numbers, shape: float) -> Numbers:
    return (shape - 1) * functions_of(z).log(z) - z


def _inverse_gamma(z: Numbers, shape: float) -> Numbers:
    return -(shape + 1) * functions_of(z).log(z) - 1 / z


def _student_moments(freedom: float) -> float:
    return freedom


def _nothing(z: Numbers) -> Numbers:
    return 0.0 * z


def _no_draw(rng: np.random.Generator, size: Any) -> Floats:
    raise AssertionError("a flat prior has no draws")


def _half(law: StandardLaw, name: str) -> StandardLaw:
    def log_normaliser(*shape: float) -> float:
        return law.log_normaliser(*shape) - log(2)

    def draw(rng: np.random.Generator, size: Any, *shape: float) -> Floats:
        return np.abs(law.draw(rng, size, *shape))

    return law._replace(name=name, log_normaliser=log_normaliser, draw=draw, positive=True)


def _with_freedom(law: StandardLaw, name: str, freedom: float) -> StandardLaw:
    """Student's law of a number of degrees of freedom that its name says."""
    last: dict[str, Any] = {key: _given(getattr(law, key), freedom) for key in ("log_density", "slope", "bend", "draw")}
    return law._replace(
        name=name,
        log_normaliser=partial(law.log_normaliser, freedom),
        moments=partial(law.moments, freedom),
        **last,
    )


def _given(function: Callable[..., Any], freedom: float) -> Callable[..., Any]:
    return lambda *arguments: function(*arguments, freedom)


NORMAL = StandardLaw(
    "normal",
    _normal,
    lambda z: -z,
    lambda z: np.ones_like(z),
    lambda: 0.5 * log(2 * pi),
    lambda rng, size: rng.standard_normal(size),
)
STUDENT = StandardLaw(
    "student_t",
    _student,
    _student_slope,
    _student_bend,
    _student_normaliser,
    _student_draw,
    log_concave=False,
    moments=_student_moments,
)
CAUCHY = _with_freedom(STUDENT, "cauchy", 1.0)
LAPLACE = StandardLaw("laplace", _rounded, _rounded_slope, _rounded_bend, _rounded_normaliser, _rounded_draw)
EXPONENTIAL = StandardLaw(
    "exponential",
    lambda z: -z,
    lambda z: -np.ones_like(z),
    lambda z: np.zeros_like(z),
    lambda: 0.0,
    lambda rng, size: rng.standard_exponential(size),
    positive=True,
)
GAMMA = StandardLaw(
    "gamma",
    _gamma,
    lambda z, a: (a - 1) / z - 1,
    lambda z, a: (a - 1) / z**2,
    lgamma,
    lambda rng, size, a: rng.standard_gamma(a, size),
    positive=True,
    typical=lambda a: a,
)
INVERSE_GAMMA = StandardLaw(
    "inverse_gamma",
    _inverse_gamma,
    lambda z, a: -(a + 1) / z + 1 / z**2,
    lambda z, a: -(a + 1) / z**2 + 2 / z**3,
    lgamma,
    lambda rng, size, a: 1 / rng.standard_gamma(a, size),
    positive=True,
    log_concave=False,
    moments=lambda a: a,
    typical=lambda a: 1 / a,
)
FLAT = StandardLaw(
    "flat",
    _nothing,
    lambda z: np.zeros_like(z),
    lambda z: np.zeros_like(z),
    lambda: inf,
    _no_draw,
    proper=False,
    moments=lambda: 0.0,
)

LAWS = {
    law.name: law
    for law in (
        NORMAL,
        STUDENT,
        LAPLACE,
        CAUCHY,
        FLAT,
        _half(NORMAL, "half_normal"),
        _half(STUDENT, "half_student_t"),
        _half(CAUCHY, "half_cauchy"),
        EXPONENTIAL,
        GAMMA,
        INVERSE_GAMMA,
    )
}
