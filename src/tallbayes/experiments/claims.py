"""What the page shows: claims of the paper with a verdict each, and figures with their captions."""

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


@dataclass(frozen=True)
class Shown:
    """A figure on the page."""

    name: str
    title: str
    svg: str
    caption: str
