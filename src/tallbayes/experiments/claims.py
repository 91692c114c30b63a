"""Claims of the paper, each with what was measured and a verdict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One row of the claims table."""

    where: str
    claim: str
    measured: str
    verdict: str
    figure: str
