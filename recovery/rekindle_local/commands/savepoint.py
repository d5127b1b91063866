"""`rekindle savepoint`: ends a pipeline at a checkpoint that a changed one can go on from.

The driver takes the checkpoint (`rekindle_spark.epochs`); here it is asked for, and waited for.
"""

import time
from pathlib import Path
from typing import Annotated

import typer

from rekindle.errors import InputError, RunError
from rekindle_local import options

__all__ = ["savepoint"]

POLL_SECONDS = 0.2


def savepoint(
    store: Annotated[Path, typer.Argument(help="The checkpoint store of the pipeline that runs.")],
    wait_seconds: Annotated[
        float, typer.Option(help="How long to wait; then the request is taken back.")
    ] = 600.0,
) -> None:
    """End a pipeline at a checkpoint that a changed one can go on from.

    Its driver ends with exit code 0 when all that was cut is in the checkpoint. Start the changed
    pipeline, or the same one, on the same store.

    Example: rekindle savepoint /shared/flights
    """
    options.check_range("--wait-seconds", wait_seconds, 1.0, 86_400.0)
    if not any((store / "generations").glob("*.json")):
        raise InputError(
            where=f"checkpoint store {store}",
            what="is not there, or no pipeline has run on it",
            remedy="name the folder that `rekindle run --store` was given",
        )
    from rekindle_spark.store import SAVEPOINT_REQUEST

    request = store / SAVEPOINT_REQUEST
    request.touch()
    typer.echo(f"{store}: waiting for the driver to end at a checkpoint of all partitions")
    try:
        _await_removal(request, wait_seconds)
    finally:
        request.unlink(missing_ok=True)
    epoch = max(int(path.stem) for path in (store / "checkpoints").glob("*.json"))
    typer.echo(f"{store}: savepoint at epoch {epoch}; start a pipeline on this store to go on")


def _await_removal(request: Path, wait_seconds: float) -> None:
    """The driver removes the request once it has ended there."""
    end = time.monotonic() + wait_seconds
    while request.exists():
        if time.monotonic() > end:
            raise RunError(
                where=f"checkpoint store {request.parent}",
                what=f"got no savepoint within {wait_seconds:.0f} s",
                remedy="see that its driver runs, is not paused and has all its queries back, "
                "then ask again",
            )
        time.sleep(POLL_SECONDS)
