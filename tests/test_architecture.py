"""The shape of the package: one order of modules, a waist between JAX and NumPy, and no traces left in JAX."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from scenarios import logistic_rows

import tallbayes as tb

SOURCE = Path(tb.__file__).parent

ORDER = [
    "errors",
    "moments",
    "structure",
    "roles",
    "threads",
    "watch",
    "executors",
    "identity",
    "compilation",
    "canary",
    "predictors",
    "constraints",
    "space",
    "model",
    "weights",
    "densities",
    "responses",
    "families",
    "sums",
    "table",
    "stored",
    "unpacking",
    "ranges",
    "shuffling",
    "unfinished",
    "writing",
    "anchor",
    "expansion",
    "ascent",
    "lbfgs",
    "mode",
    "screening",
    "modes",
    "balance",
    "recentring",
    "importance",
    "allocation",
    "tails",
    "probes",
    "shipping",
    "hiring",
    "randomness",
    "minibatch",
    "draws",
    "gradients",
    "dynamics",
    "couplings",
    "ladder",
    "paths",
    "levels",
    "laplace",
    "quantities",
    "tail_variances",
    "result",
    "decisions",
    "rates",
    "reading",
    "answers",
    "projections",
    "signed",
    "posterior",
    "readers",
    "expectations",
    "quadrature",
    "links",
    "predicted",
    "predictive",
    "coefficients",
    "storage",
    "ledger",
    "records",
    "display",
    "progress",
    "document",
    "brief",
    "report.markup",
    "report.scales",
    "report.charts",
    "report.terms",
    "report.effects",
    "report.stylesheet",
    "report.modes",
    "report.answer",
    "report.levels",
    "report.errors",
    "report.cost",
    "report",
    "run_folder",
    "tolerances",
    "resolution",
    "dispatch",
    "foresight",
    "tuning",
    "method",
    "fingerprint",
    "run",
    "multilevel",
    "anchored",
    "randomised",
    "preparation",
    "plans",
    "recall",
    "conclusion",
    "interval_ends",
    "extension",
    "outline",
    "mode_answers",
    "estimation",
    "adapters",
    "adapters.arguments",
    "adapters.supports",
    "adapters.programs",
    "adapters.numpyro",
    "adapters.columns",
    "adapters.packed",
    "adapters.tables",
    "adapters.expressions",
    "adapters.coding",
    "adapters.standardising",
    "adapters.encoding",
    "adapters.outcomes",
    "adapters.formula",
    "adapters.transforms",
    "adapters.survey",
    "adapters.designs",
    "adapters.streaming",
    "adapters.units",
    "adapters.fit",
    "adapters.batches",
    "adapters.packing",
    "adapters.files",
    "adapters.ingest",
    "predictions",
    "comparisons",
    "export",
    "plots",
    "notebook",
    "adapters.matrices",
    "adapters.estimator",
    "adapters.sklearn",
    "baselines.chains",
    "baselines.mala",
    "baselines.sgld",
    "baselines",
    "experiments",
    "experiments.style",
    "experiments.claims",
    "experiments.problem",
    "experiments.store",
    "experiments.runs",
    "experiments.coupled_paths",
    "experiments.decay",
    "experiments.accuracy",
    "experiments.scaling",
    "experiments.slopes",
    "experiments.page",
    "experiments.reproduce",
    "compile_cache",
    "commands",
    "ingest_command",
    "cli",
    "__main__",
]

ABOVE_THE_WAIST = [
    "reading",
    "answers",
    "projections",
    "signed",
    "posterior",
    "rates",
    "result",
    "storage",
    "display",
    "progress",
    "threads",
    "watch",
    "executors",
    "dispatch",
    "foresight",
    "tolerances",
    "run",
    "multilevel",
]

# These must open and print a saved result; the others above the waist reach JAX through what they import.
WITHOUT_JAX = [
    "errors",
    "moments",
    "structure",
    "anchor",
    "reading",
    "answers",
    "projections",
    "signed",
    "posterior",
    "rates",
    "result",
    "coefficients",
    "storage",
    "display",
    "progress",
    "document",
    "brief",
    "report.markup",
    "report.scales",
    "report.charts",
    "report.terms",
    "report.effects",
    "report.stylesheet",
    "report.modes",
    "report.answer",
    "report.levels",
    "report.errors",
    "report.cost",
    "report",
    "run_folder",
]


def module_files() -> dict[str, Path]:
    """Every module by its name within the package; the package's own __init__ stands apart."""
    names = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = list(path.relative_to(SOURCE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            names[name] = path
    return names


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


def imported_names(source: str, package: str) -> set[str]:
    """Absolute names of what a module imports when it is imported itself."""
    names = set()
    for statement in module_level(ast.parse(source)):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
            base = ".".join([*above, *filter(None, [statement.module])])
            names |= {f"{base}.{alias.name}" for alias in statement.names}
            # From the package itself only the name is taken: `from tallbayes import families`.
            names |= {base} - {"tallbayes"}
    return names


def own_modules(names: set[str]) -> set[str]:
    """The modules that imported names lie in; "" is the package itself."""
    found = set()
    for name in names:
        parts = name.split(".")
        if parts[0] == "tallbayes":
            prefixes = [".".join(parts[1:end]) for end in range(len(parts), 1, -1)]
            found.add(next((prefix for prefix in prefixes if prefix in ORDER), ""))
    return found


def imports_of(path: Path) -> set[str]:
    package = ".".join(["tallbayes", *path.relative_to(SOURCE).parent.parts])
    return own_modules(imported_names(path.read_text(), package))


def test_every_module_has_its_place_in_the_order() -> None:
    assert sorted(module_files()) == sorted(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_a_module_imports_only_modules_before_it(name: str) -> None:
    before = set(ORDER[: ORDER.index(name)])
    later = imports_of(module_files()[name]) - before
    assert not later, f"{name} imports {sorted(later)}"


CONTROLS = {
    "import": ("import tallbayes.estimation", {"estimation"}),
    "from module": ("from tallbayes.estimation import estimate", {"estimation"}),
    "from package": ("from tallbayes import estimation", {"estimation"}),
    "from sub-package": ("from tallbayes.baselines import mala", {"baselines", "baselines.mala"}),
    "from module of a sub-package": ("from tallbayes.baselines.mala import mala", {"baselines.mala"}),
    "the package itself": ("import tallbayes as tb", {""}),
    "a name of the package": ("from tallbayes import estimate", {""}),
    "relative": ("from .estimation import estimate", {"estimation"}),
    "under a condition": ("if True:\n    import tallbayes.estimation", {"estimation"}),
    "within try": ("try:\n    pass\nexcept OSError:\n    import tallbayes.estimation", {"estimation"}),
    "within a class": ("class A:\n    from tallbayes.estimation import estimate", {"estimation"}),
    "within a function": ("def f():\n    import tallbayes.estimation", set()),
    "for types alone": ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tallbayes.estimation", set()),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_the_reading_of_imports_itself(name: str) -> None:
    source, expected = CONTROLS[name]
    found = own_modules(imported_names(source, "tallbayes"))
    assert found == expected


@pytest.mark.parametrize("name", ABOVE_THE_WAIST)
def test_no_jax_above_the_waist(name: str) -> None:
    imported = imported_names(module_files()[name].read_text(), "tallbayes")
    assert not {each for each in imported if each.split(".")[0] in ("jax", "jaxlib")}


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
