"""The parts a report is made of: figures, elements, terms, axes and colours."""

from __future__ import annotations

import re

import numpy as np
import pytest
from page_reader import cells_of
from reports import INF, NAN, encoding_of, made

from tallbayes.results.terms import terms_of
from tallbayes.views.report import render_report
from tallbayes.views.report.markup import element, figures, measured, plain, table
from tallbayes.views.report.scales import by_magnitude, linear_ticks, log_ticks, scale_of
from tallbayes.views.report.stylesheet import DARK, LETTERS, LIGHT, MARKS, SHEET


def test_numbers_are_given_to_the_second_digit_of_their_error() -> None:
    result = made(["location"], np.array([1.23456789]), np.array([0.1]))
    texts = cells_of(render_report(result))
    assert "1.2346± 0.0011" in [text.replace("\N{NO-BREAK SPACE}", " ") for text in texts]
    assert figures(0.5, 0.0996) == ("0.50", "0.10")
    assert figures(-0.00001, 0.01) == ("0.000", "0.010")
    assert figures(1.0, 1e-14) == ("1.000000000000", "1.0e−14")
    assert figures(3e-9, 1.2e-10) == ("3.00e−9", "1.2e−10")
    assert figures(NAN, 1.0) == ("unknown", "")
    assert plain(INF) == "unknown"


def test_points_stand_below_points() -> None:
    column = measured("a", [(1.5, 0.01), (22.25, 0.0012), (3.0, 12.0)])
    room = [re.findall(r'<i style="width:([\d.]+)ch">', str(cell)) for cell in column.cells]
    assert [str(cell).split("<")[0] for cell in column.cells] == ["1.500", "22.2500", "3"]
    assert room == [["1"], [], ["4.5"]]


def test_terms_are_read_off_the_encoding() -> None:
    columns = ["C(month)[T.2]", "a:b", "hour:kind[T.x:y]", "kind[T.x:y]", "kind[u]:C(month)[T.2]", "poly(a, 2)[1]"]
    encoding = encoding_of(columns, {"C(month)": [1, 2], "kind": ["u", "x:y"]})  # type: ignore[list-item]
    found = terms_of(made(columns, encoding=encoding), ["Intercept", *columns, "noise_scale"])
    assert [(each.factor, each.label, each.reference, each.is_category) for each in found] == [
        ("", "Intercept", "", False),
        ("month", "2", "1", True),
        ("", "a:b", "", False),
        ("hour : kind", "x:y", "", False),
        ("kind", "x:y", "u", True),
        ("kind : month", "u : 2", "", True),
        ("", "poly(a, 2)[1]", "", False),
        ("", "noise_scale", "", False),
    ]
    assert [each.is_intercept for each in found] == [True] + [False] * 7
    assert found[-1].is_extra


def test_elements_escape_what_is_not_markup() -> None:
    assert (
        element("p", "a < b", None, element("b", '"'), class_="x&y") == '<p class="x&amp;y">a &lt; b<b>&quot;</b></p>'
    )
    assert "&lt;i&gt;" in table("<i>", "a", ["b"], [])


@pytest.mark.parametrize("ends", [(-0.3, 0.2), (1e-7, 3e-7), (-4e8, 9e8), (0.99975, 1.0001), (5.0, 5.5)])
def test_ticks_of_a_linear_axis(ends: tuple[float, float]) -> None:
    scale = scale_of(ends, False, 6)
    places = [tick.place for tick in scale.ticks]
    assert 2 <= len(places) <= 7
    assert scale.low < ends[0] < ends[1] < scale.high
    assert all(scale.low <= place <= scale.high for place in places)
    assert len({tick.text for tick in scale.ticks}) == len(places)


@pytest.mark.parametrize("ends", [(-0.01, 0.01), (-0.5, 0.4), (-1.0, 2.0), (-9.0, 3.0), (-40.0, 60.0), (-2e-5, 0.0)])
def test_ticks_of_a_logarithmic_axis(ends: tuple[float, float]) -> None:
    ticks = log_ticks(*ends, 6)
    assert 2 <= len(ticks) <= 8
    values = [float(tick.text.replace(",", "").replace("−", "-")) for tick in ticks]
    np.testing.assert_allclose(np.log(values), [tick.place for tick in ticks], atol=1e-6)
    assert linear_ticks(0.0, 1.0, 5)[0].text == "0.0"


def test_small_intervals_get_an_axis_of_their_own() -> None:
    assert by_magnitude([5.0, 6.0, 0.1], [0.5, 0.4, 0.02], 0.02, 8.0) == [0, 0, 1]
    assert by_magnitude([5.0, 6.0, 0.1], [0.5, 0.4, 0.2], 0.02, 8.0) == [0, 0, 0]
    assert by_magnitude([], [], 0.02, 8.0) == []


def luminance(colour: str) -> float:
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    """As WCAG 2 has it."""
    darker, lighter = sorted([luminance(a), luminance(b)])
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_letters_and_marks_can_be_told_from_what_they_stand_on(palette: dict[str, str]) -> None:
    assert set(LIGHT) == set(DARK)
    assert all(contrast(palette[text], palette[paper]) >= 4.5 for text, paper in LETTERS)
    assert all(contrast(palette[mark], palette[paper]) >= 3 for mark, paper in MARKS)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") < 4.5
    assert set(re.findall(r"var\(--([\w-]+)\)", SHEET)) == {*palette, "abreast"}
    assert not re.findall(r"#[0-9a-f]{3,6}\b", SHEET.split("* {", 1)[1])
