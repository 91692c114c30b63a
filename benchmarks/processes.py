"""Fresh processes and when they answer: every line a child prints is a JSON value, timed from the child's start.

`measured` gives the lines of a script that must succeed; `watch` says of any command how it ended, and at what memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import Any

LIMIT = 900.0
STOPPED = "no answer within"
HIDDEN = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE", "XLA_FLAGS", "NPROC")


def measured(script: str, arguments: list[str], variables: dict[str, str]) -> list[tuple[float, Any]]:
    """Run a script in a fresh process without a compile cache; its lines, each with its seconds since the start."""
    environment = {name: value for name, value in os.environ.items() if name not in HIDDEN} | variables
    started, lines = time.perf_counter(), []
    with subprocess.Popen(
        [sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        watch = threading.Timer(LIMIT, process.kill)
        watch.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append((time.perf_counter() - started, json.loads(line)))
            code = process.wait()
        finally:
            watch.cancel()
            process.kill()
    if code != 0:
        raise RuntimeError(f"expected {script} {' '.join(arguments)} to succeed, got exit code {code}")
    return lines


@dataclass
class Child:
    """What a process printed, with the seconds from its start, and how it ended."""

    lines: list[tuple[float, Any]] = field(default_factory=list)
    seconds: float = 0.0
    peak_bytes: int = 0
    failure: str | None = None


def watch(command: list[str], limit: float) -> Child:
    """Run a command in a fresh process without a compile cache, and stop it at the limit."""
    environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    child, stopped = Child(), threading.Event()
    with tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        timer = threading.Timer(limit, lambda: (stopped.set(), process.kill()))
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                child.lines.append((time.perf_counter() - started, json.loads(line)))
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            if process.returncode is None:
                process.kill()
        child.seconds, child.peak_bytes = time.perf_counter() - started, usage.ru_maxrss * 1024
        if stopped.is_set():
            child.failure = f"{STOPPED} {limit:g} s"
        elif process.returncode != 0:
            child.failure = last_line(errors) or f"exit code {process.returncode}"
    return child


def last_line(errors: Any) -> str:
    errors.seek(0)
    return next((line.strip() for line in reversed(errors.read().splitlines()) if line.strip()), "")
