"""How long a process has waited for a CPU: what it owes to the machine and not to itself.

The kernel counts for each thread how long it could have run and did not (the second number of
`/proc/PID/task/TID/schedstat`, in nanoseconds). Threads wait side by side, so the longest wait of a
single thread stands for the process. That is an estimate: another thread may have held up what is
timed, for less. `operator_process` samples it.
"""

import threading
import time
from collections import deque
from pathlib import Path
from typing import Self

SAMPLE_SECONDS = 0.25
# A quarter of an hour: the longest phase takes less.
SAMPLES_MAX = 3_600
NANOSECONDS = 1e9

Sample = tuple[float, dict[str, int]]


def waited_nanoseconds(process_id: int) -> dict[str, int]:
    """So far, for each thread of a process by its id; empty when the process is gone."""
    found = {}
    for file in Path(f"/proc/{process_id}/task").glob("*/schedstat"):
        try:
            found[file.parent.name] = int(file.read_text().split()[1])
        except OSError:
            continue  # this thread has ended meanwhile
    return found


def longest_wait(samples: list[Sample], since: float, until: float) -> float:
    """Seconds that the thread which waited longest has waited between two moments (since 1970).

    Only samples between them count, so it is rather too little; 0 where there are fewer than two.
    """
    within = [waits for at, waits in samples if since <= at <= until]
    if len(within) < 2:
        return 0.0
    first, last = within[0], within[-1]
    return max((last[one] - first.get(one, 0) for one in last), default=0) / NANOSECONDS


class CpuWaits:
    """A context manager: inside, the waits of a process are sampled."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu-waits", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def longest(self, since: float, until: float) -> float:
        """`longest_wait` of what was sampled."""
        return longest_wait([*self._samples], since, until)

    def _run(self) -> None:
        while not self._ending.wait(SAMPLE_SECONDS):
            self._samples.append((time.time(), waited_nanoseconds(self._process_id)))
