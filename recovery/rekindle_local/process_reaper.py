"""The watcher: a small process that ends a cluster's processes when their owner is gone.

An owner that is killed (SIGKILL, SIGTERM, the out-of-memory killer) runs no clean-up of its own,
and a worker's executors would outlive a signal on the death of their parent. So the watcher holds
one end of a pipe and a pidfd of the owner; when either ends, it kills every process of the groups
and sessions it was told of, and removes the groups and the directories of temporary files. It
imports only the standard library, cgroups and processes. spark_cluster.py and local_zookeeper.py
start it.

Its arguments: the owner's process id, then the top groups' directories. Its input, by line: `+SID`
for a session that started, `-SID` for one that is over, `=PATH` for a directory to be removed.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rekindle_local import cgroups, process_sets

KILL_SECONDS_MAX = 30.0


class ProcessReaper:
    """The owner's end: started before anything that it shall watch. In the end the directories
    `scratch` are removed."""

    def __init__(self, tops: Sequence[Path], log: Path, scratch: Sequence[Path] = ()) -> None:
        root = str(Path(__file__).parents[1])
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(os.getpid()), *map(str, tops)],
                env={**os.environ, "PYTHONPATH": root},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        for directory in scratch:
            self._tell(f"={directory}\n")

    def add(self, session: int) -> None:
        """Watch a session. Raises `BrokenPipeError` when the watcher is gone."""
        self._tell(f"+{session}\n")

    def drop(self, session: int) -> None:
        """Forget a session that is over: its number may be given to a stranger's."""
        with suppress(BrokenPipeError):
            self._tell(f"-{session}\n")

    def close(self) -> bool:
        """Let the watcher end what is left and remove the groups; whether it did."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        return self._process.wait() == 0

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


def end_processes(tops: Sequence[Path], sessions: Sequence[int]) -> tuple[int, ...]:
    """Kill all processes of groups and sessions, remove the groups; what could not be killed."""

    def list_processes() -> tuple[int, ...]:
        members = [pid for session in sessions for pid in process_sets.session_processes(session)]
        return *cgroups.tree_processes(tops), *members

    left = process_sets.kill_all(list_processes, limit_seconds=KILL_SECONDS_MAX)
    if not left:
        for top in tops:
            cgroups.remove_tree(top)
    return left


def _watch(owner: int) -> str:
    """Read the input until the owner is gone, or its end; all that was read."""
    pipe = sys.stdin.fileno()
    life = _open_life(owner)
    text = b""
    while True:
        awaited = [pipe] if life is None else [pipe, life]
        ready = select.select(awaited, [], [], 0 if life is None else None)[0]
        piece = os.read(pipe, 65536) if pipe in ready else b""
        if not piece:
            return text.decode()
        text += piece


def _open_life(owner: int) -> int | None:
    """A descriptor that becomes readable when the owner dies; None when it is dead already.

    The pipe alone would not do: a child forked by the owner holds its other end too.
    """
    with suppress(ProcessLookupError):
        if os.getppid() == owner:
            return os.pidfd_open(owner)
    return None


def _open_sessions(text: str) -> set[int]:
    sessions: set[int] = set()
    for line in text.splitlines():
        if not line.startswith("="):
            change = sessions.add if line.startswith("+") else sessions.discard
            change(int(line[1:]))
    return sessions


def _main(arguments: Sequence[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    owner, *tops = arguments
    text = _watch(int(owner))
    left = end_processes([Path(top) for top in tops], sorted(_open_sessions(text)))
    for line in text.splitlines():
        if line.startswith("="):
            shutil.rmtree(line[1:], ignore_errors=True)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
