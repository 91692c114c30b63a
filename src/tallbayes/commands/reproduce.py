"""The command `reproduce`: the paper's experiments, told on stderr as they go."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tallbayes.commands.options import FIGURES


def reproduce(options: argparse.Namespace) -> int:
    """Run what was not run before, and write the page."""
    unknown = [name for name in options.figures if name not in FIGURES]
    if unknown:
        print(f"tallbayes: expected figures among {', '.join(FIGURES)}; got {', '.join(unknown)}.", file=sys.stderr)
        return 2
    from tallbayes.experiments.reproduce import reproduce as run_experiments

    folder = options.out or Path("reproduction-quick" if options.quick else "reproduction")
    started = time.monotonic()
    page = run_experiments(options.figures, folder, options.quick, _teller(started))
    print(f"{page} ({time.monotonic() - started:.0f} s)")
    return 0


def _teller(started: float) -> Callable[[str], None]:
    def tell(line: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {line}", file=sys.stderr, flush=True)

    return tell
