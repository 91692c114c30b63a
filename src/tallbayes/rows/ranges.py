"""Ranges: least, largest, mean and spread of numbers that come in blocks of rows, and whether float32 holds them.

    mean, squares of two blocks:  m = m_a + (m_b - m_a) n_b / n,   s = s_a + s_b + (m_b - m_a)^2 n_a n_b / n

Deviations are from the first row, so that an entry that never changes has a spread of exactly zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


def _nothing() -> np.ndarray:
    return np.zeros(0)


@dataclass
class Ranges:
    """Of every entry of a row: over the `count` rows so far."""

    count: int = 0
    least: np.ndarray = field(default_factory=_nothing)
    largest: np.ndarray = field(default_factory=_nothing)
    origin: np.ndarray = field(default_factory=_nothing)
    mean: np.ndarray = field(default_factory=_nothing)
    squares: np.ndarray = field(default_factory=_nothing)

    def add(self, block: np.ndarray) -> None:
        """A block (rows, entries) of finite numbers."""
        if not len(block):
            return
        least, largest = block.min(axis=0).astype(np.float64), block.max(axis=0).astype(np.float64)
        if not self.count:
            self.origin = block[0].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = block - self.origin
            mean = deviation.mean(axis=0)
            deviation -= mean
            squares = np.square(deviation, out=deviation).sum(axis=0)
            if not self.count:
                self.least, self.largest, self.mean, self.squares = least, largest, mean, squares
            else:
                share, apart = len(block) / (self.count + len(block)), mean - self.mean
                self.least, self.largest = np.minimum(self.least, least), np.maximum(self.largest, largest)
                self.squares = self.squares + squares + apart**2 * self.count * share
                self.mean = self.mean + apart * share
        self.count += len(block)

    @property
    def size(self) -> np.ndarray:
        return np.maximum(np.abs(self.least), np.abs(self.largest))

    def needs_float64(self) -> bool:
        """By the rule of `table.needs_float64`: blurred by more than 1e-4 of the spread, or squares out of range."""
        with np.errstate(over="ignore", invalid="ignore"):
            size, spread = self.size, np.sqrt(self.squares / max(self.count, 1))
            blur = (spread > 0) & (size * 2.0**-24 > 1e-4 * spread)
            return bool(np.any(blur | ((size > 0) & ((size < 1e-12) | (size > 1e12)))))

    def to_json(self) -> dict[str, Any]:
        return {name: value if name == "count" else value.tolist() for name, value in vars(self).items()}

    @staticmethod
    def from_json(found: dict[str, Any]) -> Ranges:
        return Ranges(found["count"], *(np.array(found[name]) for name in _ENTRIES))


_ENTRIES = ("least", "largest", "origin", "mean", "squares")
