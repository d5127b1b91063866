"""The namespaces that hold a machine of the cluster together, so that it dies at once.

The first process of a namespace of processes is all that keeps it: with a SIGKILL to it the kernel
ends every process on the machine, containers too, and with the last of them go its mounts, its
links and its routes. So nothing of a machine outlives its owner, whose watcher knows this process.

On a machine /run, /var/lib and /var/log are its own. Everything else is this host's: programs, the
folder of the cluster, the shared folder. cluster_node.py, image_template.py and cluster_dns.py run
programs on it.
"""

import os
import re
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from rekindle.model.errors import RunError
from rekindle_local import process_sets
from rekindle_local.daemons import Daemon, end_daemons
from rekindle_local.process_reaper import ProcessReaper
from testbed import program_runs
from testbed.cluster.machine_cgroups import MachineCgroups

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
# These folders of the host are not to be seen on a machine.
HIDDEN = (Path("/run"), Path("/var/lib"), Path("/var/log"))
END_SECONDS_MAX = 30.0
# Of a command on a machine; the longest imports an image of some gigabytes.
COMMAND_SECONDS_MAX = 900.0
_UP = re.compile("machine is up")
_LIFE = "life"
# A kubelet sets these for the whole host. It sees files of ours in their place that say what it
# wants, and so it leaves them alone.
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
# $1 is the machine's folder, $2 its name. The shell stays as the first process and buries orphans.
_FIRST = """set -e
mount --make-rshared /
mount -t tmpfs -o mode=755 run /run
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
(cd "$1/kernel" && find . -type f) | while read -r file; do
  [ ! -e "/proc/sys/$file" ] || mount --bind "$1/kernel/$file" "/proc/sys/$file"
done
echo "$2" > /proc/sys/kernel/hostname
ip link set lo up
echo machine is up
while :; do sleep 86400; done
"""
_ENTER = 'while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"'


class NamespacedMachine:
    """A machine that can be started, and again once it was buried. `folder` and its group go with
    it, logs stay."""

    def __init__(
        self, name: str, folder: Path, logs: Path, groups: MachineCgroups, watcher: ProcessReaper
    ) -> None:
        self.name = name
        self.folder = folder
        self._groups = groups
        self._logs = logs
        self._watcher = watcher
        self._daemons: dict[str, Daemon] = {}
        self._first: int | None = None
        self._first_ticks: int | None = None

    @property
    def pid(self) -> int:
        """The id of its first process, as the host has it."""
        assert self._first is not None, "the machine is not up"
        return self._first

    @property
    def settings(self) -> Path:
        """A folder for configuration, in the same place on host and machine."""
        return self.folder / "settings"

    def start(self, quota_cores: float | None = None) -> None:
        """Make the namespaces; returns when they are there. Raises `RunError` when they are not."""
        for name in ("lib", "log", "settings"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name, value in _KERNEL_SETTINGS.items():
            file = self.folder / "kernel" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
        self._groups.create(self.name, quota_cores)
        spaces = ("--mount", "--propagation=private", "--net", "--uts", "--ipc", "--pid")
        first = ("/bin/sh", "-c", _FIRST, "machine", str(self.folder), self.name)
        command = ["unshare", *spaces, "--fork", "--kill-child", "--mount-proc", *first]
        daemon = self.launch(_LIFE, self._entering(command))
        daemon.await_line(_UP)
        assert daemon.leader is not None
        leader = daemon.leader.pid
        self._first = int(Path(f"/proc/{leader}/task/{leader}/children").read_text())
        self._first_ticks = process_sets.start_ticks(self._first)

    def start_program(self, name: str, *command: str | Path) -> Daemon:
        """Start a program on the machine, which runs on; its log is MACHINE-NAME-1.log."""
        return self.launch(name, self._entering(self._within(command)))

    def launch(self, name: str, command: Sequence[str]) -> Daemon:
        daemon = self._daemons.setdefault(name, Daemon(f"{self.name}-{name}", self._logs, None))
        daemon.launch(command, ENVIRONMENT, self._watcher)
        return daemon

    def end_program(self, name: str) -> None:
        """SIGKILL a program, but not what it has started in sessions of their own."""
        end_daemons([self._daemons[name]], self._watcher)

    def stop_program(self, name: str) -> None:
        """SIGTERM a program, and SIGKILL if that does not end it."""
        daemon = self._daemons[name]
        process_sets.signal_all(daemon.processes(), signal.SIGTERM)
        process_sets.await_condition(
            lambda: not daemon.processes(), limit_seconds=END_SECONDS_MAX / 3
        )
        self.end_program(name)

    def has_ended(self, name: str) -> bool:
        """Whether a program is not running."""
        daemon = self._daemons.get(name)
        return daemon is None or daemon.has_ended

    def log(self, name: str) -> Path:
        """The log of a program's present life."""
        return self._daemons[name].log

    def run(self, *command: str | Path, content: IO[bytes] | None = None) -> str:
        """What a command on the machine prints. Raises `RunError` when it fails."""
        return program_runs.run(
            self._entering(self._within(command)),
            where=f"{self.name}: {' '.join(map(str, command))[:120]}",
            remedy=f"see the logs in {self._logs}",
            seconds_max=COMMAND_SECONDS_MAX,
            env=ENVIRONMENT,
            **({} if content is None else {"stdin": content}),
        )

    def processes(self) -> tuple[int, ...]:
        """Ids of all processes on the machine, containers' too."""
        return self._groups.processes(self.name)

    def strike(self) -> None:
        """SIGKILL to the first process: from here on nothing on the machine runs a line."""
        first, self._first = self._first, None
        ticks = None if first is None else process_sets.start_ticks(first)
        # One that has died by itself has left its number to whoever was started then.
        if first is not None and ticks is not None and ticks == self._first_ticks:
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)

    def bury(self) -> None:
        """Wait until nothing is left of a machine that was struck; remove group and folder.

        Raises `RunError` when something does not die within 30 s.
        """
        left = process_sets.kill_all(self.processes, limit_seconds=END_SECONDS_MAX)
        if left:
            raise RunError(
                where=f"{self.name}: processes {list(left)}",
                what=f"still there {END_SECONDS_MAX:.0f} s after SIGKILL",
                remedy="see in /proc/PID/stack what the kernel does with them",
            )
        end_daemons([*self._daemons.values()], self._watcher)
        self._groups.remove(self.name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _within(self, command: Sequence[str | Path]) -> list[str]:
        spaces = ("--mount", "--net", "--uts", "--ipc", "--pid")
        return ["nsenter", f"--target={self.pid}", *spaces, "--", *map(str, command)]

    def _entering(self, command: Sequence[str]) -> list[str]:
        """The command, by way of the machine's group."""
        entrances = map(str, self._groups.entrances(self.name))
        return ["/bin/sh", "-c", _ENTER, "enter", *entrances, "--", *command]


def end_machines(machines: Sequence[NamespacedMachine]) -> None:
    """All machines die, as close together as can be; returns when nothing is left of them."""
    for machine in machines:
        machine.strike()
    for machine in machines:
        machine.bury()
