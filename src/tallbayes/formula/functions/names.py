"""What users of other packages type: functions of a row by their plain names, and what is written otherwise here.

sqrt(x), pow(x, 2), pmax(x, 0), ifelse(x > 0, x, 0)      NumPy's functions by the names of Python and of R
factor(g), as.factor(g)                                  C(g)
te(x, z), lag(x), mean(x), ...                           refused, each with what to write in its place
"""

from __future__ import annotations

import re

from tallbayes.model.catalogue import TRIALS

# Categories of a term by itself, which is an index.
INDEXED_LIMIT = 100_000
# The name in a formula, and NumPy's own.
ELEMENTWISE = {
    name: name
    for name in (
        "cbrt", "ceil", "clip", "cos", "cosh", "expm1", "floor", "hypot", "log1p", "maximum", "minimum", "round",
        "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "where",
    )
} | {
    "acos": "arccos", "asin": "arcsin", "atan": "arctan", "ceiling": "ceil", "ifelse": "where", "pmax": "maximum",
    "pmin": "minimum", "pow": "power",
}  # fmt: skip

_SMOOTHS = "s(x) + s(z), and poly(x, 2):poly(z, 2) for what they do together"
_ALL_ROWS = "center(x), scale(x), which remember the rows of the fit; or a column of the table"
_BEFORE = "a column of the table that has the earlier row's value"
_BINS = "s(x) for a curve, I(x > 3) for a step, C(np.floor(x / 10)) for bins of one width; or a column with the bins"
ELSEWHERE = {
    **dict.fromkeys(("te", "ti", "t2"), _SMOOTHS),
    **dict.fromkeys(
        ("mean", "sd", "std", "var", "median", "min", "max", "sum", "rank", "cumsum", "np.mean"), _ALL_ROWS
    ),
    **dict.fromkeys(("lag", "lead", "diff", "shift", "ar", "arma"), _BEFORE),
    **dict.fromkeys(("cut", "qcut", "ntile"), _BINS),
    **dict.fromkeys(("hash", "hashed"), "C(column), of which an index of up to 100,000 levels is made"),
    "cbind": TRIALS,
    "gp": "s(x), a curve whose smoothness is learnt",
    "hsgp": "s(x), a curve whose smoothness is learnt",
    "interaction": "g:h",
    "lo": "s(x), a curve whose smoothness is learnt",
    "mo": "C(column), or the number itself",
    "ordered": "C(column, contr.poly)",
    "relevel": 'C(column, Treatment("reference"))',
    "int": "I(1 * (x > 3)), or I(x > 3)",
}


def with_categories(formula: str) -> str:
    """A formula with R's factor(g) and as.factor(g) as C(g); text in quotes and names in backticks stay."""
    parts = re.split(r"""(`[^`]*`|"[^"]*"|'[^']*')""", formula)
    parts[::2] = [re.sub(r"(?<![\w.])(?:as\.)?factor\s*\(", "C(", part) for part in parts[::2]]
    return "".join(parts)
