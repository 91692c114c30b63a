"""What can be asked of a run once it is there: its draws, what it foretells, what it hangs on, which one is best."""

from __future__ import annotations

from tallbayes.commands.grammar import EXIT_CODES, RUN, Command, choice, flag, number, option, path

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
            path("--out", "a .csv, .parquet or .arrow file", "FILE", required=True),
            option("--count", "how many; default 1000", "N", type=int, default=1000),
            option("--seed", "default 0", "S", type=int, default=0),
            flag("--effects", "a column for the effect of every group too"),
            flag("--force", "replace --out if it exists"),
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
            path("data", "a .csv, .tsv, .parquet or .arrow file, or a table of ingest", "ROWS", nargs="?"),
            path("--out", "a .csv, .parquet or .arrow file", "FILE", required=True),
            option("--draws", "how many; default 200", "K", type=int, default=200),
            option("--seed", "default 0", "S", type=int, default=0),
            flag("--force", "replace --out if it exists"),
        )
    },
    interrupted="interrupted; nothing was kept",
    module="draws",
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
            number("--tolerance", "error in nats; default 0.01", default=0.01),
            flag("--json", "print one JSON document instead of text"),
        )
    },
    module="answers",
)
UNIT = option("--unit", "what is left out of a mixed model: row or group", "UNIT")
LOO = Command(
    "loo",
    help="how well a run foretells each row from the others",
    usage="RUN [--unit row|group] [--pointwise FILE] [--tolerance X] [--json]",
    description="Leave-one-out from the one fit: the expected log predictive density of a row that was not fitted, "
    "summed over rows, with its sampling error and, apart, its Monte Carlo error; the rows that matter most. The "
    "table is read again from where fit found it. Of a mixed model whole groups are left out, or, with --unit row, "
    "rows given the others of their group.",
    epilog="example:\n  tallbayes loo run1 --pointwise rows.parquet\n",
    options={
        "": (
            RUN,
            UNIT,
            path("--pointwise", "every row's own, into a .csv, .parquet or .arrow file", "FILE"),
            number("--tolerance", "Monte Carlo error in sampling errors; default 0.01", default=0.01),
            flag("--force", "replace --pointwise if it exists"),
            flag("--json", "print one JSON document instead of text"),
        )
    },
    module="leave_one_out",
)
RANK = Command(
    "rank",
    help="say which of several runs is the best",
    usage="RUN RUN ... [--by loo|evidence] [--unit row|group] [--json]",
    description="Runs for the same rows side by side, the best first: differences of leave-one-out, whose sampling "
    "error is that of the difference, or of log evidence. Where some runs have effects by group and some have none, "
    "rows are left out. Runs of other rows or another response are refused.",
    epilog="example:\n  tallbayes rank run1 run2 run3\n",
    options={
        "": (
            path("folders", "folders of fit", "RUN", nargs="+"),
            choice("--by", "what to compare", "loo", "evidence"),
            UNIT,
            number("--tolerance", "Monte Carlo error in sampling errors; default 0.01", default=0.01),
            flag("--json", "print one JSON document instead of text"),
        )
    },
    module="leave_one_out",
)
SENSITIVITY = Command(
    "sensitivity",
    help="say which answers hang on the prior",
    usage="RUN [--csv]",
    description="How far every posterior mean and sd moves with the power of the prior, of its parts and of the "
    "likelihood, in posterior sds, each number with its Monte Carlo error. The table must be in its place.",
    epilog="example:\n  tallbayes sensitivity run1\n",
    options={"": (RUN, flag("--csv", "all numbers as CSV, a row a parameter and a density"))},
    module="answers",
)
OVER = (
    option("--by", "one for each level of this column", "COLUMN"),
    path("--rows", "over the rows of another file, or of a part of the table", "DATA"),
    choice("--groups", "of a mixed model: the effects of each row's own groups, or new ones' on average", "own", "new"),
)
EFFECT = Command(
    "effect",
    help="average what a column at one value does against another",
    usage="RUN COLUMN HIGH LOW [--by COLUMN] [--ratio] [--rows DATA] [--groups own|new]",
    description="The mean response with COLUMN at HIGH in every row, less that with it at LOW, on average over all "
    "rows that were fitted: posterior mean, sd and 95% interval, each with its Monte Carlo error.",
    epilog="example:\n  tallbayes effect run1 treated 1 0 --by kind\n",
    options={
        "": (
            RUN,
            option("column", "a column of the table that the formula reads", "COLUMN"),
            option("high", "its value", "HIGH"),
            option("low", "the value that it is held against", "LOW"),
            *OVER,
            flag("--ratio", "the ratio of the two averages in place of their difference"),
        )
    },
    module="answers",
)
SLOPE = Command(
    "slope",
    help="average the slope of the response in a column",
    usage="RUN COLUMN [--by COLUMN] [--rows DATA] [--groups own|new]",
    description="The slope of the mean response in COLUMN, on average over all rows that were fitted: posterior mean, "
    "sd and 95% interval, each with its Monte Carlo error.",
    epilog="example:\n  tallbayes slope run1 hour --by carrier\n",
    options={"": (RUN, option("column", "a column of numbers that the formula reads", "COLUMN"), *OVER)},
    module="answers",
)
CURVE = Command(
    "curve",
    help="show what a run says of one column of numbers",
    usage="RUN COLUMN [--points N] [--against X] [--csv]",
    description="f(COLUMN) of all terms of that column alone, such as s(hour), on the scale of the linear predictor: "
    "posterior mean, sd and 95% interval at points of its range, each with its Monte Carlo error.",
    epilog="example:\n  tallbayes curve run1 hour --points 97 --csv\n",
    options={
        "": (
            RUN,
            option("column", "a column of numbers that the formula reads", "COLUMN"),
            option("--points", "how many; default 50", "N", type=int),
            number("--against", "f less its value there, in place of f about its mean over the rows"),
            flag("--csv", "all points as CSV"),
        )
    },
    module="answers",
)
UPDATE = Command(
    "update",
    help="take rows that came into a run, or take rows out",
    usage="RUN NEW | RUN --withdraw FILE  [--new-levels add] [--tolerance X] [options]",
    description="The posterior for all rows so far and those of NEW, which are encoded as the fit encoded its own; or "
    "for all but those of FILE, each of which must have been there. The same file twice is taken once. Of a run on a "
    "table on disk rows come into that table and leave it, and NEW may be the table itself, for rows put into it by "
    "ingest --append. What the rows were foretold to be is on record; tallbayes history RUN tells.",
    epilog="example:\n  tallbayes update run1 monday.csv\n  tallbayes update run1 --withdraw mistaken.csv\n\n"
    "Until the last moment nothing has happened: after a crash the same command does the same again.\n\n" + EXIT_CODES,
    options={
        "": (
            RUN,
            path("data", "a file of rows that came", "NEW", nargs="?"),
            path("--withdraw", "a file of rows that are to be taken out", "FILE"),
            choice("--new-levels", "a category that was not there before", "refuse", "add"),
            number("--tolerance", "error in posterior sds; that of the run if not given"),
            flag("--full", "print levels, rates and tuning too"),
            flag("--json", "print one JSON document instead of text"),
            flag("--quiet", "no progress and no remarks on stderr"),
        )
    },
    interrupted="interrupted; nothing has happened, and the same command does it again",
    module="arrivals",
)
HISTORY = Command(
    "history",
    help="tell how the answers of a run moved from day to day",
    usage="RUN [--csv]",
    description="A line a day: rows, the log score of those that came under the posterior of the day before, how "
    "surprising they were, which coefficient moved most and by how many of its posterior sds.",
    epilog="example:\n  tallbayes history run1 --csv > coefficients.csv\n",
    options={"": (RUN, flag("--csv", "every coefficient of every day as CSV"))},
    module="arrivals",
)
REPLAY = Command(
    "replay",
    help="answer a day of a run once more, to the bit",
    usage="RUN DAY  [options]",
    description="The answer of a day that has passed, from what was kept of it and the rows that it had, held against "
    "what is on record; day 0 is the fit. For runs on a table on disk. Anything that is not what it was is named. Rows "
    "that have been withdrawn since are gone, and so are the days before.",
    epilog="example:\n  tallbayes replay run1 17\n\n" + EXIT_CODES,
    options={
        "": (
            RUN,
            option("day", "its number, as tallbayes history tells it", "DAY", type=int),
            flag("--full", "print levels, rates and tuning too"),
            flag("--json", "print one JSON document instead of text"),
            flag("--quiet", "no progress and no remarks on stderr"),
        )
    },
    module="arrivals",
)
AFTERWARDS = (UPDATE, HISTORY, REPLAY, DRAWS, SIMULATE, EVIDENCE, LOO, RANK, SENSITIVITY, EFFECT, SLOPE, CURVE)
