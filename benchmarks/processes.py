"""Fresh processes and when they answer: every line a child prints is a JSON value, timed from the child's start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

LIMIT = 900.0
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
