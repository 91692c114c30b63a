"""Same seed, same bits: whatever the order of blocks, the threads, progress, or the user's own settings.

And nothing is compiled twice.
"""

import os
import random
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import paper
import pytest

import tallbayes as tb
from tallbayes.programs.compilation import compiled
from tallbayes.sampler import levels

SETTINGS = {
    "relative_tolerance": 0.1,
    "seed": 3,
    "method": tb.Multilevel(
        gradient=tb.Taylor(8), ladder=tb.Ladder(first_step=1 / 300, start_steps=12, added_steps=12)
    ),
}


def run(**changes):
    quantities = {"norm": lambda theta: jnp.sum(theta**2), "first": lambda theta: theta[0] + 1.0}
    return tb.estimate(paper.MODEL, paper.rows(300), quantities, **(SETTINGS | changes))


@pytest.fixture(scope="module")
def reference():
    return run()


def assert_same_bits(one, two):
    for name in one:
        for part in ("flat_value", "flat_standard_error", "flat_bias_bound", "flat_freedom"):
            np.testing.assert_array_equal(getattr(one[name], part), getattr(two[name], part))
    assert one.cost.evaluations == two.cost.evaluations
    assert [level.samples for level in one.levels] == [level.samples for level in two.levels]


class Shuffled:
    """Runs what is pending in random order, after a pause: blocks finish in any order but their own."""

    def __init__(self):
        self._pool = ThreadPoolExecutor(3)
        self._random = random.Random(0)

    def submit(self, task, /, *arguments):
        future: Future = Future()
        delay = self._random.random() * 0.02

        def late():
            time.sleep(delay)
            future.set_result(task(*arguments))

        self._pool.submit(late)
        return future


def test_the_order_in_which_blocks_finish_does_not_matter(reference):
    assert_same_bits(reference, run(executor=Shuffled()))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_does_not_matter(reference, threads):
    with ThreadPoolExecutor(threads) as executor:
        assert_same_bits(reference, run(executor=executor))


def test_progress_does_not_matter(reference):
    seen = []
    assert_same_bits(reference, run(progress=seen.append))
    assert seen
    assert seen[-1].error <= seen[-1].target


def test_another_seed_gives_other_bits(reference):
    other = run(seed=4)
    assert other["norm"].value != reference["norm"].value


CHILD = """
import jax
jax.config.update("jax_enable_x64", True)
import test_reproducibility as t
result = t.run()
print(*[result[name].flat_value.tobytes().hex() for name in result])
print(*[result[name].flat_standard_error.tobytes().hex() for name in result])
"""


def test_the_users_global_precision_does_not_matter(reference):
    """Another process with 64-bit types for all; here they are JAX's own, 32 bits."""
    assert not jax.config.jax_enable_x64
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here.parent), os.environ.get("PYTHONPATH", "")])}
    child = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, cwd=here, env=environment
    )
    parts = ("flat_value", "flat_standard_error")
    here = [" ".join(getattr(reference[n], part).tobytes().hex() for n in reference) for part in parts]
    assert child.stdout.splitlines() == here


def test_a_second_call_compiles_nothing(reference, compilations):
    run()
    run(seed=8, relative_tolerance=0.2)
    assert compilations == []


def test_an_equal_lambda_defined_anew_does_not_retrace(reference, compilations):
    """`run` makes its lambdas anew each time; one with another constant is another function."""
    kernel = compiled(levels._level_block).jitted
    before = kernel._cache_size()
    run()
    assert kernel._cache_size() == before
    assert compilations == []
    tb.estimate(paper.MODEL, paper.rows(300), {"norm": lambda theta: jnp.sum(theta**2) + 1e-9}, **SETTINGS)
    assert kernel._cache_size() == before + 1


def test_six_levels_trace_the_kernel_once():
    kernel = compiled(levels._level_block).jitted
    before = kernel._cache_size()
    short = tb.Ladder(first_step=1 / 300, start_steps=3, added_steps=12)
    method = tb.Multilevel(gradient=tb.Plain(7), ladder=short)
    result = tb.estimate(
        paper.MODEL,
        paper.rows(300),
        {"first": lambda theta: jnp.sum(theta**2)},
        absolute_tolerance=0.03,
        method=method,
        max_levels=6,
        max_evaluations=3e7,
    )
    assert len(result.levels) == 6
    assert kernel._cache_size() == before + 1


def test_a_new_number_of_rows_in_the_same_bucket_compiles_nothing(reference, compilations):
    rows = jax.tree.map(lambda leaf: leaf[:290], paper.rows(300))
    quantities = {"norm": lambda theta: jnp.sum(theta**2), "first": lambda theta: theta[0] + 1.0}
    tb.estimate(paper.MODEL, rows, quantities, **SETTINGS)
    assert compilations == []
