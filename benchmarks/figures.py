"""Files of results: by which command each is measured, and on which packages of the source it depends."""

from __future__ import annotations

from typing import NamedTuple

# What every call of tb.estimate goes through.
CORE = (
    "anchor", "estimation", "estimator", "gaussian", "methods", "model", "moments", "posterior", "programs", "rows",
    "sampler", "setup", "structure", "weighing",
)  # fmt: skip
FORMULA = (*CORE, "formula", "results")
MIXED = (*FORMULA, "groups")


class Figure(NamedTuple):
    """A file of results: the command that measures it, and the packages it depends on; none, if it is a reference."""

    command: str
    packages: tuple[str, ...] = CORE


FIGURES = {
    "agreement.json": Figure("make bench-agreement"),
    "arrivals.json": Figure("make bench-arrivals", (*FORMULA, "arrivals")),
    "arrivals_calibration.json": Figure("make calibrate", (*FORMULA, "arrivals")),
    "arrivals_on_disk.json": Figure("make bench-arrivals-on-disk", (*FORMULA, "rows", "arrivals")),
    # What earlier versions did, kept to be compared with.
    "attacks-before.json": Figure("make attack", ()),
    "attacks.json": Figure("make attack"),
    "balanced.json": Figure("make bench-balanced"),
    "bench-eleven-again.json": Figure("python benchmarks/bench.py --contestants tallbayes"),
    "bench-eleven.json": Figure("python benchmarks/bench.py --contestants tallbayes"),
    "bench.json": Figure("make bench"),
    "budgets.json": Figure("make bench-budgets"),
    "calibrate.json": Figure("make calibrate"),
    "calibrate_references.json": Figure("make calibrate", ()),
    "cold_start.json": Figure("make bench-cold"),
    "cost.json": Figure("make bench-cost"),
    "draws.json": Figure("make bench-draws", (*CORE, "results")),
    "evidence.json": Figure("make bench-evidence", (*MIXED, "evidence")),
    "family_calibration.json": Figure("make bench-families", (*FORMULA, "shrinkage")),
    "far_from_gaussian.json": Figure("make bench-far"),
    "flights.json": Figure("make bench-flights", FORMULA),
    "flights_reference.json": Figure("make bench-flights", ()),
    "formula.json": Figure("make bench-formula", FORMULA),
    "galleries.json": Figure("make bench-galleries", (*MIXED, "doors")),
    "hard_models.json": Figure("make bench-hard", (*CORE, "doors")),
    "interval_ends.json": Figure("make bench-ends", (*CORE, "results")),
    "kinetic.json": Figure("make bench-kinetic"),
    "leave_one_out.json": Figure("make bench-loo", (*FORMULA, "leave_one_out")),
    "levels.json": Figure("make bench-levels", FORMULA),
    "loo_by_group.json": Figure("make bench-loo", (*MIXED, "leave_one_out")),
    "minibatch.json": Figure("make bench-minibatch", ("sampler",)),
    "mixed.json": Figure("make bench-mixed", MIXED),
    "mixed_calibration.json": Figure("python benchmarks/mixed_calibration.py", MIXED),
    "mixed_crossed.json": Figure("make bench-mixed-crossed", MIXED),
    "mixed_references.json": Figure("python benchmarks/mixed_references.py", ()),
    "mixed_sbc.json": Figure("make bench-mixed-sbc", MIXED),
    "mixed_scale.json": Figure("make bench-mixed-scale", MIXED),
    "mutations.json": Figure("make mutate"),
    "nuts.json": Figure("make bench-nuts"),
    "predict.json": Figure("make bench-predict", FORMULA),
    "priors_sbc.json": Figure("make bench-priors-sbc", (*FORMULA, "shrinkage")),
    "quantiles.json": Figure("make bench-quantiles", (*CORE, "results")),
    "references.json": Figure("python benchmarks/references.py", ()),
    "rows_that_matter-control.json": Figure("python benchmarks/rows_that_matter.py --control"),
    "rows_that_matter.json": Figure("make attack-rows"),
    "same_bits.json": Figure("make same-bits", (*MIXED, "shrinkage")),
    "sbc.json": Figure("make bench-sbc"),
    "scale.json": Figure("make bench-scale", (*CORE, "workers")),
    "scheduler.json": Figure("make bench-scheduler", ("estimator", "workers")),
    "setup_passes.json": Figure("make bench-passes", ("anchor", "formula", "model", "setup")),
    "shrinkage.json": Figure("make bench-shrinkage", (*CORE, "shrinkage")),
    "small_tables.json": Figure("make bench-small"),
    "tall.json": Figure("make bench-tall"),
    "throughput.json": Figure("make bench-throughput", ("model", "sampler")),
    "truths.json": Figure("make bench", ()),
    "wide.json": Figure("make bench-wide", FORMULA),
    "wide_nuts.json": Figure("python benchmarks/wide_nuts.py", ()),
    "wide_reference.json": Figure("python benchmarks/wide_reference.py", ()),
    "workflow_answers.json": Figure("make bench-effects", MIXED),
}
# Drawn from the results of the same name, or of the name given.
DRAWN = {"bench.md": "bench.json", "calibrate.svg": "calibrate.json", "cost.svg": "cost.json"} | {
    f"bench-{each}.svg": "bench.json"
    for each in ("errors-logistic", "errors-others", "errors-paper", "items", "seconds")
}
