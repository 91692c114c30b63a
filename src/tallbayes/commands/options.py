"""What can be asked on the command line: every command, its words and its options, each written once.

A command is done by the function of its own name in its module, which is not imported before that: help answers
without JAX and NumPy.
"""

from __future__ import annotations

from tallbayes.commands.afterwards import AFTERWARDS
from tallbayes.commands.grammar import EXIT_CODES, RUN, Command, choice, flag, number, option, path
from tallbayes.model.catalogue import CATALOGUE

FIGURES = ("coupled-paths", "decay", "accuracy", "scaling", "slopes")

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

Rows that come later are put behind those of a table, at the cost of these rows alone:
  tallbayes ingest flights-2014-01-01.csv --append flights.table
They take its columns and types; what these do not hold is refused. New levels come behind the old ones. Whatever
interrupts it, the table is what it was until all of them are in; files that it holds already are left out.

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


FORM = [
    flag("--full", "print levels, rates and tuning too"),
    flag("--json", "print one JSON document instead of text"),
]
QUIET = flag("--quiet", "no progress and no remarks on stderr")
ACCURACY = (
    [
        number("--tolerance", "error in posterior sds; default 0.01"),
        number("--relative-tolerance", "error as a fraction of each number"),
        number("--absolute-tolerance", "error in the number's own units"),
    ],
    number(
        "--interval-tolerance", "of interval ends too, in posterior sds; dearer; else those off by > 0.1 are marked ~"
    ),
)
BUDGET = (
    number("--max-seconds", "end by then, reading and set-up included", "T"),
    number("--max-evaluations", "stop at so many row gradients", "N"),
    option("--dask", "run on the workers of a dask cluster, such as tcp://10.0.0.1:8786", "ADDRESS"),
)
MODEL = (
    option(
        "--formula",
        'such as "late ~ hour + C(carrier)", "late ~ hour + (1 | carrier)", or "wait ~ hour; sigma ~ hour"',
        required=True,
    ),
    option("--family", f"{', '.join(CATALOGUE)}; default logistic; names of R and brms too", default="logistic"),
    number("--prior-scale", "coefficients ~ N(0, S^2); default 1, inf is flat", "S", default=1.0),
    number("--intercept-scale", "intercept ~ N(0, S^2); default 10", "S", default=10.0),
    number("--group-scale", "scales of group effects and of smooths ~ half-normal(S); default 1", "S", default=1.0),
    option(
        "--prior",
        'of a column, a term, Intercept, noise_scale, "sd(carrier)", in their own units, or of all coefficients, '
        'per sd of a column, coefficients=horseshoe(0.1); repeatable: "hour=normal(0.1,0.5)"',
        "NAME=PRIOR",
        action="append",
    ),
    flag("--raw", "state priors for columns as they are, not standardised"),
    choice("--standardise", "columns of numbers, the default, or levels of categories too", "numbers", "all"),
    choice("--missing", "rows with missing values; default error", "error", "drop"),
    option("--weights", "how many equal rows each row stands for", "COLUMN"),
    option("--offset", "added to the linear predictor, such as a log exposure", "COLUMN"),
    number("--noise-scale", "linear, student_t: known, in the response's units", "S"),
    number("--degrees-of-freedom", "student_t only; default 4", "NU"),
    number("--level", "quantile only: of which quantile; default 0.5", "P"),
)

INGEST = Command(
    "ingest",
    help="make a table on disk of files, once",
    usage="FILES... {--out TABLE | --append TABLE} [--columns A,B,C] [--force] [--quiet]",
    description=INGEST_DESCRIPTION,
    epilog=INGEST_EXAMPLE + EXIT_CODES,
    options={
        "": (
            option("files", ".csv, .tsv, .csv.gz, .parquet or .arrow; folders and patterns too", "FILES", nargs="+"),
            [
                path("--out", "the folder of the table", "TABLE"),
                path("--append", "a table that is there, to put the rows behind its own", "TABLE"),
            ],
            option("--columns", "the columns to keep; default all", "A,B,C"),
            flag("--force", "replace an older table, or an unfinished one of others"),
            QUIET,
        )
    },
    interrupted="interrupted; the same command goes on from where it was",
    module="ingest",
)
PRIOR = Command(
    "prior",
    help="say what the priors believe before a fit",
    usage="DATA --formula FORMULA [--family FAMILY] [--prior NAME=PRIOR] [options]",
    description="Parameters drawn from their priors, and responses drawn at rows of the table: the share of positives, "
    "quantiles, zeros, beside those of the response that is there. Nothing is fitted. Flat priors are refused.",
    epilog='example:\n  tallbayes prior flights.parquet --formula "late ~ hour" --prior "hour=normal(0.1,0.05)"\n',
    options={
        "": (path("data", "a .csv, .tsv, .parquet or .arrow file; a table of ingest", "DATA"),),
        "model": MODEL,
        "draws": (
            option("--draws", "how many; default 1000", "K", type=int, default=1000),
            option(
                "--rows",
                "how many rows of the table, chosen by the seed; default 1000, 0 is all",
                "N",
                type=int,
                default=1000,
            ),
            option("--seed", "default 0", "S", type=int, default=0),
            flag("--csv", "the statistics of the response as CSV"),
        ),
    },
    module="priors",
)
FIT = Command(
    "fit",
    help="fit a regression to a table, by a formula",
    usage="DATA --formula FORMULA [--family FAMILY] [--tolerance X] [--out RUN] [options]",
    description=FIT_DESCRIPTION,
    epilog=FIT_EXAMPLE + EXIT_CODES,
    options={
        "": (path("data", "a .csv, .tsv, .parquet or .arrow file; .csv.gz too", "DATA"),),
        "model": MODEL,
        "accuracy, one of these": ACCURACY,
        "sampling": (
            option("--seed", "the same seed gives the same numbers; default 0", "K", type=int, default=0),
            *BUDGET,
            choice(
                "--method",
                "default anchored; randomised is unbiased, and dearer",
                "anchored",
                "randomised",
            ),
        ),
        "output": (
            path("--out", "keep the result in this new folder; else only print it", "RUN"),
            flag("--force", "replace an older run in --out"),
            FORM,
            QUIET,
        ),
    },
    interrupted="interrupted before there was anything to keep",
)
WATCH = Command(
    "watch",
    help="take in files as they arrive in a folder",
    usage="FOLDER --formula FORMULA --out RUN [--every S] [--once] [options of fit]",
    description="The first file of rows, by name, is fitted; every later one is an update, as soon as nobody writes to "
    "it any more, and a line is printed for each: which coefficient moved most, and how surprising the rows were.",
    epilog='example:\n  tallbayes watch incoming --formula "late ~ hour + C(carrier)" --tolerance 0.02 --out run1\n\n'
    "Ctrl-C ends it at any instant; the same command goes on where it was.\n",
    options={
        "": (
            path("data", "the folder that files arrive in", "FOLDER"),
            path("--out", "the folder of the run", "RUN", required=True),
            number("--every", "seconds between two looks; default 1", "S", default=1.0),
            flag("--once", "take in what is there, and end"),
            choice("--new-levels", "a category that was not there before", "refuse", "add"),
        ),
        "model": MODEL,
        "accuracy, one of these": ACCURACY,
        "sampling": (option("--seed", "default 0", "K", type=int, default=0), *BUDGET),
        "output": (QUIET,),
    },
    interrupted="ended; the same command goes on",
    module="arrivals",
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
        "": (path("folder", "what was given to --out of fit", "RUN"),),
        "accuracy, if it is to change": ACCURACY,
        "sampling": (
            *BUDGET,
            path(
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
            option("--by", "the factor, where there are several", "FACTOR"),
            path("--out", "a .csv, .parquet or .arrow file; else CSV is printed", "FILE"),
            flag("--force", "replace --out if it exists"),
        )
    },
    module="effects",
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
            path("data", "a .csv, .tsv, .parquet or .arrow file, or a table of ingest", "NEWDATA"),
            path("--out", "a .csv, .parquet or .arrow file; else CSV is printed", "FILE"),
            flag("--force", "replace --out if it exists"),
            option("--keep", "columns of NEWDATA to write too; may be repeated", "A,B,...", action="append"),
            choice("--missing", "rows with missing values; default error, nan predicts NaN", "error", "nan"),
            choice("--unknown", "rows with categories that the fit does not know; the same", "error", "nan"),
            number("--interval", "of a new observation; default 0.95, 0 for none", "P", default=0.95),
            option("--at-least", "counts: P(y >= K) too", "K", type=int, nargs="+"),
            option("--offset", "that of the new rows, if it is not that of the fit", "COLUMN"),
        )
    },
    interrupted="interrupted; nothing was kept",
)
REPORT = Command(
    "report",
    help="write a page that shows a run",
    usage="RUN [--out PAGE] [--title TEXT] [--sensitivity] [--checks] [--loo] [--evidence]",
    description="One HTML page that needs nothing else: the answer, how sure it is, and what it cost. Where the table "
    "of the run is in its place, and has at most 200,000 rows, what was observed stands beside what is predicted.",
    epilog="example:\n  tallbayes report run1 --out flights.html\n",
    options={
        "": (
            RUN,
            path("--out", "default RUN/report.html, or beside the result file", "PAGE"),
            option("--title", "the page's heading", "TEXT"),
            flag("--sensitivity", "say which priors matter too; the table must be in its place"),
            flag("--loo", "with leave-one-out, if the table of the run is in its place"),
            flag("--evidence", "with its log evidence, if the table of the run is in its place"),
            flag("--checks", "with predictive checks, if the table of the run is in its place"),
        )
    },
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
            option("figures", f"any of {', '.join(FIGURES)}; all if none", "FIGURE", nargs="*"),
            flag("--quick", "about two minutes on two cores instead of thirty"),
            path("--out", "folder for results, figures and index.html"),
        )
    },
    interrupted="interrupted; what is finished is kept, the same command goes on from there",
    module="reproduce",
)
COMMANDS = (INGEST, PRIOR, FIT, WATCH, RESUME, SHOW, EFFECTS, PREDICT, *AFTERWARDS, REPORT, REPRODUCE)
