"""Sample moments that merge exactly as if all samples had been seen at once.

For samples Y_1..Y_n of a vector: n, the mean, the central sums S_k = sum (Y_i - mean)^k for k = 2, 3, 4,
and C = sum (Y_i - mean_Y)(Z_i - mean_Z) for chosen pairs of components. Two sets A, B with
delta = mean_B - mean_A merge by the pairwise formulas of Chan and Pébay; raw second moments, which cancel,
are never formed. Everything is float64. Samples too large to be raised to a power, or not finite, have moments that
are not finite either, without a warning: whoever reads them looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Moments:
    """Count, mean, central power sums and paired co-sums of a vector of samples.

    >>> m = Moments.of(np.array([[1.0], [2.0], [6.0]]))
    >>> m.count, m.mean.tolist(), m.variance.tolist()
    (3, [3.0], [7.0])
    """

    count: int
    mean: Floats
    sum2: Floats
    sum3: Floats
    sum4: Floats
    pairs: tuple[tuple[int, int], ...]
    cosum: Floats

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of(cls, samples: np.ndarray, pairs: tuple[tuple[int, int], ...] = ()) -> Moments:
        """Moments of samples with shape (count, components)."""
        values = np.asarray(samples, dtype=np.float64)
        mean = values.mean(axis=0) if len(values) else np.zeros(values.shape[1:])
        centred = values - mean
        square = centred * centred
        first, second = _columns(pairs)
        return cls(
            count=len(values),
            mean=mean,
            sum2=square.sum(axis=0),
            sum3=(square * centred).sum(axis=0),
            sum4=(square * square).sum(axis=0),
            pairs=pairs,
            cosum=(centred[:, first] * centred[:, second]).sum(axis=0),
        )

    @np.errstate(over="ignore", invalid="ignore")
    def merge(self, other: Moments) -> Moments:
        """Moments of the union of two disjoint sets of samples."""
        a, b = self.count, other.count
        n = a + b
        delta = other.mean - self.mean
        step = delta / max(n, 1)
        first, second = _columns(self.pairs)
        return Moments(
            count=n,
            mean=self.mean + b * step,
            sum2=self.sum2 + other.sum2 + a * b * delta * step,
            sum3=self.sum3
            + other.sum3
            + a * b * (a - b) * delta * step**2
            + 3 * step * (a * other.sum2 - b * self.sum2),
            sum4=self.sum4
            + other.sum4
            + a * b * (a * a - a * b + b * b) * delta * step**3
            + 6 * step**2 * (a * a * other.sum2 + b * b * self.sum2)
            + 4 * step * (a * other.sum3 - b * self.sum3),
            pairs=self.pairs,
            cosum=self.cosum + other.cosum + a * b * delta[first] * step[second],
        )

    @property
    def variance(self) -> Floats:
        """Unbiased sample variance of each component."""
        return self.sum2 / max(self.count - 1, 1)

    @property
    def covariance(self) -> Floats:
        """Unbiased sample covariance of each pair."""
        return self.cosum / max(self.count - 1, 1)

    @property
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def skewness(self) -> Floats:
        """Third standardised moment; 0 where nothing varies."""
        found = self.count**0.5 * self.sum3 / np.where(self.sum2 > 0, self.sum2, 1.0) ** 1.5
        return np.where(self.sum2 == 0, 0.0, np.nan_to_num(found, nan=np.inf))

    @property
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def kurtosis(self) -> Floats:
        """Fourth standardised moment: 3 for a Gaussian, 3 by convention where nothing varies.

        Where it cannot be worked out it is infinite, so that nobody takes such samples for light ones.
        """
        found = self.count * self.sum4 / np.where(self.sum2 > 0, self.sum2, 1.0) ** 2
        return np.where(self.sum2 == 0, 3.0, np.where(np.isfinite(found), found, np.inf))


def merge_all(parts: Iterable[Moments]) -> Moments:
    """Merge in the order given."""
    parts = iter(parts)
    total = next(parts)
    for part in parts:
        total = total.merge(part)
    return total


def _columns(pairs: tuple[tuple[int, int], ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    index = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return index[:, 0], index[:, 1]
