"""The engine's mutations: deliberate bugs in paths, steps, gradients, anchors and levels, and the tests about these.

A mutation replaces one piece of text in one file of src/tallbayes. Tests are of two kinds. Exact ones compare numbers
to rounding. Statistical ones hold samples against a closed form, quadrature or a rate, and would notice a bug that no
one thought of in a formula that is written but once.

That the two coarse paths of the antithetic coupling trade their batches is no bug: their mean is the same. So the batch
that is swapped here is one that goes to both of them, or twice to the fine path.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutation:
    """A bug: `before`, found exactly once in a file of src/tallbayes, becomes `after`. The tests that must turn red are
    `expected`, as file::function."""

    name: str
    file: str
    before: str
    after: str
    expected: tuple[str, ...]

    def applied(self, source: Path) -> str:
        """The file's text with the bug in it."""
        text = (source / self.file).read_text()
        if text.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: expected the text once in {self.file}; got it {text.count(self.before)} times. "
                f"Try the lines as they read now in place of\n{self.before}"
            )
        return text.replace(self.before, self.after)


LAW = "tests/laws/test_telescoping.py::test_fine_and_coarse_paths_have_the_exact_law"
POSTERIOR = "tests/laws/test_telescoping_anchored.py::test_levels_telescope_to_the_posterior"
DECAY = "tests/laws/test_telescoping_anchored.py::test_differences_vary_less_and_less"
ORDER = "tests/laws/test_orders.py::test_antithetic_is_of_order_two"
STEP_LAW = "tests/laws/test_exponential.py::test_the_ornstein_uhlenbeck_step_has_its_law"
STAYS = "tests/laws/test_exponential.py::test_paths_stay_in_the_gaussian_they_start_from"
STOPS = "tests/sampler/test_stops.py::test_coarse_stops_have_the_law_of_fine_ones_a_level_below"
CONTROLLED = "tests/laws/test_telescoping_controlled.py::test_controlled_levels_telescope_to_the_posterior"
FORMS = "tests/sampler/test_control.py::test_means_are_those_of_the_closed_forms"
UNTAMED = "tests/sampler/test_control.py::test_a_tamed_path_leaves_the_control_as_it_is"
STATISTICAL = (LAW, POSTERIOR, DECAY, ORDER, STEP_LAW, STAYS, STOPS, CONTROLLED, FORMS, UNTAMED)
BY_HAND = "tests/sampler/test_control.py::test_means_by_hand"
AVERAGES = "tests/anchor/test_expansion.py::test_of_a_gaussian_posterior_they_are_exact"

EQUATIONS = "tests/sampler/test_paths.py::test_paths_are_what_the_equations_say"
SLABS = "tests/sampler/test_slabs.py::test_a_batch_in_slabs_is_the_sum_over_its_rows"
UNBIASED = "tests/sampler/test_slabs.py::test_batches_are_unbiased"
REMAINDER = "tests/sampler/test_slabs.py::test_the_whitened_remainder_is_the_gradient_without_its_gaussian_part"
TWO_STEPS = "tests/laws/test_exponential.py::test_two_steps_are_one_step_of_twice_the_size"
GAUSSIAN = "tests/laws/test_exponential.py::test_a_gaussian_posterior_is_exact_at_any_step"
ANCHOR = "tests/anchor/test_anchor.py::test_linear_regression_has_its_closed_form"
FAMILY = "tests/model/test_families.py::test_a_family_is_the_model_written_by_hand"
JACOBIAN = "tests/model/test_constraints.py::test_the_jacobian_is_the_determinant_of_the_derivative"
CANCELS = "tests/house/test_moments.py::test_variance_does_not_cancel_far_from_zero"
RARE_ROW = "tests/laws/test_rows_that_matter.py::test_rows_that_decide_are_read"
UNITS = "tests/anchor/test_tails.py::test_the_gaussian_levels_error_has_its_unit"
MERGES = "tests/house/test_moments.py::test_merge_equals_numpy_for_any_split_and_grouping"

CODES = "tests/model/test_indexed.py::test_codes_stand_for_columns"
ARROW = "tests/model/test_indexed.py::test_the_arrow_of_a_layout_is_its_curvature"
HARD_LEVEL = "tests/formula/test_rare_levels.py::test_a_hard_level_fails_alone"

REPLACED, DISTINCT = "sampling=WithReplacement()", "sampling=WithoutReplacement()"
PLAIN_BLEND = "partner=<class 'tallbayes.sampler.gradients.Plain'>"
SELECTION = (
    f"{LAW}[Full(batch_size=None)-Antithetic()]",
    f"{LAW}[Plain(batch_size=2, {REPLACED})-Antithetic()]",
    f"{LAW}[Blend(batch_size=2, {DISTINCT}, {PLAIN_BLEND}, radius=0.5)-Antithetic()]",
    f"{POSTERIOR}[Taylor(batch_size=1, sampling=Blocks())-Antithetic()-False]",
    f"{POSTERIOR}[Plain(batch_size=1, sampling=Blocks())-Antithetic()-True]",
    f"{POSTERIOR}[Blend(batch_size=3, {DISTINCT}, {PLAIN_BLEND}, radius=2.0)-Antithetic()-False]",
    DECAY,
    f"{ORDER}[taylor-512]",
    STEP_LAW,
    STAYS,
    STOPS,
    f"{EQUATIONS}[Taylor(batch_size=3, {REPLACED})-Antithetic()-Euler()]",
    f"{EQUATIONS}[Blend(batch_size=3, {REPLACED}, {PLAIN_BLEND}, radius=1.5)-Antithetic()-Euler()]",
    SLABS,
    UNBIASED,
    REMAINDER,
    TWO_STEPS,
    GAUSSIAN,
    ANCHOR,
    f"{FAMILY}[linear-intercept]",
    JACOBIAN,
    "tests/house/test_moments.py",
    f"{RARE_ROW}[category_of_one_row]",
    f"{UNITS}[0.0001]",
    f"{CONTROLLED}[Taylor(batch_size=1, sampling=Blocks())-Antithetic()-False]",
    FORMS,
    UNTAMED,
    BY_HAND,
    AVERAGES,
    CODES,
    ARROW,
    HARD_LEVEL,
)


MUTATIONS = (
    Mutation(
        "noise-scale",
        "sampler/dynamics.py",
        "return np.array([step, np.sqrt(2 * step)])",
        "return np.array([step, np.sqrt(step)])",
        (LAW, EQUATIONS),
    ),
    Mutation(
        "noise-scale, to first order in h",
        "sampler/dynamics.py",
        "np.sqrt(-np.expm1(-2 * step)), np.sqrt(-np.expm1(-4 * step))",
        "np.sqrt(2 * step), np.sqrt(4 * step)",
        (STEP_LAW, STAYS, POSTERIOR, TWO_STEPS),
    ),
    Mutation(
        "batch-factor",
        "sampler/gradients.py",
        "return inputs.runs.length.astype(displacement.dtype) / count.astype(displacement.dtype) * total",
        "return inputs.num_rows.astype(displacement.dtype) / count.astype(displacement.dtype) * total",
        (POSTERIOR, UNBIASED),
    ),
    Mutation(
        "batch-factor, left out",
        "sampler/gradients.py",
        "return num_rows / estimator.batch_size * _centred_terms(",
        "return num_rows / num_rows * _centred_terms(",
        (LAW, POSTERIOR, EQUATIONS),
    ),
    Mutation(
        "coarse-reuses-fine-state",
        "sampler/paths.py",
        "own(coarse, u, coarse_y, merged, seen)",
        "own(jnp.broadcast_to(carry[0].state, coarse.shape), u, coarse_y, merged, seen)",
        (LAW, POSTERIOR, EQUATIONS),
    ),
    Mutation(
        "window-off-by-one",
        "sampler/levels.py",
        "coarse_window=np.int32(ladder.window(level - 1) if level else 0),",
        "coarse_window=np.int32(max(ladder.window(level - 1) - 1, 0) if level else 0),",
        (LAW, EQUATIONS),
    ),
    Mutation(
        "window-off-by-one, a point left out",
        "sampler/paths.py",
        "inside = index >= schedule.solo_steps - schedule.solo_window",
        "inside = index > schedule.solo_steps - schedule.solo_window",
        (LAW, EQUATIONS),
    ),
    Mutation(
        "window-off-by-one, all stops of level 0 at the end",
        "sampler/levels.py",
        "stride=np.int32(stride << max(level - 1, 0)),",
        "stride=np.int32(stride << level - 1 if level else 0),",
        (STOPS,),
    ),
    Mutation(
        "biased-blend",
        "sampler/gradients.py",
        "exact += _times(c, centre.likelihood_bend(centre.apart(displacement), bend))",
        "exact += centre.likelihood_bend(centre.apart(displacement), bend)",
        (LAW, EQUATIONS),
    ),
    Mutation(
        "biased-blend, by the prior's share of H",
        "sampler/gradients.py",
        "rest += (c - 1) * centre.likelihood_bend(apart, prior_bend)",
        "rest += (1 - c) * centre.whitening.times(displacement)",
        (POSTERIOR, REMAINDER),
    ),
    Mutation(
        "wrong-hessian",
        "anchor/expansion.py",
        "hessian=-(hessian + prior_hessian),",
        "hessian=-hessian,",
        (POSTERIOR, ANCHOR, FAMILY),
    ),
    Mutation(
        "wrong-hessian, the prior's counted twice",
        "anchor/expansion.py",
        "likelihood_hessian=hessian,",
        "likelihood_hessian=hessian + prior_hessian,",
        (POSTERIOR, REMAINDER),
    ),
    Mutation(
        "codes-off-by-one",
        "model/linear.py",
        'codes = jnp.where(rows["codes"] < d, rows["codes"] + head * d, dimension)',
        'codes = jnp.where(rows["codes"] < d, rows["codes"] + head * d + 1, dimension)',
        (CODES,),
    ),
    Mutation(
        "codes-off-by-one, in an arrow",
        "model/linear.py",
        "own = head.codes[:, arms.code] - arms.first",
        "own = head.codes[:, arms.code] - arms.first - 1",
        (ARROW,),
    ),
    Mutation(
        "slow-parameter-keeps-its-error",
        "setup/quantities.py",
        "reported, start = np.any(np.asarray(slopes) != 0, axis=0), 0",
        "reported, start = np.any(np.asarray(slopes) > 2, axis=0), 0",
        (HARD_LEVEL,),
    ),
    Mutation(
        "swapped-antithetic-batch",
        "sampler/couplings.py",
        "    def coarse_batches(self, draws: Draws, batch_size: int, fine: Any) -> Any:\n        return fine\n",
        "    def coarse_batches(self, draws: Draws, batch_size: int, fine: Any) -> Any:\n"
        "        return jax.tree.map(lambda leaf: leaf[jnp.array([0, 0])], fine)\n",
        (ORDER, DECAY),
    ),
    Mutation(
        "swapped-antithetic-batch, in the fine path",
        "sampler/paths.py",
        "jax.lax.scan(onward, (fine, u, y), (noise, expanded))",
        "jax.lax.scan(onward, (fine, u, y), (noise, jax.tree.map(lambda leaf: leaf[jnp.array([0, 0])], expanded)))",
        (LAW, EQUATIONS),
    ),
    Mutation(
        "dropped-jacobian",
        "model/model.py",
        "return model.log_prior(space.theta(vector)) + space.log_jacobian(vector)",
        "return model.log_prior(space.theta(vector))",
        (FAMILY,),
    ),
    Mutation(
        "dropped-jacobian, of the last break",
        "model/constraints.py",
        "return jnp.sum(log_value[..., :-1] + log_left)",
        "return jnp.sum(log_value[..., :-1]) + jnp.sum(log_left[..., :-1])",
        (JACOBIAN,),
    ),
    Mutation(
        "coarse-start-from-wrong-law",
        "sampler/paths.py",
        "coarse = start_coarse(u if plan.laplace else start, coupling.num_coarse, fine.state)",
        "coarse = start_coarse(jnp.zeros_like(start), coupling.num_coarse, fine.state)",
        (POSTERIOR, GAUSSIAN),
    ),
    Mutation(
        "coarse-start-from-wrong-law, where the shift has led",
        "sampler/paths.py",
        "return jnp.stack([start] * num_coarse)",
        "return jnp.stack([fine] * num_coarse)",
        (POSTERIOR, EQUATIONS),
    ),
    Mutation(
        "control, with a tamed remainder",
        "sampler/control.py",
        "dynamics.follow(coefficients, y, beside)",
        "dynamics.step(coefficients, y, beside, jnp.zeros_like(noise))",
        (UNTAMED,),
    ),
    Mutation(
        "control",
        "sampler/levels.py",
        "delta - (control - known.mean(self.ladder, level))",
        "delta - control",
        (CONTROLLED,),
    ),
    Mutation(
        "control, one coarse y shares the fine path's",
        "sampler/paths.py",
        "coarse_y = start_coarse_control(coupling.num_coarse, y) if",
        "coarse_y = start_coarse_control(coupling.num_coarse, y).at[0].set(y) if",
        (FORMS,),
    ),
    Mutation(
        "control, of the step after",
        "sampler/dynamics.py",
        "second = float(np.mean(-np.expm1(-2 * times))) * np.exp(-step) / (1 + np.exp(-step))",
        "second = float(np.mean(-np.expm1(-2 * times))) / (1 + np.exp(-step))",
        (FORMS, BY_HAND),
    ),
    Mutation(
        "balance",
        "anchor/expansion.py",
        "gradient + prior_gradient, -(hessian + prior_hessian)\n",
        "gradient + prior_gradient, -hessian\n",
        (AVERAGES,),
    ),
    Mutation(
        "raw-second-moments-float32",
        "moments.py",
        "sum2=square.sum(axis=0),",
        "sum2=np.float64(np.sum(np.float32(values) ** 2, axis=0) - len(values) * np.float32(mean) ** 2),",
        (CANCELS, MERGES),
    ),
    Mutation(
        "listing-switched-off",
        "setup/preparation.py",
        "    listing = list_rows(prepared.target, prepared.table, prepared.anchor, executor, folder)",
        "    listing = None",
        (RARE_ROW,),
    ),
    Mutation(
        "sd-error-in-the-wrong-unit",
        "estimator/estimands.py",
        "_sd_variance(estimands, total, variance[None], covariance[None])[0]",
        "variance[quantity.columns]",
        (UNITS,),
    ),
)
