"""The command line: `tallbayes reproduce [FIGURE ...]`. Help answers without importing JAX."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tallbayes.errors import TallbayesError

FIGURES = ("coupled-paths", "decay", "accuracy", "scaling", "slopes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 2 bad input, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except TallbayesError as error:
        print(f"tallbayes: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tallbayes: interrupted; what is finished is kept, the same command goes on from there", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tallbayes", description="Posterior expectations to a prescribed accuracy, for models of many rows."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's experiments",
        description="Run the experiments of the paper's section 4, draw its figures, and put them with a table of "
        "claims on one HTML page. A run that was interrupted picks up where it was.",
    )
    reproduce.add_argument("figures", nargs="*", metavar="FIGURE", help=f"any of {', '.join(FIGURES)}; all if none")
    reproduce.add_argument("--quick", action="store_true", help="about two minutes on two cores instead of thirty")
    reproduce.add_argument("--out", type=Path, help="folder for results, figures and index.html")
    reproduce.set_defaults(run=_reproduce)
    return parser


def _reproduce(options: argparse.Namespace) -> int:
    unknown = [name for name in options.figures if name not in FIGURES]
    if unknown:
        print(f"tallbayes: expected figures among {', '.join(FIGURES)}; got {', '.join(unknown)}.", file=sys.stderr)
        return 2
    from tallbayes.experiments.reproduce import reproduce

    folder = options.out or Path("reproduction-quick" if options.quick else "reproduction")
    started = time.monotonic()
    page = reproduce(options.figures, folder, options.quick, _teller(started))
    print(f"{page} ({time.monotonic() - started:.0f} s)")
    return 0


def _teller(started: float) -> Callable[[str], None]:
    def tell(line: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {line}", file=sys.stderr, flush=True)

    return tell
