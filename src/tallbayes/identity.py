"""Functions as values: two functions that compute the same thing are the same thing.

A user's function is lowered once, with its first and second derivatives, on abstract float64 arguments; the
hash of that StableHLO text is its identity. An equal lambda defined anew therefore compiles nothing, and the
hash is a fingerprint that other processes agree on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.errors import ModelError, explain


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

    isolated = _isolated(call)

    def lowered(*arguments: Any) -> Any:
        if not derivatives:
            return isolated(*arguments)
        first, *rest = arguments
        gradient = jax.value_and_grad(lambda theta: jnp.sum(isolated(theta, *rest)))
        return jax.jvp(gradient, (first,), (first,))

    with jax.enable_x64(True):
        arguments = jax.tree.map(_abstract64, examples)
        try:
            text = _twice(lambda: jax.jit(lowered).lower(*arguments).as_text())
        except Exception as error:
            what = "a function that JAX can differentiate twice" if derivatives else "a function that JAX can compile"
            raise ModelError(
                explain(what, f"{type(error).__name__}: {error}", "jnp alone, lax.scan instead of while_loop")
            ) from error
    return Function(isolated, hashlib.sha256(text.encode()).hexdigest())


def output_of(call: Callable[..., Any], *examples: Any) -> Any:
    """Shapes and types that `call` returns on arguments shaped like `examples`."""
    with jax.enable_x64(True):
        arguments = jax.tree.map(_abstract64, examples)
        return _twice(lambda: jax.eval_shape(lambda *each: call(*each), *arguments))


def _isolated(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same function on copies of its NumPy constants.

    JAX 0.10 keeps one typed copy of a NumPy constant for as long as any trace holds it: a float64 copy inside
    our compiled paths would break every 32-bit call its owner makes later.
    """

    def isolated(*arguments: Any) -> Any:
        # A new function each time, so that no cache holds on to its trace.
        closed, shape = jax.make_jaxpr(lambda *each: call(*each), return_shape=True)(*arguments)
        constants = [np.array(each) if isinstance(each, np.ndarray) else each for each in closed.consts]
        leaves = jax.core.eval_jaxpr(closed.jaxpr, constants, *jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), leaves)

    return isolated


def _twice(trace: Callable[[], Any]) -> Any:
    """Trace, once more with JAX's caches cleared where the owner's own 32-bit traces got in the way."""
    try:
        return trace()
    except (TypeError, ValueError):
        pass
    # Outside the handler: the traceback itself would keep the constants of the failed trace alive.
    jax.clear_caches()  # type: ignore[no-untyped-call]
    return trace()


def _abstract64(leaf: Any) -> jax.ShapeDtypeStruct:
    dtype = jnp.result_type(leaf)
    if jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.dtype(jnp.float64)
    return jax.ShapeDtypeStruct(jnp.shape(leaf), dtype)  # type: ignore[no-untyped-call]
