"""Groups as text: the effects that are the farthest apart, how strongly all are drawn together, and shares of variance.

    school: 5 lowest and highest of 1,000

    school    rows    raw mean    mean    error      sd    error     2.5%    error    97.5%   error
    s17         12       0.083   -1.62    0.011    0.51   0.0072    -2.69    0.031    -0.68   0.028

A number is given to the second digit of its error, which stands beside it; a raw mean is counted, and has none.
"""

from __future__ import annotations

from tallbayes.results.groups.effects import Effects
from tallbayes.results.groups.partition import VariancePartition
from tallbayes.views.numbers import with_error
from tallbayes.views.tables import effects, partition
from tallbayes.views.text import listed, paired

WIDTH = 100
ABOUT_ERRORS = ("error", "of the number to its left: Monte Carlo, root mean square, remaining bias included")


def effects_text(found: Effects) -> str:
    """Every effect of the groups by one factor, under a line that says how many there are."""
    facts = [*about_effects(found), ABOUT_ERRORS]
    return "\n\n".join([*effect_tables(found), listed(facts, WIDTH)])


def effect_tables(found: Effects) -> list[str]:
    """One for every effect, the lowest and the highest."""
    parts = []
    for place in range(len(found.names)):
        head, grid = effects(found, place)
        parts.append(f"{head}\n\n{paired(found.by, grid)}")
    return parts


def about_effects(found: Effects) -> list[tuple[str, str]]:
    """What the columns are, and how strongly effects are drawn together, each under a word."""
    raw = "of the response over the group's own rows" if found.has_raw else ""
    kept = [
        f"{with_error(*found.usual_kept(place))}{f' ({name})' if len(found.names) > 1 else ''}"
        for place, name in enumerate(found.names)
    ]
    drawn = (
        "of a group's effect, on the scale of the linear predictor: its rows draw it away from 0, the other groups "
        f"back; of the variance between groups {', '.join(kept)} is kept in the median group (1 is all, 0 none)"
    )
    return [("raw mean", raw), ("mean", drawn)] if raw else [("mean", drawn)]


def partition_text(found: VariancePartition) -> str:
    """Shares of variance with their intervals."""
    return "\n\n".join([partition_table(found), listed([about_partition(found), ABOUT_ERRORS], WIDTH)])


def partition_table(found: VariancePartition) -> str:
    return paired("variance of", partition(found))


def about_partition(found: VariancePartition) -> tuple[str, str]:
    words = "of the variance of a row about its mean, on the scale of the linear predictor"
    return "share", f"{words}; the residual is {found.residual}"
