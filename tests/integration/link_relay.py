"""Cut ports, and a relay in the path of all links: it holds up, slows down and repeats what passes.

Both take root and iptables. The kernel redirects connections to the port of links to the relay,
whose own come from an address that no node has. It knows as much of the protocol as it takes to
find messages with blocks: frames of Spark's network library with a question in each (`RpcRequest`),
and in that the messages of `LinkedTask.java`.
"""

import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO

import loud_skips

ADDRESS = "127.0.0.99"
# Of a frame: its length with this field, its type, its number, the length of its message.
HEADER = struct.Struct(">qbqi")
QUESTION, BLOCKS, STORED = 3, 1, 3
# SO_ORIGINAL_DST: where a connection was made to before the kernel redirected it.
ORIGINAL_PLACE, PLACE_BYTES = 80, 16
PLACE = struct.Struct("!2xH4s8x")
CHUNK_BYTES = 1 << 16


@contextmanager
def cut(ports: Collection[int]) -> Iterator[None]:
    """Nobody reaches these ports of this machine."""
    if shutil.which("iptables") is None:
        loud_skips.skip("a cut link takes iptables")
    named = ",".join(map(str, sorted(ports)))
    rule = ["OUTPUT", "-p", "tcp", "-m", "multiport", "--dports", named, "-j", "DROP"]
    made = subprocess.run(
        ["iptables", "-w", "-I", *rule], capture_output=True, text=True, check=False
    )
    if made.returncode:
        loud_skips.skip(f"a cut link takes root: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["iptables", "-w", "-D", *rule], check=True)


@dataclass(slots=True)
class LinkRelay:
    """The relay of one port, on all nodes. `slow` has the bytes a second that come to a node;
    `repeats`: what has blocks is sent twice, and once more what came first to this node. `repeated`
    counts these, `slow_seconds` adds up how long messages have taken to slow nodes."""

    port: int
    slow: dict[str, float] = field(default_factory=dict)
    slow_seconds: float = 0.0
    repeats: bool = False
    repeated: int = 0
    is_open: threading.Event = field(default_factory=threading.Event)
    listening: socket.socket = field(default_factory=socket.socket)

    def __enter__(self) -> "LinkRelay":
        if shutil.which("iptables") is None:
            loud_skips.skip("a relay of links takes iptables")
        self.is_open.set()
        self.listening.bind(("127.0.0.1", 0))
        self.listening.listen()
        redirected = subprocess.run(self._rule("-I"), capture_output=True, text=True, check=False)
        if redirected.returncode:
            self.listening.close()
            loud_skips.skip(f"a relay of links takes root: {redirected.stderr.strip()}")
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(self._rule("-D"), check=True)
        self.is_open.set()
        self.listening.close()

    def _rule(self, action: str) -> list[str]:
        words = f"-p tcp -o lo --dport {self.port} ! -s {ADDRESS} -j REDIRECT --to-ports"
        own = self.listening.getsockname()[1]
        return ["iptables", "-w", "-t", "nat", action, "OUTPUT", *words.split(), str(own)]

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                asking, _ = self.listening.accept()
                threading.Thread(target=self._connect, args=(asking,), daemon=True).start()

    def _connect(self, asking: socket.socket) -> None:
        place = asking.getsockopt(socket.SOL_IP, ORIGINAL_PLACE, PLACE_BYTES)
        port, packed = PLACE.unpack(place)
        node = socket.inet_ntoa(packed)
        try:
            asked = socket.create_connection((node, port), source_address=(ADDRESS, 0))
        except OSError:
            asking.close()
            return
        answers = threading.Thread(target=self._pass_answers, args=(asked, asking), daemon=True)
        answers.start()
        self._pass_questions(asking, asked, node)

    def _pass_questions(self, asking: socket.socket, asked: socket.socket, node: str) -> None:
        first = b""
        with suppress(OSError), asking, asked, asking.makefile("rb") as read:
            for frame in frames(read):
                self.is_open.wait()
                if rate := self.slow.get(node):
                    time.sleep(len(frame) / rate)
                    self.slow_seconds += len(frame) / rate
                asked.sendall(frame)
                if not has_blocks(frame):
                    continue
                first = first or frame
                if self.repeats:
                    asked.sendall(frame + first)
                    self.repeated += 1

    def _pass_answers(self, asked: socket.socket, asking: socket.socket) -> None:
        with suppress(OSError):
            while data := asked.recv(CHUNK_BYTES):
                self.is_open.wait()
                asking.sendall(data)
            asking.shutdown(socket.SHUT_RDWR)


def frames(read: BinaryIO) -> Iterator[bytes]:
    """All frames of a connection, until it ends."""
    while len(length := read.read(8)) == 8:
        yield length + read.read(struct.unpack(">q", length)[0] - 8)


def has_blocks(frame: bytes) -> bool:
    """Whether a frame is a message with blocks of a task's output, or that says where they are."""
    if len(frame) <= HEADER.size:
        return False
    _, kind, *_ = HEADER.unpack_from(frame)
    return kind == QUESTION and frame[HEADER.size] in (BLOCKS, STORED)
