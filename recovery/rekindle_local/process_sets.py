"""Sets of processes: started behind a gate, listed by session, stopped, continued and killed whole.

It knows nothing of Spark, nodes or quotas. spark_cluster.py and local_zookeeper.py call it, and so
does the watcher, therefore it imports nothing of the project.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Listing = Callable[[], Sequence[int]]

# The shell waits for a word from its parent: whoever dies before having told the watcher about the
# new session leaves nothing behind. Then it enters its cgroups, so that nothing escapes them, and
# becomes the command.
_GATE = (
    'read -r word || exit 70; while [ "$1" != -- ]; do echo $$ > "$1" || exit 70; shift; done; '
    'shift; exec "$@" < /dev/null'
)
_STOPPED = "TtDZX"  # D: in the kernel, stops before it runs a line of its own again
_DEAD = "ZX"


@dataclass(frozen=True, slots=True)
class _Status:
    state: str
    session: int
    cpu_ticks: int
    start_ticks: int


def start_gated(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    entrances: Iterable[Path],
    log: Path,
) -> subprocess.Popen[bytes]:
    """Start `command` as the leader of a new session, held at the gate until `open_gate`.

    The process enters the cgroups whose `cgroup.procs` are `entrances` before it becomes the
    command. Output and errors are added to `log`.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "gate", *map(str, entrances), "--", *command],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def open_gate(process: subprocess.Popen[bytes]) -> None:
    """Let a process of `start_gated` go on; one that has died already shows in its exit code."""
    assert process.stdin is not None
    try:
        process.stdin.write(b"go\n")
        process.stdin.close()
    except BrokenPipeError:
        return


def session_processes(session: int) -> tuple[int, ...]:
    """Ids of the living processes of a session, zombies left out."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    statuses = [(pid, _read_status(pid)) for pid in pids]
    return tuple(
        pid
        for pid, status in statuses
        if status is not None and status.session == session and status.state not in _DEAD
    )


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of the processes `pids` and of those children that they have waited for."""
    statuses = [_read_status(pid) for pid in pids]
    ticks = sum(status.cpu_ticks for status in statuses if status is not None)
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory of a process that is not swapped out; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def start_ticks(pid: int) -> int | None:
    """When a process was started, in ticks since the machine was; None when it is gone.

    With its id this names a process for ever, while an id alone is used again.
    """
    status = _read_status(pid)
    return None if status is None or status.state in _DEAD else status.start_ticks


def started_at(pid: int) -> float | None:
    """When a process was started, in seconds since 1970, to a second; None when it is gone."""
    ticks = start_ticks(pid)
    if ticks is None:
        return None
    lines = Path("/proc/stat").read_text().splitlines()
    booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    return booted + ticks / os.sysconf("SC_CLK_TCK")


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each process that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def kill_all(listing: Listing, *, limit_seconds: float) -> tuple[int, ...]:
    """SIGKILL whatever `listing` shows until it shows nothing; what is left at the limit.

    All processes of a round are listed before the first is killed, so that they die as close
    together as can be, and a fork that slipped through one round dies in the next.
    """
    deadline = time.monotonic() + limit_seconds
    while (pids := tuple(listing())) and time.monotonic() < deadline:
        signal_all(pids, signal.SIGKILL)
        time.sleep(0.005)
    return pids


def stop_all(listing: Listing, *, limit_seconds: float) -> tuple[int, ...]:
    """SIGSTOP whatever `listing` shows until all of it is stopped; what still runs at the limit.

    Done when a listing shows nothing that the one before did not: what was all stopped by then
    cannot have forked in between.
    """
    deadline = time.monotonic() + limit_seconds
    stopped: frozenset[int] = frozenset()
    while True:
        pids = listing()
        running = _running(pids)
        if not running and stopped.issuperset(pids):
            return ()
        if time.monotonic() > deadline:
            return running
        stopped = frozenset() if running else frozenset(pids)
        if running:
            signal_all(running, signal.SIGSTOP)
            time.sleep(0.005)


def continue_all(listing: Listing) -> None:
    """SIGCONT everything that `listing` shows: stopped processes fork no more, one round does."""
    signal_all(listing(), signal.SIGCONT)


def await_condition(
    condition: Callable[[], bool], *, limit_seconds: float, interval_seconds: float = 0.02
) -> bool:
    """Whether `condition` came true within the limit."""
    deadline = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval_seconds)
    return True


def _running(pids: Iterable[int]) -> tuple[int, ...]:
    statuses = [(pid, _read_status(pid)) for pid in pids]
    return tuple(
        pid for pid, status in statuses if status is not None and status.state not in _STOPPED
    )


def _read_status(pid: int) -> _Status | None:
    """Fields 3, 6, 14 to 17 and 22 of proc_pid_stat(5); None when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    cpu_ticks = sum(int(field) for field in fields[11:15])
    return _Status(fields[0], int(fields[3]), cpu_ticks, int(fields[19]))
