"""`rekindle init`: writes an example that runs, to begin a pipeline of one's own with."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from rekindle.model.errors import InputError


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where; made if it is not there.")
    ] = Path(),
) -> None:
    """Write an example that runs: a pipeline, its data, settings and a test.

    Nothing that is there is overwritten.

    Example: rekindle init web-log
    """
    from rekindle_cli import example

    names = [*example.FILES, example.LOG]
    there = [name for name in names if (folder / name).exists()]
    if there:
        raise InputError(
            where=str(folder),
            what=f"holds {' and '.join(there)} already",
            remedy="name a new folder: nothing is overwritten",
        )
    try:
        example.write(folder)
    except OSError as error:
        raise InputError(
            where=str(folder),
            what=f"cannot be written ({error.strerror})",
            remedy="name another folder",
        ) from error
    print(_next(folder, names))


def _next(folder: Path, names: list[str]) -> str:
    """What was written, and the commands to go on with."""
    lines = [f"wrote {', '.join(names)}" + (f" to {folder}" if folder != Path() else ""), ""]
    if folder != Path():
        lines.append(f"  cd {shlex.quote(str(folder))}")
    return "\n".join(
        [
            *lines,
            "  rekindle check web_log.py --settings settings.yaml",
            "  rekindle test web_log.py",
            "  pytest",
            "  rekindle run web_log.py --settings settings.yaml --local 4 --kill-after 30s",
        ]
    )
