"""Moments merge as if all samples had been seen at once, and do not cancel."""

from __future__ import annotations

import numpy as np
import pytest

from tallbayes.moments import Moments, merge_all

PAIRS = ((0, 1), (2, 0))


def skewed_samples(seed: int, count: int = 200) -> np.ndarray:
    """Three dependent components of different size, skewed and heavy-tailed."""
    rng = np.random.default_rng(seed)
    first = rng.standard_normal(count)
    return np.column_stack([first, np.exp(first + rng.standard_normal(count)), 1e3 * rng.standard_t(4, count) + first])


def random_parts(samples: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Cut at random places; single samples and long stretches both occur."""
    cuts = np.sort(rng.choice(np.arange(1, len(samples)), size=rng.integers(1, 12), replace=False))
    return np.split(samples, cuts)


def merge_in_random_grouping(parts: list[Moments], rng: np.random.Generator) -> Moments:
    """Merge neighbours, in an order that is a random binary tree."""
    parts = list(parts)
    while len(parts) > 1:
        k = int(rng.integers(len(parts) - 1))
        parts[k : k + 2] = [parts[k].merge(parts[k + 1])]
    return parts[0]


def assert_moments_of(moments: Moments, samples: np.ndarray) -> None:
    """Against NumPy on all samples at once, to rounding in units of each sum's absolute terms."""
    centred = samples - samples.mean(axis=0)
    assert moments.count == len(samples)
    np.testing.assert_allclose(moments.mean, samples.mean(axis=0), rtol=0, atol=1e-13 * np.abs(samples).max())
    for power, actual in ((2, moments.sum2), (3, moments.sum3), (4, moments.sum4)):
        error = np.abs(actual - (centred**power).sum(axis=0))
        assert np.all(error <= 1e-12 * (np.abs(centred) ** power).sum(axis=0))
    for (j, k), actual in zip(moments.pairs, moments.covariance, strict=True):
        expected = np.cov(samples[:, j], samples[:, k])[0, 1]
        assert abs(actual - expected) <= 1e-12 * samples[:, j].std() * samples[:, k].std()
    np.testing.assert_allclose(moments.variance, samples.var(axis=0, ddof=1), rtol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_merge_equals_numpy_for_any_split_and_grouping(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    samples = skewed_samples(seed)
    parts = [Moments.of(part, PAIRS) for part in random_parts(samples, rng)]
    assert_moments_of(merge_all(parts), samples)
    assert_moments_of(merge_in_random_grouping(parts, rng), samples)


def test_a_merge_that_forgets_the_shift_between_means_is_noticed() -> None:
    samples = skewed_samples(0)
    first, second = Moments.of(samples[:50]), Moments.of(samples[50:])
    forgetful = first.merge(second)
    object.__setattr__(forgetful, "sum2", first.sum2 + second.sum2)
    with pytest.raises(AssertionError):
        assert_moments_of(forgetful, samples)


def test_merging_in_the_same_order_gives_the_same_bits() -> None:
    parts = [Moments.of(part, PAIRS) for part in np.split(skewed_samples(3), 8)]
    one, two = merge_all(parts), merge_all(iter(parts))
    for name in ("mean", "sum2", "sum3", "sum4", "cosum"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()


def test_kurtosis_of_known_laws() -> None:
    count = 100_000
    rng = np.random.default_rng(5)
    two_point = np.tile([-1.0, 1.0], count // 2)
    samples = np.column_stack([two_point, rng.standard_normal(count), np.full(count, 7.0)])
    coin, gaussian, constant = Moments.of(samples).kurtosis
    assert coin == pytest.approx(1.0, rel=1e-12)
    # 4.9 standard errors sqrt(24 / n): a false alarm once in a million.
    assert abs(gaussian - 3) < 4.9 * np.sqrt(24 / count)
    assert constant == 3.0


def test_kurtosis_survives_merging() -> None:
    samples = skewed_samples(6, 640)
    merged = merge_all(Moments.of(part) for part in np.split(samples, 20))
    centred = samples - samples.mean(axis=0)
    expected = (centred**4).mean(axis=0) / (centred**2).mean(axis=0) ** 2
    np.testing.assert_allclose(merged.kurtosis, expected, rtol=1e-12)


def test_one_sample_has_no_variance_and_float32_is_widened() -> None:
    lone = Moments.of(np.array([[2.0, 3.0]], np.float32), ((0, 1),))
    assert lone.mean.dtype == np.float64
    assert lone.variance.tolist() == [0.0, 0.0]
    assert lone.covariance.tolist() == [0.0]


def far_from_zero() -> tuple[np.ndarray, float]:
    """Samples of mean 1e8 and sd 1, and their exact variance: whole 64ths, so that the shift is exact."""
    near = np.round(64 * np.random.default_rng(7).standard_normal(32 * 40)) / 64
    return (near + 1e8)[:, None], near.var(ddof=1)


def test_variance_does_not_cancel_far_from_zero() -> None:
    samples, variance = far_from_zero()
    merged = merge_all(Moments.of(part) for part in np.split(samples, 40))
    assert merged.variance[0] == pytest.approx(variance, rel=1e-6)


def test_raw_second_moments_do_cancel_far_from_zero() -> None:
    samples, variance = far_from_zero()
    count = len(samples)
    raw = (np.mean(samples**2) - np.mean(samples) ** 2) * count / (count - 1)
    assert abs(raw / variance - 1) > 1e-3


EXTREME = {
    "overflow in powers": [1e200, -1e200, 0.0],
    "overflow in the fourth power alone": [1e90, -1e90, 0.0],
    "infinite": [np.inf, 1.0, 2.0],
    "not a number": [np.nan, 1.0, 2.0],
    "below the least square": [1e-90, -1e-90, 0.0],
}


@pytest.mark.parametrize("name", EXTREME)
def test_extreme_samples_warn_of_nothing_and_are_never_taken_for_light(name: str) -> None:
    """Warnings are errors here. A sample whose kurtosis cannot be known has an infinite one, alone and among others."""
    samples = np.array(EXTREME[name])[:, None]
    alone, others = Moments.of(samples, ((0, 0),)), Moments.of(np.arange(5.0)[:, None], ((0, 0),))
    both = merge_all([others, alone])
    assert both.count == 8
    if name != "below the least square":
        assert alone.kurtosis[0] == np.inf or alone.kurtosis[0] == pytest.approx(1.5)
        assert not both.kurtosis[0] <= 3.0


def test_no_samples_at_all_are_nothing_to_add() -> None:
    nothing, some = Moments.of(np.empty((0, 2))), Moments.of(np.arange(6.0).reshape(3, 2))
    assert nothing.kurtosis.tolist() == [3.0, 3.0]
    assert nothing.merge(nothing).variance.tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(nothing.merge(some).variance, some.variance)
