"""`rekindle verify DIR`: checks a report against the records of its run.

Shows the outcome and nothing else; `rekindle.verification` does the work.
"""

import time
from pathlib import Path
from typing import Annotated

import typer

from rekindle import verification
from rekindle.errors import RunError
from rekindle.verification import comparison

__all__ = ["verify"]


def verify(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `rekindle demo --report DIR` wrote.")
    ],
) -> None:
    """Recompute every figure of a report and check every output row.

    Reads nothing but the report's directory and the input files that it names.

    Example: rekindle verify out
    """
    found = verification.verify(directory, time.monotonic)
    if found:
        raise RunError(
            where=str(directory),
            what=f"the report does not hold, differences: {len(found)}",
            remedy=f"run the demo again and compare:\n\n{comparison.table(found)}",
        )
    typer.echo(f"{directory}: every figure of the report holds, and every output row is right")
