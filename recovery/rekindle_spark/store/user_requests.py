"""Users' requests to a driver by files in its store, looked for beside the epochs.

    finish, savepoint, drain, hold-rate ──a look now and then──► what is asked for

A look at a server takes as long as a write to it, and there are several files. So a thread of its
own looks, and an epoch waits for none of that. Called by `driver_main`; the loops ask
`checkpoint_store.holds`.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rekindle_store import store_files
from rekindle_store.store_files import Files

# Seconds between two looks at least: a user waits for no less.
LOOK_SECONDS_MIN = 1.0


@dataclass(slots=True)
class UserRequests:
    """Looks for files of these names, one after the other, once in an epoch of so many seconds, but
    at most once a second. While the store is away, what was seen last holds."""

    files: Files
    names: Sequence[str]
    epoch_seconds: float
    seen: frozenset[str] = frozenset()
    ending: threading.Event = field(default_factory=threading.Event)

    def start(self) -> threading.Thread:
        """Look once, and go on in a thread until `stop`."""
        self.look()
        thread = threading.Thread(target=self._run, name="user-requests", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Have the thread end once it has done what it is at."""
        self.ending.set()

    def look(self) -> None:
        """See which are there now."""
        with suppress(OSError):
            self.seen = frozenset(
                name for name in self.names if store_files.exists(self.files, name)
            )

    def _run(self) -> None:
        while not self.ending.wait(max(LOOK_SECONDS_MIN, self.epoch_seconds)):
            self.look()
