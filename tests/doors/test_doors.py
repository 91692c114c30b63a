"""The same model through five doors gives the same numbers: the code of docs/doors.md, held against itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import ROOT, run_blocks

pytest.importorskip("numpyro")
pytest.importorskip("sklearn")
DOCUMENT = ROOT / "docs" / "doors.md"
# What the document promises of the same paths, and of answers that are only as accurate as they were asked to be, to
# five times their tolerance of 0.02 each (one in a million a number by chance); in posterior sds.
ROUNDING, APART = 1e-5, 5 * 2**0.5 * 0.02


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("doors"))
        return run_blocks(DOCUMENT.read_text(), "docs/doors.md")


def flat(name: str, kind: str, doors: dict[str, Any]) -> np.ndarray:
    """Coefficients, then the intercept."""
    if name == "by_sklearn":
        model = doors[name]
        parts = (model.coef_, model.intercept_) if kind == "mean" else (model.coef_sd_, model.intercept_sd_)
        return np.concatenate([np.ravel(part) for part in parts])
    value = doors[name][kind].value
    if name == "by_formula":
        return np.array([value["hour"], value["distance"], value["Intercept"]])
    return np.append(value["coefficients"], value["intercept"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["by_formula", "by_sklearn", "by_functions", "by_numpyro"])
def test_every_door_leads_to_the_same_numbers(name: str, doors: dict[str, Any]) -> None:
    sd = flat("by_family", "sd", doors)
    for kind in ("mean", "sd"):
        apart = np.abs(flat(name, kind, doors) - flat("by_family", kind, doors)) / sd
        assert apart.max() < APART


def test_control_another_seed_differs_by_more(doors: dict[str, Any]) -> None:
    """The same paths, and not merely the same answer within its error."""
    import tallbayes as tb

    rows = {"x": doors["columns"], "y": doors["late"]}
    model = tb.families.logistic(prior_scale=1.0, intercept_scale=10.0)
    other = tb.estimate(model, rows, tolerance=0.02, seed=1)
    apart = np.abs(other["sd"].flat_value - doors["by_family"]["sd"].flat_value) / other["sd"].flat_value
    assert apart.max() > ROUNDING


def test_the_document_names_every_family() -> None:
    from tallbayes.model.families import FAMILIES

    text = Path(DOCUMENT).read_text()
    assert all(f"`{name}`" in text for name in FAMILIES)
