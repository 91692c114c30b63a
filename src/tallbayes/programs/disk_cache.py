"""The compile cache: programs compiled by an earlier command are read instead of compiled again.

    TALLBAYES_CACHE        a folder for it; empty turns it off
    XDG_CACHE_HOME         otherwise a folder `tallbayes` in there, or in ~/.cache

The command line turns it on, and `cache_programs` for as long as its owner wants; importing tallbayes changes no
setting of JAX. A program runs on the processor and with the version of jaxlib that compiled it, so every pair of them
has a folder of its own.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from tallbayes.programs.later import when_loaded

LEAST_SECONDS = 0.1
KEPT_SECONDS = 30 * 86_400
UNREADABLE = ".*persistent compilation cache"


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

    config: Any = jax.config
    if config.jax_compilation_cache_dir:
        return None
    folder = _made(base)
    if folder is None:
        return None
    _update(config, _settings(folder, LEAST_SECONDS))
    # An entry that was cut short is compiled anew, which is all there is to say of it.
    warnings.filterwarnings("ignore", message=UNREADABLE)
    return folder


@contextmanager
def cache_programs(folder: str | Path | None = None) -> Iterator[Path | None]:
    """Within it, programs of earlier processes are read from a folder, and new ones are kept there.

    The folder is that of the command line unless given; it should be one that nobody else can write in. A compile cache
    that JAX was given before is left in its place. Afterwards JAX is as it was. What is yielded is where programs are
    kept, and None where they are not. Of some processors XLA writes long lines for every program it reads, which mean
    nothing: TF_CPP_MIN_LOG_LEVEL=3 in the environment keeps them off.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, cache_programs(folder) as kept:
    ...     kept is None or kept.parent == Path(folder)
    True
    """
    import jax
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    config: Any = jax.config
    base = _base() if folder is None else Path(folder).absolute()
    kept = None if base is None or config.jax_compilation_cache_dir else _made(base)
    if kept is None:
        yield None
        return
    settings = _settings(kept, 0.0)
    before = {name: getattr(config, name) for name in settings}
    try:
        _update(config, settings)
        # JAX decides once whether there is a cache: at its first program, which may be long ago.
        reset_cache()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=UNREADABLE)
            yield kept
    finally:
        _update(config, before)
        reset_cache()


def _update(config: Any, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        config.update(name, value)


def _settings(folder: Path, least_seconds: float) -> dict[str, Any]:
    return {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": least_seconds,
    }


def _made(base: Path) -> Path | None:
    """The folder of this processor and version; None where it cannot be made or written in."""
    from jaxlib.version import __version__ as version

    folder = base / f"{version}-{_processor()}"
    try:
        # Whoever can write here can have their own programs run: nobody else may.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            return None
        _forget_old(folder)
    except OSError:
        return None
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
