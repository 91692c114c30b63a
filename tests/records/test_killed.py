"""kill -9 at six instants, in set-up, tuning and sampling: whoever goes on ends in the same bits.

The run that is killed is a process of its own, which tells by a letter before every transaction what it is at. A
process that has imported everything and started nothing makes them by fork, so that each costs a second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from equal_results import assert_same
from scenarios import logistic_rows

import tallbayes as tb
from tallbayes.records.ledger import open_ledger

# More rows than one chunk, so that sums over chunks are on record while the mode is searched.
ROWS = logistic_rows(300_000, (0.5, -0.5, 0.2))
OPTIONS = {"tolerance": 0.003, "seed": 5, "method": tb.Anchored(batch_size=4)}

NURSERY = """
    import os, sys
    import jax, numpy as np
    import tallbayes as tb
    from tallbayes.estimation import estimate as estimation
    from tallbayes.records import ledger
    from tallbayes.records import tasks as records
    from scenarios import logistic_rows
    from test_killed import OPTIONS, ROWS

    pipe = int(sys.argv[1])
    entered, added = ledger.Ledger.enter, ledger.Ledger.add

    def enter(self, seed, kind, name, value):
        os.write(pipe, b"s")
        entered(self, seed, kind, name, value)

    def add(self, task, config, *rest):
        os.write(pipe, b"b" if "stream 0" in config and task == "level" else b"t")
        added(self, task, config, *rest)

    ledger.Ledger.enter, ledger.Ledger.add = enter, add
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            tb.estimate(tb.families.logistic(), ROWS, ledger=line.strip(), **OPTIONS)
            os.write(pipe, b".")
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
        os.write(pipe, b"x")
"""


class Nursery:
    """Runs to be killed, one at a time."""

    def __init__(self, cache: Path) -> None:
        self.output, other = os.pipe()
        paths = [*map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(NURSERY), str(other)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, pass_fds=[other]
        )
        os.close(other)

    def start(self, ledger: Path) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{ledger}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def events(self) -> Iterator[str]:
        """Letters until the run has ended, however it has."""
        while True:
            letter = os.read(self.output, 1).decode()
            if letter in ("x", ""):
                return
            yield letter

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
        os.close(self.output)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("compiled"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def whole(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> tuple[tb.Result, str]:
    """The uninterrupted run: its result, and what it was at from transaction to transaction."""
    path = tmp_path_factory.mktemp("whole") / "run.sqlite"
    nursery.start(path)
    story = "".join(nursery.events())
    assert story.endswith(".")
    return tb.estimate(tb.families.logistic(), ROWS, **OPTIONS), story


def instants(story: str, each: int) -> list[int]:
    """Numbers of transactions, so many in set-up, in tuning and in sampling, drawn at random."""
    rng = np.random.default_rng(11)
    places = {letter: np.flatnonzero(np.array(list(story)) == letter) for letter in "stb"}
    first_pilot = int(places["t"][0])
    setup = places["s"][places["s"] < first_pilot]
    drawn = [rng.choice(part, each, replace=False) for part in (setup, places["t"], places["b"])]
    return sorted(int(place) for place in np.concatenate(drawn))


@pytest.mark.parametrize("each", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_runs_end_in_the_same_bits(
    each: int, whole: tuple[tb.Result, str], nursery: Nursery, tmp_path: Path
) -> None:
    result, story = whole
    chosen = instants(story, each)
    rng = np.random.default_rng(12)
    saved = []
    for number, instant in enumerate(chosen):
        path = tmp_path / f"{number}.sqlite"
        child = nursery.start(path)
        events = nursery.events()
        seen = [next(events) for _ in range(instant + 1)]
        time.sleep(rng.uniform(0, 0.002))
        os.kill(child, signal.SIGKILL)
        seen += list(events)
        assert "." not in seen, "it was too quick to be killed"
        with open_ledger(path) as ledger:
            blocks = ledger.summary()["blocks"]
        # What was told before a transaction is on record, but for the last one on each thread.
        assert blocks >= sum(letter in "tb" for letter in seen) - 3
        again = tb.estimate(tb.families.logistic(), ROWS, ledger=path, **OPTIONS)
        assert_same(again, result)
        saved.append(blocks)
    assert saved[-1] > saved[0] == 0


@pytest.mark.slow
def test_a_run_killed_again_and_again_gets_there(
    whole: tuple[tb.Result, str], nursery: Nursery, tmp_path: Path
) -> None:
    """Each life adds to the ledger what the one before left undone, and none begins anew."""
    result, story = whole
    path, before = tmp_path / "run.sqlite", 0
    for _ in range(4):
        child = nursery.start(path)
        events = nursery.events()
        for _ in range(len(story) // 5):
            next(events)
        os.kill(child, signal.SIGKILL)
        list(events)
        with open_ledger(path) as ledger:
            blocks = ledger.summary()["blocks"]
        assert blocks >= before
        before = blocks
    assert before > 0
    assert_same(tb.estimate(tb.families.logistic(), ROWS, ledger=path, **OPTIONS), result)
