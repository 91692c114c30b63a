"""The verdict: number by number what was met, whatever the status of the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from reports import INF, NAN, made, with_quantities

from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.results.coefficients import Ends, Number, are_rough, end_tolerance, end_unit, interval_ends
from tallbayes.results.result import Result
from tallbayes.results.verdict import Missed, has_numbers, is_success, judge

NAMES = ["Intercept", "hour", "carrier[T.OO]"]


def with_errors(result: Result, name: str, errors: list[float]) -> Result:
    changed = replace(result[name], flat_standard_error=np.array(errors), flat_bias_bound=np.zeros(len(errors)))
    return replace(result, estimates=result.estimates | {name: changed})


def test_one_number_may_fail_alone() -> None:
    result = made(NAMES)
    assert is_success(result)
    assert judge(result, None).met
    for error in (NAN, INF, 0.5):
        lame = with_errors(result, "sd", [1e-3, 1e-3, error])
        verdict = judge(lame, None)
        assert lame.status is Status.converged
        assert not is_success(lame)
        assert not verdict.met
        assert verdict.numbers.total == 6
        assert verdict.numbers.missed == (Missed("carrier[T.OO]", "sd", error == 0.5),)
        assert verdict.numbers.unknown == (error != 0.5)
    assert not is_success(replace(result, status=Status.max_seconds))


def test_those_whose_error_is_unknown_are_named_first() -> None:
    lame = with_errors(with_errors(made(NAMES), "mean", [0.5, 1e-3, NAN]), "sd", [1e-3, 1e-3, INF])
    assert judge(lame, None).numbers.by_name == {"carrier[T.OO]": ["mean", "sd"], "Intercept": ["mean"]}


def test_quantities_of_ones_own_are_named_by_themselves() -> None:
    result = with_quantities(made(["location"]), keep=False)
    verdict = judge(result, None)
    assert verdict.kinds == ("", "")
    assert verdict.numbers.by_name == {"[0]": ["pair"], "[1]": ["pair"]}


def ends_of(result: Result, lower_error: float, upper_error: float = 1e-3) -> Ends:
    ends = interval_ends(result)
    assert ends is not None
    unit = end_unit(ends.lower.flat_value, ends.upper.flat_value)

    def erring(end: Estimate, error: float) -> Estimate:
        return replace(end, flat_standard_error=error * unit, flat_bias_bound=0 * unit)

    return ends._replace(lower=erring(ends.lower, lower_error), upper=erring(ends.upper, upper_error))


@pytest.mark.parametrize(
    ("asked", "error", "rough"), [(None, 0.09, 0), (None, 0.11, 3), (0.02, 0.03, 3), (0.5, 0.3, 0)]
)
def test_ends_are_held_against_what_was_asked_or_a_tenth_of_an_sd(
    asked: float | None, error: float, rough: int
) -> None:
    result = made(NAMES)
    settings = result.settings | ({} if asked is None else {"interval_tolerance": asked})
    result = replace(result, settings=settings)
    assert end_tolerance(result) == (0.1 if asked is None else asked, asked is not None)
    verdict = judge(result, ends_of(result, error))
    assert verdict.ends is not None
    assert (verdict.ends.total, len(verdict.ends.missed), verdict.has_rough) == (6, rough, bool(rough))
    assert verdict.worst_end == pytest.approx(error)
    assert verdict.met


def test_an_end_of_unknown_error_is_rough() -> None:
    result = made(NAMES)
    for error in (NAN, INF):
        verdict = judge(result, ends_of(result, error))
        assert verdict.ends is not None
        assert verdict.ends.unknown == 3
        assert verdict.worst_end == pytest.approx(1e-3)
    assert are_rough(Number(-1.96, 0.05), Number(1.96, NAN), 0.1) == (False, True)
    assert are_rough(Number(-1.96, 0.11), Number(1.96, 0.09), 0.1) == (True, False)


def test_ends_that_need_a_program_are_left_out_where_there_is_no_time() -> None:
    result = made(NAMES)
    every, quick = interval_ends(result), interval_ends(result, quickly=True)
    assert every is not None
    assert quick is not None
    assert list(quick.names) == NAMES
    assert quick.lower.flat_value == pytest.approx(every.lower.flat_value)
    assert interval_ends(replace(result, posterior=None)) is None


def test_whether_there_are_numbers() -> None:
    result = made(["a"])
    assert has_numbers(result)
    nothing = {name: replace(each, flat_value=np.array([NAN])) for name, each in result.estimates.items()}
    assert not has_numbers(replace(result, estimates=nothing))
