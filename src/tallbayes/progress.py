"""Progress: error against target for the worst quantity, as a run goes on; it never changes the numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Progress:
    """A look at a run that is under way."""

    quantity: str
    error: float
    target: float
    levels: int
    samples: tuple[int, ...]
    evaluations: int
    seconds: float


Report = Callable[[Progress], None]


@contextmanager
def reporter(progress: bool | Report | None) -> Iterator[Report]:
    """The function to call with each Progress: the caller's own, a terminal display, or nothing."""
    if callable(progress):
        yield progress
    elif progress is False or not sys.stderr.isatty():
        yield lambda _: None
    else:
        yield from _terminal()


def _terminal() -> Iterator[Report]:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    with Live(console=console, transient=True, refresh_per_second=8) as live:
        yield lambda progress: live.update(_line(progress))


def _line(progress: Progress) -> Any:
    from rich.text import Text

    # The work left goes like (error / target)^2, so the bar shows the share of it that is done.
    share = min(1.0, (progress.target / progress.error) ** 2) if progress.error > 0 else 1.0
    done = round(16 * share)
    return Text.assemble(
        ("━" * done, "green"),
        ("━" * (16 - done), "grey37"),
        f" {progress.quantity} error {progress.error:.2g}, target {progress.target:.2g}"
        f" | {progress.seconds:.0f} s | {progress.levels} levels, {sum(progress.samples):,} paths",
        overflow="ellipsis",
        no_wrap=True,
    )
