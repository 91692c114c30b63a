"""Packages that only some doors need: without one, a single typed error says what to install, and says it at once."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.commands import cli
from tallbayes.errors import InputError, MissingExtraError, require_extra
from tallbayes.experiments.store import Store

ROOT = Path(__file__).parents[2]
ROWS = {"late": np.arange(40.0) % 2, "hour": np.arange(40.0) % 7}


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return tb.fit("late ~ hour", ROWS, tolerance=0.5)


def with_processes() -> Any:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        return tb.fit("late ~ hour", ROWS, tolerance=0.5, executor=executor, method=tb.Anchored())


DOORS: dict[str, tuple[str, str, Callable[[tb.Result], Any]]] = {
    "formula": ("formulaic", "data", lambda _: tb.fit("late ~ hour", ROWS)),
    "table": ("pyarrow", "data", lambda _: tb.fit("late ~ hour", ROWS)),
    "ingest": ("pyarrow", "data", lambda _: tb.ingest(ROOT / "no.csv", ROOT / "no.table")),
    "to_pandas": ("pandas", "data", lambda found: found.to_pandas()),
    "plot": ("matplotlib.pyplot", "plot", lambda found: found.plot()),
    "to_datatree": ("xarray", "export", lambda found: found.to_datatree()),
    "from_numpyro": ("numpyro", "numpyro", lambda _: tb.from_numpyro(lambda: None)),
    "processes": ("cloudpickle", "dask", lambda _: with_processes()),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_door_without_its_package_names_the_extra(
    door: str, result: tb.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, extra, call = DOORS[door]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError) as caught:
        call(result)
    assert isinstance(caught.value, InputError)
    assert isinstance(caught.value, ImportError)
    name = package.split(".")[0]
    assert f"expected {name}, for " in str(caught.value)
    assert str(caught.value).endswith(f'got {name} not installed. Try: pip install "tallbayes[{extra}]".')


def test_a_prediction_without_pandas(result: tb.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = result.predict({"hour": 1.0})
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r'pip install "tallbayes\[data\]"'):
        predicted.to_pandas()


@pytest.mark.parametrize("name", ["TallClassifier", "TallRegressor", "TallCountRegressor"])
def test_an_estimator_without_scikit_learn(name: str) -> None:
    """In a process of its own, where nothing of it has been imported before."""
    program = (
        "import sys\nsys.modules['sklearn'] = None\nimport tallbayes as tb\n"
        f"try: tb.{name}\nexcept tb.InputError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingExtraError expected sklearn, for tb.TallClassifier")
    assert done.stdout.endswith('Try: pip install "tallbayes[sklearn]".\n')


def test_a_dask_cluster_without_dask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setenv("TALLBAYES_CACHE", "")
    (tmp_path / "a.csv").write_text("late,hour\n0,1\n1,2\n")
    command = ["fit", str(tmp_path / "a.csv"), "--formula", "late ~ hour", "--dask", "tcp://127.0.0.1:1"]
    assert cli.main(command) == 2
    assert 'pip install "tallbayes[dask]"' in capsys.readouterr().err


def test_reproduce_without_matplotlib_fails_before_it_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def complete(*_: Any) -> None:
        raise AssertionError("it computes")

    monkeypatch.setattr(Store, "complete", complete)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["reproduce", "--quick", "--out", str(tmp_path / "out")]) == 2
    assert 'pip install "tallbayes[plot]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_every_extra_of_a_message_is_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra for _, extra, _ in DOORS.values()} | {"sklearn", "bench"} <= set(extras)


def test_a_package_that_breaks_while_it_is_imported_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brittle.py").write_text("raise ImportError('libfoo.so.1: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        MissingExtraError, match=r"got libfoo\.so\.1: cannot open shared object file\. Try: pip install"
    ):
        require_extra("brittle", "plot", "nothing")


@pytest.mark.parametrize(
    ("script", "package"), [("throughput", "blackjax"), ("agreement", "numpyro"), ("bench", "numpyro")]
)
def test_a_benchmark_without_its_peers(script: str, package: str, tmp_path: Path) -> None:
    program = (
        f"import sys\nsys.path.insert(0, 'benchmarks')\nsys.modules[{package!r}] = None\n"
        f"sys.argv = ['bench.py', '--contestants', 'NumPyro NUTS', '--out', {str(tmp_path)!r}]\n"
        f"import tallbayes as tb\ntry:\n    import {script}\n    {script}.main()\n"
        "except tb.InputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith(f'got {package} not installed. Try: pip install "tallbayes[bench]".\n')
    assert list(tmp_path.iterdir()) == []
