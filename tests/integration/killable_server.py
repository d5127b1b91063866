"""A server on this machine that tests kill and start again: on one port, with one folder.

`object_server` and `name_node` say which program it is.
"""

import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rekindle_local import port_reservation, process_sets

HOST = "127.0.0.1"


@dataclass(slots=True, kw_only=True)
class KillableServer:
    """A folder for what it keeps and logs; the port is the same for every start."""

    folder: Path
    holder: socket.socket = field(init=False)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.holder = port_reservation.hold_port(HOST)

    @property
    def port(self) -> int:
        """The same for every start."""
        return int(self.holder.getsockname()[1])

    def launch(
        self,
        command: Sequence[object],
        is_up: Callable[[], bool],
        seconds_max: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it, and wait until it is up."""
        with (self.folder / "log").open("ab") as log:
            process = self.process = subprocess.Popen(
                list(map(str, command)),
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

        def is_up_or_ended() -> bool:
            assert process.poll() is None, (self.folder / "log").read_text()[-2000:]
            return is_up()

        up = process_sets.await_condition(is_up_or_ended, limit_seconds=seconds_max)
        assert up, f"it did not start: {(self.folder / 'log').read_text()[-2000:]}"

    def kill(self) -> None:
        """SIGKILL; what it was told is on disk."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self.holder.close()
