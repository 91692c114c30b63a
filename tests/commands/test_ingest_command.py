"""The command `tallbayes ingest`: what it prints, its exit codes, and that it goes on."""

from __future__ import annotations

from pathlib import Path

import ingest_files
import pytest
from ingest_files import make_small, run_python, stop_at, write_files

import tallbayes as tb
from tallbayes.commands import cli
from tallbayes.rows import unfinished


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "in")


@pytest.fixture
def command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return ["ingest", "in/d.parquet", "in/*.csv", "--out", "flights.table"]


def test_the_command_describes_the_table_it_made(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(command) == 0
    output = capsys.readouterr()
    assert output.err == ""
    lines = output.out.splitlines()
    assert lines[0].startswith("1,000 rows, 4 columns, 20.5 kB in flights.table (")
    assert lines[1].split() == ["x", "numbers,", *lines[1].split()[2:]]
    assert [line.split(None, 1) for line in lines[2:5]] == [
        ["id", "whole numbers, 0 to 30,799"],
        ["carrier", "text, 4 levels"],
        ["late", "true or false"],
    ]
    assert lines[-1] == "  tallbayes fit flights.table --formula 'x ~ id + carrier'"
    assert len(tb.open_table("flights.table")) == 1000


REFUSED: dict[str, tuple[list[str], str]] = {
    "a place that is taken": ([], "which exists. Try: another place, or --force to replace that table"),
    "no such column": (["--columns", "id,hour", "--force"], "expected a column 'hour'"),
    "no name": (["--columns", "id,,late", "--force"], "names of columns between commas"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_command_refuses_with_exit_code_2(
    command: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(command)
    capsys.readouterr()
    more, message = REFUSED[name]
    assert cli.main([*command, *more]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""
    assert len(tb.open_table("flights.table")) == 1000


def test_force_replaces_a_table(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(command) == 0
    assert cli.main([*command, "--force", "--columns", "late, id"]) == 0
    assert [column.name for column in tb.open_table("flights.table").columns] == ["late", "id"]


def test_more_files_are_put_behind(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(command) == 0
    capsys.readouterr()
    more = ["ingest", "in/e.arrow", "in/c.csv.gz", "--append", "flights.table"]
    assert cli.main(more) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out.startswith("1,600 rows more in flights.table: 2,600 in 2 segments, 81.9 kB (")
    assert cli.main(more) == 0
    assert capsys.readouterr().out == "no rows: flights.table holds these files already, 2,600 rows in all\n"
    for arguments, message in (
        ([*more[:2], "--append", "other.table"], "expected a table on disk"),
        ([*more, "--force"], "append or overwrite"),
        (more[:2], "a place for the table"),
    ):
        assert cli.main(arguments) == 2
        assert message in capsys.readouterr().err


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("quiet", [False, True])
def test_the_same_command_goes_on_after_control_c(
    command: list[str], quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*command, "--quiet"] if quiet else command
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest_files, "Stop", KeyboardInterrupt)
        stop_at(patch, 40)
        assert cli.main(command) == 130
    assert "interrupted; the same command goes on from where it was" in capsys.readouterr().err
    assert cli.main(command) == 0
    output = capsys.readouterr()
    assert ("goes on from" in output.err) == (not quiet)
    assert output.out.startswith("1,000 rows")


def test_another_time_left_is_told_in_each_stage() -> None:
    from tallbayes.commands.ingest import Teller
    from tallbayes.progress import Display

    teller = Teller(Display(), quiet=False)
    for look, words in LOOKS:
        teller(look)
        assert teller.display.phase == words


Making = unfinished.Making
LOOKS = [
    (Making("reading", 0.1, 10, 10**6, 1.0), "1 of 3, reading | 10 rows"),
    (Making("reading", 0.6, 60, 11 * 10**6, 6.0), "1 of 3, reading | 60 rows | 2 MB/s | about 4 s left"),
    (Making("shuffling", 0.1, 10, 10**6, 11.0), "2 of 3, shuffling | 10 rows"),
    (Making("sealing", 0.0, 100, 0, 20.0), "3 of 3, checksums | 100 rows"),
]


def test_help_of_ingest_imports_neither_jax_nor_numpy() -> None:
    program = (
        "import json, sys\nfrom tallbayes.commands import cli\n"
        "try: cli.main(['ingest', '--help'])\n"
        "except SystemExit: pass\n"
        "print(json.dumps([name for name in ('jax', 'numpy', 'pyarrow') if name in sys.modules]))"
    )
    assert run_python(program) == []
