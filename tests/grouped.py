"""A model of groups, whose mass is far from its mode."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import tallbayes as tb

GROUPS, EACH = 12, 30


def grouped() -> tuple[tb.Model, dict[str, np.ndarray]]:
    """y = tau z_g + noise, not centred: z ~ N(0, 1), tau half-normal."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(GROUPS, dtype=np.int32), EACH)
    y = 0.7 * rng.normal(size=GROUPS)[group] + rng.normal(size=len(group))
    model = tb.Model(
        log_prior=lambda theta: -0.5 * jnp.sum(theta["z"] ** 2) - 0.5 * theta["tau"] ** 2,
        log_likelihood=lambda theta, row: -0.5 * (row["y"] - theta["tau"] * theta["z"][row["group"]]) ** 2,
        initial={"tau": 1.0, "z": np.zeros(GROUPS)},
        constraints={"tau": tb.constraints.positive},
    )
    return model, {"group": group, "y": y}
