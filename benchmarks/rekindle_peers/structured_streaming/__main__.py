"""The program that spark-submit is given: the flights as ordinary Structured Streaming.

spark-submit ... submitted.py INPUT --store FOLDER --rows-per-second 1000
"""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.model.errors import InputError
from rekindle_cli import cli_options, command_line

if TYPE_CHECKING:
    from rekindle_peers.structured_streaming.streaming_driver import ProtectionOptions

ROWS_PER_SECOND_MAX = 10_000_000
SECONDS_PER_DAY = 86_400

SidecarOption = Annotated[
    Path | None,
    typer.Option(help="Protect the queries: the sidecar's socket.", show_default="none"),
]
NameOption = Annotated[str, typer.Option(help="NAMESPACE/APPLICATION of the sidecar.")]
SettingsOption = Annotated[
    Path | None, typer.Option(help="Settings of the protection.", show_default="none")
]
PrioritiesOption = Annotated[
    str, typer.Option(metavar="A=9,B=5", help="Priorities of protected queries; else 1.")
]


def main() -> int:
    """Runs the program; returns the exit code."""
    return command_line.run_alone(run_flights, sys.argv[1:])


def run_flights(
    directory: Annotated[Path, typer.Argument(metavar="INPUT", help="Folder of prepared files.")],
    store: Annotated[Path, typer.Option(help="Checkpoints and output: a folder all nodes share.")],
    rows_per_second: Annotated[float, typer.Option(help="Rows of all files together.")],
    events: Annotated[
        Path | None,
        typer.Option(help="Where events are written.", show_default="events.jsonl in the store"),
    ] = None,
    rows_per_trigger_max: Annotated[
        int | None,
        typer.Option(
            help="Rows of all files that one batch takes at most; 0 for no limit.",
            show_default="what comes in 60 s",
        ),
    ] = None,
    trigger_seconds: Annotated[
        float, typer.Option(help="A batch begins so often; 0 as soon as it can.")
    ] = 0.0,
    names: Annotated[
        str | None,
        typer.Option("--queries", metavar="A,B", help="Only these.", show_default="all 18"),
    ] = None,
    shared: Annotated[
        bool, typer.Option(help="Put queries that have much in common into one stream.")
    ] = False,
    sidecar: SidecarOption = None,
    name: NameOption = "",
    settings: SettingsOption = None,
    priorities: PrioritiesOption = "",
) -> None:
    """Run the 18 queries; a file named `finish` in the store ends them when all is committed.

    Example: spark-submit structured_streaming.py input --store /shared/s --rows-per-second 1000
    """
    cli_options.check_range("--rows-per-second", rows_per_second, 1, ROWS_PER_SECOND_MAX)
    cli_options.check_range(
        "--rows-per-trigger-max", rows_per_trigger_max or 0, 0, ROWS_PER_SECOND_MAX
    )
    cli_options.check_range("--trigger-seconds", trigger_seconds, 0, SECONDS_PER_DAY)
    from rekindle_peers.structured_streaming import streaming_driver
    from rekindle_peers.structured_streaming.streaming_queries import QUERIES

    known = tuple(QUERIES)
    streaming_driver.run(
        streaming_driver.StreamingOptions(
            directory=directory.resolve(),
            store=store.resolve(),
            events=events or store / "events.jsonl",
            rows_per_second=rows_per_second,
            rows_per_trigger_max=rows_per_trigger_max,
            trigger_seconds=trigger_seconds,
            names=known if names is None else cli_options.choices("--queries", names, known),
            shared=shared,
            protection=_protection(sidecar, name, settings, priorities, shared=shared),
        )
    )


def _protection(
    sidecar: Path | None, name: str, settings: Path | None, priorities: str, *, shared: bool
) -> "ProtectionOptions | None":
    if sidecar is None:
        return None
    if shared:
        cli_options.check_absent("--shared", shared, "--sidecar: a protected query is alone")
    from rekindle_peers.structured_streaming.streaming_driver import ProtectionOptions

    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("rekindle_spark.protection").setLevel(logging.INFO)
    return ProtectionOptions(sidecar, name, settings, _priorities(priorities))


def _priorities(text: str) -> Mapping[str, float]:
    """Those of "A=9,B=5"."""
    try:
        pairs = (part.split("=") for part in text.split(",") if part)
        return {name: float(priority) for name, priority in pairs}
    except ValueError as error:
        raise InputError(
            where="--priorities", what=f"is {text!r:.60}", remedy="give them as in A=9,B=5"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
