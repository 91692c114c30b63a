"""The ledger: same bits with and without, nothing computed twice, every damage and every difference named."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from equal_results import assert_same
from scenarios import by_ladder, logistic_by_hand, logistic_rows

import tallbayes as tb
from tallbayes.estimator.levels import LevelBlock, read_block, write_block
from tallbayes.moments import Moments
from tallbayes.records.ledger import Ledger, merge_ledgers, open_ledger

ROWS = logistic_rows(300, (0.5, -0.5, 0.2))
MODEL = tb.families.logistic()


class Counting(ThreadPoolExecutor):
    """Threads that count what they are given."""

    def __init__(self) -> None:
        super().__init__(2)
        self.tasks: list[str] = []

    def submit(self, task: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        self.tasks.append(getattr(task, "__name__", type(task).__name__))
        return super().submit(task, *arguments, **options)


def estimate(ledger: Path | None = None, rows: Any = ROWS, model: tb.Model = MODEL, **options: Any) -> tb.Result:
    options = {"tolerance": 0.02, "seed": 3} | options
    return by_ladder(model, rows, ledger=ledger, **options)


@pytest.fixture(scope="module")
def plain() -> tb.Result:
    return estimate()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "run.sqlite"
    estimate(path)
    return path


@pytest.fixture
def ledger(kept: Path, tmp_path: Path) -> Path:
    """A copy that a test may harm."""
    return Path(shutil.copy(kept, tmp_path / "run.sqlite"))


def blocks_in(path: Path) -> int:
    with open_ledger(path) as ledger:
        return ledger.summary()["blocks"]


def test_the_numbers_are_those_without_a_ledger(plain: tb.Result, tmp_path: Path) -> None:
    assert_same(estimate(tmp_path / "new.sqlite"), plain)


def test_a_finished_run_is_answered_from_the_ledger_alone(plain: tb.Result, ledger: Path) -> None:
    with Counting() as threads:
        assert_same(estimate(ledger, executor=threads), plain)
    # The first is a question to the executor: is this the same process?
    assert threads.tasks == ["_place"]


def test_a_tighter_tolerance_pays_only_the_difference(ledger: Path) -> None:
    before = blocks_in(ledger)
    result = estimate(ledger, tolerance=0.01)
    assert result.converged
    assert before < blocks_in(ledger)
    with sqlite3.connect(ledger) as connection:
        (used,) = connection.execute(
            "SELECT COUNT(*) FROM blocks WHERE task = 'level' AND config IN ("
            "SELECT id FROM configs WHERE config LIKE '%stream 0%')"
        ).fetchone()
    connection.close()
    # All blocks of the estimate, the old ones too, are of one configuration: nothing was tuned anew or thrown away.
    assert used == sum(level.samples for level in result.levels) // 32


def test_tuning_is_on_record(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("tuned again")

    monkeypatch.setattr("tallbayes.methods.attempts.tune", refuse)
    assert estimate(ledger).converged
    assert estimate(ledger, tolerance=0.015).converged


def test_a_question_asked_again_is_found_among_several(plain: tb.Result, ledger: Path) -> None:
    tighter = estimate(ledger, tolerance=0.012)
    assert_same(estimate(ledger), plain)
    assert_same(estimate(ledger, tolerance=0.012), tighter)


@pytest.mark.parametrize("method", [tb.Randomised(), tb.Multilevel(gradient=tb.Taylor(8))], ids=["randomised", "paper"])
def test_every_method_goes_on_from_a_ledger(method: Any, tmp_path: Path) -> None:
    options = {"method": method, "tolerance": 0.1}
    first = estimate(tmp_path / "run.sqlite", **options)
    with Counting() as threads:
        again = estimate(tmp_path / "run.sqlite", executor=threads, **options)
    assert threads.tasks == ["_place"]
    assert_same(first, again)
    assert_same(first, estimate(**options))


def test_several_seeds_share_a_ledger(plain: tb.Result, ledger: Path) -> None:
    other = estimate(ledger, seed=4)
    assert_same(other, estimate(seed=4))
    assert_same(estimate(ledger), plain)


def test_points_that_were_left_out_are_computed_when_they_are_wanted(plain: tb.Result, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    without = estimate(path, keep_posterior=False)
    assert without.posterior is None
    assert_same(estimate(path), plain)


def changed(**changes: Any) -> dict[str, Any]:
    return changes


OTHERS = {
    "content": changed(rows={**ROWS, "y": 1 - ROWS["y"]}),
    "rows": changed(rows={name: array[:-1] for name, array in ROWS.items()}),
    "model": changed(model=tb.families.logistic(prior_scale=2.0)),
    "method": changed(method=tb.Anchored(batch_size=4)),
    "quantities": changed(quantities=("mean",)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_ledger_of_another_problem_is_refused_by_name(name: str, ledger: Path) -> None:
    before = ledger.read_bytes()
    with pytest.raises(tb.LedgerError, match=rf"expected a ledger of this problem.*\b{name} .* there, .* here"):
        estimate(ledger, **OTHERS[name])
    assert ledger.read_bytes() == before


def test_a_ledger_of_another_version_is_refused_by_name(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallbayes.records.fingerprint.METHOD_VERSION", 99)
    with pytest.raises(tb.LedgerError, match=r"versions .*99.* here"):
        estimate(ledger)


def test_a_model_that_computes_the_same_is_the_same(tmp_path: Path) -> None:
    first = estimate(tmp_path / "run.sqlite", model=logistic_by_hand(3))
    with Counting() as threads:
        assert_same(estimate(tmp_path / "run.sqlite", model=logistic_by_hand(3), executor=threads), first)
    assert threads.tasks == ["_place"]


def test_a_flipped_byte_is_found_wherever_it_is(ledger: Path) -> None:
    """One in every page of the file that is in use: a checksum or SQLite itself objects, or it was free space."""
    content = ledger.read_bytes()
    rng = np.random.default_rng(0)
    found, tried = 0, 0
    with sqlite3.connect(ledger) as connection:
        rows = connection.execute("SELECT content FROM blocks").fetchall()
    connection.close()
    for (blob,) in rows[:: max(1, len(rows) // 12)]:
        start = content.find(bytes(blob)[:256])
        if start < 0:
            continue
        damaged = bytearray(content)
        damaged[start + int(rng.integers(0, min(256, len(blob))))] ^= 0x10
        ledger.write_bytes(bytes(damaged))
        tried += 1
        with pytest.raises(tb.LedgerError, match="expected a whole ledger at"):
            estimate(ledger)
        found += 1
    assert found == tried >= 8


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_cut_ledger_is_refused(share: float, ledger: Path) -> None:
    content = ledger.read_bytes()
    ledger.write_bytes(content[: max(1, int(share * len(content)))])
    with pytest.raises(tb.LedgerError, match="expected a whole ledger"):
        estimate(ledger)


def test_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    path.write_text("a letter, of more than a hundred characters, to somebody else " * 10)
    with pytest.raises(tb.LedgerError, match="whole ledger"):
        estimate(path)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    with pytest.raises(tb.LedgerError, match="no ledger"):
        estimate(path)
    with pytest.raises(tb.LedgerError, match="can be written"):
        estimate(tmp_path / "missing" / "run.sqlite")


def test_a_ledger_in_use_is_refused(ledger: Path) -> None:
    with open_ledger(ledger), pytest.raises(tb.LedgerError, match="in use"):
        estimate(ledger)


def test_a_failure_to_write_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise tb.LedgerError("disk full")

    monkeypatch.setattr(Ledger, "add", full)
    with pytest.raises(tb.LedgerError, match="disk full"):
        estimate(tmp_path / "run.sqlite")


def test_nothing_is_seen_before_it_is_on_record(plain: tb.Result, tmp_path: Path) -> None:
    """Every look at the run counts fewer blocks than the ledger holds."""
    path, looks = tmp_path / "run.sqlite", []

    def look(progress: Any) -> None:
        looks.append(sum(progress.samples) // 32)

    written: list[int] = []
    add = Ledger.add

    def counted(self: Ledger, task: str, *rest: Any) -> None:
        add(self, task, *rest)
        if task == "level":
            written.append(len(looks))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "add", counted)
        assert_same(estimate(path, progress=look), plain)
    for number, blocks in enumerate(looks):
        assert blocks <= sum(when <= number for when in written)


def test_ledgers_merge_to_the_union(plain: tb.Result, kept: Path, tmp_path: Path) -> None:
    one, two = (Path(shutil.copy(kept, tmp_path / name)) for name in ("one.sqlite", "two.sqlite"))
    for path, rest in ((one, 0), (two, 1)):
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM blocks WHERE (first_path / 32) % 2 = ?", (rest,))
        connection.close()
    assert merge_ledgers(one, two) == blocks_in(two) > 0
    assert blocks_in(one) == blocks_in(kept)
    with Counting() as threads:
        assert_same(estimate(one, executor=threads), plain)
    assert threads.tasks == ["_place"]
    assert merge_ledgers(one, two) == 0
    assert merge_ledgers(tmp_path / "new.sqlite", one) == blocks_in(one)


def test_ledgers_that_differ_do_not_merge(kept: Path, ledger: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    estimate(other, model=tb.families.logistic(prior_scale=2.0))
    with pytest.raises(tb.LedgerError, match="model"):
        merge_ledgers(ledger, other)
    with pytest.raises(tb.LedgerError, match="nothing at"):
        merge_ledgers(ledger, tmp_path / "none.sqlite")
    with open_ledger(ledger) as book:
        config, task, seed, level, first, last, items, _, content = next(book._rows())
        book.add(task, config, int(seed), level, range(first, last + 1), items, bytes(content)[:-8] + bytes(8))
    with pytest.raises(tb.LedgerError, match=f"the same bits.*level {level}, paths {first} to {last}"):
        merge_ledgers(ledger, kept)


FIRST, FIFTH = range(32, 64), range(160, 192)


def block(points: np.ndarray | None) -> LevelBlock:
    rng = np.random.default_rng(1)
    delta = Moments.of(rng.normal(size=(32, 4)), ((0, 2), (1, 3)))
    fine, coarse = Moments.of(rng.normal(size=(32, 4))), Moments.of(np.zeros((32, 4)))
    return LevelBlock(delta, fine, coarse, 1, np.inf, 0.5, 7, points)


@pytest.mark.parametrize("points", [None, np.ones((32, 2, 3, 2), np.float32)], ids=["without points", "with points"])
def test_a_block_is_read_as_it_was_written(points: np.ndarray | None) -> None:
    before = block(points)
    after = read_block(write_block(before, 1e9, FIFTH), before.delta.pairs, 1e9, FIFTH)
    assert after is not None
    for side in ("delta", "fine", "coarse"):
        for name in ("mean", "sum2", "sum3", "sum4", "cosum"):
            np.testing.assert_array_equal(getattr(getattr(after, side), name), getattr(getattr(before, side), name))
    assert (after.nonfinite, after.farthest, after.strained, after.evaluations) == (1, np.inf, 0.5, 7)
    np.testing.assert_array_equal(np.asarray(after.points), np.asarray(points))


def test_what_a_run_would_not_keep_is_not_written() -> None:
    whole = block(np.ones((32, 2, 3, 2), np.float32))
    content = write_block(whole, kept_bytes=100.0, paths=FIRST)
    assert len(content) < len(write_block(whole, 1e9, FIRST))
    kept = read_block(content, whole.delta.pairs, 100.0, FIRST)
    assert kept is not None
    assert kept.points is None
    assert read_block(content, whole.delta.pairs, 1e9, FIRST) is None


def test_an_extension_of_the_result_leaves_the_ledger_alone(ledger: Path) -> None:
    result, before = estimate(ledger), blocks_in(ledger)
    assert result.extend(tolerance=0.015).converged
    assert blocks_in(ledger) == before


@pytest.fixture(autouse=True)
def _nothing_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    assert not [path.name for path in tmp_path.rglob("*-wal") if path.stat().st_size]


def own_gradient(share: float) -> Any:
    """A gradient of one's own: code that differs by a constant, under the same name and with the same repr."""

    @dataclass(frozen=True)
    class OwnGradient:
        batch_size: int
        sampling: Any = tb.WithReplacement()

        def controls(self, centre: Any, displacement: Any) -> tuple[float, float]:
            return 1.0, share

    return OwnGradient(5)


def test_a_gradient_whose_code_has_changed_is_not_answered_from_the_ledger(tmp_path: Path) -> None:
    path, limits = tmp_path / "ledger", {"tolerance": 0.5, "max_evaluations": 3e6, "max_levels": 4}
    before, after = own_gradient(1.0), own_gradient(0.5)
    assert repr(before) == repr(after)
    first = estimate(path, method=tb.Multilevel(gradient=before), **limits)
    # The control: the same code, defined anew, is the same gradient.
    assert_same(first, estimate(path, method=tb.Multilevel(gradient=own_gradient(1.0)), **limits))
    with pytest.raises(tb.LedgerError, match="method"):
        estimate(path, method=tb.Multilevel(gradient=after), **limits)
