"""NumPyro models that are no sum over rows: each is refused in one line that says why and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro_models import (
    CLICK,
    GROUP,
    WEIGHT,
    D,
    G,
    N,
    X,
    Y,
    densities,
    dist,
    handlers,
    hierarchical,
    linear,
    logistic,
    moved,
    normal,
    numpyro,
    observe,
)

from tallbayes.doors.numpyro import model as adapter
from tallbayes.doors.numpyro.model import from_numpyro
from tallbayes.errors import DataError, InputError, ModelError


def row_latent(y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(numpyro.sample("hidden", dist.Normal(0, scale)), 1.0), obs=y)


def row_latent_without_plate(y):
    observe(numpyro.sample("path", dist.GaussianRandomWalk(1.0, len(y))), y)


def row_latent_by_index(y):
    effect = normal("effect", sample_shape=(N,))
    with numpyro.plate("data", N) as index:
        numpyro.sample("y", dist.Normal(effect[index], 1.0), obs=y)


def assignment(y):
    mean = normal(sample_shape=(2,))
    with numpyro.plate("data", len(y)):
        part = numpyro.sample("part", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(mean[part], 1.0), obs=y)


def two_lengths(x, y):
    mean = normal()
    observe(mean, y)
    with numpyro.plate("others", len(x)):
        numpyro.sample("x", dist.Normal(mean, 1.0), obs=x)


def no_plate(y):
    numpyro.sample("y", dist.Normal(normal(), 1.0), obs=y)


def one_plate_too_few(x, y):
    mean = normal()
    observe(mean, y)
    numpyro.sample("x", dist.Normal(mean, 1.0).expand([N]).to_event(1), obs=x)


def bounded_by_another(y):
    upper = numpyro.sample("upper", dist.HalfNormal(1.0))
    observe(numpyro.sample("mean", dist.Uniform(0.0, upper)), y)


def improper(y):
    observe(numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()).mask(True)), y)


def on_a_sphere(y):
    direction = numpyro.sample("direction", dist.ProjectedNormal(jnp.zeros(3)))
    observe(direction[0], y)


def point_estimate(y):
    observe(numpyro.param("mean", 0.0), y)


def network(x, y):
    layer = numpyro.module("layer", jax.example_libraries.stax.Dense(1), input_shape=(D,))
    observe(layer(x)[:, 0], y)


def centring(x, y):
    slope = normal(sample_shape=(D,))
    observe((x - x.mean(0)) @ slope, y)


def autoregression(y):
    slope = normal("slope")
    observe(slope * jnp.concatenate([jnp.zeros(1), y[:-1]]), y)


def prior_from_rows(y):
    observe(numpyro.sample("mean", dist.Normal(jnp.median(y), 1.0)), y)


def prior_from_their_number(y):
    observe(numpyro.sample("mean", dist.Normal(0.0, 1.0 / len(y))), y)


def factor_outside(y):
    mean = normal()
    observe(mean, y)
    numpyro.factor("more", -jnp.sum((y - mean) ** 2))


def rows_from_elsewhere(y):
    observe(X @ normal(sample_shape=(D,)), y)


def response_from_elsewhere(x):
    observe(x @ normal(sample_shape=(D,)), jnp.log(jnp.exp(Y)))


def rows_from_elsewhere_by_index(y):
    slope = normal("slope", sample_shape=(D,))
    with numpyro.plate("data", N) as index:
        numpyro.sample("y", dist.Normal(jnp.asarray(X)[index] @ slope, 1.0), obs=y)


def weights_from_elsewhere(y):
    mean = normal()
    with handlers.scale(scale=WEIGHT):
        observe(mean, y)


def size_from_values(group, y):
    effect = normal("effect", sample_shape=(int(np.max(group)) + 1,))
    observe(effect[group], y)


control_flow = pytest.importorskip("numpyro.contrib.control_flow")


def hidden_draw(y):
    with handlers.block(hide=["hidden"]):
        hidden = normal("hidden")
    observe(normal() + hidden, y)


def latent_scan(y):
    rate = normal("rate")

    def step(carry, _):
        value = numpyro.sample("path", dist.Normal(rate * carry, 1.0))
        return value, None

    last, _ = control_flow.scan(step, 0.0, jnp.arange(4))
    observe(last, y)


plate_from_elsewhere = numpyro.plate("data", N)


def with_plate_from_elsewhere(y):
    mean = normal()
    with plate_from_elsewhere:
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "nothing observed": (linear, (X,), "'y'.*pass the model what was observed"),
    "latent variable of a row without a plate": (row_latent_without_plate, (Y,), "'path'.*marginalise"),
    "latent variable of a row by its index": (row_latent_by_index, (Y,), "sum of terms of single rows"),
    "discrete": (assignment, (Y,), "continuous.*'part'.*sum over"),
    "subsampling": (lambda y: observe(normal(), y, subsample_size=10), (Y,), "10 of 300.*subsample_size"),
    "two lengths": (two_lengths, (X[:7, 0], Y), "'others' of 7.*rows="),
    "no plate": (no_plate, (Y,), "plate around the observed.*numpyro.plate"),
    "no plate as long as an argument": (lambda y: observe(normal(), Y), (Y[:9],), r"'data': 300.*\[9\]"),
    "no argument": (lambda: observe(normal(), Y), (), r"'data': 300.*argument of the model"),
    "rows outside the plate": (one_plate_too_few, (X[:, 0], Y), "'x' outside.*put it inside"),
    "no latent site": (lambda y: observe(0.0, y), (Y,), "latent sites to infer"),
    "bounds that move": (bounded_by_another, (Y,), "fixed bounds.*'mean'"),
    "improper prior": (improper, (Y,), "proper.*'mean'"),
    "no bijector": (on_a_sphere, (Y,), "bijector.*'direction'"),
    "param": (point_estimate, (Y,), "numpyro.param 'mean'.*prior"),
    "module": (network, (X, Y), r"numpyro.param 'layer\$params'"),
    "mutable": (
        lambda y: observe(normal() + numpyro.primitives.mutable("m", {"a": 1.0})["a"], y),
        (Y,),
        "numpyro.mutable",
    ),
    "rows centred together": (centring, (X, Y), "single rows.*before"),
    "rows after one another": (autoregression, (Y,), "single rows.*before"),
    "prior from the rows": (prior_from_rows, (Y,), "single rows.*before"),
    "prior from their number": (prior_from_their_number, (Y,), "single rows"),
    "factor of all rows": (factor_outside, (Y,), "single rows"),
    "rows from elsewhere": (rows_from_elsewhere, (Y,), "one entry in plate.*argument"),
    "response from elsewhere": (response_from_elsewhere, (X,), "one entry in plate.*argument"),
    "rows from elsewhere by index": (rows_from_elsewhere_by_index, (Y,), "single rows"),
    "weights from elsewhere": (weights_from_elsewhere, (Y,), "one entry in plate.*argument"),
    "plate from elsewhere": (with_plate_from_elsewhere, (Y,), "one entry in plate.*inside the model"),
    "sizes from values": (size_from_values, (GROUP, Y), "runs on its arguments.*number of groups"),
    "a draw of its own": (hidden_draw, (Y,), "runs on its arguments; got AssertionError"),
    "latent sites of a scan": (latent_scan, (Y,), "scan.*'path'"),
    "no function": (3, (Y,), "a model and its arguments; got 3 is not a callable"),
    "arguments missing": (logistic, (X,), "missing a required argument: 'y'"),
    "an error of its own": (lambda y: observe(normal()[3], y), (Y,), "runs on its arguments; got IndexError"),
}


@pytest.mark.parametrize(("model", "args", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_model_without_rows_is_refused_with_the_reason(model: Any, args: Any, reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as refusal:
        from_numpyro(model, *args)
    assert str(refusal.value).startswith("expected ")
    assert "; got " in str(refusal.value)
    assert "Try: " in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not numpyro.primitives._PYRO_STACK


def test_a_latent_variable_of_a_row_is_refused_where_it_is_not_to_be_integrated() -> None:
    with pytest.raises(ModelError, match=r"expected no latent site .* got 'hidden'.*Try: integrate=True"):
        from_numpyro(row_latent, Y, integrate=False)


@pytest.mark.parametrize(
    ("rows", "error"), [("x", ModelError), ((), ModelError), (["z"], ModelError), (["x", "num_rows"], DataError)]
)
def test_rows_name_arrays(rows: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"expected rows= .*; got .* Try"):
        from_numpyro(hierarchical, X, GROUP, Y, N, num_groups=G, rows=rows)


def test_only_the_trial_on_a_few_rows_stops_a_model_that_centres(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: let through, the rows of such a model do not add up to it."""
    monkeypatch.setattr(adapter, "AGREEMENT", 1e9)
    model, data = from_numpyro(centring, X, Y)
    with jax.enable_x64(True):
        ours, theirs = densities(model, data, moved(model), centring, X, Y)
    assert ours != pytest.approx(theirs, rel=1e-3)


def test_numpyro_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(InputError, match=r'pip install "tallbayes\[numpyro\]"'):
        from_numpyro(logistic, X, CLICK)
