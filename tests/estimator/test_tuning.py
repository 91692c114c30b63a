"""The tuner on made-up pilots whose law is known: which pairs (h_0, n) are tried, which is taken, and what that costs.

The differences of levels 0 and 1 are drawn with the sds that a test gives, pairs of paths contract at the rate it
gives; nothing is compiled. That the record reaches the result and its text is in test_result.py and test_text.py.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import MethodError
from tallbayes.estimator.allocation import Least
from tallbayes.estimator.estimands import Tolerances
from tallbayes.estimator.ladder import FIRST_STEPS, batch_sizes_up_to
from tallbayes.estimator.levels import BLOCK_PATHS, Stream, sample_level
from tallbayes.estimator.made_up import MadeUp, made_up_estimands
from tallbayes.estimator.tails import eased
from tallbayes.estimator.tuning import Tuner, tune

NUM_ROWS = 1000


def made_up(variance=lambda h, n: 1e-4, bias=lambda h, n: 0.0, **law):
    """Pilots as functions of (h_0, n): variances fall by four a level, and steps are counted as those of real paths."""
    return MadeUp(variance=variance, bias=bias, cost=None, largest_batch=NUM_ROWS, **law)


def tuned(levels, method=None, tolerance=0.05, threads=1):
    goal = Tolerances("absolute_tolerance", (tolerance,), (1,))
    choices = (method or tb.Anchored()).choices(NUM_ROWS)
    with ThreadPoolExecutor(threads) as executor:
        return tune(Tuner(levels, made_up_estimands(), None, goal, executor, choices))


def pairs(record):
    return [(trial.first_step, trial.batch_size) for trial in record.trials]


def test_batch_sizes_end_with_all_rows():
    assert batch_sizes_up_to(100) == (1, 4, 16, 64, 100)
    assert batch_sizes_up_to(64) == (1, 4, 16, 64)
    assert batch_sizes_up_to(1) == (1,)


def test_the_cheapest_pair_is_kept_where_it_suffices():
    """One trial: with 64 paths a level the tolerance is met already, so nothing could be saved."""
    problem, contraction, record = tuned(made_up())
    assert pairs(record) == [(1.0, 1)]
    assert record.chosen == record.trials[0]
    assert (problem.ladder.first_step, problem.batch_size) == (1.0, 1)
    assert (problem.ladder.start_steps, problem.ladder.added_steps) == (3, 3)
    assert record.reason == "the cheapest choice there is, and it suffices"
    assert contraction.rate == pytest.approx(1, rel=0.01)
    assert problem.stream is Stream.LEVEL


def test_a_control_has_shorter_paths_and_larger_batches():
    problem, _, record = tuned(made_up(control=0.01))
    assert (problem.ladder.first_step, problem.batch_size) == (1.0, 4)
    assert (problem.ladder.start_steps, problem.ladder.added_steps) == (2, 1)
    assert record.chosen.left == pytest.approx(1e-4 * 0.01, rel=0.7)
    assert record.reason == "the first choice suffices"


def test_a_floor_is_eased_by_what_a_control_leaves():
    """Of four times the variance that was seen, the control leaves four times of what it left."""
    least = Least(np.array([4.0, 0.5, 2.0]), np.full(3, 3.0))
    found = eased(least, plain=np.array([1.0, 1.0, 0.0]), controlled=np.array([0.1, 0.1, 0.0]))
    np.testing.assert_allclose(found.variance, [0.4, 0.1, 2.0])


def test_a_larger_batch_is_taken_where_it_repays():
    """Variance 1 / n against a step that costs n + 4: at a fine tolerance 4 or 16 rows a step are best."""
    cost = {n: (n + 4) / n for n in batch_sizes_up_to(NUM_ROWS)}
    _, _, record = tuned(made_up(variance=lambda h, n: 1 / n), tolerance=0.01)
    assert record.chosen.batch_size >= 16
    assert cost[record.chosen.batch_size] < 1.3 * min(cost.values())
    assert record.chosen.price == min(trial.price for trial in record.trials)
    # Where n makes no difference, one row is kept, and n = 4 is tried at most once.
    _, _, flat = tuned(made_up(variance=lambda h, n: 1.0), tolerance=0.01)
    assert flat.chosen.batch_size == 1


def test_a_smaller_step_is_taken_where_it_repays():
    """Level 0 varies like h^4: half the step costs twice as much and saves sixteen times."""
    _, _, record = tuned(made_up(variance=lambda h, n: h**4), tolerance=0.003)
    assert record.chosen.first_step < 1
    assert record.chosen.batch_size == 1


def test_no_trial_that_would_not_repay_itself():
    """At a loose tolerance the same problem is left at the first pair."""
    _, _, record = tuned(made_up(variance=lambda h, n: 1 / n), tolerance=1.0)
    assert pairs(record) == [(1.0, 1)]


# With means that take a few levels more, so that paths are long beside their pilots.
FORGETFUL = made_up(variance=lambda h, n: 1.0, bias=lambda h, n: 0.1, averaged=lambda window: 1 / (1 + 2 * window))


def test_a_window_is_taken_where_it_repays():
    """One path five times as long is worth 17, and one 17 times as long is worth 85."""
    problem, _, record = tuned(FORGETFUL, tb.Anchored(first_step=1.0, batch_size=1), tolerance=0.003)
    assert [trial.window for trial in record.trials] == [0, 4, 16]
    assert record.chosen == min(record.trials, key=lambda trial: trial.price)
    window = record.chosen.window
    assert window >= 4
    ladder = problem.ladder
    assert (ladder.start_steps, ladder.window_steps) == (ladder.added_steps * (1 + window), ladder.added_steps * window)


def test_no_window_where_averages_vary_as_much():
    """It is tried once, in vain."""
    for method in (tb.Anchored(), tb.Anchored(first_step=1.0, batch_size=1)):
        flat = replace(FORGETFUL, averaged=lambda window: 1.0)
        problem, _, record = tuned(flat, method, tolerance=0.003)
        assert [trial.window for trial in record.trials].count(4) == 1
        assert record.chosen.window == problem.ladder.window_steps == 0


def test_no_window_where_the_first_paths_suffice():
    assert {trial.window for trial in tuned(FORGETFUL, tolerance=1.0)[2].trials} == {0}


def test_no_window_for_paths_that_do_not_forget():
    """Nothing that starts within reach of its start is worth an average; the same paths that forget are."""
    for rate, windows in ((-0.1, {0}), (1.0, {0, 4, 16})):
        stuck = replace(FORGETFUL, rate=lambda h, n, rate=rate: rate)
        record = tuned(stuck, tb.Anchored(first_step=1.0, batch_size=1), tolerance=0.003)[2]
        assert {trial.window for trial in record.trials} == windows


def test_pairs_are_tried_again_with_a_window():
    """Without one, 16 rows a step seem not to repay; averaged paths show that they do."""
    problem = replace(FORGETFUL, variance=lambda h, n: 1 / n)
    _, _, record = tuned(problem, tolerance=0.002)
    with_window = {n for trial in record.trials if trial.window for n in [trial.batch_size]}
    assert record.chosen.window > 0
    assert len(with_window) > 1
    assert record.chosen.price == min(trial.price for trial in record.trials if trial.window)


@pytest.mark.parametrize("window", [0, 3])
def test_a_window_is_kept(window):
    problem, _, record = tuned(FORGETFUL, tb.Anchored(window=window), tolerance=0.003)
    assert {trial.window for trial in record.trials} == {window}
    assert problem.ladder.window_steps == window * problem.ladder.added_steps


def test_strained_pairs_escalate():
    """Both at once, step and batch, until steps are calm; a strained pair has no price."""
    problem = made_up(strained=lambda h, n: 0.2 if h > 0.25 or n < 16 else 0.0)
    _, _, record = tuned(problem)
    assert pairs(record)[:3] == [(1.0, 1), (0.5, 4), (0.25, 16)]
    assert np.isinf([trial.price for trial in record.trials[:2]]).all()
    assert record.chosen in record.trials[2:]
    assert np.isfinite(record.chosen.price)
    assert f"{np.isinf([trial.price for trial in record.trials]).sum()} strained" in record.reason


def test_rare_strain_is_let_pass():
    assert pairs(tuned(made_up(strained=lambda h, n: 0.004))[2]) == [(1.0, 1)]


def test_paths_that_are_not_finite_escalate():
    _, _, record = tuned(made_up(nonfinite=lambda h, n: int(n < 4)))
    assert pairs(record)[:2] == [(1.0, 1), (0.5, 4)]
    assert record.chosen.batch_size >= 4


def test_strain_everywhere_ends_with_the_calmest():
    """All rows and the smallest step are reached, and the record says that none would do."""
    chosen, _, record = tuned(made_up(strained=lambda h, n: 0.01 + 0.5 * h / n))
    assert pairs(record)[-1] == (FIRST_STEPS[-1], NUM_ROWS)
    assert record.chosen == record.trials[-1]
    assert chosen.batch_size == NUM_ROWS
    assert "all of them strained" in record.reason


def test_pairs_that_do_not_contract_are_refused():
    problem = made_up(rate=lambda h, n: 1.0 if h <= 0.25 else -0.1)
    chosen, contraction, record = tuned(problem)
    assert chosen.ladder.first_step <= 0.25
    assert record.chosen.first_step <= 0.25
    assert contraction.upper < np.exp(-2)
    assert "2 without contraction" in record.reason


def test_no_contraction_anywhere_is_handed_on():
    """The tuner ends; the run that gets such a contraction ends in a status."""
    _, contraction, record = tuned(made_up(rate=lambda h, n: -0.1))
    assert contraction.upper > 1
    assert len(set(pairs(record))) == len(pairs(record))


def test_paths_are_made_longer_where_contraction_is_slow():
    """Rate 0.4: times of 2.5 / 0.4; rate 0.01 would take longer than anything that is tried."""
    problem, contraction, record = tuned(made_up(rate=lambda h, n: 0.4))
    assert problem.ladder.added_steps * problem.ladder.first_step >= 2 / 0.4
    assert problem.ladder.added_steps * problem.ladder.first_step < 8
    assert contraction.upper <= np.exp(-2)
    assert record.time == problem.ladder.time(0)
    slow, contraction, _ = tuned(made_up(rate=lambda h, n: 0.01))
    assert contraction.upper > 0.8
    assert slow.ladder.added_steps * slow.ladder.first_step < 40


@pytest.mark.parametrize("problem", [made_up(), made_up(rate=lambda h, n: 0.4), made_up(variance=lambda h, n: 1 / n)])
def test_evaluations_are_counted_exactly(problem):
    """Those of every block that was asked for, in trials and in pairs of paths."""
    counted = []

    class Counting:
        """Threads that add up what is asked of them."""

        def submit(self, task, /, levels, *arguments):
            cost = levels.evaluations(arguments[0]) if task is sample_level else levels.contraction_evaluations()
            counted.append(BLOCK_PATHS * cost)
            return executor.submit(task, levels, *arguments)

    goal = Tolerances("absolute_tolerance", (0.01,), (1,))
    with ThreadPoolExecutor(1) as executor:
        choices = tb.Anchored().choices(NUM_ROWS)
        _, _, record = tune(Tuner(problem, made_up_estimands(), None, goal, Counting(), choices))
    assert record.evaluations == sum(counted)
    first = record.trials[0]
    assert first.evaluations == 64 * (3 + (2 * 6 + 2 * 3)) * first.batch_size


def test_the_number_of_threads_does_not_matter():
    problem = made_up(variance=lambda h, n: h / n, bias=lambda h, n: 0.1 * h, rate=lambda h, n: 0.7)
    records = [tuned(problem, tolerance=0.01, threads=threads)[2] for threads in (1, 3, 8)]
    assert len(records[0].trials) > 2
    assert records[0] == records[1] == records[2]


# What the user decides is kept, piece by piece.

STRAINED = made_up(strained=lambda h, n: 0.2 if h > 0.25 or n < 16 else 0.0)


def test_a_batch_size_is_kept():
    problem, _, record = tuned(STRAINED, tb.Anchored(batch_size=20))
    assert {n for _, n in pairs(record)} == {20}
    assert problem.batch_size == 20
    assert problem.ladder.first_step == 0.25


def test_a_first_step_is_kept():
    problem, _, record = tuned(STRAINED, tb.Anchored(first_step=0.2))
    assert {h for h, _ in pairs(record)} == {0.2}
    assert problem.batch_size == 16
    assert problem.ladder.added_steps == 13


def test_a_time_is_kept():
    """Steps and rows are still chosen."""
    problem, contraction, _ = tuned(replace(STRAINED, rate=lambda h, n: 0.4), tb.Anchored(time=6.0))
    assert problem.ladder.start_steps * problem.ladder.first_step == 6.0
    assert (problem.ladder.first_step, problem.batch_size) == (0.25, 16)
    assert contraction.factor == pytest.approx(np.exp(-0.4 * 6), rel=0.01)


def test_a_time_that_is_too_short_does_not_lead_to_strained_steps():
    """No pair contracts by e^-2 in it. That is told by the run; it makes no strained pair a better choice."""
    problem, contraction, _ = tuned(replace(STRAINED, rate=lambda h, n: 0.4), tb.Anchored(time=3.0))
    assert contraction.factor == pytest.approx(np.exp(-0.4 * 3), rel=0.01)
    assert problem.ladder.first_step <= 0.25
    assert problem.batch_size >= 16


def test_a_ladder_is_kept():
    ladder = tb.Ladder(0.1, start_steps=7, added_steps=9, window_steps=2)
    problem, _, record = tuned(made_up(rate=lambda h, n: 0.4), tb.Anchored(ladder=ladder))
    assert problem.ladder == ladder
    assert {h for h, _ in pairs(record)} == {0.1}


def test_a_gradient_is_kept():
    """With a sampling law that has its size compiled in, there is nothing left to choose but steps and times."""
    method = tb.Anchored(gradient=tb.Blend(8, tb.WithReplacement()))
    calm = made_up(batch_size=8, fixed=True)
    problem, _, record = tuned(calm, method)
    assert problem.batch_size == 8
    assert pairs(record) == [(1.0, 8)]
    assert tb.Anchored(gradient=tb.Full()).choices(NUM_ROWS).batch_sizes == (NUM_ROWS,)


def test_everything_fixed_is_one_trial():
    method = tb.Anchored(batch_size=5, ladder=tb.Ladder(0.5, 4, 4))
    assert pairs(tuned(STRAINED, method)[2]) == [(0.5, 5)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"batch_size": 2.5},
        {"first_step": 0.0},
        {"first_step": float("nan")},
        {"time": -1.0},
        {"time": float("inf")},
        {"batch_size": 4, "gradient": tb.Taylor(4)},
        {"ladder": tb.Ladder(1.0), "first_step": 0.5},
        {"ladder": tb.Ladder(1.0), "time": 3.0},
        {"ladder": tb.Ladder(1.0), "window": 0},
        {"window": -1},
        {"window": 2.5},
        {"window": np.int64(4)},
        {"window": True},
        {"gradient": "Taylor"},
        {"dynamics": tb.Euler()},
    ],
    ids=str,
)
def test_choices_that_contradict_are_refused(wrong):
    with pytest.raises(MethodError, match=r"expected .*; got .* Try: "):
        tb.Anchored(**wrong)
