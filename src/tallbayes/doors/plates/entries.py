"""Entries: a function of arrays along a plate, as a function of the one entry that it reads.

    f(z_1, ..., z_G)   where z_j enters f only by elementwise functions h_j(z_j) that are then indexed at g:   f(z_g)

The function is traced on whole arrays and run again, operation by operation, with an axis of length 1 in the place of
the plate's: a value along the plate is there as its entry g alone. What meets it of other arrays along the plate is
sliced at g; the index that is read there is noted, for whoever knows g to compare. Only operations that are known to
keep entries apart are let through, so whatever comes out depends on no other entry, whatever the values are.

Values that are the same along the plate, such as a scale that was broadcast, are kept once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallbayes.doors.plates.rules import REDUCE, RULES
from tallbayes.doors.plates.steps import Along, NotApartError, as_along, plate_axis, run_step, some, whole, words_of

# By the names that JAX has for its operations.
ELEMENTWISE = """
    abs acos acosh add and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp convert_element_type
    copy cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac integer_pow is_finite
    le lgamma log log1p logistic lt max min mul ne neg nextafter not or polygamma pow real reduce_precision
    regularized_incomplete_beta rem round rsqrt select_n sign sin sinh sqrt square stop_gradient sub tan tanh xor zeta
"""
REDUCTIONS = "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin"
# Of a function with a derivative rule of its own the body is followed: its derivatives are those of what it computes.
CALLS = "jit pjit closed_call core_call checkpoint remat remat2 custom_jvp_call"
_ELEMENTWISE, _REDUCTIONS, _CALLS = (frozenset(names.split()) for names in (ELEMENTWISE, REDUCTIONS, CALLS))


@dataclass(eq=False)
class EntryWalk:
    """A run through the operations of a function; `own` is g, where it is known, and `read` the indices met."""

    size: int
    own: Any = None
    read: list[Any] = field(default_factory=list)
    slices: bool = False

    def through(self, jaxpr: Any, constants: list[Any], inputs: list[Any]) -> list[Any]:
        """The outputs of a traced function, those along the plate as `Along`."""
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        known |= dict(zip(jaxpr.invars, inputs, strict=True))

        def value(name: Any) -> Any:
            return name.val if hasattr(name, "val") else known[name]

        for step in needed_steps(jaxpr):
            found = self._step(step, [value(name) for name in step.invars])
            known |= dict(zip(step.outvars, found, strict=True))
        return [value(name) for name in jaxpr.outvars]

    def _step(self, step: Any, inputs: list[Any]) -> list[Any]:
        name = step.primitive.name
        aware = any(isinstance(each, Along) for each in inputs)
        along = any(isinstance(each, Along) and each.axis is not None for each in inputs)
        if name == "broadcast_in_dim" and (aware or self._is_long(step)):
            return [_broadcast(inputs[0], **some(step, "shape", "broadcast_dimensions"))]
        if name in _CALLS and (along or (self._is_long(step) and name != "custom_jvp_call")):
            return self.through(*body_of(step), inputs)
        if not aware:
            return run_step(step, inputs)
        if name in _ELEMENTWISE:
            return [self._elementwise(step, inputs)]
        if along:
            if name not in RULES and name not in _REDUCTIONS:
                raise NotApartError(f"{words_of(step)} reads all its entries together")
            return [(REDUCE if name in _REDUCTIONS else RULES[name])(self, step, inputs)]
        return run_step(step, [whole(each) for each in inputs])

    def _is_long(self, step: Any) -> bool:
        return any(self.size in np.shape(name.aval) for name in step.outvars)

    def _elementwise(self, step: Any, inputs: list[Any]) -> Any:
        axis = plate_axis(inputs)
        kept = [each.kept if isinstance(each, Along) else each for each in inputs]
        if axis is not None:
            kept = [self.entry(each, axis) if np.ndim(each) else each for each in kept]
        common = np.broadcast_shapes(*[np.shape(each) for each in kept])
        kept = [jnp.broadcast_to(each, common) if np.ndim(each) else each for each in kept]
        return as_along(run_step(step, kept)[0], step, axis)

    def entry(self, value: Any, axis: int) -> Any:
        """The entry g of an array along the plate; one that is kept once stays."""
        if np.shape(value)[axis] == 1:
            return value
        if self.own is None:
            raise NotApartError("its groups differ before any row is seen")
        self.slices = True
        return lax.dynamic_slice_in_dim(value, self.own, 1, axis)

    def full(self, value: Any, axis: int) -> Any:
        """The entry g, and all there is along the other axes."""
        if not isinstance(value, Along):
            return self.entry(value, axis)
        shape = [1 if place == axis else length for place, length in enumerate(value.shape)]
        return jnp.broadcast_to(self.entry(value.kept, axis), shape)


def needed_steps(jaxpr: Any) -> list[Any]:
    """The operations that an output hangs on: what is told by `numpyro.deterministic` alone may read what it likes."""
    wanted, steps = set(_names(jaxpr.outvars)), []
    for step in reversed(jaxpr.eqns):
        if wanted.intersection(_names(step.outvars)):
            wanted.update(_names(step.invars))
            steps.append(step)
    return steps[::-1]


def reaches(function: Callable[..., Any], *arguments: Any) -> list[bool]:
    """Which of the arguments anything that the function returns hangs on."""
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    steps = needed_steps(jaxpr)
    wanted = set(_names(jaxpr.outvars)).union(*(_names(step.invars) for step in steps))
    counts = [len(jax.tree.leaves(each)) for each in arguments]
    ends = np.cumsum(counts)
    return [not wanted.isdisjoint(jaxpr.invars[end - count : end]) for count, end in zip(counts, ends, strict=True)]


def _names(variables: Any) -> list[Any]:
    return [name for name in variables if not hasattr(name, "val")]


def body_of(step: Any) -> tuple[Any, list[Any]]:
    """The operations of a call, and their constants."""
    inner = step.params.get("jaxpr", step.params.get("call_jaxpr"))
    return (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, [])


def _broadcast(value: Any, shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...]) -> Along:
    kept = value.kept if isinstance(value, Along) else value
    lengths = [1] * len(shape)
    for place, length in zip(broadcast_dimensions, np.shape(kept), strict=True):
        lengths[place] = length
    axis = value.axis if isinstance(value, Along) else None
    return Along(jnp.reshape(kept, lengths), tuple(shape), None if axis is None else broadcast_dimensions[axis])
