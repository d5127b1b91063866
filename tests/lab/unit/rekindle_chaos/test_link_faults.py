"""Links between nodes that are cut: packets of the one to the other are dropped, and no others."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rekindle.model.errors import InputError
from rekindle_chaos import link_faults
from rekindle_chaos.link_faults import ClusterLinks, LinkedCluster
from rekindle_cli import command_line

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.3)"


def are_possible() -> bool:
    try:
        link_faults.check_possible()
    except InputError:
        return False
    return True


needs_filter = pytest.mark.skipif(not are_possible(), reason="no iptables that match owners")


@pytest.fixture
def two_links(tmp_path: object) -> Iterator[ClusterLinks]:
    cluster = LinkedCluster(directory=tmp_path, nodes=3, cpu_quota=None)  # type: ignore[arg-type]
    found = ClusterLinks(cluster)
    yield found
    found.join_all()


def reaches(index: int, listener: socket.socket) -> bool:
    """Whether a process of a node can connect."""
    host, port = listener.getsockname()
    line = [*link_faults.in_group(index), sys.executable, "-c", CONNECT, host, str(port)]
    return subprocess.run(line, stderr=subprocess.DEVNULL, check=False).returncode == 0


@needs_filter
def test_two_nodes_do_not_reach_each_other_and_all_others_do(two_links: ClusterLinks) -> None:
    first, second, third = (node.name for node in two_links.cluster.nodes)
    with socket.create_server((first, 0)) as one, socket.create_server((second, 0)) as other:
        two_links.cut([first, second])
        two_links.cut([second, first])
        assert not reaches(0, other)
        assert not reaches(1, one)
        assert reaches(2, one)
        assert reaches(0, one)
        two_links.join([first, second])
        assert reaches(0, other)
        assert reaches(1, one)
    two_links.join([first, third])
    assert two_links.cuts == set()


def test_links_are_asked_for_only_where_they_can_be_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert command_line.run(command_line.application, ["chaos", "--links", "--seeds", "1"]) == 2
    assert capsys.readouterr().err.startswith("--links: needs setpriv, iptables; leave it out")
