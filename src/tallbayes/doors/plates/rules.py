"""Rules: operations that keep the entries of a plate apart, run on the entry g alone.

Each takes a walk, the operation and its inputs, those along the plate as `Along`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tallbayes.doors.plates.steps import Along, NotApartError, as_along, plate_axis, run_step, whole, words_of

if TYPE_CHECKING:
    from tallbayes.doors.plates.entries import EntryWalk


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
    return as_along(kept, step, places[0])


def _squeeze(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, _ = _own(inputs)
    gone = step.params["dimensions"]
    return as_along(lax.squeeze(value.kept, gone), step, axis - sum(each < axis for each in gone))


def _transpose(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, _ = _own(inputs)
    order = tuple(step.params["permutation"])
    return as_along(jnp.transpose(value.kept, order), step, order.index(axis))


def _reduce(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, _ = _own(inputs)
    axes = step.params["axes"]
    if axis in axes:
        raise NotApartError(f"{words_of(step)} reads all its entries together")
    return as_along(run_step(step, [walk.full(value, axis)])[0], step, axis - sum(each < axis for each in axes))


def _concatenate(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    axis = plate_axis(inputs)
    assert axis is not None
    if step.params["dimension"] == axis:
        raise NotApartError("concatenate adds entries to it")
    return as_along(run_step(step, [walk.full(each, axis) for each in inputs])[0], step, axis)


def _stack(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    axis = plate_axis(inputs)
    assert axis is not None
    place = step.params["axis"]
    kept = run_step(step, [walk.full(each, axis) for each in inputs])[0]
    return as_along(kept, step, axis + (place <= axis))


def _slice(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, _ = _own(inputs)
    start, limit, strides = (step.params[name] for name in ("start_indices", "limit_indices", "strides"))
    if (start[axis], limit[axis]) != (0, walk.size) or (strides is not None and strides[axis] != 1):
        raise NotApartError("some of its entries are picked out, whatever the row is")
    limit = tuple(1 if place == axis else each for place, each in enumerate(limit))
    return as_along(run_step(step, [walk.full(value, axis)], limit_indices=limit)[0], step, axis)


def _dynamic_slice(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    value, axis, starts = _own(inputs)
    sizes = list(step.params["slice_sizes"])
    reads_one = sizes[axis] == 1
    if reads_one:
        walk.read.append(starts[axis])
    elif sizes[axis] != walk.size:
        raise NotApartError("a row reads more than one of its entries")
    sizes[axis], starts[axis] = 1, jnp.zeros_like(starts[axis])
    kept = run_step(step, [walk.full(value, axis), *starts], slice_sizes=tuple(sizes))[0]
    return as_along(kept, step, None if reads_one else axis)


def _gather(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    operand, indices = inputs
    if isinstance(indices, Along) and indices.axis is not None:
        return _gather_beside(walk, step, operand, indices)
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
    return as_along(run_step(step, [walk.full(value, axis), indices], slice_sizes=tuple(sizes))[0], step, out)


def _gather_beside(walk: EntryWalk, step: Any, operand: Any, indices: Along) -> Any:
    """Each entry reads at indices of its own: of what is the same for all, or of its own entry."""
    numbers, place = step.params["dimension_numbers"], indices.axis
    assert place is not None
    out = batch_places(step)[place]
    own = walk.full(indices, place)
    axis = plate_axis([operand])
    if axis is None:
        operand = whole(operand)
        if place in numbers.start_indices_batching_dims:
            operand = walk.entry(
                operand, numbers.operand_batching_dims[numbers.start_indices_batching_dims.index(place)]
            )
        return as_along(run_step(step, [operand, own])[0], step, out)
    pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    if (axis, place) not in pairs:
        if axis not in numbers.start_index_map or step.params["slice_sizes"][axis] != 1:
            raise NotApartError("an entry reads more than one of its entries")
        column = numbers.start_index_map.index(axis)
        walk.read.append(own[..., column])
        own = own.at[..., column].set(0)
    return as_along(run_step(step, [walk.full(operand, axis), own])[0], step, out)


def batch_places(step: Any) -> list[int]:
    """Where the axes of the indices of a gather stand in what it returns."""
    offset = step.params["dimension_numbers"].offset_dims
    return [place for place in range(np.ndim(step.outvars[0].aval)) if place not in offset]


def _dot(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    contracted, batch = step.params["dimension_numbers"]
    sides = [isinstance(each, Along) and each.axis is not None for each in inputs]
    side = sides.index(True)
    axis = inputs[side].axis
    if axis in batch[side]:
        return _dot_beside(walk, step, inputs, batch[side].index(axis))
    if all(sides):
        raise NotApartError("its entries meet one another")
    if axis in contracted[side]:
        raise NotApartError("a product reads all its entries together")
    free = [
        [p for p in range(np.ndim(_shaped(each))) if p not in (*contracted[s], *batch[s])]
        for s, each in enumerate(inputs)
    ]
    out = len(batch[0]) + (len(free[0]) if side else 0) + free[side].index(axis)
    factors = [walk.full(each, axis) if place == side else whole(each) for place, each in enumerate(inputs)]
    return as_along(run_step(step, factors)[0], step, out)


def _dot_beside(walk: EntryWalk, step: Any, inputs: list[Any], place: int) -> Any:
    """A product for each entry."""
    axes = [batch[place] for batch in step.params["dimension_numbers"][1]]
    if any(isinstance(each, Along) and each.axis not in (None, axis) for each, axis in zip(inputs, axes, strict=True)):
        raise NotApartError("its entries meet one another")
    factors = [walk.full(each, axis) for each, axis in zip(inputs, axes, strict=True)]
    return as_along(run_step(step, factors)[0], step, place)


def _beside(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    """Along other axes, as a cumulative sum or a matrix solved for each entry."""
    axis = plate_axis(inputs)
    assert axis is not None
    if axis in axes_read(step):
        raise NotApartError(f"{words_of(step)} reads all its entries together")
    return as_along(run_step(step, [walk.full(each, axis) for each in inputs])[0], step, axis)


def _solve(walk: EntryWalk, step: Any, inputs: list[Any]) -> Any:
    """A triangular system, for each entry or with a right-hand side for each."""
    matrix, side = inputs
    axis = plate_axis([side])
    if plate_axis([matrix]) is None and axis == free_axis(step):
        return as_along(run_step(step, [whole(matrix), walk.full(side, axis)])[0], step, axis)
    return _beside(walk, step, inputs)


def free_axis(step: Any) -> int:
    """The axis of the right-hand sides of a triangular system that is not summed over."""
    return np.ndim(step.invars[1].aval) - (1 if step.params["left_side"] else 2)


def axes_read(step: Any) -> tuple[int, ...]:
    """Axes along which an operation reads entries together."""
    ndim = np.ndim(step.invars[0].aval)
    if step.primitive.name in MATRICES:
        return ndim - 2, ndim - 1
    return (step.params["dimension"] if "dimension" in step.params else step.params["axis"],)


def _shaped(value: Any) -> Any:
    return np.empty(value.shape if isinstance(value, Along) else np.shape(value))


CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
MATRICES = ("cholesky", "triangular_solve")
REDUCE = _reduce
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
    "triangular_solve": _solve,
    **dict.fromkeys((*CUMULATIVE, "cholesky", "sort"), _beside),
}
