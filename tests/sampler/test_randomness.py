"""Random words into integers and normals: exact where it can be exact, uniform where it must be.

The chi-square checks have a false-alarm rate of 1e-6; seeds are fixed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2, kstest

import tallbayes as tb
from tallbayes.sampler.minibatch import distinct
from tallbayes.sampler.randomness import (
    Words,
    integers,
    multiply_high,
    normals,
    path_key,
    path_words,
    phase_words,
    seed_words,
)

BATCH, ROWS, BATCHES = 3, 7, 20_000


def words(count, seed=0):
    return jax.random.bits(jax.random.key(seed, impl="threefry2x32"), (count,), jnp.uint32)


def test_multiply_high_is_exact():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2**32, (2, 1000), dtype=np.uint64)
    edge = np.array([0, 1, 2**16 - 1, 2**16, 2**31, 2**32 - 1], np.uint64)
    a, b = np.concatenate([a, np.repeat(edge, 6)]), np.concatenate([b, np.tile(edge, 6)])
    got = multiply_high(jnp.asarray(a, jnp.uint32), jnp.asarray(b, jnp.uint32))
    np.testing.assert_array_equal(
        np.asarray(got, np.uint64), [int(x) * int(y) >> 32 for x, y in zip(a, b, strict=True)]
    )


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 17, 2**64 - 1])
def test_keys_by_numpy_are_those_of_jax(seed):
    labels, paths = (2, 31), np.array([0, 1, 5, 2**32 - 1], np.uint32)
    by_phase = phase_words(seed, *labels, paths, phases=3)
    assert by_phase.dtype == np.uint32
    for path, own in zip(paths, by_phase, strict=True):
        key = path_key(seed_words(seed), *map(np.uint32, labels), path)
        np.testing.assert_array_equal(path_words(seed, *labels, path), jax.random.key_data(key))
        for phase in range(3):
            np.testing.assert_array_equal(own[phase], jax.random.key_data(jax.random.fold_in(key, phase)))
    # The control: labels in another order are another key.
    assert np.any(path_words(seed, *labels) != path_words(seed, *labels[::-1]))


def test_wide_integers_use_all_64_bits():
    high, low = np.asarray(words(64, 1), object), np.asarray(words(64, 2), object)
    bound = 10**9 + 7
    got = integers(jnp.asarray(np.concatenate([high, low]).astype(np.uint32)), jnp.int32(bound), wide=True)
    exact = [((int(h) << 32 | int(l)) * bound) >> 64 for h, l in zip(high, low, strict=True)]
    # The carry out of the lowest word is dropped: off by one at most, once in 2^32 draws.
    np.testing.assert_array_equal(np.asarray(got), exact)


def test_float32_floor_would_miss_rows():
    """Negative control for the rule against floor(uniform * N): most rows of a tall table are never drawn."""
    num_rows = 2**25
    uniform = jax.random.uniform(jax.random.key(0), (100_000,), jnp.float32)
    assert np.all(np.asarray(jnp.floor(uniform * num_rows), np.int64) % 4 == 0)
    drawn = integers(words(200_000), jnp.int32(num_rows), wide=True)
    assert len(np.unique(np.asarray(drawn) % 4)) == 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normals_are_normal(dtype):
    with jax.enable_x64(True):
        sample = np.asarray(normals(words(40_000), dtype))
    assert sample.dtype == dtype
    assert kstest(sample.astype(float), "norm").pvalue > 1e-6


def batches(sampling):
    """Many batches drawn by a law, one key each."""

    def one(key):
        source = Words(jax.random.bits(key, (sampling.num_indices(BATCH),), jnp.uint32), wide=False)
        return sampling.draw(source.integers, BATCH, jnp.int32(ROWS))

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), BATCHES)))


def uniform_score(counts):
    expected = counts.sum() / counts.size
    return chi2.sf(np.sum((counts - expected) ** 2 / expected), counts.size - 1)


@pytest.mark.parametrize("sampling", [tb.WithReplacement(), tb.Blocks()], ids=str)
def test_every_row_is_equally_likely_in_every_place(sampling):
    drawn = batches(sampling)
    assert drawn.min() >= 0
    assert drawn.max() < ROWS
    for place in range(BATCH):
        assert uniform_score(np.bincount(drawn[:, place], minlength=ROWS)) > 1e-6


def test_without_replacement_gives_every_subset_alike():
    drawn = np.sort(batches(tb.WithoutReplacement()), axis=1)
    subsets, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(subsets) == 35
    assert np.all(np.diff(subsets, axis=1) > 0)
    assert uniform_score(counts) > 1e-6


def test_blocks_wrap():
    drawn = batches(tb.Blocks())
    np.testing.assert_array_equal((drawn[:, 1:] - drawn[:, :-1]) % ROWS, 1)
    assert np.any(drawn[:, -1] < drawn[:, 0])


def test_control_blocks_without_wrap_lose_the_end_rows():
    """Starts on 0..N-n only: the first and last rows come up too rarely, and the check sees it."""
    start = np.random.default_rng(0).integers(0, ROWS - BATCH + 1, BATCHES)
    counts = np.bincount((start[:, None] + np.arange(BATCH)).ravel(), minlength=ROWS)
    assert uniform_score(counts) < 1e-6


def test_floyd_reaches_all_rows_when_the_batch_is_the_table():
    source = Words(words(5), wide=False)
    assert sorted(np.asarray(distinct(source.integers, 5, jnp.int32(5))).tolist()) == [0, 1, 2, 3, 4]
