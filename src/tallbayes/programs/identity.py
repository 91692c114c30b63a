"""Functions as values: two functions that compute the same thing are the same thing.

A user's function is lowered once, with its first and second derivatives, on abstract float64 arguments; the
hash of that StableHLO text is its identity. An equal lambda defined anew therefore compiles nothing, and the
hash is a fingerprint that other processes agree on. A function of this package with plain numbers for constants is
known by its code and these: it is lowered once in a process. What anyone else's function reads is not known.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from types import CellType, FunctionType
from typing import Any

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.programs.later import jax, jnp

MOST_KNOWN = 256
_KNOWN: dict[Hashable, Any] = {}


@dataclass(frozen=True)
class Function:
    """A pure function known by what it computes; hashable, so usable as a static argument."""

    call: Callable[..., Any] = field(compare=False, repr=False)
    fingerprint: str

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


def identify(call: Callable[..., Any], *examples: Any, derivatives: bool = False) -> Function:
    """Wrap `call`, naming it by its lowered text on arguments shaped like `examples`.

    With `derivatives`, the second derivative in the first argument is part of the text: a custom
    derivative rule leaves no trace in the lowered function itself.
    """

    isolated = Isolated(call)

    def text(arguments: Any) -> str:
        def lowered(*arguments: Any) -> Any:
            if not derivatives:
                return isolated(*arguments)
            first, *rest = arguments
            gradient = jax.value_and_grad(lambda theta: jnp.sum(isolated(theta, *rest)))
            return jax.jvp(gradient, (first,), (first,))

        return jax.jit(lowered).lower(*arguments).as_text()

    def fingerprint(arguments: Any) -> str:
        return hashlib.sha256(_twice(isolated, partial(text, arguments)).encode()).hexdigest()

    with jax.enable_x64(True):
        arguments = jax.tree.map(_abstract64, examples)
        try:
            return Function(isolated, _once("text", derivatives, call, arguments, fingerprint))
        except Exception as error:
            what = "a function that JAX can differentiate twice" if derivatives else "a function that JAX can compile"
            raise ModelError(
                explain(what, f"{type(error).__name__}: {error}", "jnp alone, lax.scan instead of while_loop")
            ) from error


def output_of(call: Callable[..., Any], *examples: Any) -> Any:
    """Shapes and types that `call` returns on arguments shaped like `examples`."""

    def shapes(arguments: Any) -> Any:
        isolated = Isolated(call)
        return _twice(isolated, lambda: jax.eval_shape(lambda *each: isolated.call(*each), *arguments))

    with jax.enable_x64(True):
        return _once("shapes", False, call, jax.tree.map(_abstract64, examples), shapes)


def _once(kind: str, derivatives: bool, call: Callable[..., Any], arguments: Any, find: Callable[[Any], Any]) -> Any:
    """find(arguments), remembered where `call` is known by value."""
    try:
        leaves, treedef = jax.tree.flatten(arguments)
        key = kind, derivatives, value_of(call), treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    except NotByValueError:
        return find(arguments)
    found = _KNOWN.get(key)
    if found is None:
        found = find(arguments)
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = found
    return found


class NotByValueError(Exception):
    """A function or a constant that only tracing tells from others."""


def value_of(part: Any) -> Hashable:
    """What tells one function of this package from another: its code and its constants, all the way down.

    Arrays are left to tracing, which finds out whether JAX holds a copy of them in another type.
    """
    if part is None or type(part) in (bool, int, str, jax.tree_util.PyTreeDef):
        return type(part), part
    if type(part) is float:
        return float, part.hex()
    if type(part) in (tuple, list) or (isinstance(part, tuple) and _is_own(type(part).__module__)):
        return type(part), tuple(value_of(each) for each in part)
    if type(part) is dict:
        return dict, tuple((value_of(key), value_of(each)) for key, each in part.items())
    if type(part) is partial:
        return partial, value_of(part.func), value_of(part.args), value_of(part.keywords)
    if isinstance(part, FunctionType) and _is_own(part.__module__, part.__globals__):
        cells = [cell.cell_contents for cell in part.__closure__ or ()]
        return part.__module__, part.__code__, value_of([part.__defaults__, part.__kwdefaults__, *cells])
    if isinstance(part, type) and _is_own(part.__module__):
        return part
    if is_dataclass(part) and _is_own(type(part).__module__):
        return type(part), value_of([getattr(part, each.name) for each in fields(part)])
    raise NotByValueError


def _is_own(module: str, names: dict[str, Any] | None = None) -> bool:
    """Whether it is of this package, and not of an example in it, which has the module's name and names of its own."""
    if module.partition(".")[0] != __name__.partition(".")[0]:
        return False
    return names is None or names is vars(sys.modules[module])


class Isolated:
    """The same function on copies of its NumPy constants.

    JAX 0.10 keeps one typed copy of a NumPy constant for as long as any trace holds it: a float64 copy inside
    our compiled paths would break every 32-bit call its owner makes later.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        # A new function each time, so that no cache holds on to its trace.
        closed, shape = jax.make_jaxpr(lambda *each: self.call(*each), return_shape=True)(*arguments)
        constants = [np.array(each) if isinstance(each, np.ndarray) else each for each in closed.consts]
        leaves = jax.core.eval_jaxpr(closed.jaxpr, constants, *jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), leaves)


def _twice(isolated: Isolated, trace: Callable[[], Any]) -> Any:
    """Trace, once more by a copy of the function where its owner's own 32-bit traces got in the way."""
    try:
        return trace()
    except (TypeError, ValueError):
        isolated.call = with_own_constants(isolated.call, {})
    return trace()


def with_own_constants(part: Any, known: dict[int, Any]) -> Any:
    """A function, and whatever it closes over, with copies of all arrays in it; what cannot be copied stays."""
    if id(part) in known:
        return known[id(part)]
    if isinstance(part, FunctionType) and part.__module__.partition(".")[0] not in ("jax", "numpy"):
        copy = known[id(part)] = FunctionType(
            part.__code__, dict(part.__globals__), part.__name__, part.__defaults__, _copied_cells(part)
        )
        copy.__kwdefaults__ = part.__kwdefaults__
        for cell, theirs in zip(copy.__closure__ or (), part.__closure__ or (), strict=True):
            cell.cell_contents = with_own_constants(theirs.cell_contents, known)
        for name in part.__code__.co_names:
            if isinstance(part.__globals__.get(name), np.ndarray | FunctionType):
                copy.__globals__[name] = with_own_constants(part.__globals__[name], known)
        return copy
    if isinstance(part, np.ndarray):
        return part.copy()
    if isinstance(part, partial):
        first, *rest = (with_own_constants(each, known) for each in (part.func, *part.args))
        return partial(first, *rest, **{name: with_own_constants(each, known) for name, each in part.keywords.items()})
    if type(part) in (list, tuple):
        return type(part)(with_own_constants(each, known) for each in part)
    if type(part) is dict:
        return {key: with_own_constants(each, known) for key, each in part.items()}
    # A function that its owner has compiled is traced anew.
    wrapped = getattr(part, "__wrapped__", None)
    return part if wrapped is None or isinstance(part, type) else with_own_constants(wrapped, known)


def _copied_cells(part: FunctionType) -> tuple[CellType, ...] | None:
    return None if part.__closure__ is None else tuple(CellType() for _ in part.__closure__)


def _abstract64(leaf: Any) -> jax.ShapeDtypeStruct:
    dtype = jnp.result_type(leaf)
    if jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.dtype(jnp.float64)
    return jax.ShapeDtypeStruct(jnp.shape(leaf), dtype)  # type: ignore[no-untyped-call]
