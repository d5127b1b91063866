"""The options of all commands that load a pipeline file: `check`, `run` and `test`."""

from pathlib import Path
from typing import Annotated, Any

import typer


def place(argument: str) -> str:
    """Name the file of "FILE.py" or "FILE.py:FUNCTION" in messages."""
    return f"pipeline file {argument.partition(':')[0]}".rstrip()


def import_seconds(environment: str | None = None) -> Any:
    """The option `--import-seconds`, which a variable of the environment may give as well."""
    return typer.Option(
        envvar=environment, min=0.1, max=3600, help="How long the file may take to be imported."
    )


PipelineFile = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE.py",
        help="The file whose function pipeline() makes the pipeline; FILE.py:FUNCTION names "
        "another function.",
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings", help="Settings in YAML (docs/settings.md).", show_default="all defaults"
    ),
]
ImportSeconds = Annotated[float, import_seconds()]
