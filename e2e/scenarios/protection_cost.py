"""The CPU that protected queries cost: the sidecar, and the driver's Python with its calls to Java.

    before, after ─► cores of `python`, `calls`, `sidecar` and `all` ┐ percent of what
    the same without protection ────────────────────────────────────┘ the application uses

Pods of our own cluster are processes of this machine, so /proc has them. The same figure as in
`rekindle bench protect`; `application_scenarios` calls it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rekindle_bench import thread_cpu

SIDECAR = b"rekindle-sidecar"
EXECUTOR = b"KubernetesExecutorBackend"


def cpu_seconds(program: str) -> dict[str, float]:
    """So far, of the pods of an application whose program has this name."""
    found = _processes(program.encode())
    kinds = thread_cpu.cpu_by_kind(found["driver"])
    others = {part: thread_cpu.cpu_by_kind(found[part]) for part in ("executor", "sidecar")}
    spent = {part: sum(kinds_of.values()) for part, kinds_of in others.items()}
    return {
        "python": kinds.get(("driver", thread_cpu.PYTHON), 0.0),
        "calls": kinds.get(("driver", "calls from Python"), 0.0),
        "sidecar": spent["sidecar"],
        "all": sum(kinds.values()) + sum(spent.values()),
    }


def cores(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """What was used in between. Whatever has ended meanwhile does not count."""
    return {what: max(0.0, after[what] - before[what]) / seconds for what in after}


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
