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

# By the names that JAX has for its operations.
ELEMENTWISE = """
    abs acos acosh add and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp convert_element_type
    copy cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac integer_pow is_finite
    le lgamma log log1p logistic lt max min mul ne neg nextafter not or polygamma pow real reduce_precision
    regularized_incomplete_beta rem round rsqrt select_n sign sin sinh sqrt square sub tan tanh xor zeta
"""
REDUCTIONS = "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin"
# Of a function with a derivative rule of its own the body is followed: its derivatives are those of what it computes.
CALLS = "jit pjit closed_call core_call checkpoint remat remat2 custom_jvp_call"
_ELEMENTWISE, _REDUCTIONS, _CALLS = (frozenset(names.split()) for names in (ELEMENTWISE, REDUCTIONS, CALLS))


class NotApartError(Exception):
    """Entries of a plate are not kept apart; in words."""


@dataclass(frozen=True)
class Along:
    """A value of this `shape`, kept with axes of length 1 where it is the same all along.

    With an `axis` it is of the plate: what is kept is the entry g of that axis.
    """

    kept: Any
    shape: tuple[int, ...]
    axis: int | None = None


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

        for step in _needed(jaxpr):
            found = self._step(step, [value(name) for name in step.invars])
            known |= dict(zip(step.outvars, found, strict=True))
        return [value(name) for name in jaxpr.outvars]

    def _step(self, step: Any, inputs: list[Any]) -> list[Any]:
        name = step.primitive.name
        aware = any(isinstance(each, Along) for each in inputs)
        along = any(isinstance(each, Along) and each.axis is not None for each in inputs)
        if name == "broadcast_in_dim" and (aware or self._is_long(step)):
            return [_broadcast(inputs[0], **_some(step, "shape", "broadcast_dimensions"))]
        if name in _CALLS and (along or (self._is_long(step) and name != "custom_jvp_call")):
            return self.through(*_body(step), inputs)
        if not aware:
            return _run(step, inputs)
        if name in _ELEMENTWISE:
            return [self._elementwise(step, inputs)]
        if along:
            if name not in RULES and name not in _REDUCTIONS:
                raise NotApartError(f"{_words(step)} reads all its entries together")
            return [(_reduce if name in _REDUCTIONS else RULES[name])(self, step, inputs)]
        return _run(step, [whole(each) for each in inputs])

    def _is_long(self, step: Any) -> bool:
        return any(self.size in np.shape(name.aval) for name in step.outvars)

    def _elementwise(self, step: Any, inputs: list[Any]) -> Any:
        axis = plate_axis(inputs)
        kept = [each.kept if isinstance(each, Along) else each for each in inputs]
        if axis is not None:
            kept = [self.entry(each, axis) if np.ndim(each) else each for each in kept]
        common = np.broadcast_shapes(*[np.shape(each) for each in kept])
        kept = [jnp.broadcast_to(each, common) if np.ndim(each) else each for each in kept]
        return _along(_run(step, kept)[0], step, axis)

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


def _needed(jaxpr: Any) -> list[Any]:
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
    steps = _needed(jaxpr)
    wanted = set(_names(jaxpr.outvars)).union(*(_names(step.invars) for step in steps))
    counts = [len(jax.tree.leaves(each)) for each in arguments]
    ends = np.cumsum(counts)
    return [not wanted.isdisjoint(jaxpr.invars[end - count : end]) for count, end in zip(counts, ends, strict=True)]


def _names(variables: Any) -> list[Any]:
    return [name for name in variables if not hasattr(name, "val")]


def whole(value: Any) -> Any:
    """A value that is not of the plate, written out."""
    return jnp.broadcast_to(value.kept, value.shape) if isinstance(value, Along) else value


def plate_axis(inputs: list[Any]) -> int | None:
    """The axis of the plate in values that stand side by side."""
    axes = {each.axis for each in inputs if isinstance(each, Along) and each.axis is not None}
    if len(axes) > 1:
        raise NotApartError("its entries meet one another")
    return axes.pop() if axes else None


def _run(step: Any, inputs: list[Any], **changed: Any) -> list[Any]:
    params = step.primitive.get_bind_params({**step.params, **changed})
    with step.ctx.manager:
        found = step.primitive.bind(*inputs, **params)
    return list(found) if step.primitive.multiple_results else [found]


def _along(kept: Any, step: Any, axis: int | None) -> Any:
    shape = tuple(np.shape(step.outvars[0].aval))
    return kept if axis is None and np.shape(kept) == shape else Along(kept, shape, axis)


def _some(step: Any, *names: str) -> dict[str, Any]:
    return {name: step.params[name] for name in names}


def _body(step: Any) -> tuple[Any, list[Any]]:
    """The operations of a call, and their constants."""
    inner = step.params.get("jaxpr", step.params.get("call_jaxpr"))
    return (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, [])


def _words(step: Any) -> str:
    return f"{step.primitive.name.replace('_', ' ')}"


def _broadcast(value: Any, shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...]) -> Along:
    kept = value.kept if isinstance(value, Along) else value
    lengths = [1] * len(shape)
    for place, length in zip(broadcast_dimensions, np.shape(kept), strict=True):
        lengths[place] = length
    axis = value.axis if isinstance(value, Along) else None
    return Along(jnp.reshape(kept, lengths), tuple(shape), None if axis is None else broadcast_dimensions[axis])


def _own(inputs: list[Any]) -> tuple[Along, int, list[Any]]:
    """The first input, which must be that of the plate, its axis, and the others written out."""
    first, *rest = inputs
    if not isinstance(first, Along) or first.axis is None or plate_axis(rest) is not None:
        raise NotApartError("its values are used as indices")
    return first, first.axis, [whole(each) for each in rest]


def _reshape(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, _ = _own(inputs)
    new = tuple(step.params["new_sizes"])
    before, after = np.cumprod((1, *value.shape)), np.cumprod((1, *new))
    places = [place for place, length in enumerate(new) if length == walk.size and after[place] == before[axis]]
    if not places:
        raise NotApartError("reshape mixes its entries")
    kept = jnp.reshape(
        walk.full(value, axis), [1 if place == places[0] else length for place, length in enumerate(new)]
    )
    return _along(kept, step, places[0])


def _squeeze(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, _ = _own(inputs)
    gone = step.params["dimensions"]
    return _along(lax.squeeze(value.kept, gone), step, axis - sum(each < axis for each in gone))


def _transpose(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, _ = _own(inputs)
    order = tuple(step.params["permutation"])
    return _along(jnp.transpose(value.kept, order), step, order.index(axis))


def _reduce(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, _ = _own(inputs)
    axes = step.params["axes"]
    if axis in axes:
        raise NotApartError(f"{_words(step)} reads all its entries together")
    return _along(_run(step, [walk.full(value, axis)])[0], step, axis - sum(each < axis for each in axes))


def _concatenate(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    axis = plate_axis(inputs)
    assert axis is not None
    if step.params["dimension"] == axis:
        raise NotApartError("concatenate adds entries to it")
    return _along(_run(step, [walk.full(each, axis) for each in inputs])[0], step, axis)


def _stack(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    axis = plate_axis(inputs)
    assert axis is not None
    place = step.params["axis"]
    kept = _run(step, [walk.full(each, axis) for each in inputs])[0]
    return _along(kept, step, axis + (place <= axis))


def _slice(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, _ = _own(inputs)
    start, limit, strides = (step.params[name] for name in ("start_indices", "limit_indices", "strides"))
    if (start[axis], limit[axis]) != (0, walk.size) or (strides is not None and strides[axis] != 1):
        raise NotApartError("some of its entries are picked out, whatever the row is")
    limit = tuple(1 if place == axis else each for place, each in enumerate(limit))
    return _along(_run(step, [walk.full(value, axis)], limit_indices=limit)[0], step, axis)


def _dynamic_slice(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, starts = _own(inputs)
    sizes = list(step.params["slice_sizes"])
    reads_one = sizes[axis] == 1
    if reads_one:
        walk.read.append(starts[axis])
    elif sizes[axis] != walk.size:
        raise NotApartError("a row reads more than one of its entries")
    sizes[axis], starts[axis] = 1, jnp.zeros_like(starts[axis])
    kept = _run(step, [walk.full(value, axis), *starts], slice_sizes=tuple(sizes))[0]
    return _along(kept, step, None if reads_one else axis)


def _gather(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, (indices,) = _own(inputs)
    numbers, sizes = step.params["dimension_numbers"], list(step.params["slice_sizes"])
    reads_one = axis in numbers.start_index_map and sizes[axis] == 1
    out = None
    if reads_one:
        place = numbers.start_index_map.index(axis)
        walk.read.append(indices[..., place])
        indices = indices.at[..., place].set(0)
    elif axis not in (*numbers.start_index_map, *numbers.operand_batching_dims) and sizes[axis] == walk.size:
        gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        out = numbers.offset_dims[axis - sum(each < axis for each in gone)]
    else:
        raise NotApartError("a row reads more than one of its entries")
    sizes[axis] = 1
    return _along(_run(step, [walk.full(value, axis), indices], slice_sizes=tuple(sizes))[0], step, out)


def _dot(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    contracted, batch = step.params["dimension_numbers"]
    sides = [isinstance(each, Along) and each.axis is not None for each in inputs]
    if all(sides):
        raise NotApartError("its entries meet one another")
    side = sides.index(True)
    axis = inputs[side].axis
    if axis in contracted[side] or axis in batch[side]:
        raise NotApartError("a product reads all its entries together")
    free = [
        [p for p in range(np.ndim(_shaped(each))) if p not in (*contracted[s], *batch[s])]
        for s, each in enumerate(inputs)
    ]
    out = len(batch[0]) + (len(free[0]) if side else 0) + free[side].index(axis)
    factors = [walk.full(each, axis) if place == side else whole(each) for place, each in enumerate(inputs)]
    return _along(_run(step, factors)[0], step, out)


def _shaped(value: Any) -> Any:
    return np.empty(value.shape if isinstance(value, Along) else np.shape(value))


RULES: dict[str, Callable[[EntryWalk, Any, list[Any]], Any]] = {
    "concatenate": _concatenate,
    "dot_general": _dot,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "reshape": _reshape,
    "slice": _slice,
    "squeeze": _squeeze,
    "stack": _stack,
    "transpose": _transpose,
}
