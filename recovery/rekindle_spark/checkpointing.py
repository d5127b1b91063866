"""When to take a checkpoint, and when one is global.

    idle ──due──► taking (epoch k) ──all acknowledged──► global: trim, idle
                     └──a loss, or a failed write──► given up, idle

States are written by the hosts while epochs go on; acknowledgements ride on later reports. A
checkpoint is taken only while every partition is live: until then all exchanges since the last
one are retained, and recovery starts from it.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from rekindle_spark import staging
from rekindle_spark.application import Application
from rekindle_spark.jobs import Ranges

__all__ = ["Checkpointing"]

# an acknowledgement may be lost with the report that carried it
TAKING_SECONDS_MAX = 120.0


@dataclass(slots=True)
class Checkpointing:
    """The newest checkpoint that is being taken, and what it still waits for."""

    application: Application
    epoch: int | None = None
    waiting: set[int] = field(default_factory=set)
    sizes: dict[int, int] = field(default_factory=dict)
    losses: int = 0
    last_at: float = field(default_factory=time.monotonic)
    completed: list[int] = field(default_factory=list)

    def due(self, epoch: int, work: Ranges) -> int | None:
        """The epoch to checkpoint in this job, or None."""
        application = self.application
        late = time.monotonic() - self.last_at > TAKING_SECONDS_MAX
        if self.epoch is not None and late:
            application.events.write("checkpoint-failed", text="was not acknowledged in time")
        if late or self.losses != application.losses:
            self.epoch = None
        if self.epoch == epoch:
            return epoch
        wanted = application.settings.runtime.checkpoint_seconds
        if self.epoch is not None or time.monotonic() - self.last_at < wanted:
            return None
        everything = len(work) == len(application.program.partition_names)
        if not everything or not application.progress.complete:
            return None
        self.epoch, self.losses = epoch, application.losses
        self.last_at = time.monotonic()
        self.waiting = {
            number
            for chain in application.program.chains
            if chain.keyed
            for number in chain.partitions
        }
        self.sizes = {}
        application.store.begin_checkpoint(epoch)
        return epoch

    def acknowledge(self, acknowledgements: list[dict[str, Any]]) -> None:
        """Enter what hosts have written."""
        for done in acknowledgements:
            if done["epoch"] != self.epoch:
                continue
            if "failed" in done:
                self.application.events.write("checkpoint-failed", text=done["failed"])
                self.epoch = None
                return
            self.waiting.discard(done["partition"])
            self.sizes[done["partition"]] = done["bytes"]

    def taken(self) -> list[int]:
        """Epochs whose checkpoint has become global since the last call."""
        completed, self.completed = self.completed, []
        return completed

    def advance(self) -> None:
        """Complete the checkpoint when nothing is waited for: it becomes the restore point."""
        application, epoch = self.application, self.epoch
        if epoch is None or self.waiting or self.losses != application.losses:
            return
        names = application.program.partition_names
        with application.lock:
            published = staging.publishable(application, epoch)
        application.store.complete_checkpoint(
            epoch,
            {
                "program": application.program.hash,
                "at": time.time(),
                "bytes": {names[number]: size for number, size in sorted(self.sizes.items())},
                "published": published,
            },
        )
        if published is not None:
            staging.publish(application, epoch, published)
        with application.lock:
            application.progress.restore_point = epoch
            emptied = application.progress.retained.trim(epoch)
            for key in [key for key in application.digests if key[1] <= epoch]:
                del application.digests[key]
            for old in [number for number in application.cuts if number < epoch]:
                del application.cuts[old]
        application.remove(emptied)
        application.events.write("checkpoint", epoch=epoch)
        self.epoch = None
        self.completed.append(epoch)
