"""Mixed models that go on: after kill -9, with other nodes, and on workers elsewhere."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from equal_results import assert_same

import tallbayes as tb
from tallbayes.groups.placing import gather
from tallbayes.model.groups.mixed import EffectTerm, with_effects
from tallbayes.model.model import bind
from tallbayes.records.fingerprint import fingerprint
from tallbayes.records.ledger import open_ledger
from tallbayes.rows.on_disk import map_table
from tallbayes.rows.table import Table, make_table

GROUPS, EACH = 60, 4
OPTIONS = {"tolerance": 0.05, "seed": 2, "method": tb.Anchored()}

KILLED = """
    import sys
    import tallbayes as tb
    from test_resume import OPTIONS, model, rows

    tb.estimate(model(), rows(), ledger=sys.argv[1], **OPTIONS)
"""


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    g, x = np.repeat(np.arange(GROUPS, dtype=np.int32), EACH), rng.normal(size=(GROUPS * EACH, 1))
    eta = 0.3 + 0.5 * x[:, 0] + 0.7 * rng.normal(size=GROUPS)[g]
    return {"x": x, "y": (rng.random(len(g)) < 1 / (1 + np.exp(-eta))).astype(float), "g": g}


def model(nodes: int | None = None) -> tb.Model:
    made = with_effects(tb.families.logistic(intercept_scale=2.0), EffectTerm("g"))
    assert made.groups is not None
    return replace(made, groups=replace(made.groups, nodes=nodes))


def digests(nodes: int, table: Table) -> dict[str, object]:
    unit = jax.tree.map(lambda leaf: np.asarray(leaf[0]), table.rows)
    return fingerprint(bind(model(nodes), unit)[0], table, [], [], "", None)


def test_a_ledger_knows_the_nodes(tmp_path: Path) -> None:
    """How many there are, and where: in memory, and beside units on disk."""
    gathered = gather(model(7), rows())
    here = make_table(gathered.units, "float64")
    assert digests(7, here) == digests(7, here)
    assert digests(7, here)["model"] != digests(9, here)["model"]
    on_disk = gather(model(7), tb.write_table(tmp_path / "rows.table", rows(), shuffled=True))
    stored = on_disk.stored
    assert stored is not None
    names = {"rows": {field.name: field.name for field in stored.fields}}
    first, second = (
        map_table(stored, {**names, "centre": centre}) for centre in (np.zeros((256, 1)), np.ones((256, 1)))
    )
    unit = jax.tree.map(lambda leaf: np.asarray(leaf[0]), gathered.units)
    target = bind(model(7), unit)[0]
    one, other, again = (fingerprint(target, each, [], [], "", None)["content"] for each in (first, second, first))
    assert one == again != other


@pytest.fixture(scope="module")
def whole() -> tb.Result:
    return tb.estimate(model(), rows(), **OPTIONS)


@pytest.mark.slow
def test_a_killed_run_ends_in_the_same_bits(whole: tb.Result, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(KILLED), str(path)]
    paths = [*map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}) as child:
        try:
            while child.poll() is None and blocks_of(path) < 3:
                time.sleep(0.05)
        finally:
            child.kill()
    assert child.returncode == -9, "it was too quick to be killed"
    assert blocks_of(path) >= 3
    assert_same(tb.estimate(model(), rows(), ledger=path, **OPTIONS), whole)
    tighter = tb.estimate(model(), rows(), ledger=path, **{**OPTIONS, "tolerance": 0.03})
    assert tighter.converged
    with pytest.raises(tb.LedgerError, match="model"):
        tb.estimate(model(9), rows(), ledger=path, **OPTIONS)
    assert whole.extend(tolerance=0.03).converged


def blocks_of(path: Path) -> int:
    if not path.exists():
        return 0
    try:
        with open_ledger(path) as ledger:
            return int(ledger.summary()["blocks"])
    except tb.LedgerError:
        return 0


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as made:
        yield made


@pytest.mark.slow
def test_processes_end_in_the_same_bits(whole: tb.Result, pool: ProcessPoolExecutor, tmp_path: Path) -> None:
    """From memory and from disk, where units are files with their nodes beside them."""
    assert_same(tb.estimate(model(), rows(), executor=pool, **OPTIONS), whole)
    table = tb.write_table(tmp_path / "rows.table", rows(), shuffled=True)
    here, there = (tb.estimate(model(), table, executor=each, **OPTIONS) for each in (None, pool))
    assert_same(there, here)
