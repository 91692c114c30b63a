"""Priors by name, `tb.priors`: each function makes the prior of one number, for `priors={"hour": ...}`.

    coefficients   normal, student_t, cauchy, laplace, flat
    scales         half_normal, half_student_t, half_cauchy, exponential, gamma, inverse_gamma
    correlations   lkj
    coefficients, all together   horseshoe, regularised_horseshoe, r2d2

A prior is one of the number that a result reports under that name, in its own units; of an intercept, of that at the
means of the columns, where these are standardised. With `standardised=True` it is per standard deviation of a column,
as `prior_scale` is. The command line, and a string in the place of a prior, say the same in text: "student_t(4, 0, 1)".
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from tallbayes.errors import ModelError, explain, suggestion
from tallbayes.model.priors.prior import Prior
from tallbayes.model.priors.shrinkage import ShrinkagePrior, horseshoe, r2d2, regularised_horseshoe

__all__ = [
    "cauchy",
    "exponential",
    "flat",
    "gamma",
    "half_cauchy",
    "half_normal",
    "half_student_t",
    "horseshoe",
    "inverse_gamma",
    "laplace",
    "lkj",
    "normal",
    "r2d2",
    "regularised_horseshoe",
    "student_t",
]

# In units of Laplace's scale: within how much its corner is rounded.
ROUNDED_WITHIN = 0.05
CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Lkj:
    """The prior of the correlations of a factor's effects, R ~ det(R)^(shape - 1)."""

    shape: float
    text: str

    def __str__(self) -> str:
        return self.text


def normal(mean: float = 0.0, sd: float = 1.0, *, standardised: bool = False) -> Prior:
    """Normal, of this mean and standard deviation.

    >>> print(normal(0.1, 0.5))
    normal(0.1, 0.5)
    """
    return _prior("normal", _finite("mean", mean), _positive("sd", sd), (), standardised, mean, sd)


def student_t(
    degrees_of_freedom: float, centre: float = 0.0, scale: float = 1.0, *, standardised: bool = False
) -> Prior:
    """Student's t: normal near its centre, with heavier tails, which give way where data disagree.

    >>> priors = {"hour": student_t(4, 0, 0.5)}  # of tb.fit
    >>> print(priors["hour"])
    student_t(4, 0, 0.5)
    """
    nu = _positive("degrees_of_freedom", degrees_of_freedom)
    return _prior("student_t", centre, _positive("scale", scale), (nu,), standardised, nu, centre, scale)


def cauchy(centre: float = 0.0, scale: float = 1.0, *, standardised: bool = False) -> Prior:
    """Cauchy, which is Student's t with one degree of freedom: it has no mean.

    >>> print(cauchy(0, 2.5))
    cauchy(0, 2.5)
    """
    return _prior("cauchy", centre, _positive("scale", scale), (), standardised, centre, scale)


def laplace(
    centre: float = 0.0, scale: float = 1.0, *, rounded_within: float = ROUNDED_WITHIN, standardised: bool = False
) -> Prior:
    """Laplace's, exp(-|x - centre| / scale), with its corner rounded off.

    Its density is proportional to exp(-sqrt(z^2 + delta^2)), z = (x - centre) / scale and delta = `rounded_within`, a
    twentieth of the scale: smooth, since where fine and coarse paths cross a corner they part, and the same as
    Laplace's a few delta from the centre. Its maximum is sparse, and its posterior is not.

    >>> print(laplace(0, 0.1), laplace(0, 0.1, rounded_within=0.01))
    laplace(0, 0.1) laplace(0, 0.1, rounded_within=0.01)
    """
    delta = _positive("rounded_within", rounded_within)
    own = "" if delta == ROUNDED_WITHIN else f", rounded_within={_number(delta)}"
    text = f"laplace({_number(centre)}, {_number(scale)}{own}{_said(standardised)})"
    return Prior("laplace", _finite("centre", centre), _positive("scale", scale), (delta,), bool(standardised), text)


def flat() -> Prior:
    """No prior: improper, with a posterior only where the rows hold the number; evidence refuses it by name.

    >>> flat().proper
    False
    """
    return Prior("flat", text="flat()")


def half_normal(scale: float = 1.0, *, standardised: bool = False) -> Prior:
    """Of a scale: |N(0, scale^2)|.

    >>> priors = {"sd(carrier)": half_normal(0.3), "noise_scale": half_normal(2)}
    >>> priors["noise_scale"].positive
    True
    """
    return _prior("half_normal", 0.0, _positive("scale", scale), (), standardised, scale)


def half_student_t(degrees_of_freedom: float, scale: float = 1.0, *, standardised: bool = False) -> Prior:
    """Of a scale: |Student's t|.

    >>> print(half_student_t(3, 2.5))
    half_student_t(3, 2.5)
    """
    nu = _positive("degrees_of_freedom", degrees_of_freedom)
    return _prior("half_student_t", 0.0, _positive("scale", scale), (nu,), standardised, nu, scale)


def half_cauchy(scale: float = 1.0, *, standardised: bool = False) -> Prior:
    """Of a scale: |Cauchy|.

    >>> print(half_cauchy(0.5))
    half_cauchy(0.5)
    """
    return _prior("half_cauchy", 0.0, _positive("scale", scale), (), standardised, scale)


def exponential(rate: float = 1.0, *, standardised: bool = False) -> Prior:
    """Of a scale: exponential, of mean 1 / rate.

    >>> print(exponential(2))  # of mean 1/2
    exponential(2)
    """
    return _prior("exponential", 0.0, 1 / _positive("rate", rate), (), standardised, rate)


def gamma(shape: float, rate: float = 1.0, *, standardised: bool = False) -> Prior:
    """Of a scale: gamma, of mean shape / rate.

    >>> print(gamma(2, 4))  # of mean 1/2
    gamma(2, 4)
    """
    a = _positive("shape", shape)
    return _prior("gamma", 0.0, 1 / _positive("rate", rate), (a,), standardised, a, rate)


def inverse_gamma(shape: float, scale: float = 1.0, *, standardised: bool = False) -> Prior:
    """Of a scale: one over a gamma number of this shape and rate `scale`; it keeps away from 0.

    >>> print(inverse_gamma(3, 1))
    inverse_gamma(3, 1)
    """
    a = _positive("shape", shape)
    return _prior("inverse_gamma", 0.0, _positive("scale", scale), (a,), standardised, a, scale)


def lkj(shape: float = 2.0) -> Lkj:
    """Of correlations between the effects of a factor: uniform over matrices at 1, nearer to none above.

    >>> priors = {"cor(carrier)": lkj(2)}  # of "late ~ hour + (1 + hour | carrier)"
    >>> print(priors["cor(carrier)"])
    lkj(2)
    """
    return Lkj(_positive("shape", shape), f"lkj({_number(shape)})")


def as_prior(given: Any, name: str) -> Prior | Lkj | ShrinkagePrior:
    """What was given for a parameter of this name, as a prior: one of these, or its text."""
    if isinstance(given, Prior | Lkj | ShrinkagePrior):
        return given
    if isinstance(given, str):
        return read_prior(given)
    hint = f"priors={{{name!r}: tb.priors.normal(0, 1)}}, or the text of it"
    raise ModelError(explain(f"a prior of tb.priors for {name!r}", repr(given), hint))


def read_prior(text: str) -> Prior | Lkj | ShrinkagePrior:
    """From what one would write in Python.

    >>> read_prior("student_t(4, 0, scale=2)").text
    'student_t(4, 0, 2)'
    """
    found = CALL.fullmatch(text)
    if found is None or found[1] not in __all__:
        hint = suggestion(found[1] if found else text, __all__, f"one of {', '.join(__all__)}, as in normal(0, 1)")
        raise ModelError(explain("a prior of tb.priors", repr(text), hint))
    make: Callable[..., Any] = globals()[found[1]]
    try:
        call = ast.parse(f"f({found[2]})", mode="eval").body
        assert isinstance(call, ast.Call)
        numbers = [ast.literal_eval(each) for each in call.args]
        by_name = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        inspect.signature(make).bind(*numbers, **by_name)
    except (SyntaxError, ValueError, TypeError) as error:
        hint = f"{found[1]}{inspect.signature(make)}".replace("'", "").split(" ->")[0]
        hint = re.sub(r": (float|bool)", "", hint)
        raise ModelError(explain(f"numbers for {found[1]}", repr(text), hint)) from error
    return make(*numbers, **by_name)


def _prior(law: str, centre: float, scale: float, shape: tuple[float, ...], standardised: bool, *told: float) -> Prior:
    text = f"{law}({', '.join(map(_number, told))}{_said(standardised)})"
    return Prior(law, _finite("centre", centre), scale, shape, bool(standardised), text)


def _said(standardised: bool) -> str:
    return ", standardised=True" if standardised else ""


def _number(value: Any) -> str:
    return f"{float(value):.12g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _finite(name: str, value: Any) -> float:
    if not (_is_number(value) and isfinite(value)):
        raise ModelError(explain(f"a finite {name} of a prior", repr(value), f"{name}=0.0"))
    return float(value)


def _positive(name: str, value: Any) -> float:
    if not (_is_number(value) and isfinite(value) and value > 0):
        raise ModelError(explain(f"{name} > 0 of a prior", repr(value), "a number, or tb.priors.flat() for no prior"))
    return float(value)
