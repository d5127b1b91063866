"""Who gets a credential of the store, when, and what becomes of one whose namespace goes."""

import base64
import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from store_in_memory import ConnectionInMemory, SharedStore
from waiting import wait_until

from rekindle.model.errors import InputError, RunError
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster.api_client import ApiRefused
from rekindle_operator.controller.namespace_credentials import (
    AGAIN_SECONDS,
    CONVERT_SECONDS,
    RETRY_SECONDS,
    CredentialSettings,
    NamespaceCredentials,
)
from rekindle_zookeeper import Conflict, Credential, NamespaceQuota, derive, to_text

SECRET = "a secret that is long enough"
FLIGHTS = Place("team-a", "flights")


@dataclass
class Cluster:
    """Namespaces by their UIDs, and what was applied; those in `ending` take nothing."""

    uids: dict[str, str] = field(default_factory=lambda: {"team-a": "uid-a", "team-b": "uid-b"})
    ending: set[str] = field(default_factory=set)
    refusals: dict[str, int] = field(default_factory=dict)
    applied: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def get(self, path: str) -> dict[str, Any] | None:
        name = path.rpartition("/")[2]
        if name in self.refusals:
            raise ApiRefused(path, self.refusals[name], "is refused")
        if name not in self.uids:
            return None
        ending = {"deletionTimestamp": "now"} if name in self.ending else {}
        return {"metadata": {"uid": self.uids[name], **ending}}

    def patch(self, path: str, body: Mapping[str, Any], kind: str) -> None:
        assert kind == "application/apply-patch+yaml"
        if body["metadata"]["namespace"] not in self.uids:
            raise ApiRefused(path, 404, "there is no such namespace")
        self.applied.append((path, body))


@dataclass
class Rights:
    """What was done in the store."""

    admitted: dict[str, Credential] = field(default_factory=dict)
    secured: list[tuple[Place, str]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    trouble: bool = False
    stuck: set[str] = field(default_factory=set)
    removed: set[Place] = field(default_factory=set)

    def lock(self, *, root: bool) -> None:
        self.done.append(f"lock {root}")

    def admit(self, namespace: str, credential: Credential, quota: NamespaceQuota | None) -> None:
        if self.trouble:
            raise RunError(where="store", what="is away", remedy="wait")
        assert quota == NamespaceQuota(10, 1_000)
        self.admitted[namespace] = credential

    def hold(self, namespace: str) -> None:
        self.done.append(f"hold {namespace}")

    def dismiss(self, namespace: str) -> None:
        self.done.append(f"dismiss {namespace}")

    def remove_namespace(self, namespace: str) -> None:
        if namespace in self.stuck:
            raise RunError(where="store", what="does not remove it", remedy="wait")
        self.done.append(f"remove {namespace}")

    def forget(self) -> None:
        self.done.append("forget")

    def secure(self, place: Place, records: Mapping[str, bytes], mark: str, *, make: bool) -> bool:
        assert set(records) == {store_paths.COORDINATION, store_paths.ORDERS}
        assert make == bool(mark), "only a driver's place is made where it is not there"
        if place in self.removed:
            raise Conflict(place.path())
        self.secured.append((place, mark))
        return True


@dataclass
class World:
    cluster: Cluster = field(default_factory=Cluster)
    rights: Rights = field(default_factory=Rights)
    log: io.StringIO = field(default_factory=io.StringIO)
    drivers: dict[Place, str] = field(default_factory=dict)
    policies: set[str] = field(default_factory=set)
    connection: ConnectionInMemory = field(default_factory=lambda: SharedStore().connect())
    authorities: str = ""

    def __post_init__(self) -> None:
        settings = CredentialSettings(SECRET, 3, lock_root=True, quota=NamespaceQuota(10, 1_000))
        known: Any = SimpleNamespace(policies=self.policies, application=self.application)
        store: Any = self.connection
        api: Any = self.cluster
        rights: Any = self.rights
        self.tended = NamespaceCredentials(
            settings, store, rights, api, known, Log(self.log), lambda: True
        )

    def speak_tls(self, authorities: str) -> None:
        self.authorities = authorities
        self.tended.authorities = self.known_authorities

    def known_authorities(self) -> str:
        if not self.authorities:
            raise InputError(where="CA file ca", what="cannot be read", remedy="give one")
        return self.authorities

    def application(self, place: Place) -> Any:
        uid = self.drivers.get(place)
        return None if uid is None else SimpleNamespace(driver=SimpleNamespace(uid=uid))

    def turn(self, now: float, *places: Place) -> None:
        self.tended.note(places, policies=True)
        self.tended.turn(now)

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.log.getvalue().splitlines())
        return [line for line in lines if line["kind"] == event]

    @property
    def issued(self) -> list[str]:
        return [body["metadata"]["namespace"] for _, body in self.cluster.applied]


@pytest.fixture
def world() -> World:
    return World()


def test_a_namespace_with_a_policy_gets_its_rights_and_then_its_secret(world: World) -> None:
    world.policies.add("team-a/everything")
    world.turn(0.0)
    made = derive(SECRET, "team-a", "uid-a", 3)
    assert world.rights.admitted == {"team-a": made}
    ((path, body),) = world.cluster.applied
    assert path == (
        "/api/v1/namespaces/team-a/secrets/rekindle-credential"
        "?fieldManager=rekindle-operator&force=true"
    )
    assert base64.b64decode(body["data"]["secret"]).decode() == to_text(made)
    assert world.rights.done[0] == "lock True"
    assert made.password not in world.log.getvalue()


def test_a_secret_is_looked_at_again_after_a_while_and_for_each_new_driver(world: World) -> None:
    world.policies.add("team-a/everything")
    world.turn(0.0)
    world.turn(AGAIN_SECONDS - 1)
    assert world.issued == ["team-a"]
    world.turn(AGAIN_SECONDS)
    assert world.issued == ["team-a"] * 2
    for number in (1, 2):
        world.drivers[FLIGHTS] = f"driver-{number}"
        world.turn(AGAIN_SECONDS + number, FLIGHTS)
        world.turn(AGAIN_SECONDS + number + 0.5, FLIGHTS)
    assert world.issued == ["team-a"] * 4
    assert world.rights.secured == [(FLIGHTS, "driver-1"), (FLIGHTS, "driver-2")]


def test_a_driver_that_comes_while_the_store_is_away_has_its_records_once_that_is_back(
    world: World,
) -> None:
    world.policies.add("team-a/everything")
    world.turn(time.monotonic())
    away = world.connection
    away.reachable = False
    world.tended.start()
    world.drivers[FLIGHTS] = "one"
    world.tended.note([FLIGHTS], policies=False)
    wait_until(lambda: not world.tended._woken.is_set())
    away.reachable = True
    wait_until(lambda: world.rights.secured == [(FLIGHTS, "one")])
    world.tended.close()


def test_only_another_driver_has_them_looked_at_at_once(world: World) -> None:
    woken = world.tended._woken
    for uid, wakes in (("one", True), ("one", False), ("two", True), (None, True), (None, False)):
        world.drivers.clear()
        if uid is not None:
            world.drivers[FLIGHTS] = uid
        woken.clear()
        world.tended.note([FLIGHTS], policies=False)
        assert woken.is_set() is wakes, uid


def test_a_driver_without_a_policy_has_its_records_all_the_same(world: World) -> None:
    world.drivers[FLIGHTS] = "driver-1"
    world.turn(0.0, FLIGHTS)
    assert world.issued == ["team-a"]
    assert world.rights.secured == [(FLIGHTS, "driver-1")]


def test_a_namespace_that_ends_gets_nothing_and_one_that_is_gone_loses_its_rights(
    world: World,
) -> None:
    world.connection.put(FLIGHTS.path(store_paths.PROGRESS), b"p")
    world.policies |= {"team-a/everything", "team-b/everything"}
    world.cluster.ending.add("team-b")
    world.turn(0.0)
    assert world.issued == ["team-a"]
    world.policies.clear()
    world.turn(1.0)
    assert "dismiss team-a" not in world.rights.done
    del world.cluster.uids["team-a"]
    world.turn(1.0 + AGAIN_SECONDS)
    assert "dismiss team-a" in world.rights.done
    assert world.rights.secured[-1] == (FLIGHTS, "")


def test_nothing_is_kept_of_namespaces_and_drivers_that_come_and_go(world: World) -> None:
    """Steps that were done, and troubles that were said."""
    world.turn(0.0)
    before = len(world.tended._steps), len(world.tended._said)
    for number in range(1, 4):
        name = f"preview-{number}"
        place = Place(name, "flights")
        world.cluster.uids[name], world.drivers[place] = f"uid-{number}", f"driver-{number}"
        world.policies.add(f"{name}/everything")
        world.turn(number * 1_000.0, place)
        del world.cluster.uids[name], world.drivers[place]
        world.policies.clear()
        world.turn(number * 1_000.0 + AGAIN_SECONDS, place)
    world.turn(9_000.0)
    assert (len(world.tended._steps), len(world.tended._said)) == before


def test_a_namespace_that_is_made_again_under_its_name_gets_another_credential(
    world: World,
) -> None:
    world.policies.add("team-a/everything")
    world.turn(0.0)
    first = world.rights.admitted["team-a"]
    world.cluster.uids["team-a"] = "uid-of-another"
    world.turn(AGAIN_SECONDS)
    assert world.rights.admitted["team-a"] != first
    assert [line["namespace"] for line in world.said("credential-issued")] == ["team-a"] * 2


def test_what_an_earlier_release_left_is_secured_once(world: World) -> None:
    for place in (FLIGHTS, Place("gone", "app"), Place("team-b", "odd name")):
        world.connection.put(place.path(store_paths.PROGRESS), b"p")
    world.turn(0.0)
    assert world.rights.done[1:] == ["dismiss gone", "remove gone", "hold team-a", "hold team-b"]
    assert world.rights.secured == [(Place("gone", "app"), ""), (FLIGHTS, "")]
    world.turn(10.0)
    assert len(world.rights.secured) == 2
    world.turn(CONVERT_SECONDS)
    assert world.rights.done.count("remove gone") == 2, "its applications may have gone meanwhile"


@pytest.mark.parametrize(("status", "goes"), [(400, True), (422, True), (401, False), (403, False)])
def test_a_namespace_is_gone_only_where_the_api_server_knows_of_none(
    status: int, goes: bool, world: World
) -> None:
    for place in (FLIGHTS, Place("gone", "app")):
        world.connection.put(place.path(store_paths.PROGRESS), b"p")
    world.cluster.refusals["gone"] = status
    world.turn(0.0)
    assert ("dismiss gone" in world.rights.done) == goes
    assert bool(world.said("credentials-failed")) != goes
    assert "hold team-a" in world.rights.done


def test_a_namespace_that_is_not_removed_does_not_keep_others(world: World) -> None:
    for place in (FLIGHTS, Place("gone", "app")):
        world.connection.put(place.path(store_paths.PROGRESS), b"p")
    world.rights.stuck.add("gone")
    world.turn(0.0)
    assert world.rights.secured == [(FLIGHTS, "")]
    assert [line["of"] for line in world.said("credentials-failed")] == ["records"]


def test_a_driver_whose_place_is_removed_under_its_hands_has_it_soon_and_later_as_well(
    world: World,
) -> None:
    world.drivers[FLIGHTS] = "driver-1"
    world.rights.removed.add(FLIGHTS)
    world.turn(0.0, FLIGHTS)
    world.rights.removed.clear()
    world.turn(RETRY_SECONDS)
    assert world.rights.secured == [(FLIGHTS, "driver-1")]
    world.turn(RETRY_SECONDS + AGAIN_SECONDS)
    assert world.rights.secured == [(FLIGHTS, "driver-1")] * 2
    assert world.said("credentials-failed") == []


def test_trouble_is_said_once_and_tried_again(world: World) -> None:
    world.policies.add("team-a/everything")
    world.rights.trouble = True
    for now in (0.0, 1.0, RETRY_SECONDS, RETRY_SECONDS + 1):
        world.turn(now)
    assert world.issued == []
    assert [line["of"] for line in world.said("credentials-failed")] == ["team-a"]
    world.rights.trouble = False
    world.turn(2 * RETRY_SECONDS)
    assert world.issued == ["team-a"]


def test_with_tls_a_secret_has_the_authorities_and_other_ones_at_once(world: World) -> None:
    world.speak_tls("one")
    world.policies.add("team-a/everything")
    world.turn(0.0)
    world.turn(1.0)
    world.authorities = "one and two"
    world.turn(2.0)
    found = [base64.b64decode(body["data"]["ca.crt"]).decode() for _, body in world.cluster.applied]
    assert found == ["one", "one and two"]


def test_without_the_authorities_no_secret_is_written_and_it_is_said(world: World) -> None:
    world.speak_tls("")
    world.policies.add("team-a/everything")
    world.turn(0.0)
    assert world.issued == []
    (line,) = world.said("credentials-failed")
    assert "CA file ca: cannot be read" in line["text"]
    world.authorities = "one"
    world.turn(RETRY_SECONDS)
    assert world.issued == ["team-a"]


def test_without_tls_a_secret_has_no_authorities(world: World) -> None:
    world.policies.add("team-a/everything")
    world.turn(0.0)
    ((_, body),) = world.cluster.applied
    assert set(body["data"]) == {"secret"}
