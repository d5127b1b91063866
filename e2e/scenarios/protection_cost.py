"""The CPU that protected queries cost: the sidecar, and the driver's Python with its calls to Java.

    before, after ─► cores of `python`, `calls`, `sidecar` and `all` ┐ percent of what
    the same without protection ────────────────────────────────────┘ the application uses

Pods of our own cluster are processes of this machine, so /proc has them. The same figure as in
`rekindle bench protect`; `application_scenarios` calls it.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from rekindle_bench import thread_cpu

SIDECAR = b"rekindle-sidecar"
EXECUTOR = b"KubernetesExecutorBackend"


PARTS = ("python", "calls", "sidecar", "all")

# A process id and when the process has started, in ticks since the machine has: ids come again.
Process = tuple[int, int]


def cpu_seconds(program: str) -> dict[Process, dict[str, float]]:
    """So far, of each process in pods of an application whose program has this name."""
    found: dict[Process, dict[str, float]] = {}
    for role, pids in _processes(program.encode()).items():
        for pid in pids:
            with suppress(OSError):  # it has ended
                found[pid, _started(pid)] = _parts(role, thread_cpu.cpu_by_kind((pid,)))
    return found


def cores(
    before: Mapping[Process, Mapping[str, float]],
    after: Mapping[Process, Mapping[str, float]],
    seconds: float,
) -> dict[str, float]:
    """What was used in between by processes that were there at both times; nothing where there
    are none."""
    lasting = before.keys() & after.keys()
    if not lasting:
        return {}
    return {
        part: sum(after[one][part] - before[one][part] for one in lasting) / seconds
        for part in PARTS
    }


def _parts(role: str, kinds: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    """CPU of one process by what it is for."""
    of_driver = kinds if role == "driver" else {}
    spent = sum(kinds.values())
    return {
        "python": of_driver.get(("driver", thread_cpu.PYTHON), 0.0),
        "calls": of_driver.get(("driver", "calls from Python"), 0.0),
        "sidecar": spent if role == "sidecar" else 0.0,
        "all": spent,
    }


def _started(pid: int) -> int:
    """Field 22 of proc_pid_stat(5)."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def _processes(program: bytes) -> dict[str, list[int]]:
    """Process ids of the driver, its executors and its sidecar."""
    found: dict[str, list[int]] = {"driver": [], "executor": [], "sidecar": []}
    for pid, command in _commands():
        if EXECUTOR in command:
            found["executor"].append(pid)
        elif SIDECAR in command:
            found["sidecar"].append(pid)
        elif program in command:
            found["driver"].append(pid)
    return found


def _commands() -> Iterable[tuple[int, bytes]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                yield int(folder.name), (folder / "cmdline").read_bytes()
            except OSError:
                continue  # it has ended
