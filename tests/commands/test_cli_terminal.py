"""The command line in a process of its own: pipes, encodings, the compile cache, and Ctrl-C under a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fitted_flights import Fitted
from flight_files import FORMULA

import tallbayes as tb
from tallbayes.results.run_folder import read_run
from tallbayes.structure import Structure

pytestmark = pytest.mark.usefixtures("without_compile_cache")


def test_a_reader_that_leaves_is_no_defect(fitted: Fitted) -> None:
    command = [sys.executable, "-m", "tallbayes", "show", str(fitted.folder)]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_names_that_a_terminal_cannot_write_do_not_stop_it(fitted: Fitted) -> None:
    names = ["Sabit", "saat", "taşıyıcı", "yön"]
    structure = Structure.container("dict", [(name, Structure.leaf(())) for name in names])
    estimates = {name: replace(each, structure=structure) for name, each in fitted.result.estimates.items()}
    path = fitted.folder.parent / "turkish.tallbayes"
    replace(fitted.result, estimates=estimates).save(path)
    command = [sys.executable, "-m", "tallbayes", "show", str(path)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    path.unlink()
    assert r"y\xf6n" in done.stdout


CACHES = """
import os, pathlib, sys
from tallbayes.programs.disk_cache import use_compile_cache
base = pathlib.Path(sys.argv[1])
os.environ["TALLBAYES_CACHE"] = ""
assert use_compile_cache() is None
(base / "file").write_text("")
os.environ["TALLBAYES_CACHE"] = str(base / "file")
assert use_compile_cache() is None
import jax
assert not jax.config.jax_compilation_cache_dir
os.environ["TALLBAYES_CACHE"] = str(base / "mine")
folder = use_compile_cache()
assert folder.parent == base / "mine" and folder.stat().st_mode & 0o077 == 0
assert jax.config.jax_compilation_cache_dir == str(folder)
del os.environ["TALLBAYES_CACHE"]
jax.config.update("jax_compilation_cache_dir", None)
os.environ["XDG_CACHE_HOME"] = str(base / "xdg")
old = folder / "old-cache"
old.write_text("")
os.utime(old, (0, 0))
assert use_compile_cache().parent == base / "xdg" / "tallbayes"
jax.config.update("jax_compilation_cache_dir", None)
os.environ["TALLBAYES_CACHE"] = str(base / "mine")
assert use_compile_cache() == folder and not old.exists()
jax.config.update("jax_compilation_cache_dir", "elsewhere")
assert use_compile_cache() is None
assert jax.config.jax_compilation_cache_dir == "elsewhere"
"""


def test_the_compile_cache_is_where_it_was_asked_for_or_off(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", CACHES, str(tmp_path)], check=True)


class Terminal:
    """A command whose stderr is a terminal."""

    def __init__(self, *command: str, cache: Path) -> None:
        main, terminal = pty.openpty()
        # A shell that runs tests in the background has its children ignore Ctrl-C.
        program = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from tallbayes.commands.cli import main; sys.exit(main(sys.argv[1:]))"
        )
        environment = os.environ | {"TALLBAYES_CACHE": str(cache), "TERM": "xterm", "COLUMNS": "100"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=terminal,
            env=environment,
            text=True,
        )
        os.close(terminal)
        self.main, self.seen = main, ""

    def wait_for(self, pattern: str, seconds: float = 240.0) -> None:
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline, self.seen[-2000:]
            if select.select([self.main], [], [], 1.0)[0]:
                try:
                    self.seen += os.read(self.main, 65_536).decode(errors="replace")
                except OSError:
                    pytest.fail(f"ended before {pattern}: {self.seen[-2000:]}")

    def interrupt(self) -> tuple[int, str]:
        """The exit code and stdout."""
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=240)
        with contextlib.suppress(OSError):
            while part := os.read(self.main, 65_536):
                self.seen += part.decode(errors="replace")
        return self.process.returncode, output


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(*command: str) -> Terminal:
        opened.append(Terminal(*command, cache=tmp_path / "cache"))
        return opened[-1]

    yield open_terminal
    for each in opened:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()
        os.close(each.main)


@pytest.mark.slow
def test_ctrl_c_while_sampling_keeps_the_run(fitted: Fitted, terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ("fit", str(fitted.data), "--formula", FORMULA, "--absolute-tolerance", "1e-6", "--out", str(out))
    here = terminal(*command)
    here.wait_for(r"about [\d.]+ \w+ left \| (mean|sd)\.")
    code, output = here.interrupt()
    assert code == 3
    assert "interrupted before the tolerance was met" in output
    assert "not met" in output
    assert read_run(out)[0].status is tb.Status.interrupted
    assert np.all(np.isfinite(read_run(out)[0]["mean"].flat_value))
    for phase in ("starting", "reading the table", "tuning", "? left"):
        assert phase in here.seen
    assert "saved in" in here.seen
    assert "Traceback" not in here.seen
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "run"]
    assert any((tmp_path / "cache").glob("*/*-cache"))


def test_ctrl_c_while_starting_ends_in_one_line(
    fitted: Fitted, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    here = terminal("fit", str(fitted.data), "--formula", FORMULA, "--out", str(tmp_path / "run"))
    here.wait_for("starting")
    code, output = here.interrupt()
    assert (code, output) == (130, "")
    assert here.seen.count("interrupted before there was anything to keep") == 1
    assert "Traceback" not in here.seen
    assert not (tmp_path / "run").exists()
