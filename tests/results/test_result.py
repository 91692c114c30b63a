"""A result says what was found, how sure it is and what it cost; it survives the disk; it can be carried on."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reports import RESULTS
from scenarios import logistic_rows
from scipy import stats

import tallbayes as tb
from tallbayes.errors import ResultFileError

ROWS = logistic_rows(200, (0.8, -0.2))
LOGISTIC = tb.families.logistic()


PAPERS = tb.Multilevel()


def run(**options: Any) -> tb.Result:
    return tb.estimate(LOGISTIC, ROWS, **{"tolerance": 0.2, "seed": 1, **options})


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return run()


@pytest.fixture(scope="module")
def papers() -> tb.Result:
    """By the paper's method, which has neither pilots of its own nor a Laplace level."""
    return run(method=PAPERS)


def pytree_model() -> tb.Model:
    """The same posterior with its parameters in a dict."""

    def log_likelihood(theta: Any, row: Any) -> Any:
        eta = row["x"][0] * theta["slopes"][0, 0] + theta["intercept"]
        return row["y"] * eta - jax.nn.softplus(eta)

    return tb.Model(
        log_prior=lambda theta: -0.5 * (jnp.sum(theta["slopes"] ** 2) + theta["intercept"] ** 2),
        log_likelihood=log_likelihood,
        initial={"slopes": np.zeros((1, 1)), "intercept": 0.0},
    )


@pytest.fixture(scope="module")
def nested() -> tb.Result:
    """Quantities of several shapes, of a model whose parameters are a dict."""
    quantities = {
        "mean": "mean",
        "odds": lambda theta: {"x": jnp.exp(theta["slopes"]), "both": [theta["intercept"], None]},
        "one": lambda theta: 1.0,
        "positive": lambda theta: theta["slopes"][0, 0] > 0,
    }
    return tb.estimate(pytree_model(), ROWS, quantities, tolerance=0.5, max_levels=3)


def test_values_and_errors_have_the_shape_of_the_quantity(result: tb.Result) -> None:
    assert list(result) == ["mean", "sd"]
    assert len(result) == 2
    for name in result:
        estimate = result[name]
        for part in ("value", "standard_error", "bias_bound", "degrees_of_freedom", "tolerance"):
            assert getattr(estimate, part).shape == (2,)
            assert np.all(np.isfinite(getattr(estimate, part)))
        assert [end.shape for end in estimate.interval] == [(2,), (2,)]


def test_values_and_errors_have_the_users_structure(nested: tb.Result) -> None:
    mean, odds = nested["mean"], nested["odds"]
    for part in (mean.value, mean.standard_error, mean.bias_bound, *mean.interval):
        assert list(part) == ["intercept", "slopes"]
        assert type(part["intercept"]) is float
        assert part["slopes"].shape == (1, 1)
    for part in (odds.value, odds.standard_error, odds.bias_bound, *odds.interval):
        assert part["x"].shape == (1, 1)
        assert type(part["both"][0]) is float
        assert part["both"][1] is None


def test_both_ways_to_write_the_model_agree(result: tb.Result, nested: tb.Result) -> None:
    """Two independent runs, 5.1 joint errors apart at most: one false alarm in a million for two components."""
    one, two = result["mean"], nested["mean"]
    slope_first = two.flat_value[::-1], two.flat_error[::-1]
    assert np.all(np.abs(one.flat_value - slope_first[0]) < 5.1 * np.hypot(one.flat_error, slope_first[1]))


def test_a_constant_is_what_it_is(nested: tb.Result) -> None:
    """Its derivative is zero wherever it is taken, as that of a jump is which no draw has shown: hence an error."""
    assert nested["one"].value == 1.0
    assert nested["one"].interval[0] <= 1.0 <= nested["one"].interval[1]
    assert nested["one"].met


def test_a_probability_is_between_zero_and_one(nested: tb.Result) -> None:
    assert type(nested["positive"].value) is float
    assert -1e-6 <= nested["positive"].value <= 1 + nested["positive"].flat_error[0]


@pytest.mark.parametrize("name", ["mean", "sd"])
def test_the_interval_is_value_plus_minus_t_se_plus_bias(result: tb.Result, name: str) -> None:
    estimate = result[name]
    quantile = stats.t.ppf(0.975, estimate.degrees_of_freedom)
    half = quantile * estimate.standard_error + estimate.bias_bound
    lower, upper = estimate.interval
    np.testing.assert_allclose(lower, estimate.value - half, rtol=1e-10)
    np.testing.assert_allclose(upper, estimate.value + half, rtol=1e-10)
    wider = estimate.half_width(0.99)
    np.testing.assert_allclose(
        wider,
        stats.t.ppf(0.995, estimate.degrees_of_freedom) * estimate.standard_error + estimate.bias_bound,
        rtol=1e-10,
    )


def test_met_holds_the_error_against_the_tolerance(result: tb.Result) -> None:
    estimate = result["mean"]
    error = np.sqrt(estimate.standard_error**2 + estimate.bias_bound**2)
    np.testing.assert_allclose(estimate.flat_error, error)
    assert np.all(error <= estimate.tolerance)
    assert estimate.met
    assert estimate.met is True
    np.testing.assert_allclose(estimate.tolerance, 0.2 * result["sd"].value)
    strict = dataclasses.replace(estimate, flat_tolerance=np.array([1.0, 0.99 * error[1]]))
    assert strict.met is False


def test_a_value_that_is_not_a_number_is_never_met(result: tb.Result) -> None:
    broken = dataclasses.replace(result["mean"], flat_standard_error=np.array([np.nan, 0.0]))
    assert not broken.met
    assert len(broken.interval) == 2


def test_infinite_errors_give_infinite_intervals_without_warnings(result: tb.Result) -> None:
    nowhere = dataclasses.replace(
        result["mean"], flat_value=np.array([np.inf, 1.0]), flat_bias_bound=np.array([np.inf, np.inf])
    )
    assert len(nowhere.interval) == 2
    assert str(dataclasses.replace(result, estimates={"mean": nowhere}))


def test_status_and_convergence(result: tb.Result) -> None:
    assert result.status is tb.Status.converged
    assert result.converged
    assert all(result[name].met for name in result)
    assert str(result.status) == result.status.value


@pytest.mark.parametrize("which", ["result", "papers"])
def test_costs_add_up(which: str, request: pytest.FixtureRequest) -> None:
    """In set-up: what found the mode, a pass for rows that matter where they may be listed, and a probe."""
    this = request.getfixturevalue(which)
    cost, batch = this.cost, rows_a_step(this)
    # 64 pairs of paths of 3 dT each measure the contraction.
    pairs = 64 * 2 * 3 * round((this.levels[1].time - this.levels[0].time) / this.levels[0].step) * batch
    if this.tuning is not None:
        assert this.tuning.evaluations == pairs + sum(trial.evaluations for trial in this.tuning.trials)
        pairs = this.tuning.evaluations
    assert cost.evaluations == sum(level.evaluations for level in this.levels) + pairs
    assert cost.num_data == 200
    assert cost.epochs == cost.evaluations / 200
    looks = 200 + this.posterior.probe.rows_read if which == "result" else 0
    assert cost.setup_evaluations == this.anchor.passes * 200 + looks
    assert cost.speculative_evaluations == 0
    assert cost.seconds > 0


def rows_a_step(result: tb.Result) -> int:
    return int(re.search(r"batch_size=(\d+)", result.method)[1])


@pytest.mark.parametrize("which", ["result", "papers"])
def test_levels_say_what_was_done(which: str, request: pytest.FixtureRequest) -> None:
    this = request.getfixturevalue(which)
    assert len(this.levels) >= 3
    for number, level in enumerate(this.levels):
        assert level.step == this.levels[0].step * 2.0**-number
        assert level.time == pytest.approx(this.levels[0].time * (number + 1))
        assert level.samples >= 64
        assert level.samples % 32 == 0
        fine = round(level.time / level.step)
        coarse = round(this.levels[number - 1].time / this.levels[number - 1].step) if number else 0
        assert level.evaluations == level.samples * rows_a_step(this) * (fine + 2 * coarse)
        for part in ("mean", "variance", "kurtosis", "consistency"):
            by_quantity = getattr(level, part)
            assert list(by_quantity) == ["mean", "sd"]
            assert all(values.shape == (2,) for values in by_quantity.values())
            finite = [np.all(np.isfinite(values)) for values in by_quantity.values()]
            assert all(finite) != (part == "consistency" and number == 0)


def test_the_value_is_the_sum_of_the_level_means(result: tb.Result) -> None:
    total = sum(level.mean["mean"] for level in result.levels)
    np.testing.assert_allclose(result["mean"].value, result.anchor.mode + total, rtol=1e-12)


def test_rates_and_contraction_are_given_by_quantity(result: tb.Result) -> None:
    for rates in (result.rates.alpha, result.rates.beta, result.rates.gamma):
        assert list(rates) == ["mean", "sd"]
        assert all(np.isfinite(rate) for rate in rates.values())
    assert 0 < result.contraction.factor < result.contraction.upper < 1
    assert result.contraction.rate > 0


def test_settings_say_how_to_repeat_it(result: tb.Result, papers: tb.Result) -> None:
    assert result.settings["seed"] == 1
    assert result.settings["tolerance"] == 0.2
    assert set(result.settings["versions"]) >= {"tallbayes", "jax", "jaxlib", "numpy"}
    assert result.method.startswith(f"Anchored(Taylor(batch_size={result.tuning.chosen.batch_size}, sampling=Blocks())")
    assert f"first_step={result.tuning.chosen.first_step}" in result.method
    assert papers.method.startswith("Multilevel(Taylor(batch_size=6")
    assert papers.tuning is None


def columns_of(lines: list[str]) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


@pytest.mark.parametrize("which", ["result", "papers"])
def test_the_text_has_every_section_in_columns(which: str, request: pytest.FixtureRequest) -> None:
    this = request.getfixturevalue(which)
    sections = str(this).split("\n\n")
    tuning = ["tuning"] if this.tuning is not None else []
    heads = ["quantity", "interval", "level", "rates", "cost:", *tuning, "modes:", "status:"]
    assert [section.split()[0] for section in sections] == heads
    quantities, _, levels, rates, cost = (section.split("\n") for section in sections[:5])
    assert [row[0] for row in columns_of(quantities)[1:]] == ["mean[0]", "mean[1]", "sd[0]", "sd[1]"]
    assert all(len(row) == 7 for row in columns_of(quantities))
    assert len(levels) == len(this.levels) + 2
    assert [row[0] for row in columns_of(rates)[1:3]] == ["mean", "sd"]
    assert rates[3].startswith("contraction: ")
    assert f"{this.cost.evaluations:,} row gradients" in cost[0]
    assert cost[1] == f"method: {this.method}"
    if tuning:
        lines = sections[5].split("\n")
        assert len(lines) == len(this.tuning.trials) + 2
        assert [line.startswith("chosen") for line in lines[1:-1]] == [
            trial == this.tuning.chosen for trial in this.tuning.trials
        ]
        assert this.tuning.reason in lines[-1]
        assert f"{this.tuning.evaluations:,} row gradients in all" in lines[-1]
    assert sections[-2] == "\n".join(this.notes)
    assert sections[-1] == f"status: {this.status}"


def test_the_text_is_aligned_and_not_too_wide(result: tb.Result, nested: tb.Result) -> None:
    for text in (str(result), str(nested)):
        assert all(len(line) <= 130 for line in text.split("\n") if not line.startswith("method:"))
        assert all(line == line.rstrip() for line in text.split("\n"))
        for section in text.split("\n\n")[:2]:
            table = [line for line in section.split("\n") if not line.startswith("(")]
            assert_right_aligned(table)


def assert_right_aligned(table: list[str]) -> None:
    """Every column but the first ends where its heading ends; the first begins at the margin."""
    heads = [match.end() for match in re.finditer(r"\S+(?: \S+)*", table[0])][1:]
    assert all(not line.startswith(" ") for line in table)
    for line in table[1:]:
        ends = {match.end() for match in re.finditer(r"\S+(?: \S+)*", line)}
        assert all(end in ends for end in heads if end <= len(line))


def test_many_components_are_cut_short_in_the_text(result: tb.Result) -> None:
    from tallbayes.structure import Structure

    many = {
        part: np.arange(1.0, 101.0)
        for part in ("flat_value", "flat_standard_error", "flat_bias_bound", "flat_freedom", "flat_tolerance")
    }
    wide = tb.Estimate("mean", Structure.leaf((100,)), **many)
    text = str(dataclasses.replace(result, estimates={"mean": wide}))
    assert "and 76 more components" in text
    assert text.count("mean[") == 24


# What only the process that made a result has; a stored posterior knows its parameters as numbers instead.
LIVING = ("continuation", "live", "stored")


def assert_same(one: Any, two: Any) -> None:
    """Equal to the bit, all the way down, in type as well."""
    assert type(one) is type(two)
    if isinstance(one, np.ndarray):
        assert one.dtype == two.dtype
        assert one.shape == two.shape
        assert one.tobytes() == two.tobytes()
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            if field.name not in LIVING:
                assert_same(getattr(one, field.name), getattr(two, field.name))
    elif isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_same(one[key], two[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for first, second in zip(one, two, strict=True):
            assert_same(first, second)
    elif isinstance(one, float) and np.isnan(one):
        assert np.isnan(two)
    else:
        assert one == two


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result.tallbayes"


@pytest.mark.parametrize("which", ["result", "nested"])
def test_save_and_load_are_exact(which: str, path: Path, request: pytest.FixtureRequest) -> None:
    original = request.getfixturevalue(which)
    original.save(path)
    loaded = tb.load(path)
    assert_same(original, loaded)
    assert str(loaded) == str(original)
    assert loaded.status is original.status
    for name in original:
        assert_same(loaded[name].value, original[name].value)
        assert_same(loaded[name].interval, original[name].interval)


def test_infinities_and_nans_survive_the_disk(path: Path) -> None:
    short = run(max_seconds=1e-9)
    assert np.isinf(short["mean"].flat_bias_bound).all()
    short.save(path)
    assert_same(short, tb.load(path))


def test_tolerances_given_as_numpy_numbers_survive_the_disk(result: tb.Result, path: Path) -> None:
    result.extend(tolerance={"mean": np.float32(0.5), "sd": np.int64(1)}).save(path)
    assert tb.load(path).settings["tolerance"] == {"mean": 0.5, "sd": 1}


def test_the_comparison_sees_a_single_bit(result: tb.Result, path: Path) -> None:
    result.save(path)
    loaded = tb.load(path)
    loaded["mean"].flat_value[0] = np.nextafter(loaded["mean"].flat_value[0], np.inf)
    with pytest.raises(AssertionError):
        assert_same(result, loaded)


def test_save_leaves_one_file_and_replaces_an_old_one(result: tb.Result, path: Path) -> None:
    path.write_text("something older")
    result.save(path)
    result.save(str(path))
    assert list(path.parent.iterdir()) == [path]
    assert tb.load(str(path)).converged


def broken_files(whole: bytes) -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "text", b"quantity  value\nmean[0]   0.77\n"
    yield "half", whole[: len(whole) // 2]
    yield "without its last byte", whole[:-1]
    yield "first kilobyte", whole[:1024]
    middle = len(whole) // 2
    yield "overwritten in the middle", whole[:middle] + bytes(200) + whole[middle + 200 :]


def test_a_file_that_is_not_a_whole_result_is_refused(result: tb.Result, path: Path) -> None:
    result.save(path)
    for kind, content in broken_files(path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ResultFileError, match=r"expected .*; got (.|\n)* Try: "):
            pytest.fail(f"read a file that is {kind}: {tb.load(path)}")


def test_a_byte_lost_anywhere_is_noticed_or_harmless(result: tb.Result, path: Path) -> None:
    """One flipped byte at 60 places: an error of our own, or the same result."""
    result.save(path)
    whole = path.read_bytes()
    for place in np.linspace(0, len(whole) - 1, 60).astype(int):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            loaded = tb.load(path)
        except ResultFileError:
            continue
        assert_same(result, loaded)


def test_other_files_of_numpy_are_refused(path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ResultFileError):
        tb.load(path)
    with open(path, "wb") as file:
        np.savez(file, a=np.zeros(3))
    with pytest.raises(ResultFileError):
        tb.load(path)


def test_a_file_of_another_format_is_refused(result: tb.Result, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallbayes.results.result_file.FORMAT", "tallbayes result 0")
    result.save(path)
    monkeypatch.undo()
    with pytest.raises(ResultFileError, match="tallbayes result 0"):
        tb.load(path)


@pytest.mark.parametrize("kind", ["logistic", "randomised"])
def test_a_random_tail_is_on_record_and_found_out_in_files_of_before(kind: str, path: Path) -> None:
    result = RESULTS[kind]()
    result.save(path)
    assert tb.load(path).unbiased == result.unbiased == (kind == "randomised")
    with np.load(path) as arrays:
        before = {name: arrays[name] for name in arrays.files}
    document = json.loads(str(before.pop("document")))
    del document["random_tail"]
    # What lies in the result itself is as it was, so that versions of before read it too.
    assert "random_tail" not in json.dumps(document)
    with open(path, "wb") as file:
        np.savez_compressed(file, document=np.array(json.dumps(document)), **before)
    assert tb.load(path).unbiased == (kind == "randomised")


@pytest.mark.parametrize("where", ["nowhere.tallbayes", "no/such/folder/x", "."])
def test_a_missing_file_is_refused(where: str, tmp_path: Path) -> None:
    with pytest.raises(ResultFileError, match=r"expected .*; got .* Try: "):
        tb.load(tmp_path / where)


def test_a_loaded_result_cannot_be_extended_but_its_anchor_can_be_used(result: tb.Result, path: Path) -> None:
    result.save(path)
    loaded = tb.load(path)
    with pytest.raises(tb.TallbayesError, match=r"anchor=result\.anchor"):
        loaded.extend(tolerance=0.1)
    again = run(anchor=loaded.anchor)
    # One pass to expand it anew, one for rows that matter, and a probe.
    probe = again.posterior.probe.rows_read
    assert again.cost.setup_evaluations - probe == 2 * 200 < result.cost.setup_evaluations - probe
    assert_same(again.estimates, result.estimates)
    assert again.notes == ("modes: not searched, since an anchor was given",)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(result: tb.Result) -> None:
    assert_same(run().estimates, result.estimates)
    assert run(seed=2)["mean"].value[0] != result["mean"].value[0]


@pytest.fixture(scope="module")
def extended(result: tb.Result) -> tb.Result:
    return result.extend(tolerance=0.1)


def test_extending_pays_only_the_difference(result: tb.Result, extended: tb.Result) -> None:
    fresh = run(tolerance=0.1)
    assert extended.converged
    assert extended.cost.evaluations > result.cost.evaluations
    assert extended.cost.evaluations < result.cost.evaluations + fresh.cost.evaluations
    np.testing.assert_allclose(extended["mean"].tolerance, 0.1 * extended["sd"].value)
    assert extended.settings["tolerance"] == 0.1
    for before, after in zip(result.levels, extended.levels, strict=False):
        assert after.samples >= before.samples


def test_extending_goes_through_the_same_samples_as_a_fresh_run(extended: tb.Result) -> None:
    """Where both end with as many samples of a level, they are the same samples."""
    fresh = run(tolerance=0.1)
    pairs = [(one, two) for one, two in zip(extended.levels, fresh.levels, strict=False) if one.samples == two.samples]
    assert pairs
    for one, two in pairs:
        assert_same(one.variance["mean"], two.variance["mean"])


def test_a_budget_that_ends_after_the_tolerance_was_met_is_no_failure(result: tb.Result) -> None:
    """A run looks for a margin, error and bias each within their share; without it the tolerance may still be met."""
    parts = [
        np.maximum(each.flat_error, each.half_width() / 1.96) / each.flat_tolerance
        for each in result.estimates.values()
    ]
    tolerance = result.settings["tolerance"] * float(np.concatenate(parts).max())
    just_met = result.extend(tolerance=1.001 * tolerance, max_evaluations=1)
    assert just_met.converged
    assert not result.extend(tolerance=0.5 * tolerance, max_evaluations=1).converged


def test_extending_leaves_the_old_result_as_it_was(path: Path) -> None:
    before = run()
    before.save(path)
    text = str(before)
    before.extend(tolerance=0.1)
    assert str(before) == text
    assert_same(before, tb.load(path))
    assert_same(before.extend(tolerance=0.1).estimates, before.extend(tolerance=0.1).estimates)


def test_extending_to_what_is_met_costs_nothing(result: tb.Result) -> None:
    again = result.extend(tolerance=0.25)
    assert again.converged
    assert again.cost.evaluations == result.cost.evaluations
    np.testing.assert_array_equal(again["mean"].value, result["mean"].value)


def test_extending_by_an_unknown_keyword_is_refused(result: tb.Result) -> None:
    with pytest.raises(tb.InputError, match=r"expected .*; got .*seed.* Try: "):
        result.extend(seed=3)


def test_a_stopped_run_can_be_carried_on(result: tb.Result) -> None:
    stopped = run(max_seconds=1e-9)
    finished = stopped.extend(max_seconds=1e9)
    assert finished.converged
    assert_same(finished.estimates, result.estimates)


def test_carrying_on_does_not_forget_why_a_run_was_stopped(result: tb.Result) -> None:
    """Paths too short for the tolerance stay too short, whatever is asked of them next."""
    step = result.levels[0].step
    short = run(method=tb.Multilevel(ladder=tb.Ladder(first_step=step / 16, start_steps=1, added_steps=1)))
    assert short.status in (tb.Status.paths_too_short, tb.Status.no_contraction)
    assert not any(short[name].met for name in short) or not short.converged
    assert short.extend(tolerance=2.0).status is short.status


BUDGETS = {
    "max_evaluations": (PAPERS, {"tolerance": 0.01, "max_evaluations": 150_000}),
    "max_seconds": (PAPERS, {"tolerance": 0.01, "max_seconds": 1e-9}),
    "max_levels": (PAPERS, {"tolerance": 0.05, "max_levels": 3}),
    "max_evaluations, anchored": (None, {"tolerance": 0.01, "max_evaluations": 20_000}),
    "max_seconds, anchored": (None, {"tolerance": 0.01, "max_seconds": 1e-9}),
    # Steps are kept large, for three levels of smaller ones leave next to no bias.
    "max_levels, anchored": (
        tb.Anchored(first_step=0.7, batch_size=32),
        {"tolerance": {"mean": 0.0015, "sd": 10.0}, "max_levels": 3},
    ),
    # Dear enough for a second look at the choices, by another gradient too.
    "max_levels, anchored, reconsidered": (
        tb.Anchored(first_step=1.0, batch_size=16),
        {"tolerance": {"mean": 0.001, "sd": 10.0}, "max_levels": 3},
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if "reconsidered" in case else ()) for case in BUDGETS]
)
def test_a_budget_ends_the_run_with_its_status(case: str) -> None:
    (method, options), name = BUDGETS[case], case.split(",")[0]
    stopped = run(method=method, **options)
    assert stopped.status is tb.Status[name]
    assert not stopped.converged
    assert name in str(stopped).split("\n\n")[-1]
    assert not all(stopped[quantity].met for quantity in stopped)
    for quantity in stopped:
        known = bool(stopped.levels)
        assert np.all(np.isfinite(stopped[quantity].value) == known)
        assert np.all(np.isfinite(stopped[quantity].standard_error) == known)
    assert bool(stopped.levels) == (name != "max_seconds")
    if name == "max_evaluations":
        assert stopped.cost.evaluations <= options["max_evaluations"]
    if name == "max_levels":
        assert len(stopped.levels) == 3


@pytest.mark.parametrize(
    ("method", "evaluations"),
    [
        *((PAPERS, n) for n in (32_000, 40_000, 60_000, 90_000)),
        *((None, n) for n in (4_500, 5_000, 20_000)),
    ],
    ids=lambda part: "papers" if part is PAPERS else "anchored" if part is None else str(part),
)
def test_a_budget_that_ends_within_the_pilot_still_gives_values(method: Any, evaluations: int) -> None:
    stopped = run(method=method, tolerance=0.01, max_evaluations=evaluations)
    assert stopped.status is tb.Status.max_evaluations
    assert len(stopped.levels) <= 3
    assert stopped.cost.evaluations <= evaluations
    assert np.all(np.isfinite(stopped["mean"].value))
    assert str(stopped)


class Interrupter:
    """A progress callback that presses Ctrl-C at its n-th look at samples."""

    def __init__(self, calls: int) -> None:
        self.calls, self.last = calls, None

    def __call__(self, progress: tb.Progress) -> None:
        if not progress.has_error:
            return
        self.last, self.calls = progress, self.calls - 1
        if self.calls == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("calls", [1, 3])
def test_ctrl_c_keeps_what_was_computed(calls: int) -> None:
    interrupter = Interrupter(calls)
    stopped = run(tolerance=0.02, progress=interrupter)
    assert stopped.status is tb.Status.interrupted
    assert not stopped.converged
    assert interrupter.last is not None
    assert tuple(level.samples for level in stopped.levels) == interrupter.last.samples
    assert stopped.cost.evaluations == interrupter.last.evaluations
    assert np.all(np.isfinite(stopped["mean"].value))


def test_ctrl_c_and_carrying_on_give_the_numbers_of_an_unbroken_run() -> None:
    whole = run(tolerance=0.04)
    stopped = run(tolerance=0.04, progress=Interrupter(2))
    assert stopped.status is tb.Status.interrupted
    assert_same(stopped.extend().estimates, whole.estimates)


def test_progress_sees_errors_and_targets_and_changes_nothing(result: tb.Result) -> None:
    seen: list[tb.Progress] = []
    watched = run(progress=seen.append)
    assert_same(watched.estimates, result.estimates)
    phases = [progress.phase for progress in seen if not progress.has_error]
    set_up = ["checking rows", "placing rows", "mode", "second mode", "recentring", "quantities", "rows that matter"]
    assert list(dict.fromkeys(phases)) == [*set_up, "tails", "Gaussian level", "tuning", "sampling"]
    seen = [progress for progress in seen if progress.has_error]
    assert seen
    labels = {"mean[0]", "mean[1]", "sd[0]", "sd[1]"}
    for progress in seen:
        assert progress.quantity in labels
        assert progress.error > 0
        assert progress.target > 0
        assert progress.levels == len(progress.samples)
        assert progress.seconds > 0
    assert [progress.evaluations for progress in seen] == sorted(progress.evaluations for progress in seen)
    assert seen[-1].error <= seen[-1].target
    assert seen[-1].evaluations == watched.cost.evaluations


def test_an_error_in_the_callback_is_the_callers_own() -> None:
    def raising(progress: tb.Progress) -> None:
        raise ZeroDivisionError("my own mistake")

    with pytest.raises(ZeroDivisionError, match="my own mistake"):
        run(progress=raising)
