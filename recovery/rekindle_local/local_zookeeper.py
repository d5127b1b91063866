"""A ZooKeeper of local processes: one server, or an ensemble, on loopback hosts of their own.

Servers are killed, stopped and started one by one, like the nodes of spark_cluster.py, and like
those they leave nothing behind, however their owner ends. Their data stays in the directory:
started there again, they go on with it. It knows nothing of what is kept in it.

The demo, the benchmarks and the integration tests call it. Calls about different servers may come
from different threads.
"""

import atexit
import os
from contextlib import ExitStack
from pathlib import Path

from rekindle.model.errors import InputError, RunError
from rekindle_local import process_sets, spark_distribution, zookeeper_server
from rekindle_local.daemons import Daemon, DaemonGroup, end_daemons
from rekindle_local.port_reservation import hold_port
from rekindle_local.process_reaper import ProcessReaper
from rekindle_local.zookeeper_server import ServerStatus, ZookeeperServer

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
        self._class_path = zookeeper_server.find_class_path(
            self._distribution, tls=self._certificate is not None
        )
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
            raise self._failed_start(max(awaited, key=self._has_ended))

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
        zookeeper_server.configure(member, [*self._members.values()])
        command = zookeeper_server.build_command(
            self._distribution, self._class_path, member, heap_megabytes=self._heap_megabytes
        )
        self._daemons[number].launch(command, os.environ, self._watcher)

    def _are_settled(self, awaited: set[int]) -> bool:
        """Take the ready out of `awaited`; whether none is left there, or one that has ended."""
        if self._has_majority():
            awaited -= {number for number in awaited if self._status(number) is not None}
        else:
            awaited -= {n for n in awaited if self._members[n].ask("ruok") == "imok"}
        return not awaited or any(map(self._has_ended, awaited))

    def _status(self, number: int) -> ServerStatus | None:
        self._daemon(number)
        if number in self._stopped:
            return None  # else each question would take its whole limit
        return zookeeper_server.parse_status(self._members[number].ask("srvr"))

    def _has_ended(self, number: int) -> bool:
        leader = self._daemons[number].leader
        return leader is None or leader.poll() is not None

    def _has_majority(self) -> bool:
        running = {number for number in self.servers if not self._has_ended(number)}
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
