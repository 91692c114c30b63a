"""Tables of mixed and of wide posteriors, from what `mixed.py` and `wide.py` have stored.

Mixed models are compared by seconds, wide ones by epochs an effective sample beside what UBUBU publishes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peers.published import LAWS, UBUBU

Row = dict[str, Any]
# What they are called and how many parameters they have.
WIDE = {
    "components-50": ("MNIST, 50 components", 459),
    "logistic-1000": ("logistic, 1,000 columns", 1_000),
    "components-200": ("MNIST, 200 components", 1_809),
    "logistic-4000": ("logistic, 4,000 columns", 4_000),
    "mnist": ("MNIST, all pixels", 7_850),
    "levels-50000": ("logistic, 50,000 levels", 50_001),
    "football": ("football, by team and week", 89_526),
}
MIXED = {
    "logistic-2000-5": "logistic, 2,000 groups x 5 rows",
    "logistic-100-200": "logistic, 100 x 200",
    "logistic-1000-50": "logistic, 1,000 x 50",
    "logistic-1000-1000": "logistic, 1,000 x 1,000",
    "logistic-100000-10": "logistic, 100,000 x 10",
    "linear-125066-4": "linear, 125,066 x 4",
    "insteval": "InstEval, crossed",
}
PEERS = {
    "lme4, nAGQ = 0": ("lme4 glmer, nAGQ = 0",),
    "lme4": ("lme4 glmer", "lme4 lmer"),
    "lme4, nAGQ = 9": ("lme4 glmer, nAGQ = 9",),
    "glmmTMB": ("glmmTMB",),
    "GPBoost": ("GPBoost",),
    "NumPyro NUTS": ("NumPyro NUTS",),
}
OURS = "tallbayes"
GOAL = 0.02
TOLD_OF_MIXED = (
    "Processor seconds of a fit, without imports; in brackets how many posterior sds the scale of the groups is off "
    f"its posterior mean, where there is a reference. Ours and NUTS have every mean to {GOAL:g} sd, NUTS extrapolated "
    "by its effective draws of the scale; all others are point estimates without an error."
)
TOLD_OF_WIDE = (
    "Epochs an effective sample of the worst mean, set-up included: by RMSE, our bias bound in it, and by standard "
    "error, as UBUBU's published figures are (on a GPU, its Hessian not counted). Predictions: the same, of the worst "
    "chance of a test image's label, ours by RMSE."
)


def place(folder: Path, name: str, kind: str) -> Path:
    """Where the rows of this kind are: the quick ones apart from those of the full benchmark."""
    return folder / (f"{kind}.json" if name == "bench" else f"{name}-{kind}.json")


def read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else []


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def digits(value: float | None) -> str:
    """Two digits that count, and whole numbers from ten on.

    >>> digits(0.01234), digits(5.018), digits(1234.5), digits(None)
    ('0.012', '5.0', '1,234', '')
    """
    return "" if value is None else f"{value:#.2g}" if value < 9.95 else f"{value:,.0f}"


def processor_seconds(row: Row) -> float | None:
    """Of the fit; of NUTS, what as many draws would take as bring the mean of the scale to the goal of ours."""
    if row["failure"] is not None:
        return None
    found = float(row["processor_seconds"])
    effective = row.get("effective_draws")
    return found if effective is None else found * max(1.0, GOAL**-2 / float(effective))


def mixed_cell(row: Row | None) -> str:
    """Processor seconds; how far off a scale is, in posterior sds, where that is known."""
    if row is None:
        return ""
    if row["failure"] is not None:
        within = row["failure"].removeprefix("no answer within ")
        return f"none in {within}" if within != row["failure"] else "failed"
    status = row.get("status", "converged")
    apart = row.get("off", {}).get("mean")
    said = digits(processor_seconds(row)) + ("" if apart is None else f" ({apart:+.2f})")
    return said if status == "converged" else f"{said}, {status}"


def mixed_table(rows: list[Row]) -> str:
    """A row a problem and a column a peer: processor seconds, and how far the scale is from its posterior mean."""
    stored = {(row["problem"], row["contestant"]): row for row in rows}

    def cell(problem: str, names: tuple[str, ...]) -> str:
        return mixed_cell(next((stored[problem, name] for name in names if (problem, name) in stored), None))

    columns = {OURS: (OURS,)} | PEERS
    problems = [name for name in MIXED if any(problem == name for problem, _ in stored)]
    lines = [[MIXED[name], *(cell(name, names) for names in columns.values())] for name in problems]
    return markdown(["", *columns], lines)


def wide_table(stored: dict[str, Row]) -> str:
    """Ours as measured, and what is published; nothing where there is neither."""
    header = ["", "d", "RMSE", "standard error", f"UBUBU: {', '.join(LAWS)}", "predictions: ours, UBUBU's"]
    lines = [
        [label, f"{parameters:,}", *wide_cells(stored.get(name), UBUBU.get(name, {}))]
        for name, (label, parameters) in WIDE.items()
        if name in stored or name in UBUBU
    ]
    return markdown([*header, "processor s"], lines)


def wide_cells(row: Row | None, published: dict[str, float]) -> list[str]:
    theirs = ", ".join(f"{published[law]:g}" if law in published else "-" for law in LAWS) if published else ""
    predictions = f"{published['predictions']:g}" if "predictions" in published else ""
    if row is None or "failure" in row:
        said = "not run" if row is None else row["failure"]
        return [said, "", theirs, f"-, {predictions}" if predictions else "", ""]
    told = digits(row.get("epochs_an_effective_sample"))
    ended = "" if row["status"] == "converged" else f", {row['status']}"
    ours = digits(row.get("epochs_an_effective_prediction"))
    return [
        (told or "not asked") + ended,
        digits(by_standard_error(row)),
        theirs,
        f"{ours or '-'}, {predictions or '-'}" if ours or predictions else "",
        digits(row["processor_seconds"]),
    ]


def beside_ububu(stored: dict[str, Row]) -> str:
    """Ours by RMSE, and by standard error where that is known, against the best that is published."""
    told = []
    for name, published in UBUBU.items():
        row = stored.get(name, {})
        best = min(published[law] for law in LAWS if law in published)
        told.append(against(WIDE[name][0], row.get("epochs_an_effective_sample"), by_standard_error(row), best))
        ours = row.get("epochs_an_effective_prediction")
        told.append(against("its predictions", ours, None, published.get("predictions")))
    said = "; ".join(filter(None, told))
    return f"Beside UBUBU's best: {said}." if said else ""


def by_standard_error(row: Row) -> float | None:
    """As UBUBU counts, but with the passes of set-up."""
    error = row.get("largest_standard_error")
    return None if error is None else (row["epochs"] + row["setup_passes"]) * error**2


def against(label: str, rmse: float | None, standard: float | None, theirs: float | None) -> str:
    """
    >>> against("MNIST", 0.23, 0.095, 0.19)
    'MNIST 0.23 by RMSE and 0.095 by standard error against 0.19'
    """
    if rmse is None or theirs is None:
        return ""
    also = "" if standard is None else f" and {digits(standard)} by standard error"
    return f"{label} {digits(rmse)} by RMSE{also} against {theirs:g}"


def tables(folder: Path, name: str) -> list[str]:
    """For bench.md: what there is of both kinds."""
    found = []
    if mixed := read(place(folder, name, "mixed")):
        found += ["", "## Mixed models", "", TOLD_OF_MIXED, "", mixed_table(mixed)]
    if wide := read(place(folder, name, "wide")):
        found += ["", "## Wide posteriors", "", TOLD_OF_WIDE, "", wide_table(wide)]
    return found
