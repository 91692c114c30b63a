"""Leave-one-out: elpd = sum_i log p(y_i | all other rows), from one fit, with two errors that are kept apart.

    elpd = sum_i cavity_i + sum over some rows of a_i (certified_i - cavity_i)
    sampling error     sqrt(N Var_i elpd_i): how much another table of N rows like these would differ
    Monte Carlo error  of the draws, of which rows were certified, and of how their weights were found

The second says how far the number may be from exact leave-one-out of this table. Every row has its answer by the
Gaussian without it (`cavity`), in one pass; some or all have it certified by weighted draws (`certificate`). Of a fit
with groups whole groups are left out, or rows given the others of their group (`within`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.errors import InputError, explain, require_extra
from tallbayes.leave_one_out.answer import Answer, answer, answer_within
from tallbayes.leave_one_out.rows import one_group_a_row, response_of, source_numbers, source_places
from tallbayes.leave_one_out.within import rows_of_groups
from tallbayes.model.weights import WEIGHT
from tallbayes.moments import Floats
from tallbayes.results.fitted import Fitted, fitted_with_prior, require_law
from tallbayes.results.result import Result
from tallbayes.rows.atomic import replacing
from tallbayes.rows.formats import WRITERS
from tallbayes.rows.table import CHUNK_ROWS

if TYPE_CHECKING:
    import pandas

CERTIFIED, PARTLY, DOUBTFUL = "certified", "certified on a sample of rows", "not certified"
UNITS = ("row", "group")
DRAWS_SEED = 0
MOST_NAMED = 10


class LooRow(NamedTuple):
    """A row by its number in the source, counted from 0 (of groups, that of the group): log p(y_i | all others), by how
    much its own density falls when it is left out, and the part of what is known of its predictor that it tells itself.
    """

    row: int
    elpd: float
    influence: float
    leverage: float


@dataclass(frozen=True, eq=False)
class Loo:
    """Expected log predictive density by leave-one-out, in the response's own units.

    `sampling_error` is over rows. `standard_error` and `bias_bound` are Monte Carlo's, `interval` is the 95% interval
    of exact leave-one-out of this table. `p_loo` is the effective number of parameters. `rows` are those that matter
    most. `pointwise` has every row's own, in the order of the source, where it was asked for. `notes` say why one is
    not certified.
    """

    elpd: float
    sampling_error: float
    standard_error: float
    bias_bound: float
    interval: tuple[float, float]
    p_loo: float
    p_loo_error: float
    num_rows: int
    unit: str
    status: str
    rows: tuple[LooRow, ...]
    draws: int
    certified_rows: int
    notes: tuple[str, ...] = ()
    pointwise: Floats | None = field(default=None, repr=False)

    @property
    def value(self) -> float:
        return self.elpd

    @property
    def error(self) -> float:
        """Monte Carlo's, root mean square, the bias included."""
        return float(np.hypot(self.standard_error, self.bias_bound))

    @property
    def looic(self) -> float:
        """-2 elpd."""
        return -2 * self.elpd

    @property
    def certified(self) -> bool:
        return self.status != DOUBTFUL

    def to_pandas(self) -> pandas.DataFrame:
        """The rows that matter most."""
        frame = require_extra("pandas", "data", "data frames").DataFrame
        return frame([each._asdict() for each in self.rows])

    def __repr__(self) -> str:
        from tallbayes.views.leaving_out import loo_in_a_line

        return loo_in_a_line(self)

    def __str__(self) -> str:
        from tallbayes.views.leaving_out import loo_text

        return loo_text(self)

    def _repr_html_(self) -> str:
        from tallbayes.views.leaving_out import loo_html

        return loo_html(self)


def loo(
    result: Result,
    pointwise: bool = False,
    out: str | os.PathLike[str] | None = None,
    tolerance: float = 0.01,
    seed: int = DRAWS_SEED,
    unit: str | None = None,
) -> Loo:
    """Of a result; see `Result.loo`."""
    if not (np.isfinite(tolerance) and tolerance > 0):
        hint = "0.01, a hundredth of the sampling error"
        raise InputError(explain("tolerance > 0", repr(tolerance), hint))
    if out is not None:
        require_new(out)
    require_law(result, "leave-one-out")
    left, found = answer_of(result, unit, pointwise or out is not None, tolerance, seed)
    if out is not None:
        assert found.pointwise is not None
        write_pointwise(out, left, found)
    value = _described(left, found)
    return value if pointwise else replace(value, pointwise=None)


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What is left out one by one, rows or groups: by place the number in the source, and of all the responses in the
    order of the source, in fitted units."""

    unit: str
    fitted: Fitted
    numbers: np.ndarray
    places: np.ndarray
    responses: Floats | None

    @property
    def count(self) -> int:
        return len(self.numbers)


def left_out(result: Result, unit: str | None) -> LeftOut:
    """By this unit; by that of the fit, if it is None."""
    unit = result.unit if unit is None else unit
    if unit not in UNITS:
        raise InputError(explain(f"unit={' or unit='.join(map(repr, UNITS))}", repr(unit), 'unit="row"'))
    if unit == "group" and result.unit != "group":
        raise InputError(
            explain("a fit with effects by group", "one without, by whose groups nothing is left out", 'unit="row"')
        )
    fitted = fitted_with_prior(result)
    if unit != result.unit:
        rows = rows_of_groups(fitted)
        return LeftOut(unit, fitted, rows.numbers, rows.numbers, rows.responses())
    table = one_group_a_row(fitted.table)
    return LeftOut(unit, replace(fitted, table=table), source_numbers(table), source_places(table), response_of(table))


def answer_of(
    result: Result, unit: str | None, pointwise: bool, tolerance: float, seed: int = DRAWS_SEED
) -> tuple[LeftOut, Answer]:
    """What is left out of a result, and what it makes of each; pointwise in the order of the source."""
    left = left_out(result, unit)
    anchor = result.anchor if result.posterior is None else result.posterior.anchor
    if anchor is None:
        got = f"a result of {result.method} without one"
        raise InputError(explain("a result with an anchor, about which draws are made", got, "method=None"))
    _require_unweighted(left.fitted)
    scale, fitted = response_units(result)[0], left.fitted
    if left.unit == result.unit:
        found = answer(fitted.target, fitted.table, anchor, scale, tolerance, seed, pointwise)
    else:
        found = answer_within(fitted, anchor, scale, tolerance, seed, pointwise)
    if found.pointwise is not None:
        ordered = np.empty_like(found.pointwise)
        ordered[left.places] = found.pointwise
        found = replace(found, pointwise=ordered)
    return left, found


def response_units(result: Result) -> tuple[float, float]:
    """Scale and mean by which the response was standardised."""
    if result.encoding is not None:
        known = result.encoding.get("response_scale", 1.0), result.encoding.get("response_mean", 0.0)
        return float(known[0]), float(known[1])
    if result.regression is not None:
        return float(result.regression.response_scale), float(result.regression.response_mean)
    return 1.0, 0.0


def responses_of(result: Result, left: LeftOut) -> Floats | None:
    """In the order of the source and in their own units; None where rows have none by that name."""
    scale, mean = response_units(result)
    return None if left.responses is None else left.responses * scale + mean


def _require_unweighted(fitted: Fitted) -> None:
    rows: Any = fitted.table.rows
    inner = rows["rows"] if isinstance(rows, dict) and isinstance(rows.get("rows"), dict) else rows
    if isinstance(inner, dict) and "sums" in inner and fitted.grouping is not None and fitted.grouping.rows is not None:
        # Sums do not tell what they are of.
        inner = fitted.grouping.rows.arrays
    if isinstance(inner, dict) and WEIGHT in inner:
        got = "rows with weights, of which it is not said what one left out would be"
        hint = "a table in which every row stands for itself, or rows repeated as often as they were seen"
        raise InputError(explain("rows that count once each", got, hint))


def _described(left: LeftOut, found: Answer) -> Loo:
    half = found.quantile * found.standard_error + found.bias_bound
    names = left.numbers[found.named]
    rows = zip(names, found.named_elpd, found.named_influence, found.named_leverage, strict=True)
    whole = found.certified_rows == left.count
    status = DOUBTFUL if found.trouble else (CERTIFIED if whole else PARTLY)
    return Loo(
        elpd=found.elpd,
        sampling_error=found.sampling_error,
        standard_error=found.standard_error,
        bias_bound=found.bias_bound,
        interval=(found.elpd - half, found.elpd + half),
        p_loo=found.p_loo,
        p_loo_error=found.p_loo_error,
        num_rows=left.count,
        unit=left.unit,
        status=status,
        rows=tuple(LooRow(int(row), float(elpd), float(p), float(h)) for row, elpd, p, h in rows),
        draws=found.draws,
        certified_rows=found.certified_rows,
        notes=found.notes,
        pointwise=found.pointwise,
    )


def require_new(out: str | os.PathLike[str]) -> None:
    """Refuse, before any work, a file that is there or of no known kind."""
    if Path(out).suffix not in WRITERS:
        raise InputError(explain(f"a path ending in {' or '.join(WRITERS)}", repr(Path(out).name), "loo.parquet"))
    if os.path.lexists(out):
        raise InputError(explain("a new file for out", f"{os.fspath(out)!r}, which exists", "another out"))


def write_pointwise(out: str | os.PathLike[str], left: LeftOut, found: Answer) -> int:
    """Row and elpd, in the order of the source, a part at a time."""
    assert found.pointwise is not None
    place, numbers = Path(out), np.sort(left.numbers)
    table_of = require_extra("pyarrow", "data", "files of rows").table
    with replacing(place) as partial:
        writer = None
        try:
            for start in range(0, len(numbers), CHUNK_ROWS):
                part = slice(start, start + CHUNK_ROWS)
                table = table_of({"row": numbers[part], "elpd": found.pointwise[part]})
                writer = writer or WRITERS[place.suffix](partial, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
    return len(numbers)
