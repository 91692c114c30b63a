"""The report: what it says, and that nothing is hidden, unescaped or fetched. How it looks: test_report_pages.py.

Most pages are of results made by hand, whose numbers are known; one is of a real fit.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html import escape, unescape
from pathlib import Path

import numpy as np
import pytest
from page_reader import Reader, cells_of, faults
from reports import (
    CARRIERS,
    COMPARISONS,
    HOSTILE,
    PREDICTIONS,
    RESULTS,
    all_pages,
    made,
    outlined,
    regression,
)

import tallbayes as tb
from tallbayes.errors import InputError
from tallbayes.estimator.estimates import Status
from tallbayes.results.result import Result
from tallbayes.structure import Structure
from tallbayes.views.report import NO_NUMBERS, NORMAL_NUMBERS, render_report, write_report
from tallbayes.views.report.markup import figures


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return all_pages()


@pytest.mark.parametrize("name", RESULTS)
def test_a_page_needs_nothing_else_and_is_open_to_all(pages: dict[str, str], name: str) -> None:
    assert faults(pages[name]) == []
    assert "Content-Security-Policy" in pages[name]
    assert "default-src 'none'" in unescape(pages[name])


CONTROLS = {
    "a script": ("</main>", "<script>1</script></main>", "script is not wanted"),
    "a link": ('href="data:,"', 'href="https://example.org/a.css"', "link href leaves the page"),
    "a picture": ("</main>", '<img src="a.png"></img></main>', "img src leaves the page"),
    "a font": ("</style>", "@font-face { src: url(a) }</style>", "the style loads something"),
    "a second h1": ("</main>", "<h1>b</h1></main>", "not one h1, first"),
    "a gap of headings": ("</main>", "<h2>a</h2><h4>b</h4></main>", "a level of headings is left out"),
    "a bare th": ("</main>", "<table><caption>c</caption><tr><th>a</th></tr></table></main>", "a th without scope"),
    "no caption": ("</main>", "<table></table></main>", "a table without caption"),
    "a mute drawing": ("</main>", '<svg role="img"></svg></main>', "a drawing that says nothing"),
    "a dead link": ('href="#cost"', 'href="#costs"', "a points at nothing"),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_control_faults_are_noticed(pages: dict[str, str], name: str) -> None:
    before, after, complaint = CONTROLS[name]
    page = pages["logistic"]
    assert before in page
    assert complaint in faults(page.replace(before, after, 1))


def test_control_elements_that_are_not_closed_are_noticed(pages: dict[str, str]) -> None:
    with pytest.raises(AssertionError):
        Reader(pages["logistic"].replace("</figure>", "", 1))


@pytest.mark.parametrize("name", RESULTS)
def test_parts_come_in_order_and_nothing_reads_nan(pages: dict[str, str], name: str) -> None:
    reader = Reader(pages[name])
    assert [text for _, text in reader.all("h2")] == ["The answer", "How sure", "What it cost"]
    visible = reader.text().lower()
    assert not re.search(r"\bnan\b|\binf\b|none of the 0|\[\]|<class|object at", visible)
    assert "Markup(" not in pages[name]


def test_names_cannot_become_markup(pages: dict[str, str]) -> None:
    for name in ("logistic", "multinomial", "linear"):
        assert HOSTILE not in pages[name]
        assert escape(HOSTILE) in pages[name]
        assert "late & <lost>" in Reader(pages[name]).all("h1")[0][1]
    odd = made(["a\x00b\ud800", "\u202eright to left"])
    assert render_report(odd, title="</title><script>alert(1)</script>").count("<script") == 0
    assert "\x00" not in render_report(odd)
    render_report(odd).encode()


@pytest.mark.parametrize(("family", "ratio"), [("logistic", "odds ratio"), ("poisson", "rate ratio")])
def test_ratios_are_exponentials_and_leave_the_intercept_out(family: str, ratio: str) -> None:
    result = regression(family)
    page = render_report(result)
    reader = Reader(page)
    assert f"{ratio.capitalize()}s" in [text for _, text in reader.all("h3")]
    captions = [text for _, text in reader.all("caption")]
    assert captions[0].startswith("exp of a coefficient")
    found = next(each for each in result.coefficients() if each.name == "carrier[T.EV]")
    for number in (found.lower, found.median, found.upper):
        assert "{}± {}".format(*figures(*number.exponential)) in cells_of(page)
    assert "Left out of the plot: Intercept." in reader.text()


def test_a_linear_regression_has_no_ratios_and_lists_its_noise(pages: dict[str, str]) -> None:
    assert "Coefficients" in [text for _, text in Reader(pages["linear"]).all("h3")]
    assert "Axes are logarithmic" not in pages["linear"]
    assert "noise_scale" in cells_of(pages["linear"])


def test_columns_of_a_factor_stand_together(pages: dict[str, str]) -> None:
    texts = cells_of(pages["logistic"])
    assert "carrier, against AA" in texts
    assert {"EV", "UA", HOSTILE} <= set(texts)
    assert "carrier[T.EV]" not in texts
    assert "late. rather than on time · carrier, against AA" in cells_of(pages["multinomial"])


def warning_of(page: str) -> str:
    (_, warning), *_ = Reader(page).all("div", class_="warning")
    return warning


def test_a_warning_says_which_numbers_met_their_accuracy(pages: dict[str, str]) -> None:
    told = warning_of(pages["no variance"])
    assert "By their stated errors no number is known to 0.05 posterior sd (1 with an error unknown)" in told
    mean = regression("linear")["mean"]
    tight = replace(mean, flat_tolerance=np.where(np.arange(5) < 2, 1e-9, 1.0))
    some = regression("linear", status=Status.max_levels)
    told = warning_of(render_report(replace(some, estimates={"mean": tight, "sd": some["sd"]})))
    met = "8 of 10 means and sds are known to 0.05 posterior sd, not so Intercept (mean) and hour (mean)"
    assert f"{met}; every interval end is known to 0.1 sd." in told
    rough = replace(some, status=Status.heavy_tails)
    assert "By their stated errors every mean and sd is known to 0.05" in warning_of(render_report(rough))


def test_a_run_that_ended_before_its_paths_says_what_its_numbers_are(pages: dict[str, str]) -> None:
    gaussian, nothing = warning_of(pages["the Gaussian alone"]), warning_of(pages["no number yet"])
    assert NORMAL_NUMBERS in gaussian
    assert "A normal approximation alone, whose errors are unknown, as no path was run." in gaussian
    assert "mean" in cells_of(pages["the Gaussian alone"])
    for name in ("no number yet", "no row yet"):
        assert NO_NUMBERS in warning_of(pages[name])
        text = Reader(pages[name]).text()
        assert "None: the run ended before it had a number." in text
        assert "There is no number of which to state an error." in text
        assert "missed" not in text
    assert "of which no row was read yet" in Reader(pages["no row yet"]).text()
    assert "missed" not in nothing


def test_what_intervals_say_is_no_finding_where_they_are_not_to_be_trusted() -> None:
    (_, sure), *_ = Reader(render_report(regression("logistic"))).all("p", class_="lead")
    assert "clear of 1" in sure
    for doubted in (regression("logistic", status=Status.no_contraction), outlined(0.25)):
        (_, lead), *_ = Reader(render_report(doubted)).all("p", class_="lead")
        assert lead.endswith("given 1,000 rows.")
    (_, lead), *_ = Reader(render_report(RESULTS["several modes"]())).all("p", class_="lead")
    assert "At the heaviest mode, 3 of 4 odds ratios are clear of 1" in lead


def test_other_modes_stand_beside_the_answer(pages: dict[str, str]) -> None:
    page = pages["several modes"]
    reader, cells = Reader(page), cells_of(page)
    assert "Several modes" in [text for _, text in reader.all("h3")]
    assert "About 35% of the posterior’s mass, by an estimate, is at 3 other modes." in warning_of(page)
    assert [text for _, text in reader.all("a", href="#modes")] == ["3 other modes"]
    assert "The numbers above are of the heaviest mode alone, with about 65% of the mass" in reader.text()
    assert "What to do: " in reader.text()
    assert {"65%", "25%", "10%", "0.04%", "mode 1, shown above", "mode 2", "mode 4"} <= set(cells)
    assert cells.count("met the accuracy asked for, about this mode alone") == 2
    assert "not answered: it is <too> light" in cells
    assert str(Status.max_seconds) in cells
    # Mean and sd of mode 4 are not known; its centre is, to a tenth of its sd.
    assert cells.count("4.400") == 3
    assert warning_of(page).startswith(
        "4 modes, and these numbers are of the heaviest alone. Every mean and sd is known"
    )
    many = Reader(pages["several modes and no posterior"]).text()
    assert "194 further parameters not shown." in many
    assert 'id="modes"' not in pages["logistic"]


def test_a_parameter_without_a_name_is_called_one(pages: dict[str, str]) -> None:
    page = pages["several modes of one number"]
    assert "The 95% interval of parameter leaves out 0." in Reader(page).text()
    assert all(text for attributes, text in Reader(page).all("th") if attributes["scope"] == "row")


def test_a_run_that_converged_has_no_warning(pages: dict[str, str]) -> None:
    assert 'class="warning"' not in pages["logistic"]
    assert 'class="notice"' not in pages["logistic"]
    met = "✓ Converged: every mean and sd is known to 0.05 posterior sd, every interval end to 0.1 sd."
    assert met in Reader(pages["logistic"]).text()


def test_numbers_that_missed_their_accuracy_are_marked() -> None:
    result = regression("linear", tolerance=0.001, status=Status.max_seconds)
    page = render_report(result)
    assert cells_of(page).count("not met") == 5 + 2
    assert "No mean or sd is known to 0.001 posterior sd; every interval end" in Reader(page).text()
    assert "not met" not in cells_of(render_report(regression("linear")))


def test_what_is_unknown_is_called_so(pages: dict[str, str]) -> None:
    assert cells_of(pages["no numbers"]).count("unknown") > 4
    assert "± unknown" in Reader(pages["one level"]).text()
    for name in ("one level", "two levels"):
        assert "three levels at least" in Reader(pages[name]).text()
        assert "(error unknown, as too few levels were sampled)" in Reader(pages[name]).text()


def points(page: str, layout: str) -> int:
    drawing = re.search(rf'<svg[^>]*class="chart {layout}".*?</svg>', page, re.DOTALL)
    assert drawing is not None
    return len(re.findall('<circle[^>]*class="point', drawing[0]))


def test_of_many_coefficients_the_clearest_are_drawn_and_all_are_listed(pages: dict[str, str]) -> None:
    page = pages["two hundred"]
    assert points(page, "wide") == points(page, "narrow") == 40
    assert "Shown are the 40 that are clearest of 1; the table has 160 more." in Reader(page).text()
    listed = cells_of(page)
    assert all(f"r{number:03d}" in listed for number in range(150))
    closed = [attributes for attributes, text in Reader(page).all("details") if text.startswith("All 200 odds")]
    assert closed == [{}]


def test_few_coefficients_are_all_drawn(pages: dict[str, str]) -> None:
    assert points(pages["logistic"], "wide") == points(pages["logistic"], "narrow") == 4
    assert points(pages["one parameter"], "wide") == 1
    assert points(pages["an intercept alone"], "wide") == 1


def test_a_run_without_posterior_says_what_its_ends_are(pages: dict[str, str]) -> None:
    text = Reader(pages["no posterior"]).text()
    assert "mean ± 1.96 sd, as this run kept no posterior" in text
    assert "This run kept no posterior, so it has no quantiles" in text


def test_quantities_of_the_users_own(pages: dict[str, str]) -> None:
    for name in ("quantities beside", "quantities instead", "nothing but quantities"):
        reader = Reader(pages[name])
        assert "Quantities" in [text for _, text in reader.all("h3")]
        assert "odds & <ends>" in cells_of(pages[name])
        assert {"[0]", "[1]", "pair"} <= set(cells_of(pages[name]))
    assert "Posterior expectations of odds & <ends> and pair" in Reader(pages["nothing but quantities"]).all("h1")[0][1]
    assert '<h3 id="effects">' not in pages["nothing but quantities"]


def test_a_quantity_called_mean_of_another_shape_is_one_of_the_users_own() -> None:
    result = made(["a", "b"])
    odd = replace(
        result["mean"],
        structure=Structure.leaf(()),
        **{
            field: getattr(result["mean"], field)[:1]
            for field in ("flat_value", "flat_standard_error", "flat_bias_bound", "flat_freedom", "flat_tolerance")
        },
    )
    page = render_report(replace(result, estimates={"mean": odd, "sd": result["sd"]}))
    assert "Quantities" in [text for _, text in Reader(page).all("h3")]


def test_predictions_and_comparisons(pages: dict[str, str]) -> None:
    text, cells = Reader(pages["logistic"]).text(), cells_of(pages["logistic"])
    assert f"flight {HOSTILE}" in cells
    assert "P(late & <lost>)" in cells
    assert "0.25000± 0.00050" in cells
    assert {"P(on time)", f"P({HOSTILE})"} <= set(cells)
    assert "10 more rows are not shown." in text
    assert {f"EV against {HOSTILE}", "a against b", "> 0.999999"} <= set(cells)
    assert f"{np.exp(0.7):.4f}± {np.exp(0.7) * 1e-3:.4f}" in cells
    alone = render_report(regression("logistic"))
    assert not {"Predictions", "Comparisons"} & {heading for _, heading in Reader(alone).all("h3")}
    one = render_report(regression("logistic"), PREDICTIONS[0][1])
    assert one == render_report(regression("logistic"), {"row": PREDICTIONS[0][1]})


def test_what_it_cost_is_all_there(pages: dict[str, str]) -> None:
    text = Reader(pages["logistic"]).text()
    for each in ("12,345", "67,890", "1.50 seconds", "Anchored(Taylor(batch_size=4))", "tallbayes 0.1.0", "a < b & c"):
        assert each in text
    assert "2 short trials" in text
    assert "chosen" in cells_of(pages["logistic"])


def test_settings_of_a_run_are_shown_without_the_place_of_its_data() -> None:
    settings = {"data": "/home/someone/flights.csv", "formula": "late ~ a", "family": "logistic", "prior_scale": 2.5}
    text = Reader(render_report(regression("logistic"), settings=settings, title="Flights <1>")).text()
    assert "flights.csv" in text
    assert "someone" not in text
    assert "late ~ a" in text
    assert "2.5" in text
    assert text.startswith("Flights <1>")


def test_laplace_is_judged_by_the_accuracy_asked_for() -> None:
    fine = regression("logistic")
    assert "would have been fine by itself" in render_report(fine)
    mean = fine["mean"]
    moved = replace(mean, flat_value=mean.flat_value + np.array([0, 0.2, 0, 0, 0]) * 0.1)
    page = render_report(replace(fine, estimates={"mean": moved, "sd": fine["sd"]}))
    assert "it misses 1 mean by more than 0.05 posterior sds" in page
    assert "posterior sds (hour)" in page


def test_drawings_say_what_they_show(pages: dict[str, str]) -> None:
    said = [text for _, text in Reader(pages["logistic"]).all("desc")]
    assert "3 of 4 odds ratios are clear of 1" in said[0]
    assert len(said) == 6
    assert any("\N{GREEK SMALL LETTER BETA} = 2.00" in each for each in said)


# Files


def test_the_page_is_written_whole_and_the_same_every_time(tmp_path: Path) -> None:
    result, path = regression("logistic"), tmp_path / "report.html"
    assert write_report(result, str(path), PREDICTIONS, COMPARISONS) == path
    first = path.read_bytes()
    write_report(result, path, PREDICTIONS, COMPARISONS)
    assert path.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert len(first) < 200_000


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere" / "report.html"):
        with pytest.raises(InputError, match="a file to write the report to"):
            write_report(made(["a"]), path)


# A real fit


@pytest.fixture(scope="module")
def fitted() -> Result:
    rng = np.random.default_rng(5)
    carrier = np.array(CARRIERS)[rng.integers(0, 4, 600)]
    hour = rng.integers(0, 24, 600)
    chance = 1 / (1 + np.exp(1.5 - 0.08 * hour - 0.8 * (carrier == "EV")))
    rows = {"late": rng.random(600) < chance, "hour": hour, "carrier": carrier}
    return tb.fit("late ~ hour + carrier", rows, tolerance=0.2, seed=1)


@pytest.fixture(scope="module")
def fitted_page(fitted: Result) -> str:
    row = {"hour": 19, "carrier": HOSTILE}
    return render_report(fitted, [("evening", fitted.predict(row))], [fitted.compare("carrier", "EV", HOSTILE)])


def test_the_page_of_a_real_fit(fitted: Result, fitted_page: str) -> None:
    assert faults(fitted_page) == []
    reader = Reader(fitted_page)
    assert reader.all("h1")[0][1] == "Logistic regression of late"
    assert reader.all("code")[0][1] == "late ~ hour + carrier"
    assert {"Odds ratios", "Predictions", "Comparisons", "Beside Laplace’s approximation"} <= {
        text for _, text in reader.all("h3")
    }
    hour = next(each for each in fitted.coefficients() if each.name == "hour")
    value, error = figures(*hour.upper.exponential)
    assert {f"{mark}{value}± {error}" for mark in ("", "~")} & set(cells_of(fitted_page))
    assert "row gradients in all. For every end, a standard error of" in reader.text()


def test_a_stored_result_is_reported_without_jax(fitted: Result, tmp_path: Path) -> None:
    fitted.save(tmp_path / "result.tallbayes")
    program = (
        "import sys, tallbayes as tb\n"
        "from tallbayes.views.report import write_report\n"
        "write_report(tb.load(sys.argv[1]), sys.argv[2])\n"
        "assert 'jax' not in sys.modules, 'JAX was imported'\n"
    )
    places = [str(tmp_path / each) for each in ("result.tallbayes", "report.html")]
    command = [sys.executable, "-W", "error", "-c", program, *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert faults((tmp_path / "report.html").read_text()) == []
