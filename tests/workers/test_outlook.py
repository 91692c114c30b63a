"""What is foretold: long blocks that are sure to be wanted go first."""

from __future__ import annotations

import numpy as np

from tests.workers.test_dispatch import Foretold, Virtual, dispatcher


def begun(executor: Virtual) -> list[int]:
    return [level for level, _ in dict.fromkeys(executor.submitted)]


def test_long_blocks_that_are_sure_to_be_wanted_go_before_short_ones_that_are():
    """Of level 3, eight times as long as level 0, 9 more will be wanted: with much to do they wait, with little
    they begin at once. The control is where nothing is foretold."""
    outlook = Foretold([0.0, 0.0, 0.0, 10.0], (0.0, 0.0, 0.0, 10.0))
    first, orders = [(level, range(1)) for level in range(4)], {}
    for number, told in ((40, outlook), (40_000, outlook), (40, None)):
        executor = Virtual(4, lambda level, index, attempt: 2.0**level)
        this = dispatcher(executor, late=np.inf)
        list(this.collect(first))
        before = len(begun(executor))
        handed = this.collect([(0, range(1, number))], told)
        for _ in range(20):
            next(handed)
        orders[number, told] = begun(executor)[before:]
    assert orders[40, outlook][:9] == [3] * 9
    assert 3 not in orders[40_000, outlook]
    assert 3 not in orders[40, None]
