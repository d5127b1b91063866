"""How a Recovery comes to be there, with as few requests as it takes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rekindle.protocol.store_paths import Place
from rekindle_operator.api import recovery_resource
from rekindle_operator.api.recovery_resource import ApplicationReference, Recovery, RecoverySpec
from rekindle_operator.applications.application_writer import ApplicationWriter
from rekindle_operator.cluster.api_client import Api, ApiRefused, ObjectConflict
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_operator.recovery import event_writer
from rekindle_operator.recovery.kubernetes_events import KubernetesEvent, ObjectReference
from rekindle_operator.recovery.recovery_writer import MOMENTS_MAX, Moment, RecoveryWriter
from rekindle_zookeeper import Connection

PLACE = Place("flights", "flights")
APPLICATION = ApplicationReference("Driver", "flights")
NAME = recovery_resource.recovery_name(APPLICATION, 1)


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
            raise ObjectConflict(where=path, what="is there", remedy="read it")
        self.there[name] = body
        return body

    def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        del path
        self.asked.append("replace")
        self.there[body["metadata"]["name"]] = body
        return body


def writer(api: Objects | None = None, left: list[str] | None = None) -> RecoveryWriter:
    """One whose work items nobody carries out; their keys are added to `left`."""
    kept = [] if left is None else left
    return RecoveryWriter(
        cast(Api, api),
        cast(Connection, None),
        cast(WorkQueue, SimpleNamespace(leave=lambda key, _: kept.append(key))),
        "operator",
        OperatorMetrics(),
        settled=lambda _: None,
    )


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
    api, left = Objects(*there), list[str]()
    storyteller = writer(api, left)
    found = storyteller._object(NAME, [moment(*known)])
    assert found is not None
    assert found["metadata"]["name"] == NAME
    assert (api.asked, left) == (asked, [])


def test_one_that_no_moment_is_about_is_not_made() -> None:
    api, left = Objects(), list[str]()
    storyteller = writer(api, left)
    assert storyteller._object(NAME, [moment(incident=None)]) is None
    assert (api.asked, left) == (["get"], [])


class WithoutEvents(Objects):
    """An API server that lets in none whose name begins with `kept-out`."""

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if body["metadata"]["name"].startswith("kept-out"):
            raise ApiRefused(path, 403, "a policy of the cluster lets none in")
        return super().create(path, body)


def test_an_event_that_is_refused_keeps_no_status_and_no_other_event_from_being_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    about = ObjectReference("v1", "Recovery", "flights-1", "flights", "1")
    api = WithoutEvents()
    told = [
        KubernetesEvent(about, name, "Normal", "PlanMade", "A plan was made.")
        for name in ("kept-out.1", "let-in.1")
    ]
    event_writer.announce(cast(Api, api), told, "operator")
    assert [*api.there] == ["let-in.1"]
    assert "an Event was refused" in caplog.text


def told_moment(directives: tuple[int, ...], plan: int = 0, at: float = 0.0) -> Moment:
    decision = SimpleNamespace(
        directives=directives, instructions=(), case=SimpleNamespace(plan_sequence=plan)
    )
    look = SimpleNamespace(decision=decision, case=SimpleNamespace(plan_sequence=0), at=at)
    found = cast(Any, moment())
    found.look, found.matters, found.recoveries = look, True, {}
    return cast(Moment, found)


def test_the_oldest_decision_that_is_not_written_is_known_until_all_are() -> None:
    storyteller = writer()
    before = storyteller.unwritten_since
    for at in (1_000.0, 1_500.0):
        storyteller.tell(told_moment((1,), at=at))
    assert (before, storyteller.unwritten_since) == (None, 1_000.0)
    storyteller.forget()
    assert storyteller.unwritten_since is None


def test_moments_that_cannot_be_written_are_kept_up_to_a_number() -> None:
    """Those in which something was decided stay longest, and the newest always."""
    storyteller = writer()
    decided = [told_moment((number,)) for number in range(10)]
    for number in range(720):
        storyteller.tell(decided[number // 72] if number % 72 == 0 else told_moment(()))
    newest = told_moment(())
    storyteller.tell(newest)
    kept = storyteller._moments[PLACE]
    assert len(kept) == MOMENTS_MAX
    assert kept[-1] is newest
    assert [item for item in kept if item.look.decision.directives] == decided
    assert not storyteller._unread
    for _ in range(MOMENTS_MAX):
        storyteller.tell(told_moment((1,), plan=1))
    storyteller.tell(told_moment((1,), plan=1))
    assert len(storyteller._moments[PLACE]) == MOMENTS_MAX
    assert storyteller._unread[PLACE]  # a plan that was left out is found in the store


@pytest.mark.parametrize("gone", [True, False])
def test_a_write_that_a_deleted_namespace_refuses_is_given_up(gone: bool) -> None:
    """The alert for decisions that are not written would go on."""

    class Refusing(Objects):
        def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            name = body["metadata"]["name"]
            raise ApiRefused(f"{path}/{name}", 403, "the namespace is being terminated")

    storyteller = writer(Refusing())
    storyteller.tell(told_moment((1,), at=1_000.0))
    if gone:
        storyteller.note_gone(PLACE)
        storyteller._tell(PLACE)
    else:
        with pytest.raises(ApiRefused):
            storyteller._tell(PLACE)
    assert storyteller.unwritten_since == (None if gone else 1_000.0)


@pytest.mark.parametrize(("phase", "replaced"), [("Recovering", 1), ("Quarantined", 0)])
def test_a_status_of_which_something_was_left_out_is_not_written_over(
    phase: str, replaced: int
) -> None:
    body = recovery_resource.to_object("flights", RecoverySpec(APPLICATION, 1, "all", "default"))
    api, left = Objects(), list[str]()
    api.there[NAME] = {**body, "status": {"phase": phase}}
    storyteller = writer(api, left)
    storyteller._abandon(PLACE, NAME)
    if phase == "Quarantined":
        storyteller._tell_one(NAME, [moment(NAME)])
    assert (api.asked.count("replace"), left) == (replaced, [])
    assert (api.there[NAME]["status"]["phase"] == phase) is not bool(replaced)


class Deleting(Objects):
    """An API server that notes what is deleted; in place of `another` there is a newer object."""

    another = ""

    def delete(self, path: str, body: dict[str, Any]) -> bool:
        name = path.rpartition("/")[2]
        self.asked.append(f"delete {name} {body['preconditions']['uid']}")
        if name == self.another:
            raise ObjectConflict(where=path, what="is another one", remedy="read it")
        return self.there.pop(name, None) is not None


def test_recoveries_of_applications_that_are_gone_are_deleted_in_an_errand_of_each_namespace() -> (
    None
):
    api, errands = Deleting(), dict[str, Any]()
    storyteller = writer(api)
    storyteller.errands = cast(WorkQueue, SimpleNamespace(leave=errands.__setitem__))
    old = []
    for namespace, number in (("flights", 1), ("flights", 2), ("trains", 3)):
        body = recovery_resource.to_object(
            namespace, RecoverySpec(APPLICATION, number, "all", "standard")
        )
        body["metadata"]["uid"] = f"u{number}"
        old.append(recovery_resource.from_object(body))
    api.another = old[0].metadata.name
    storyteller.retire(old)
    assert [*errands] == ["retire flights", "retire trains"]
    assert api.asked == [], "whoever decides does not wait for it"
    for errand in errands.values():
        errand()
    assert api.asked == [f"delete {item.metadata.name} {item.metadata.uid}" for item in old]


def ended(incident: int, day: int) -> Recovery:
    """A Recovery that was made on a day and has ended."""
    body = recovery_resource.to_object("flights", RecoverySpec(APPLICATION, incident, "all", "d"))
    body["metadata"] |= {"creationTimestamp": f"2026-03-{day:02}T10:00:00Z", "uid": f"u{day}"}
    return recovery_resource.from_object({**body, "status": {"phase": "Recovered"}})


@pytest.mark.parametrize("of", ["queries", "whole applications"])
def test_the_oldest_recoveries_are_put_away_also_where_incidents_were_counted_anew(of: str) -> None:
    there = {
        item.metadata.name: item for item in (ended(40, 1), ended(41, 2), ended(1, 3), ended(2, 4))
    }
    deleted: list[str] = []
    api: Any = SimpleNamespace(delete=lambda path, _: deleted.append(path.rpartition("/")[2]))
    none: Any = None
    if of == "queries":
        known: Any = SimpleNamespace(place=PLACE, recoveries=there, kept_max=2)
        writer(api)._put_away(known)
    else:
        known = SimpleNamespace(recoveries={PLACE: there})
        ApplicationWriter(known, api, none, "operator")._put_away(PLACE, 2)
    wanted = [recovery_resource.recovery_name(APPLICATION, incident) for incident in (41, 40)]
    assert sorted(deleted) == sorted(wanted)
