"""Normalisers: what the densities of `densities` leave out, so that log p(y | theta) is that of the response itself.

    linear               -log(2 pi) / 2,  and -log sigma where sigma is known
    student t            log Gamma((nu + 1) / 2) - log Gamma(nu / 2) - log(nu pi) / 2,  the same of sigma
    counts               -log y!
    trials               log n! - log y! - log (n - y)!
    a class              0
    in own units         -log s_y where the response was divided by s_y

They are numbers of the data alone, so that no answer about theta needs them. A model of one's own is taken at its word.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.model.noise import Noise
from tallbayes.moments import Floats


def log_normaliser(noise: Noise | None, rows: Any, response_scale: float = 1.0, includes_scale: bool = False) -> Floats:
    """log p(y | eta) less the density, of every row; `includes_scale` where the density has -log sigma already."""
    from scipy.special import gammaln

    y = np.asarray(rows["y"], np.float64) if isinstance(rows, dict) and "y" in rows else np.zeros(())
    if noise is None:
        return np.zeros_like(y)
    if "trials" in rows:
        trials = np.asarray(rows["trials"], np.float64)
        return np.asarray(gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1))
    if noise.is_count:
        return np.asarray(-gammaln(y + 1))
    if noise.facts.response != "real":
        return np.zeros_like(y)
    constant = -np.log(response_scale)
    if noise.scale is not None and not includes_scale:
        constant -= np.log(noise.scale)
    if noise.freedom is None:
        return np.full_like(y, constant - 0.5 * np.log(2 * np.pi))
    nu = noise.freedom
    return np.full_like(y, constant + gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi))
