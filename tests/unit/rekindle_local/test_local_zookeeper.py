"""A local ZooKeeper's settings, files and answers, without starting one."""

import socket
from pathlib import Path

import pytest

from rekindle.model.errors import InputError
from rekindle_local.local_zookeeper import (
    LocalZookeeper,
    ServerStatus,
    ZookeeperServer,
    configure,
    parse_status,
)
from rekindle_local.port_reservation import hold_port

ANSWER = """Zookeeper version: 3.9.5-293c895a8d, built on 2026-02-11 20:18 UTC
Latency min/avg/max: 0/0.0/0
Received: 14
Sent: 13
Connections: 1
Outstanding: 0
Zxid: 0x20000000a
Mode: leader
Node count: 5
"""


def make_server(number: int, directory: Path) -> ZookeeperServer:
    return ZookeeperServer(number, directory, f"127.0.1.{number}", 4000, 5000, 6000)


def read_settings(server: ZookeeperServer) -> dict[str, str]:
    lines = server.configuration.read_text(encoding="ascii").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_server_that_serves_says_its_mode_and_its_newest_transaction() -> None:
    assert parse_status(ANSWER) == ServerStatus("leader", 0x20000000A)


def test_a_server_without_a_majority_has_no_status() -> None:
    assert parse_status("This ZooKeeper instance is not currently serving requests\n") is None
    assert parse_status("") is None


def test_a_server_that_is_not_there_answers_nothing(tmp_path: Path) -> None:
    with hold_port("127.0.1.1") as holder:
        server = ZookeeperServer(1, tmp_path, "127.0.1.1", holder.getsockname()[1], 0, 0)
        assert server.ask("srvr") == ""


def test_the_members_of_an_ensemble_know_each_other(tmp_path: Path) -> None:
    ensemble = [make_server(number, tmp_path / str(number)) for number in (1, 2, 3)]
    configure(ensemble[1], ensemble)
    settings = read_settings(ensemble[1])
    assert settings["clientPortAddress"] == "127.0.1.2"
    assert settings["server.3"] == "127.0.1.3:5000:6000"
    assert (ensemble[1].data / "myid").read_text() == "2\n"


def test_a_single_server_is_no_ensemble(tmp_path: Path) -> None:
    server = make_server(1, tmp_path)
    configure(server, [server])
    assert not any(name.startswith("server.") for name in read_settings(server))


def test_a_server_with_a_certificate_is_reached_by_tls(tmp_path: Path) -> None:
    certificate = tmp_path / "server.pem"
    server = ZookeeperServer(1, tmp_path, "127.0.1.1", 1, 2, 3, 4, certificate)
    configure(server, [server])
    settings = read_settings(server)
    assert server.client_address == "127.0.1.1:4"
    assert (settings["clientPort"], settings["secureClientPort"]) == ("1", "4")
    assert settings["ssl.keyStore.location"] == str(certificate)
    assert settings["ssl.clientAuth"] == "none"


def test_a_directory_of_any_name_reaches_java_as_it_is(tmp_path: Path) -> None:
    server = make_server(1, tmp_path / "a b\\ä=#😀")
    configure(server, [server])
    written = read_settings(server)["dataDir"]
    assert written.endswith(r"/a\u0020b\u005c\u00e4=#\ud83d\ude00/data")


def test_a_held_port_is_refused_to_strangers_and_open_to_our_server_again_and_again() -> None:
    with hold_port("127.0.1.1") as holder:
        address = holder.getsockname()
        for _ in range(2):
            with socket.create_server(address) as server:  # sets SO_REUSEADDR, as Java does
                assert server.getsockname() == address
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(address)


@pytest.mark.parametrize("setting", [{"servers": 2}, {"servers": 0}, {"heap_megabytes": 8}])
def test_settings_out_of_range_are_refused_before_anything_starts(
    setting: dict[str, int], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"(servers|heap_megabytes): is \d; give"):
        LocalZookeeper(directory=tmp_path, **setting)
