"""The command line: `tallbayes ingest`, `fit`, `show`, `predict`, `report` and `reproduce`; also `python -m tallbayes`.

    0    done; of fit: converged
    1    a defect of ours: TALLBAYES_TRACEBACK=1 shows where
    2    bad input: nothing was written
    3    fit stopped early, or has doubts: what was computed is printed, and kept in --out
    130  Ctrl-C before there was anything to keep; after that of ingest the same command goes on
    141  whoever read the output has gone

This file holds what is asked and how it ends; `commands` what is done. Help answers without importing JAX or NumPy.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tallbayes.errors import TallbayesError, explain
from tallbayes.model.catalogue import CATALOGUE

FIGURES = ("coupled-paths", "decay", "accuracy", "scaling", "slopes")
KEYWORDS = (
    "family|tolerance|relative_tolerance|absolute_tolerance|prior_scale|intercept_scale|missing|weights|offset"
    "|noise_scale|degrees_of_freedom|interval_tolerance|seed|max_seconds|max_evaluations|method"
)

EXIT_CODES = """\
exit codes:
  0    done; of fit: every number met its tolerance
  1    a defect of tallbayes; TALLBAYES_TRACEBACK=1 shows where
  2    bad input; nothing was written
  3    fit stopped early, or has doubts: what was computed is printed, and kept in --out
  130  interrupted before there was anything to keep; after that of ingest the same command goes on
"""
INGEST_DESCRIPTION = """\
Rows of CSV, Parquet or Arrow files, any number of them with the same columns, as one table on disk: in random order,
ready to be mapped into memory, checked by its digest whenever it is opened. It is made once, in memory that does not
grow with the rows, and takes two to three times its own space on disk meanwhile.
"""
INGEST_EXAMPLE = """\
example:
  tallbayes ingest flights-2013.csv.gz 'more/*.parquet' --out flights.table
  tallbayes fit flights.table --formula "late ~ hour + C(carrier)" --tolerance 0.01 --out run1

After Ctrl-C, a full disk or a crash the same command goes on from where it was, in TABLE.partial; files that have
changed meanwhile are refused. Text becomes codes of its sorted levels; of numbers float32 is kept where it is enough.

"""
FIT_DESCRIPTION = """\
Posterior means and standard deviations of a regression, each to the accuracy you ask for, by the names of the
columns and in their units. Priors are normal, and stated per standard deviation of a column unless --raw is given.
"""
FIT_EXAMPLE = """\
example:
  tallbayes fit flights.parquet --formula "late ~ hour + C(carrier)" --tolerance 0.01 --out run1
  tallbayes show run1

Ctrl-C ends the sampling, and what was computed until then is printed and kept. After anything worse, tallbayes
resume RUN goes on from the last finished block of paths. Compiled programs are kept for the
next command in ~/.cache/tallbayes; TALLBAYES_CACHE names another folder, or none if it is empty.

"""

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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tallbayes",
        usage="tallbayes COMMAND ...",
        description="Posterior expectations to a prescribed accuracy, for models of many rows.",
        epilog=EXIT_CODES,
        formatter_class=_Formatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND ...", title="commands")
    _add_ingest(commands)
    _add_fit(commands)
    _add_resume(commands)
    _add_show(commands)
    _add_predict(commands)
    _add_report(commands)
    _add_reproduce(commands)
    return parser


def _add_ingest(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ingest = commands.add_parser(
        "ingest",
        help="make a table on disk of files, once",
        usage="tallbayes ingest FILES... --out TABLE [--columns A,B,C] [--force] [--quiet]",
        description=INGEST_DESCRIPTION,
        epilog=INGEST_EXAMPLE + EXIT_CODES,
        formatter_class=_Formatter,
    )
    ingest.add_argument(
        "files", nargs="+", metavar="FILES", help=".csv, .tsv, .csv.gz, .parquet or .arrow; folders and patterns too"
    )
    ingest.add_argument("--out", type=Path, required=True, metavar="TABLE", help="the folder of the table")
    ingest.add_argument("--columns", metavar="A,B,C", help="the columns to keep; default all")
    ingest.add_argument("--force", action="store_true", help="replace an older table, or an unfinished one of others")
    ingest.add_argument("--quiet", action="store_true", help="no progress and no remarks on stderr")
    ingest.set_defaults(run=_ingest, interrupted="interrupted; the same command goes on from where it was")


def _add_fit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    fit = commands.add_parser(
        "fit",
        help="fit a regression to a table, by a formula",
        usage="tallbayes fit DATA --formula FORMULA [--family FAMILY] [--tolerance X] [--out RUN] [options]",
        description=FIT_DESCRIPTION,
        epilog=FIT_EXAMPLE + EXIT_CODES,
        formatter_class=_Formatter,
    )
    fit.add_argument("data", type=Path, metavar="DATA", help="a .csv, .tsv, .parquet or .arrow file; .csv.gz too")
    _add_model_options(fit.add_argument_group("model"))
    _add_accuracy_options(fit.add_argument_group("accuracy, one of these"))
    _add_sampling_options(fit.add_argument_group("sampling"))
    output = fit.add_argument_group("output")
    output.add_argument(
        "--out", type=Path, metavar="RUN", help="keep the result in this new folder; else only print it"
    )
    output.add_argument("--force", action="store_true", help="replace an older run in --out")
    _add_output_options(output)
    output.add_argument("--quiet", action="store_true", help="no progress and no remarks on stderr")
    fit.set_defaults(run=_fit, interrupted="interrupted before there was anything to keep")


def _add_resume(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    resume = commands.add_parser(
        "resume",
        help="go on with a run, or make it more accurate",
        usage="tallbayes resume RUN [--tolerance X] [options]",
        description="Go on with a run that was stopped, at whatever instant and by whatever it was: what is on record "
        "is not computed again, and the answer is the same to the last bit. With another accuracy a finished run is "
        "made more accurate, and only the difference is paid.",
        epilog="example:\n  tallbayes resume run1\n  tallbayes resume run1 --tolerance 0.005\n\n" + EXIT_CODES,
        formatter_class=_Formatter,
    )
    resume.add_argument("folder", type=Path, metavar="RUN", help="what was given to --out of fit")
    _add_accuracy_options(resume.add_argument_group("accuracy, if it is to change"))
    sampling = resume.add_argument_group("sampling")
    _add_budget_options(sampling)
    sampling.add_argument(
        "--merge",
        type=Path,
        action="append",
        metavar="OTHER",
        help="first take over the blocks of another run or ledger of the same problem; may be repeated",
    )
    output = resume.add_argument_group("output")
    _add_output_options(output)
    output.add_argument("--quiet", action="store_true", help="no progress and no remarks on stderr")
    resume.set_defaults(run=_resume, interrupted="interrupted; the same command goes on from there")


def _add_model_options(model: argparse._ArgumentGroup) -> None:
    model.add_argument("--formula", required=True, help='such as "late ~ hour + C(carrier)"')
    model.add_argument("--family", default="logistic", help=f"{', '.join(CATALOGUE)}; default logistic")
    model.add_argument(
        "--prior-scale", type=float, default=1.0, metavar="S", help="coefficients ~ N(0, S^2); default 1, inf is flat"
    )
    model.add_argument(
        "--intercept-scale", type=float, default=10.0, metavar="S", help="intercept ~ N(0, S^2); default 10"
    )
    model.add_argument("--raw", action="store_true", help="state priors for columns as they are, not standardised")
    model.add_argument(
        "--missing", choices=("error", "drop"), default="error", help="rows with missing values; default error"
    )
    model.add_argument("--weights", metavar="COLUMN", help="how many equal rows each row stands for")
    model.add_argument("--offset", metavar="COLUMN", help="added to the linear predictor, such as a log exposure")
    model.add_argument(
        "--noise-scale", type=float, metavar="S", help="linear, student_t: known, in the response's units"
    )
    model.add_argument("--degrees-of-freedom", type=float, metavar="NU", help="student_t only; default 4")


def _add_accuracy_options(group: argparse._ArgumentGroup) -> None:
    accuracy = group.add_mutually_exclusive_group()
    accuracy.add_argument("--tolerance", type=float, metavar="X", help="error in posterior sds; default 0.01")
    accuracy.add_argument("--relative-tolerance", type=float, metavar="X", help="error as a fraction of each number")
    accuracy.add_argument("--absolute-tolerance", type=float, metavar="X", help="error in the number's own units")
    group.add_argument(
        "--interval-tolerance", type=float, metavar="X", help="of interval ends too, in posterior sds; dearer"
    )


def _add_sampling_options(sampling: argparse._ArgumentGroup) -> None:
    sampling.add_argument(
        "--seed", type=int, default=0, metavar="K", help="the same seed gives the same numbers; default 0"
    )
    _add_budget_options(sampling)
    sampling.add_argument(
        "--method",
        choices=("anchored", "randomised"),
        default="anchored",
        help="default anchored; randomised is unbiased, and dearer",
    )


def _add_budget_options(sampling: argparse._ArgumentGroup) -> None:
    sampling.add_argument("--max-seconds", type=float, metavar="T", help="end by then, reading and set-up included")
    sampling.add_argument("--max-evaluations", type=float, metavar="N", help="stop at so many row gradients")
    sampling.add_argument(
        "--dask", metavar="ADDRESS", help="run on the workers of a dask cluster, such as tcp://10.0.0.1:8786"
    )


def _add_show(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    show = commands.add_parser(
        "show",
        help="print what fit has kept",
        usage="tallbayes show RUN [--full | --json]",
        description="Print the result of a run: the folder given to --out of fit, or a file of result.save.",
        epilog="example:\n  tallbayes show run1 --full\n",
        formatter_class=_Formatter,
    )
    show.add_argument("folder", type=Path, metavar="RUN", help="a folder of fit, or a result file")
    _add_output_options(show)
    show.set_defaults(run=_show, interrupted="interrupted")


def _add_predict(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    predict = commands.add_parser(
        "predict",
        help="predict the response of new rows",
        usage="tallbayes predict RUN NEWDATA [--out FILE] [options]",
        description="Posterior means of the response (probabilities, where it is a class), their posterior standard "
        "deviations and Monte Carlo errors, for rows without a response. They are read and written a batch at a time.",
        epilog="example:\n  tallbayes predict run1 tomorrow.parquet --out predictions.parquet\n",
        formatter_class=_Formatter,
    )
    predict.add_argument("folder", type=Path, metavar="RUN", help="a folder of fit, or a result file")
    predict.add_argument("data", type=Path, metavar="NEWDATA", help="a .csv, .tsv, .parquet or .arrow file")
    predict.add_argument("--out", type=Path, metavar="FILE", help="a .csv or .parquet file; else CSV is printed")
    predict.add_argument("--force", action="store_true", help="replace --out if it exists")
    predict.add_argument("--at-least", type=int, nargs="+", metavar="K", help="counts: P(y >= K) too")
    predict.add_argument("--offset", metavar="COLUMN", help="that of the new rows, if it is not that of the fit")
    predict.set_defaults(run=_predict, interrupted="interrupted; nothing was kept")


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser(
        "report",
        help="write a page that shows a run",
        usage="tallbayes report RUN [--out PAGE] [--title TEXT]",
        description="One HTML page that needs nothing else: the answer, how sure it is, and what it cost.",
        epilog="example:\n  tallbayes report run1 --out flights.html\n",
        formatter_class=_Formatter,
    )
    report.add_argument("folder", type=Path, metavar="RUN", help="a folder of fit, or a result file")
    report.add_argument("--out", type=Path, metavar="PAGE", help="default RUN/report.html, or beside the result file")
    report.add_argument("--title", metavar="TEXT", help="the page's heading")
    report.set_defaults(run=_report, interrupted="interrupted")


def _add_output_options(group: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    form = group.add_mutually_exclusive_group()
    form.add_argument("--full", action="store_true", help="print levels, rates and tuning too")
    form.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def _add_reproduce(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's experiments",
        description="Run the experiments of the paper's section 4, draw its figures, and put them with a table of "
        "claims on one HTML page. A run that was interrupted picks up where it was.",
    )
    reproduce.add_argument("figures", nargs="*", metavar="FIGURE", help=f"any of {', '.join(FIGURES)}; all if none")
    reproduce.add_argument("--quick", action="store_true", help="about two minutes on two cores instead of thirty")
    reproduce.add_argument("--out", type=Path, help="folder for results, figures and index.html")
    message = "interrupted; what is finished is kept, the same command goes on from there"
    reproduce.set_defaults(run=_reproduce, interrupted=message)


def _ingest(options: argparse.Namespace) -> int:
    from tallbayes.commands.ingest import ingest

    return ingest(options)


def _fit(options: argparse.Namespace) -> int:
    from tallbayes.commands.commands import fit

    return fit(options)


def _resume(options: argparse.Namespace) -> int:
    from tallbayes.commands.commands import resume

    return resume(options)


def _show(options: argparse.Namespace) -> int:
    from tallbayes.commands.commands import show

    return show(options)


def _predict(options: argparse.Namespace) -> int:
    from tallbayes.commands.commands import predict

    return predict(options)


def _report(options: argparse.Namespace) -> int:
    from tallbayes.commands.commands import report

    return report(options)


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
