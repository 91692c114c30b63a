"""The shape of the house: packages in one order, no cycle inside any, a waist without JAX, no traces left in JAX."""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import jax
import pytest
from scenarios import logistic_rows

import tallbayes as tb

SOURCE = Path(tb.__file__).parent

# A package imports only those before it.
ROOT = ["errors", "moments", "structure", "threads", "watch", "progress"]
PACKAGES = [
    "programs",
    "gaussian",
    "model",
    "rows",
    "workers",
    "estimator",
    "anchor",
    "weighing",
    "shrinkage",
    "sampler",
    "records",
    "setup",
    "groups",
    "methods",
    "posterior",
    "results",
    "evidence",
    "leave_one_out",
    "views",
    "estimation",
    "formula",
    "arrivals",
    "doors",
    "commands",
    "baselines",
    "experiments",
]
ORDER = [*ROOT, *PACKAGES, "__main__"]
MOST_AT_THE_ROOT, MOST_IN_A_PACKAGE, MOST_LINES = 8, 14, 400

# What opens and prints a saved result.
WITHOUT_JAX = [
    "anchor.anchor",
    "anchor.probe",
    "posterior.posterior",
    "results.result",
    "results.result_file",
    "results.coefficients",
    "results.run_folder",
    "views.text",
    "views.summary",
    "views.document",
    "views.report",
    "progress",
]


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name within the house; a package's map goes by the package's name."""
    names = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: path for name, path in names.items() if name}


def module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported: not those of functions or under TYPE_CHECKING."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        statement = pending.pop(0)
        yield statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            pending += statement.orelse
            continue
        pending += [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
        for handler in getattr(statement, "handlers", []):
            pending += handler.body


def everywhere(tree: ast.Module) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def imported_names(source: str, package: str, statements: Any = module_level) -> set[str]:
    """Absolute names of what is imported."""
    names = set()
    for statement in statements(ast.parse(source)):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
            base = ".".join([*above, *filter(None, [statement.module])])
            names |= {f"{base}.{alias.name}" for alias in statement.names}
            # From the house itself only the name is taken: `from tallbayes import baselines`.
            names |= {base} - {"tallbayes"}
    return {name.removeprefix("tallbayes.") for name in names if name.partition(".")[0] == "tallbayes"}


@cache
def imports_of(name: str, statements: Any = module_level) -> set[str]:
    path = modules()[name]
    return imported_names(path.read_text(), ".".join(["tallbayes", *path.relative_to(SOURCE).parent.parts]), statements)


def package_of(name: str) -> str:
    return name.partition(".")[0]


def test_every_package_has_its_place_in_the_order() -> None:
    assert {package_of(name) for name in modules()} == set(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_packages_before_it(package: str) -> None:
    allowed = {package, "tallbayes", *ORDER[: ORDER.index(package)]}
    for name in modules():
        if package_of(name) == package:
            later = {each for each in imports_of(name) if package_of(each) in ORDER} - {
                each for each in imports_of(name) if package_of(each) in allowed
            }
            assert not later, f"{name} imports {sorted(later)}"


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("package", PACKAGES)
def test_there_is_no_cycle_inside_a_package(package: str) -> None:
    inside = {name for name in modules() if package_of(name) == package}
    graph = {name: {each for each in imports_of(name) if each in inside and each != name} for name in inside}
    assert cycle_in(graph) == []


def test_control_a_cycle_is_found() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_nothing_reaches_into_what_is_private_to_another_package() -> None:
    reached = [
        (name, each)
        for name in modules()
        for each in imports_of(name, everywhere)
        if package_of(each) != package_of(name) and any(part.startswith("_") for part in each.split("."))
    ]
    assert reached == []


def test_a_class_name_exists_once() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name)
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_rooms_are_small() -> None:
    counts: dict[str, int] = defaultdict(int)
    for path in SOURCE.rglob("*.py"):
        folder = str(path.parent.relative_to(SOURCE))
        counts[folder] += folder == "." or path.name != "__init__.py"
    assert counts.pop(".") <= MOST_AT_THE_ROOT
    assert {folder: count for folder, count in counts.items() if count > MOST_IN_A_PACKAGE} == {}


def test_files_are_short() -> None:
    files = [*SOURCE.rglob("*.py"), *Path(__file__).parents[1].rglob("*.py")]
    assert [str(path) for path in files if len(path.read_text().splitlines()) > MOST_LINES] == []


@pytest.mark.parametrize("package", [name for name in PACKAGES if name not in ("baselines",)])
def test_a_packages_init_is_a_map_of_its_files(package: str) -> None:
    """Every file is named in it, and it imports nothing."""
    source = (SOURCE / package / "__init__.py").read_text()
    assert imported_names(source, f"tallbayes.{package}") == set()
    files = {path.stem for path in (SOURCE / package).glob("*.py")} - {"__init__"}
    assert [name for name in sorted(files) if name not in source] == []


def test_the_door_knows_no_method_by_name() -> None:
    """A fourth one is a file and a line."""
    for name in modules():
        if package_of(name) == "estimation":
            taken = {each for each in imports_of(name) if each.startswith("methods.")}
            assert not {each.rpartition(".")[2] for each in taken} & {"Multilevel", "Randomised"}, name
            assert "isinstance(method" not in modules()[name].read_text()


CONTROLS = {
    "import": ("import tallbayes.estimation.estimate", {"estimation.estimate"}),
    "from module": ("from tallbayes.rows.table import Table", {"rows.table", "rows.table.Table"}),
    "from package": ("from tallbayes import estimation", {"estimation"}),
    "relative": ("from .rows import table", {"rows", "rows.table"}),
    "under a condition": ("if True:\n    import tallbayes.rows", {"rows"}),
    "within try": ("try:\n    pass\nexcept OSError:\n    import tallbayes.rows", {"rows"}),
    "within a class": ("class A:\n    import tallbayes.rows", {"rows"}),
    "within a function": ("def f():\n    import tallbayes.rows", set()),
    "for types alone": ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tallbayes.rows", set()),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_the_reading_of_imports_itself(name: str) -> None:
    source, expected = CONTROLS[name]
    assert imported_names(source, "tallbayes") == expected


def run_python(program: str, *arguments: str) -> Any:
    """What a fresh process prints last, as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


LOADED = "import json, sys; print(json.dumps(sorted(m for m in ('jax', 'jaxlib', 'rich') if m in sys.modules)))"


def test_importing_tallbayes_imports_no_jax() -> None:
    names = f"import tallbayes as tb; dir(tb); tb.Result, tb.Status, tb.load, tb.InputError, tb.Progress; {LOADED}"
    assert run_python(names) == []


def test_what_opens_a_result_imports_no_jax() -> None:
    imports = "; ".join(f"import tallbayes.{name}" for name in WITHOUT_JAX)
    assert run_python(f"{imports}; {LOADED}") == []


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return tb.estimate(tb.families.logistic(), logistic_rows(200, (0.8, -0.2)), tolerance=2.0)


def test_a_saved_result_opens_and_prints_in_a_process_that_never_used_jax(result: tb.Result, tmp_path: Path) -> None:
    path = tmp_path / "result.tallbayes"
    result.save(path)
    program = (
        "import sys, json, tallbayes as tb\n"
        "load = tb.load\n"
        "assert 'jax' not in sys.modules\n"
        "result = load(sys.argv[1])\n"
        "print(json.dumps([str(result), result['mean'].value.tolist(), result.anchor.mode.tolist()]))"
    )
    text, value, mode = run_python(program, str(path))
    assert text == str(result)
    assert value == result["mean"].value.tolist()
    assert mode == result.anchor.mode.tolist()


@pytest.mark.parametrize("name", tb.__all__)
def test_public_names_resolve_and_are_described(name: str) -> None:
    value = getattr(tb, name)
    assert (value.__doc__ or "").strip()
    # A dataclass without a docstring is given its signature as one.
    assert not value.__doc__.startswith(f"{name}(")
    assert name in dir(tb)


def test_public_names_are_listed_once_and_others_do_not_exist() -> None:
    assert sorted(set(tb.__all__)) == sorted(tb.__all__)
    with pytest.raises(AttributeError, match="no attribute 'anything'"):
        _ = tb.anything


@pytest.mark.parametrize("name", ["mala", "sgld"])
def test_baselines_are_described(name: str) -> None:
    assert (getattr(tb.baselines, name).__doc__ or "").strip()


def settings_of_jax() -> dict[str, Any]:
    """Global values, and what this thread sees of them."""
    seen = {f"{name} here": getattr(jax.config, name) for name in jax.config.values if hasattr(jax.config, name)}
    return {**jax.config.values, **seen}


def test_an_estimate_changes_no_setting_of_jax() -> None:
    before = settings_of_jax()
    with jax.enable_x64(True):
        assert settings_of_jax() != before
    tb.estimate(tb.families.logistic(), logistic_rows(200, (0.8, -0.2)), tolerance=2.0, seed=3)
    assert settings_of_jax() == before
    assert jax.numpy.ones(1).dtype == jax.numpy.float32


def test_a_failed_estimate_changes_no_setting_of_jax() -> None:
    before = settings_of_jax()
    with pytest.raises(tb.InputError):
        tb.estimate(
            tb.families.logistic(), logistic_rows(200, (0.8, -0.2)), {"g": lambda theta: theta + "a"}, tolerance=2.0
        )
    assert settings_of_jax() == before


def test_importing_every_module_changes_no_setting_and_starts_no_backend() -> None:
    program = (
        "import json, jax\n"
        "before = dict(jax.config.values)\n"
        "import tallbayes as tb\n"
        "for name in tb.__all__: getattr(tb, name)\n"
        "from jax._src import xla_bridge\n"
        "print(json.dumps([before == jax.config.values, xla_bridge.backends_are_initialized()]))"
    )
    assert run_python(program) == [True, False]


def test_the_picture_of_the_house_is_that_of_the_code() -> None:
    house = runpy.run_path(str(SOURCE.parents[1] / "docs" / "house.py"))
    assert list(house["ORDER"]) == PACKAGES
    assert house["PICTURE"].read_text() == house["draw"](), "python docs/house.py draws it anew"
