"""Fine minus what is taken off, from what paths read at their stops."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tallbayes.posterior.telescoping import differences

# Two paths of three stops, each a fine side and two that are taken off it, of two components.
READINGS = np.arange(36.0).reshape(2, 3, 3, 2) ** 2


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_what_a_path_adds(array) -> None:
    by_hand = [
        [np.mean([path[k, 0, c] - (path[k, 1, c] + path[k, 2, c]) / 2 for k in range(3)]) for c in range(2)]
        for path in READINGS
    ]
    np.testing.assert_allclose(differences(array(READINGS), alone=False), by_hand, rtol=1e-6)


def test_stops_and_sides_may_stand_elsewhere() -> None:
    turned = READINGS.transpose(3, 2, 0, 1)
    np.testing.assert_allclose(differences(turned, False, stops=3, sides=1), differences(READINGS, False).T)


def test_a_path_that_stands_alone_counts_itself() -> None:
    np.testing.assert_array_equal(differences(READINGS, alone=True), READINGS[:, :, 0].mean(axis=1))
