"""The command line: `tallbayes ingest`, `fit`, `show`, `effects`, `predict`, `draws`, `simulate`, `report`,
`sensitivity`, `effect`, `slope`, `curve`, `evidence`, `loo`, `rank`, `reproduce`; also `python -m tallbayes`.

This file holds how a command is read and how it ends, `options` what may be asked and the exit codes (beside those,
141 where whoever read the output has gone), the other modules what is done.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import tallbayes
from tallbayes.commands.grammar import EXIT_CODES, Command, Option
from tallbayes.commands.options import COMMANDS
from tallbayes.errors import TallbayesError, explain

KEYWORDS = (
    "family|tolerance|relative_tolerance|absolute_tolerance|prior_scale|intercept_scale|group_scale|missing|unknown|weights|offset"
    "|noise_scale|degrees_of_freedom|level|interval_tolerance|seed|max_seconds|max_evaluations|method"
)

_Formatter = partial(argparse.RawDescriptionHelpFormatter, max_help_position=30)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except TallbayesError as error:
        return _refuse(2, in_options(str(error)))
    except KeyboardInterrupt:
        return _refuse(130, options.interrupted)
    except BrokenPipeError:
        # The interpreter would write to it once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _refuse(
            2, explain("files that can be read and written", str(error), "check paths, permissions and space")
        )
    except Exception as error:
        hint = "set TALLBAYES_TRACEBACK=1 to see where, and report it"
        return _refuse(1, f"a defect of tallbayes: {type(error).__name__}: {error}. Try: {hint}.")


def _refuse(code: int, message: str) -> int:
    if os.environ.get("TALLBAYES_TRACEBACK"):
        import traceback

        traceback.print_exc()
    print(f"tallbayes: {' '.join(message.split())}", file=sys.stderr)
    return code


def in_options(message: str) -> str:
    """A message of the library, with the names of options in place of the keywords of Python.

    >>> in_options("expected max_seconds > 0; got 0.0. Try: missing='drop'")
    'expected --max-seconds > 0; got 0.0. Try: --missing drop'
    """
    message = message.replace("family_options", "options").replace("tb.families.", "--family ")
    message = message.replace("overwrite=True", "--force").replace("columns=[...]", "--columns A,B,...")
    message = re.sub(rf"\b({KEYWORDS})=['\"]?([\w.]+)['\"]?", r"--\1 \2", message)
    message = re.sub(rf"(?<!-)\b({KEYWORDS})\b(?= >)", r"--\1", message)
    return re.sub(r"--\w+", lambda match: match[0].replace("_", "-"), message)


class _Version(argparse.Action):
    """Looked up when it is asked for: that takes as long as the whole of --help."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"tallbayes {tallbayes.__version__}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tallbayes",
        usage="tallbayes COMMAND ... | --version",
        description="Posterior expectations to a prescribed accuracy, for models of many rows.",
        epilog=EXIT_CODES,
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND ...", title="commands")
    for each in COMMANDS:
        command = commands.add_parser(
            each.name,
            help=each.help,
            usage=f"tallbayes {each.name} {each.usage}",
            description=each.description,
            epilog=each.epilog,
            formatter_class=_Formatter,
        )
        for title, options in each.options.items():
            _add(command.add_argument_group(title) if title else command, options)
        command.set_defaults(run=partial(_run, each), interrupted=each.interrupted)
    return parser


def _add(group: argparse._ActionsContainer, options: Sequence[Option | list[Option]]) -> None:
    for each in options:
        if isinstance(each, list):
            _add(group.add_mutually_exclusive_group(), each)
        else:
            group.add_argument(each.name, **each.facts)


def _run(command: Command, options: argparse.Namespace) -> int:
    return int(getattr(import_module(f"tallbayes.commands.{command.module}"), command.name)(options))
