"""What is counted inside of the processes of a run, without any change to the product.

    sitecustomize  what Python reads at its start: it counts the CPU time of checksums of frames

The folder is put on the path of the nodes' processes.
"""

from pathlib import Path

__all__ = ["FOLDER", "VARIABLE"]

FOLDER = Path(__file__).parent
VARIABLE = "REKINDLE_BENCH_CHECKS"
