"""The judge of runs with known answers: does the published 95% interval hold the truth, or is it said that it may not?

    p = P(Binomial(n, 0.95) <= covered), of every quantity, over the n runs of a class that count

Runs that count are those that ended as "converged"; or all that gave an answer, where a class says so. A class whose
expectation does not exist is red as soon as one run converges. All tests of a study together give a false alarm with a
stated probability, shared out by Bonferroni: at 15 runs a quantity that is covered in 10 is red, at 50 one in 41. An
error below a thousandth of what is allowed is rounding, and none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import binom, t

LEVEL = 0.95
ROUNDING = 1e-3
CONVERGED = "converged"
FIELDS = ("value", "lower", "upper", "standard_error", "allowed", "truth")


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs that count, (runs, quantities), and how all runs of the class ended."""

    statuses: Mapping[str, int]
    seconds: float
    names: tuple[str, ...]
    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    standard_error: np.ndarray
    allowed: np.ndarray
    truth: np.ndarray

    @property
    def error(self) -> np.ndarray:
        return self.value - self.truth

    @property
    def covers(self) -> np.ndarray:
        slack = np.where(np.isfinite(self.allowed), ROUNDING * self.allowed, 0.0)
        return (self.lower - slack <= self.truth) & (self.truth <= self.upper + slack)

    @property
    def known(self) -> np.ndarray:
        """Whether an interval is one: its ends are finite."""
        return np.isfinite(self.lower) & np.isfinite(self.upper)

    def halved(self) -> Runs:
        """A control: the same values with intervals half as long."""
        middle = (self.lower + self.upper) / 2
        return replace(self, lower=(self.lower + middle) / 2, upper=(self.upper + middle) / 2)


def runs_of(lines: Sequence[Mapping[str, Any]], counts_all: bool = False) -> Runs:
    """From a study's lines; an end of an interval that is not there is infinite."""
    counted = [each for each in lines if "value" in each and (counts_all or each["status"] == CONVERGED)]
    names = tuple(counted[0]["names"]) if counted else ()
    absent = {"lower": -np.inf, "upper": np.inf, "standard_error": np.inf, "allowed": np.inf}

    def column(field: str) -> np.ndarray:
        filled = [
            [absent.get(field, np.nan) if number is None else number for number in each[field]] for each in counted
        ]
        return np.array(filled, float).reshape(len(counted), len(names))

    return Runs(
        statuses=dict(Counter(each["status"] for each in lines)),
        seconds=float(np.median([each["seconds"] for each in lines])) if lines else 0.0,
        names=names,
        **{field: column(field) for field in FIELDS},
    )


@dataclass(frozen=True)
class Verdict:
    """What is said of a class. Of what was counted: coverage in parts of 1, and errors in what is allowed."""

    statuses: Mapping[str, int]
    counted: int
    known: float | None
    worst_coverage: float | None
    worst_quantity: str | None
    pooled_coverage: float | None
    rmse: float | None
    largest_z: float | None
    seconds: float
    least_p: float
    is_red: bool

    @property
    def runs(self) -> int:
        return sum(self.statuses.values())

    def record(self) -> dict[str, Any]:
        return asdict(self) | {"runs": self.runs}


def number_of_tests(runs: Runs, exists: bool = True) -> int:
    """Two a quantity: coverage and RMSE."""
    return 2 * len(runs.names) if exists else 0


def bonferroni(counts: Sequence[int], false_alarm: float) -> float:
    return false_alarm / max(1, sum(counts))


def judge(runs: Runs, bound: float, exists: bool = True) -> Verdict:
    """Red if a quantity is covered too seldom or its RMSE exceeds what is allowed; or if what has no value has one."""
    empty = Verdict(runs.statuses, len(runs.value), *(6 * [None]), runs.seconds, 1.0, False)
    if not len(runs.value):
        return empty
    if not exists:
        return replace(empty, is_red=runs.statuses.get(CONVERGED, 0) > 0)
    covered = runs.covers
    low = binom.cdf(covered.sum(axis=0), len(covered), LEVEL)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(np.isfinite(runs.allowed), runs.error / runs.allowed, 0.0)
        z = np.abs(np.where(runs.error == 0, 0.0, runs.error / runs.standard_error)).max()
    least = float(min(low.min(), excess(relative).min()))
    return replace(
        empty,
        known=float(runs.known.mean()),
        worst_coverage=float(covered.mean(axis=0).min()),
        worst_quantity=runs.names[int(covered.mean(axis=0).argmin())],
        pooled_coverage=float(covered.mean()),
        rmse=float(np.sqrt((relative**2).mean(axis=0)).max()),
        largest_z=float(z) if np.isfinite(z) else None,
        least_p=least,
        is_red=least < bound,
    )


def excess(relative: np.ndarray) -> np.ndarray:
    """That mean squares are no more than 1, by Student's t; of equal errors, whether they are."""
    squares = relative**2 - 1
    if len(squares) < 2:
        return np.ones(squares.shape[1])
    error = squares.std(axis=0, ddof=1) / np.sqrt(len(squares))
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(error > 0, squares.mean(axis=0) / error, np.sign(squares.mean(axis=0)) * np.inf)
    return np.asarray(t.sf(score, len(squares) - 1))
