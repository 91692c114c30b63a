"""Random words into normals and integers, with every type explicit.

A path's draws are a function of (seed, level, path) alone: `fold_in` keys, threefry, one call for the words of
a step. Normals are sqrt(2) erf_inv(u); integers below `bound` are the high word of word * bound, with 64 random
bits where the bound passes 2^16 (so that no index is favoured by more than 2^-16), and never
floor(uniform * bound), which in float32 cannot reach most rows of a tall table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.programs.later import jax, jnp

NARROW_BOUND = 2**16
TURNS = (13, 15, 26, 6), (17, 29, 16, 24)


def path_key(seed: jax.Array, *labels: jax.Array | int) -> jax.Array:
    """A key that depends on the 64-bit seed (two words) and on the labels, in their order."""
    key = jax.random.wrap_key_data(seed, impl="threefry2x32")
    for label in labels:
        key = jax.random.fold_in(key, label)
    return key


def path_words(seed: int, *labels: Any) -> np.ndarray:
    """The words of `path_key` by NumPy: labels may be arrays, along which the words then run.

    A program that is given them need not compile a generator for each label.
    """
    words = seed_words(seed)
    for label in labels:
        words = _folded(words, np.asarray(label, np.uint32))
    return words


def phase_words(seed: int, *labels: Any, phases: int) -> np.ndarray:
    """Those of every phase of a path, (..., phases, 2): the last label is the number of the phase."""
    return path_words(seed, *(np.asarray(label)[..., None] for label in labels), np.arange(phases))


def phase_key(words: jax.Array, phase: int) -> jax.Array:
    """The key of a phase, of the words of all of them."""
    return jax.random.wrap_key_data(words[phase], impl="threefry2x32")


@np.errstate(over="ignore")
def _folded(words: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Threefry-2x32 of (0, label), in twenty rounds: what `jax.random.fold_in` makes of a key."""
    keys = words[..., 0], words[..., 1], words[..., 0] ^ words[..., 1] ^ np.uint32(0x1BD11BDA)
    left, right = np.broadcast_arrays(keys[0], label + keys[1])
    for part in range(5):
        for turn in TURNS[part % 2]:
            left = left + right
            right = (right << np.uint32(turn) | right >> np.uint32(32 - turn)) ^ left
        left, right = left + keys[(part + 1) % 3], right + keys[(part + 2) % 3] + np.uint32(part + 1)
    return np.stack([left, right], axis=-1)


def seed_words(seed: int) -> np.ndarray:
    """A Python integer as the two words of a threefry key."""
    return np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def words_per_normal(dtype: Any) -> int:
    return 2 if np.dtype(dtype) == np.float64 else 1


def words_per_index(capacity: int) -> int:
    return 2 if capacity > NARROW_BOUND else 1


def normals(words: jax.Array, dtype: Any) -> jax.Array:
    """Standard normals from random words along the last axis."""
    one, least = dtype(1), np.nextafter(dtype(-1), dtype(0))
    if words_per_normal(dtype) == 1:
        mantissa = (words >> 9) | jnp.uint32(0x3F800000)
        unit = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - one
    else:
        high, low = jnp.split(words.astype(jnp.uint64), 2, axis=-1)
        mantissa = ((high << 32 | low) >> 12) | jnp.uint64(0x3FF0000000000000)
        unit = jax.lax.bitcast_convert_type(mantissa, jnp.float64) - one
    symmetric = jnp.maximum(least, unit * (one - least) + least)
    return dtype(np.sqrt(2)) * jax.lax.erf_inv(symmetric)


def integers(words: jax.Array, bound: jax.Array, wide: bool) -> jax.Array:
    """Integers uniform on 0..bound-1 from random words along the last axis."""
    bound = bound.astype(jnp.uint32)
    if not wide:
        return multiply_high(words, bound).astype(jnp.int32)
    high, low = jnp.split(words, 2, axis=-1)
    below = high * bound
    carry = (below + multiply_high(low, bound) < below).astype(jnp.uint32)
    return (multiply_high(high, bound) + carry).astype(jnp.int32)


def multiply_high(a: jax.Array, b: jax.Array) -> jax.Array:
    """The high 32 bits of the 64-bit product of two uint32, without 64-bit types."""
    mask = jnp.uint32(0xFFFF)
    a1, a0, b1, b0 = a >> 16, a & mask, b >> 16, b & mask
    middle = (a0 * b0 >> 16) + (a1 * b0 & mask) + (a0 * b1 & mask)
    return a1 * b1 + (a1 * b0 >> 16) + (a0 * b1 >> 16) + (middle >> 16)


class Words:
    """Random words of one step, handed out as integers in order."""

    def __init__(self, words: jax.Array, wide: bool) -> None:
        self._words, self._wide, self._used = words, wide, 0

    def integers(self, count: int, bound: jax.Array) -> jax.Array:
        """The next `count` integers uniform below `bound`."""
        first, self._used = self._used, self._used + count * (1 + self._wide)
        return integers(self._words[first : self._used], bound, self._wide)
