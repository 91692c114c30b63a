"""An evidence as text: the number, how sure it is, what a Gaussian would have said, and what it cost."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from tallbayes.views.numbers import figures, rounded, with_error

# Of the tolerance: an error that is shown is no smaller.
LEAST_SHOWN = 0.01

if TYPE_CHECKING:
    from tallbayes.evidence.evidence import Evidence


def headline(found: Evidence) -> str:
    """The number with its error; marked where that is not what was asked for."""
    value, error = figures(found.value, _shown_error(found), not found.converged)
    return f"log evidence {value} ± {error}"


def evidence_text(found: Evidence) -> str:
    """A few lines."""
    lower, upper = (rounded(end, _shown_error(found)) for end in found.interval)
    lines = [f"{headline(found)}, 95%: {lower} to {upper}", _status(found)]
    lines += [f"  {name:<26}{text}" for name, text in _beside(found)]
    unit = f"{found.draws:,} draws of {found.num_rows:,} rows, {found.rows_read:,} rows read in all"
    lines.append(f"  {'cost':<26}{unit}; {found.seconds:.2g} s")
    return "\n".join([*lines, *(f"  note: {each}" for each in found.notes)])


def evidence_facts(found: Evidence) -> list[tuple[str, str]]:
    """The same by name, for a page."""
    lower, upper = (rounded(end, _shown_error(found)) for end in found.interval)
    own = [("log evidence", headline(found).removeprefix("log evidence ")), ("95% interval", f"{lower} to {upper}")]
    return [*own, ("status", _status(found)), *_beside(found)]


def _shown_error(found: Evidence) -> float:
    """No more digits than anybody has a use for."""
    return max(found.error, LEAST_SHOWN * found.tolerance)


def _status(found: Evidence) -> str:
    if found.converged:
        return f"converged: its error is within the tolerance of {found.tolerance:g} nat"
    return f"not within the tolerance of {found.tolerance:g} nat: {found.status}"


def _beside(found: Evidence) -> list[tuple[str, str]]:
    lines = []
    if isfinite(found.laplace):
        error = _shown_error(found)
        off = rounded(found.laplace - found.value, error)
        lines.append(("Laplace at the mode", f"{rounded(found.laplace, error)}, off by {off}"))
    if isfinite(found.elbo):
        lines.append(
            ("bound by a Gaussian", with_error(found.elbo, max(found.elbo_error, LEAST_SHOWN * found.tolerance)))
        )
    return lines
