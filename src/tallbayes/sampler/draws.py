"""Draws: the noise and the minibatches of a stretch of steps, drawn first and then used one by one.

One call draws the words of sixteen steps: most of the time of a short step would otherwise go into calling the
generator and into normals too few at a time to fill a vector register. What a path draws depends on its key alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tallbayes.programs.later import jax, jnp
from tallbayes.sampler.randomness import Words, normals, words_per_index, words_per_normal
from tallbayes.sampler.roles import GradientEstimator

STRETCH_BITS = 4
STRETCH = 2**STRETCH_BITS
# Normals of one stretch: of more parameters than 4,096 it has fewer steps, or its words alone would fill the memory.
MOST_NORMALS = 2**16


class Draws(NamedTuple):
    """For each step of a stretch: noise (number, d), row indices (number, n), and words left for the coupling."""

    noise: jax.Array
    index: Any
    spare: jax.Array


class Drawer(NamedTuple):
    """What the law of a step's draws depends on."""

    dimension: int
    gradient: GradientEstimator
    dtype: Any
    capacity: int
    num_rows: jax.Array

    def draw(self, key: jax.Array, length: int, number: int, extra_indices: int = 0) -> Draws:
        """Draws of `length` steps, each made of `number` steps of the fine path."""
        size, sampling = self.gradient.batch_size, self.gradient.sampling
        per_normal, per_index = words_per_normal(self.dtype), words_per_index(self.capacity)
        noise_words = length * number * self.dimension * per_normal
        batch_words = number * sampling.num_indices(size) * per_index if size else 0
        step_words = batch_words + extra_indices * per_index
        words = jax.random.bits(key, (noise_words + length * step_words,), jnp.uint32)
        noise = normals(words[:noise_words], self.dtype).reshape(length, number, self.dimension)
        rest = words[noise_words:].reshape(length, step_words)
        if not size:
            return Draws(noise, (), rest)

        def indices(step: jax.Array) -> jax.Array:
            source = self.source(step)
            return jnp.stack([sampling.draw(source.integers, size, self.num_rows) for _ in range(number)])

        return Draws(noise, jax.vmap(indices)(rest[:, :batch_words]), rest[:, batch_words:])

    @property
    def stretch_bits(self) -> int:
        """The steps of a stretch, as a power of two."""
        steps = max(1, min(STRETCH, MOST_NORMALS // self.dimension))
        return steps.bit_length() - 1

    def source(self, words: jax.Array) -> Words:
        """Integers from some of a step's words."""
        return Words(words, wide=words_per_index(self.capacity) == 2)


def run_steps(
    key: jax.Array,
    begin: Any,
    end: Any,
    draw: Callable[[jax.Array, int], Draws],
    body: Callable[[jax.Array, Draws, Any], Any],
    carry: Any,
    bits: int = STRETCH_BITS,
) -> Any:
    """carry = body(k, draws of step k, carry) for k = begin..end-1, both of which may be traced.

    What a step draws does not depend on where the steps before it began: a run may be made in parts. A stretch has
    2^bits steps.
    """
    length = 1 << bits

    def stretch(number: jax.Array, carry: Any) -> Any:
        draws = draw(jax.random.fold_in(key, number), length)
        first = number * length

        def one(k: jax.Array, carry: Any) -> Any:
            return body(first + k, jax.tree.map(lambda leaf: leaf[k], draws), carry)

        return jax.lax.fori_loop(jnp.maximum(begin - first, 0), jnp.minimum(length, end - first), one, carry)

    # Steps are never negative: a shift is one operation, and // a dozen.
    return jax.lax.fori_loop(begin >> bits, (end + length - 1) >> bits, stretch, carry)


def gather(rows: Any, index: Any) -> Any:
    """The rows at these indices; nothing where nothing was drawn."""
    if isinstance(index, tuple):
        return ()
    return jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), rows)


def pick(tree: Any, number: Any) -> Any:
    """One entry along the leading axis of every leaf."""
    return jax.tree.map(lambda leaf: leaf[number], tree)
