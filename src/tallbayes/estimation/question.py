"""The question: what was asked, as it was checked at the door, and what may be changed when it is asked again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import InputError, explain
from tallbayes.estimation.interval_ends import MOST_BYTES
from tallbayes.estimator.estimands import KINDS, check_tolerances
from tallbayes.estimator.levels import BLOCK_PATHS
from tallbayes.estimator.run import KEPT_BYTES, Budget, budget_within
from tallbayes.methods.method import Method
from tallbayes.methods.weighted import Weighted
from tallbayes.model.model import Model
from tallbayes.progress import Report
from tallbayes.rows.on_disk import Stored
from tallbayes.workers.executors import Executor

# Of a tolerance: what integrals over effects may be off by, to count as known.
FINE_SHARE = 0.25


@cache
def _read_versions() -> dict[str, str]:
    """From files, which takes longer than a small table."""
    return {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "numpy")}


@dataclass(frozen=True, eq=False)
class Accuracy:
    """The one kind of tolerance that was given, its size for all quantities or by name, and that of interval ends."""

    kind: str
    size: Any
    interval: float | None = None

    @property
    def finest(self) -> float:
        """The finest fraction of a posterior sd that is asked for; 1% where it is stated in other units."""
        if self.kind != "tolerance":
            return 0.01
        return float(min(self.size.values()) if isinstance(self.size, Mapping) else self.size)

    @property
    def recorded(self) -> dict[str, Any]:
        """For the settings of a result."""
        size = dict(self.size) if isinstance(self.size, Mapping) else float(self.size)
        return {self.kind: size} | ({} if self.interval is None else {"interval_tolerance": float(self.interval)})


@dataclass(frozen=True, eq=False)
class Question:
    """What was asked."""

    model: Model
    data: Any
    weights: Any
    quantities: Any
    accuracy: Accuracy
    method: Method
    seed: int
    anchor: Anchor | None
    executor: Executor | None
    budget: Budget
    keep_posterior: bool
    ledger: str | Path | None
    # Of one mode among several: what a probe would see of the others is no tail.
    one_of_several: bool = False
    # Tried first, where there is one.
    weighted: Weighted | None = None

    @property
    def stored(self) -> Stored | None:
        return self.data if isinstance(self.data, Stored) else None

    @property
    def kept_bytes(self) -> float:
        return 0.0 if not self.keep_posterior else KEPT_BYTES if self.accuracy.interval is None else MOST_BYTES

    def settings(self, precision: str) -> dict[str, Any]:
        """For the record."""
        versions = dict(_read_versions())
        accuracy = self.accuracy.recorded
        interval = {name: accuracy.pop(name) for name in ("interval_tolerance",) if name in accuracy}
        found = {"seed": self.seed, **accuracy, "precision": precision, "block_paths": BLOCK_PATHS}
        return {**found, "versions": versions, **interval}


@dataclass(frozen=True, eq=False)
class Changes:
    """What `result.extend` asks for: None is what it was, but for a budget, which is the usual one."""

    budget: Budget
    executor: Executor | None
    progress: bool | Report | None
    interval: float | None
    tolerance: tuple[str, Any] | None

    def of(self, accuracy: Accuracy) -> Accuracy:
        kind, size = self.tolerance or (accuracy.kind, accuracy.size)
        return Accuracy(kind, size, accuracy.interval if self.interval is None else self.interval)

    def kept(self, question: Question) -> Question:
        """With its tolerances; budgets and executors are for once."""
        return replace(question, accuracy=self.of(question.accuracy))

    def applied(self, question: Question) -> Question:
        accuracy = self.of(question.accuracy)
        return replace(question, budget=self.budget, executor=self.executor, accuracy=accuracy)


def read_changes(
    question: Question,
    *,
    max_evaluations: float | None = None,
    max_levels: int | None = None,
    max_seconds: float | None = None,
    executor: Executor | None = None,
    progress: bool | Report | None = None,
    interval_tolerance: float | None = None,
    **tolerances: Any,
) -> Changes:
    """Checked as at the door."""
    check_intervals(interval_tolerance, question.keep_posterior, question.method)
    unknown = set(tolerances) - set(KINDS)
    if unknown:
        raise InputError(explain(f"one of {KINDS} or a budget", f"{sorted(unknown)}", "tolerance=0.005"))
    tolerance = check_tolerances(tolerances) if tolerances else None
    budget = budget_within(max_evaluations, max_levels, max_seconds)
    return Changes(budget, executor, progress, interval_tolerance, tolerance)


def check_intervals(tolerance: Any, keep_posterior: bool, method: Method) -> None:
    if tolerance is None:
        return
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | np.number) or not tolerance > 0:
        raise InputError(explain("interval_tolerance > 0", repr(tolerance), "0.02, in posterior sds"))
    if not keep_posterior or not method.keeps_posterior:
        got = f"method={type(method).__name__}()" if keep_posterior else "keep_posterior=False"
        raise InputError(explain("a posterior that is kept, for its intervals", got, "interval_tolerance=None"))


def check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InputError(explain("seed a whole number in 0..2^64-1", repr(seed), "seed=0"))
    return int(seed)
