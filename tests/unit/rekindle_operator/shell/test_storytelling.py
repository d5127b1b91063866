"""How a Recovery comes to be there, with as few requests as it takes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rekindle.protocol.tree import Place
from rekindle_operator import recoveries
from rekindle_operator.recoveries import ApplicationReference
from rekindle_operator.shell.api import Api, Conflict
from rekindle_operator.shell.errands import Errands
from rekindle_operator.shell.metrics import OperatorMetrics
from rekindle_operator.shell.storytelling import Moment, Storyteller
from rekindle_zookeeper import Connection

PLACE = Place("flights", "flights")
APPLICATION = ApplicationReference("Driver", "flights")
NAME = recoveries.recovery_name(APPLICATION, 1)


class Objects:
    """An API server with some objects by name; `asked` are its requests."""

    def __init__(self, *names: str) -> None:
        self.there: dict[str, dict[str, Any]] = {
            name: {"metadata": {"name": name}} for name in names
        }
        self.asked: list[str] = []

    def get(self, path: str) -> dict[str, Any] | None:
        self.asked.append("get")
        return self.there.get(path.rpartition("/")[2])

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append("create")
        name = body["metadata"]["name"]
        if name in self.there:
            raise Conflict(where=path, what="is there", remedy="read it")
        self.there[name] = body
        return body


def moment(*known: str, incident: int | None = 1) -> Moment:
    return cast(
        Moment,
        SimpleNamespace(
            place=PLACE,
            application=APPLICATION,
            incident=incident,
            policy_name="all",
            class_name="standard",
            recoveries=dict.fromkeys(known),
        ),
    )


@pytest.mark.parametrize(
    ("there", "known", "asked"),
    [
        ((), (), ["create"]),
        ((NAME,), (NAME,), ["get"]),
        ((NAME,), (), ["create", "get"]),
        ((), (NAME,), ["get", "create"]),
    ],
    ids=["new", "known", "there and not known yet", "known and deleted since"],
)
def test_a_recovery_is_made_or_read(
    there: tuple[str, ...], known: tuple[str, ...], asked: list[str]
) -> None:
    api = Objects(*there)
    storyteller = Storyteller(
        cast(Api, api),
        cast(Connection, None),
        cast(Errands, None),
        "operator",
        OperatorMetrics(),
        settled=lambda _: None,
    )
    found = storyteller._object(NAME, [moment(*known)])
    assert found is not None
    assert found["metadata"]["name"] == NAME
    assert api.asked == asked


def test_one_that_no_moment_is_about_is_not_made() -> None:
    api = Objects()
    storyteller = Storyteller(
        cast(Api, api),
        cast(Connection, None),
        cast(Errands, None),
        "operator",
        OperatorMetrics(),
        settled=lambda _: None,
    )
    assert storyteller._object(NAME, [moment(incident=None)]) is None
    assert api.asked == ["get"]
