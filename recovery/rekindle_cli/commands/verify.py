"""`rekindle verify DIR`: checks a report against the records of its run.

Shows progress and outcome, and nothing else; `rekindle.verification` does the work.
"""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from rekindle import verification
from rekindle.model.errors import RunError
from rekindle.verification import report_check


def verify(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `rekindle demo --report DIR` wrote.")
    ],
) -> None:
    """Recompute every figure of a report and check every output row.

    Reads nothing but the report's directory and the input files that it names.

    Example: rekindle verify out
    """
    found = _verify(directory)
    if found:
        raise RunError(
            where=str(directory),
            what=f"the report does not hold, differences: {len(found)}",
            remedy=f"run the demo again and compare:\n\n{report_check.table(found)}",
        )
    typer.echo(f"{directory}: every figure of the report holds, and every output row is right")


def _verify(directory: Path) -> tuple[verification.Difference, ...]:
    """Say what is being checked: in one line that changes, or in plain ones without a terminal."""
    console = Console()
    if not console.is_terminal:
        return verification.verify(directory, time.monotonic, lambda text: print(text, flush=True))
    with console.status("") as status:
        return verification.verify(
            directory, time.monotonic, lambda text: status.update(escape(text))
        )
