"""What users ask for by files is seen beside the epochs, which wait for no look."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from s3_server import S3Server, serving
from stores import FINISHED, cut, opened

from rekindle_local.process_sets import await_condition
from rekindle_spark.store import user_requests
from rekindle_spark.store.checkpoint_store import (
    DRAIN_REQUEST,
    FINISH_REQUEST,
    REQUESTS,
    SAVEPOINT_REQUEST,
    CheckpointStore,
)
from rekindle_spark.store.user_requests import UserRequests
from rekindle_store.local_files import LocalFiles

PLACES = itertools.count()


@pytest.fixture(name="server")
def _server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name in [name for name in os.environ if name.startswith(("AWS_", "SSL_CERT"))]:
        monkeypatch.delenv(name)
    with serving() as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        yield found


def test_an_epoch_on_s3_waits_for_three_requests(server: S3Server) -> None:
    """A look whether a newer driver has started, and two records; it was seven before."""
    store = CheckpointStore(f"s3://bucket/requests-{next(PLACES)}")
    store.open(1.0)
    store.requests = UserRequests(store.files, REQUESTS, 3600.0)
    store.requests.look()
    epochs = range(1, 11)
    server.requests.clear()
    for epoch in epochs:
        assert not any(store.holds(name) for name in REQUESTS)
        store.log_offsets(epoch, cut(epoch))
        store.commit(FINISHED)
    assert len(server.requests) == 3 * len(epochs)


def test_a_request_is_seen_in_time_and_so_is_that_it_was_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_requests, "LOOK_SECONDS_MIN", 0.05)
    store = opened(tmp_path)
    requests = UserRequests(store.files, REQUESTS, 0.05)
    store.requests = requests
    thread = requests.start()
    assert not store.holds(SAVEPOINT_REQUEST)
    store.files.put({SAVEPOINT_REQUEST: b""})
    assert await_condition(lambda: store.holds(SAVEPOINT_REQUEST), limit_seconds=20)
    store.files.remove([SAVEPOINT_REQUEST])
    assert await_condition(lambda: not store.holds(SAVEPOINT_REQUEST), limit_seconds=20)
    requests.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_what_was_there_at_the_start_is_seen_before_the_first_epoch(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.files.put({FINISH_REQUEST: b""})
    store.requests = UserRequests(store.files, REQUESTS, 3600.0)
    store.requests.start()
    assert store.holds(FINISH_REQUEST)
    store.requests.stop()


@pytest.mark.parametrize("looks", range(len(REQUESTS) + 1))
def test_who_asks_for_a_drain_and_then_for_the_end_does_not_have_the_end_seen_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    store = opened(tmp_path)
    read, done = LocalFiles.read, list[str]()

    def reading(self: LocalFiles, name: str, *rest: Any) -> bytes:
        if len(done) == looks:
            store.files.put({DRAIN_REQUEST: b""})
            store.files.put({FINISH_REQUEST: b""})
        done.append(name)
        return read(self, name, *rest)

    requests = UserRequests(store.files, REQUESTS, 3600.0)
    monkeypatch.setattr(LocalFiles, "read", reading)
    requests.look()
    assert FINISH_REQUEST not in requests.seen or DRAIN_REQUEST in requests.seen
    requests.look()
    assert {DRAIN_REQUEST, FINISH_REQUEST} <= requests.seen


def test_while_the_store_is_away_what_was_seen_last_holds(tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    store.files.put({FINISH_REQUEST: b""})
    store.requests = UserRequests(store.files, REQUESTS, 3600.0)
    store.requests.look()
    (tmp_path / "store").rename(tmp_path / "away")
    store.requests.look()
    assert store.holds(FINISH_REQUEST)
