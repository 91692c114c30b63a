"""Supports of PyMC's random variables as constraints: ours where the space is the same, PyMC's transform otherwise.

start = the value that PyMC begins at, the middle of the support where it has none inside
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.doors.pymc.graphs import JaxGraph, ModelGraph, fold, in_jax, numbers
from tallbayes.errors import ModelError, explain
from tallbayes.model import constraints
from tallbayes.model.constraints import Constraint, Interval, Positive, Real


@dataclass(frozen=True)
class Transformed:
    """A space that PyMC alone has a transform for, known by what it computes."""

    name: str
    identity: str
    free: tuple[int, ...]
    apart: bool
    backward: JaxGraph = field(compare=False, repr=False)
    forward: JaxGraph = field(compare=False, repr=False)
    size: JaxGraph = field(compare=False, repr=False)

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.free

    def constrain(self, free: jax.Array) -> jax.Array:
        return jnp.asarray(self.backward({"u": free})[0], free.dtype)

    def unconstrain(self, value: Any) -> np.ndarray | jax.Array:
        return jnp.asarray(self.forward({"u": jnp.asarray(value)})[0])

    def log_jacobian(self, free: jax.Array) -> jax.Array:
        return jnp.sum(jnp.asarray(self.size({"u": free})[0])).astype(free.dtype)

    def require(self, name: str, value: np.ndarray) -> None:
        with jax.enable_x64(True):
            inside = np.isfinite(np.asarray(self.unconstrain(np.asarray(value, np.float64)))).all()
        if not (inside and np.isfinite(value).all()):
            got = " ".join(np.array2string(np.asarray(value), threshold=10, precision=4).split())
            raise ModelError(explain(f"start values of {name} in the space of {self.name}", got, "those of from_pymc"))


def is_apart(constraint: Constraint) -> bool:
    """Whether it is the same interval for every entry."""
    return isinstance(constraint, Real | Positive | Interval) or getattr(constraint, "apart", False)


def start_values(graph: ModelGraph) -> dict[str, np.ndarray]:
    """Where PyMC begins, in the variables' own spaces."""
    from pymc.initial_point import make_initial_point_expression

    expressions = make_initial_point_expression(
        free_rvs=graph.free,
        rvs_to_transforms=dict(graph.model.rvs_to_transforms),
        initval_strategies=dict(graph.model.rvs_to_initial_values),
    )
    found = {}
    known = numbers(expressions)
    for rv, expression, value in zip(graph.free, expressions, known, strict=True):
        found[rv.name] = np.asarray(_drawn(expression) if value is None else value, np.float64)
    return found


def _drawn(expression: Any) -> np.ndarray:
    """A start value that PyMC has of a draw alone, if only of its shape."""
    import pymc
    import pytensor
    from pytensor.compile.mode import Mode

    with pytensor.config.change_flags(cxx=""):
        return np.asarray(pymc.draw(expression, random_seed=0, mode=Mode("py", None)))


def constraint_of(graph: ModelGraph, rv: Any, start: np.ndarray) -> Constraint:
    """The space of a free variable; refuses bounds that other variables move."""
    from pymc.distributions import transforms as theirs
    from pymc.logprob import transforms as general

    transform, inputs = graph.model.rvs_to_transforms[rv], rv.owner.inputs
    if transform is None:
        return constraints.real
    kind = type(transform)
    if kind is general.LogTransform:
        return constraints.positive
    if kind is general.LogOddsTransform:
        return constraints.unit_interval
    if kind is general.SimplexTransform:
        return constraints.simplex
    if kind is theirs.Ordered and not transform.positive and transform.ascending:
        return constraints.ordered
    if kind is general.CircularTransform:
        hint = "two coordinates with a normal prior each, and pm.Deterministic for the angle"
        raise ModelError(explain("a support with a bijector", f"{rv.name!r} on a circle", hint))
    if isinstance(transform, general.IntervalTransform):
        ends = [_bound(graph, rv, each) for each in transform.args_fn(*inputs)]
        plain = _plain([-np.inf if ends[0] is None else ends[0], np.inf if ends[1] is None else ends[1]])
        if plain is not None:
            return plain
        apart = all(end is None or np.ptp(end) == 0 for end in ends)
        return _transformed(graph, rv, transform, start, apart)
    return _transformed(graph, rv, transform, start, False)


def _plain(ends: Sequence[Any]) -> Constraint | None:
    """One of our own, where all entries have the same bounds."""
    if any(np.size(end) == 0 or np.ptp(end) for end in ends if np.all(np.isfinite(end))):
        return None
    lower, upper = (float(np.ravel(end)[0]) for end in ends)
    if np.isinf([lower, upper]).all():
        return constraints.real
    if lower == 0 and upper == np.inf:
        return constraints.positive
    return constraints.interval(lower, upper) if np.isfinite([lower, upper]).all() else None


def _bound(graph: ModelGraph, rv: Any, bound: Any) -> np.ndarray | None:
    import pytensor.tensor as pt

    if bound is None:
        return None
    found = graph.number(pt.as_tensor(bound))
    if found is None:
        hint = "put it on (0, 1) or above 0, and scale or shift it in the model"
        raise ModelError(explain("supports with fixed bounds", f"{rv.name!r} bounded by another variable", hint))
    return found


def _transformed(graph: ModelGraph, rv: Any, transform: Any, start: np.ndarray, apart: bool) -> Transformed:
    import pytensor.tensor as pt

    inputs = rv.owner.inputs

    def compiled(function: Any, shape: tuple[int, ...]) -> JaxGraph:
        free = pt.tensor("u", dtype="float64", shape=shape)
        known = fold(graph.of_values([function(free, *inputs)]), {})
        try:
            return in_jax({"u": free}, known, {})
        except Exception as error:
            hint = "another parameter that determines it, and pm.Deterministic"
            got = f"{type(transform).__name__} of {rv.name!r}: {type(error).__name__}"
            raise ModelError(
                explain("a transform that runs in JAX and hangs on no other variable", got, hint)
            ) from error

    forward = compiled(transform.forward, start.shape)
    free = jax.eval_shape(lambda value: forward({"u": value})[0], start).shape
    backward, size = compiled(transform.backward, free), compiled(transform.log_jac_det, free)
    text = [str(jax.make_jaxpr(lambda u, each=each: each({"u": u}))(np.zeros(free))) for each in (backward, size)]
    constants = [each.tobytes() for graph in (backward, size) for each in graph.constants]
    identity = hashlib.sha256(b"".join([*(each.encode() for each in text), *constants])).hexdigest()
    name = str(getattr(transform, "name", type(transform).__name__))
    return Transformed(name, identity, tuple(free), apart, backward, forward, size)
