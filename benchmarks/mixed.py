"""Mixed models beside the peers: every contestant on every problem, one after the other, each in a fresh process.

    make bench-mixed                                             (resumable; hours where every limit is reached)
    python benchmarks/mixed.py [--only PROBLEM ...] [--contestants NAME ...] [--limit SECONDS] [--retry]

The rows of a problem are written once, in files that R and Python read alike. A child says when it has them, fits, and
prints coefficients and scales with the seconds of the fit alone; seconds of the whole process and its peak memory are
what the system says. What fails, does not install or is stopped at the limit is a row too, with its error. Every row is
stored at once in results/mixed.json and not run again, unless it failed and `--retry` is given, it was stopped at a
smaller limit, or it is ours by another version of the code.

`off` compares a scale with the reference of mixed_references.py, in posterior sds: with the posterior mean, and, for
peers without a prior, with the exact maximum of the likelihood. R is found as Rscript; GPBoost, which wants packages of
its own, by the interpreter in $PEERS_PYTHON or in `peers` beside the environment.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ages
import mixed_problems
import numpy as np
from lines import describe_commit
from mixed_references import RESULTS as REFERENCES
from processes import STOPPED, watch

RESULTS = Path(__file__).parent / "results" / "mixed.json"
PEERS = Path(__file__).parent / "peers"
LIMIT = 900.0
OF_R = ("lme4 lmer", "lme4 glmer, nAGQ = 0", "lme4 glmer", "lme4 glmer, nAGQ = 9", "glmmTMB")
OF_PYTHON = ("GPBoost", "statsmodels", "NumPyro NUTS", "tallbayes")
LINEAR = ("lme4 lmer", "glmmTMB", "GPBoost", "statsmodels", "tallbayes")
CROSSED = ("lme4 lmer", "glmmTMB", "GPBoost", "tallbayes")
BINARY = ("lme4 glmer, nAGQ = 0", "lme4 glmer", "lme4 glmer, nAGQ = 9", "glmmTMB", "GPBoost", "tallbayes")
SAMPLED = (*BINARY[:-1], "statsmodels", "NumPyro NUTS", "tallbayes")
FIELDS = {
    "logistic-2000-5": SAMPLED,
    "logistic-100-200": SAMPLED,
    "logistic-1000-50": SAMPLED,
    "insteval": CROSSED,
    "linear-125066-4": LINEAR,
    "logistic-1000-1000": BINARY,
    "logistic-100000-10": BINARY,
}


class Run(NamedTuple):
    """What a row is found by."""

    problem: str
    contestant: str


def write(name: str, folder: Path) -> dict[str, Any]:
    """The columns of a problem as files, levels of groups as codes from 0 in their order; what the child is told."""
    problem, columns = mixed_problems.make(name), {}
    folder.mkdir(parents=True, exist_ok=True)
    for column, values in problem.table.items():
        text = values.dtype.kind == "U"
        columns[column] = "group" if text else "number"
        whole = np.unique(values, return_inverse=True)[1].astype(np.int32) if text else values.astype(float)
        whole.tofile(folder / f"{column}.bin")
    settings = mixed_problems.settings(problem) | {"columns": columns}
    (folder / "problem.json").write_text(json.dumps(settings))
    return settings


def command(contestant: str, folder: Path, settings: dict[str, Any]) -> list[str]:
    if contestant in OF_R:
        family = {"logistic": "binomial"}.get(settings["family"], settings["family"])
        columns = [f"{name}:{kind}" for name, kind in settings["columns"].items()]
        return ["Rscript", str(PEERS / "mixed.R"), str(folder), contestant, family, settings["formula"], *columns]
    beside = Path(sys.prefix) / "peers" / "bin" / "python"
    python = os.environ.get("PEERS_PYTHON", str(beside)) if contestant == "GPBoost" else sys.executable
    return [python, str(PEERS / "mixed_fits.py"), str(folder), contestant]


def run(key: Run, folder: Path, settings: dict[str, Any], limit: float) -> dict[str, Any]:
    """The row of one contestant on one problem."""
    try:
        child = watch(command(key.contestant, folder, settings), limit)
    except FileNotFoundError as missing:
        return {"failure": f"not installed: {missing.filename}"}
    answer = child.lines[1][1] if len(child.lines) > 1 else {}
    return {
        "failure": child.failure if child.failure else None if answer else "no answer",
        "version": child.lines[0][1]["version"] if child.lines else None,
        "starting": child.lines[0][0] if child.lines else None,
        "process_seconds": child.seconds,
        "peak_bytes": child.peak_bytes,
        **answer,
    }


def off(row: dict[str, Any]) -> dict[str, float]:
    """The scale of the groups less its posterior mean, and less the exact maximum, in posterior sds."""
    stored, problem = json.loads(REFERENCES.read_text()) if REFERENCES.exists() else {}, row["problem"]
    found = next((value for name, value in row.get("scales", {}).items() if name != "sigma"), None)
    if problem not in stored or found is None:
        return {}
    tau = stored[problem]["quantities"]["tau[Intercept]"]
    maximum = float(np.exp(stored[problem]["likelihood_maximum"]["log tau[Intercept]"]))
    return {"mean": (found - tau["mean"]) / tau["sd"], "maximum": (found - maximum) / tau["sd"]}


def keep(stored: dict[Run, dict[str, Any]], path: Path, new: Sequence[str] = ()) -> None:
    path.write_text(json.dumps(list(stored.values()), indent=1) + "\n")
    ages.record(path, ages.renewed(path.name, [" ".join(key) for key in stored], new))


def is_missing(key: Run, row: dict[str, Any] | None, path: Path, limit: float, retry: bool) -> bool:
    """Whether a contestant has not run yet, or not so long, or is ours by another version of the code."""
    if row is None:
        return True
    if row["failure"] is not None:
        return retry or (row["failure"].startswith(STOPPED) and row["limit"] < limit)
    return key.contestant == "tallbayes" and not ages.is_of_now(path, " ".join(key))


def complete(keys: list[Run], path: Path, limit: float, retry: bool, until: float = np.inf) -> list[dict[str, Any]]:
    """Run what is missing, and store every row as soon as it is there; begin none after `until`, by perf_counter."""
    rows = json.loads(path.read_text()) if path.exists() else []
    stored = {Run(each["problem"], each["contestant"]): each for each in rows}
    with tempfile.TemporaryDirectory() as scratch:
        written: dict[str, dict[str, Any]] = {}
        for key in keys:
            if time.perf_counter() > until or not is_missing(key, stored.get(key), path, limit, retry):
                continue
            folder = Path(scratch) / key.problem
            if key.problem not in written:
                written[key.problem] = write(key.problem, folder)
            row = run(key, folder, written[key.problem], limit)
            load = os.getloadavg()[0]
            stored[key] = key._asdict() | row | {"limit": limit, "load": load, "commit": describe_commit()}
            stored[key]["off"] = off(stored[key])
            keep(stored, path, [" ".join(key)])
            print(shown(stored[key]), file=sys.stderr, flush=True)
    for row in stored.values():  # a reference may have come since
        row["off"] = off(row)
    keep(stored, path)
    return [stored[key] for key in keys if key in stored]


def shown(row: dict[str, Any]) -> str:
    """A row as a line: seconds of the fit, of its processor and of the process, memory, scales and how far off."""
    head = f"{row['problem']:20} {row['contestant']:22}"
    if row["failure"] is not None:
        return f"{head} FAILED: {row['failure'][:120]}"
    scales = " ".join(f"{name} {value:.4f}" for name, value in row["scales"].items())
    apart = " ".join(f"{value:+.2f}" for value in row["off"].values())
    drawn = f" ESS/s {row['effective_draws_per_second']:.2f}" if "effective_draws_per_second" in row else ""
    seconds = f"{row['seconds']:8.2f} {row['processor_seconds']:8.2f} {row['process_seconds']:8.2f} s"
    return f"{head} {seconds} {row['peak_bytes'] / 2**30:6.2f} GiB  {scales}  off {apart or '-'}{drawn}"


def main() -> None:
    parser = argparse.ArgumentParser(description="mixed models beside the peers")
    parser.add_argument("--only", nargs="+", metavar="PROBLEM", choices=FIELDS, default=list(FIELDS))
    parser.add_argument("--contestants", nargs="+", metavar="NAME", choices=(*OF_R, *OF_PYTHON))
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a process")
    parser.add_argument("--retry", action="store_true", help="run again what failed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    wanted = given.contestants or (*OF_R, *OF_PYTHON)
    keys = [Run(problem, name) for problem in given.only for name in FIELDS[problem] if name in wanted]
    print("\n".join(shown(row) for row in complete(keys, given.out, given.limit, given.retry)))


if __name__ == "__main__":
    main()
