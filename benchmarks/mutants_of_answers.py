"""Mutations of what stands on the engine: groups, weights, draws, evidence, leave-one-out, averages, rows that arrive.

Each is held against the tests about its own part alone, which are `expected` to turn red. These hold what is computed
against SciPy's densities, quadrature, closed forms, brute force over draws, or a fit from scratch.
"""

from __future__ import annotations

from mutants import Mutation

NODES = "tests/groups/test_integral.py::test_nodes_integrate_every_group"
CLOSED = "tests/groups/test_integral.py::test_linear_groups_have_their_closed_form"
BUNDLES = "tests/groups/test_bundles.py::test_bundles_have_the_log_posterior_of_their_groups"
COVER = "tests/evidence/test_estimate.py::test_intervals_cover"
PARTIALS = "tests/evidence/test_constants.py::test_three_correlations_have_the_constants_of_their_partials"
MIXED_EVIDENCE = "tests/evidence/test_groups.py::test_the_joint_density_of_a_mixed_model_is_whole"
ONE_PASS = "tests/leave_one_out/test_loo.py::test_one_pass_is_near"
DECIDES = "tests/leave_one_out/test_loo.py::test_a_row_that_decides_much_is_named_and_right"
REPLICATES = "tests/weighing/test_replicates.py::test_replicates_have_no_bias"
NOTHING_LEFT = "tests/weighing/test_weights.py::test_where_the_posterior_is_the_gaussian_nothing_is_left"
TAKEN = "tests/results/test_draws.py::test_draws_of_a_small_table_are_of_the_posterior_itself"
ENDS = "tests/results/test_draws.py::test_ends_of_paths_have_the_moments_of_the_answer"
LAWS = "tests/model/test_priors.py::test_densities_integrate_to_one"
SCIPY = "tests/model/test_priors.py::test_densities_are_those_of_scipy"
POWERS = "tests/results/test_sensitivity.py::test_of_a_gaussian_posterior_it_is_a_closed_form"
SLICES = "tests/shrinkage/test_shrinkage.py::test_chains_are_right_where_a_quadrature_is"
WHITENINGS = "tests/gaussian/test_whitening.py::test_a_whitening_does_what_its_matrix_does"
KINETIC = "tests/laws/test_kinetic.py::test_two_steps_are_one_step_of_twice_the_size"
SUMS = "tests/arrivals/test_updates.py::test_withdrawing_and_adding_back_gives_the_old_sums_and_list"
ONCE = "tests/arrivals/test_order.py::test_a_row_counts_once_however_often_it_stands"
OWN_DAYS = "tests/arrivals/test_updates.py::test_days_have_random_numbers_of_their_own"
STEP = "tests/arrivals/test_centre.py::test_the_gradient_of_all_rows_is_exact_wherever_they_are_expanded"

MUTATIONS = (
    Mutation(
        "groups, weights of another density",
        "model/groups/integral.py",
        "one = np.log(w / w.sum()) + x**2 / 2 + np.log(2 * np.pi) / 2",
        "one = np.log(w / w.sum()) + x**2 / 2",
        (NODES,),
    ),
    Mutation(
        "groups, spreads of effects about 0",
        "model/groups/integral.py",
        "return EffectMoments(mean, *(share @ (shown - mean) ** power for power in (2, 3, 4)))",
        "return EffectMoments(mean, *(share @ shown**power for power in (2, 3, 4)))",
        (CLOSED,),
    ),
    Mutation(
        "groups, padding of a bundle is read",
        "model/groups/integral.py",
        "return jnp.sum(jnp.where(inside(filled, terms.shape[1]), terms, 0), axis=1)",
        "return jnp.sum(terms, axis=1)",
        (BUNDLES,),
    ),
    Mutation(
        "evidence, what is taken off has no mean of 0",
        "evidence/estimate.py",
        "d = w - beta * apart",
        "d = w - 0.1 * beta * g",
        (COVER,),
    ),
    Mutation(
        "evidence, a power of a correlation",
        "evidence/constants.py",
        "total -= float(np.sum(betaln(0.5, powers_of(term) + 1)))",
        "total -= float(np.sum(betaln(0.5, powers_of(term))))",
        (PARTIALS,),
    ),
    Mutation(
        "evidence, effects by group lose their constant",
        "evidence/constants.py",
        "total -= groups * target.integrated.size * LOG_TWO_PI / 2",
        "total -= 0 * groups * target.integrated.size * LOG_TWO_PI / 2",
        (MIXED_EVIDENCE,),
    ),
    Mutation(
        "loo, a row is put in twice",
        "leave_one_out/cavity.py",
        "u = -path.s[which, k] * cavity.pull / left + path.u[which, k] / jnp.sqrt(left)",
        "u = path.s[which, k] * cavity.pull / left + path.u[which, k] / jnp.sqrt(left)",
        (ONE_PASS,),
    ),
    Mutation(
        "loo, weights of the other sign",
        "leave_one_out/certificate.py",
        "elpd[part] = reference[:, 0] - np.log(np.mean(w * inverse, axis=1))",
        "elpd[part] = reference[:, 0] + np.log(np.mean(w * inverse, axis=1))",
        (DECIDES,),
    ),
    Mutation(
        "weights, the Gaussian's own mean is forgotten",
        "weighing/weights.py",
        "return posterior * (values - mean[..., None]) - gaussian * (values - base[..., None]) + shift[..., None]",
        "return posterior * (values - mean[..., None]) - gaussian * values + shift[..., None]",
        (NOTHING_LEFT,),
    ),
    Mutation(
        "draws, chains that have met go on apart",
        "weighing/replicates.py",
        "total += min(1.0, (t - FIRST) / (LAST - FIRST + 1)) * apart",
        "total += (t - FIRST) / (LAST - FIRST + 1) * apart",
        (REPLICATES,),
    ),
    Mutation(
        "draws, every proposal is taken",
        "results/draws/rejection.py",
        "return Chosen(np.flatnonzero(self.uniform * bound < weight), excess, bound, off)",
        "return Chosen(np.flatnonzero(self.uniform * 0 < weight), excess, bound, off)",
        (TAKEN,),
    ),
    Mutation(
        "draws, an end without its last noise",
        "results/draws/ends.py",
        "return quiet + _last_noise(posterior, quiet.shape, seed), levels",
        "return quiet, levels",
        (ENDS,),
    ),
    Mutation(
        "priors, Student's normaliser",
        "model/priors/laws.py",
        "return lgamma(freedom / 2) - lgamma((freedom + 1) / 2) + 0.5 * log(pi * freedom)",
        "return lgamma(freedom / 2) - lgamma((freedom + 1) / 2) + 0.5 * log(pi)",
        (LAWS, SCIPY),
    ),
    Mutation(
        "shrinkage, a slice that is too high",
        "shrinkage/slices.py",
        "level = log_density(x) - rng.standard_exponential(x.shape)",
        "level = log_density(x) - 0.8 * rng.standard_exponential(x.shape)",
        (SLICES,),
    ),
    Mutation(
        "sensitivity, powers of ten for doublings",
        "results/powers/covariances.py",
        "LOG2 = float(np.log(2.0))",
        "LOG2 = float(np.log10(2.0))",
        (POWERS,),
    ),
    Mutation(
        "whitening, a chain's determinant",
        "gaussian/chain.py",
        'return float(-2 * np.sum(np.log(np.einsum("tii->ti", self.inverses))))',
        'return float(-np.sum(np.log(np.einsum("tii->ti", self.inverses))))',
        (WHITENINGS,),
    ),
    Mutation(
        "whitening, a chain's variances end where a block does",
        "gaussian/chain.py",
        "beyond = 0.0 if after is None else self.onward[t].T @ after @ self.onward[t]",
        "beyond = 0.0",
        (WHITENINGS,),
    ),
    Mutation(
        "kinetic, noise that is merged as if no time had passed",
        "sampler/kinetic.py",
        "earlier, later = whole @ flow @ root, whole @ root",
        "earlier, later = whole @ root, whole @ root",
        (KINETIC,),
    ),
    Mutation(
        "arrivals, rows withdrawn push as before",
        "arrivals/centre.py",
        "self.gradient + sign * other.gradient,",
        "self.gradient + abs(sign) * other.gradient,",
        (SUMS,),
    ),
    Mutation(
        "arrivals, a row counts as often as it stands",
        "arrivals/order.py",
        "weights = np.repeat(1 / copies, copies).astype(np.float32)[order]",
        "weights = np.repeat(np.ones(len(copies)), copies).astype(np.float32)[order]",
        (ONCE,),
    ),
    Mutation(
        "arrivals, days share their random numbers",
        "arrivals/days.py",
        "    if standing.day == 0 and not again:\n",
        "    if standing.day >= 0 and not again:\n",
        (OWN_DAYS,),
    ),
    Mutation(
        "arrivals, the gradient where rows are expanded",
        "arrivals/centre.py",
        "gradient = self.gradient + bend",
        "gradient = self.gradient",
        (STEP,),
    ),
)
