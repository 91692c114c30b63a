"""A result survives the disk, to the bit; a file that is not a whole result is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from equal_results import assert_identical
from reports import RESULTS
from small_runs import nested_run, run, small_run

import tallbayes as tb
from tallbayes.errors import ResultFileError


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return small_run()


@pytest.fixture(scope="module")
def nested() -> tb.Result:
    return nested_run()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result.tallbayes"


@pytest.mark.parametrize("which", ["result", "nested"])
def test_save_and_load_are_exact(which: str, path: Path, request: pytest.FixtureRequest) -> None:
    original = request.getfixturevalue(which)
    original.save(path)
    loaded = tb.load(path)
    assert_identical(original, loaded)
    assert str(loaded) == str(original)
    assert loaded.status is original.status
    for name in original:
        assert_identical(loaded[name].value, original[name].value)
        assert_identical(loaded[name].interval, original[name].interval)


def test_infinities_and_nans_survive_the_disk(path: Path) -> None:
    short = run(max_seconds=1e-9)
    assert np.isinf(short["mean"].flat_bias_bound).all()
    short.save(path)
    assert_identical(short, tb.load(path))


def test_tolerances_given_as_numpy_numbers_survive_the_disk(result: tb.Result, path: Path) -> None:
    result.extend(tolerance={"mean": np.float32(0.5), "sd": np.int64(1)}).save(path)
    assert tb.load(path).settings["tolerance"] == {"mean": 0.5, "sd": 1}


def test_the_comparison_sees_a_single_bit(result: tb.Result, path: Path) -> None:
    result.save(path)
    loaded = tb.load(path)
    loaded["mean"].flat_value[0] = np.nextafter(loaded["mean"].flat_value[0], np.inf)
    with pytest.raises(AssertionError):
        assert_identical(result, loaded)


def test_save_leaves_one_file_and_replaces_an_old_one(result: tb.Result, path: Path) -> None:
    path.write_text("something older")
    result.save(path)
    result.save(str(path))
    assert list(path.parent.iterdir()) == [path]
    assert tb.load(str(path)).converged


def broken_files(whole: bytes) -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "text", b"quantity  value\nmean[0]   0.77\n"
    yield "half", whole[: len(whole) // 2]
    yield "without its last byte", whole[:-1]
    yield "first kilobyte", whole[:1024]
    middle = len(whole) // 2
    yield "overwritten in the middle", whole[:middle] + bytes(200) + whole[middle + 200 :]


def test_a_file_that_is_not_a_whole_result_is_refused(result: tb.Result, path: Path) -> None:
    result.save(path)
    for kind, content in broken_files(path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ResultFileError, match=r"expected .*; got (.|\n)* Try: "):
            pytest.fail(f"read a file that is {kind}: {tb.load(path)}")


def test_a_byte_lost_anywhere_is_noticed_or_harmless(result: tb.Result, path: Path) -> None:
    """One flipped byte at 60 places: an error of our own, or the same result."""
    result.save(path)
    whole = path.read_bytes()
    for place in np.linspace(0, len(whole) - 1, 60).astype(int):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            loaded = tb.load(path)
        except ResultFileError:
            continue
        assert_identical(result, loaded)


def test_other_files_of_numpy_are_refused(path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ResultFileError):
        tb.load(path)
    with open(path, "wb") as file:
        np.savez(file, a=np.zeros(3))
    with pytest.raises(ResultFileError):
        tb.load(path)


def test_a_file_of_another_format_is_refused(result: tb.Result, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallbayes.results.result_file.FORMAT", "tallbayes result 0")
    result.save(path)
    monkeypatch.undo()
    with pytest.raises(ResultFileError, match="tallbayes result 0"):
        tb.load(path)


@pytest.mark.parametrize("kind", ["logistic", "randomised"])
def test_a_random_tail_is_on_record_and_found_out_in_files_of_before(kind: str, path: Path) -> None:
    result = RESULTS[kind]()
    result.save(path)
    assert tb.load(path).unbiased == result.unbiased == (kind == "randomised")
    with np.load(path) as arrays:
        before = {name: arrays[name] for name in arrays.files}
    document = json.loads(str(before.pop("document")))
    del document["random_tail"]
    # What lies in the result itself is as it was, so that versions of before read it too.
    assert "random_tail" not in json.dumps(document)
    with open(path, "wb") as file:
        np.savez_compressed(file, document=np.array(json.dumps(document)), **before)
    assert tb.load(path).unbiased == (kind == "randomised")


@pytest.mark.parametrize("where", ["nowhere.tallbayes", "no/such/folder/x", "."])
def test_a_missing_file_is_refused(where: str, tmp_path: Path) -> None:
    with pytest.raises(ResultFileError, match=r"expected .*; got .* Try: "):
        tb.load(tmp_path / where)


def test_a_loaded_result_cannot_be_extended_but_its_anchor_can_be_used(result: tb.Result, path: Path) -> None:
    result.save(path)
    loaded = tb.load(path)
    with pytest.raises(tb.TallbayesError, match=r"anchor=result\.anchor"):
        loaded.extend(tolerance=0.1)
    again = run(anchor=loaded.anchor)
    # One pass to expand it anew, one for rows that matter, and a probe.
    probe = again.posterior.probe.rows_read
    assert again.cost.setup_evaluations - probe == 2 * 200 < result.cost.setup_evaluations - probe
    assert_identical(again.estimates, result.estimates)
    assert again.notes == ("modes: not searched, since an anchor was given",)
