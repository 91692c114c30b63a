"""Models: a log prior and the log likelihood of one row.

    log pi(theta | X) = log pi(theta) + sum_i w_i log p(x_i | theta) + constant

A `Model` is what a user writes, on any pytree theta. A `Target` is the same on flat vectors u in R^d, as a hashable
value: theta = c(u) by the constraints, log pi(u) = log pi(c(u)) + log |c'(u)|. A regression also has
p(x | theta) = exp l(eta, row) with a linear predictor eta: then gradient and Hessian of a row are l' and l'' of eta.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.model.groups.bundles import is_bundle
from tallbayes.model.groups.integral import GroupIntegral, Groups, first_nodes
from tallbayes.model.groups.reads import Reads
from tallbayes.model.groups.terms import EffectTerm
from tallbayes.model.linear import Layout
from tallbayes.model.noise import Noise
from tallbayes.model.parts.extras import ExtraPart
from tallbayes.model.priors.assigned import Priors
from tallbayes.model.priors.shrinkage import ShrinkagePrior
from tallbayes.model.smooths import SmoothTerm
from tallbayes.model.space import Space, make_space, shaped
from tallbayes.programs.identity import Function, identify, output_of
from tallbayes.programs.later import jax, jnp
from tallbayes.structure import Structure


class FamilyParts(NamedTuple):
    """What a family's model is made of: l(eta, row), the scales of its priors by name, in the order of theta, those of
    "coefficients" first, the terms of its effects by group, what it has beside the coefficients, and its smooths.

    Priors are Gaussian, unless they were stated, and those of extras their own. They are those of `log_prior`: of a
    model with another one in its place they say nothing. `words` are what was stated, pairs of a name and a text."""

    density: Callable[[Any, Any], Any]
    scales: dict[str, Any]
    terms: tuple[EffectTerm, ...] = ()
    extras: tuple[ExtraPart, ...] = ()
    priors: Priors | None = None
    log_prior: Callable[[Any], Any] | None = None
    words: tuple[tuple[str, str], ...] = ()
    smooths: tuple[SmoothTerm, ...] = ()

    @property
    def own(self) -> dict[str, Any]:
        """Of coefficients and an intercept: the laws that were stated, or the scales of Gaussian priors, by name."""
        if self.priors is not None:
            return dict(self.priors.leaves)
        extras = {extra.name for extra in self.extras}
        return {name: scale for name, scale in self.scales.items() if name not in extras}

    @property
    def moments(self) -> float:
        """The order up to which all priors have any."""
        own = [prior.moments for term in self.terms for prior in term.laws] + [each.moments for each in self.extras]
        return min([inf if self.priors is None else self.priors.moments, *own])


@dataclass(frozen=True, eq=False)
class Model:
    """A posterior as its owner writes it.

    `log_likelihood(theta, row)` is for ONE row; `initial` is a pytree of start values, or a function of one
    row that makes it. `constraints` is a pytree like `initial` or a part of it, with values of `tb.constraints`: the
    log prior is a density of theta itself, and the Jacobian is taken care of. `check(data)` may refuse or convert the
    arrays. `log_concave=True` declares that the log posterior is concave in R^d whatever the rows, so that there
    is one mode and the search for a second is left out; nothing verifies it.

    `predictor(eta, row)`, where given, is the log likelihood as a function of the linear predictor of row["x"], whose
    place in theta the `layout` tells. `report(theta, units)` says in which terms parameters are reported and
    quantities are asked for (theta itself if None), `structure` in which order; `units` are arrays it needs. Where
    it has hundreds of names, `flat_report(theta, units)` is the same as one vector, in far fewer operations.
    `affine_report=True` declares that theta is reported as an affine function of its place in R^d.

    `noise` is how y scatters in a family, `parts` what it is made of. With `groups` every group of rows has an effect b
    of its own, which is integrated out, and `log_likelihood(theta, b, row)` is that of one row given it.

    With `shrinkage` a family's coefficients have that prior, and the log prior is that of all else; `columns` are the
    names of what belongs to them one by one, where they have names.

    `notes` are told with every result: what a door made of the model.

    `predict(theta, row)` is what `result.predict` takes the posterior expectation of, for rows without a response; a
    `family` of `tb.families` has one by its name. With `groups` it is `predict(theta, b, row)`.

    `simulate(key, theta, row)`, with groups `simulate(key, theta, b, row)`, draws the response of one row, a number, by
    a key of `jax.random`, for `result.simulate` and `result.check`; `response` is the array of the rows that holds the
    one that was seen, by its name, or a function of a row that says it.

    >>> import jax.numpy as jnp
    >>> model = Model(
    ...     log_prior=lambda theta: -0.5 * theta**2,
    ...     log_likelihood=lambda theta, row: -0.5 * (row - theta) ** 2,
    ...     initial=0.0,
    ... )
    """

    log_prior: Callable[[Any], Any]
    log_likelihood: Callable[..., Any]
    initial: Any
    predictor: Callable[[Any, Any], Any] | None = None
    check: Callable[[Any], Any] | None = None
    log_concave: bool = False
    constraints: Any = None
    layout: Layout = Layout()
    report: Callable[[Any, Any], Any] | None = None
    units: Any = None
    structure: Structure | None = None
    affine_report: bool = False
    predict: Callable[..., Any] | None = None
    family: str | None = None
    flat_report: Callable[[Any, Any], Any] | None = None
    noise: Noise | None = None
    parts: FamilyParts | None = None
    groups: Groups | None = None
    notes: tuple[str, ...] = ()
    shrinkage: ShrinkagePrior | None = None
    simulate: Callable[..., Any] | None = None
    response: str | Callable[[Any], Any] = "y"
    columns: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)

    @property
    def is_as_made(self) -> bool:
        """Whether it is a family's with the prior that it was made with."""
        return self.parts is not None and self.parts.log_prior is self.log_prior


@dataclass(frozen=True)
class Integrated:
    """What is integrated out of a target whose rows are groups: log p(b, rows of the group | u) of q numbers b, at so
    many nodes a direction; or in closed form, by no node at all. With `reads` it is of what a unit reads of u."""

    joint: Function | None
    size: int
    nodes: int
    integral: Any = field(compare=False, repr=False)
    reads: Reads | None = None


@dataclass(frozen=True)
class Target:
    """A model bound to the shape of its rows, on flat vectors u; static and hashable.

    `structure` is that of what is reported: theta, or what the model makes of it.
    """

    log_prior: Function
    log_likelihood: Function
    predictor: Function | None
    layout: Layout
    space: Space
    report: Function | None
    # Names do not shape a program, their order does.
    structure: Structure = field(compare=False)
    order: tuple[int, ...] | None = None
    affine_report: bool = False
    log_concave: bool = False
    # Asked for after the run alone.
    predict: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    simulate: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    response: Any = field(default="y", compare=False, repr=False)
    family: str | None = field(default=None, compare=False)
    flat_report: Function | None = None
    noise: Noise | None = field(default=None, compare=False)
    integrated: Integrated | None = None
    parts: FamilyParts | None = field(default=None, compare=False, repr=False)
    # Whose log prior is not all of the prior.
    shrinkage: ShrinkagePrior | None = None

    @property
    def dimension(self) -> int:
        return self.space.dimension

    def work(self, rows: Any) -> int:
        """Densities that one row takes: of a group, one for each of its rows at each of its nodes."""
        if self.integrated is None:
            return 1
        if "sums" in rows:
            return 1
        length = jax.tree.leaves(rows["rows"])[0].shape[1]
        return int(length * max(self.integrated.nodes, 1) ** self.integrated.size)

    @property
    def reports_itself(self) -> bool:
        """Whether u itself is what is reported."""
        return self.report is None and self.space.is_free

    @property
    def reports_linearly(self) -> bool:
        """Whether moments under a Gaussian are known exactly."""
        return self.reports_itself or self.affine_report

    def reported(self, vector: jax.Array | np.ndarray, units: Any) -> Any:
        """What is reported of a flat vector, as its owner's pytree."""
        theta = self.space.theta(vector)
        return theta if self.report is None else self.report(theta, units)

    def reported_vector(self, vector: jax.Array, units: Any) -> jax.Array:
        """The same, flat, in the order of the structure."""
        if self.reports_itself:
            return vector
        if self.flat_report is not None:
            return jnp.asarray(self.flat_report(self.space.theta(vector), units)).astype(vector.dtype)
        leaves = jax.tree.leaves(self.reported(vector, units))
        leaves = leaves if self.order is None else [leaves[place] for place in self.order]
        return jnp.concatenate([jnp.ravel(leaf).astype(vector.dtype) for leaf in leaves])

    def moved(self, mode: jax.Array, displacement: jax.Array, units: Any) -> jax.Array:
        """How far the reported parameters move when u does."""
        if self.reports_itself:
            return displacement
        reported = partial(self.reported_vector, units=units)
        if self.affine_report:
            return jax.jvp(reported, (mode,), (displacement,))[1]
        return reported(mode + displacement) - reported(mode)


def bind(model: Model, row: Any) -> tuple[Target, np.ndarray]:
    """Bind a model to an example row: the target and the flat start vector.

    Raises ModelError where a function does not return one real number.
    """
    initial = model.initial
    if callable(initial):
        initial = initial(row if model.groups is None else jax.tree.map(lambda leaf: leaf[0], row["rows"]))
    space, start = make_space(initial, model.constraints)

    def prior(vector: Any) -> Any:
        return model.log_prior(space.theta(vector)) + space.log_jacobian(vector)

    integral = None if model.groups is None else integral_of(model, row, space)

    def likelihood(vector: Any, row: Any) -> Any:
        theta = space.theta(vector)
        return model.log_likelihood(theta, row) if integral is None else integral(theta, vector, row)

    _require_scalar("log_prior(theta)", prior, start)
    _require_scalar("log_likelihood(theta, row)", likelihood, start, row)
    predictor = None
    if model.predictor is not None:
        eta = np.float64(0.0) if model.layout.is_scalar else np.zeros(model.layout.size)
        predictor = identify(model.predictor, eta, row, derivatives=True)
    report, structure, order = _report(model, space, start)
    target = Target(
        log_prior=identify(prior, start, derivatives=True),
        log_likelihood=identify(likelihood, start, row, derivatives=True),
        predictor=predictor,
        layout=model.layout,
        space=space,
        report=report,
        structure=structure,
        order=order,
        affine_report=bool(model.affine_report),
        log_concave=bool(model.log_concave),
        predict=model.predict,
        simulate=model.simulate,
        response=model.response,
        family=model.family,
        flat_report=None if model.flat_report is None else identify(model.flat_report, space.theta(start), model.units),
        noise=model.noise,
        integrated=None if integral is None else _integrated(integral, space, start, row),
        parts=model.parts if model.is_as_made else None,
        shrinkage=model.shrinkage,
    )
    return target, start


def integral_of(model: Model, unit: Any, space: Space) -> Any:
    """What a model of groups makes of one of them."""
    groups = model.groups
    assert groups is not None
    reads = Reads(space, groups.reads) if "reads" in unit else None
    if groups.closed is not None:
        return replace(groups.closed(groups), reads=reads)
    return GroupIntegral(model.log_likelihood, groups, groups.nodes or first_nodes(unit), reads)


def _integrated(integral: Any, space: Space, start: np.ndarray, unit: Any) -> Integrated:
    reads = integral.reads
    if not isinstance(integral, GroupIntegral):
        return Integrated(None, integral.size, 0, integral, reads)

    def joint(near: Any, effect: Any, unit: Any) -> Any:
        theta = space.theta(near) if reads is None else reads.theta(near, unit)
        return integral.joint(theta, effect, unit)

    size, near = integral.groups.size, start if reads is None else np.zeros(reads.count(unit))
    effect = np.zeros((len(unit["count"]), size) if is_bundle(unit) else size)
    return Integrated(identify(joint, near, effect, unit), size, integral.nodes, integral, reads)


def _report(model: Model, space: Space, start: np.ndarray) -> tuple[Function | None, Structure, tuple[int, ...] | None]:
    """What is reported, as a value; the structure of it; and which leaf stands where in that."""
    tree = theta = shaped(jax.eval_shape(space.theta, start))
    report = None
    if model.report is not None:
        tree = shaped(output_of(model.report, theta, model.units))
        report = identify(model.report, theta, model.units)
    if model.structure is None:
        return report, Structure.of(tree), None
    leaves, treedef = jax.tree.flatten(tree)
    places = jax.tree.unflatten(treedef, range(len(leaves)))
    return report, model.structure, tuple(model.structure.leaves(places))


def runs_in_float32(target: Target, row: Any) -> bool:
    """Whether the model's functions accept float32 parameters; a loop carrying a default float64 does not."""

    def narrow(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(np.float32) if array.dtype.kind == "f" else array

    theta, row = np.zeros(target.dimension, np.float32), jax.tree.map(narrow, row)
    with jax.enable_x64(True):
        try:
            jax.eval_shape(jax.grad(lambda each: target.log_prior(each)), theta)
            jax.eval_shape(jax.grad(lambda each: target.log_likelihood(each, row)), theta)
        except TypeError:
            return False
    return True


def _require_scalar(name: str, function: Callable[..., Any], *arguments: Any) -> None:
    try:
        out = output_of(function, *arguments)
    except Exception as error:
        raise ModelError(
            explain(
                f"{name} to be traceable by JAX on theta of `initial` and one row",
                f"{type(error).__name__}: {error}",
                "call it by hand on `initial` and the first row",
            )
        ) from error
    if not hasattr(out, "shape") or out.shape != () or not jnp.issubdtype(out.dtype, jnp.floating):
        raise ModelError(
            explain(
                f"{name} to return one real number",
                f"{out}",
                "sum over the row's own entries (not over rows: it is given one row)",
            )
        )
