"""What an answer is worth, and what bringing the worst posterior mean to a goal would cost, by each method's own law.

    e_j         the error of the mean of theta_j, in posterior sds, against the reference
    noise       what e_j may be by chance, an rms: 1 / sqrt(ESS) of draws, the stated error of a method with a
                tolerance, 0 where nothing is random; the reference's own error is added in squares
    floor       sqrt(max_j e_j^2 - noise^2), the bias of the worst mean, where a bias is seen
    sampling    1 / ESS + floor^2 = goal^2 says how many draws it takes; never where floor > goal
    tolerance   the cost of sampling grows like (stated error / goal)^2, and is what it was where that is met
    fixed       the cost is what it was, and floor the error itself

A chance error is not a bias. One is seen where z_j = e_j / noise have an rms or a largest |z_j| that chance exceeds
once in 1000 times: mean z_j^2 against chi-squared with one degree of freedom, which bounds its tail for normal errors
of any correlation (Székely and Bakirov 2003), and the largest against d normal tails added up, each at half the rate.
The ESS is that of the worst mean, so for all others z_j is too small if anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

GOAL = 0.01
FALSE_ALARM = 1e-3
MISSED = 0.05
HOPELESS = 1.0


@dataclass(frozen=True)
class Errors:
    """Actual errors of means and sds over the coordinates, in posterior sds, and the worst of the reference itself."""

    mean_worst: float
    mean_rms: float
    sd_worst: float
    sd_rms: float
    reference: float


@dataclass(frozen=True)
class Floor:
    """Whether a bias was seen, its size, and the bias that would have been seen 19 times in 20; in posterior sds."""

    seen: bool
    bias: float
    visible: float

    def __str__(self) -> str:
        if self.seen:
            return f"{self.bias:.2g}"
        return f"none seen above {self.visible:.2g}" if np.isfinite(self.visible) else "unknown"


@dataclass(frozen=True)
class Price:
    """What it costs to bring the worst mean to `goal`: infinite where the floor is above it.

    `factor` is by how much the sampling was scaled; items and seconds have set-up and sampling in them, `warm` without
    compiling, `cold` with it and with the start of a process.
    """

    goal: float
    factor: float
    sampling_items: float
    items: float
    warm: float
    cold: float
    floor: Floor

    @property
    def reached(self) -> bool:
        return bool(np.isfinite(self.factor))


def actual_errors(answer: Any, truth: Any) -> Errors:
    """Of an answer with `mean` and `sd` against a truth with `mean`, `sd` and `worst_error`.

    >>> from types import SimpleNamespace as Thing
    >>> truth = Thing(mean=[0.0, 0.0], sd=[1.0, 2.0], worst_error=1e-4)
    >>> actual_errors(Thing(mean=[0.03, 0.0], sd=[1.0, 2.2]), truth)
    Errors(mean_worst=0.03, mean_rms=0.0212..., sd_worst=0.1..., sd_rms=0.0707..., reference=0.0001)
    """
    means, sds = mean_errors(answer, truth), (np.asarray(answer.sd) - truth.sd) / np.asarray(truth.sd)
    return Errors(worst(means), rms(means), worst(sds), rms(sds), float(truth.worst_error))


def mean_errors(answer: Any, truth: Any) -> np.ndarray:
    return (np.asarray(answer.mean, float) - truth.mean) / np.asarray(truth.sd)


def worst(errors: np.ndarray) -> float:
    """The largest, and infinity where one is not a number.

    >>> worst(np.array([0.1, -0.3])), worst(np.array([0.1, np.nan]))
    (0.3, inf)
    """
    return float(np.max(np.abs(errors))) if np.all(np.isfinite(errors)) else np.inf


def rms(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2))) if np.all(np.isfinite(errors)) else np.inf


def noise(answer: Any) -> float:
    """What the error of a mean may be by chance, in posterior sds.

    >>> from types import SimpleNamespace as Thing
    >>> noise(Thing(law="sampling", ess=400.0)), noise(Thing(law="tolerance", error=None, tolerance=0.05))
    (0.05, 0.05)
    """
    if answer.law == "sampling":
        return float(1 / np.sqrt(answer.ess)) if answer.ess and answer.ess > 0 else np.inf
    if answer.law == "tolerance":
        stated = float(answer.tolerance if answer.error is None else answer.error)
        return stated if np.isfinite(stated) else np.inf
    return 0.0


def thresholds(dimension: int) -> tuple[float, float]:
    """What the rms of z and the largest |z| of so many coordinates stay below, but for `FALSE_ALARM` of all cases.

    >>> np.round(thresholds(20), 2)
    array([3.48, 4.21])
    """
    return float(-ndtri(FALSE_ALARM / 4)), float(-ndtri(FALSE_ALARM / 4 / dimension))


def find_floor(answer: Any, truth: Any) -> Floor:
    """The bias of the worst mean, where one is seen; see the top of this file for the test.

    >>> from types import SimpleNamespace as Thing
    >>> truth = Thing(mean=np.zeros(20), sd=np.ones(20), worst_error=1e-4)
    >>> print(find_floor(Thing(mean=np.full(20, 0.05), law="sampling", ess=1e4), truth))
    0.049
    >>> print(find_floor(Thing(mean=np.full(20, 0.01), law="sampling", ess=1e4), truth))
    none seen above 0.059
    """
    errors = mean_errors(answer, truth)
    chance = float(np.hypot(noise(answer), truth.worst_error))
    if not np.all(np.isfinite(errors)):
        return Floor(True, np.inf, chance)
    if answer.law == "fixed":
        return Floor(True, worst(errors), truth.worst_error)
    typical, largest = thresholds(len(errors))
    seen = rms(errors) > typical * chance or worst(errors) > largest * chance
    bias = np.sqrt(max(0.0, worst(errors) ** 2 - chance**2)) if seen else 0.0
    return Floor(bool(seen), float(bias), float((largest - ndtri(MISSED)) * chance))


def scaling(answer: Any, floor: Floor, goal: float) -> float:
    """By how much the sampling has to be scaled for the error of the worst mean to be `goal`; infinite where it cannot.

    >>> from types import SimpleNamespace as Thing
    >>> none = Floor(False, 0.0, 0.1)
    >>> scaling(Thing(law="sampling", ess=2500.0), none, 0.01)
    4.0
    >>> scaling(Thing(law="sampling", ess=2500.0), Floor(True, 0.02, 0.1), 0.01)
    inf
    >>> scaling(Thing(law="tolerance", tolerance=0.05, error=0.04), none, 0.01)
    16.0
    >>> scaling(Thing(law="tolerance", tolerance=0.01, error=0.004), none, 0.01)
    1.0
    >>> scaling(Thing(law="tolerance", tolerance=0.1, error=20.0), none, 0.01)
    inf

    An error of a posterior sd and more says that nothing was found, and there is no law to go by.
    """
    if floor.bias > goal or noise(answer) >= HOPELESS:
        return np.inf
    if answer.law == "fixed":
        return 1.0
    spread = noise(answer)
    factor = spread**2 / (goal**2 - floor.bias**2) if floor.bias < goal else np.inf
    return float(factor if answer.law == "sampling" else max(1.0, factor))


def factor_for_sds(answer: Any, goal: float = GOAL) -> float | None:
    """By how much sampling is scaled for the worst sd to have an error of `goal` of itself; None where it is not known.

    A stated tolerance is for means and sds alike.

    >>> from types import SimpleNamespace as Thing
    >>> factor_for_sds(Thing(law="sampling", sd_noise=0.02)), factor_for_sds(Thing(law="sampling", sd_noise=None))
    (4.0, None)
    >>> factor_for_sds(Thing(law="tolerance", tolerance=0.01, error=0.004))
    1.0
    """
    if answer.law == "fixed":
        return None
    spread = getattr(answer, "sd_noise", None) if answer.law == "sampling" else noise(answer)
    if spread is None:
        return None
    return float((spread / goal) ** 2 if answer.law == "sampling" else max(1.0, (spread / goal) ** 2))


def cost_to(answer: Any, truth: Any, goal: float = GOAL, starting: float = 0.0, sds: bool = False) -> Price | None:
    """What it costs to bring the worst mean to `goal` posterior sds; `starting` are the seconds a process starts in.

    With `sds` it is the worst mean and the worst sd, and None where an answer says nothing of the noise of its sds.

    >>> from types import SimpleNamespace as Thing
    >>> cost = Thing(items=1e6, seconds=2.0)
    >>> answer = Thing(mean=np.zeros(2), law="sampling", ess=1e3, setup=cost, sampling=cost, compiling=3.0)
    >>> price = cost_to(answer, Thing(mean=np.zeros(2), sd=np.ones(2), worst_error=1e-4), starting=1.0)
    >>> round(price.factor), round(price.items), round(price.warm), round(price.cold)
    (10, 11000000, 22, 26)
    """
    floor = find_floor(answer, truth)
    factor = scaling(answer, floor, goal)
    if sds:
        more = factor_for_sds(answer, goal)
        if more is None:
            return None
        factor = max(factor, more)
    items, seconds = (scaled(factor, part) for part in (answer.sampling.items, answer.sampling.seconds))
    warm = answer.setup.seconds + seconds
    return Price(goal, factor, items, answer.setup.items + items, warm, starting + answer.compiling + warm, floor)


def scaled(factor: float, cost: float) -> float:
    """Also where nothing is scaled without end.

    >>> scaled(np.inf, 0.0)
    inf
    """
    return factor * cost if np.isfinite(factor) else np.inf
