"""Families written by hand with SciPy's laws: log p(row | eta, extras), for a row of arrays; and rows of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats
from scipy.special import betaln, expit, gamma

# Extras by name, as each family has them.
EXTRAS: dict[str, dict[str, Any]] = {
    "ordinal": {"cut_points": np.array([-1.0, 0.2, 1.5])},
    "ordinal_probit": {"cut_points": np.array([-1.0, 0.2, 1.5])},
    "gamma": {"shape": 2.5},
    "beta": {"precision": 7.0},
    "exponential": {},
    "weibull": {"shape": 1.4},
    "log_normal": {"noise_scale": 0.8},
    "zero_inflated_poisson": {"zero_inflation": 0.3},
    "zero_inflated_negative_binomial": {"overdispersion": 0.6, "zero_inflation": 0.3},
    "hurdle_poisson": {"zero_share": 0.4},
    "hurdle_negative_binomial": {"overdispersion": 0.6, "zero_share": 0.4},
}


def law(name: str, eta: Any, extras: dict[str, Any]) -> Any:
    """SciPy's, of what is seen without censoring and without zeros of another kind."""
    mean = np.exp(eta)
    match name:
        case "gamma":
            return stats.gamma(extras["shape"], scale=mean / extras["shape"])
        case "beta":
            share, precision = expit(eta), extras["precision"]
            return stats.beta(precision * share, precision * (1 - share))
        case "exponential":
            return stats.expon(scale=mean)
        case "weibull":
            return stats.weibull_min(extras["shape"], scale=mean / gamma(1 + 1 / extras["shape"]))
        case "log_normal":
            return stats.lognorm(extras["noise_scale"], scale=mean)
    if name.endswith("negative_binomial"):
        r = 1 / extras["overdispersion"]
        return stats.nbinom(r, r / (r + mean))
    return stats.poisson(mean)


def log_density(name: str, row: dict[str, Any], eta: Any, extras: dict[str, Any]) -> Any:
    """`cut_points` may be (cuts, points) where y is (points,)."""
    y = row["y"]
    if name.startswith("ordinal"):
        curve = expit if name == "ordinal" else stats.norm.cdf
        cuts = extras["cut_points"]
        ends = np.full((1, *cuts.shape[1:]), np.inf)
        cuts, place = np.concatenate([-ends, cuts, ends]), y.astype(int)
        if cuts.ndim > 1:
            across = np.arange(cuts.shape[1])
            return np.log(curve(cuts[place + 1, across] - eta) - curve(cuts[place, across] - eta))
        return np.log(curve(cuts[place + 1] - eta) - curve(cuts[place] - eta))
    if name in ("logistic", "probit"):
        curve = expit if name == "logistic" else stats.norm.cdf
        return stats.binom.logpmf(y, row.get("trials", 1), curve(eta))
    own = law(name, eta, extras)
    if name.startswith("zero_inflated"):
        chance = extras["zero_inflation"]
        return np.log(chance * (y == 0) + (1 - chance) * own.pmf(y))
    if name.startswith("hurdle"):
        chance = extras["zero_share"]
        return np.where(y == 0, np.log(chance), np.log(1 - chance) + own.logpmf(y) - np.log1p(-own.pmf(0)))
    if "censored" not in row:
        return own.logpdf(y)
    how = row["censored"]
    between = np.log(np.maximum(own.cdf(row.get("upper", y)) - own.cdf(y), 1e-300))
    return np.select([how == 0, how == 1, how == -1], [own.logpdf(y), own.logsf(y), own.logcdf(y)], between)


def smoothed_quantile(y: Any, eta: Any, noise_scale: Any, level: float, smoothing: float) -> Any:
    """The log density of h logit b about eta in units of the noise, b ~ Beta(h (1 - level), h level)."""
    u = (y - eta) / (noise_scale * smoothing)
    rest = betaln(smoothing * (1 - level), smoothing * level) + np.log(noise_scale * smoothing)
    return -smoothing * level * u - smoothing * np.logaddexp(0.0, -u) - rest


def draw_rows(name: str, eta: Any, extras: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Rows of the family at these linear predictors; a third of times is censored, in each of the three ways."""
    if name.startswith("ordinal"):
        noise = rng.logistic(size=len(eta)) if name == "ordinal" else rng.normal(size=len(eta))
        return {"y": np.digitize(eta + noise, extras["cut_points"]).astype(float)}
    y = np.asarray(law(name, eta, extras).rvs(random_state=rng), float)
    if name.startswith("zero_inflated"):
        y[rng.random(len(y)) < extras["zero_inflation"]] = 0
    if name.startswith("hurdle"):
        while np.any(y == 0):
            y = np.where(y == 0, law(name, eta, extras).rvs(random_state=rng), y)
        y[rng.random(len(y)) < extras["zero_share"]] = 0
    if name not in ("exponential", "weibull", "log_normal"):
        return {"y": y}
    how = np.resize([0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 2.0, 0.0, 0.0], len(y))
    seen = np.select([how == 0, how == 1, how == -1], [y, 0.6 * y, 1.5 * y], 0.7 * y)
    return {"y": seen, "censored": how, "upper": np.where(how == 2, 1.6 * y, seen)}
