"""Threads that can be left behind, and what an exit waits for."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tallbayes import threads

LEFT_BEHIND = """
import sys, time, jax, jax.numpy as jnp
from tallbayes import threads
from tallbayes.watch import OutOfTime, aside, watching

threads.SECONDS_AT_EXIT = 3.0

def work(steps):
    with jax.enable_x64(True):
        return jax.jit(lambda x: jax.lax.fori_loop(0, steps, lambda i, s: jnp.tanh(s + 1e-9 * i), x))(jnp.ones(8))

aside(work, 10)
try:
    with watching(float(sys.argv[1])):
        aside(work, 10**10)
except OutOfTime:
    sys.exit(3)
"""


@pytest.mark.parametrize("seconds", [0.01, pytest.param(0.1, marks=pytest.mark.slow), 1.0])
def test_the_interpreter_exits_though_a_program_was_left_behind(seconds: float) -> None:
    """Ten billion steps take ten minutes; the exit code is the script's own."""
    # What is loaded from a cache of programs may be remarked upon.
    alone = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-c", LEFT_BEHIND, str(seconds)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, env=alone)
    assert (ended.returncode, ended.stderr) == (3, "")


@pytest.fixture
def exiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of which nothing is known yet, and little patience."""
    for name, fresh in (("_leaving", threading.Event()), ("_busy", set()), ("_kept", set()), ("SECONDS_AT_EXIT", 0.5)):
        monkeypatch.setattr(threads, name, fresh)


@pytest.mark.usefixtures("exiting")
def test_an_exit_waits_for_what_a_compiler_still_has_to_do() -> None:
    """However long it took to compile: coming back while the interpreter is taken down, its thread aborted it."""
    begun, back = threading.Event(), threading.Event()

    def work() -> None:
        with threads.not_to_be_left():
            begun.set()
            time.sleep(1.0)
        time.sleep(0.1)
        back.set()

    workers = threads.Threads(1)
    workers.submit(work)
    assert begun.wait(60)
    threads._wait_at_exit()
    assert back.is_set()
    workers.shutdown()


@pytest.mark.usefixtures("exiting")
def test_an_exit_that_leaves_a_thread_behind_collects_nothing() -> None:
    """That took seconds, in which the thread could come back."""
    begun, end = threading.Event(), threading.Event()
    workers = threads.Threads(1)
    workers.submit(lambda: begun.set() or end.wait(60))
    assert begun.wait(60)
    gc.unfreeze()
    try:
        threads._wait_at_exit()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        end.set()
        workers.shutdown()


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "400000 100000"}, 4),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, sys.maxsize),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, sys.maxsize),
        ({}, sys.maxsize),
    ],
)
def test_a_container_says_how_many_cores_it_is_given(files: dict[str, str], cores: int, tmp_path: Path) -> None:
    """By either version of control groups; never less than one."""
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    assert int(threads._container_cores(tmp_path)) == cores
