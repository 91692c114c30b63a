"""Graphs: the terms of a PyMC model as PyTensor has them, with all that hangs on no parameter worked out.

    log p(v_s | its parents), one graph for each random variable, of values in the variables' own spaces
    potentials, deterministics, and the mean and spread of variables that are normal

What is known, data and constants alike, is computed by NumPy, operation by operation, down to the arrays that meet a
parameter. A check of a distribution's parameters, which PyMC makes of all entries together, is made of each of them:
it is a density of zero there, in total as it is in PyMC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.doors.pymc.special import in_known_functions
from tallbayes.errors import ModelError, explain

Variable = Any


@dataclass(frozen=True, eq=False)
class ModelGraph:
    """A PyMC model with a value for every random variable; `shapes` are those of the free ones."""

    model: Any
    values: dict[Variable, Variable]
    observed: dict[Variable, np.ndarray]
    named: dict[str, np.ndarray]

    @property
    def free(self) -> list[Variable]:
        return list(self.model.free_RVs)

    def of_values(self, graphs: Sequence[Variable]) -> list[Variable]:
        """The same graphs of values in the place of random variables."""
        from pymc.pytensorf import replace_vars_in_graphs

        return list(replace_vars_in_graphs(list(graphs), replacements=dict(self.values)))

    def log_densities(self) -> dict[str, Variable]:
        """log p of every random variable, entry by entry, by its name."""
        from pymc.logprob.basic import conditional_logp

        terms = conditional_logp(dict(self.values), warn_rvs=False)
        return {rv.name: terms[value] for rv, value in self.values.items()}

    def known(self, graphs: Sequence[Variable]) -> list[Variable]:
        """Graphs with everything worked out that hangs on no free value."""
        given = {self.values[rv]: data for rv, data in self.observed.items()}
        return fold(in_known_functions(checked_apart(fold(graphs, given))), given)

    def number(self, graph: Variable) -> np.ndarray | None:
        """What a graph is, where it hangs on no free value."""
        given = {self.values[rv]: data for rv, data in self.observed.items()}
        return numbers(self.of_values([graph]), given)[0]

    def compiled(self, graphs: Sequence[Variable]) -> JaxGraph:
        """Graphs of values as a JAX function of the free ones, by name."""
        return in_jax({rv.name: self.values[rv] for rv in self.free}, self.known(graphs), self.named)


def read_graph(model: Any) -> ModelGraph:
    """Values of their own for all random variables; the observed ones are what the model has."""
    import pytensor.tensor as pt

    observed, values, named = {}, {}, {}
    for rv in model.observed_RVs:
        data = _data(model.rvs_to_values[rv])
        observed[rv] = data
        named[rv.name] = data
        values[rv] = pt.tensor(rv.name, dtype=rv.type.dtype, shape=data.shape)
    for rv in model.free_RVs:
        values[rv] = rv.type(rv.name)
    for name, variable in model.named_vars.items():
        if hasattr(variable, "get_value") and name not in named:
            named[name] = np.asarray(variable.get_value())
    return ModelGraph(model, values, observed, named)


def _data(value: Variable) -> np.ndarray:
    (found,) = numbers([value])
    if found is None:
        raise ModelError(explain("observed data that are numbers", str(value), "an array, or pm.Data"))
    return found


def numbers(graphs: Sequence[Variable], given: dict[Variable, np.ndarray] | None = None) -> list[np.ndarray | None]:
    """What graphs are, where these and constants alone tell."""
    data = _worked_out(graphs, given or {})[0]
    return [None if found is None else np.asarray(found) for found in (_known(graph, data) for graph in graphs)]


def fold(graphs: Sequence[Variable], given: dict[Variable, np.ndarray]) -> list[Variable]:
    """Graphs with constants in the place of whatever hangs on these and on constants alone.

    An array that is one number all over is that number, spread out: nobody reads it for every row.
    """
    import pytensor.tensor as pt
    from pytensor.graph.replace import clone_replace

    data, met = _worked_out(graphs, given)

    def constant(variable: Variable) -> Variable:
        array = np.asarray(_known(variable, data))
        dtype = getattr(variable.type, "dtype", array.dtype)
        if array.size > 1 and array.dtype.kind in "fb" and np.all(array == array.flat[0]):
            return pt.alloc(pt.constant(array.flat[0], dtype=dtype), *array.shape)
        return pt.constant(array, dtype=dtype)

    replaced = {
        each: constant(each)
        for each in met
        if _known(each, data) is not None and hasattr(each.type, "dtype") and not _is_constant(each)
    }
    return list(clone_replace(list(graphs), replace=replaced, rebuild_strict=False))


def _worked_out(
    graphs: Sequence[Variable], given: dict[Variable, np.ndarray]
) -> tuple[dict[Variable, Any], set[Variable]]:
    """All values that are known, and the variables at which they meet what is not."""
    from pytensor.graph.traversal import io_toposort

    data: dict[Variable, Any] = dict(given)
    met = set(graphs)
    for node in io_toposort([], list(graphs)):
        inputs = [_known(each, data) for each in node.inputs]
        if all(each is not None for each in inputs) and _can_run(node):
            results = _run(node, inputs)
            if results is not None and all(map(_is_finite, results)):
                data |= dict(zip(node.outputs, results, strict=True))
                continue
        met.update(node.inputs)
    return data, met


def _known(variable: Variable, data: dict[Variable, Any]) -> Any:
    if variable in data:
        return data[variable]
    if _is_constant(variable):
        return variable.data if variable.data is not None else _NONE
    if hasattr(variable, "get_value") and not _is_random(variable):
        return variable.get_value(borrow=True)
    return None


def _is_finite(result: Any) -> bool:
    """Whether it can stand in a table: log y where y may be 0 is left to where it is read, which is elsewhere."""
    array = np.asarray(result) if isinstance(result, np.ndarray) else np.zeros(())
    return array.size < 2 or array.dtype.kind != "f" or bool(np.all(np.isfinite(array)))


class _NoValue:
    """None, as a value that is known."""


_NONE = _NoValue()


def _is_random(variable: Variable) -> bool:
    from pytensor.tensor.random.type import RandomType

    return isinstance(variable.type, RandomType)


def _is_constant(variable: Variable) -> bool:
    from pytensor.graph.basic import Constant

    return isinstance(variable, Constant)


def _can_run(node: Any) -> bool:
    from pytensor.compile.builders import OpFromGraph
    from pytensor.scan.op import Scan
    from pytensor.tensor.random.op import RandomVariable

    return not isinstance(node.op, OpFromGraph | Scan | RandomVariable)


def _run(node: Any, inputs: list[Any]) -> list[Any] | None:
    """The outputs of an operation by its NumPy code; nothing where it has none."""
    storage = {name: [None if each is _NONE else each] for name, each in zip(node.inputs, inputs, strict=True)}
    computed = {name: [True] for name in node.inputs}
    for output in node.outputs:
        storage[output], computed[output] = [None], [False]
    try:
        node.op.make_thunk(node, storage, computed, no_recycling=[], impl="py")()
    except NotImplementedError:
        return None
    return [storage[output][0] for output in node.outputs]


def checked_apart(graphs: Sequence[Variable]) -> list[Variable]:
    """Graphs in which a check of parameters is one of each entry: log 0 where it fails."""
    from pymc.logprob.utils import CheckParameterValue
    from pytensor.graph.fg import FunctionGraph
    from pytensor.graph.replace import graph_replace
    from pytensor.raise_op import CheckAndRaise

    found = list(graphs)
    while True:
        nodes = [node for node in FunctionGraph(outputs=found, clone=False).toposort() if _checks(node, CheckAndRaise)]
        if not nodes:
            return found
        value, *conditions = nodes[0].inputs
        own = conditions if isinstance(nodes[0].op, CheckParameterValue) else []
        found = list(graph_replace(found, {nodes[0].outputs[0]: _where_all(value, own)}, strict=False))


def _checks(node: Any, kind: Any) -> bool:
    return isinstance(node.op, kind)


def _where_all(value: Variable, conditions: Iterable[Variable]) -> Variable:
    import pytensor.tensor as pt

    for each in [part for condition in conditions for part in _parts_of(condition)]:
        if each.ndim > value.ndim:
            each = pt.all(each, axis=tuple(range(value.ndim, each.ndim)))
        value = pt.switch(each if _fits(each, value) else pt.all(each), value, -np.inf)
    return value


def _fits(condition: Variable, value: Variable) -> bool:
    """Whether a condition is surely one of each entry."""
    own = value.type.shape[value.ndim - condition.ndim :]
    pairs = zip(condition.type.shape, own, strict=True)
    return all(size == 1 or (size is not None and size == wide) for size, wide in pairs)


def _parts_of(condition: Variable) -> list[Variable]:
    """Arrays that are all true where a condition is."""
    from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
    from pytensor.tensor.elemwise import DimShuffle
    from pytensor.tensor.math import All

    node = condition.owner
    if node is None:
        return [condition]
    first, *rest = node.inputs
    if isinstance(node.op, All) and (node.op.axis is None or len(node.op.axis) == first.ndim):
        return _parts_of(first)
    if isinstance(node.op, ScalarFromTensor | TensorFromScalar) or (isinstance(node.op, DimShuffle) and not first.ndim):
        return _parts_of(first)
    if isinstance(node.op, MakeVector):
        return [part for each in node.inputs for part in _parts_of(each)]
    if isinstance(node.op, Join) and all(each.ndim == 1 for each in rest):
        return [part for each in rest for part in _parts_of(each)]
    return [condition]


@dataclass(frozen=True, eq=False)
class JaxGraph:
    """Outputs as a JAX function of the free values and of arrays that are known, with names for these."""

    call: Callable[..., Any]
    free: tuple[str, ...]
    constants: tuple[np.ndarray, ...]
    names: tuple[str, ...]
    # By the types of theta: PyTensor's own Python need not run each time.
    traced: dict[Any, Any] = field(default_factory=dict)

    def __call__(self, theta: dict[str, Any], constants: Sequence[Any] | None = None) -> list[Any]:
        values = [jnp.asarray(theta[name]) for name in self.free]
        if constants is not None:
            return list(self.call(*values, *constants))
        key = tuple((each.shape, each.dtype) for each in values)
        if key not in self.traced:
            wide = [jax.ShapeDtypeStruct(*each) for each in key]  # type: ignore[no-untyped-call]
            known = [np.array(each) for each in self.typed(theta)]
            self.traced[key] = jax.make_jaxpr(lambda *each: list(self.call(*each, *known)))(*wide)
        closed = self.traced[key]
        return list(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *values))

    def typed(self, theta: dict[str, Any]) -> list[Any]:
        """The constants, of the float type of theta."""
        dtype = jnp.result_type(*(theta[name] for name in self.free)) if self.free else jnp.float64
        return [as_float(each, dtype) for each in self.constants]


def as_float(array: Any, dtype: Any) -> Any:
    """An array, of this type if it holds floats."""
    return array.astype(dtype) if np.dtype(array.dtype).kind == "f" else array


@cache
def jax_linker() -> Any:
    """PyTensor's; to import it sets a switch of JAX's, which is set back: so it is asked for outside of any context."""
    before = jax.config.values["jax_enable_x64"]
    try:
        from pytensor.link.jax.dispatch import jax_funcify
    finally:
        jax.config.update("jax_enable_x64", before)  # type: ignore[no-untyped-call]
    return jax_funcify


def in_jax(values: dict[str, Variable], graphs: Sequence[Variable], named: dict[str, np.ndarray]) -> JaxGraph:
    """Rewritten by PyTensor for JAX, with its constants as arguments: of any float type, and by row where they have
    rows."""
    import pytensor.tensor as pt
    from pytensor.compile import mode
    from pytensor.graph.fg import FunctionGraph
    from pytensor.graph.replace import clone_replace
    from pytensor.graph.traversal import graph_inputs, io_toposort

    needed = set(graph_inputs(graphs))
    used = {name: value for name, value in values.items() if value in needed}
    # Arrays are no constants while PyTensor rewrites: it would work out again what was left.
    fixed = _shapes_in(io_toposort([], list(graphs)))
    tables = [each for each in needed - fixed if _is_constant(each) and _is_table(each)]
    early = [pt.tensor(dtype=each.type.dtype, shape=each.data.shape) for each in tables]
    graphs = clone_replace(list(graphs), replace=dict(zip(tables, early, strict=True)), rebuild_strict=False)
    rewritten = FunctionGraph([*used.values(), *early], list(graphs), clone=True)
    mode.JAX.optimizer.rewrite(rewritten)
    fixed = _shapes_in(rewritten.apply_nodes)
    arrays = [
        each
        for each in graph_inputs(rewritten.outputs)
        if _is_constant(each)
        and hasattr(each.type, "dtype")
        and each not in fixed
        and (each.type.ndim or each.type.dtype.startswith("float"))
    ]
    inputs = [pt.tensor(dtype=each.type.dtype, shape=each.data.shape) for each in arrays]
    outputs = clone_replace(
        rewritten.outputs, replace=dict(zip(arrays, inputs, strict=True)), rebuild_strict=False, copy_inputs_over=True
    )
    function = FunctionGraph([*rewritten.inputs, *inputs], list(outputs), clone=False)
    constants = tuple(np.asarray(each.data) for each in (*tables, *arrays))
    return JaxGraph(jax_linker()(function), tuple(used), constants, tuple(_names_of(constants, named)))


def _is_table(constant: Variable) -> bool:
    return hasattr(constant.type, "dtype") and constant.data.size > 1


def _shapes_in(nodes: Iterable[Any]) -> set[Variable]:
    """Arrays that say how long others are to be, shapes and masks: JAX wants to know them."""
    from pytensor.tensor.basic import Split
    from pytensor.tensor.shape import Reshape

    found = set()
    for node in nodes:
        if isinstance(node.op, Reshape | Split):
            found.add(node.inputs[-1])
        elif "Subtensor" in type(node.op).__name__:
            found |= {each for each in node.inputs[1:] if getattr(each.type, "dtype", "") == "bool"}
    return found


def _names_of(arrays: Sequence[np.ndarray], named: dict[str, np.ndarray]) -> list[str]:
    """The model's own name for an array of data, or a number."""
    names: list[str] = []
    for place, array in enumerate(arrays):
        own = [
            name
            for name, data in named.items()
            if name not in names and data.shape == array.shape and array.ndim and np.array_equal(data, array)
        ]
        names.append(own[0] if own else f"column {place}")
    return names
