"""The groups of a fit, to be looked up by what their column holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.groups.units import lengths_of_groups, one_group_each


@dataclass(frozen=True, eq=False)
class KnownGroups:
    """The groups of a fit with their rows, as it integrated over their effects: enough to predict for them.

    `levels` are what their column holds, in order, and `units` the groups, of which `order` says at which place each
    is.
    """

    integral: Any
    units: Any
    levels: np.ndarray
    order: np.ndarray

    def places(self, values: np.ndarray) -> np.ndarray:
        """Where the units of these groups are; -1 of a group that is none of them."""
        found = np.minimum(np.searchsorted(self.levels, values), len(self.levels) - 1)
        return np.where(self.levels[found] == values, self.order[found], -1)

    def take(self, places: np.ndarray, length: int | None = None) -> Any:
        """The groups at these places, each a unit; those of bundles padded to a length, or to that of the longest."""
        return one_group_each(self.units, places, length or int(self.lengths(places).max()))

    def lengths(self, places: np.ndarray) -> np.ndarray:
        """How long the groups at these places are as units, where that differs; 0 of a new one."""
        return np.where(places < 0, 0, lengths_of_groups(self.units, places))
