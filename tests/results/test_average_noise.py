"""What is unknown of an average even given theta: how its errors grow with what is no straight line in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tallbayes.results.averages.noise import EffectNoise


def noise(curved: float) -> EffectNoise:
    """Of one average that is known given theta, of many groups, but for a curve."""
    zeros = np.zeros(1)
    return EffectNoise(
        along=np.ones(1),
        gaussian=np.zeros((1, 1, 1, 1)),
        levels=(),
        probed=None,
        centre=np.zeros((1, 1)),
        third=zeros,
        fourth=zeros,
        square=zeros,
        off=np.zeros((1, 1)),
        curved=np.array([curved]),
    )


def test_a_curve_is_in_the_errors_of_mean_sd_and_ends():
    """A ratio of averages may be wider by as much as it is moved; without a curve nothing is added, the control."""
    values, bounds = np.array([1.15, 0.05, 1.05, 1.25]), np.zeros(4)
    same, none = noise(0.0).shifted(values, bounds)
    np.testing.assert_array_equal(same, values)
    np.testing.assert_array_equal(none, 0.0)
    _, found = noise(0.001).shifted(values, bounds)
    np.testing.assert_allclose(found, [0.001, 0.001, 0.001 * (1 + 1.959964), 0.001 * (1 + 1.959964)], rtol=1e-6)
    _, twice = replace(noise(0.001), along=np.array([2.0])).shifted(values, bounds)
    np.testing.assert_allclose(twice, 2 * found, rtol=1e-6)
