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

    def lowered(*arguments: Any) -> Any:
        if not derivatives:
            return call(*arguments)
        first, *rest = arguments
        gradient = jax.value_and_grad(lambda theta: jnp.sum(call(theta, *rest)))
        return jax.jvp(gradient, (first,), (first,))

    with jax.enable_x64(True):
        arguments = jax.tree.map(_abstract64, examples)
        try:
            text = jax.jit(lowered).lower(*arguments).as_text()
        except ValueError:
            # JAX 0.10 mixes up NumPy constants of a function its owner has traced with 32-bit types before.
            jax.clear_caches()  # type: ignore[no-untyped-call]
            text = jax.jit(lowered).lower(*arguments).as_text()
    return Function(call, hashlib.sha256(text.encode()).hexdigest())


def output_of(call: Callable[..., Any], *examples: Any) -> Any:
    """Shapes and types that `call` returns on arguments shaped like `examples`."""
    with jax.enable_x64(True):
        return jax.eval_shape(lambda *arguments: call(*arguments), *jax.tree.map(_abstract64, examples))


def _abstract64(leaf: Any) -> jax.ShapeDtypeStruct:
    dtype = jnp.result_type(leaf)
    if jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.dtype(jnp.float64)
    return jax.ShapeDtypeStruct(jnp.shape(leaf), dtype)  # type: ignore[no-untyped-call]
