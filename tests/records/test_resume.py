"""`tallbayes resume`: after kill -9, after a budget, to another accuracy, and with blocks from elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from equal_results import assert_same
from flight_files import FORMULA, write_flights

import tallbayes as tb
from tallbayes.commands import cli
from tallbayes.results.run_folder import LEDGER, RESULT, read_run, unfinished

TOLERANCE = "0.006"


@pytest.fixture(autouse=True)
def _without_compile_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLBAYES_CACHE", "")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_flights(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLBAYES_CACHE", "")
        assert cli.main([*command(data, out), "--quiet"]) == 0
    return out


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def command(data: Path, out: Path) -> list[str]:
    return ["fit", str(data), "--formula", FORMULA, "--tolerance", TOLERANCE, "--seed", "2", "--out", str(out)]


def result(run: Path) -> tb.Result:
    return tb.load(run / RESULT)


def blocks(path: Path) -> int:
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM blocks WHERE task = 'level'").fetchone()
    connection.close()
    return int(count)


@pytest.mark.slow
def test_a_killed_fit_goes_on_to_the_same_bits(
    data: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-m", "tallbayes", *command(data, out), "--quiet"])
    ledger, end = unfinished(out) / LEDGER, time.monotonic() + 120
    while not Path(f"{ledger}-wal").exists() or Path(f"{ledger}-wal").stat().st_size < 2**17:
        assert time.monotonic() < end
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    assert not out.exists()
    assert cli.main(["show", str(out)]) == 2
    assert cli.main(command(data, out)) == 2
    assert "tallbayes resume" in capsys.readouterr().err
    assert cli.main(["resume", str(out)]) == 0
    assert not unfinished(out).exists()
    captured = capsys.readouterr()
    assert FORMULA in captured.out
    assert "saved in" in captured.err
    assert_same(result(out), result(whole))


def test_a_run_cut_short_in_its_ledger_ends_in_the_same_bits(whole: Path, run: Path) -> None:
    """As after kill -9 with the same question: half of the blocks, no result."""
    with sqlite3.connect(run / LEDGER) as connection:
        connection.execute("DELETE FROM blocks WHERE first_path >= 640")
    connection.close()
    (run / RESULT).unlink()
    os.rename(run, unfinished(run))
    assert cli.main(["resume", str(run), "--quiet"]) == 0
    assert_same(result(run), result(whole))
    assert blocks(run / LEDGER) == blocks(whole / LEDGER)


def test_a_finished_run_is_shown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / RESULT).read_bytes()
    assert cli.main(["resume", str(run)]) == 0
    captured = capsys.readouterr()
    assert FORMULA in captured.out
    assert "finished before" in captured.err
    assert (run / RESULT).read_bytes() == before


def test_a_tighter_tolerance_goes_on_from_a_finished_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, known = blocks(run / LEDGER), level_blocks(run)
    assert cli.main(["resume", str(run), "--tolerance", "0.005", "--quiet"]) == 0
    found, settings = read_run(run)
    assert found.converged
    assert settings["tolerance"] == 0.005
    assert max(found["mean"].flat_tolerance / found["sd"].flat_value) == pytest.approx(0.005, rel=0.05)
    wanted = {(level, block) for level, each in enumerate(found.levels) for block in range(each.samples // 32)}
    assert blocks(run / LEDGER) - before == len(wanted - known) < len(wanted)
    assert settings["formula"] == FORMULA


def level_blocks(run: Path) -> set[tuple[int, int]]:
    """Blocks of levels that there are for estimates: all but the pilots of tuning."""
    with sqlite3.connect(f"file:{run / LEDGER}?mode=ro&immutable=1", uri=True) as connection:
        query = (
            "SELECT level, first_path / 32 FROM blocks JOIN configs ON configs.id = blocks.config "
            "WHERE task = 'level' AND configs.config LIKE '%stream 0%'"
        )
        found = set(connection.execute(query).fetchall())
    connection.close()
    return found


def test_blocks_of_another_machine_are_taken_over(
    whole: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(run / LEDGER) as connection:
        connection.execute("DELETE FROM blocks WHERE first_path >= 32")
    connection.close()
    missing = blocks(whole / LEDGER) - blocks(run / LEDGER)
    assert missing > 0
    other = shutil.copytree(whole, tmp_path / "other")
    assert cli.main(["resume", str(run), "--merge", str(other)]) == 0
    assert "blocks taken over" in capsys.readouterr().err
    assert_same(result(run), result(whole))


def test_what_cannot_be_resumed_is_refused(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["resume", str(tmp_path / "none")]) == 2
    assert "expected a run" in capsys.readouterr().err
    (run / LEDGER).unlink()
    assert cli.main(["resume", str(run), "--tolerance", "0.005"]) == 2
    assert LEDGER in capsys.readouterr().err


def test_other_rows_under_the_same_name_are_refused(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, before = data.read_text().splitlines(), data.read_text()
    try:
        data.write_text("\n".join(lines[:-1]) + "\n")
        assert cli.main(["resume", str(run), "--tolerance", "0.005"]) == 2
    finally:
        data.write_text(before)
    assert "rows 2000 there, 1999 here" in capsys.readouterr().err
    assert result(run).converged


def test_bad_input_leaves_nothing(data: Path, tmp_path: Path) -> None:
    assert cli.main(["fit", str(data), "--formula", "late ~ nothing", "--out", str(tmp_path / "run")]) == 2
    assert list(tmp_path.iterdir()) == []
