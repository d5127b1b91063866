"""The program that drives the job: the flights as one job of Flink.

python -m rekindle_peers.flink INPUT --store FOLDER --jobmanager HOST:PORT --rows-per-second 1000
"""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from rekindle_cli import cli_options, command_line

ROWS_PER_SECOND_MAX = 10_000_000
SECONDS_PER_DAY = 86_400


def main() -> int:
    """Runs the program; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return command_line.run_alone(_run, sys.argv[1:])


def _run(
    directory: Annotated[Path, typer.Argument(metavar="INPUT", help="Folder of prepared files.")],
    store: Annotated[Path, typer.Option(help="Checkpoints and output: a folder all nodes share.")],
    jobmanager: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it takes jobs.")],
    rows_per_second: Annotated[float, typer.Option(help="Rows of all files together.")],
    parallelism: Annotated[int, typer.Option(min=1, max=1024, help="Tasks of a kind.")] = 1,
    checkpoint_seconds: Annotated[float, typer.Option(help="A checkpoint begins so often.")] = 1.0,
    events: Annotated[
        Path | None,
        typer.Option(help="Where events are written.", show_default="events.jsonl in the store"),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option("--queries", metavar="A,B", help="Only these.", show_default="all 18"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Flink for the job."),
    ] = None,
) -> None:
    """Run the 18 queries; a file named `finish` in the store ends them when all is committed.

    Example: python -m rekindle_peers.flink input --store s --jobmanager 127.0.0.1:8081 \
    --rows-per-second 1000
    """
    cli_options.check_range("--rows-per-second", rows_per_second, 1, ROWS_PER_SECOND_MAX)
    cli_options.check_range("--checkpoint-seconds", checkpoint_seconds, 0.01, SECONDS_PER_DAY)
    from rekindle_peers.flink import flink_driver, flink_outputs

    known = tuple(flink_outputs.COLUMNS)
    flink_driver.run(
        flink_driver.FlinkOptions(
            directory=directory.resolve(),
            store=store.resolve(),
            events=events or store / "events.jsonl",
            address=jobmanager,
            parallelism=parallelism,
            rows_per_second=rows_per_second,
            checkpoint_seconds=checkpoint_seconds,
            names=known if names is None else cli_options.choices("--queries", names, known),
            settings=dict(pair.split("=", 1) for pair in settings or ()),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
