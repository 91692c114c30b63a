"""Rows: which axis of which array of a model is that of its rows, and its terms for one row alone.

    term_i(theta, all data)   =   term(theta, data of row i)

Of the terms the rows are the leading axis. From there the operations are followed back to the arrays of data: what an
output has along its rows comes from one axis of an input, or from none. Then they are followed forward with the data
of one row in the place of all (`plates.entries`): only operations that keep rows apart are let through, so that
whatever comes out hangs on no other row, whatever the values are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.doors.plates.entries import CALLS, ELEMENTWISE, REDUCTIONS, EntryWalk, body_of, needed_steps
from tallbayes.doors.plates.rules import RULES, axes_read, batch_places, free_axis
from tallbayes.doors.plates.steps import Along, NotApartError, words_of
from tallbayes.doors.pymc.graphs import JaxGraph, as_float

ROW = "__row__"
READ_ROWS = 2**16


@dataclass(frozen=True, eq=False)
class RowTerms:
    """Terms of `length` rows: of the arrays of their graph some have `axes` of rows."""

    graph: JaxGraph
    names: tuple[str, ...]
    length: int
    axes: tuple[int | None, ...]
    numbered: bool = False
    # By the types of theta and of a row: PyTensor's own Python need not run each time.
    traced: dict[Any, Any] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, np.ndarray]:
        """The columns, rows first; the number of a row where it reads something by it."""
        pairs = zip(self.graph.names, self.graph.constants, self.axes, strict=True)
        found = {name: np.moveaxis(array, axis, 0) for name, array, axis in pairs if axis is not None}
        return {**found, ROW: np.arange(self.length, dtype=np.int32)} if self.numbered else found

    def __call__(self, theta: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        """The terms of one row, summed over whatever it has many of."""
        given = (
            {name: jnp.asarray(theta[name]) for name in self.graph.free},
            {k: jnp.asarray(v) for k, v in row.items()},
        )
        leaves, kind = jax.tree.flatten(given)
        key = kind, tuple((each.shape, each.dtype) for each in leaves)
        if key not in self.traced:
            wide = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in leaves]  # type: ignore[no-untyped-call]
            alone = lambda theta, row: self.walked(EntryWalk(self.length, row.get(ROW)), theta, row)  # noqa: E731
            self.traced[key] = jax.make_jaxpr(alone, return_shape=True)(*jax.tree.unflatten(kind, wide))
        closed, shapes = self.traced[key]
        found = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    def walked(self, walk: EntryWalk, theta: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        theta = {name: jnp.asarray(theta[name]) for name in self.graph.free}
        dtype = jnp.result_type(*theta.values())
        wide = [jax.ShapeDtypeStruct(each.shape, _dtype(each, dtype)) for each in self.graph.constants]  # type: ignore[no-untyped-call]
        closed = jax.make_jaxpr(self.graph)(theta, wide)
        given: list[Any] = []
        for name, array, axis in zip(self.graph.names, self.graph.constants, self.axes, strict=True):
            if axis is None:
                given.append(as_float(array, dtype))
            else:
                # A table on its way holds whole numbers in fewer bits.
                own = jnp.asarray(row[name], jax.dtypes.canonicalize_dtype(_dtype(array, dtype)))
                given.append(Along(jnp.expand_dims(own, axis), array.shape, axis))
        found = walk.through(closed.jaxpr, closed.consts, [*jax.tree.leaves(theta), *given])
        terms = {}
        for name, term in zip(self.names, found, strict=True):
            if not isinstance(term, Along) or term.axis is None:
                raise NotApartError(f"{name!r} is of no row")
            terms[name] = walk.full(term, term.axis)
        return terms


def _dtype(array: np.ndarray, dtype: Any) -> Any:
    return dtype if array.dtype.kind == "f" else array.dtype


def rows_of(graph: JaxGraph, names: tuple[str, ...], theta: dict[str, Any], length: int) -> RowTerms:
    """The terms for one row, where rows are kept apart; NotApartError says where not."""
    theta = {name: np.asarray(theta[name]) for name in graph.free}
    closed = jax.make_jaxpr(graph)(theta, [jnp.asarray(each) for each in graph.constants])
    found = _axes_before(closed.jaxpr, [0] * len(closed.jaxpr.outvars))
    terms = RowTerms(graph, names, length, tuple(found[len(graph.free) :]))
    pairs = zip(graph.constants, terms.axes, strict=True)
    if any(array.shape[axis] != length for array, axis in pairs if axis is not None):
        raise NotApartError("rows are picked out of other data")
    if all(axis is None for axis in terms.axes):
        raise NotApartError("no data of rows meet a parameter")
    walk = EntryWalk(length, np.int32(0))
    row = {name: column[0] for name, column in terms.data.items()}
    jax.eval_shape(lambda *given: terms.walked(walk, *given), theta, row)
    if walk.read:
        _require_own(terms, theta)
    return RowTerms(graph, names, length, terms.axes, walk.slices)


def _require_own(terms: RowTerms, theta: dict[str, Any]) -> None:
    """Refuse rows that are read at another's index, as in p[order, y]."""

    def read(row: dict[str, Any]) -> Any:
        walk = EntryWalk(terms.length, jnp.int32(0))
        terms.walked(walk, theta, row)
        return jnp.concatenate([jnp.ravel(each) for each in walk.read])

    at = jax.jit(jax.vmap(read))
    for start in range(0, terms.length, READ_ROWS):
        part = {name: column[start : start + READ_ROWS] for name, column in terms.data.items()}
        found = np.asarray(at(part))
        if np.any(found != np.arange(start, start + len(found))[:, None]):
            raise NotApartError("a row reads another")


def _axes_before(jaxpr: Any, out: list[int | None]) -> list[int | None]:
    """The axis of the rows in every input, given those in the outputs."""
    axes: dict[Any, int] = {}

    def note(variable: Any, axis: int | None) -> None:
        if axis is None or hasattr(variable, "val") or np.shape(variable.aval)[axis] == 1:
            return
        if axes.setdefault(variable, axis) != axis:
            raise NotApartError("rows of one array meet one another")

    for variable, axis in zip(jaxpr.outvars, out, strict=True):
        note(variable, axis)
    for step in reversed(needed_steps(jaxpr)):
        after = [axes.get(each) for each in step.outvars]
        if all(axis is None for axis in after):
            continue
        for variable, axis in zip(step.invars, _before(step, after), strict=True):
            note(variable, axis)
    return [axes.get(each) for each in jaxpr.invars]


_CALLS, _APART = frozenset(CALLS.split()), frozenset(ELEMENTWISE.split())
_REDUCTIONS = frozenset(REDUCTIONS.split())


def _before(step: Any, after: list[int | None]) -> list[int | None]:
    name, shapes = step.primitive.name, [np.shape(each.aval) for each in step.invars]
    if name in _CALLS:
        return _axes_before(body_of(step)[0], after)
    (axis,) = after
    assert axis is not None
    if name in _APART:
        return [axis if shape else None for shape in shapes]
    if name in SHAPES:
        return SHAPES[name](step, axis, shapes)
    if name in _REDUCTIONS:
        kept = [place for place in range(len(shapes[0])) if place not in step.params["axes"]]
        return [kept[axis]]
    if name in RULES and name not in ("gather", "dot_general"):
        if name in ("concatenate",) and step.params["dimension"] == axis:
            raise NotApartError("rows are put one after another")
        if name not in ("concatenate", "slice", "dynamic_slice", "stack") and axis in axes_read(step):
            raise NotApartError(f"{words_of(step)} reads all rows together")
        return [axis if shape else None for shape in shapes]
    if name in ("iota", "rng_bit_generator"):
        return [None] * len(shapes)
    raise NotApartError(f"{words_of(step)} reads all rows together")


def _broadcast(step: Any, axis: int, shapes: list[Any]) -> list[int | None]:
    places = step.params["broadcast_dimensions"]
    wide = step.params["shape"][axis]
    own = places.index(axis) if axis in places else None
    return [own if own is not None and shapes[0][own] == wide else None, *[None] * (len(shapes) - 1)]


def _reshape(step: Any, axis: int, shapes: list[Any]) -> list[int | None]:
    new = tuple(step.params["new_sizes"])
    if new[axis] == 1:
        return [None]
    before, after = np.cumprod((1, *shapes[0])), np.cumprod((1, *new))
    places = [place for place, size in enumerate(shapes[0]) if size == new[axis] and before[place] == after[axis]]
    if not places:
        raise NotApartError("reshape mixes rows")
    return [places[0]]


def _squeeze(step: Any, axis: int, shapes: list[Any]) -> list[int | None]:
    return [[place for place in range(len(shapes[0])) if place not in step.params["dimensions"]][axis]]


def _transpose(step: Any, axis: int, shapes: list[Any]) -> list[int | None]:
    return [step.params["permutation"][axis]]


def _stack(step: Any, axis: int, shapes: list[Any]) -> list[int | None]:
    place = step.params["axis"]
    if axis == place:
        raise NotApartError("rows are put one after another")
    return [axis - (place < axis)] * len(shapes)


def _gather(step: Any, axis: int, shapes: list[Any]) -> list[int | None]:
    numbers, sizes = step.params["dimension_numbers"], step.params["slice_sizes"]
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    if axis in numbers.offset_dims:
        kept = [place for place in range(len(shapes[0])) if place not in gone]
        own = kept[numbers.offset_dims.index(axis)]
        if sizes[own] != shapes[0][own]:
            raise NotApartError("some rows are picked out")
        return [own, None]
    place = batch_places(step).index(axis)
    if place in numbers.start_indices_batching_dims:
        return [numbers.operand_batching_dims[numbers.start_indices_batching_dims.index(place)], place]
    # An entry of the row's own, as in p[arange(N), y]: that it is the own one is looked at with the rows.
    wide = shapes[1][place]
    own_rows = [each for each in numbers.start_index_map if shapes[0][each] == wide and sizes[each] == 1]
    return [own_rows[0] if own_rows and len(numbers.start_index_map) > 1 else None, place]


def _dot(step: Any, axis: int, shapes: list[Any]) -> list[int | None]:
    contracted, batch = step.params["dimension_numbers"]
    if axis < len(batch[0]):
        return [batch[0][axis], batch[1][axis]]
    free = [
        [place for place in range(len(shape)) if place not in (*contracted[side], *batch[side])]
        for side, shape in enumerate(shapes)
    ]
    place = axis - len(batch[0])
    return [free[0][place], None] if place < len(free[0]) else [None, free[1][place - len(free[0])]]


def _solve(step: Any, axis: int, shapes: list[Any]) -> list[int | None]:
    if axis == free_axis(step):
        return [None, axis]
    if axis in axes_read(step):
        raise NotApartError("triangular solve reads all rows together")
    return [axis, axis]


SHAPES: dict[str, Any] = {
    "broadcast_in_dim": _broadcast,
    "dot_general": _dot,
    "gather": _gather,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "stack": _stack,
    "transpose": _transpose,
    "triangular_solve": _solve,
}
