"""What the store's connection does with values alone: host strings, secrets, sizes of records."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rekindle_zookeeper
from rekindle.model.errors import InputError, RunError
from rekindle.protocol import store_paths
from rekindle_zookeeper import acl, chunked_records, zookeeper_connection

PLACE = store_paths.Place("default", "application")


@pytest.mark.parametrize(
    "hosts",
    ["", "host:", "host:0", "host:70000", "a,,b", "a b", "host/path", "http://host", "[::1"],
)
def test_what_is_no_list_of_servers_is_refused(hosts: str) -> None:
    with pytest.raises(InputError, match="is no server; give HOST:PORT of each"):
        rekindle_zookeeper.connect(hosts)


@pytest.mark.parametrize(
    "hosts", ["zk-0.zk.svc.cluster.local.:2181", "host.", "[::1]:2181", "a,b.:2181", "host_1:1"]
)
def test_a_list_of_servers_may_have_names_that_end_with_a_dot(hosts: str) -> None:
    zookeeper_connection.check_hosts(hosts)


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", b"a\x07b", b"x" * 1001])
def test_a_file_without_a_secret_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(InputError, match="give a file with one line"):
        rekindle_zookeeper.read_secret(file)
    with pytest.raises(InputError, match="cannot be read"):
        rekindle_zookeeper.read_secret(tmp_path / "nowhere")


def test_a_secret_is_read_without_the_white_space_around_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(" open sesame: now\n")
    assert rekindle_zookeeper.read_secret(file) == "open sesame: now"


def test_a_secret_opens_everything_for_who_knows_it_and_nothing_for_others() -> None:
    credential = acl.from_text("open")
    assert credential.shown == ("digest", "rekindle:open")
    ((rights, identity),) = credential.acl
    assert identity.scheme == "digest"
    assert "open" not in identity.id
    assert credential.acl[0].acl_list == ["ALL"]
    assert rights == credential.acl[0].perms
    assert acl.Access.of(None, None).credential is None


@given(st.lists(st.integers(0, 3 * store_paths.PIECE_BYTES), max_size=6))
def test_whatever_is_written_at_once_fits_into_one_message(sizes: list[int]) -> None:
    writes = {
        PLACE.path(store_paths.DIRECTIVES, str(n)): b"x" * size for n, size in enumerate(sizes)
    }
    prepared = chunked_records.prepare(writes)
    assert sum(len(record.data) for record in prepared.values()) <= 1 << 20
    for path, data in writes.items():
        record = prepared[path]
        assert all(len(piece) <= store_paths.PIECE_BYTES for piece in record.pieces.values())
        assert tuple(record.pieces) == chunked_records.named(path, record.data)
        if record.pieces:
            parts = list(record.pieces.values())
            assert store_paths.join(record.data, parts, path) == data
        else:
            assert record.data == data


def test_the_pieces_of_a_record_lie_with_those_of_its_application() -> None:
    assert chunked_records.folder(PLACE.path(store_paths.DIRECTIVES, "1")) == PLACE.path(
        store_paths.PIECES
    )
    with pytest.raises(RunError, match="belongs to no application"):
        chunked_records.folder(store_paths.ELECTION)


@pytest.mark.parametrize("head", [b'{"pieces": x}', b'{"pieces": 2}', b'{"pieces": "2"}'])
def test_a_record_that_names_its_pieces_in_no_way_that_is_known_is_an_error(head: bytes) -> None:
    with pytest.raises(RunError, match="in a way that nobody reads"):
        chunked_records.named(PLACE.path(store_paths.TOPOLOGY), head)
