"""Six clubs of four: y ~ N(b, 0.5^2), b ~ N(m, 0.2^2), m ~ N(0, 1), whose posterior is normal."""

from __future__ import annotations

import numpy as np

GROUPS, EACH, SCALE = 6, 4, 0.2


def gaussian_rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    club = np.repeat(np.arange(GROUPS) * 10, EACH)
    return {
        "club": club,
        "y": 1.0 + np.repeat(SCALE * rng.normal(size=GROUPS), EACH) + 0.5 * rng.normal(size=club.size),
    }


def closed_form() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (m, b_1, ..., b_G)."""
    precision, shift = np.zeros((GROUPS + 1, GROUPS + 1)), np.zeros(GROUPS + 1)
    precision[0, 0] = 1 + GROUPS / SCALE**2
    rows = gaussian_rows()
    for g in range(GROUPS):
        precision[g + 1, g + 1] = 1 / SCALE**2 + EACH / 0.25
        precision[0, g + 1] = precision[g + 1, 0] = -1 / SCALE**2
        shift[g + 1] = rows["y"][rows["club"] == 10 * g].sum() / 0.25
    covariance = np.linalg.inv(precision)
    return covariance @ shift, covariance
