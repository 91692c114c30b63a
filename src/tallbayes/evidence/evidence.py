"""`Evidence`: the log marginal likelihood of a model as a value, with what it is known by.

interval = value +- (t_nu se + bias bound),   met: se^2 + bias bound^2 <= tolerance^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.estimator.estimates import Status


@dataclass(frozen=True)
class Evidence:
    """log p(y) of the response as the table has it, rows given all else.

    `interval` is of 95%. `laplace` is what the Gaussian at the mode alone would have said, `elbo` the lower bound by
    the Gaussian that draws are made about. `rows_read` counts the rows of all draws, in units where groups were
    integrated out. `efficiency` is the part of the draws that counts.

    >>> found = result.evidence(tolerance=0.1)  # of the example of `Result`
    >>> low, high = found.interval
    >>> bool(low < found.value < high), bool(found.elbo < high)
    (True, True)
    """

    value: float
    standard_error: float
    bias_bound: float
    interval: tuple[float, float]
    tolerance: float
    status: Status
    laplace: float
    elbo: float
    elbo_error: float
    draws: int
    rows_read: int
    num_rows: int
    parameters: int
    efficiency: float
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        return self.status is Status.converged

    @property
    def error(self) -> float:
        """Statistical error and bias bound together."""
        return float(np.hypot(self.standard_error, self.bias_bound))

    @property
    def passes(self) -> float:
        """Rows read, in passes over the table."""
        return self.rows_read / max(self.num_rows, 1)

    def plain(self) -> dict[str, Any]:
        """Numbers, text and lists, as JSON has them; None for what is not known."""
        names = [name for name in self.__dataclass_fields__ if name not in ("interval", "status", "notes")]
        found: dict[str, Any] = {name: _known(getattr(self, name)) for name in names}
        found["interval"] = [_known(end) for end in self.interval]
        return {**found, "status": self.status.name, "converged": self.converged, "notes": list(self.notes)}

    def __repr__(self) -> str:
        from tallbayes.views.evidence import headline

        return f"<tallbayes.Evidence: {headline(self)}, {self.status.name}>"

    def __str__(self) -> str:
        from tallbayes.views.evidence import evidence_text

        return evidence_text(self)

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)


def _known(number: float | int) -> float | int | None:
    return number if np.isfinite(number) else None
