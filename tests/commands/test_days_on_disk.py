"""Runs on a table on disk: another process goes on where one has ended, days are replayed, and what is torn is told."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.arrivals.disk.state import read_state, write_state
from tallbayes.commands import cli

pytestmark = pytest.mark.usefixtures("without_compile_cache")
FORMULA, TOLERANCE = "y ~ x + g", "0.1"


def write_day(folder: Path, number: int, count: int = 200) -> Path:
    rng = np.random.default_rng(number)
    x, g = rng.normal(size=count), rng.integers(0, 3, count)
    y = rng.random(count) < 1 / (1 + np.exp(-(0.3 + 0.8 * x + 0.4 * (g == 1))))
    path = folder / f"day{number:02d}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "g", "y"])
        writer.writerows(zip(x.tolist(), np.array(list("abc"))[g].tolist(), y.astype(int).tolist(), strict=True))
    return path


def command(*words: Any) -> int:
    return cli.main([*map(str, words), "--quiet"])


def begun(place: Path) -> Path:
    """A run of 1,500 rows."""
    table, run = place / "t", place / "run"
    tb.ingest(write_day(place, 0, 1500), table)
    assert command("fit", table, "--formula", FORMULA, "--tolerance", TOLERANCE, "--out", run) == 0
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a fit and two days."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLBAYES_CACHE", "")
        found = begun(tmp_path_factory.mktemp("days"))
        for number in (1, 2):
            assert command("update", found, write_day(found.parent, number)) == 0
    return found


def test_another_process_pays_the_rows_of_a_day(run: Path) -> None:
    """What was read is the day's rows, twice, and what paths read: nothing is placed or expanded anew."""
    days = tb.history(run).days
    assert [(day.came, day.rows) for day in days] == [(0, 1500), (200, 1700), (200, 1900)]
    assert tb.load(run / "result.tallbayes").cost.setup_evaluations == 2 * 200
    assert len(tb.open_table(run.parent / "t")) == 1900


def test_the_same_file_twice_is_taken_once(run: Path) -> None:
    digest = tb.open_table(run.parent / "t").digest
    assert command("update", run, run.parent / "day01.csv") == 0
    assert tb.open_table(run.parent / "t").digest == digest
    assert len(tb.history(run)) == 3


def test_past_days_are_replayed_to_the_bit(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        found = tb.history(run).replay(number)
        assert found.cost.num_data == tb.history(run).days[number].rows
    assert command("replay", run, 0) == 0
    assert "1,500 rows" in capsys.readouterr().out
    with pytest.raises(tb.TallbayesError, match="a day from 1 to 2"):
        tb.history(run).replay(3)


def test_what_is_not_as_it_was_is_not_replayed(run: Path) -> None:
    """Another seed, a byte of the sums, a byte of a row."""
    state, kept = run / "days" / "0002.standing", read_state(run, 2)
    content = state.read_bytes()
    write_state(run, replace(kept, seed=kept.seed + 1))
    with pytest.raises(tb.TallbayesError, match="the numbers that are on record of day 2"):
        tb.history(run).replay(2)
    state.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
    with pytest.raises(tb.TallbayesError, match="other bytes than were written"):
        tb.history(run).replay(2)
    state.write_bytes(content)
    rows = kept.tables[0].path / "x.bin"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    try:
        with pytest.raises(tb.TallbayesError, match=r"a whole 'x\.bin'"):
            tb.history(run).replay(2)
    finally:
        rows.write_bytes(whole)
    assert tb.history(run).replay(2).converged


def test_what_is_asked_of_an_updated_run_reads_all_of_its_rows(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["loo", str(run)]) == 0
    assert "of 1,900 rows" in capsys.readouterr().out
    out = run.parent / "draws.csv"
    assert cli.main(["draws", str(run), "--out", str(out), "--count", "500", "--force"]) == 0
    assert len(out.read_text().splitlines()) == 501


def test_days_after_a_withdrawal_and_those_that_are_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = begun(tmp_path)
    assert command("update", run, write_day(tmp_path, 1)) == 0
    assert command("update", run, "--withdraw", write_day(tmp_path, 7, 5)) == 2
    assert "that are not among them" in capsys.readouterr().err
    assert command("update", run, "--withdraw", tmp_path / "day01.csv") == 0
    with pytest.raises(tb.TallbayesError, match="day 1, which is lost: 200 of its rows were withdrawn on day 2"):
        tb.history(run).replay(1)
    # Rows that somebody has put into the table.
    tb.ingest(write_day(tmp_path, 3, 100), tmp_path / "t", append=True)
    assert command("update", run, write_day(tmp_path, 4)) == 2
    assert "100 rows behind them that are not these" in capsys.readouterr().err
    assert command("update", run, tmp_path / "t") == 0
    assert [day.rows for day in tb.history(run)] == [1500, 1700, 1500, 1600]
    for number in (2, 3):
        assert tb.history(run).replay(number).converged
    # A standing that is torn is made anew, and so is one whose table somebody has changed.
    (run / "days" / "0003.standing").write_bytes(b"torn")
    capsys.readouterr()
    assert command("update", run, tmp_path / "day01.csv") == 0
    assert "made anew from all rows of the table: expected the standing of day 3" in capsys.readouterr().err
    tb.open_table(tmp_path / "t").without([0, 5])
    assert command("update", run, write_day(tmp_path, 5)) == 0
    assert "made anew from all rows of the table: 2 withdrawals, where there were 1" in capsys.readouterr().err
    assert tb.history(run).days[-1].rows == len(tb.open_table(tmp_path / "t")) == 1998


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("gone", [False, True])
def test_what_is_killed_has_not_happened_and_happens_to_the_same_bits(tmp_path: Path, gone: bool) -> None:
    """kill -9 at five instants of a process of its own, one after the other on the same run: the next try ends in the
    day that an undisturbed one ends in, and so do the table and the design."""
    env = {**os.environ, "TALLBAYES_CACHE": str(tmp_path / "programs"), "TF_CPP_MIN_LOG_LEVEL": "3"}

    def update(run: Path) -> list[str]:
        file = run.parent / ("day01.csv" if gone else "day02.csv")
        words = ["--withdraw", str(file)] if gone else [str(file)]
        return [sys.executable, "-m", "tallbayes", "update", str(run), *words, "--quiet"]

    runs, took = [], 0.0
    for name in ("compiled", "whole", "killed"):
        (tmp_path / name).mkdir()
        runs.append(begun(tmp_path / name))
        assert command("update", runs[-1], write_day(tmp_path / name, 1)) == 0
        write_day(tmp_path / name, 2)
    for run in runs[:2]:
        began = time.monotonic()
        subprocess.run(update(run), env=env, check=True, stdout=subprocess.DEVNULL)
        took = time.monotonic() - began
    killed = runs[2]
    for part in (0.5, 0.7, 0.8, 0.9, 1.0):
        process = subprocess.Popen(update(killed), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(part * took)
        process.kill()
        process.wait()
        assert len(tb.history(killed)) in (2, 3)
    subprocess.run(update(killed), env=env, check=True, stdout=subprocess.DEVNULL)

    def of(run: Path) -> dict[str, Any]:
        found = json.loads((run / "days" / "0002.json").read_text())
        return {name: each for name, each in found.items() if name not in ("seconds", "when", "source")}

    for run in runs[:2]:
        assert of(killed) == of(run)
        assert [each.digest for each in read_state(killed, 2).tables] == [
            each.digest for each in read_state(run, 2).tables
        ]
    assert tb.history(killed).replay(2).converged
