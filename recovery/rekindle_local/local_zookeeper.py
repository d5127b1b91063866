"""A ZooKeeper of local processes: one server, or an ensemble, on loopback hosts of their own.

Servers are killed, stopped and started one by one, like the nodes of spark_cluster.py, and like
those they leave nothing behind, however their owner ends. Their data stays in the directory:
started there again, they go on with it. It knows nothing of what is kept in it.

The demo, the benchmarks and the integration tests call it. Calls about different servers may come
from different threads.
"""

import atexit
import os
import re
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import InputError, RunError
from rekindle_local import process_sets, spark_distribution
from rekindle_local.daemons import Daemon, DaemonGroup, end_daemons
from rekindle_local.port_reservation import hold_port
from rekindle_local.process_reaper import ProcessReaper
from rekindle_local.spark_distribution import SMALL_NODE_OPTIONS, Distribution

# One server of a local ZooKeeper: its configuration, its command line, and its answers.
#
# It comes from the jars of the pyspark wheel. This part starts nothing and holds no port.

ANSWER_SECONDS_MAX = 10.0
ANSWER_BYTES_MAX = 65536
# A session ends at a tick. A short one keeps the end close to the time-out, and a server that has
# lost its leader looks for another after 5 s instead of 20 s.
TICK_MILLISECONDS = 500
SETTINGS = {
    "tickTime": TICK_MILLISECONDS,
    "minSessionTimeout": 4_000,
    "maxSessionTimeout": 40_000,
    "initLimit": 30_000 // TICK_MILLISECONDS,
    "syncLimit": 5_000 // TICK_MILLISECONDS,
    "maxClientCnxns": 4096,  # for each address, and all clients come from one
    "autopurge.snapRetainCount": 3,
    "autopurge.purgeInterval": 1,  # hours
    "preAllocSize": 1024,  # KB of zeros at the end of a log, instead of 64 MB
    # As the chart's, so that what is measured here holds there.
    "snapCount": 50_000,
    "snapSizeLimitInKb": 131_072,
    "snapshot.compression.method": "gz",
    # What the kernel has been given outlives a killed server; only a machine's crash needs more.
    "forceSync": "no",
    "admin.enableServer": "false",
    # Where somebody has set a quota it holds; without this it would only be logged.
    "enforceQuota": "true",
    "4lw.commands.whitelist": "ruok,srvr,mntr,dirs",
}
# It runs a single server too, by ZooKeeperServerMain, and unlike that purges old snapshots.
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Not all of Spark's jars: with them a server takes 1.4 s of CPU to start instead of 0.8 s.
_JARS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
)
# Besides, for TLS.
_TLS_JARS = tuple(
    f"netty-{part}-[0-9]*.jar"
    for part in (
        "buffer",
        "codec-base",
        "common",
        "handler",
        "resolver",
        "transport",
        "transport-classes-epoll",
        "transport-native-unix-common",
    )
)
_STATUS = re.compile(r"^Zxid: 0x([0-9a-f]+)\s*^Mode: (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ZookeeperServer:
    """A server: `number` is its `myid`; it has ports for clients, for followers and for votes. With
    `certificate`, a PEM file with key and chain, it serves TLS on `secure_port`."""

    number: int
    directory: Path
    host: str
    client_port: int
    follower_port: int
    vote_port: int
    secure_port: int = 0
    certificate: Path | None = None

    @property
    def configuration(self) -> Path:
        return self.directory / "zoo.cfg"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def client_address(self) -> str:
        """Where clients reach it: by TLS where it has a certificate."""
        port = self.client_port if self.certificate is None else self.secure_port
        return f"{self.host}:{port}"

    def ask(self, word: str) -> str:
        """The answer to a four-letter word; empty when there is none within 10 s."""
        answer = b""
        try:
            with socket.create_connection(
                (self.host, self.client_port), timeout=ANSWER_SECONDS_MAX
            ) as connection:
                connection.sendall(word.encode())
                while len(answer) < ANSWER_BYTES_MAX and (piece := connection.recv(4096)):
                    answer += piece
        except OSError:
            return ""
        return answer.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What a server says while it serves: `mode` is standalone, leader or follower, `zxid` the
    newest transaction, with the number of the leadership in its upper half."""

    mode: str
    zxid: int


def parse_status(answer: str) -> ServerStatus | None:
    """The status in the answer to `srvr`; None while the server has no part in a majority."""
    match = _STATUS.search(answer)
    return None if match is None else ServerStatus(mode=match[2], zxid=int(match[1], 16))


def configure(server: ZookeeperServer, ensemble: Sequence[ZookeeperServer]) -> None:
    """Write what the server reads at its start. Raises `OSError` where that cannot be written."""
    settings: dict[str, object] = {
        **SETTINGS,
        "dataDir": server.data,
        "clientPortAddress": server.host,
        "clientPort": server.client_port,
    }
    if server.certificate is not None:
        settings |= {
            "secureClientPortAddress": server.host,
            "secureClientPort": server.secure_port,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.clientAuth": "none",
            "ssl.keyStore.type": "PEM",
            "ssl.keyStore.location": server.certificate,
            # Clients show none; but without it each connection is a warning in the log.
            "ssl.trustStore.type": "PEM",
            "ssl.trustStore.location": server.certificate,
            "client.certReload": "true",
        }
    if len(ensemble) > 1:
        for peer in ensemble:
            settings[f"server.{peer.number}"] = f"{peer.host}:{peer.follower_port}:{peer.vote_port}"
    lines = [f"{name}={_escape(str(value))}\n" for name, value in settings.items()]
    server.data.mkdir(parents=True, exist_ok=True)
    (server.data / "myid").write_text(f"{server.number}\n")
    server.configuration.write_text("".join(lines), encoding="ascii")


def find_class_path(distribution: Distribution, *, tls: bool) -> str:
    """The class path of a server. Raises `InputError` when the wheel lacks a jar of it."""
    folder = distribution.spark_home / "jars"
    patterns = (*_JARS, *(_TLS_JARS if tls else ()))
    found = {pattern: sorted(folder.glob(pattern)) for pattern in patterns}
    for pattern, jars in found.items():
        if not jars:
            raise InputError(
                where=str(folder), what=f"holds no {pattern}", remedy="reinstall pyspark"
            )
    return ":".join(str(jar) for jars in found.values() for jar in jars)


def build_command(
    distribution: Distribution, class_path: str, server: ZookeeperServer, *, heap_megabytes: int
) -> list[str]:
    """The command line of a server; its log goes to standard output."""
    options = (f"-Xmx{heap_megabytes}m", *SMALL_NODE_OPTIONS, "-XX:+ExitOnOutOfMemoryError")
    java = (str(distribution.java), *options, "-Dlog4j2.level=INFO", "-cp", class_path)
    return [*java, _MAIN, str(server.configuration)]


def _escape(value: str) -> str:
    """As Java reads it in a properties file: in ASCII, what may mean something else as \\uXXXX."""
    units = struct.iter_unpack(">H", value.encode("utf-16-be"))
    return "".join(
        chr(unit) if 32 < unit < 127 and unit != ord("\\") else f"\\u{unit:04x}"
        for (unit,) in units
    )


START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 10.0
HEAP_MEGABYTES = 128
SIZES = (1, 3, 5)


class LocalZookeeper(DaemonGroup):
    """A context manager: inside, all servers serve; after it, no process is left.

    `servers` is their number; they are called 1 to that. `directory` takes logs, configuration and
    data, `heap_megabytes` bounds the heap of each server. With `certificate`, a PEM file with key
    and chain for the loopback hosts, clients reach all by TLS; servers read a file that has
    changed. Raises `InputError` for a setting out of range.
    """

    def __init__(
        self,
        *,
        directory: Path,
        servers: int = 1,
        heap_megabytes: int = HEAP_MEGABYTES,
        certificate: Path | None = None,
    ) -> None:
        if servers not in SIZES:
            raise InputError(
                where="servers", what=f"is {servers}", remedy=f"give one of {[*SIZES]}"
            )
        if not 32 <= heap_megabytes <= 1 << 16:
            raise InputError(
                where="heap_megabytes",
                what=f"is {heap_megabytes}",
                remedy="give a number from 32 to 65536",
            )
        self.servers = tuple(range(1, servers + 1))
        self.directory = directory.absolute()
        self._heap_megabytes = heap_megabytes
        self._certificate = None if certificate is None else certificate.absolute()
        self._owner = os.getpid()
        self._held = ExitStack()
        self._watcher: ProcessReaper | None = None
        self._members: dict[int, ZookeeperServer] = {}
        self._daemons: dict[int, Daemon] = {}
        self._stopped: set[int] = set()

    @property
    def logs(self) -> Path:
        """Logs of servers and watcher."""
        return self.directory / "logs"

    @property
    def connect_string(self) -> str:
        """`HOST:PORT` of every server, with commas between, as clients want it."""
        return ",".join(member.client_address for member in self._members.values())

    def start(self) -> None:
        """Start all servers at once and wait until they serve.

        Raises `InputError` when java or pyspark is missing, `RunError` when a server does not come
        up; then nothing is left running.
        """
        self._distribution = spark_distribution.find_distribution()
        self._class_path = find_class_path(self._distribution, tls=self._certificate is not None)
        self.logs.mkdir(parents=True, exist_ok=True)
        atexit.register(self.close)
        try:
            self._watcher = ProcessReaper((), self.logs / "watcher.log")
            self._members = {number: self._make_member(number) for number in self.servers}
            self._daemons = {
                number: Daemon(f"server-{number}", self.logs, None) for number in self.servers
            }
            self.start_server(*self.servers)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every server; data and logs stay. Safe to repeat."""
        if self._watcher is None or os.getpid() != self._owner:
            return
        try:
            end_daemons([*self._daemons.values()], self._watcher)
        finally:
            self._watcher.close()
            self._watcher = None
            self._held.close()
            atexit.unregister(self.close)

    def start_server(self, *servers: int) -> None:
        """Start servers that do not run, with the data that they had.

        Waits until they serve, or, where those that run are no majority, until they answer.
        """
        for number in servers:
            if self._daemon(number).leader is not None:
                raise RunError(
                    where=f"server {number}", what="is running", remedy="kill the server first"
                )
        for number in servers:
            self._launch(number)
        awaited = set(servers)
        process_sets.await_condition(
            lambda: self._are_settled(awaited),
            limit_seconds=START_SECONDS_MAX,
            interval_seconds=0.05,
        )
        if awaited:
            raise self._failed_start(max(awaited, key=lambda one: self._daemons[one].has_ended))

    def kill(self, *servers: int) -> None:
        """SIGKILL these servers, as close together as can be; returns when they are gone.

        A server that is down already stays down.
        """
        assert self._watcher is not None
        end_daemons([self._daemon(number) for number in servers], self._watcher)
        self._stopped.difference_update(servers)

    def stop(self, *servers: int) -> None:
        """SIGSTOP these servers: they fall silent, with their connections open."""
        for number in servers:
            daemon = self._daemon(number)
            self._stopped.add(number)
            left = process_sets.stop_all(daemon.processes, limit_seconds=STOP_SECONDS_MAX)
            if left:
                raise RunError(
                    where=f"server {number}",
                    what=f"did not stop within {STOP_SECONDS_MAX:.0f} s",
                    remedy="see whether something else continues it",
                )

    def proceed(self, *servers: int) -> None:
        """SIGCONT these servers."""
        for number in servers:
            process_sets.continue_all(self._daemon(number).processes)
            self._stopped.discard(number)

    def mode(self, server: int) -> str | None:
        """`standalone`, `leader` or `follower`; None while the server does not serve."""
        status = self._status(server)
        return None if status is None else status.mode

    def leader(self) -> int | None:
        """The server that leads now, a single one itself; None while there is none."""
        statuses = {number: self._status(number) for number in self.servers}
        leading = {
            number: status.zxid
            for number, status in statuses.items()
            if status is not None and status.mode in ("leader", "standalone")
        }
        # One that was stopped says for a moment that it leads; its successor's number is higher.
        return max(leading, key=leading.__getitem__, default=None)

    def leading_processes(self) -> list[int]:
        """Ids of the processes that lead the servers that run, one for each."""
        leaders = (daemon.leader for daemon in self._daemons.values())
        return [leader.pid for leader in leaders if leader is not None]

    def processes(self, server: int) -> tuple[int, ...]:
        """Ids of the server's living processes."""
        return self._daemon(server).processes()

    def _make_member(self, number: int) -> ZookeeperServer:
        host = f"127.0.1.{number}"
        client, follower, vote, secure = (self._hold_port(host) for _ in range(4))
        folder = self.directory / f"server-{number}"
        return ZookeeperServer(
            number, folder, host, client, follower, vote, secure, self._certificate
        )

    def _hold_port(self, host: str) -> int:
        try:
            holder = self._held.enter_context(hold_port(host))
        except OSError as error:
            raise RunError(
                where=host,
                what=f"no port can be held: {error.strerror}",
                remedy="see whether this loopback host is up and has free ports",
            ) from error
        port: int = holder.getsockname()[1]
        return port

    def _launch(self, number: int) -> None:
        assert self._watcher is not None
        member = self._members[number]
        configure(member, [*self._members.values()])
        command = build_command(
            self._distribution, self._class_path, member, heap_megabytes=self._heap_megabytes
        )
        self._daemons[number].launch(command, os.environ, self._watcher)

    def _are_settled(self, awaited: set[int]) -> bool:
        """Take the ready out of `awaited`; whether none is left there, or one that has ended."""
        if self._has_majority():
            awaited -= {number for number in awaited if self._status(number) is not None}
        else:
            awaited -= {n for n in awaited if self._members[n].ask("ruok") == "imok"}
        return not awaited or any(self._daemons[number].has_ended for number in awaited)

    def _status(self, number: int) -> ServerStatus | None:
        self._daemon(number)
        if number in self._stopped:
            return None  # else each question would take its whole limit
        return parse_status(self._members[number].ask("srvr"))

    def _has_majority(self) -> bool:
        running = {number for number in self.servers if not self._daemons[number].has_ended}
        return 2 * len(running - self._stopped) > len(self.servers)

    def _failed_start(self, number: int) -> RunError:
        daemon = self._daemons[number]
        code = None if daemon.leader is None else daemon.leader.poll()
        end = f"not up within {START_SECONDS_MAX:.0f} s" if code is None else f"exit code {code}"
        return RunError(
            where=str(daemon.log),
            what=f"{daemon.name} did not start: {end}",
            remedy="read this log",
        )

    def _daemon(self, number: int) -> Daemon:
        daemon = self._daemons.get(number)
        if daemon is None:
            raise InputError(
                where=f"server {number!r}",
                what="is no server of the running ZooKeeper",
                remedy=f"name one of 1 to {len(self.servers)}",
            )
        return daemon
