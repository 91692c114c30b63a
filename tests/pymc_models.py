"""PyMC models of a few rows, and PyMC's own log density of them, by its Python code alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

N, G, K = 60, 7, 3
_generator = np.random.default_rng(4)
X = _generator.normal(size=(N, K))
Y = _generator.normal(size=N)
COUNT = _generator.poisson(2.0, N)
GRADE = _generator.integers(0, 4, N)
GROUP = _generator.permutation(np.arange(N) % G)
SIZE = _generator.normal(size=G)


def linear() -> Any:
    with pm.Model(coords={"predictor": list("abc")}) as model:
        x = pm.Data("x", X)
        slope = pm.Normal("slope", 0, 1, dims="predictor")
        intercept = pm.Normal("intercept", 20, 10)
        scale = pm.HalfCauchy("scale", 2)
        mean = pm.Deterministic("mean", intercept + pt.dot(x - x.mean(axis=0), slope))
        pm.Deterministic("precision", scale**-2)
        pm.Normal("y", mean, scale, observed=pm.Data("response", Y))
    return model


def centred() -> Any:
    with pm.Model(coords={"school": [f"school {each}" for each in range(G)]}) as model:
        level = pm.Normal("level", 0, 1)
        spread = pm.Exponential("spread", 1)
        effect = pm.Normal("effect", level, spread, dims="school")
        pm.Poisson("y", pt.exp(effect[GROUP]), observed=COUNT)
    return model


def not_centred() -> Any:
    """Two sites that share a length and an index."""
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 1)
        tilt = pm.HalfNormal("tilt", 1)
        z = pm.Normal("z", 0, 1, shape=G)
        w = pm.Normal("w", 0, 1, shape=G)
        pm.Deterministic("effect", 0.3 + spread * z)
        mean = (0.3 + spread * z)[GROUP] + w[GROUP] * tilt * X[:, 0]
        pm.StudentT("y", nu=4, mu=mean, sigma=1, observed=Y)
    return model


def correlated() -> Any:
    with pm.Model(coords={"group": range(G)}) as model:
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0))
        effect = pm.MvNormal("effect", np.zeros(2), chol=chol, dims=("group", "pair"), shape=(G, 2))
        pm.Bernoulli("y", logit_p=effect[GROUP, 0] + effect[GROUP, 1] * X[:, 1], observed=COUNT > 1)
    return model


def by_level() -> Any:
    """The mean of a group's effect hangs on a number of the group."""
    with pm.Model(coords={"group": range(G)}) as model:
        slope = pm.Normal("slope", 0, 1)
        spread = pm.InverseGamma("spread", 3, 1)
        effect = pm.Normal("effect", slope * SIZE, spread, dims="group")
        pm.NegativeBinomial("y", mu=pt.exp(effect[GROUP]), alpha=2.0, observed=COUNT)
    return model


def grades() -> Any:
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1, shape=K)
        cuts = pm.Normal("cuts", [-1.0, 0.0, 1.0], 2, transform=pm.distributions.transforms.ordered)
        pm.OrderedLogistic("y", eta=X @ slope, cutpoints=cuts, observed=GRADE, compute_p=False)
    return model


def classes() -> Any:
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1, shape=(K, 4))
        pm.Categorical("y", logit_p=pt.dot(X, slope), observed=GRADE)
    return model


def mixture() -> Any:
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.array([1.0, 2.0]))
        place = pm.Normal("place", [-1.0, 1.0], 2, transform=pm.distributions.transforms.ordered)
        scale = pm.Uniform("scale", 0.1, 3.0)
        pm.NormalMixture("y", weights, place, scale, observed=Y)
    return model


def bounded() -> Any:
    """Supports that PyMC alone has transforms for, and two observed variables."""
    with pm.Model() as model:
        tail = pm.TruncatedNormal("tail", 3, 1, lower=2.5)
        share = pm.Beta("share", 2, 2)
        sums = pm.ZeroSumNormal("sums", 1.0, shape=K)
        end = pm.Uniform("end", [-9.0, -8.0], 9.0, shape=2)
        pm.Censored(
            "y",
            pm.StudentT.dist(nu=tail, mu=X @ sums + end[0], sigma=1),
            lower=-1.5,
            upper=None,
            observed=np.maximum(Y, -1.5),
        )
        pm.ZeroInflatedPoisson("count", share, pt.exp(end[1] / 9), observed=COUNT)
    return model


def cut_off() -> Any:
    """Tails of a normal, near and far."""
    with pm.Model() as model:
        mean, scale = pm.Normal("mean", 0, 1), pm.HalfNormal("scale", 1)
        cut = np.clip(Y, -1, 1)
        pm.Censored("y", pm.Normal.dist(mean + 3 * X[:, 0], scale), lower=-1.0, upper=1.0, observed=cut)
        pm.Truncated("x", pm.Normal.dist(mean, scale), lower=-5.0, upper=None, observed=np.clip(X[:, 1], -4, 4))
    return model


def potentials() -> Any:
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1)
        pm.Potential("belief", -pt.abs(mean))
        pm.Potential("penalty", -0.1 * pt.cos(Y * mean))
        pm.Potential("more", pm.logp(pm.Laplace.dist(mean, 2.0), Y).sum())
        pm.Normal("pilot", mean, 0.1, observed=0.3)
        pm.Normal("y", mean, 1, observed=Y)
    return model


def outcomes() -> Any:
    """Vectors in a row."""
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1, shape=K)
        scale = pm.HalfNormal("scale", 1)
        pm.MvNormal("y", mean, chol=scale * pt.eye(K), observed=X)
        pm.Binomial("count", 40, pm.math.invlogit(mean[0]), observed=COUNT)
    return model


def walking() -> Any:
    """A walk over months, of which each row reads its own."""
    with pm.Model() as model:
        step = pm.HalfNormal("step", 1)
        path = pm.GaussianRandomWalk("path", sigma=step, init_dist=pm.Normal.dist(0, 1), shape=5)
        pm.Normal("y", path[np.arange(N) // 12], 1, observed=Y)
    return model


def schools() -> Any:
    """A latent variable of every row."""
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 5)
        spread = pm.HalfCauchy("spread", 5)
        hidden = pm.Normal("hidden", mean, spread, shape=N)
        pm.Normal("y", hidden, 0.3 + np.abs(X[:, 0]), observed=Y)
    return model


def counts() -> Any:
    """A logarithm of zero, in a branch that such a row does not take."""
    with pm.Model() as model:
        alpha, slope = pm.Exponential("alpha", 1), pm.Normal("slope", 0, 1)
        pm.NegativeBinomial("y", mu=pt.exp(slope * (X[:, 0] > 0) * np.ones(N)), alpha=alpha, observed=COUNT)
        pm.Potential("more", pt.switch(pt.eq(COUNT, 0), 0.0, slope * pt.log(pt.as_tensor(COUNT.astype(float)))))
    return model


EVERY = (linear, centred, not_centred, correlated, by_level, grades, classes, mixture, bounded)
MODELS: dict[str, Callable[[], Any]] = {
    each.__name__: each for each in (*EVERY, cut_off, counts, potentials, outcomes, walking, schools)
}


def log_density(model: Any) -> Callable[[dict[str, Any]], float]:
    """log p(theta, X) by PyMC, of theta in its own space, without Jacobians."""
    import pytensor
    from pytensor.compile.mode import Mode

    shown = {}
    with pytensor.config.change_flags(cxx=""):
        values = [model.rvs_to_values[rv] for rv in model.free_RVs]
        total = pytensor.function(values, model.logp(jacobian=False), mode=Mode("py", None), on_unused_input="ignore")
        for rv in model.free_RVs:
            own, transform = rv.type(), model.rvs_to_transforms[rv]
            moved = own if transform is None else transform.forward(own, *rv.owner.inputs)
            shown[rv.name] = pytensor.function([own], moved, mode=Mode("py", None))

    def at(theta: dict[str, Any]) -> float:
        return float(total(*(shown[rv.name](np.asarray(theta[rv.name])) for rv in model.free_RVs)))

    return at
