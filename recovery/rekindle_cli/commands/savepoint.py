"""`rekindle savepoint`: ends a pipeline at a checkpoint that a changed one can go on from.

The driver takes the checkpoint (`rekindle_spark.driver.epoch_loop`); here it is asked for, and
waited for.
"""

import time
from collections.abc import Callable
from typing import Annotated

import typer

from rekindle.model.errors import InputError, RunError
from rekindle_cli import cli_options

POLL_SECONDS = 0.2


def savepoint(
    store: Annotated[
        str, typer.Argument(help="The checkpoint store of the pipeline that runs: a folder or URL.")
    ],
    wait_seconds: Annotated[
        float, typer.Option(help="How long to wait; then the request is taken back.")
    ] = 600.0,
) -> None:
    """End a pipeline at a checkpoint that a changed one can go on from.

    Its driver ends with exit code 0 when all that was cut is in the checkpoint. Start the changed
    pipeline, or the same one, on the same store.

    Example: rekindle savepoint /shared/flights
    """
    cli_options.check_range("--wait-seconds", wait_seconds, 1.0, 86_400.0)
    from rekindle_spark.store.checkpoint_store import SAVEPOINT_REQUEST, numbered
    from rekindle_store import store_files

    found = store_files.at(store)
    try:
        if not found.names("generations"):
            raise InputError(
                where=f"checkpoint store {store}",
                what="is not there, or no pipeline has run on it",
                remedy="name the place that `rekindle run --store` was given",
            )
        found.put({SAVEPOINT_REQUEST: b""})
        typer.echo(f"{store}: waiting for the driver to end at a checkpoint of all partitions")
        try:
            _await(lambda: not store_files.exists(found, SAVEPOINT_REQUEST), store, wait_seconds)
        finally:
            found.remove([SAVEPOINT_REQUEST])
        checkpoint, cut = (
            max(numbered(found, kind), default=0) for kind in ("checkpoints", "offsets")
        )
    except NotADirectoryError as error:
        raise InputError(
            where=f"checkpoint store {store}",
            what="is no folder",
            remedy="name the place that `rekindle run --store` was given",
        ) from error
    except OSError as error:
        raise RunError(
            where=f"checkpoint store {store}",
            what=f"cannot be reached ({error.strerror or error})",
            remedy="see that it is there, and ask again",
        ) from error
    if checkpoint < cut:
        raise RunError(
            where=f"checkpoint store {store}",
            what="got no savepoint: somebody else has taken the request back",
            remedy="ask again",
        )
    typer.echo(f"{store}: savepoint at epoch {checkpoint}; start a pipeline on it to go on")


def _await(is_done: Callable[[], bool], store: str, wait_seconds: float) -> None:
    """The driver removes the request once it has ended there."""
    end = time.monotonic() + wait_seconds
    while not is_done():
        if time.monotonic() > end:
            raise RunError(
                where=f"checkpoint store {store}",
                what=f"got no savepoint within {wait_seconds:.0f} s",
                remedy="see that its driver runs, is not paused and has all its queries back, "
                "then ask again",
            )
        time.sleep(POLL_SECONDS)
