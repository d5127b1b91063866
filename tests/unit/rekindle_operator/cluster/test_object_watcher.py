"""What a watch makes of objects, also of those with a shape that nobody has foreseen."""

import io
import json
import time
from collections.abc import Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import GONE, Api, ApiRefused
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.object_watcher import (
    PAUSE_SECONDS_MIN,
    EventInbox,
    ObjectWatcher,
    news_of,
)
from rekindle_operator.cluster.watch_events import News, WatchHandler
from rekindle_operator.controller.coordination_adapter import CoordinationAdapter

BODY = {"kind": "Machine", "metadata": {"name": "one", "namespace": "infra", "uid": "u"}}


class Known:
    """What is known, as far as these objects go."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.unreadable: list[tuple[str, str, str]] = []

    def see_unreadable(self, kind: str, name: str, why: object) -> None:
        self.unreadable.append((kind, name, str(why)))


def _seen(body: dict[str, Any]) -> News:
    return cast(News, body["spec"]["providerID"].split)


def _gone(body: dict[str, Any]) -> News:
    return lambda known: cast(Known, known).gone.append(body["metadata"]["uid"])


def _only(_: Collection[str]) -> News:
    return lambda _: None


def test_an_object_of_an_unforeseen_shape_is_unreadable_and_stops_nothing() -> None:
    file, known = io.StringIO(), Known()
    telling = WatchHandler(_seen, _gone, _only)
    news_of(_seen, telling, BODY, "Machine", Log(file))(cast(ClusterView, known))
    assert known.gone == ["u"]
    ((kind, name, why),) = known.unreadable
    assert (kind, name) == ("Machine", "infra/one")
    assert "KeyError: 'spec'" in why
    line = json.loads(file.getvalue())
    assert (line["kind"], line["resource"]) == ("unreadable", "Machine infra/one")


def test_news_that_fail_keep_no_others_from_being_taken_in() -> None:
    inbox: EventInbox[ClusterView] = EventInbox()
    taken: list[int] = []
    file = io.StringIO()
    inbox.put(lambda _: cast(None, {}["spec"]))
    inbox.put(lambda _: taken.append(1))
    none: Any = SimpleNamespace(
        newest=None, judge=lambda *_: frozenset(), take_changed=lambda: frozenset()
    )
    overseer = CoordinationAdapter(
        inbox,
        known=none,
        judge=none,
        renewals=none,
        limiter=none,
        decided_on=lambda *_: None,
        stirred=lambda _: None,
        forgotten=lambda _: None,
        retired=lambda _: None,
        log=Log(file),
    )
    assert overseer.news() == frozenset()
    assert taken == [1]
    line = json.loads(file.getvalue())
    assert line["kind"] == "news-failed"
    assert "KeyError: 'spec'" in line["trace"]


class Watches:
    """An API server with no objects, whose watches say one line each; when the lines have come to
    their end, so has the watcher. `asked` are its requests."""

    def __init__(self, *said: Mapping[str, Any] | Exception | None) -> None:
        self.said = list(said)
        self.asked: list[str] = []
        self.file = io.StringIO()
        self.watcher: ObjectWatcher[ClusterView] = ObjectWatcher(
            cast(Api, self),
            object_kinds.PODS,
            WatchHandler(_seen, _gone, _only),
            EventInbox(),
            Log(self.file),
            silence_seconds=90,
        )

    def pages(self, *_: object) -> Iterator[tuple[dict[str, Any], str]]:
        self.asked.append("list")
        yield {"items": []}, "7"

    def watch(self, _: str, version: str, **__: object) -> Iterator[bytes]:
        self.asked.append(f"watch {version}")
        if len(self.said) <= 1:
            self.watcher.stop()
        said = self.said.pop(0)
        if isinstance(said, Exception):
            raise said
        if said is not None:
            yield json.dumps(said).encode()


def _error(code: int) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"code": code, "message": "etcd lost it"}}


BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}


@pytest.mark.parametrize(
    "said",
    [_error(GONE), _error(500), ApiRefused("/api/v1/pods", GONE, "too old")],
    ids=["a version that is gone", "another error", "a version that is refused"],
)
def test_after_an_error_of_a_watch_everything_is_listed(said: Any) -> None:
    """Changes that the error has swallowed do not come a second time."""
    world = Watches(BOOKMARK, said, None)
    world.watcher._run()
    assert world.asked == ["list", "watch 7", "watch 9", "list", "watch 7"]


@pytest.mark.parametrize(
    "said",
    [_error(GONE), ApiRefused("/api/v1/pods", GONE, "too old")],
    ids=["a version that is gone", "a version that is refused"],
)
def test_a_version_that_is_too_old_at_once_is_not_listed_again_at_once(said: Any) -> None:
    """Lists of all pods, one behind the other, are the most that the API server can be asked."""
    world = Watches(said, said, None)
    began = time.monotonic()
    world.watcher._run()
    assert world.asked == ["list", "watch 7"] * 3
    assert time.monotonic() - began >= 3 * PAUSE_SECONDS_MIN, "the second pause is longer"


def test_an_error_of_a_watch_is_logged() -> None:
    world = Watches(_error(500), None)
    world.watcher._run()
    (line,) = map(json.loads, world.file.getvalue().splitlines())
    assert (line["kind"], line["text"]) == ("watch-failed", "etcd lost it")


def test_a_watch_that_ends_as_it_begins_is_not_begun_again_at_once() -> None:
    """An API server that can do no more would be asked thousands of times a second."""
    world = Watches(BOOKMARK, None, None)
    began = time.monotonic()
    world.watcher._run()
    assert world.asked == ["list", "watch 7", "watch 9", "watch 9"]
    assert time.monotonic() - began >= 2 * PAUSE_SECONDS_MIN
