"""Results of mixed models by hand, and effects that are made up, of any number of groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from reports import encoding_of, made

import tallbayes as tb
from tallbayes.formula.groups.factors import Crossed, Factors, with_factors
from tallbayes.results.groups.effects import Effects, EffectSource
from tallbayes.results.parts import Factor

SCHOOLS, ROWS = 24, 360
YEARS = tuple(f"y{place}" for place in range(6))
SCHOOL_SD, YEAR_SD, NOISE = "sd(Intercept|school)", "sd(Intercept|year)", "noise_scale"
OWN = ["Intercept", "x", NOISE, SCHOOL_SD, YEAR_SD]
MEANS = {"Intercept": 50.0, "x": 3.0, NOISE: 1.0, SCHOOL_SD: 2.0, YEAR_SD: 1.5}
RESPONSE = 40.0, 10.0


def made_up_effects(groups: int, by: str = "school") -> Effects:
    """As of N(0, 0.8^2) between groups and rows of a logistic regression."""
    rng = np.random.default_rng(0)
    counts, spread = rng.integers(3, 120, groups).astype(float), 0.8
    alone = 1 / np.sqrt(0.2 * counts)
    kept = spread**2 / (spread**2 + alone**2)
    own = spread * rng.normal(size=groups) + alone * rng.normal(size=groups)
    mean, sd = (kept * own)[:, None], (np.sqrt(kept) * alone)[:, None]
    error = 0.01 * sd
    levels = tuple(f"s{place}" for place in range(groups))
    ends = {"lower": mean - 1.96 * sd, "upper": mean + 1.96 * sd, "end_error": 3 * error, "within": sd}
    errors = {"mean_error": error, "sd_error": error}
    raw = 1 / (1 + np.exp(-0.3 - own))
    numbers: dict[str, Any] = {"mean": mean, "sd": sd, **ends, **errors, "counts": counts, "raw": raw}
    return Effects(by, levels, ("Intercept",), **numbers)


def mixed(family: str = "linear") -> tb.Result:
    """Schools are integrated out, years are parameters; the response was standardised by `RESPONSE`."""
    names = [*OWN, *(f"Intercept|year[{year}]" for year in YEARS)]
    mean = np.array([*MEANS.values(), *np.linspace(-2.0, 2.0, len(YEARS))])
    sd = np.full(len(names), 0.02)
    encoding = encoding_of(["x"], {}) | {"response_scale": RESPONSE[1]}
    encoding["groups"] = [{"term": {"text": f"(1 | {by})"}} for by in ("school", "year")]
    school = Factor("school", ("Intercept",), SCHOOLS, ROWS, 3, 14.5, 40, nodes=7, integral_error=1e-4)
    year = Factor("year", ("Intercept",), len(YEARS), ROWS, 50, 60.0, 70, first=len(OWN), spread=((1.0,),))
    crossed = Crossed(year, YEARS, np.full(len(YEARS), 60.0), np.linspace(-1, 1, len(YEARS)))
    result = made(names, mean, sd, family=family, encoding=encoding, factors=(school,), notes=(school.note,))
    found = replace(result, effect_source=EffectSource(lambda: (made_up_effects(SCHOOLS),)))
    return with_factors(Factors((crossed,), ((1.0,),), *RESPONSE), found)
