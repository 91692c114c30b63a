"""What can be asked on the command line: every command, its words and its options, each written once.

A command is done by the function of its own name in its module, which is not imported before that: help answers
without JAX and NumPy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tallbayes.model.catalogue import CATALOGUE

FIGURES = ("coupled-paths", "decay", "accuracy", "scaling", "slopes")

EXIT_CODES = """\
exit codes:
  0    done; of fit and resume: every mean and sd met its tolerance, and so did every interval end if
       --interval-tolerance was given; without it ends that err by more than 0.1 sd are marked ~
  1    a defect of tallbayes; TALLBAYES_TRACEBACK=1 shows where
  2    bad input; nothing was written
  3    fit or resume stopped early, has doubts, or missed a tolerance that was asked for: the first line says
       which; what was computed is printed, and kept in --out. Of a run that is kept, show and report are 0; evidence
       is 3 where it misses its own
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
The number of each row in its files is kept too, and predictions of the table come in their order.

"""
PREDICT_DESCRIPTION = """\
Posterior means of the response (probabilities, where it is a class) for rows without one, their posterior standard
deviations (sd) and the Monte Carlo errors of both; then the standard deviation and an interval of a new observation,
which adds the noise of the response. Column row is a row's number in NEWDATA, counted from 0: in that of the files it
was made of, if it is a table of ingest. Rows are read and written a batch at a time.
"""
FIT_DESCRIPTION = """\
Posterior means and standard deviations of a regression, each to the accuracy you ask for, by the names of the
columns and in their units. Priors are normal, and stated per standard deviation of a column of
numbers, and for levels of categories as they are.
"""
FIT_EXAMPLE = """\
example:
  tallbayes fit flights.parquet --formula "late ~ hour + C(carrier)" --tolerance 0.01 --out run1
  tallbayes show run1

Ctrl-C ends the sampling, and what was computed until then is printed and kept. After anything worse, tallbayes
resume RUN goes on from the last finished block of paths. Compiled programs are kept for the
next command in ~/.cache/tallbayes; TALLBAYES_CACHE names another folder, or none if it is empty.

"""


class Option(NamedTuple):
    """An option or an argument, and what argparse is told of it."""

    name: str
    facts: dict[str, Any]


class Command(NamedTuple):
    """A command: options by the title they stand under (of those in a list one may be given at most), and what is
    said when it is interrupted."""

    name: str
    help: str
    usage: str
    description: str
    epilog: str
    options: dict[str, tuple[Option | list[Option], ...]]
    interrupted: str = "interrupted"
    module: str = "commands"


def _option(name: str, help: str, metavar: str | None = None, **facts: Any) -> Option:
    return Option(name, {"help": help, "metavar": metavar, **facts})


def _number(name: str, help: str, metavar: str = "X", **facts: Any) -> Option:
    return _option(name, help, metavar, type=float, **facts)


def _path(name: str, help: str, metavar: str | None = None, **facts: Any) -> Option:
    return _option(name, help, metavar, type=Path, **facts)


def _flag(name: str, help: str) -> Option:
    return Option(name, {"help": help, "action": "store_true"})


def _choice(name: str, help: str, *choices: str) -> Option:
    """The first is the default."""
    return Option(name, {"help": help, "choices": choices, "default": choices[0]})


RUN = _path("folder", "a folder of fit, or a result file", "RUN")
FORM = [
    _flag("--full", "print levels, rates and tuning too"),
    _flag("--json", "print one JSON document instead of text"),
]
QUIET = _flag("--quiet", "no progress and no remarks on stderr")
ACCURACY = (
    [
        _number("--tolerance", "error in posterior sds; default 0.01"),
        _number("--relative-tolerance", "error as a fraction of each number"),
        _number("--absolute-tolerance", "error in the number's own units"),
    ],
    _number(
        "--interval-tolerance", "of interval ends too, in posterior sds; dearer; else those off by > 0.1 are marked ~"
    ),
)
BUDGET = (
    _number("--max-seconds", "end by then, reading and set-up included", "T"),
    _number("--max-evaluations", "stop at so many row gradients", "N"),
    _option("--dask", "run on the workers of a dask cluster, such as tcp://10.0.0.1:8786", "ADDRESS"),
)
MODEL = (
    _option("--formula", 'such as "late ~ hour + C(carrier)", or "late ~ hour + (1 | carrier)"', required=True),
    _option("--family", f"{', '.join(CATALOGUE)}; default logistic; names of R and brms too", default="logistic"),
    _number("--prior-scale", "coefficients ~ N(0, S^2); default 1, inf is flat", "S", default=1.0),
    _number("--intercept-scale", "intercept ~ N(0, S^2); default 10", "S", default=10.0),
    _number("--group-scale", "scales of group effects ~ half-normal(S); default 1", "S", default=1.0),
    _flag("--raw", "state priors for columns as they are, not standardised"),
    _choice("--standardise", "columns of numbers, the default, or levels of categories too", "numbers", "all"),
    _choice("--missing", "rows with missing values; default error", "error", "drop"),
    _option("--weights", "how many equal rows each row stands for", "COLUMN"),
    _option("--offset", "added to the linear predictor, such as a log exposure", "COLUMN"),
    _number("--noise-scale", "linear, student_t: known, in the response's units", "S"),
    _number("--degrees-of-freedom", "student_t only; default 4", "NU"),
)

INGEST = Command(
    "ingest",
    help="make a table on disk of files, once",
    usage="FILES... --out TABLE [--columns A,B,C] [--force] [--quiet]",
    description=INGEST_DESCRIPTION,
    epilog=INGEST_EXAMPLE + EXIT_CODES,
    options={
        "": (
            _option("files", ".csv, .tsv, .csv.gz, .parquet or .arrow; folders and patterns too", "FILES", nargs="+"),
            _path("--out", "the folder of the table", "TABLE", required=True),
            _option("--columns", "the columns to keep; default all", "A,B,C"),
            _flag("--force", "replace an older table, or an unfinished one of others"),
            QUIET,
        )
    },
    interrupted="interrupted; the same command goes on from where it was",
    module="ingest",
)
FIT = Command(
    "fit",
    help="fit a regression to a table, by a formula",
    usage="DATA --formula FORMULA [--family FAMILY] [--tolerance X] [--out RUN] [options]",
    description=FIT_DESCRIPTION,
    epilog=FIT_EXAMPLE + EXIT_CODES,
    options={
        "": (_path("data", "a .csv, .tsv, .parquet or .arrow file; .csv.gz too", "DATA"),),
        "model": MODEL,
        "accuracy, one of these": ACCURACY,
        "sampling": (
            _option("--seed", "the same seed gives the same numbers; default 0", "K", type=int, default=0),
            *BUDGET,
            _choice(
                "--method",
                "default anchored; randomised is unbiased, and dearer",
                "anchored",
                "randomised",
            ),
        ),
        "output": (
            _path("--out", "keep the result in this new folder; else only print it", "RUN"),
            _flag("--force", "replace an older run in --out"),
            FORM,
            QUIET,
        ),
    },
    interrupted="interrupted before there was anything to keep",
)
RESUME = Command(
    "resume",
    help="go on with a run, or make it more accurate",
    usage="RUN [--tolerance X] [options]",
    description="Go on with a run that was stopped, at whatever instant and by whatever it was: what is on record "
    "is not computed again, and the answer is the same to the last bit. With another accuracy a finished run is "
    "made more accurate, and only the difference is paid.",
    epilog="example:\n  tallbayes resume run1\n  tallbayes resume run1 --tolerance 0.005\n\n" + EXIT_CODES,
    options={
        "": (_path("folder", "what was given to --out of fit", "RUN"),),
        "accuracy, if it is to change": ACCURACY,
        "sampling": (
            *BUDGET,
            _path(
                "--merge",
                "first take over the blocks of another run or ledger of the same problem; may be repeated",
                "OTHER",
                action="append",
            ),
        ),
        "output": (FORM, QUIET),
    },
    interrupted="interrupted; the same command goes on from there",
)
SHOW = Command(
    "show",
    help="print what fit has kept",
    usage="RUN [--full | --json]",
    description="Print the result of a run: the folder given to --out of fit, or a file of result.save.",
    epilog="example:\n  tallbayes show run1 --full\n",
    options={"": (RUN, FORM)},
)
EFFECTS = Command(
    "effects",
    help="write the effects of all groups",
    usage="RUN [--by FACTOR] [--out FILE] [--force]",
    description="Mean, sd and 95% interval of the effect of every group of a mixed model, each number with its Monte "
    "Carlo error, beside the rows of the group and the plain mean of their response (raw).",
    epilog="example:\n  tallbayes effects run1 --by school --out effects.parquet\n",
    options={
        "": (
            RUN,
            _option("--by", "the factor, where there are several", "FACTOR"),
            _path("--out", "a .csv, .parquet or .arrow file; else CSV is printed", "FILE"),
            _flag("--force", "replace --out if it exists"),
        )
    },
    module="effects",
)
LOO = Command(
    "loo",
    help="how well a run foretells each row from the others",
    usage="RUN [--pointwise FILE] [--tolerance X] [--json]",
    description="Leave-one-out from the one fit: the expected log predictive density of a row that was not fitted, "
    "summed over rows, with its sampling error and, apart, its Monte Carlo error; the rows that matter most. The "
    "table is read again from where fit found it. Of a mixed model whole groups are left out.",
    epilog="example:\n  tallbayes loo run1 --pointwise rows.parquet\n",
    options={
        "": (
            RUN,
            _path("--pointwise", "every row's own, into a .csv, .parquet or .arrow file", "FILE"),
            _number("--tolerance", "Monte Carlo error in sampling errors; default 0.01", default=0.01),
            _flag("--force", "replace --pointwise if it exists"),
            _flag("--json", "print one JSON document instead of text"),
        )
    },
    module="leave_one_out",
)
RANK = Command(
    "rank",
    help="say which of several runs is the best",
    usage="RUN RUN ... [--by loo|evidence] [--json]",
    description="Runs for the same rows side by side, the best first: differences of leave-one-out, whose sampling "
    "error is that of the difference, or of log evidence. Runs of other rows or another response are refused.",
    epilog="example:\n  tallbayes rank run1 run2 run3\n",
    options={
        "": (
            _path("folders", "folders of fit", "RUN", nargs="+"),
            _choice("--by", "what to compare", "loo", "evidence"),
            _number("--tolerance", "Monte Carlo error in sampling errors; default 0.01", default=0.01),
            _flag("--json", "print one JSON document instead of text"),
        )
    },
    module="leave_one_out",
)
EVIDENCE = Command(
    "evidence",
    help="the log marginal likelihood of a run",
    usage="RUN [--tolerance X] [--json]",
    description="The log marginal likelihood log p(y) of a run, with all constants, and its 95% interval; beside it "
    "what the Gaussian at the mode would have said, and the bound by a Gaussian. It reads the run's table.",
    epilog="example:\n  tallbayes evidence run1 --tolerance 0.01\n\n" + EXIT_CODES,
    options={
        "": (
            RUN,
            _number("--tolerance", "error in nats; default 0.01", default=0.01),
            _flag("--json", "print one JSON document instead of text"),
        )
    },
    module="evidence",
)
PREDICT = Command(
    "predict",
    help="predict the response of new rows",
    usage="RUN NEWDATA [--out FILE] [options]",
    description=PREDICT_DESCRIPTION,
    epilog="example:\n  tallbayes predict run1 tomorrow.parquet --out predictions.parquet --keep id --missing nan\n",
    options={
        "": (
            RUN,
            _path("data", "a .csv, .tsv, .parquet or .arrow file, or a table of ingest", "NEWDATA"),
            _path("--out", "a .csv, .parquet or .arrow file; else CSV is printed", "FILE"),
            _flag("--force", "replace --out if it exists"),
            _option("--keep", "columns of NEWDATA to write too; may be repeated", "A,B,...", action="append"),
            _choice("--missing", "rows with missing values; default error, nan predicts NaN", "error", "nan"),
            _choice("--unknown", "rows with categories that the fit does not know; the same", "error", "nan"),
            _number("--interval", "of a new observation; default 0.95, 0 for none", "P", default=0.95),
            _option("--at-least", "counts: P(y >= K) too", "K", type=int, nargs="+"),
            _option("--offset", "that of the new rows, if it is not that of the fit", "COLUMN"),
        )
    },
    interrupted="interrupted; nothing was kept",
)
DRAWS = Command(
    "draws",
    help="write independent draws of the parameters",
    usage="RUN --out FILE [--count N] [--seed S] [--effects] [--force]",
    description="Independent draws from the posterior of a run, a row a draw and a column a parameter. They are ends "
    "of paths, as many as are asked for where the table of the run is in its place; what their law is off by is told.",
    epilog="example:\n  tallbayes draws run1 --out draws.parquet --count 4000\n",
    options={
        "": (
            RUN,
            _path("--out", "a .csv, .parquet or .arrow file", "FILE", required=True),
            _option("--count", "how many; default 1000", "N", type=int, default=1000),
            _option("--seed", "default 0", "S", type=int, default=0),
            _flag("--effects", "a column for the effect of every group too"),
            _flag("--force", "replace --out if it exists"),
        )
    },
    interrupted="interrupted; nothing was kept",
    module="draws",
)
SIMULATE = Command(
    "simulate",
    help="write responses as the fit would have them",
    usage="RUN [ROWS] --out FILE [--draws K] [--seed S] [--force]",
    description="Replicated responses of the rows of the fit, or of ROWS, a row each and a column a draw, written a "
    "batch at a time. A class is told by its place among the classes.",
    epilog="example:\n  tallbayes simulate run1 --out replicated.parquet --draws 100\n",
    options={
        "": (
            RUN,
            _path("data", "a .csv, .tsv, .parquet or .arrow file, or a table of ingest", "ROWS", nargs="?"),
            _path("--out", "a .csv, .parquet or .arrow file", "FILE", required=True),
            _option("--draws", "how many; default 200", "K", type=int, default=200),
            _option("--seed", "default 0", "S", type=int, default=0),
            _flag("--force", "replace --out if it exists"),
        )
    },
    interrupted="interrupted; nothing was kept",
    module="draws",
)
REPORT = Command(
    "report",
    help="write a page that shows a run",
    usage="RUN [--out PAGE] [--title TEXT] [--sensitivity] [--checks]",
    description="One HTML page that needs nothing else: the answer, how sure it is, and what it cost.",
    epilog="example:\n  tallbayes report run1 --out flights.html\n",
    options={
        "": (
            RUN,
            _path("--out", "default RUN/report.html, or beside the result file", "PAGE"),
            _option("--title", "the page's heading", "TEXT"),
            _flag("--sensitivity", "say which priors matter too; the table must be in its place"),
            _flag("--checks", "with predictive checks, if the table of the run is in its place"),
        )
    },
)
SENSITIVITY = Command(
    "sensitivity",
    help="say which answers hang on the prior",
    usage="RUN [--csv]",
    description="How far every posterior mean and sd moves with the power of the prior, of its parts and of the "
    "likelihood, in posterior sds, each number with its Monte Carlo error. The table must be in its place.",
    epilog="example:\n  tallbayes sensitivity run1\n",
    options={"": (RUN, _flag("--csv", "all numbers as CSV, a row a parameter and a density"))},
    module="answers",
)
OVER = (
    _option("--by", "one for each level of this column", "COLUMN"),
    _path("--rows", "over the rows of another file, or of a part of the table", "DATA"),
)
EFFECT = Command(
    "effect",
    help="average what a column at one value does against another",
    usage="RUN COLUMN HIGH LOW [--by COLUMN] [--ratio] [--rows DATA]",
    description="The mean response with COLUMN at HIGH in every row, less that with it at LOW, on average over all "
    "rows that were fitted: posterior mean, sd and 95% interval, each with its Monte Carlo error.",
    epilog="example:\n  tallbayes effect run1 treated 1 0 --by kind\n",
    options={
        "": (
            RUN,
            _option("column", "a column of the table that the formula reads", "COLUMN"),
            _option("high", "its value", "HIGH"),
            _option("low", "the value that it is held against", "LOW"),
            *OVER,
            _flag("--ratio", "the ratio of the two averages in place of their difference"),
        )
    },
    module="answers",
)
SLOPE = Command(
    "slope",
    help="average the slope of the response in a column",
    usage="RUN COLUMN [--by COLUMN] [--rows DATA]",
    description="The slope of the mean response in COLUMN, on average over all rows that were fitted: posterior mean, "
    "sd and 95% interval, each with its Monte Carlo error.",
    epilog="example:\n  tallbayes slope run1 hour --by carrier\n",
    options={"": (RUN, _option("column", "a column of numbers that the formula reads", "COLUMN"), *OVER)},
    module="answers",
)
REPRODUCE = Command(
    "reproduce",
    help="run the paper's experiments",
    usage="[FIGURE ...] [--quick] [--out OUT]",
    description="Run the experiments of the paper's section 4, draw its figures, and put them with a table of\n"
    "claims on one HTML page. A run that was interrupted picks up where it was.",
    epilog="",
    options={
        "": (
            _option("figures", f"any of {', '.join(FIGURES)}; all if none", "FIGURE", nargs="*"),
            _flag("--quick", "about two minutes on two cores instead of thirty"),
            _path("--out", "folder for results, figures and index.html"),
        )
    },
    interrupted="interrupted; what is finished is kept, the same command goes on from there",
    module="reproduce",
)
AFTERWARDS = (DRAWS, SIMULATE, EVIDENCE, LOO, RANK, SENSITIVITY, EFFECT, SLOPE)
COMMANDS = (INGEST, FIT, RESUME, SHOW, EFFECTS, PREDICT, *AFTERWARDS, REPORT, REPRODUCE)
