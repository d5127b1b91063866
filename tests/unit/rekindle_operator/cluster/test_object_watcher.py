"""What a watch makes of objects, also of those with a shape that nobody has foreseen."""

import io
import json
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.object_watcher import EventInbox, news_of
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
        log=Log(file),
    )
    assert overseer.news() == frozenset()
    assert taken == [1]
    line = json.loads(file.getvalue())
    assert line["kind"] == "news-failed"
    assert "KeyError: 'spec'" in line["trace"]
