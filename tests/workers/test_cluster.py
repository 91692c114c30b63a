"""Workers in other processes: spawned pools and a real dask cluster on loopback, killed and joined in mid-run.

Every answer is that of the serial run, to the last bit.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from equal_results import assert_same
from scenarios import by_ladder, logistic_rows

import tallbayes as tb
from tallbayes.commands import cli
from tallbayes.estimator.levels import sample_level
from tallbayes.workers import shipping
from tallbayes.workers.dispatch import Dispatcher

cloudpickle, distributed = pytest.importorskip("cloudpickle"), pytest.importorskip("distributed")

# More rows than one chunk: the sums of set-up run on the workers too.
ROWS = logistic_rows(280_000, (0.5, -0.5, 0.2))
MODEL = tb.families.logistic()
OPTIONS = {"tolerance": 0.0015, "seed": 5}
# Far from Gaussian, so that there are many blocks.
FEW_ROWS = logistic_rows(300, (0.5, -0.5, 0.2))
MANY_BLOCKS = {"tolerance": 0.007, "seed": 5, "method": tb.Anchored(anchor="mode")}
SECONDS_TO_START = 60


@pytest.fixture(scope="module")
def serial() -> tb.Result:
    return by_ladder(MODEL, ROWS, **OPTIONS)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which what one worker compiles the next one finds.

    Programs of these tests may be compiled without optimisation, and then their bits depend on XLA's threads; as they
    are compiled for users they do not.
    """
    return {
        "NPROC": str(os.cpu_count()),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


class Cluster:
    """A scheduler and its workers, one thread each, all of them processes of their own."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.environment, self.folder = os.environ | environment, folder
        self.processes: list[subprocess.Popen[str]] = []
        self.names: set[str] = set()
        scheduler = self._spawn("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.address = self._address(scheduler)
        self.client = distributed.Client(self.address, timeout=SECONDS_TO_START, set_as_default=False)

    def _spawn(self, kind: str, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_" + kind, *options]
        with open(self.folder / f"{kind}{len(self.processes)}.log", "w") as log:
            process = subprocess.Popen(
                command, stderr=log, stdout=log, env=self.environment, cwd=self.folder, text=True
            )
        self.processes.append(process)
        return process

    def _address(self, scheduler: subprocess.Popen[str]) -> str:
        end, log = time.monotonic() + SECONDS_TO_START, self.folder / "scheduler0.log"
        while time.monotonic() < end:
            found = re.search(r"tcp://127\.0\.0\.1:\d+", log.read_text())
            if found:
                return found[0]
            time.sleep(0.05)
        raise AssertionError(log.read_text())

    def hire(self, number: int = 1) -> list[int]:
        """Start workers and wait until they are there; their process ids."""
        local = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self.folder)]
        made = [self._spawn("worker", self.address, *local, "--name", f"w{k}") for k in self._numbers(number)]
        end = time.monotonic() + SECONDS_TO_START
        while len(self.names) < len(self.processes) - 1:
            self.names |= {each["name"] for each in self.client.scheduler_info(n_workers=-1)["workers"].values()}
            assert time.monotonic() < end, "no worker came"
            time.sleep(0.05)
        return [process.pid for process in made]

    def _numbers(self, number: int) -> range:
        return range(len(self.processes), len(self.processes) + number)

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self.client.close()
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


@pytest.fixture(scope="module")
def cluster(cache: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(cache, tmp_path_factory.mktemp("cluster"))
    try:
        made.hire(2)
        yield made
    finally:
        made.close()


class Watch(distributed.WorkerPlugin):  # type: ignore[misc, name-defined]
    """Every task that a worker has finished, in a file of its own."""

    name = "watch"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def setup(self, worker: Any) -> None:
        self.path = Path(self.folder) / f"{os.getpid()}.done"

    def transition(self, key: str, start: str, finish: str, **_: Any) -> None:
        if start == "executing" and finish == "memory":
            with open(self.path, "a") as file:
                file.write(f"{key}\n")


@pytest.fixture(scope="module")
def pool(cache: dict[str, str]) -> Iterator[ProcessPoolExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cache.items():
            patch.setenv(name, value)
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
            yield executor


def test_spawned_processes_give_the_same_bits(pool: ProcessPoolExecutor, serial: tb.Result, tmp_path: Path) -> None:
    found = by_ladder(MODEL, ROWS, executor=pool, ledger=tmp_path / "run.sqlite", **OPTIONS)
    assert_same(found, serial)
    # And they go on where they were.
    assert_same(by_ladder(MODEL, ROWS, executor=pool, ledger=tmp_path / "run.sqlite", **OPTIONS), serial)
    tighter = {"tolerance": 0.0012}
    assert_same(found.extend(**tighter, executor=pool), found.extend(**tighter))


def test_functions_of_a_user_travel_with_what_they_hold(pool: ProcessPoolExecutor) -> None:
    rows, scale = logistic_rows(200, (0.5, -0.5)), np.array([1.0, 2.0])

    def log_likelihood(theta: Any, row: Any) -> Any:
        eta = row["x"] @ theta["a"]
        return row["y"] * eta - jnp.logaddexp(0.0, eta)

    model = tb.Model(lambda theta: -0.5 * jnp.sum((theta["a"] / scale) ** 2), log_likelihood, {"a": np.zeros(2)})
    quantities = {"product": lambda theta: theta["a"][0] * theta["a"][1] * scale[1]}
    options = {"tolerance": 0.05, "seed": 1}
    elsewhere = by_ladder(model, rows, quantities, executor=pool, **options)
    assert_same(elsewhere, by_ladder(model, rows, quantities, **options))


def test_a_pool_that_forks_is_refused() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as forks,
        pytest.raises(tb.InputError, match="get_context\\('spawn'\\)"),
    ):
        by_ladder(MODEL, ROWS, executor=forks, **OPTIONS)


def test_what_cannot_submit_is_refused() -> None:
    with pytest.raises(tb.InputError, match="an executor with a submit method"):
        by_ladder(MODEL, ROWS, executor="tcp://127.0.0.1:8786", **OPTIONS)  # type: ignore[arg-type]


def test_a_pool_whose_process_dies_is_one_error(pool: ProcessPoolExecutor) -> None:
    def kill(_: Any) -> None:
        # A pool that nobody has asked for anything yet has no processes, and one is dead once.
        for process in list(pool._processes)[:1]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    with pytest.raises(tb.WorkerError, match=r"runs to the end.*BrokenProcessPool.*ledger="):
        by_ladder(MODEL, FEW_ROWS, executor=pool, progress=kill, **MANY_BLOCKS)


def test_a_cluster_gives_the_same_bits(cluster: Cluster, serial: tb.Result) -> None:
    assert_same(by_ladder(MODEL, ROWS, executor=cluster.client.get_executor(), **OPTIONS), serial)


@pytest.mark.slow
def test_a_worker_is_killed_and_another_joins(cluster: Cluster, tmp_path: Path) -> None:
    """Only what the dead one held or was at is computed again."""
    client = cluster.client
    (doomed,) = cluster.hire()
    # The workers know nothing of this file.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    client.register_plugin(Watch(str(tmp_path)))
    looks: list[Any] = []
    known: set[tuple[str, int, int]] = set()
    asked_again: set[tuple[str, int, int]] = set()
    submit, take_in = Dispatcher._submit, Dispatcher._take_in

    def watch_submit(this: Dispatcher, level: int, blocks: range) -> Any:
        names = {(repr(this._problem), level, index) for index in blocks}
        asked_again.update(names & known)
        return submit(this, level, blocks)

    def watch_take_in(this: Dispatcher, future: Any) -> None:
        take_in(this, future)
        known.update((repr(this._problem), level, k) for level, line in this._lines.items() for k in line.arrived)

    def look(progress: Any) -> None:
        looks.append(progress)
        if len(looks) == 1:
            cluster.kill(doomed)
            cluster.hire()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "_submit", watch_submit)
        patch.setattr(Dispatcher, "_take_in", watch_take_in)
        found = by_ladder(MODEL, FEW_ROWS, executor=client.get_executor(), progress=look, **MANY_BLOCKS)
    client.unregister_worker_plugin("watch")
    # What has arrived here is never asked for again.
    assert len(known) > 50
    assert not asked_again
    assert len(looks) > 1
    assert_same(found, by_ladder(MODEL, FEW_ROWS, **MANY_BLOCKS))
    done = {path: path.read_text().split() for path in tmp_path.glob("*.done")}
    # Whether the dead one had finished anything, and the new one came in time for more, is a matter of speed.
    assert 2 <= len(done) <= 4
    lost = done.pop(tmp_path / f"{doomed}.done", [])
    for path, keys in done.items():
        assert max(Counter(keys).values()) == 1, path
    times = Counter(key for keys in done.values() for key in keys)
    again = {key for key, number in times.items() if number > 1 or key in lost}
    assert len(again) <= len(lost)
    # A result that had been handed over before its worker died was not asked for again.
    assert len(again) <= 4, (len(again), len(lost))


def test_a_worker_without_the_table_is_one_clear_error(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tb.write_table(tmp_path / "rows.table", ROWS)
    elsewhere = shipping._table_at

    def moved(known: Any) -> Any:
        return shipping.TableAt(str(tmp_path / "nowhere"), *list(vars(elsewhere(known)).values())[1:])

    monkeypatch.setattr(shipping, "_table_at", moved)
    with pytest.raises(tb.WorkerError, match=r"open the table.*worker \d+ on .*nothing at .*nowhere.*same path"):
        by_ladder(MODEL, table, executor=cluster.client.get_executor(), **OPTIONS)


def test_rows_on_disk_are_opened_where_they_are(cluster: Cluster, tmp_path: Path) -> None:
    """What travels is small: no task is larger than a few kilobytes."""
    table = tb.write_table(tmp_path / "rows.table", ROWS)
    sizes: list[int] = []

    class Weighing(Executor):
        """Dask's own executor, seen from outside as one of another kind."""

        _client = cluster.client

        def submit(self, task: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
            raise AssertionError

    submit = shipping.submit_to_dask

    def weigh(client: Any, task: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        sizes.append(len(cloudpickle.dumps(arguments)))
        return submit(client, task, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "submit_to_dask", weigh)
        found = by_ladder(MODEL, table, executor=Weighing(), **OPTIONS)
    assert_same(found, by_ladder(MODEL, table, **OPTIONS))
    assert max(sizes) < 2**16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.table"]
    (block,) = [sample_level(problem, 1, 0) for problem in [problem_of(found)]]
    assert len(cloudpickle.dumps(block)) < 2**14


def problem_of(result: tb.Result) -> Any:
    assert result.path_source is not None
    return result.path_source()


def test_the_command_line_fits_on_a_cluster(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLBAYES_CACHE", "")
    lines = [f"{int(y)},{a:.4f},{b:.4f}" for (a, b, _), y in zip(ROWS["x"][:400], ROWS["y"][:400], strict=True)]
    data = tmp_path / "rows.csv"
    data.write_text("\n".join(["y,a,b", *lines]) + "\n")
    command = ["fit", str(data), "--formula", "y ~ a + b", "--tolerance", "0.05", "--json"]
    assert cli.main([*command, "--dask", cluster.address, "--out", str(tmp_path / "run")]) == 0
    assert cli.main([*command, "--out", str(tmp_path / "here")]) == 0
    capsys.readouterr()
    assert_same(tb.load(tmp_path / "run/result.tallbayes"), tb.load(tmp_path / "here/result.tallbayes"))
    assert cli.main(["resume", str(tmp_path / "run"), "--tolerance", "0.04", "--dask", cluster.address]) == 0


def test_a_cluster_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLBAYES_CACHE", "")
    monkeypatch.setattr("tallbayes.commands.commands.SECONDS_TO_CONNECT", 0.5)
    monkeypatch.setattr(logging.getLogger("distributed"), "level", logging.CRITICAL)
    data = tmp_path / "rows.csv"
    data.write_text("y,a\n" + "0,1\n1,2\n" * 30)
    command = ["fit", str(data), "--formula", "y ~ a", "--dask", "tcp://127.0.0.1:9", "--out", str(tmp_path / "run")]
    assert cli.main(command) == 2
    assert "a dask scheduler at 'tcp://127.0.0.1:9'" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv"]
