"""Effects in a report: their order, their marks, and which of them are ratios."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from page_reader import Reader, cells_of
from reports import NAN, encoding_of, made, regression

from tallbayes.results.coefficients import Number
from tallbayes.results.result import Result
from tallbayes.views.advice import RUN
from tallbayes.views.document import to_json
from tallbayes.views.report import render_report
from tallbayes.views.report.effects import effects_of
from tallbayes.views.report.forest import forest

LEVELS = ["EV", "DL", "UA", "AS", "B6"]
MEANS = np.array([-1.0, 0.2, 0.4, 0.9, -0.7, 0.1, 0.5])


def by_carrier() -> Result:
    columns = ["hour", *(f"carrier[T.{each}]" for each in LEVELS)]
    encoding = encoding_of(columns, {"carrier": ["AA", *LEVELS]}, [False, True])
    return made(["Intercept", *columns], MEANS, family="logistic", encoding=encoding)


def test_levels_of_a_category_stand_in_the_order_of_their_effects() -> None:
    result = by_carrier()
    ordered = [LEVELS[place] for place in np.argsort(-MEANS[2:])]
    page = render_report(result)
    for cells in (cells_of(page), [text for attributes, text in Reader(page).all("text", class_="label")]):
        assert [each for each in cells if each in LEVELS][:5] == ordered
    assert [each.term.name for each in effects_of(result).in_order] == list(result.posterior.labels)
    # Programs have them in the order of the model.
    assert list(json.loads(to_json(result, {}))["intervals"]) == list(result.posterior.labels)
    assert list(result.to_pandas().index) == list(result.posterior.labels)


def test_accuracy_stands_beside_its_own_level() -> None:
    result = by_carrier()
    tight = replace(result["mean"], flat_tolerance=np.where(np.arange(7) == 3, 0.0, 1.0))
    page = render_report(replace(result, estimates=result.estimates | {"mean": tight}))
    rows = [row for _, row in Reader(page).all("tr") if row.startswith("DL") and "met" in row]
    assert [row.endswith("not met") for row in rows] == [True]
    assert sum(row.endswith("not met") for _, row in Reader(page).all("tr")) == 2


def test_a_level_that_is_not_known_stands_last() -> None:
    result = by_carrier()
    effects = effects_of(replace(result, posterior=None, estimates=_without(result, 3)))
    assert [each.term.label for each in effects.all if each.term.is_category][-1] == "DL"


def _without(result: Result, place: int) -> dict[str, object]:
    lost = np.arange(len(MEANS)) == place
    return {
        name: replace(each, flat_value=np.where(lost, NAN, each.flat_value)) for name, each in result.estimates.items()
    }


def polynomial(**changes: object) -> Result:
    columns = ["hour", "I(hour ** 2)", "carrier[T.EV]"]
    encoding = encoding_of(columns, {"carrier": ["AA", "EV"]}, [False, True])
    return made(["Intercept", *columns], family="logistic", encoding=encoding, **changes)


def test_a_squared_term_has_a_coefficient_and_no_ratio() -> None:
    page = render_report(polynomial())
    text = Reader(page).text()
    ratios, coefficients = text.split("before exp")
    assert "No odds ratio is given for hour and I(hour ** 2)" in ratios
    assert "result.compare(row, other_row)" in ratios
    drawn = [words for _, words in Reader(page).all("text", class_="label")]
    assert "EV" in drawn
    assert "hour" not in drawn[:1]
    assert "I(hour ** 2)" in coefficients
    assert "In numbers" in text
    assert "1 of" not in Reader(page).all("p", class_="lead")[0][1]
    command = render_report(polynomial(), settings={"command": "fit", RUN: "run1"})
    assert "tallbayes predict run1 NEWDATA" in Reader(command).text()
    assert "No odds ratio" not in render_report(regression("logistic"))


def test_only_pieces_are_shown_as_coefficients() -> None:
    encoding = encoding_of(["hour", "I(hour ** 2)"], {}, [False, True])
    page = render_report(made(["Intercept", "hour", "I(hour ** 2)"], family="logistic", encoding=encoding))
    assert "Coefficients" in [text for _, text in Reader(page).all("h3")]
    assert "Axes are logarithmic" not in page


def test_ends_are_drawn_with_the_digits_that_are_known_and_marked_where_rough() -> None:
    effects = effects_of(by_carrier())
    first = effects.plotted[0]
    near = replace(first, point=Number(0.2, 1e-4), lower=Number(-0.1236, 1e-4), upper=Number(0.5236, 0.08))
    lost = replace(near, upper=Number(0.5236, NAN))
    wide = replace(effects, all=(near, lost), ratio=None)
    texts = Reader(f"<body>{forest(wide)}</body>").text()
    assert "\N{MINUS SIGN}0.12 to ~0.5" in texts
    assert "\N{MINUS SIGN}0.12 to ~0.52" in texts
    assert near.is_rough == (False, False, True)
    assert not lost.is_clear


def test_an_interval_is_clear_of_zero_only_where_its_end_is_known_to_be() -> None:
    effect = effects_of(by_carrier()).plotted[0]
    for error, clear in ((0.001, True), (0.02, False), (NAN, False)):
        changed = replace(effect, point=Number(0.3, 0.001), lower=Number(0.03, error), upper=Number(0.6, 0.001))
        assert changed.is_clear is clear


def test_every_cell_knows_its_column_for_the_cards_of_a_phone() -> None:
    page = render_report(by_carrier())
    cells = Reader(page).all("td")
    assert cells
    assert all("data-head" in attributes for attributes, _ in cells)
    assert {"odds ratio", "2.5% end", "97.5% end", "mean", "sd"} <= {attributes["data-head"] for attributes, _ in cells}
