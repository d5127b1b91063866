"""What the driver's requests do to the sidecar's memory, without HTTP and without a store."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from rekindle.protocol import CheckpointReport, Heartbeat, ProgressReport, store_paths
from rekindle_sidecar import sidecar_metrics
from rekindle_sidecar.held_records import (
    Envelope,
    PresentRecords,
    Stamp,
    choose_directives,
    read_directive,
)
from rekindle_sidecar.http_errors import Cause, RequestRefusal
from rekindle_sidecar.sidecar_session import LEADERLESS_SECONDS, SidecarSession

PLACE = store_paths.Place("default", "application")
CONTACT_SECONDS = 10.0


class Line:
    """A connection that is open until it is closed."""

    closed = False

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002
        return default


class Office:
    """A desk with a clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0
        self.line = Line()
        self.standing: PresentRecords | None = None
        self.desk = SidecarSession(
            PLACE, CONTACT_SECONDS, clock=lambda: self.now, wall_clock=lambda: self.now + 1e9
        )

    def handshake(self, generation: int = 1, peer: int = 7, **fields: Any) -> Any:
        hello = {
            "oldest": 1,
            "newest": 1,
            "namespace": PLACE.namespace,
            "application": PLACE.application,
            "generation": generation,
        }
        data = msgspec.json.encode({**hello, **fields})
        return json.loads(self.desk.handshake(data, self.line, peer))

    def admission(self, generation: int, store: str, name: str = PLACE.application) -> Any:
        async def look() -> PresentRecords | None:
            return self.standing

        self.desk.look = look
        return json.loads(
            asyncio.run(self.desk.admission(PLACE.namespace, name, generation, store))
        )

    def report(self, sequence: int = 1, generation: int = 1) -> None:
        report = CheckpointReport(generation=generation, sequence=sequence, epoch=1, at=0.0)
        self.desk.report(msgspec.json.encode(report), self.line)

    def tell_topology(self) -> None:
        topology = {
            "kind": "topology",
            "generation": 1,
            "sequence": 0,
            "program": "p",
            "topology": {"operators": [], "edges": [], "queries": []},
            "policy": {},
            "nodes_expected": 1,
        }
        self.desk.report(msgspec.json.encode(topology), self.line)

    def directives(self, after: int = 0, generation: int = 1, wait: float = 0.0) -> Any:
        found = asyncio.run(self.desk.directives(after, generation, wait, self.line))
        return json.loads(found)["directives"]


def envelope(sequence: int, generation: int = 1, size: int = 0) -> Envelope:
    data = json.dumps({"sequence": sequence, "generation": generation, "text": "x" * size})
    found = read_directive(store_paths.numbered(sequence), data.encode())
    assert found is not None
    return found


def refusal(call: Any, *arguments: Any) -> RequestRefusal:
    with pytest.raises(RequestRefusal) as caught:
        call(*arguments)
    return caught.value


def test_nothing_is_taken_before_a_handshake() -> None:
    office = Office()
    found = refusal(office.report)
    assert (found.status, found.cause) == (428, Cause.NO_HANDSHAKE)
    assert refusal(office.directives).status == 428
    assert office.desk.wanted_heartbeat() is None


def test_a_higher_generation_has_to_introduce_itself_and_starts_with_nothing_held() -> None:
    office = Office()
    office.handshake(1)
    office.report(5, 1)
    assert refusal(office.report, 1, 2).status == 428
    office.handshake(2)
    assert len(office.desk.held) == 0
    found = refusal(office.report, 6, 1)
    assert (found.status, found.body["fenced"], found.body["generation"]) == (409, True, 2)


def test_the_newest_report_says_how_many_rows_came_too_late() -> None:
    office = Office()
    office.handshake()
    for sequence, rows in ((2, 5), (3, 8), (1, 3)):
        report = ProgressReport(
            generation=1,
            sequence=sequence,
            nodes={},
            placement={},
            live=(),
            late_rows={"counts": rows},
        )
        office.desk.report(msgspec.json.encode(report), office.line)
    shown = [
        (sample.labels, sample.value)
        for family in sidecar_metrics.SidecarMetrics(office.desk).collect()
        for sample in family.samples
        if sample.name == "rekindle_sidecar_late_rows_total"
    ]
    assert shown == [({"step": "counts"}, 8.0)]


def test_a_lower_generation_neither_speaks_nor_introduces_itself() -> None:
    office = Office()
    office.handshake(3)
    for call in (lambda: office.handshake(2), lambda: office.report(1, 2)):
        assert refusal(call).status == 409
    assert office.desk.generation == 3


def test_a_driver_with_another_store_than_the_one_before_is_a_beginning() -> None:
    office = Office()
    office.handshake(7, store="one")
    office.desk.fence(8)
    office.handshake(1, store="other")
    office.report(1, 1)
    assert (office.desk.generation, office.desk.fenced) == (1, False)
    assert len(office.desk.held) == 1


def test_a_driver_that_says_its_store_after_one_that_did_not_may_begin_anew() -> None:
    office = Office()
    office.handshake(7)
    office.handshake(1, store="other")
    assert office.desk.generation == 1


def test_of_one_store_the_older_driver_is_refused_as_ever() -> None:
    office = Office()
    office.handshake(7, store="one")
    assert refusal(office.handshake, 6).status == 409
    assert refusal(lambda: office.handshake(6, store="one")).status == 409


@pytest.mark.parametrize(
    ("is_there", "what", "remedy"),
    [
        (False, "has another checkpoint store, with a history up to", "over with `rekindle reset"),
        (True, "has a driver of generation 7, with another checkpoint store", "end that one"),
    ],
)
def test_a_history_of_another_store_refuses_the_driver_until_another_comes(
    is_there: bool, what: str, remedy: str
) -> None:
    office = Office()
    office.handshake(1, store="other")
    office.report(1, 1)
    assert office.desk.wanted_heartbeat() is not None
    office.desk.refuse_store(7, is_there=is_there)
    assert office.desk.wanted_heartbeat() is None
    assert len(office.desk.held) == 0
    for call in (lambda: office.report(2, 1), office.directives):
        found = refusal(call)
        assert (found.status, found.cause) == (409, Cause.OTHER_STORE)
        assert found.body["where"] == "application default/application"
        assert what in found.body["what"]
        assert remedy in found.body["remedy"]
        assert (found.body["fenced"], found.body["store"]) == (True, "other")
    office.handshake(2, store="other")
    office.report(3, 2)
    assert office.desk.wanted_heartbeat() is not None


def topology(generation: int, store: str = "") -> PresentRecords:
    return PresentRecords(None, Stamp(generation, 5, store))


def heartbeat(generation: int, store: str = "") -> PresentRecords:
    return PresentRecords(Heartbeat(generation=generation, since=0.0, store=store), None)


OF_ANOTHER_STORE = [
    (topology(2, "one"), "has another checkpoint store, with a history up to generation 2"),
    (heartbeat(2, "one"), "has a driver of generation 2, with another checkpoint store"),
]


@pytest.mark.parametrize(
    ("standing", "store", "what"),
    [
        *((standing, "other", what) for standing, what in OF_ANOTHER_STORE),
        # no driver has ever started on the checkpoint store
        *((standing, "", what) for standing, what in OF_ANOTHER_STORE),
        # an older copy, and records of a driver that did not say its store
        (topology(5, "one"), "one", "is of generation 4, and there is a driver of generation 5"),
        (heartbeat(5), "one", "is of generation 4, and there is a driver of generation 5"),
    ],
    ids=[
        "topology-of-another-store",
        "driver-of-another-store",
        "topology-and-a-fresh-store",
        "driver-and-a-fresh-store",
        "newer-topology",
        "newer-driver",
    ],
)
def test_a_driver_learns_before_it_begins_that_it_would_be_refused(
    standing: PresentRecords, store: str, what: str
) -> None:
    office = Office()
    office.standing = standing
    found = refusal(office.admission, 4, store)
    assert (found.status, found.body["what"]) == (409, what)
    assert office.desk.wanted_heartbeat() is None


@pytest.mark.parametrize(
    ("standing", "is_reachable"),
    [
        (None, False),
        (PresentRecords(None, None), True),
        (topology(3, "one"), True),
        (heartbeat(4, "one"), True),
        (topology(3), True),
    ],
    ids=["store-away", "nothing", "older-topology", "same-driver", "topology-without-a-store"],
)
def test_a_driver_that_would_be_taken_or_of_which_nothing_is_known_may_begin(
    standing: PresentRecords | None, is_reachable: bool
) -> None:
    office = Office()
    office.standing = standing
    assert office.admission(4, "one") == {"store_reachable": is_reachable}


def test_a_driver_of_another_application_is_refused_before_it_begins() -> None:
    found = refusal(Office().admission, 1, "", "another")
    assert (found.status, found.cause) == (400, Cause.MALFORMED)
    assert found.body["what"] == "is of default/another, not of default/application"


def test_what_a_fenced_driver_says_does_not_keep_the_newer_ones_heartbeat() -> None:
    office = Office()
    office.handshake(2)
    office.now += CONTACT_SECONDS + 1
    refusal(office.report, 1, 1)
    assert office.desk.wanted_heartbeat() is None


def test_a_newer_generation_in_the_store_fences_and_ends_the_heartbeat() -> None:
    office = Office()
    office.handshake(1)
    office.report()
    assert office.desk.wanted_heartbeat() is not None
    office.desk.fence(2)
    assert office.desk.wanted_heartbeat() is None
    assert len(office.desk.held) == 0
    assert refusal(office.report, 2, 1).body["generation"] == 2
    office.handshake(2)
    assert office.desk.wanted_heartbeat() is not None


def test_fencing_ends_an_open_long_poll() -> None:
    office = Office()
    office.handshake(1)

    async def poll() -> None:
        waiting = asyncio.create_task(office.desk.directives(0, 1, 30.0, office.line))
        await asyncio.sleep(0)
        office.desk.fence(2)
        await waiting

    assert refusal(lambda: asyncio.run(poll())).status == 409


def test_an_open_long_poll_is_answered_by_the_next_directive() -> None:
    office = Office()
    office.handshake(1)

    async def poll() -> bytes:
        waiting = asyncio.create_task(office.desk.directives(0, 1, 30.0, office.line))
        await asyncio.sleep(0)
        office.desk.refill({"other": envelope(1, generation=2)})
        await asyncio.sleep(0)
        assert not waiting.done()
        office.desk.refill({"first": envelope(1)})
        return await waiting

    assert json.loads(asyncio.run(poll()))["directives"][0]["sequence"] == 1


def test_a_long_poll_ends_with_nothing_when_the_sidecar_does() -> None:
    office = Office()
    office.handshake(1)
    office.desk.end()
    assert office.directives(wait=30.0) == []


def test_the_heartbeat_says_who_the_driver_is_and_since_when() -> None:
    office = Office()
    office.handshake(4, peer=12)
    found = office.desk.wanted_heartbeat()
    assert isinstance(found, Heartbeat)
    assert (found.generation, found.process_id, found.since) == (4, 12, 1e9 + 100.0)
    office.now += 5
    office.handshake(4, peer=12)
    assert office.desk.wanted_heartbeat() == found
    office.handshake(4, peer=12, host="driver-0", process_id=1)
    named = office.desk.wanted_heartbeat()
    assert named is not None
    assert (named.host, named.process_id, named.since) == ("driver-0", 1, 1e9 + 105.0)


def test_the_heartbeat_is_not_wanted_once_all_connections_are_closed_for_two_seconds() -> None:
    office = Office()
    office.handshake()
    office.line.closed = True
    assert office.desk.wanted_heartbeat() is not None
    office.now += 1.9
    assert office.desk.wanted_heartbeat() is not None
    office.now += 0.2
    assert office.desk.wanted_heartbeat() is None
    office.line = Line()
    office.report()
    assert office.desk.wanted_heartbeat() is not None


def test_a_driver_of_no_common_version_is_told_both_sides_versions() -> None:
    office = Office()
    found = refusal(lambda: office.handshake(oldest=2, newest=5))
    assert (found.status, found.cause) == (426, Cause.VERSION)
    assert found.body["sidecar"] == {"oldest": 1, "newest": 1}
    assert found.body["driver"] == {"oldest": 2, "newest": 5}


def test_a_topology_that_the_store_does_not_have_is_asked_for_unless_it_may_still_come() -> None:
    office = Office()
    office.handshake()
    office.report(1)
    office.now += 4.9
    office.desk.miss_topology()
    office.report(2)
    office.now += 0.2
    office.tell_topology()
    office.desk.miss_topology()  # it is held
    office.report(3)
    held = office.desk.held.next(None)
    assert held is not None
    office.desk.held.settled(held)
    office.desk.miss_topology()
    assert refusal(office.report, 4).status == 428
    office.handshake()
    office.handshake()  # its other connection
    office.tell_topology()
    assert office.desk.held.next(None) is not None
    office.report(4)


def test_directives_are_given_in_order_and_byte_for_byte() -> None:
    data = b'{"sequence": 2,  "generation": 1, "order": {"kind": "later"}}'
    found = read_directive(store_paths.numbered(2), data)
    assert found is not None
    chosen = choose_directives(
        [envelope(3), None, found, envelope(1), envelope(4, generation=2)], 1, 1
    )
    assert [one.sequence for one in chosen] == [2, 3]
    assert bytes(chosen[0].data) == data


def test_a_directive_whose_predecessor_is_missing_is_kept_back() -> None:
    chain = {}
    for sequence, after in ((2, 0), (3, 2), (5, 4), (6, 5)):
        data = json.dumps({"sequence": sequence, "generation": 1, "after": after})
        chain[sequence] = read_directive(store_paths.numbered(sequence), data.encode())
    assert [one.sequence for one in choose_directives(chain.values(), 0, 1)] == [2, 3]
    assert choose_directives(chain.values(), 3, 1) == []
    chain[4] = envelope(4)
    assert [one.sequence for one in choose_directives(chain.values(), 2, 1)] == [3, 4, 5, 6]
    assert [one.sequence for one in choose_directives(chain.values(), 4, 1)] == [5, 6]


def test_directives_that_do_not_fit_into_one_message_come_with_the_next() -> None:
    large = [envelope(sequence, size=6_000_000) for sequence in range(1, 5)]
    assert [one.sequence for one in choose_directives(large, 0, 1)] == [1, 2]
    assert [one.sequence for one in choose_directives(large, 2, 1)] == [3, 4]
    assert [one.sequence for one in choose_directives([envelope(1, size=20_000_000)], 0, 1)] == [1]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"\xff", b'{"sequence": 2, "generation": 1}', b'{"sequence": 1}']
)
def test_what_is_no_directive_is_left_out(data: bytes) -> None:
    assert read_directive(store_paths.numbered(1), data) is None


def test_connections_that_are_closed_are_forgotten_while_the_store_is_away() -> None:
    office = Office()
    office.handshake()
    for _ in range(50):
        office.line.closed = True
        office.line = Line()
        office.report()
    assert len(office.desk._lines) == 1


def test_health_names_the_driver_that_fences_only_when_there_is_one() -> None:
    office = Office()
    office.handshake(generation=4)
    office.desk.fence(4)  # the standing heartbeat is its own
    assert office.desk.health()["fenced_by"] is None
    office.desk.fence(5)
    assert office.desk.health()["fenced_by"] == 5


def test_a_driver_is_led_until_nobody_has_led_for_long() -> None:
    office = Office()
    office.handshake()
    for there, seconds, led in (
        (False, 0.0, True),
        (False, LEADERLESS_SECONDS - 0.1, True),
        (False, 0.2, False),
        (True, 0.0, True),
        (False, 1.0, True),
    ):
        office.now += seconds
        office.desk.note_leader(there=there)
        answer = asyncio.run(office.desk.directives(0, 1, 0.0, office.line))
        assert json.loads(answer)["led"] is led
        assert office.desk.health()["led"] is led


def test_a_long_poll_ends_as_soon_as_nobody_leads_and_as_soon_as_somebody_does() -> None:
    office = Office()
    office.handshake()

    async def poll(there: bool, seconds: float) -> bool:
        waiting = asyncio.create_task(office.desk.directives(0, 1, 30.0, office.line))
        await asyncio.sleep(0)
        office.desk.note_leader(there=there)
        office.now += seconds
        office.desk.ring()
        async with asyncio.timeout(20.0):  # sooner than the poll would end by itself
            return bool(json.loads(await waiting)["led"])

    assert asyncio.run(poll(there=False, seconds=LEADERLESS_SECONDS)) is False
    assert asyncio.run(poll(there=True, seconds=0.0)) is True
