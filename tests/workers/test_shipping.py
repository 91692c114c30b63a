"""Shipping: several tasks on one journey, whatever becomes of some of them."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from tallbayes.workers import shipping
from tallbayes.workers.executors import submit_all
from tallbayes.workers.shipping import Shipping


class Held:
    """An executor whose one task waits until it is let go."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, task: Any, /, *arguments: Any) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]


@pytest.fixture(autouse=True)
def in_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parcels are opened here, and hold what they are named after."""
    monkeypatch.setattr(shipping, "pack", lambda ground, folder: ground)
    monkeypatch.setattr(shipping, "_opened", lambda parcel: parcel)


def square(subject: str, number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number**2


def test_tasks_of_a_journey_have_futures_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        journeys = []
        submit = pool.submit

        def watched(run: Any, *arguments: Any) -> Future[Any]:
            journeys.append(run)
            return submit(run, *arguments)

        pool.submit = watched  # type: ignore[method-assign]
        futures = submit_all(Shipping(pool, tmp_path), square, [("subject", number) for number in (1, 2, 4)])
        assert [future.result(5) for future in futures] == [1, 4, 16]
        assert journeys == [shipping.run_together]


@pytest.mark.parametrize("numbers", [(1, 3, 2, 4), (3, 1, 2), (1, 2, 3)])
def test_a_task_that_fails_fails_alone(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    with ThreadPoolExecutor(2) as pool:
        futures = submit_all(Shipping(pool, tmp_path), square, [("subject", number) for number in numbers])
        for number, future in zip(numbers, futures, strict=True):
            if number == 3:
                with pytest.raises(ValueError, match="three"):
                    future.result(5)
            else:
                assert future.result(5) == number**2


def test_a_journey_is_cancelled_with_the_last_of_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    held._client = held  # type: ignore[attr-defined]
    monkeypatch.setattr(shipping, "submit_to_dask", Held.submit)
    futures = submit_all(Shipping(held, tmp_path), square, [("subject", 1), ("subject", 2)])
    assert futures[0].cancel()
    assert not held.futures[0].cancelled()
    assert futures[1].cancel()
    assert held.futures[0].cancelled()


def test_a_pool_is_told_nothing_of_what_is_given_up(tmp_path: Path) -> None:
    """One cancelled future would keep a broken pool from failing the others."""
    held = Held()
    ship = Shipping(held, tmp_path)
    given_up, kept = ship.submit(square, "subject", 1), ship.submit(square, "subject", 2)
    assert given_up.cancel()
    for future in held.futures:
        future.set_exception(BrokenProcessPool("gone"))
    assert given_up.cancelled()
    assert isinstance(kept.exception(5), BrokenProcessPool)


def test_control_a_cancelled_future_cannot_be_failed() -> None:
    future: Future[Any] = Future()
    future.cancel()
    with pytest.raises(InvalidStateError):
        future.set_exception(BrokenProcessPool("gone"))


def test_a_journey_that_breaks_down_is_told_by_all_that_were_not_cancelled(tmp_path: Path) -> None:
    held = Held()
    futures = submit_all(Shipping(held, tmp_path), square, [("subject", 1), ("subject", 2)])
    futures[0].cancel()
    held.futures[0].set_running_or_notify_cancel()
    held.futures[0].set_exception(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        futures[1].result(5)


def test_what_cannot_be_sent_again_is_told_and_not_waited_for(tmp_path: Path) -> None:
    class ClosesAfterOne(Held):
        def submit(self, task: Any, /, *arguments: Any) -> Future[Any]:
            if self.futures:
                raise RuntimeError("closed")
            return super().submit(task, *arguments)

    held = ClosesAfterOne()
    futures = submit_all(Shipping(held, tmp_path), square, [("subject", 1), ("subject", 3)])
    held.futures[0].set_result([1])
    assert futures[0].result(5) == 1
    with pytest.raises(RuntimeError, match="closed"):
        futures[1].result(5)
