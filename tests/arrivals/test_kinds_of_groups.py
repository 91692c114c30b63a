"""Kinds of mixed models that are carried on: one's own, in units of several groups, and linear ones by sums."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.arrivals.days import arrays_of, begun
from tallbayes.estimation.question import Accuracy, Question
from tallbayes.estimator.run import budget_within
from tallbayes.model.groups.mixed import with_effects
from tallbayes.model.groups.terms import EffectTerm

GROUPS, UNEVEN = 40, 500
NOTHING = SimpleNamespace(anchor=None, notes=(), modes=())


def rows_of(seed, count, groups, uneven=False, extra=0):
    """The last `extra` groups are of this seed alone."""
    effects = 0.7 * np.random.default_rng(0).normal(size=1_000)
    rng = np.random.default_rng(seed)
    share = rng.random(count)
    group = (groups * (share**4 if uneven else share)).astype(int)
    group[:extra] = groups + np.arange(extra)
    x = rng.normal(size=count)
    return {"y": 0.3 + 0.5 * x + effects[group] + rng.normal(size=count), "x": x, "g": group}


def own_model():
    """Counts of what is above 0, with an effect by group that is not centred."""
    return tb.Model(
        log_prior=lambda theta: -0.5 * jnp.sum(theta["b"] ** 2) - theta["tau"] ** 2,
        log_likelihood=lambda theta, b, row: (
            -jnp.logaddexp(0.0, -row["sign"] * (theta["b"][0] + theta["b"][1] * row["x"] + b))
        ),
        initial={"b": np.zeros(2), "tau": 0.5},
        constraints={"tau": tb.constraints.positive},
        groups=tb.Groups("g", 0.0, lambda theta, b: -0.5 * (b / theta["tau"]) ** 2 - jnp.log(theta["tau"])),
    )


def as_signs(rows):
    return {"sign": np.where(rows["y"] > 0, 1.0, -1.0), "x": rows["x"], "g": rows["g"]}


def as_regression(rows):
    return {"x": rows["x"][:, None], "y": rows["y"], "z0": np.ones((len(rows["y"]), 1)), "g": rows["g"]}


def linear_model():
    return with_effects(tb.families.linear(noise_scale=None, intercept_scale=5.0), EffectTerm("g"))


SEVERAL = "own, several to a unit"
KINDS = {
    SEVERAL: (own_model, as_signs, True, False),
    "linear": (linear_model, as_regression, False, False),
    "linear with weights": (linear_model, as_regression, False, True),
}


def question(model, data, weights):
    parts = None, Accuracy("tolerance", 0.05), tb.Anchored(), 0, None, None, budget_within(None, None, None), True, None
    return Question(model, data, weights, *parts)


@pytest.mark.parametrize(
    "kind", [each if each != SEVERAL else pytest.param(each, marks=pytest.mark.slow) for each in KINDS]
)
def test_days_lead_where_all_rows_lead(kind):
    make, form, uneven, weighs = KINDS[kind]
    model, groups, count = make(), UNEVEN if uneven else GROUPS, 4_000 if uneven else 600
    days = [form(rows_of(1, count, groups, uneven)), form(rows_of(2, 40, groups, uneven, extra=2))]

    def weights_of(data):
        return np.where(data["x"].ravel() > 0, 2.0, 1.0) if weighs else None

    first = question(model, days[0], weights_of(days[0]))
    standing = begun(first, NOTHING).settled(None)
    assert standing.laid.plan.is_plain is not uneven
    grown = standing.with_rows(arrays_of(first, days[1], weights_of(days[1])))
    assert grown.read < 20 * 2 * 42
    whole = {name: np.concatenate([day[name] for day in days]) for name in days[0]}
    scratch = begun(question(model, whole, weights_of(whole)), NOTHING).settled(None)
    here, there = grown.anchor(), scratch.anchor()
    np.testing.assert_allclose((here.mode - there.mode) / there.sd, 0, atol=0.05)
    np.testing.assert_allclose(here.sd / there.sd, 1, atol=0.03)
    # The control: without the day the mode is elsewhere, and rows withdrawn lead back there.
    assert np.abs((standing.anchor().mode - there.mode) / there.sd).max() > 0.1
    back = grown.without(arrays_of(first, days[1], weights_of(days[1])))
    np.testing.assert_allclose((back.anchor().mode - standing.anchor().mode) / there.sd, 0, atol=1e-4)
    assert back.grouping().counts.sum() == len(days[0]["x"])


def test_rows_in_another_form_are_refused():
    first = question(linear_model(), as_regression(rows_of(1, 100, 10)), None)
    data = as_regression(rows_of(2, 10, 10))
    with pytest.raises(tb.TallbayesError, match="no weights"):
        arrays_of(first, data, np.ones(10))
    with pytest.raises(tb.TallbayesError, match="9 of them, 10 rows"):
        arrays_of(first, {**data, "g": data["g"][:9]}, None)
    with pytest.raises(tb.TallbayesError, match="with the column 'g'"):
        arrays_of(first, {name: each for name, each in data.items() if name != "g"}, None)
