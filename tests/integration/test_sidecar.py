"""The sidecar's protocol: a real process, a real ZooKeeper, a driver that only speaks HTTP."""

import gzip
import json
import os
import stat
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sidecar_process import (
    PLACE,
    SESSION_SECONDS,
    Driver,
    Sidecar,
    directive,
    empty,
    generation_shown,
    progress_in,
    topology_in,
)
from waiting import wait_until

import rekindle_zookeeper
from rekindle import protocol
from rekindle.model.errors import RunError
from rekindle.protocol import MESSAGE_BYTES_MAX, store_paths
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_local.port_reservation import hold_port
from rekindle_sidecar import held_records, store_sync
from rekindle_sidecar.held_records import HeldReport, Stamp
from rekindle_zookeeper import Conflict, Connection

pytest_plugins = ("sidecar_fixtures",)

Start = Callable[..., Sidecar]


def test_a_driver_that_introduces_itself_is_shown_in_the_store(
    start: Start, store: Connection
) -> None:
    status, answer = Driver(start()).handshake()
    assert status == 200
    assert answer == {"version": 1, "contact_seconds": SESSION_SECONDS, "store_reachable": True}
    wait_until(lambda: generation_shown(store) == 1)
    found = store.get(PLACE.path(store_paths.HEARTBEAT))
    assert found is not None
    assert json.loads(found[0])["process_id"] == os.getpid()


def test_older_and_newer_sides_talk_where_they_know_a_common_version(start: Start) -> None:
    driver = Driver(start())
    status, answer = driver.handshake(oldest=1, newest=9, spoken_since="a later release")
    assert (status, answer["version"]) == (200, 1)
    status, answer = driver.handshake(oldest=2, newest=3)
    assert status == 426
    assert answer["sidecar"] == {"oldest": 1, "newest": 1}
    assert answer["driver"] == {"oldest": 2, "newest": 3}
    assert "at most one behind" in answer["remedy"]
    assert driver.directives()[0] == 200  # the version that was agreed on before still holds


def test_no_report_is_in_the_store_before_its_topology(start: Start, store: Connection) -> None:
    driver = Driver(start())
    driver.handshake()
    driver.report(driver.progress())
    time.sleep(1.0)
    assert store.get(PLACE.path(store_paths.PROGRESS)) is None
    driver.report(driver.topology())
    wait_until(lambda: progress_in(store) is not None)
    assert topology_in(store) == driver.topology()


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("reports", b"", 400, "report"),
        ("reports", b"\xff\xfe{}", 400, "report"),
        ("reports", b"[" * 100_000, 400, "report"),
        ("reports", b'{"kind": "weather", "generation": 1, "sequence": 1}', 400, "'weather'"),
        ("reports", b'{"generation": 1, "sequence": 1}', 400, "kind"),
        ("reports", b'{"kind": "checkpoint", "generation": 1, "sequence": "x"}', 400, "sequence"),
        ("reports", b'{"kind": "checkpoint", "generation": 1, "sequence": 1}', 400, "epoch"),
        ("reports", b'{"kind": "checkpoint", "generation": 0, "sequence": 1}', 400, "generation"),
        ("reports", b" " * (MESSAGE_BYTES_MAX + 1), 413, "report"),
        ("acks", b'{"sequence": 1, "generation": 1, "outcome": "maybe"}', 400, "outcome"),
        ("handshake", b"{}", 400, "handshake"),
        ("directives?after=-1&generation=1", None, 400, "after"),
        ("directives?after=0", None, 400, "generation"),
        ("directives?after=0&generation=1&wait=31", None, 400, "wait"),
        ("directives?after=0&generation=1&wait=nan", None, 400, "wait"),
        ("nowhere", None, 404, "GET /v1/nowhere"),
        ("reports", None, 405, "GET /v1/reports"),
    ],
)
def test_what_is_no_message_is_refused_with_a_remedy(
    path: str, body: bytes | None, status: int, words: str, shared: Sidecar
) -> None:
    driver = Driver(shared)
    driver.handshake()
    got, answer = driver.ask("GET" if body is None else "POST", f"/v1/{path}", body)
    assert got == status
    assert words in f"{answer['where']}: {answer['what']}"
    assert answer["remedy"]
    assert driver.report(driver.progress())["contact_seconds"] == SESSION_SECONDS


def test_a_message_that_is_packed_is_refused_unopened(shared: Sidecar) -> None:
    driver = Driver(shared)
    driver.handshake()
    packed = gzip.compress(b" " * (1 << 20))
    for body in (packed, b"{}"):
        driver.connection.request("POST", "/v1/reports", body, {"Content-Encoding": "gzip"})
        answer = driver.connection.getresponse()
        found = json.loads(answer.read())
        assert (answer.status, found["what"]) == (400, "is encoded (gzip)")
        driver.part()


def test_a_message_in_chunks_without_an_end_is_refused_at_its_limit(shared: Sidecar) -> None:
    driver = Driver(shared)
    driver.handshake()
    connection = driver.connection
    chunks = (b" " * (1 << 20) for _ in range(17))
    connection.request("POST", "/v1/reports", chunks, encode_chunked=True)
    assert connection.getresponse().status == 413


def test_a_driver_of_another_application_is_refused(shared: Sidecar) -> None:
    status, answer = Driver(shared).handshake(application="another")
    assert status == 400
    assert "is of default/another, not of default/shared" in answer["what"]


def test_the_schema_is_the_one_that_messages_are_checked_by(shared: Sidecar) -> None:
    assert Driver(shared).ask("GET", "/v1/schema") == (200, protocol.schema())


def test_unknown_fields_are_ignored(start: Start, store: Connection) -> None:
    driver = Driver(start())
    driver.begin()
    report = json.loads(protocol.encode(driver.progress(epoch=7)))
    assert driver.ask("POST", "/v1/reports", {**report, "mood": "good"})[0] == 200
    wait_until(lambda: getattr(progress_in(store), "epoch", None) == 7)


def test_repeated_and_late_reports_change_nothing(start: Start, store: Connection) -> None:
    driver = Driver(start())
    driver.begin()
    first, second = driver.progress(epoch=1), driver.progress(epoch=2)
    for report in (second, first, second, first):
        driver.report(report)
    wait_until(lambda: progress_in(store) == second)
    driver.report(first)
    driver.report(driver.topology())
    time.sleep(1.0)
    assert progress_in(store) == second


def test_a_large_topology_reaches_the_store_whole(start: Start, store: Connection) -> None:
    driver = Driver(start())
    driver.handshake()
    report = driver.topology(operators=20_000)
    driver.report(report)
    wait_until(lambda: topology_in(store) == report)
    assert store.children(PLACE.path(store_paths.PIECES))


def test_a_long_poll_is_answered_when_a_directive_is_written(
    start: Start, store: Connection
) -> None:
    driver = Driver(start())
    driver.begin()
    answers: list[Any] = []
    poll = threading.Thread(target=lambda: answers.append(driver.directives(0, 30.0)))
    poll.start()
    driver.await_poll()
    store.put(PLACE.path(store_paths.DIRECTIVES, store_paths.numbered(1)), directive(1))
    began = time.monotonic()
    poll.join()
    assert time.monotonic() - began < 25.0
    ((status, answer),) = answers
    assert status == 200
    assert answer["directives"] == [json.loads(directive(1))]
    assert answer["store_reachable"]
    assert driver.directives(1, 0.0)[1]["directives"] == []


def test_directives_come_in_order_to_the_generation_that_they_are_for(
    start: Start, store: Connection
) -> None:
    driver = Driver(start(), 2)
    driver.begin()
    unknown = directive(4, generation=2, after=3, order={"kind": "dance", "partner": 3})
    writes = {1: directive(1), 3: directive(3, generation=2), 4: unknown, 2: b"no directive"}
    for sequence, data in writes.items():
        store.put(PLACE.path(store_paths.DIRECTIVES, store_paths.numbered(sequence)), data)
    wait_until(lambda: len(driver.directives()[1]["directives"]) == 2)
    found = driver.directives()[1]["directives"]
    assert found == [json.loads(directive(3, generation=2)), json.loads(unknown)]
    assert driver.directives(after=3)[1]["directives"] == [json.loads(unknown)]


def test_the_first_acknowledgement_of_a_directive_counts(start: Start, store: Connection) -> None:
    driver = Driver(start())
    driver.begin()
    path = PLACE.path(store_paths.ACKS, store_paths.numbered(3))
    assert driver.acknowledge(3, "done") == (200, {"store_reachable": True})
    wait_until(lambda: store.get(path) is not None)
    driver.acknowledge(3, "refused", text="looked at before")
    driver.acknowledge(4)
    wait_until(lambda: len(store.children(PLACE.path(store_paths.ACKS))) == 2)
    found = store.get(path)
    assert found is not None
    assert json.loads(found[0])["outcome"] == "done"


def test_with_a_secret_the_store_is_closed_to_others(
    start: Start, store: Connection, zookeeper: LocalZookeeper, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    sidecar = start("--secret-file", str(secret))
    driver = Driver(sidecar)
    driver.begin()
    insider = rekindle_zookeeper.connect(zookeeper.connect_string, secret="open sesame")
    wait_until(lambda: progress_in(insider) is not None)
    with pytest.raises(RunError, match="with this secret"):
        store.get(PLACE.path(store_paths.PROGRESS))
    # and one without it tells its driver that nothing reaches the store
    stranger = start(ready=False)
    outside = Driver(stranger)
    outside.handshake()
    wait_until(lambda: bool(stranger.events("store-fails")))
    assert not outside.report(outside.progress())["store_reachable"]
    assert "open sesame" not in sidecar.log.read_text()
    sidecar.end()
    stranger.end()
    empty(insider, PLACE.path())
    insider.close()


def test_only_its_own_user_may_connect(shared: Sidecar) -> None:
    assert stat.S_IMODE(shared.socket.stat().st_mode) == 0o600


def test_options_that_cannot_be_followed_are_refused_before_anything_starts(
    shared: Sidecar, tmp_path: Path, zookeeper: LocalZookeeper
) -> None:
    secret = tmp_path / "empty"
    secret.write_text("")
    with hold_port("127.0.0.1") as held:
        held.listen()
        port = str(held.getsockname()[1])
        for options, words in (
            (("--socket", str(shared.socket)), "is in use by another process"),
            (("--secret-file", str(secret)), "holds no secret"),
            (("--namespace", "a/b"), "is no name"),
            (("--zookeeper", "a b"), "is no server"),
            (("--session-seconds", "0"), "is 0.0"),
            (("--port", port), "cannot be listened on"),
        ):
            sidecar = Sidecar(tmp_path / "refused", zookeeper.connect_string, *options)
            with pytest.raises(AssertionError, match=words):
                sidecar.start()
            assert sidecar.process.returncode == 2
            assert "Traceback" not in sidecar.log.read_text()
            assert not sidecar.socket.exists()
            sidecar.log.unlink()
    assert Driver(shared).handshake()[0] == 200


def test_a_port_serves_metrics_and_health(
    start: Start, store: Connection, zookeeper: LocalZookeeper
) -> None:
    with hold_port("127.0.0.1") as held:
        port = held.getsockname()[1]
        sidecar = start("--port", str(port))
    driver = Driver(sidecar)
    driver.begin()
    driver.report(driver.topology())
    driver.report(driver.progress(late_rows={"counts": 12}))
    driver.ask("POST", "/v1/reports", b"{}")
    driver.acknowledge(1)
    wait_until(lambda: generation_shown(store) == 1)
    store.put(PLACE.path(store_paths.DIRECTIVES, store_paths.numbered(1)), directive(1))
    driver.directives(0, 30.0)
    wait_until(lambda: metric(port, "rekindle_sidecar_heartbeat_up") == 1.0)
    wait_until(lambda: metric(port, "rekindle_sidecar_held") == 0.0)
    assert metric(port, 'rekindle_sidecar_reports_total{kind="topology"}') == 2.0
    assert metric(port, "rekindle_sidecar_reports_repeated_total") == 1.0
    assert metric(port, "rekindle_sidecar_directives_total") == 1.0
    assert metric(port, 'rekindle_sidecar_late_rows_total{step="counts"}') == 12.0
    assert metric(port, 'rekindle_sidecar_acks_total{outcome="done"}') == 1.0
    assert metric(port, 'rekindle_sidecar_refusals_total{cause="malformed"}') == 1.0
    assert metric(port, "rekindle_sidecar_store_reachable") == 1.0
    assert metric(port, "rekindle_sidecar_driver_heard_seconds") < 60.0
    assert fetch(port, "healthz")[0] == fetch(port, "readyz")[0] == 200
    zookeeper.kill(1)
    wait_until(lambda: fetch(port, "readyz")[0] == 503)
    assert fetch(port, "healthz")[0] == 200


def test_what_earlier_generations_and_old_plans_left_is_removed(store: Connection) -> None:
    writes = {}
    for sequence in range(1, 221):
        generation = 1 if sequence <= 5 else 2
        name = store_paths.numbered(sequence)
        writes[PLACE.path(store_paths.DIRECTIVES, name)] = directive(
            sequence, generation=generation
        )
        if sequence < 220:
            writes[PLACE.path(store_paths.ACKS, name)] = b"{}"
    for path, data in writes.items():
        store.put(path, data)
    found = held_records.fetch_directives(store, PLACE, {})
    assert store_sync.tidy(store, PLACE, found, 2) == 2 * 19
    kept = [store_paths.numbered(sequence) for sequence in range(20, 221)]
    assert store.children(PLACE.path(store_paths.DIRECTIVES)) == kept
    assert store.children(PLACE.path(store_paths.ACKS)) == kept[:-1]


def held(name: str, generation: int, sequence: int) -> HeldReport:
    stamp = Stamp(generation, sequence)
    return HeldReport(name, stamp, msgspec.json.encode(stamp))


def test_no_report_is_written_beside_a_topology_that_came_since_it_was_looked_at(
    store: Connection,
) -> None:
    one, other = (store_sync.ReportDelivery(store, PLACE) for _ in range(2))
    one.write(held(store_paths.TOPOLOGY, 1, 1))
    one.write(held(store_paths.PROGRESS, 1, 2))
    other.write(held(store_paths.TOPOLOGY, 2, 1))
    with pytest.raises(Conflict):
        one.write(held(store_paths.PROGRESS, 1, 3))
    found = store.get(PLACE.path(store_paths.PROGRESS))
    assert found is not None
    assert held_records.stamp_of(found[0]) == Stamp(1, 2)


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metric(port: int, name: str) -> float:
    lines = dict(
        line.rsplit(" ", 1) for line in fetch(port, "metrics")[1].splitlines() if line[0] != "#"
    )
    return float(lines[name])
