"""A library's programs are kept on request, really read by the next process, and JAX's settings are given back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb

CHILD = """
import json, sys
from collections import Counter
import jax
import numpy as np
import tallbayes as tb

events = Counter()
jax.monitoring.register_event_listener(lambda name, **_: events.update([name.rpartition("/")[2]]))
rng = np.random.default_rng(0)
x = rng.normal(size=(200, 2))
rows = {"x": x, "y": (rng.random(200) < 1 / (1 + np.exp(-x[:, 0]))).astype(float)}


def answer():
    result = tb.estimate(tb.families.logistic(), rows, tolerance=0.2, method=tb.Anchored(), seed=1)
    return result["mean"].flat_value.tobytes().hex()


with tb.cache_programs(sys.argv[1]) as folder:
    found = answer()
inside = dict(events)
jax.jit(lambda x: x - 3)(1.0)
print(json.dumps({"found": found, "inside": inside, "outside": dict(events), "folder": str(folder)}))
"""


def child(folder: Path) -> dict[str, Any]:
    hidden = {name for name in os.environ if name.startswith("JAX_")}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    command = [sys.executable, "-W", "error", "-c", CHILD, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = child(tmp_path), child(tmp_path)
    # The control: of an empty folder nothing is read.
    assert first["inside"].get("cache_hits", 0) == 0
    assert first["inside"]["cache_misses"] > 5
    assert second["inside"].get("cache_misses", 0) == 0
    assert second["inside"]["cache_hits"] == first["inside"]["cache_misses"]
    assert second["found"] == first["found"]
    # Outside of it nothing is looked up or kept.
    for each in (first, second):
        assert each["inside"].get("cache_misses") == each["outside"].get("cache_misses")
        assert each["inside"].get("cache_hits") == each["outside"].get("cache_hits")


SETTINGS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


def settings() -> list[Any]:
    return [getattr(jax.config, name) for name in SETTINGS]


@pytest.fixture
def no_cache() -> Any:
    """JAX without the cache that the tests may run with."""
    before = settings()
    jax.config.update(SETTINGS[0], None)
    yield
    for name, value in zip(SETTINGS, before, strict=True):
        jax.config.update(name, value)


def test_jax_is_left_as_it_was(no_cache: None, tmp_path: Path) -> None:
    before = settings()
    with tb.cache_programs(tmp_path) as folder:
        assert folder is not None
        assert settings() == [str(folder), 0.0]
        jax.jit(lambda x: jnp.sum(x) * 7)(np.arange(5.0))
        assert list(folder.glob("*-cache"))
    assert settings() == before


def interrupted(folder: Path) -> None:
    with tb.cache_programs(folder):
        raise KeyboardInterrupt


def test_jax_is_left_as_it_was_by_an_interrupted_call(no_cache: None, tmp_path: Path) -> None:
    before = settings()
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path)
    assert settings() == before


def test_a_cache_of_ones_own_is_kept(no_cache: None, tmp_path: Path) -> None:
    jax.config.update(SETTINGS[0], str(tmp_path / "own"))
    with tb.cache_programs(tmp_path / "other") as folder:
        assert folder is None
        assert settings()[0] == str(tmp_path / "own")
    assert not (tmp_path / "other").exists()


def test_where_no_folder_can_be_made_programs_are_compiled(no_cache: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = settings()
    with tb.cache_programs(tmp_path / "file") as folder:
        assert folder is None
        assert settings() == before
