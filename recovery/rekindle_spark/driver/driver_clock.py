"""The driver's clock: seconds since 1970 that never jump.

Somebody may set the machine's clock, by an hour or by a step of NTP, and a pod may start on a
machine whose clock is wrong. A driver takes the clock's word once, when it starts, and counts on
from there by a clock that nobody sets, and that goes on while the machine is suspended. So epochs
are paced, rows arrive and lags are measured by what has really passed. What a driver writes and
reports of itself is in this time too, for readers subtract one moment from another.
"""

import time


def _passed() -> float:
    """Seconds since the machine was started, suspended or not, where the system counts both."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_STARTED_AT = time.time() - _passed()


def now() -> float:
    """Seconds since 1970, by the machine's clock when this process began."""
    return _STARTED_AT + _passed()
