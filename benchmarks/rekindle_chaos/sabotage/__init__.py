"""What is broken on purpose, in driver and hosts, to see that a check of chaos finds it.

    sitecustomize   what Python reads at its start: it breaks what the environment names

Nothing of the product knows of it: the folder is put on the path of the processes of a trial.
"""

from enum import StrEnum
from pathlib import Path

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
    """

    ORDER = "order"
    DEDUPE = "dedupe"
    FENCE = "fence"
    RESTORE = "restore"
    OFFSET_LOG = "offset-log"
    TRIM_EARLY = "trim-early"
    MANIFEST = "manifest"
    WATERMARK = "watermark"
