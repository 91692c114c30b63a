"""The wheel, built and installed with the core dependencies alone: it answers, and extras are asked for by name.

One fresh environment for every Python from 3.11 to 3.13 that can be had without installing it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from documents import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
VERSIONS = ("3.11", "3.12", "3.13")
OWN = ".".join(map(str, sys.version_info[:2]))

USED = """
import sys
import numpy as np
import tallbayes as tb

rng = np.random.default_rng(1)
x = np.column_stack([rng.normal(size=(20_000, 2)), np.ones(20_000)])
rows = {"x": x, "y": (rng.random(20_000) < 1 / (1 + np.exp(-x @ [0.7, 0.9, 0.1]))).astype(float)}
for method in (None, tb.Anchored()):
    result = tb.estimate(tb.families.logistic(prior_scale=1.0), rows, tolerance=0.1, seed=0, method=method)
    assert result.converged, result.status
    assert np.abs(result["mean"].value - [0.7, 0.9, 0.1]).max() < 0.1
print(result)
print(result.summary())
result.report("page.html")
result.save("result.tallbayes")
wanted = {
    "data": lambda: tb.fit("y ~ a", {"y": [0, 1] * 50, "a": list(range(100))}, family="logistic"),
    "export": lambda: result.to_datatree(),
    "numpyro": lambda: tb.from_numpyro(lambda x: None, x),
    "plot": lambda: result.plot(),
    "pymc": lambda: tb.from_pymc(None),
    "sklearn": lambda: tb.TallClassifier(),
}
for extra, call in wanted.items():
    try:
        call()
    except tb.InputError as error:
        assert f"tallbayes[{extra}]" in str(error), (extra, str(error))
        print(extra, "is asked for by name")
    else:
        raise AssertionError(f"expected an error that names the extra {extra}")
assert not {"pandas", "pyarrow", "formulaic", "matplotlib", "sklearn", "numpyro", "pymc"} & set(sys.modules)
"""


@cache
def interpreter(version: str) -> str | None:
    """A Python of this version that runs: the own one, one on the path, or one that is installed beside the own."""
    beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python"))
    for found in (sys.executable if version == OWN else None, shutil.which(f"python{version}"), *map(str, beside)):
        if found and subprocess.run([found, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return found
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT, folder=folder)
    (built,) = folder.glob("tallbayes-*.whl")
    return built


def run(*command: object, folder: Path) -> str:
    """What a command prints, in a folder from which the source cannot be seen."""
    hidden = ("PYTHONPATH", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    outside = {name: value for name, value in os.environ.items() if name not in hidden}
    outside |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "TALLBAYES_CACHE": ""}
    words = [str(each) for each in command]
    done = subprocess.run(words, cwd=folder, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_is_used_with_the_core_dependencies_alone(version: str, wheel: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    run(python, "-m", "venv", tmp_path / "fresh", folder=tmp_path)
    own = tmp_path / "fresh" / "bin" / "python"
    run(own, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel, folder=tmp_path)
    said = run(own, "-I", "-c", USED, folder=tmp_path)
    assert said.count("is asked for by name") == 6
    assert "converged" in said
    command = tmp_path / "fresh" / "bin" / "tallbayes"
    assert "tallbayes" in run(command, "--version", folder=tmp_path)
    assert "converged" in run(command, "show", tmp_path / "result.tallbayes", folder=tmp_path).lower()
    assert (tmp_path / "page.html").stat().st_size > 10_000
