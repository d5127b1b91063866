"""One server of a local ZooKeeper: its configuration, its command line, and its answers.

It comes from the jars of the pyspark wheel. This module starts nothing and holds no port;
local_zookeeper.py does, its caller.
"""

import re
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_local.spark_distribution import SMALL_NODE_OPTIONS, Distribution

ANSWER_SECONDS_MAX = 2.0
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
        """The answer to a four-letter word; empty when there is none within 2 s."""
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


def find_class_path(distribution: Distribution, *, tls: bool = False) -> str:
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
