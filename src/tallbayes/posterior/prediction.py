"""A prediction: by row and output its posterior mean and sd, and the Monte Carlo errors of each of the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import require_extra
from tallbayes.moments import Floats

if TYPE_CHECKING:
    import pandas

ARRAYS = ("mean", "sd", "standard_error", "bias_bound", "sd_standard_error", "sd_bias_bound")
SPREADS = ("sd", "error", "sd_error")


@dataclass(frozen=True, eq=False)
class Prediction:
    """Posterior expectations by row, or by row and class: of the response, of P(y = class), of P(y >= k).

    `sd` is that of the prediction over the posterior, noise of the response apart; `standard_error` and `bias_bound`
    are the Monte Carlo errors of `mean`, `sd_standard_error` and `sd_bias_bound` those of `sd`. `at_least` holds the
    same for P(y >= k), by k.
    """

    mean: Floats
    sd: Floats
    standard_error: Floats
    bias_bound: Floats
    sd_standard_error: Floats
    sd_bias_bound: Floats
    classes: tuple[str | int | bool, ...] | None = None
    at_least: Mapping[int, Prediction] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Sequence[Prediction]) -> Prediction:
        """Of the rows of all parts, in their order."""
        arrays: list[Any] = [np.concatenate([getattr(part, each) for part in parts]) for each in ARRAYS]
        return cls(*arrays)

    def outputs(self, places: int | slice) -> Prediction:
        """Of some of the outputs, which are columns."""
        return Prediction(*(getattr(self, each)[:, places] for each in ARRAYS))

    def scaled(self, factor: float, shift: float) -> Prediction:
        """Of shift + factor f."""
        mean, *others = (getattr(self, each) * factor for each in ARRAYS)
        return Prediction(mean + shift, *others)

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        return f"<tallbayes.Prediction of {len(self):,} rows>"

    @property
    def error(self) -> Floats:
        """sqrt(standard_error^2 + bias_bound^2)."""
        return np.hypot(self.standard_error, self.bias_bound)

    @property
    def sd_error(self) -> Floats:
        """sqrt(sd_standard_error^2 + sd_bias_bound^2)."""
        return np.hypot(self.sd_standard_error, self.sd_bias_bound)

    def columns(self) -> dict[str, Floats]:
        """By name, one array a column, as they are written to files: value, sd, and the error of each of the two."""
        whole = self.mean, self.sd, self.error, self.sd_error
        if self.mean.ndim == 1:
            parts = dict(zip(("prediction", *SPREADS), whole, strict=True))
        else:
            parts = {}
            for place, each in enumerate(self.classes or range(self.mean.shape[1])):
                names = (f"{name}({each})" for name in ("P", *SPREADS))
                parts |= dict(zip(names, (values[:, place] for values in whole), strict=True))
        for k, tail in self.at_least.items():
            names = (f"{name}(y>={k})" for name in ("P", *SPREADS))
            parts |= dict(zip(names, (tail.mean, tail.sd, tail.error, tail.sd_error), strict=True))
        return parts

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame of the columns."""
        return require_extra("pandas", "data", "data frames").DataFrame(self.columns())

    def __str__(self) -> str:
        from tallbayes.views.tables import predictions
        from tallbayes.views.text import laid_out

        shown = 10
        more = f"\n... and {len(self) - shown:,} more rows" if len(self) > shown else ""
        return laid_out("row", predictions(self, shown)) + more
