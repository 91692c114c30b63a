"""Gradient estimators: five ways to estimate grad log pi(theta | X) from n rows, in one equation.

With v = theta - theta_0, G and H_X the gradient and Hessian of the log likelihood at theta_0,

    grad log pi(theta) + b G + c H_X v + (N/n) sum_{i in tau} [grad_i(theta) - b grad_i(theta_0) - c Hess_i v]

is unbiased for every b, c that depend on theta alone. The prior's gradient is exact at every step. Where the centre
knows the third derivatives T of the log likelihood, c brings them too, e = c k(theta) of them:

    + e T(v, v) / 2   and, by row,   - e l'''_i (x_i . v)^2 / 2 x_i,      k = 1 / (1 + (|z|^2 / (4 (d + 4)))^4)

so that rows are left with what is of third order; far out, where a square no longer guides, k lets go of it.

    Full            all rows, b = c = 0
    Plain           b = 0, c = 0
    ControlVariate  b = 1, c = 0
    Taylor          b = 1, c = 1
    Blend           c = w(theta) = 1 / (1 + (|z|^2 / R^2)^2), z whitened; b = 1, or b = w with partner Plain

The exponential step wants what is left of it beyond the Gaussian at theta_0, in whitened units, r(z) with v = W z:

    W^T [ grad log prior - its linear part + grad log pi(theta_0 | X) + (b - 1) G + (c - 1) H_X v + (N/n) sum ... ]

(with T also T(w, w) / 2 + (e - 1) T(v, v) / 2, w = W z the displacement from the Gaussian's own centre)

formed without the parts that cancel. A batch is either n rows gathered at once, n fixed when the program is compiled,
or a run of consecutive rows read in slabs of four, or of 64 beside very many parameters, n an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from tallbayes.anchor.sums import density_terms, third_of_density
from tallbayes.errors import MethodError, explain
from tallbayes.model.model import Target
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.table import tile_rows
from tallbayes.sampler.draws import gather
from tallbayes.sampler.inputs import Centre, Inputs
from tallbayes.sampler.minibatch import WithReplacement
from tallbayes.sampler.roles import GradientEstimator, Sampling


class CentredRows(NamedTuple):
    """A batch with what it is at the centre, computed once for all paths that share it.

    For a regression, by row: eta, l'(eta), l''(eta), and l'''(eta) where its sums are known. For any other model, by
    batch: the gradient at theta_0 and the linear map v -> Hess v there.
    """

    rows: Any
    predictor: Any
    slope: Any
    curvature: Any
    third: Any = None


@dataclass(frozen=True)
class Full:
    """The exact gradient, all N rows every step.

    >>> import tallbayes as tb
    >>> method = tb.Multilevel(gradient=Full())  # for tb.estimate(..., method=method)
    """

    batch_size: None = field(default=None, init=False)
    sampling: Sampling = field(default=WithReplacement(), init=False, repr=False)

    def controls(self, centre: Centre, displacement: jax.Array) -> tuple[float, float]:
        return 0.0, 0.0


@dataclass(frozen=True)
class Plain:
    """Minibatch gradient scaled by N/n; its noise swamps coarse levels.

    >>> Plain(batch_size=10)
    Plain(batch_size=10, sampling=WithReplacement())
    """

    batch_size: int
    sampling: Sampling = WithReplacement()

    def __post_init__(self) -> None:
        _require_batch(self.batch_size)

    def controls(self, centre: Centre, displacement: jax.Array) -> tuple[float, float]:
        return 0.0, 0.0


@dataclass(frozen=True)
class ControlVariate:
    """Differences from the gradient at the mode; noise grows like |theta - theta_0|.

    >>> ControlVariate(batch_size=10)
    ControlVariate(batch_size=10, sampling=WithReplacement())
    """

    batch_size: int
    sampling: Sampling = WithReplacement()

    def __post_init__(self) -> None:
        _require_batch(self.batch_size)

    def controls(self, centre: Centre, displacement: jax.Array) -> tuple[float, float]:
        return 1.0, 0.0


@dataclass(frozen=True)
class Taylor:
    """Second-order remainders; noise grows like |theta - theta_0|^2.

    >>> Taylor(batch_size=10)
    Taylor(batch_size=10, sampling=WithReplacement())
    """

    batch_size: int
    sampling: Sampling = WithReplacement()

    def __post_init__(self) -> None:
        _require_batch(self.batch_size)

    def controls(self, centre: Centre, displacement: jax.Array) -> tuple[float, float]:
        return 1.0, 1.0


@dataclass(frozen=True)
class Blend:
    """Taylor near the mode, its partner far out, by a weight continuous in theta.

    `partner` is ControlVariate (quieter) or Plain (the paper's); `radius` is in posterior sds, 2 sqrt(d)
    unless given.

    >>> Blend(batch_size=10, partner=Plain, radius=3.0).radius
    3.0
    """

    batch_size: int
    sampling: Sampling = WithReplacement()
    partner: type[Plain] | type[ControlVariate] = ControlVariate
    radius: float | None = None

    def __post_init__(self) -> None:
        _require_batch(self.batch_size)
        if self.partner not in (Plain, ControlVariate):
            raise MethodError(explain("partner Plain or ControlVariate", repr(self.partner), "ControlVariate"))
        if self.radius is not None and not self.radius > 0:
            raise MethodError(explain("radius > 0", repr(self.radius), "None for 2 sqrt(d)"))

    def controls(self, centre: Centre, displacement: jax.Array) -> tuple[Any, jax.Array]:
        radius = 2 * displacement.size**0.5 if self.radius is None else self.radius
        square = centre.square_length(displacement) / radius**2
        weight = 1 / (1 + square * square)
        return (1.0 if self.partner is ControlVariate else weight), weight


def posterior_gradient(
    target: Target, estimator: GradientEstimator, inputs: Inputs, displacement: jax.Array, batch: Any
) -> jax.Array:
    """The estimate at theta_0 + displacement; `batch` as `row_terms` takes it."""
    centre = inputs.centre
    prior = jax.grad(target.log_prior.call)(centre.mode + displacement)
    if estimator.batch_size is None:
        return prior + row_terms(target, estimator, inputs, centre.apart(displacement), batch, 0.0, 0.0)
    b, c = estimator.controls(centre, displacement)
    e = third_control(centre, displacement, c)
    noisy = row_terms(target, estimator, inputs, centre.apart(displacement), batch, b, c, e)
    exact = _times(b, centre.gradient_there)
    if not _is(e, 0.0):
        exact += e * centre.twist_apart(displacement, centre.twist(displacement))
    if not _is(c, 0.0):
        bend = _prior_at_centre(target, centre, displacement)[1] if centre.hessian is None else displacement
        exact += _times(c, centre.likelihood_bend(centre.apart(displacement), bend))
    return prior + exact + noisy


def whitened_remainder(
    target: Target, estimator: GradientEstimator, inputs: Inputs, state: jax.Array, batch: Any
) -> jax.Array:
    """r(z): W^T of the gradient's estimate at theta_0 + W z, plus z."""
    centre, displacement = inputs.centre, inputs.centre.move(state)
    prior_there = jax.grad(target.log_prior.call)(centre.mode + displacement)
    prior_here, prior_bend = _prior_at_centre(target, centre, displacement)
    whole = centre.is_whole
    b, c = (1.0, 1.0 if whole else 0.0) if estimator.batch_size is None else estimator.controls(centre, displacement)
    e = 0.0 if estimator.batch_size is None else third_control(centre, displacement, c)
    apart = centre.apart(displacement)
    rest = row_terms(target, estimator, inputs, apart, batch, b, c, e) + centre.posterior_gradient
    rest += prior_there - prior_here
    if not _is(b, 1.0):
        rest += (b - 1) * centre.gradient_there
    if not whole:
        return centre.pull_back(rest) + state
    rest -= prior_bend
    if not _is(c, 1.0):
        rest += (c - 1) * centre.likelihood_bend(apart, prior_bend)
    if centre.third is not None:
        twist = centre.twist(displacement)
        rest += twist + (e - 1) * centre.twist_apart(displacement, twist)
    remainder = centre.pull_back(rest)
    return remainder if centre.mismatch is None else remainder + centre.mismatch @ state


def third_control(centre: Centre, displacement: jax.Array, c: Any) -> Any:
    """e: how much of the third derivatives is taken off each row."""
    if centre.third is None or _is(c, 0.0):
        return 0.0
    square = centre.square_length(displacement) / (4 * (displacement.size + 4))
    return c / (1 + square**4)


def _prior_at_centre(target: Target, centre: Centre, displacement: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The gradient of the log prior there, and its Hessian times v: of a family in as many operations as there are
    parameters, of any other model by its matrix, so that no step differentiates it twice."""
    if centre.prior_hessian is None:
        return jax.jvp(jax.grad(target.log_prior.call), (centre.mode,), (displacement,))
    return centre.posterior_gradient - centre.gradient, centre.prior_hessian @ displacement


def _is(factor: Any, number: float) -> bool:
    """Whether a control is a constant, known before anything is traced."""
    return isinstance(factor, float) and factor == number


def _times(factor: Any, vector: jax.Array) -> jax.Array:
    return vector if _is(factor, 1.0) else factor * vector


def row_terms(
    target: Target,
    estimator: GradientEstimator,
    inputs: Inputs,
    displacement: jax.Array,
    batch: Any,
    b: Any,
    c: Any,
    e: Any = 0.0,
) -> jax.Array:
    """(N/n) sum_i [grad_i(theta) - b grad_i(theta_0) - c Hess_i(theta_0) v - e T_i(v, v) / 2] over a batch, or over all
    rows; theta_0 is here where rows are expanded, and v from there.

    A batch from `centre_rows` is summed at once; a whole number is the first row of one read in slabs.
    """
    if isinstance(batch, CentredRows):
        num_rows = inputs.num_rows.astype(displacement.dtype)
        return num_rows / estimator.batch_size * _centred_terms(target, inputs.centre, displacement, batch, b, c, e)
    count = inputs.num_rows if estimator.batch_size is None else inputs.batch_size
    length = 1 if target.integrated else inputs.centre.slab_rows
    if estimator.batch_size is None:
        length = tile_rows(inputs.rows)

    def slab(number: jax.Array, total: jax.Array) -> jax.Array:
        offset = number * length + jnp.arange(length, dtype=jnp.int32)
        inside = offset < count
        weights = inside.astype(displacement.dtype)
        if estimator.batch_size is None:
            rows = _tile(inputs, number)
        else:
            rows, weights = _run(inputs, batch, offset, weights)
        centred = centre_rows(target, inputs.centre, rows, weights)
        return total + _centred_terms(target, inputs.centre, displacement, centred, b, c, e, weights)

    # Of the batch's own, like the sum: else the loop over slabs is traced twice for many paths.
    nothing = jnp.zeros_like(displacement)
    if estimator.batch_size is not None:
        nothing += (batch & 0).astype(displacement.dtype)
    total = jax.lax.fori_loop(jnp.int32(0), _whole(count, length), slab, nothing)
    if estimator.batch_size is None:
        return total
    return inputs.runs.length.astype(displacement.dtype) / count.astype(displacement.dtype) * total


def _whole(count: jax.Array, length: int) -> jax.Array:
    """How many slabs hold so many rows; neither is ever negative, which // would have to see to."""
    return jax.lax.div(count + length - 1, count.dtype.type(length))


def _tile(inputs: Inputs, number: jax.Array) -> Any:
    """Rows of the table in their order."""
    length = tile_rows(inputs.rows)
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, number * length, length), inputs.rows)


def _run(inputs: Inputs, first: jax.Array, offset: jax.Array, weights: jax.Array) -> tuple[Any, jax.Array]:
    """Rows at these offsets from the first one, wrapped at the end of what is read, with their weights."""
    runs = inputs.runs
    place = first + jnp.where(weights > 0, offset, 0)
    place = jnp.where(place < runs.length, place, place - runs.length)
    if runs.rows is None:
        return gather(inputs.rows, place), weights
    return gather(inputs.rows, gather(runs.rows, place)), weights * gather(runs.weights, place).astype(weights.dtype)


def centre_rows(target: Target, centre: Centre, rows: Any, weights: jax.Array | None = None) -> CentredRows:
    """Expand a batch of rows at the centre; what an estimator does not use costs nothing once compiled."""
    rows = in_precision(rows, centre.mode.dtype)
    if target.predictor is not None:
        eta = target.layout.predict(rows, centre.point)
        _, slope, curvature = jax.vmap(partial(density_terms, target))(eta, rows)
        if centre.third is None:
            return CentredRows(rows, eta, slope, curvature)
        return CentredRows(rows, eta, slope, curvature, jax.vmap(partial(third_of_density, target))(eta, rows))
    gradient = jax.grad(partial(_log_likelihood, target, rows, weights))
    return CentredRows(rows, None, *jax.linearize(gradient, centre.point))


def in_precision(rows: Any, dtype: Any) -> Any:
    """Numbers in the precision of the paths, whatever the table holds them in."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, rows)


def _centred_terms(
    target: Target,
    centre: Centre,
    displacement: jax.Array,
    batch: CentredRows,
    b: Any,
    c: Any,
    e: Any,
    weights: jax.Array | None = None,
) -> jax.Array:
    rows, eta, slope, curvature, third = batch
    if target.predictor is not None:
        layout = target.layout
        move = layout.predict(rows, displacement)
        there = jax.vmap(jax.grad(target.predictor.call))(eta + move, rows)
        bend = curvature * move if layout.is_scalar else (curvature @ move[:, :, None])[:, :, 0]
        terms = _less(_less(there, b, slope), c, bend)
        if not _is(e, 0.0):
            terms = terms - e * third * move**2 / 2
        if weights is not None:
            terms = jnp.expand_dims(weights, tuple(range(1, terms.ndim))) * terms
        return layout.pull_back(rows, terms)
    there = jax.grad(partial(_log_likelihood, target, rows, weights))(centre.point + displacement)
    return _less(_less(there, b, slope), c, curvature(displacement))


def _less(value: jax.Array, factor: Any, control: jax.Array) -> jax.Array:
    return value if _is(factor, 0.0) else value - _times(factor, control)


def _log_likelihood(target: Target, rows: Any, weights: jax.Array | None, theta: jax.Array) -> jax.Array:
    terms = jax.vmap(target.log_likelihood.call, (None, 0))(theta, rows)
    return jnp.sum(terms if weights is None else weights * terms)


def evaluations_per_step(estimator: GradientEstimator, num_rows: int) -> int:
    """Data items one gradient costs."""
    return num_rows if estimator.batch_size is None else estimator.batch_size


def _require_batch(batch_size: Any) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise MethodError(explain("batch_size a whole number >= 1", repr(batch_size), "10, or N ** (1 / 3) rounded up"))
