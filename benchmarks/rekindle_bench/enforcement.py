"""The option `--enforce` of all benchmarks with bars: whether a bar that is missed is an error."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rekindle.model.errors import RunError

Enforce = Annotated[bool, typer.Option(help="Exit 1 when a bar is not met.")]


def enforce(result: Mapping[str, Any], wanted: bool) -> None:
    """Raise RunError for the bars that a result has missed, where that is `wanted`."""
    missed = [row["bar"] for row in result["bars"] if not row["met"]]
    if wanted and missed:
        raise RunError(
            where="benchmark",
            what=f"missed: {'; '.join(missed)}",
            remedy="see the report for the figures",
        )
