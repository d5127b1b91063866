"""What is broken on purpose, in driver and hosts, to see that a check of chaos finds it.

    sitecustomize  what Python reads at its start: it breaks what the environment names, and
                    hinders where a fault has set a trap

Nothing of the product knows of it: the folder is put on the path of the processes of a trial.
"""

from collections.abc import Collection
from enum import StrEnum
from pathlib import Path

from rekindle_chaos import trial_generator

__all__ = ["FOLDER", "VARIABLE", "Sabotage"]

FOLDER = Path(__file__).parent
VARIABLE = "REKINDLE_CHAOS_BREAK"


class Sabotage(StrEnum):
    """What is broken.

    order       a partition takes its input in any order
    dedupe      output of an epoch that runs again is released again
    fence       an older driver goes on writing, and hosts obey it
    restore     a partition is restored without the newest part of its state
    offset-log  the newest epochs are cut anew after a restart
    trim-early  frames go with the next checkpoint, whoever still needs them
    manifest    a frame gets lost, and a reader goes on without
    watermark   sources say that they are further than they are
    late-checkpoint   a checkpoint counts that came when a newer driver had sealed the log
    forgotten-letter  a repeat chooses anew which rows are dead letters
    unchecked-frame   rows are taken as they come from a disk
    """

    ORDER = "order"
    DEDUPE = "dedupe"
    FENCE = "fence"
    RESTORE = "restore"
    OFFSET_LOG = "offset-log"
    TRIM_EARLY = "trim-early"
    MANIFEST = "manifest"
    WATERMARK = "watermark"
    LATE_CHECKPOINT = "late-checkpoint"
    FORGOTTEN_LETTER = "forgotten-letter"
    UNCHECKED_FRAME = "unchecked-frame"

    @property
    def faults(self) -> Collection[str]:
        """The kinds of faults that show it, with which the same seeds pass where nothing is
        broken."""
        return SHOWN_BY.get(self, trial_generator.FIRST_KINDS)

    @property
    def ordering(self) -> str | None:
        """The ordering under which alone it does harm; None: under any."""
        return "adaptive" if self is Sabotage.LATE_CHECKPOINT else None


SHOWN_BY: dict[Sabotage, tuple[str, ...]] = {
    Sabotage.LATE_CHECKPOINT: ("late-put",),
    Sabotage.FORGOTTEN_LETTER: ("lookup-away",),
    Sabotage.UNCHECKED_FRAME: ("flip-byte",),
}
