"""`rekindle store`: checks a checkpoint store for damage, and copies it to another place.

Does it with `rekindle_store`; imports nothing of the runtime, so it runs where a backup is made.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rekindle_store import store_copies, store_files, store_integrity
from rekindle_store.store_copies import Copied
from rekindle_store.store_integrity import Findings, Say

# What takes no longer says nothing of how far it is.
QUIET_SECONDS = 2.0
# Where nobody sees a line change, a new one comes so often.
LINE_SECONDS = 30.0
KINDS = {
    "generations": "starts of drivers",
    "programs": "programs",
    "segments": "segments of the commit log",
    "commits": "commit records",
    "indices": "indices of output that was put together",
    "outputs": "output files",
    "branches": "branches left out",
    "waiting": "rows that wait for them",
    "checkpoints": "checkpoints",
    "states": "states",
    "inputs": "input kept for them",
    "offsets": "offsets of epochs",
    "listings": "lists of files that sources read",
}
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
UNIT = 1024

store = typer.Typer(
    help="Check a checkpoint store for damage, or copy it to another place.\n\n"
    "Example: rekindle store copy /shared/flights s3://backup/flights",
    no_args_is_help=True,
)
Store = Annotated[
    str,
    typer.Argument(metavar="STORE", help="The checkpoint store: a folder, or a URL of S3 or HDFS."),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="Where it goes: nothing is there, or an older copy of this store."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="See that output files are there, without reading them.")
]


@store.command("check")
def check_store(place: Store, quick: Quick = False, as_json: Json = False) -> None:
    """Look whether all of a store is there, and is what was written. Exit code 1: it is damaged.

    A driver may be running on it.

    Example: rekindle store check s3://checkpoints/flights
    """
    with _progress() as say:
        findings = store_integrity.check(
            store_files.at(place), of_output="sizes" if quick else "rows", say=say
        )
    if as_json:
        typer.echo(json.dumps(_record(findings)))
    else:
        _show(findings)
    _end(findings)


@store.command("copy")
def copy_store(place: Store, target: Target, quick: Quick = False, as_json: Json = False) -> None:
    """Copy a store to another place, and check the copy. Exit code 1: the copy is damaged.

    A driver may be running on STORE. A copy that was interrupted, or an older one, is gone on with.

    Example: rekindle store copy /shared/flights s3://backup/flights
    """
    with _progress() as say:
        copied = store_copies.copy(place, target, say, quick=quick)
    if as_json:
        counts = {"files": copied.files, "bytes": copied.bytes, "equal": copied.equal}
        typer.echo(json.dumps({**_record(copied.findings), "copied": counts}))
    else:
        _show_copied(target, copied)
    _end(copied.findings)


def _record(findings: Findings) -> dict[str, Any]:
    """As --json shows it."""
    return {
        "store": findings.place,
        "identity": findings.identity,
        "generation": findings.generation,
        "commits": findings.commits,
        "checkpoint": findings.checkpoint,
        "files": {kind: findings.files[kind] for kind in KINDS},
        "bytes": {kind: findings.bytes[kind] for kind in KINDS},
        "damages": [
            {
                "place": damage.place,
                "what": damage.what,
                "meaning": damage.meaning,
                "remedy": damage.remedy,
            }
            for damage in findings.damages
        ],
        "more_damages": findings.more_damages,
    }


def _show(findings: Findings) -> None:
    """What was looked at, as a table, and what is damaged, a paragraph each."""
    table = Table(box=None, pad_edge=False)
    for title, justify in (("what", "left"), ("files", "right"), ("size", "right")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    for kind, name in KINDS.items():
        if findings.files[kind]:
            table.add_row(name, f"{findings.files[kind]:,}", _size(findings.bytes[kind]))
    Console(highlight=False, markup=False).print(table)
    for damage in findings.damages:
        typer.echo(
            f"\n{findings.place}/{damage.place}: {damage.what}\n"
            f"  what it means: {damage.meaning}\n  what to do: {damage.remedy}"
        )
    if findings.more_damages:
        typer.echo(f"\nand {findings.more_damages:,} more")
    newest = f"commit {findings.commits:,}, checkpoint {findings.checkpoint:,}"
    count = len(findings.damages) + findings.more_damages
    said = f"{count:,} damage{'' if count == 1 else 's'}" if count else "no damage"
    typer.echo(f"\n{findings.place}: {said}; generation {findings.generation}, {newest}")


def _show_copied(target: str, copied: Copied) -> None:
    _show(copied.findings)
    typer.echo(
        f"{target}: {copied.files:,} files copied ({_size(copied.bytes)}), "
        f"{copied.equal:,} were there already"
    )


def _end(findings: Findings) -> None:
    if findings.damages:
        raise typer.Exit(1)


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= UNIT and unit < len(UNITS) - 1:
        size, unit = size / UNIT, unit + 1
    return f"{count} bytes" if unit == 0 else f"{size:.1f} {UNITS[unit]}"


@contextmanager
def _progress() -> Iterator[Say]:
    """What is called with how far it is; shown on standard error once it has taken a while."""
    console = Console(stderr=True)
    status = console.status("")
    began = shown = time.monotonic()

    def say(text: str) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - began < QUIET_SECONDS:
            return
        if console.is_terminal:
            status.update(text)
            status.start()
        elif shown == began or now - shown >= LINE_SECONDS:
            console.print(text, markup=False, highlight=False)
            shown = now

    try:
        yield say
    finally:
        status.stop()
