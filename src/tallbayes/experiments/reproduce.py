"""Reproduce the paper: run the experiments that are missing, draw the figures, and put them on one page.

    results/FIGURE.json  ->  figures/FIGURE.png and .svg  ->  index.html and README.md

Plots and the page read results and never sample.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tallbayes.errors import require_extra
from tallbayes.experiments import accuracy, coupled_paths, decay, page, scaling, slopes, style
from tallbayes.experiments.claims import Claim, Shown
from tallbayes.experiments.store import Store

FIGURES: dict[str, ModuleType] = {module.NAME: module for module in (coupled_paths, decay, accuracy, scaling, slopes)}

UNMEASURED = [
    Claim(
        "abstract, conclusion",
        "The method is easily parallelised over a heterogeneous architecture.",
        "samples are independent, and the same bits come from any number of threads in any order (tests/laws/"
        "test_reproducibility.py); no cluster was measured here",
        "holds on one machine",
        "",
    ),
    Claim(
        "3.2",
        "The antithetic version allows random truncation (an unbiased estimator).",
        "beta = 2 > gamma = 1 is what it needs, and holds (decay); tb.Randomised truncates at random, and over many "
        "seeds its mean is the truth known by quadrature (tests/estimator/test_randomised.py)",
        "holds",
        "decay",
    ),
]


def reproduce(names: list[str], folder: Path, quick: bool, tell: Callable[[str], None]) -> Path:
    """Complete these figures (all, if none is named) and write the page of all that is there."""
    # What is computed can only be shown by it: better told now than after half an hour.
    require_extra("matplotlib", "plot", "the figures of reproduce")
    store = Store(folder / "results")
    for name in names or list(FIGURES):
        for needed in (*getattr(FIGURES[name], "NEEDS", ()), name):
            store.complete(needed, FIGURES[needed].pieces(quick), tell)
    return draw_all(folder, quick)


def draw_all(folder: Path, quick: bool) -> Path:
    """Draw every figure whose results are complete, and the page; nothing is sampled."""
    store = Store(folder / "results")
    shown: list[Shown] = []
    claims: list[Claim] = []
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, module in FIGURES.items():
        results = _results(store, module, quick)
        if results is None:
            continue
        figure = module.draw(results)
        path = folder / "figures" / name
        figure.savefig(path.with_suffix(".png"), dpi=144)
        style.save_svg(figure, path.with_suffix(".svg"))
        caption = module.caption(results) if hasattr(module, "caption") else ""
        shown.append(Shown(name, module.TITLE, path.with_suffix(".svg").read_text(), caption))
        claims += module.claims(results)
    if len(shown) == len(FIGURES):
        claims += UNMEASURED
    target = folder / "index.html"
    target.write_text(page.render(shown, claims, quick, store))
    (folder / "README.md").write_text(page.markdown(shown, claims, quick, store))
    return target


def _results(store: Store, module: ModuleType, quick: bool) -> dict[str, Any] | None:
    """The figure's results with those it needs, or None while any piece is missing."""
    results: dict[str, Any] = {}
    for name in (*getattr(module, "NEEDS", ()), module.NAME):
        there = store.results(name)
        if set(there) != set(FIGURES[name].pieces(quick)):
            return None
        results |= there
    return results
