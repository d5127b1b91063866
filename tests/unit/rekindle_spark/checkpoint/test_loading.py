"""States are loaded from the store once, however many jobs ask for one, with signs for all."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rekindle_spark.checkpoint import state_files
from rekindle_spark.checkpoint.state_files import Versions
from rekindle_spark.executor.partition import PartitionState
from rekindle_store.transfers import Moved, unwatched

STATE = PartitionState(5, None)
WAIT_SECONDS_MAX = 30.0


class Store:
    """Gives a state piece by piece, as it is told to, until it is told that all has come."""

    def __init__(self) -> None:
        self.pieces = threading.Semaphore(0)
        self.loads = 0
        self.begun = threading.Event()
        self.all_come = False
        self.error: Exception | None = None

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever happens, nobody waits: a pool would wait for them."""
        self.finish()

    def finish(self) -> None:
        self.all_come = True
        self.pieces.release(9)

    def load(self, moved: Moved) -> PartitionState:
        self.loads += 1
        self.begun.set()
        while not self.all_come:
            self.pieces.acquire()
            moved(10)
        if self.error is not None:
            raise self.error
        return STATE


def test_a_state_is_loaded_once_for_a_job_and_for_the_one_that_is_issued_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_files, "JOINED_SECONDS", 0.01)
    versions, store, again = Versions(), Store(), threading.Event()
    with ThreadPoolExecutor(2) as pool, store:
        first = pool.submit(versions.loaded, 4, store.load, unwatched)
        assert store.begun.wait(WAIT_SECONDS_MAX)
        second = pool.submit(versions.loaded, 4, store.load, lambda _: again.set())
        while not again.wait(0.02):  # a piece is a sign for who has joined as well
            store.pieces.release()
        store.finish()
        assert first.result() is STATE
        assert second.result() is STATE
    assert store.loads == 1
    assert versions.loaded(4, store.load, unwatched) is STATE
    assert (store.loads, versions.loading) == (1, {})


def test_a_load_that_fails_fails_for_all_who_wait_and_is_tried_anew() -> None:
    versions, store = Versions(), Store()
    store.error = OSError("away")
    with ThreadPoolExecutor(2) as pool, store:
        first = pool.submit(versions.loaded, 4, store.load, unwatched)
        assert store.begun.wait(WAIT_SECONDS_MAX)
        second = pool.submit(versions.loaded, 4, store.load, unwatched)
        store.finish()
        for one in (first, second):
            with pytest.raises(OSError, match="away"):
                one.result()
    store.error = None
    assert versions.loaded(4, store.load, unwatched) is STATE
