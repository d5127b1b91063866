"""What the sidecar decides: what is held, what may be overwritten, who is there, what may go."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.errors import InputError
from rekindle.protocol import Heartbeat, store_paths
from rekindle_sidecar import held_records, http_api, sidecar_session, store_sync
from rekindle_sidecar.held_records import ACKS_MAX, HeldReport, HeldReports, Precedence, Stamp
from rekindle_sidecar.sidecar_session import DriverLiveness

NAMES = (store_paths.TOPOLOGY, store_paths.STATISTICS, store_paths.PROGRESS, store_paths.CHECKPOINT)
stamps = st.builds(Stamp, st.integers(1, 4), st.integers(0, 9))


def held(name: str, sequence: int, generation: int = 1) -> HeldReport:
    return HeldReport(name, Stamp(generation, sequence), f"{name} {sequence}".encode())


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 9))))
def test_of_each_kind_the_newest_report_is_held_whatever_came_when(
    told: list[tuple[str, int]],
) -> None:
    memory = HeldReports()
    for name, sequence in told:
        memory.take(held(name, sequence))
    written = []
    while (report := memory.next(Stamp(1, 0))) is not None:
        written.append((report.name, report.stamp.sequence))
        memory.settled(report)
    newest = {name: max(s for n, s in told if n == name) for name, _ in told}
    assert written == [(name, newest[name]) for name in NAMES if name in newest]
    assert len(memory) == 0


def test_a_report_that_comes_while_the_last_one_is_written_stays_held() -> None:
    memory = HeldReports()
    first, second = held(store_paths.PROGRESS, 1), held(store_paths.PROGRESS, 2)
    memory.take(first)
    assert memory.take(second)
    memory.settled(first)
    assert memory.next(Stamp(1, 0)) == second
    memory.settled(second)
    assert not memory.take(first)
    assert not memory.take(second)


@pytest.mark.parametrize("topology", [None, Stamp(1, 9), Stamp(3, 0)])
def test_no_report_is_written_beside_the_topology_of_another_generation(
    topology: Stamp | None,
) -> None:
    memory = HeldReports()
    memory.take(held(store_paths.PROGRESS, 1, generation=2))
    assert memory.next(topology) is None
    memory.take(held(store_paths.TOPOLOGY, 0, generation=2))
    first = memory.next(topology)
    assert first is not None
    assert first.name == store_paths.TOPOLOGY
    memory.settled(first)
    second = memory.next(first.stamp)
    assert second is not None
    assert second.name == store_paths.PROGRESS


def test_what_is_said_again_after_a_handshake_is_held_again_unless_newer_is_held() -> None:
    memory = HeldReports()
    memory.take(held(store_paths.TOPOLOGY, 0))
    memory.settled(held(store_paths.TOPOLOGY, 0))
    memory.take(held(store_paths.PROGRESS, 5))
    memory.begin_again()
    assert memory.take(held(store_paths.TOPOLOGY, 0))
    assert not memory.take(held(store_paths.PROGRESS, 4))


def test_acknowledgements_are_bounded_and_the_first_of_each_directive_counts() -> None:
    memory = HeldReports()
    for sequence in range(1, ACKS_MAX + 11):
        assert memory.acknowledge(sequence, b"first")
        assert not memory.acknowledge(sequence, b"again")
    assert len(memory.acks) == ACKS_MAX
    assert min(memory.acks) == 11
    assert set(memory.acks.values()) == {b"first"}


@given(st.none() | stamps, stamps)
def test_a_report_gives_way_only_to_a_newer_one(standing: Stamp | None, ours: Stamp) -> None:
    decided = held_records.compare(standing, ours)
    newer = standing is None or (ours.generation, ours.sequence) > (
        standing.generation,
        standing.sequence,
    )
    assert (decided is Precedence.WRITE) == newer
    fenced = standing is not None and standing.generation > ours.generation
    assert (decided is Precedence.FENCED) == fenced


@given(stamps, stamps)
def test_a_report_of_another_store_neither_replaces_nor_keeps_whatever_its_number(
    there: Stamp, here: Stamp
) -> None:
    standing, ours = replace(there, store="one"), replace(here, store="other")
    assert held_records.compare(standing, ours) is Precedence.FOREIGN
    for unknown in (replace(there, store=""), replace(there, store="other")):
        assert held_records.compare(unknown, ours) is held_records.compare(there, here)
    assert held_records.compare(standing, here) is held_records.compare(there, here)


def test_a_heartbeat_of_another_store_is_left_alone() -> None:
    standing = Heartbeat(generation=1, since=1.0, store="one")
    for generation in (1, 2):
        ours = Heartbeat(generation=generation, since=2.0, store="other")
        assert held_records.compare_heartbeats(standing, ours, True) is Precedence.FOREIGN


def test_the_stamp_of_a_topology_has_its_store() -> None:
    stamp = held_records.stamp_of(b'{"kind":"topology","generation":2,"sequence":0,"store":"one"}')
    assert stamp is not None
    assert stamp.store == "one"


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}", b'{"generation": "x", "sequence": 1}', b"["])
def test_what_is_no_report_has_no_stamp_and_may_be_overwritten(data: bytes) -> None:
    assert held_records.stamp_of(data) is None
    assert held_records.compare(None, Stamp(1, 0)) is Precedence.WRITE


def test_the_stamp_of_a_report_is_found_among_fields_that_are_not_known() -> None:
    assert held_records.stamp_of(b'{"x": [1], "sequence": 3, "generation": 2}') == Stamp(2, 3)


@given(st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_a_heartbeat_never_takes_the_place_of_a_higher_generations(
    there: int, here: int, arriving: bool
) -> None:
    standing = Heartbeat(generation=there, since=1.0)
    ours = Heartbeat(generation=here, since=2.0)
    decided = held_records.compare_heartbeats(standing, ours, arriving)
    assert (decided is Precedence.FENCED) == (there > here)
    if there < here:
        assert decided is Precedence.WRITE


def test_of_two_sidecars_with_one_driver_the_one_that_it_came_to_last_shows_it() -> None:
    first, second = Heartbeat(generation=1, since=1.0), Heartbeat(generation=1, since=2.0)
    assert held_records.compare_heartbeats(first, second, True) is Precedence.WRITE
    # and the other does not take its turn again
    assert held_records.compare_heartbeats(second, first, False) is Precedence.KEEP
    assert held_records.compare_heartbeats(first, first, True) is Precedence.KEEP
    assert held_records.compare_heartbeats(None, first, False) is Precedence.WRITE


def test_a_driver_is_there_while_it_is_heard_of_and_has_a_connection() -> None:
    there = sidecar_session.heard(DriverLiveness(), 100.0)
    assert not sidecar_session.is_there(DriverLiveness(), 100.0, 10.0)
    assert sidecar_session.is_there(there, 110.0, 10.0)
    assert not sidecar_session.is_there(there, 110.1, 10.0)
    parted = sidecar_session.connected(there, 0, 101.0)
    assert sidecar_session.is_there(parted, 103.0, 10.0)
    assert not sidecar_session.is_there(parted, 103.1, 10.0)
    assert sidecar_session.connected(parted, 0, 102.0) == parted
    assert sidecar_session.is_there(sidecar_session.connected(parted, 1, 102.0), 104.0, 10.0)


def test_an_open_long_poll_counts_as_being_heard_of_and_so_does_its_end() -> None:
    waiting = sidecar_session.polling(sidecar_session.heard(DriverLiveness(), 100.0), 1, 100.0)
    assert sidecar_session.is_there(waiting, 130.0, 10.0)
    ended = sidecar_session.polling(waiting, -1, 130.0)
    assert sidecar_session.is_there(ended, 140.0, 10.0)
    assert not sidecar_session.is_there(ended, 140.1, 10.0)
    assert not sidecar_session.is_there(sidecar_session.connected(waiting, 0, 101.0), 104.0, 10.0)


def test_directives_go_when_they_are_for_earlier_generations_or_long_acknowledged() -> None:
    directives = {**dict.fromkeys(range(1, 6), 1), **dict.fromkeys(range(6, 400), 2)}
    acks = range(1, 390)
    old_directives, old_acks = store_sync.choose(directives, acks, 2)
    assert old_acks == set(range(1, 390 - store_sync.ACKS_KEPT))
    assert old_directives == old_acks
    assert store_sync.choose(directives, acks, 3) == (set(directives), set(acks))


@given(
    st.dictionaries(st.integers(1, 500), st.integers(1, 3)),
    st.sets(st.integers(1, 500)),
    st.integers(1, 3),
)
def test_what_the_driver_may_still_take_never_goes(
    directives: dict[int, int], acks: set[int], generation: int
) -> None:
    old_directives, old_acks = store_sync.choose(directives, acks, generation)
    for number in old_directives:
        assert directives[number] < generation or number in acks
    assert old_acks <= acks
    kept = acks - old_acks
    assert len(kept) <= store_sync.ACKS_KEPT


def test_a_socket_that_a_killed_process_left_is_replaced_and_one_in_use_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s"
    http_api.listen(path).close()  # as a killed process leaves it
    with http_api.listen(path):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(InputError, match="is in use by another process"):
            http_api.listen(path)


def test_a_socket_that_cannot_be_made_is_refused_and_nothing_is_overwritten(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    for path, words in (
        (file, "is there and no socket"),
        (tmp_path / "no" / "folder", r"cannot be made \(No such file or directory\)"),
        (tmp_path / ("x" * 120), "is longer than 107 bytes"),
    ):
        with pytest.raises(InputError, match=words):
            http_api.listen(path)
    assert file.read_text() == "kept"


def test_a_socket_file_is_removed_only_by_who_made_it(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with http_api.listen(path):
        inode = path.stat().st_ino
        http_api.remove_socket(path, inode + 1)
        assert path.exists()
        http_api.remove_socket(path, inode)
        assert not path.exists()
        http_api.remove_socket(path, inode)


def test_the_process_at_the_other_end_is_known() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert http_api.process_at(ours) == os.getpid()
