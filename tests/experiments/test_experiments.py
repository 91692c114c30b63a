"""The reproduction of the paper: references, resuming, figures that never sample, and one page that stands alone."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tallbayes.commands import cli
from tallbayes.commands.options import FIGURES
from tallbayes.experiments import accuracy, coupled_paths, decay, problem, reproduce, runs, scaling, slopes
from tallbayes.experiments.store import Measurement, Store

COMMITTED = Path(__file__).parents[2] / "docs" / "reproduction"


def test_the_reference_agrees_with_exact_sampling():
    """Importance sampling from a Student-t at the mode, independent of the quadrature; 5 standard errors, 6e-7."""
    rows = problem.make_rows(100)
    truth = problem.reference(100)
    rng = np.random.default_rng(0)
    freedom, count = 6, 200_000
    scale = np.linalg.inv(np.linalg.cholesky(rows.hessian)).T
    z = rng.normal(size=(count, 3)) / np.sqrt(rng.chisquare(freedom, count) / freedom)[:, None]
    log_proposal = -0.5 * (freedom + 3) * np.log1p(np.sum(z**2, axis=1) / freedom)
    moves = z @ scale.T
    log_density = np.concatenate([problem._log_density(rows, part) for part in np.array_split(rows.mode + moves, 50)])
    weight = np.exp(log_density - log_proposal - (log_density - log_proposal).max())
    distance = np.sum(moves**2, axis=1)
    value = np.sum(weight * distance) / weight.sum()
    error = np.sqrt(np.sum((weight * (distance - value)) ** 2)) / weight.sum()
    assert abs(value - truth.value) < 5 * error
    assert error < 0.01 * truth.value
    assert truth.error < 1e-6 * truth.value


def test_batch_sizes_are_cube_roots():
    assert [problem.batch_size(n) for n in (100, 316, 1000, 3162, 10000, 27)] == [5, 7, 10, 15, 22, 3]


def test_the_literal_window_is_half_of_every_path():
    ladder = runs.LiteralLadder(1e-3, start_steps=16, added_steps=16)
    assert [ladder.window(level) * 2 for level in range(4)] == [ladder.steps(level) for level in range(4)]


@pytest.mark.slow
def test_recorded_paths_end_where_sampled_ones_do():
    """The figure's trajectories are the library's own paths: same draws, same Delta."""
    from tallbayes.estimator.ladder import Ladder
    from tallbayes.estimator.levels import BLOCK_PATHS, sample_level

    this = runs.subject(problem.make_rows(100), Ladder(1 / 100, start_steps=4, added_steps=4))
    fine, coarse = coupled_paths.trajectories(this.problem, 2, BLOCK_PATHS)
    delta = np.sum(fine[-1] ** 2, axis=-1) - np.sum(coarse[-1] ** 2, axis=-1).mean(axis=-1)
    np.testing.assert_allclose(delta.mean(), sample_level(this.problem, 2, 0).delta.mean[0], rtol=1e-3, atol=1e-7)


class InterruptedRunError(Exception):
    pass


def counted(calls, fail=()):
    def piece(name):
        def compute():
            if name in fail:
                raise InterruptedRunError
            calls.append(name)
            return {"value": len(name)}

        return Measurement({"name": name, "seed": 0}, compute)

    return {name: piece(name) for name in ("a", "bb", "ccc")}


def test_interrupted_runs_pick_up_where_they_were(tmp_path):
    store, calls = Store(tmp_path), []
    with pytest.raises(InterruptedRunError):
        store.complete("figure", counted(calls, fail=("ccc",)), lambda line: None)
    assert calls == ["a", "bb"]
    store.complete("figure", counted(calls), lambda line: None)
    assert calls == ["a", "bb", "ccc"]
    assert store.results("figure") == {"a": {"value": 1}, "bb": {"value": 2}, "ccc": {"value": 3}}


def test_other_settings_are_run_again(tmp_path):
    store, calls = Store(tmp_path), []
    store.complete("figure", counted(calls), lambda line: None)
    changed = counted(calls) | {"bb": Measurement({"name": "bb", "seed": 1}, lambda: {"value": 0})}
    store.complete("figure", changed, lambda line: None)
    assert store.results("figure")["bb"] == {"value": 0}
    assert calls == ["a", "bb", "ccc"]


def test_results_carry_settings_seeds_and_versions(tmp_path):
    Store(tmp_path).complete("figure", counted([]), lambda line: None)
    document = json.loads((tmp_path / "figure.json").read_text())
    assert set(document["versions"]) >= {"tallbayes", "jax", "jaxlib"}
    assert document["pieces"]["a"]["settings"] == {"name": "a", "seed": 0}


def test_every_piece_states_its_seeds():
    for module in reproduce.FIGURES.values():
        for quick in (True, False):
            for piece in module.pieces(quick).values():
                assert {"seed", "seeds", "repeats"} & set(piece.settings)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The committed results, drawn anew where nothing may sample."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "results").symlink_to(COMMITTED / "results")
    patch = pytest.MonkeyPatch()
    for name in ("sample_levels", "repeat", "subject"):
        patch.setattr(runs, name, _refuse)
    patch.setattr("tallbayes.sampler.levels.Problem.sample", _refuse)
    try:
        page = reproduce.draw_all(folder, quick=False)
    finally:
        patch.undo()
    return folder, page.read_text()


def _refuse(*arguments, **settings):
    raise AssertionError("a plot must not sample")


def test_plots_read_results_and_never_sample(drawn):
    folder, page = drawn
    for name in reproduce.FIGURES:
        assert (folder / "figures" / f"{name}.png").stat().st_size > 10_000
        assert (folder / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        assert f'<h2 id="{name}">' in page


def test_the_committed_page_is_what_the_committed_results_give(drawn):
    """The claims, word for word; drawings may differ in the font engine's rounding."""
    committed = (COMMITTED / "index.html").read_text()
    table = re.compile(r"<tbody>.*</tbody>", re.DOTALL)
    assert table.search(drawn[1]).group() == table.search(committed).group()


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.identifiers, self.sources, self.links, self.names = [], [], [], []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.names.append(tag)
        self.identifiers += [given["id"]] if "id" in given else []
        self.sources += [given[key] for key in ("src", "xlink:href") if key in given]
        self.links += [given["href"]] if "href" in given else []


def test_the_page_stands_alone(drawn):
    tags = Tags()
    tags.feed(drawn[1])
    assert len(tags.identifiers) == len(set(tags.identifiers))
    assert all(source.startswith(("#", "data:")) for source in tags.sources)
    assert all(link.startswith("#") and link[1:] in tags.identifiers for link in tags.links)
    assert "script" not in tags.names
    assert tags.names.count("th") == 5


def test_every_claim_has_a_verdict_and_a_figure(drawn):
    rows = re.findall(r"<tr><td>.*?</tr>", drawn[1], re.DOTALL)
    assert len(rows) >= 15
    assert all(re.search(r'<td class="verdict">[^<]+</td>', row) for row in rows)
    assert "nan" not in "".join(rows)


def test_the_measured_rates_are_those_of_the_paper():
    """What the committed results must show for the page to be true; bands as in test_orders."""
    results = Store(COMMITTED / "results").results(decay.NAME)
    assert 1.8 <= decay.rate(results["antithetic, m = 15"])[0] <= 2.2
    assert 1.8 <= decay.rate(results["antithetic + Taylor, m = 15"])[0] <= 2.2
    assert 1.8 <= decay.rate(results["antithetic + Taylor + averaging, m = 15"])[0] <= 2.2
    assert decay.last_pair(results["synchronous, m = 15"]) < 1.4
    assert decay.last_pair(results["the same, window p_l = s_l/2, m = 15"]) < 1.0


def test_cost_grows_more_slowly_than_the_number_of_rows():
    store = Store(COMMITTED / "results")
    results = store.results(accuracy.NAME) | store.results(scaling.NAME)
    for method in (scaling.CUBE, scaling.AVERAGED, scaling.FIXED):
        slope, error = scaling.exponent(*scaling.costs(results, method)[:2])
        assert slope + 2 * error < 1
    slope, error = scaling.exponent(*scaling.costs(results, "MALA")[:2])
    assert abs(slope - 1) < 0.15


def test_sgld_follows_its_law():
    results = Store(COMMITTED / "results").results(slopes.NAME)
    direct = [piece for name, piece in results.items() if name.startswith("SGLD")]
    assert all(0.6 < piece["rmse"] / piece["law"] < 1.6 for piece in direct)


def test_help_answers_without_jax():
    code = (
        "import sys, tallbayes.commands.cli as c\ntry: c.main(['-h'])\nexcept SystemExit: print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "reproduce" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"


def test_the_command_knows_every_figure(capsys):
    assert tuple(reproduce.FIGURES) == FIGURES
    assert cli.main(["reproduce", "figure-9"]) == 2
    assert "expected" in capsys.readouterr().err


@pytest.mark.slow
def test_one_figure_from_the_command_line(tmp_path, monkeypatch, capsys):
    """Results, drawings and a page from one command; a second call finds everything done."""

    def made_up(spread, level, paths):
        time = np.linspace(0.001, 0.1, 20)
        return {
            "slowest": 0.1 * spread,
            "time": time.tolist(),
            "distance": (np.exp(-40 * time) + 4.0**-level).tolist(),
            "posterior_variance": 1.0,
            "fine": time.tolist(),
            "coarse": np.stack([time, -time], axis=1).tolist(),
        }

    monkeypatch.setattr(coupled_paths, "_compute", made_up)
    assert cli.main(["reproduce", "coupled-paths", "--quick", "--out", str(tmp_path)]) == 0
    assert "coupled-paths 1/6" in capsys.readouterr().err
    assert (tmp_path / "index.html").exists()
    assert cli.main(["reproduce", "coupled-paths", "--quick", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""
