"""The local ZooKeeper, with real servers: they die, fall silent, come back, and leave nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.retry import KazooRetry
from waiting import wait_until

from rekindle.model.errors import InputError, RunError
from rekindle_local import process_sets
from rekindle_local.local_zookeeper import LocalZookeeper

SOURCES = str(Path(process_sets.__file__).parents[1])
WAIT_SECONDS_MAX = 120

OWNER = """
import sys
from pathlib import Path
from rekindle_local.local_zookeeper import LocalZookeeper

with LocalZookeeper(directory=Path(sys.argv[1])) as zookeeper:
    print(*zookeeper.processes(1), flush=True)
    sys.stdin.read()
"""

Connect = Callable[..., KazooClient]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZookeeper]:
    with LocalZookeeper(directory=tmp_path_factory.mktemp("ensemble"), servers=3) as zookeeper:
        yield zookeeper


@pytest.fixture
def whole(ensemble: LocalZookeeper) -> LocalZookeeper:
    """The ensemble with all three serving, whatever the test before has done to it."""
    ensemble.proceed(*ensemble.servers)
    down = [server for server in ensemble.servers if not ensemble.processes(server)]
    ensemble.start_server(*down)
    wait_until(lambda: all(ensemble.mode(server) for server in ensemble.servers))
    return ensemble


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients that try again for ever; ends them."""
    clients: list[KazooClient] = []

    def start(zookeeper: LocalZookeeper, timeout_seconds: float = 10) -> KazooClient:
        again = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}
        clients.append(
            KazooClient(
                hosts=zookeeper.connect_string,
                timeout=timeout_seconds,
                connection_retry=KazooRetry(**again),
                command_retry=KazooRetry(**again),
            )
        )
        clients[-1].start(timeout=WAIT_SECONDS_MAX)
        return clients[-1]

    yield start
    for client in clients:
        client.stop()
        client.close()


def test_a_killed_server_comes_back_with_its_data_and_its_sessions(
    tmp_path: Path, connect: Connect
) -> None:
    with LocalZookeeper(directory=tmp_path) as zookeeper:
        assert zookeeper.leader() == 1
        assert zookeeper.mode(1) == "standalone"
        client = connect(zookeeper, timeout_seconds=40)
        session = client.client_id
        client.create("/kept", b"value", ephemeral=True)
        zookeeper.kill(1)
        assert zookeeper.leader() is None
        zookeeper.start_server(1)
        assert client.retry(client.get, "/kept")[0] == b"value"
        assert client.client_id == session


def test_one_of_three_leads_and_the_others_follow(whole: LocalZookeeper) -> None:
    leader = whole.leader()
    assert leader is not None
    modes = {server: whole.mode(server) for server in whole.servers}
    assert modes == {
        server: "leader" if server == leader else "follower" for server in whole.servers
    }


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_clients_go_on_when_a_server_is_killed(
    victim: str, whole: LocalZookeeper, connect: Connect
) -> None:
    client = connect(whole)
    path = client.create("/count-", b"0", sequence=True)
    number = next(server for server in whole.servers if whole.mode(server) == victim)
    for count in range(1, 21):
        if count == 10:
            whole.kill(number)
        client.retry(client.set, path, str(count).encode())
    wait_until(lambda: whole.leader() not in (None, number))  # of a busy one no answer may come
    whole.start_server(number)
    wait_until(lambda: whole.mode(number) == "follower")
    client.sync(path)
    assert client.retry(client.get, path)[0] == b"20"


def test_a_leader_that_falls_silent_is_replaced_and_follows_when_it_proceeds(
    whole: LocalZookeeper,
) -> None:
    before = whole.leader()
    assert before is not None
    whole.stop(before)
    leaders: list[int | None] = []

    def is_replaced() -> bool:
        leaders.append(whole.leader())  # of a busy one no answer may come
        return leaders[-1] is not None

    wait_until(is_replaced)
    assert leaders[-1] != before
    whole.proceed(before)
    wait_until(lambda: whole.mode(before) == "follower")
    wait_until(lambda: whole.leader() == leaders[-1])


def test_without_a_majority_clients_wait_and_find_their_data_when_it_is_back(
    whole: LocalZookeeper, connect: Connect
) -> None:
    client = connect(whole, timeout_seconds=40)
    path = client.create("/kept-", b"value", sequence=True)
    last, *majority = whole.servers
    whole.kill(*majority)
    wait_until(lambda: whole.leader() is None)
    wait_until(lambda: client.state == KazooState.SUSPENDED)
    whole.kill(last)
    whole.start_server(last)  # no majority, yet it comes up
    assert whole.mode(last) is None
    whole.start_server(*majority)
    wait_until(lambda: client.state == KazooState.CONNECTED)
    assert client.retry(client.get, path)[0] == b"value"


@pytest.mark.parametrize(("asked", "granted"), [(1, 4), (10, 10), (60, 40)])
def test_sessions_are_granted_time_outs_from_4_to_40_seconds(
    asked: int,
    granted: int,
    whole: LocalZookeeper,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(5, logger="kazoo"):  # below DEBUG
        connect(whole, timeout_seconds=asked)
    assert f"negotiated session timeout: {granted * 1000}" in caplog.text


def test_a_running_server_is_not_started_twice(whole: LocalZookeeper) -> None:
    with pytest.raises(RunError, match="kill the server first"):
        whole.start_server(2)


def test_an_unknown_server_is_refused(whole: LocalZookeeper) -> None:
    with pytest.raises(InputError, match="name one of 1 to 3"):
        whole.kill(4)


def test_nothing_is_left_when_it_is_closed(tmp_path: Path) -> None:
    zookeeper = LocalZookeeper(directory=tmp_path)
    with zookeeper:
        started = find_children(os.getpid())
        pids = zookeeper.processes(1)
        assert set(pids) <= set(started)
    assert not any(is_alive(pid) for pid in pids)
    assert not any(str(tmp_path) in read_command(pid) for pid in find_children(os.getpid()))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_owner_is_ended_by(number: signal.Signals, tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    try:
        (server,) = [int(word) for word in owner.stdout.readline().split()]
        started = find_children(owner.pid)
        assert server in started
    finally:
        owner.send_signal(number)
        owner.wait()
    wait_until(lambda: not any(is_alive(pid) for pid in started))


def test_a_server_that_cannot_start_names_its_log_and_leaves_nothing(tmp_path: Path) -> None:
    data = tmp_path / "server-1" / "data"
    data.mkdir(parents=True)
    (data / "version-2").write_text("a file where the server wants a directory")
    zookeeper = LocalZookeeper(directory=tmp_path)
    with pytest.raises(RunError, match=r"server-1-1\.log: .* exit code \d+; read this log"):
        zookeeper.start()
    assert not any(str(tmp_path) in read_command(pid) for pid in find_children(os.getpid()))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "XZ"


def read_command(pid: int) -> str:
    """The command line of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def find_children(pid: int) -> list[int]:
    """Of an owner: watcher and servers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in children.split()]
