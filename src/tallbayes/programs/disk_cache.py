"""The compile cache: programs compiled by an earlier command are read instead of compiled again.

    TALLBAYES_CACHE        a folder for it; empty turns it off
    XDG_CACHE_HOME         otherwise a folder `tallbayes` in there, or in ~/.cache

Only the command line turns it on; importing tallbayes changes no setting of JAX. A program runs on the processor and
with the version of jaxlib that compiled it, so every pair of them has a folder of its own.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from hashlib import sha256
from pathlib import Path
from typing import Any

from tallbayes.programs.later import when_loaded

LEAST_SECONDS = 0.1
KEPT_SECONDS = 30 * 86_400


def use_compile_cache_later() -> None:
    """Turn it on as soon as there is JAX."""
    # Of some processors XLA reports, for every program it reads, preferences that are no features: thousands of words.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    when_loaded(use_compile_cache)


def use_compile_cache() -> Path | None:
    """Turn it on, and say where it is; None where it is off: by request, or for want of a folder to write in."""
    base = _base()
    if base is None:
        return None
    import jax
    from jaxlib.version import __version__ as version

    config: Any = jax.config
    if config.jax_compilation_cache_dir:
        return None
    folder = base / f"{version}-{_processor()}"
    try:
        # Whoever can write here can have their own programs run: nobody else may.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            return None
        _forget_old(folder)
    except OSError:
        return None
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    # An entry that was cut short is compiled anew, which is all there is to say of it.
    warnings.filterwarnings("ignore", message=".*persistent compilation cache")
    return folder


def _base() -> Path | None:
    given = os.environ.get("TALLBAYES_CACHE")
    if given is not None:
        return Path(given).absolute() if given else None
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tallbayes"
    except RuntimeError:
        return None


def _processor() -> str:
    """What tells processors apart that do not run each other's programs."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    except OSError:
        features = [platform.processor(), platform.node()]
    return sha256("\n".join([platform.machine(), *features]).encode()).hexdigest()[:12]


def _forget_old(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_file() and time.time() - entry.stat().st_mtime > KEPT_SECONDS:
            entry.unlink(missing_ok=True)
