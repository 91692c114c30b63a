"""What is known of a run so far, part by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import Expansion
from tallbayes.anchor.mode import anchor_at
from tallbayes.estimator.decisions import Decision
from tallbayes.estimator.estimands import Estimands, GaussianLevel, Quantity
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.setup.preparation import Placed, Prepared
from tallbayes.setup.record import Search


@dataclass(eq=False)
class Known:
    """What a run has found so far: each part is kept as soon as it is there, in case that the run ends before the next.

    `point` is the best expansion on the way to the mode, over `point_rows` rows. `centred` says that set-up is whole.
    """

    target: Target | None = None
    start: Floats | None = None
    num_rows: int = 0
    quantities: tuple[Quantity, ...] = ()
    placed: Placed | None = None
    point: Expansion | None = field(default=None)
    point_rows: int = 0
    prepared: Prepared | None = None
    search: Search | None = None
    centred: bool = False
    estimands: Estimands | None = None
    laplace: GaussianLevel | None = None
    evaluations: int = 0
    seconds: float = 0.0
    # Of a day among others: how paths ran on the day before, and how the means of a control are drawn; the row
    # gradients beyond which it is begun about another centre sooner than ended.
    decision: Decision | None = None
    most: float = np.inf
    guide: Callable[..., Prepared] | None = None

    def saw(self, here: Expansion, rows: int) -> None:
        """Keep a point of the climb if it is better than the one before: of more rows, or higher."""
        if not (np.isfinite(here.value) and np.isfinite(here.theta).all()):
            return
        if self.point is None or (rows, here.value) > (self.point_rows, self.point.value):
            self.point, self.point_rows = here, rows

    @property
    def anchor(self) -> Anchor | None:
        """The mode's, or that of the best point so far where the log posterior is curved downwards all around it."""
        if self.prepared is not None:
            return self.prepared.anchor
        if self.point is None or self.placed is None or not self.point.is_curved or not self.point.is_finite:
            return None
        found = anchor_at(self.point, 0.0, self.placed.table.num_rows)
        try:
            proper = bool(found.is_proper and np.isfinite(found.whitening).all())
        except np.linalg.LinAlgError:
            return None
        return found if proper else None
